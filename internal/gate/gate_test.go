package gate

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/test/executable"
)

// TestJudge: what is missing skips, or fails where it is demanded; a program that is there fails where there must be
// none.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		kind           kind
		missing        bool
		wanted         string
		fails, skipped bool
	}{
		{installed, false, "", false, false},
		{installed, true, "", false, true},
		{installed, true, "all", true, false},
		{installed, true, "a,mine", true, false},
		{installed, true, "a,b", false, true},
		{installed, true, "none", false, true},
		{installed, false, "none", true, false},
		{installed, false, "all", false, false},
		{granted, true, "all", true, false},
		{granted, false, "none", false, false},
		{granted, true, "none", false, true},
		{rare, true, "all", false, true},
		{rare, true, "mine", true, false},
	} {
		p := probe{"mine", func() error { return nil }, c.kind}
		if c.missing {
			p.here = func() error { return errors.New("there is none") }
		}
		if fails, skipped := p.judgeProbe(c.wanted); (fails != "") != c.fails || (skipped != "") != c.skipped {
			t.Errorf("kind %d, missing %v, GPUARD_GATES=%s: fails %q, skipped %q", c.kind, c.missing, c.wanted, fails, skipped)
		}
	}
}

// TestProgram: one that is there and does not work is no open gate, nor another one of that name.
func TestProgram(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	for name, c := range map[string]struct{ text, want string }{
		"works": {"#!/bin/sh\ntest \"$1\" = --version\n", ""},
		"stub":  {"#!/bin/sh\necho 'install it first' >&2\nexit 1\n", "stub --version: exit status 1: install it first"},
		"other": {"#!/bin/sh\ntest \"$1\" = --help\n", "exit status 1"},
		"none":  {"", "not found"},
	} {
		if c.text != "" {
			executable.Write(t, filepath.Join(dir, name), []byte(c.text))
		}
		err := program(name + " --version")()
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAll: a gate is asked once.
func TestAll(t *testing.T) {
	asked := 0
	list := askOnce([]probe{{"mine", func() error { asked++; return errors.New("there is none") }, rare}})
	if first, second := list[0].here(), list[0].here(); first == nil || second == nil || asked != 1 {
		t.Errorf("asked %d times: %v, %v", asked, first, second)
	}
}

// TestNeedStart: what does not start is as missing as what is not there.
func TestNeedStart(t *testing.T) {
	t.Setenv("GPUARD_GATES", "")
	t.Setenv("GPUARD_SKIPPED", "")
	for _, failure := range []error{nil, errors.New("operation not permitted")} {
		over := false
		t.Run("docker", func(t *testing.T) {
			defer func() { over = t.Skipped() }()
			NeedStart(t, "docker", failure)
		})
		if over != (failure != nil) {
			t.Errorf("%v: skipped %v", failure, over)
		}
	}
}

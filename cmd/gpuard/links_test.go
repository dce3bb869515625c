package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
)

// TestNoLinkOfOthers: wherever gpuard writes a file that is named, a link that another user put there does not lead it to
// a file of the caller's, nor does one on the way.
func TestNoLinkOfOthers(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root")
	top := quietDir(t)
	at := func(name string) string { return filepath.Join(top, name) }
	link := func(to, name string) error {
		return errors.Join(os.Symlink(to, at(name)), os.Lchown(at(name), bobUID, bobUID))
	}
	const old = "name: x\ndependencies: []\n"
	err := errors.Join(os.Mkdir(at("safe"), 0o755), os.WriteFile(at("safe/precious"), []byte(old), 0o644), os.Mkdir(at("tmp"), 0o755), os.Chmod(at("tmp"), 0o777|os.ModeSticky),
		link(at("safe/precious"), "tmp/link"), link(at("safe"), "tmp/folder"), link(at("safe/precious"), "tmp/link.csv"))
	writeUserFile(t, at("jobs.csv"), "timestamp,duration,num_gpus\n2026-01-01 08:00:00,60,1\n")
	writeUserFile(t, at("up/gpuard.yaml"), "services:\n  a:\n    command: [\"true\"]\n    log: "+at("tmp/link")+"\n")
	if err = errors.Join(err, os.Chmod(at("up"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"the log of a run":        {"run", "--log", at("tmp/link"), "--", "true"},
		"a log on such a way":     {"run", "--log", at("tmp/folder/new"), "--", "true"},
		"that of a supervised":    {"run", "--timeout", "9s", "--log", at("tmp/link"), "--", "true"},
		"the log of a job":        {"submit", "--log", at("tmp/link"), "--", "true"},
		"the results of simulate": {"simulate", "--csv", at("tmp/link.csv"), at("jobs.csv")},
		"the runs of compare":     {"compare", "--csv", at("tmp/link.csv"), "--", "true", "--and", "true"},
		"an archive of doctor":    {"doctor", "--bundle=" + at("tmp/folder/archive")},
		"the folder of a sweep":   {"sweep", "--dir", at("tmp/folder/sweep"), "--over", "x=1", "--", "true"},
		"setup direnv":            {"setup", "direnv", at("tmp/folder"), "--device", "0"},
		"setup conda":             {"setup", "conda", "--environment-yml", at("tmp/link"), "--device", "0"},
		"a trace":                 {"run", "--", "true"},
		"the folder of the queue": {"submit", "--", "true"},
	} {
		cmd := gpuardCommand(t, at("state"), []string{"GPUARD_MACHINE=demo", "HOME=" + at("home"), "TMPDIR=" + top}, args...)
		if name == "a trace" {
			cmd.Env = append(cmd.Env, "GPUARD_TRACE="+at("tmp/link"))
		}
		if name == "the folder of the queue" {
			cmd.Env = append(cmd.Env, "GPUARD_STATE=", "XDG_STATE_HOME="+at("tmp/folder/state"))
		}
		if got := runCommand(t, cmd); got.code == 0 || !strings.Contains(got.err, "is a symbolic link of uid 1, which is not followed") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	up := gpuardCommand(t, at("state"), []string{"GPUARD_MACHINE=demo", "HOME=" + at("home")}, "up")
	up.Dir = at("up")
	if got := runCommand(t, up); got.code == 0 || !strings.Contains(got.err, "is a symbolic link of uid 1") {
		t.Errorf("a service: %+v", got)
	}
	down := gpuardCommand(t, at("state"), []string{"GPUARD_MACHINE=demo", "HOME=" + at("home")}, "down")
	down.Dir = at("up")
	_ = runCommand(t, down)

	if text, err := os.ReadFile(at("safe/precious")); err != nil || string(text) != old {
		t.Errorf("it has %q, %v", text, err)
	}
	if there, err := os.ReadDir(at("safe")); err != nil || len(there) != 1 {
		t.Errorf("made there: %v, %v", there, err)
	}
}

// TestSubmitPipe: a job that is a pipe without a writer is refused; nobody waits for a writer.
func TestSubmitPipe(t *testing.T) {
	t.Parallel()
	top := quietDir(t)
	path := filepath.Join(top, "job.sh")
	if err := unix.Mkfifo(path, 0o700); err != nil {
		t.Fatal(err)
	}
	got := runAndKill(t, gpuardCommand(t, filepath.Join(top, "state"), []string{"GPUARD_MACHINE=demo", "HOME=" + top}, "submit", path), time.Minute)
	if got.code <= 0 || !strings.Contains(got.err, path) {
		t.Errorf("%+v", got)
	}
}

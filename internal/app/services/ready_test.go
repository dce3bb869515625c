package services

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/service"
	"gpuard/internal/host/tail"
)

const patience = 30 * time.Second

// probe waits until r says yes, and returns the reasons that were told meanwhile.
func probe(t *testing.T, p *prober) (reasons []string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = p.waitUntilReady(ctx, t.TempDir(), os.Environ(), func(why string) { reasons = append(reasons, why) })
	return reasons, err
}

// A command is asked until it says yes; the same reason is told once.
func TestReadyCommand(t *testing.T) {
	t.Parallel()
	count := filepath.Join(t.TempDir(), "count")
	p, err := newProber(service.Ready{Probe: service.Probe{Command: []string{"sh", "-c", `echo >> "$1"; n=$(wc -l < "$1"); [ $n -ge 4 ] || { echo loading; exit $((n / 3 + 1)); }`, "sh", count}}, Interval: time.Millisecond}, "", service.Place{})
	if err != nil {
		t.Fatal(err)
	}
	reasons, err := probe(t, p)
	if want := []string{"sh: exit status 1: loading", "sh: exit status 2: loading"}; err != nil || !slices.Equal(reasons, want) {
		t.Errorf("%v, %q; want %q", err, reasons, want)
	}
}

func TestReadyTimeout(t *testing.T) {
	t.Parallel()
	p, err := newProber(service.Ready{Probe: service.Probe{Command: []string{"sh", "-c", "echo never; exit 1"}}, Interval: time.Millisecond, Timeout: 2 * time.Second}, "", service.Place{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = probe(t, p); err == nil || err.Error() != "it was not ready within 2s: sh: exit status 1: never" {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err = p.waitUntilReady(ctx, "", nil, func(string) {}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A line counts when it was written after probing began, also when the log is rotated meanwhile.
func TestReadyLog(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte("server ready on 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	inode, offset := tail.InodeAndSize(log)
	p, err := newProber(service.Ready{Log: `ready on \d+$`}, log, service.Place{Inode: inode, Offset: offset})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	ended := make(chan error, 1)
	go func() { _, err := probe(t, p); ended <- err }()
	if err := os.Rename(log, log+".1"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(log, []byte("not ready on one\n"+strings.Repeat("more\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		t.Fatal("ready too early", err)
	case <-time.After(50 * time.Millisecond): // passes wrongly at worst
	}
	file, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // the write counts
	if _, err := file.WriteString("ready on 2\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := newProber(service.Ready{Log: "("}, log, service.Place{}); err == nil {
		t.Error("a broken pattern is taken")
	}
}

package nvsmi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/test/executable"
)

// script puts a program called nvidia-smi first on PATH.
func script(t *testing.T, body string) {
	t.Helper()
	dir := t.TempDir()
	executable.Write(t, filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\n"+body))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func cause(t *testing.T, err error) gpu.Cause {
	t.Helper()
	var u *gpu.Unavailable
	if !errors.As(err, &u) {
		t.Fatalf("error %v is no *gpu.Unavailable", err)
	}
	if u.Text == "" || u.Remedy == "" {
		t.Errorf("incomplete: %+v", *u)
	}
	return u.Cause
}

func TestReadAsksForNamesAndCapabilities(t *testing.T) {
	data, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	script(t, fmt.Sprintf(`case "$*" in
"-q -x") cat '%[1]s/mig.xml'; exit 14;;
"-L") cat '%[1]s/mig.list';;
"--query-gpu=uuid,compute_cap --format=csv,noheader") echo "GPU-bbbbbbbb-0000-1111-2222-00000000000b, 8.0";;
*) exit 1;;
esac
`, data))
	before := time.Now()
	m, err := Read(t.Context(), gpu.Everything)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Devices) != 2 || len(m.Devices[0].MIG) != 3 || m.Devices[0].MIG[1].Profile != "1c.2g.20gb" || len(m.Problems) != 1 {
		t.Errorf("machine: %+v", m)
	}
	if c := m.Devices[1].Compute; c == nil || c.String() != "8.0" || m.Devices[0].Compute != nil {
		t.Errorf("compute capability: %v", c)
	}
	if m.Taken.Before(before) || m.Taken.After(time.Now()) {
		t.Errorf("Taken = %v", m.Taken)
	}
}

func TestReadWithoutTheProgram(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Read(t.Context(), gpu.Identity)
	if c := cause(t, err); c != gpu.LibraryMissing || !strings.HasPrefix(err.Error(), "cannot find nvidia-smi") {
		t.Errorf("%s: %v", c, err)
	}
}

func TestReadReportsWhatTheProgramSays(t *testing.T) {
	for body, want := range map[string]gpu.Cause{
		`echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18`:                   gpu.VersionMismatch,
		`echo "Failed to initialize NVML: Insufficient Permissions" >&2; exit 4`:                       gpu.NoPermission,
		`echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."; exit 9`: gpu.DriverNotLoaded,
		`echo "No devices were found"; exit 6`:                                                         gpu.NoDevice,
		`kill -SEGV $$`:                                                                                gpu.DriverError,
	} {
		script(t, body)
		_, err := Read(t.Context(), gpu.Identity)
		if got := cause(t, err); got != want {
			t.Errorf("%s: %s (%v), want %s", body, got, err, want)
		}
	}
}

func TestRunStopsATalkativeProgram(t *testing.T) {
	script(t, "while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done")
	path := filepath.Join(strings.Split(os.Getenv("PATH"), ":")[0], "nvidia-smi")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got := runNvidiaSMI(ctx, 4096, path, "-q")
	if got.failure == nil || got.failure.Cause != gpu.DriverError || !strings.Contains(got.failure.Text, "more than 4 KiB") || ctx.Err() != nil {
		t.Errorf("%+v", got.failure)
	}
}

func TestReadWithABrokenProgram(t *testing.T) {
	script(t, "")
	path := filepath.Join(strings.Split(os.Getenv("PATH"), ":")[0], "nvidia-smi")
	executable.Write(t, path, []byte("\x7fELF rubbish"))
	_, err := Read(t.Context(), gpu.Identity)
	if c := cause(t, err); c != gpu.DriverError {
		t.Errorf("%s: %v", c, err)
	}
}

func TestReadEndsTheWholeGroupAtTheDeadline(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	script(t, fmt.Sprintf("sleep 60 & echo $! >> '%[1]s'; echo $$ >> '%[1]s'; wait", pids))
	var text []byte
	for limit := 500 * time.Millisecond; strings.Count(string(text), "\n") < 2; limit *= 2 { // a busy machine starts it late
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		began := time.Now()
		_, err := Read(ctx, gpu.Identity)
		cancel()
		if took := time.Since(began); cause(t, err) != gpu.NoAnswer || took > limit+20*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		if text, err = os.ReadFile(pids); limit > 20*time.Second {
			t.Fatalf("the program did not start: %v", err)
		}
	}
	for _, field := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; running(pid); i++ {
			if i == 400 {
				t.Fatalf("process %d outlives the deadline", pid)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// running is false for a zombie too: process 1 reaps orphans, at any time.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestReadWhenCancelled(t *testing.T) {
	script(t, "sleep 60")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Read(ctx, gpu.Identity)
	if cause(t, err) != gpu.NoAnswer || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("%v", err)
	}
}

func TestReadSurvivesAChildThatKeepsThePipe(t *testing.T) {
	script(t, `if [ "$1" = -q ]; then echo '`+one+`'; sleep 30 & fi`)
	began := time.Now()
	m, err := Read(t.Context(), gpu.Identity)
	if err != nil || len(m.Devices) != 1 || time.Since(began) > 20*time.Second {
		t.Errorf("%+v, %v after %v", m, err, time.Since(began))
	}
}

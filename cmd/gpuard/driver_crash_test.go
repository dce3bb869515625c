package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/gate"
	"gpuard/internal/host/crash"
	"gpuard/internal/host/limits"
	"gpuard/test/fakegpu"
)

// TestDriverCrashes: a library that crashes is named with the call, nvidia-smi takes its place, and without it every
// command says so. Nothing of the Go runtime is shown.
func TestDriverCrashes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		function string
		signal   unix.Signal
	}{
		{"nvmlInit_v2", unix.SIGSEGV}, // reads through a null pointer, as all without a signal
		{"nvmlDeviceGetCount_v2", unix.SIGABRT},
		{"nvmlDeviceGetHandleByIndex_v2", unix.SIGBUS},
		{"nvmlDeviceGetMemoryInfo_v2", unix.SIGFPE},
	}
	for _, test := range tests {
		t.Run(test.function, func(t *testing.T) {
			t.Parallel()
			r := newFakeDriverMachine(t, makeA100s(2)...)
			r.env = append(r.env, "SITE="+makePCIRoot(t, "0x10de"))
			says := "it crashed (" + unix.SignalName(test.signal) + ") in " + test.function
			if test.signal == unix.SIGSEGV {
				r.Crash(test.function, fakegpu.AnyGPU)
			} else {
				r.Crash(test.function, fakegpu.AnyGPU, int(test.signal))
			}
			s, code := r.readStatus()
			if code != 0 || s.Source != "nvidia-smi" || len(s.Devices) != 2 || len(s.Problems) != 1 {
				t.Fatalf("exit %d, %+v", code, s)
			}
			checkContains(t, s.Problems[0], "read through nvidia-smi", says)
			got := r.run("run", "-q", "--", "sh", "-c", "echo $GPUARD_GPUS $GPUARD_CRASHED")
			checkEqual(t, "given", got.out, fakeUUID(0)+"\n")
			checkEqual(t, "said", got.err, "")
			if test.signal != unix.SIGABRT {
				return // once is enough for what no library at all gives
			}

			r.RemoveFile("bin/nvidia-smi")
			r.checkUnavailable(gpu.LibraryCrashed, says)
			tools := "PATH=" + filepath.Join(r.Dir, "bin")
			got = runCommand(t, withEnv(r.hastyCommand("run", "--fallback", "cpu", "--", "/bin/echo", "fine"), tools))
			checkEqual(t, "on the CPU", got.out, "fine\n")
			checkContains(t, got.err, says)
			if got := runCommand(t, withEnv(r.hastyCommand("doctor"), tools)); strings.Contains(got.err+got.out, "goroutine ") || got.code != 1 {
				t.Errorf("doctor ended with %d: %s", got.code, got.err)
			}
		})
	}
}

// countCrashes counts the crashes of the library so far.
func (r *fakeDriverMachine) countCrashes() int {
	text, _ := os.ReadFile(filepath.Join(r.Dir, "crashes"))
	return strings.Count(string(text), "\n")
}

// TestCrashSparesJobs: a job that gpuard supervises or measures does not notice a crash of the driver's library, not even
// the first one.
func TestCrashSparesJobs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		function string
		flags    []string
	}{
		{"nvmlDeviceGetTemperature", []string{"--drift"}},
		{"nvmlEventSetWait_v2", []string{"--timeout", "10m"}},
		{"*", []string{"--retry", "1:any"}}, // its child may have begun with the library before
		{"nvmlDeviceGetComputeRunningProcesses_v3", []string{"--share", "8G"}},
	}
	for _, test := range tests {
		t.Run(test.flags[0], func(t *testing.T) {
			t.Parallel()
			r := newFakeDriverMachine(t, makeA100s(2)...)
			folder := t.TempDir()
			on, end := filepath.Join(folder, "on"), filepath.Join(folder, "end")
			endJob := func() {
				if err := os.WriteFile(end, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := r.hastyCommand(append(append([]string{"run"}, test.flags...), "--", "sh", "-c",
				"echo $$ > "+on+"; while [ ! -e "+end+" ]; do sleep 0.1; done; exit 7")...)
			var said outputBuffer
			cmd.Stderr = &said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
			waitUntil(t, "the job runs", func() bool { _, err := os.Stat(on); return err == nil })
			before := r.countCrashes()
			r.Crash(test.function, fakegpu.AnyGPU)
			if test.flags[0] == "--retry" { // what runs is not read; before the second start the first child loads the library
				endJob()
			}
			waitUntil(t, "the library crashes", func() bool { return r.countCrashes() > before })
			if again := r.run("status", "--json"); again.code != 0 {
				t.Errorf("status ended with %d: %s", again.code, again.err)
			}
			endJob()
			if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 7 {
				t.Errorf("the job ended with %v", err)
			}
			for _, word := range []string{"goroutine ", "has ended", "started another"} {
				if strings.Contains(said.String(), word) {
					t.Errorf("%q was said:\n%s", word, said.String())
				}
			}
		})
	}
}

// exhaustThreads is a program that needs more threads than its user may have.
func exhaustThreads() {
	limit := unix.Rlimit{Cur: 1, Max: 1}
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &limit); err != nil {
		panic(err)
	}
	if _, err := crash.CatchCrashes("gpuard: "+limits.ThreadFailureText()+"\n", "", true); err != nil {
		panic(err)
	}
	for range 200 {
		go func() { _, _, _ = unix.Syscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0) }()
	}
	select {}
}

// TestNoThread: a thread that the system does not give ends gpuard with one sentence, and not with a dump.
func TestNoThread(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root")
	cmd := gpuardCommand(t, t.TempDir(), nil)
	cmd.Path, cmd.Args, cmd.Dir = "/proc/self/exe", []string{"threadless"}, "/" // the folder of this program is not open to all
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1_731_005, Gid: 1_731_005}}
	got := runCommand(t, cmd)
	checkEqual(t, "exit", got.code, 125)
	lines := strings.Split(strings.TrimSpace(got.err), "\n") // the first is of the C library's stand-in: pthread_create failed
	checkContains(t, lines[len(lines)-1], "gpuard: cannot go on: the system gives this user no more processes (ulimit -u is 1; ")
	if len(lines) > 2 {
		t.Errorf("more was said:\n%s", got.err)
	}
}

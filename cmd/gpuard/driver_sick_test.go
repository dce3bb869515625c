package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/status"
	"gpuard/internal/gate"
	"gpuard/test/fakegpu"
	"gpuard/test/pace"
)

// checkTookAtMost fails when something takes longer than that each time, on processors as fast as usual. It says itself how long it took.
func checkTookAtMost(t testing.TB, limit time.Duration, do func() time.Duration) {
	t.Helper()
	var took, most time.Duration
	for range 3 {
		speed := pace.Start(t)
		took = do()
		if took <= limit {
			return
		}
		if most = speed.ScaleClock(limit); took <= most {
			return
		}
	}
	t.Errorf("it took %v, more than %v", took, most)
}

// runWithin runs cmd and fails the test when it takes longer, again and again: that the machine was busy once says
// nothing.
func runWithin(t testing.TB, limit time.Duration, cmd *exec.Cmd) runResult {
	t.Helper()
	for try := 1; ; try++ {
		began := time.Now()
		got := runCommand(t, cmd)
		took := time.Since(began)
		if took <= limit {
			return got
		}
		if try == 5 {
			t.Errorf("%q took %v, more than %v", cmd.Args, took, limit)
			return got
		}
		again := exec.CommandContext(t.Context(), cmd.Path)
		again.Args, again.Env = cmd.Args, cmd.Env
		cmd = again
	}
}

// TestDriverHangs: a device that does not answer is named, and the others are read and given meanwhile.
func TestDriverHangs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		function string
		uuid     string // what is known of the device
	}{
		{"nvmlDeviceGetHandleByIndex_v2", ""},
		{"nvmlDeviceGetUUID", ""},
		{"nvmlDeviceGetMemoryInfo_v2", fakeUUID(1)},
		{"nvmlDeviceGetTemperature", fakeUUID(1)},
		{"nvmlDeviceGetComputeRunningProcesses_v3", fakeUUID(1)},
	}
	for _, test := range tests {
		t.Run(test.function, func(t *testing.T) {
			t.Parallel()
			r := newFakeDriverMachine(t, makeA100s(3)...)
			r.Hang(test.function, 1)
			var wait sync.WaitGroup
			apart := &fakeDriverMachine{r.Driver, t, stateFolder(t), nil} // so that all three can ask at the same time
			wait.Go(func() {
				got := runWithin(t, 4*time.Second, apart.hastyCommand("run", "-q", "--gpus", "2", "--", "sh", "-c", "echo $GPUARD_GPUS"))
				if got.code != 0 || strings.TrimSpace(got.out) != fakeUUID(0)+","+fakeUUID(2) {
					t.Errorf("run ended with %d and was given %s\n%s", got.code, got.out, got.err)
				}
			})
			wait.Go(func() {
				got := runCommand(t, r.hastyCommand("run", "--dry-run", "--gpus", "3"))
				if got.code != 120 {
					t.Errorf("exit %d", got.code)
				}
				checkContains(t, got.out, "2 of 3 are free", "GPU 1     unknown  no answer within 1s", "find out why GPU 1 does not answer")
			})
			s, code := runStatus(t, r.hastyCommand("status", "--json"))
			wait.Wait()
			if code != 0 || len(s.Devices) != 3 {
				t.Fatalf("status: exit %d, %d devices", code, len(s.Devices))
			}
			silent := s.Devices[1]
			checkEqual(t, "its identity", silent.UUID, gpu.UUID(test.uuid))
			checkEqual(t, "its health", []any{silent.Health, silent.Why}, []any{health.Unknown, []string{"no answer within 1s"}})
			checkContains(t, silent.Reason, "no answer within 1s")
			checkEqual(t, "problems", s.Problems, []string{"GPU 1: no answer within 1s"})
			for _, i := range []int{0, 2} {
				d := s.Devices[i]
				checkEqual(t, "another device", []any{d.Use, d.Health, *d.Temperature, *d.MemoryUsed}, []any{status.Free, health.OK, 30 + i, gpu.Bytes(0)})
			}
		})
	}
}

// TestDriverHangsFiveSeconds is the same with the waits that people get.
func TestDriverHangsFiveSeconds(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	r.Hang("nvmlDeviceGetTemperature", 0)
	stuck := newFakeDriverMachine(t, makeA100s(2)...)
	stuck.Hang("nvmlInit_v2", fakegpu.AnyGPU)
	var wait sync.WaitGroup
	wait.Go(func() {
		got := runWithin(t, 7*time.Second, r.cmd("run", "-q", "--", "sh", "-c", "echo $GPUARD_GPUS"))
		checkEqual(t, "given", []any{got.code, got.out}, []any{0, fakeUUID(1) + "\n"})
	})
	wait.Go(func() {
		got := runWithin(t, 7*time.Second, stuck.cmd("run", "--", "true"))
		checkEqual(t, "exit", got.code, 125)
		checkContains(t, got.err, "cannot read the GPUs: no answer within 5s during nvmlInit_v2", "dmesg")
	})
	wait.Wait()
}

func TestDriverLostGPU(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"all", "handle"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := newFakeDriverMachine(t, makeA100s(2)...)
			r.SetValue(1, "lost", how)
			for range 5 {
				checkEqual(t, "given", r.givenDevices(), fakeUUID(0))
			}
			got := r.run("run", "--no-wait", "--gpus", "2", "--", "true")
			checkEqual(t, "exit", got.code, 120)
			checkContains(t, got.err, "1 of 2 is free", "GPU 1  unhealthy  GPU is lost")
			s, code := r.readStatus()
			checkEqual(t, "status", []any{code, s.Devices[0].Health, s.Devices[1].Health, s.Devices[1].Why}, []any{0, health.OK, health.Unhealthy, []string{"GPU is lost"}})
			checkContains(t, r.run("status").out, "2 GPUs: 1 free, 1 unhealthy", "GPU is lost")
		})
	}
}

// TestDriverOldLibrary: a driver without newer functions still does the main job.
func TestDriverOldLibrary(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	r.HideSymbols("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetMigMode",
		"nvmlDeviceGetMarginTemperature", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetGraphicsRunningProcesses_v3")
	pid := r.startFakeJob(1, "10G", fakegpu.Compute)
	s, _ := r.readStatus()
	checkEqual(t, "read by", []any{s.Source, len(s.Problems), s.Devices[0].Use, s.Devices[1].Use}, []any{"nvml", 0, status.Free, status.Busy})
	if p := s.Devices[1].Processes; len(p) != 1 || p[0].PID != pid {
		t.Errorf("processes: %+v", p)
	}
	checkEqual(t, "given", r.givenDevices(), fakeUUID(0))
}

// TestDriverThroughTool: where the library is missing or of no use, nvidia-smi is asked, and status says so.
func TestDriverThroughTool(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, says string
		prepare    func(r *fakeDriverMachine)
	}{
		{"no library", "cannot find the NVIDIA driver's library", func(r *fakeDriverMachine) { r.RemoveFile("lib/libnvidia-ml.so.1") }},
		{"rubbish", "cannot load the NVIDIA driver's library", func(r *fakeDriverMachine) { r.WriteFile("lib/libnvidia-ml.so.1", "rubbish") }},
		{"no nvmlDeviceGetUUID", "it has no nvmlDeviceGetUUID", func(r *fakeDriverMachine) { r.HideSymbols("nvmlDeviceGetUUID") }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.name == "no library" {
				gate.Need(t, "no nvidia libraries")
			}
			r := newFakeDriverMachine(t, makeA100s(2)...)
			r.env = append(r.env, "SITE="+makePCIRoot(t, "0x10de"))
			test.prepare(r)
			r.startFakeJob(0, "20G", fakegpu.Compute)
			s, code := r.readStatus()
			if code != 0 || s.Source != "nvidia-smi" || len(s.Devices) != 2 || len(s.Problems) != 1 {
				t.Fatalf("exit %d, %+v", code, s)
			}
			checkContains(t, s.Problems[0], "read through nvidia-smi", test.says)
			checkContains(t, r.run("status").out, "read by nvidia-smi", test.says[:20])
			checkEqual(t, "devices", []any{s.Devices[0].UUID, *s.Devices[0].MemoryUsed, s.Devices[0].Use, s.Devices[1].Use},
				[]any{gpu.UUID(fakeUUID(0)), 20 * gpu.GiB, status.Busy, status.Free})
			checkEqual(t, "given", r.givenDevices(), fakeUUID(1))

			r.RemoveFile("bin/nvidia-smi")
			r.checkUnavailable(gpu.Cause(map[bool]string{true: "library-missing", false: "library-unloadable"}[test.name == "no library"]), test.says)
		})
	}
}

// checkUnavailable: every command says the same about a machine that cannot be read: cause, text, and what to do.
func (r *fakeDriverMachine) checkUnavailable(cause gpu.Cause, says string) {
	r.t.Helper()
	tools := "PATH=" + filepath.Join(r.Dir, "bin") // a real nvidia-smi would answer for another machine
	s, code := runStatus(r.t, withEnv(r.hastyCommand("status", "--json"), tools))
	if code != 1 || len(s.Devices) != 0 || len(s.Unavailable) != 1 {
		r.t.Fatalf("status: exit %d, %+v", code, s)
	}
	u := s.Unavailable[0]
	checkEqual(r.t, "cause", u.Cause, cause)
	checkContains(r.t, u.Text, "cannot ", says)
	if u.Remedy == "" {
		r.t.Error("the answer does not say what to do")
	}
	got := runCommand(r.t, withEnv(r.hastyCommand("status"), tools))
	checkEqual(r.t, "exit of status", got.code, 1)
	checkContains(r.t, strings.Join(strings.Fields(got.out), " "), "No GPU", says, u.Remedy)
	for _, args := range [][]string{{"run", "--", "/bin/true"}, {"run", "--dry-run"}, {"env"}} {
		got := runCommand(r.t, withEnv(r.hastyCommand(args...), tools))
		want := map[bool]int{true: 125, false: 1}[args[0] == "run"]
		if got.code != want || !strings.Contains(got.err, says) || !strings.Contains(got.err, u.Remedy) {
			r.t.Errorf("%q ended with %d, not %d: %s", args, got.code, want, got.err)
		}
	}
	got = runCommand(r.t, withEnv(r.hastyCommand("explain"), tools)) // a program would see nothing, and that is its answer
	checkEqual(r.t, "exit of explain", got.code, 0)
	checkContains(r.t, strings.Join(strings.Fields(got.out), " "), "No GPU is visible", says, u.Remedy)
	if got := runCommand(r.t, withEnv(r.hastyCommand("run", "-q", "--cpu", "--", "/bin/echo", "fine"), tools)); got.out != "fine\n" {
		r.t.Errorf("a job without a GPU does not start: %d %s", got.code, got.err)
	}
}

func TestDriverCauses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		gpus  int
		fail  int // what nvmlInit returns
		cause gpu.Cause
		says  string
	}{
		{"not loaded", 2, 9, gpu.DriverNotLoaded, "the NVIDIA kernel driver is not loaded"},
		{"versions differ", 2, 18, gpu.VersionMismatch, "the driver's library and its kernel module are of different versions"},
		{"no permission", 2, 4, gpu.NoPermission, "no permission for the driver's device nodes"},
		{"no device", 0, 0, gpu.NoDevice, "the NVIDIA driver runs and reports no device"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newFakeDriverMachine(t, makeA100s(test.gpus)...)
			r.FailInit(test.fail)
			r.env = append(r.env, "SITE="+makePCIRoot(t, "0x10de")) // without a card there is no driver to load
			r.checkUnavailable(test.cause, test.says)
		})
	}
	t.Run("init hangs", func(t *testing.T) {
		t.Parallel()
		r := newFakeDriverMachine(t, makeA100s(1)...)
		r.Hang("nvmlInit_v2", fakegpu.AnyGPU)
		var s status.Report
		got := runWithin(t, 3*time.Second, r.hastyCommand("status", "--json"))
		if err := json.Unmarshal([]byte(got.out), &s); err != nil {
			t.Fatal(err)
		}
		if got.code != 1 || len(s.Unavailable) != 1 || s.Unavailable[0].Cause != gpu.NoAnswer {
			t.Errorf("exit %d, %+v", got.code, s.Unavailable)
		}
	})
}

// TestDriverNoTool: the library is enough.
func TestDriverNoTool(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	r.RemoveFile("bin/nvidia-smi")
	cmd := r.cmd("run", "--json", "--", "/bin/true")
	cmd.Env = append(cmd.Env, "PATH="+filepath.Join(r.Dir, "bin"))
	if got := runCommand(t, cmd); got.code != 0 {
		t.Errorf("exit %d\n%s", got.code, got.err)
	}
}

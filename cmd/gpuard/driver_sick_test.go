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

// soon fails when something takes longer than that each time, on processors as fast as usual. It says itself how long it took.
func soon(t testing.TB, limit time.Duration, do func() time.Duration) {
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

// within runs cmd and fails the test when it takes longer, again and again: that the machine was busy once says
// nothing.
func within(t testing.TB, limit time.Duration, cmd *exec.Cmd) result {
	t.Helper()
	for try := 1; ; try++ {
		began := time.Now()
		got := run(t, cmd)
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
		{"nvmlDeviceGetMemoryInfo_v2", uuid(1)},
		{"nvmlDeviceGetTemperature", uuid(1)},
		{"nvmlDeviceGetComputeRunningProcesses_v3", uuid(1)},
	}
	for _, test := range tests {
		t.Run(test.function, func(t *testing.T) {
			t.Parallel()
			r := newRack(t, a100s(3)...)
			r.Hang(test.function, 1)
			var wait sync.WaitGroup
			apart := &rack{r.Driver, t, stateFolder(t), nil} // so that all three can ask at the same time
			wait.Go(func() {
				got := within(t, 4*time.Second, apart.hasty("run", "-q", "--gpus", "2", "--", "sh", "-c", "echo $GPUARD_GPUS"))
				if got.code != 0 || strings.TrimSpace(got.out) != uuid(0)+","+uuid(2) {
					t.Errorf("run ended with %d and was given %s\n%s", got.code, got.out, got.err)
				}
			})
			wait.Go(func() {
				got := run(t, r.hasty("run", "--dry-run", "--gpus", "3"))
				if got.code != 120 {
					t.Errorf("exit %d", got.code)
				}
				contains(t, got.out, "2 of 3 are free", "GPU 1     unknown  no answer within 1s", "find out why GPU 1 does not answer")
			})
			s, code := statusOf(t, r.hasty("status", "--json"))
			wait.Wait()
			if code != 0 || len(s.Devices) != 3 {
				t.Fatalf("status: exit %d, %d devices", code, len(s.Devices))
			}
			silent := s.Devices[1]
			same(t, "its identity", silent.UUID, gpu.UUID(test.uuid))
			same(t, "its health", []any{silent.Health, silent.Why}, []any{health.Unknown, []string{"no answer within 1s"}})
			contains(t, silent.Reason, "no answer within 1s")
			same(t, "problems", s.Problems, []string{"GPU 1: no answer within 1s"})
			for _, i := range []int{0, 2} {
				d := s.Devices[i]
				same(t, "another device", []any{d.Use, d.Health, *d.Temperature, *d.MemoryUsed}, []any{status.Free, health.OK, 30 + i, gpu.Bytes(0)})
			}
		})
	}
}

// TestDriverHangsFiveSeconds is the same with the waits that people get.
func TestDriverHangsFiveSeconds(t *testing.T) {
	t.Parallel()
	r := newRack(t, a100s(2)...)
	r.Hang("nvmlDeviceGetTemperature", 0)
	stuck := newRack(t, a100s(2)...)
	stuck.Hang("nvmlInit_v2", fakegpu.Any)
	var wait sync.WaitGroup
	wait.Go(func() {
		got := within(t, 7*time.Second, r.cmd("run", "-q", "--", "sh", "-c", "echo $GPUARD_GPUS"))
		same(t, "given", []any{got.code, got.out}, []any{0, uuid(1) + "\n"})
	})
	wait.Go(func() {
		got := within(t, 7*time.Second, stuck.cmd("run", "--", "true"))
		same(t, "exit", got.code, 125)
		contains(t, got.err, "cannot read the GPUs: no answer within 5s during nvmlInit_v2", "dmesg")
	})
	wait.Wait()
}

func TestDriverLostGPU(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"all", "handle"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := newRack(t, a100s(2)...)
			r.Set(1, "lost", how)
			for range 5 {
				same(t, "given", r.given(), uuid(0))
			}
			got := r.run("run", "--no-wait", "--gpus", "2", "--", "true")
			same(t, "exit", got.code, 120)
			contains(t, got.err, "1 of 2 is free", "GPU 1  unhealthy  GPU is lost")
			s, code := r.status()
			same(t, "status", []any{code, s.Devices[0].Health, s.Devices[1].Health, s.Devices[1].Why}, []any{0, health.OK, health.Unhealthy, []string{"GPU is lost"}})
			contains(t, r.run("status").out, "2 GPUs: 1 free, 1 unhealthy", "GPU is lost")
		})
	}
}

// TestDriverOldLibrary: a driver without newer functions still does the main job.
func TestDriverOldLibrary(t *testing.T) {
	t.Parallel()
	r := newRack(t, a100s(2)...)
	r.Without("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetMigMode",
		"nvmlDeviceGetMarginTemperature", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetGraphicsRunningProcesses_v3")
	pid := r.occupyGPU(1, "10G", fakegpu.Compute)
	s, _ := r.status()
	same(t, "read by", []any{s.Source, len(s.Problems), s.Devices[0].Use, s.Devices[1].Use}, []any{"nvml", 0, status.Free, status.Busy})
	if p := s.Devices[1].Processes; len(p) != 1 || p[0].PID != pid {
		t.Errorf("processes: %+v", p)
	}
	same(t, "given", r.given(), uuid(0))
}

// TestDriverThroughTool: where the library is missing or of no use, nvidia-smi is asked, and status says so.
func TestDriverThroughTool(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, says string
		prepare    func(r *rack)
	}{
		{"no library", "cannot find the NVIDIA driver's library", func(r *rack) { r.Remove("lib/libnvidia-ml.so.1") }},
		{"rubbish", "cannot load the NVIDIA driver's library", func(r *rack) { r.Write("lib/libnvidia-ml.so.1", "rubbish") }},
		{"no nvmlDeviceGetUUID", "it has no nvmlDeviceGetUUID", func(r *rack) { r.Without("nvmlDeviceGetUUID") }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.name == "no library" {
				gate.Need(t, "no nvidia libraries")
			}
			r := newRack(t, a100s(2)...)
			r.env = append(r.env, "SITE="+bus(t, "0x10de"))
			test.prepare(r)
			r.occupyGPU(0, "20G", fakegpu.Compute)
			s, code := r.status()
			if code != 0 || s.Source != "nvidia-smi" || len(s.Devices) != 2 || len(s.Problems) != 1 {
				t.Fatalf("exit %d, %+v", code, s)
			}
			contains(t, s.Problems[0], "read through nvidia-smi", test.says)
			contains(t, r.run("status").out, "read by nvidia-smi", test.says[:20])
			same(t, "devices", []any{s.Devices[0].UUID, *s.Devices[0].MemoryUsed, s.Devices[0].Use, s.Devices[1].Use},
				[]any{gpu.UUID(uuid(0)), 20 * gpu.GiB, status.Busy, status.Free})
			same(t, "given", r.given(), uuid(1))

			r.Remove("bin/nvidia-smi")
			r.unavailable(gpu.Cause(map[bool]string{true: "library-missing", false: "library-unloadable"}[test.name == "no library"]), test.says)
		})
	}
}

// unavailable: every command says the same about a machine that cannot be read: cause, text, and what to do.
func (r *rack) unavailable(cause gpu.Cause, says string) {
	r.t.Helper()
	tools := "PATH=" + filepath.Join(r.Dir, "bin") // a real nvidia-smi would answer for another machine
	s, code := statusOf(r.t, with(r.hasty("status", "--json"), tools))
	if code != 1 || len(s.Devices) != 0 || len(s.Unavailable) != 1 {
		r.t.Fatalf("status: exit %d, %+v", code, s)
	}
	u := s.Unavailable[0]
	same(r.t, "cause", u.Cause, cause)
	contains(r.t, u.Text, "cannot ", says)
	if u.Remedy == "" {
		r.t.Error("the answer does not say what to do")
	}
	got := run(r.t, with(r.hasty("status"), tools))
	same(r.t, "exit of status", got.code, 1)
	contains(r.t, strings.Join(strings.Fields(got.out), " "), "No GPU", says, u.Remedy)
	for _, args := range [][]string{{"run", "--", "/bin/true"}, {"run", "--dry-run"}, {"env"}} {
		got := run(r.t, with(r.hasty(args...), tools))
		want := map[bool]int{true: 125, false: 1}[args[0] == "run"]
		if got.code != want || !strings.Contains(got.err, says) || !strings.Contains(got.err, u.Remedy) {
			r.t.Errorf("%q ended with %d, not %d: %s", args, got.code, want, got.err)
		}
	}
	got = run(r.t, with(r.hasty("explain"), tools)) // a program would see nothing, and that is its answer
	same(r.t, "exit of explain", got.code, 0)
	contains(r.t, strings.Join(strings.Fields(got.out), " "), "No GPU is visible", says, u.Remedy)
	if got := run(r.t, with(r.hasty("run", "-q", "--cpu", "--", "/bin/echo", "fine"), tools)); got.out != "fine\n" {
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
			r := newRack(t, a100s(test.gpus)...)
			r.FailInit(test.fail)
			r.env = append(r.env, "SITE="+bus(t, "0x10de")) // without a card there is no driver to load
			r.unavailable(test.cause, test.says)
		})
	}
	t.Run("init hangs", func(t *testing.T) {
		t.Parallel()
		r := newRack(t, a100s(1)...)
		r.Hang("nvmlInit_v2", fakegpu.Any)
		var s status.Report
		got := within(t, 3*time.Second, r.hasty("status", "--json"))
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
	r := newRack(t, a100s(2)...)
	r.Remove("bin/nvidia-smi")
	cmd := r.cmd("run", "--json", "--", "/bin/true")
	cmd.Env = append(cmd.Env, "PATH="+filepath.Join(r.Dir, "bin"))
	if got := run(t, cmd); got.code != 0 {
		t.Errorf("exit %d\n%s", got.code, got.err)
	}
}

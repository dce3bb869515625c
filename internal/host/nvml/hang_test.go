package nvml

import (
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/test/fakegpu"
)

// patience is a deadline that only a hanging call misses, even on a busy machine. No reading may take twice as long.
const patience = 1500 * time.Millisecond

func TestADeviceThatHangsDoesNotHideTheOthers(t *testing.T) {
	t.Parallel()
	const id = "GPU-fa4e0000-0000-4000-8000-000000000001"
	tests := []struct {
		function string
		uuid     gpu.UUID // what is known of the device that hangs
		load     bool     // its load was read before
	}{
		{"nvmlDeviceGetHandleByIndex_v2", "", false},
		{"nvmlDeviceGetUUID", "", false},
		{"nvmlDeviceGetMemoryInfo_v2", id, false},
		{"nvmlDeviceGetUtilizationRates", id, false},
		{"nvmlDeviceGetComputeRunningProcesses_v3", id, true},
		{"nvmlDeviceGetEccMode", id, true},
		{"nvmlDeviceGetNvLinkState", id, true},
	}
	for _, test := range tests {
		t.Run(test.function, func(t *testing.T) {
			t.Parallel()
			d := fakegpu.New(t, fakegpu.A100(0), fakegpu.A100(1), fakegpu.A100(2))
			d.AddProcess(2, 99, 1<<20, fakegpu.Compute)
			d.Hang(test.function, 1)
			r := child(t, d.Env(), gpu.Everything, patience)
			if r.Error != "" || len(r.Machine.Devices) != 3 {
				t.Fatalf("%d devices, error %q", len(r.Machine.Devices), r.Error)
			}
			late := r.Machine.Devices[1]
			same(t, "its problem", late.Problem, "no answer within 1.5s")
			same(t, "its identity", late.UUID, test.uuid)
			same(t, "its load was read", late.Temperature != nil, test.load)
			same(t, "the machine's problems", r.Machine.Problems, []string{"GPU 1: no answer within 1.5s"})
			for _, i := range []int{0, 2} {
				other := r.Machine.Devices[i]
				same(t, "the other's problem", other.Problem, "")
				same(t, "the other's temperature", other.Temperature, new(30+i))
				same(t, "the other's links", len(other.Links), 3)
			}
			same(t, "the other's process", len(r.Machine.ProcessesOn(r.Machine.Devices[2].UUID)), 1)
			if r.Elapsed > 2*patience {
				t.Errorf("the reading took %v", r.Elapsed)
			}
		})
	}
}

func TestASlowDeviceIsWaitedFor(t *testing.T) {
	t.Parallel()
	d := fakegpu.New(t, fakegpu.A100(0), fakegpu.A100(1))
	d.Delay("nvmlDeviceGetHandleByIndex_v2", 1, 200)
	r := child(t, d.Env(), gpu.Identity, 5*time.Second)
	same(t, "the problem", r.Machine.Devices[1].Problem, "")
	same(t, "the name", r.Machine.Devices[1].Name, "NVIDIA A100-SXM4-80GB")
	if r.Elapsed < 200*time.Millisecond || r.Elapsed > 4*time.Second {
		t.Errorf("the reading took %v", r.Elapsed)
	}
}

func TestHangingComparisonCostsOnlyTheLinks(t *testing.T) {
	t.Parallel()
	d := fakegpu.New(t, fakegpu.A100(0), fakegpu.A100(1), fakegpu.A100(2))
	d.Hang("nvmlDeviceGetTopologyCommonAncestor", 2)
	r := child(t, d.Env(), gpu.Links, patience)
	same(t, "the error", r.Error, "")
	same(t, "links of 0", r.Machine.Devices[0].Links, []gpu.Link{gpu.LinkSelf, gpu.LinkSwitch, ""})
	same(t, "links of 2", r.Machine.Devices[2].Links, []gpu.Link(nil))
	same(t, "the problem of 2", r.Machine.Devices[2].Problem, "")
	same(t, "the problems", r.Machine.Problems, []string{"GPU 2: cannot compare it with other GPUs: no answer in time"})
}

// A process reads again and again: a device that hangs must not cost another thread each time, and keeps its identity.
func TestTheNextReading(t *testing.T) {
	t.Parallel()
	t.Run("of a device that hangs now", func(t *testing.T) {
		t.Parallel()
		d := fakegpu.New(t, fakegpu.A100(0), fakegpu.A100(1))
		r := machineTwice(t, d, gpu.Identity|gpu.Load, patience, func() { d.Hang("nvmlDeviceGetHandleByIndex_v2", 1) })
		d.Answer()
		same(t, "the problem before", r.First.Devices[1].Problem, "")
		got := r.Machine.Devices[1]
		same(t, "the problem", got.Problem, "no answer within 1.5s")
		same(t, "the identity", []any{got.UUID, got.Name, got.PCI}, []any{r.First.Devices[1].UUID, "NVIDIA A100-SXM4-80GB", "0000:11:00.0"})
		same(t, "an old reading", got.Temperature, (*int)(nil))
		same(t, "the other device", r.Machine.Devices[0].Problem, "")
	})
	t.Run("of a device that hung and still does", func(t *testing.T) {
		t.Parallel()
		d := fakegpu.New(t, fakegpu.A100(0), fakegpu.A100(1))
		d.Hang("nvmlDeviceGetPowerUsage", 1)
		r := machineTwice(t, d, gpu.Identity|gpu.Load, patience, func() {})
		d.Answer()
		same(t, "both problems", []string{r.First.Devices[1].Problem, r.Machine.Devices[1].Problem},
			[]string{"no answer within 1.5s", "no answer within 1.5s"})
		same(t, "the other device", r.Machine.Devices[0].Temperature, new(30))
		if r.Elapsed > 2*patience { // both readings
			t.Errorf("the second reading waited again: %v", r.Elapsed)
		}
	})
	t.Run("of a device that answers again", func(t *testing.T) {
		t.Parallel()
		d := fakegpu.New(t, fakegpu.A100(0), fakegpu.A100(1))
		d.Hang("nvmlDeviceGetPowerUsage", 1)
		r := machineTwice(t, d, gpu.Identity|gpu.Load, patience, func() { d.Answer(); time.Sleep(100 * time.Millisecond) })
		same(t, "both problems", []string{r.First.Devices[1].Problem, r.Machine.Devices[1].Problem}, []string{"no answer within 1.5s", ""})
		same(t, "its power", r.Machine.Devices[1].Power, new(61.03))
	})
}

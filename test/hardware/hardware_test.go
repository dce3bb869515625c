package hardware

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/host/libcuda"
	"gpuard/test/fakegpu"
)

// childVariable is a variable of a child that asks: the loader reads LD_LIBRARY_PATH when a process starts.
const childVariable = "HARDWARE_ASKED"

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, libcuda.ProbeFlag) {
		if err := libcuda.ServeProbe(os.Stdout); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	if os.Getenv(childVariable) != "" {
		fmt.Print(CheckGPUs())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestWorks: the gate is open only where both libraries answer and have a GPU, whatever files there are.
func TestWorks(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		prepare func(d *fakegpu.Driver)
		want    string
	}{
		"a driver that works": {func(*fakegpu.Driver) {}, "<nil>"},
		"libraries without a driver": {func(d *fakegpu.Driver) {
			d.FailInit(9)
			d.SetCUDATable(fakegpu.Answer{Code: 100})
		}, "cuInit answers 100, CUDA_ERROR_NO_DEVICE, and there are no devices"},
		"only NVML without a driver": {func(d *fakegpu.Driver) { d.FailInit(9) }, "kernel driver is not loaded"},
	} {
		d := fakegpu.New(t, fakegpu.A100(0))
		uuid := fakegpu.A100(0)["uuid"]
		d.SetCUDATable(fakegpu.Answer{Devices: []fakegpu.Seen{{UUID: uuid, PCI: "0000:10:00.0"}}})
		c.prepare(d)
		cmd := exec.Command(self)
		cmd.Env = append(d.Env(), childVariable+"=yes")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
}

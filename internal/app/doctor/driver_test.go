package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/leftover"
	"gpuard/internal/host/proc"
)

// TestLeftoversThatPass: memory without a process that is free at the next reading is not reported; memory that stays
// is.
func TestLeftoversThatPass(t *testing.T) {
	t.Parallel()
	used := func(memory gpu.Bytes) gpu.Machine {
		return gpu.Machine{Devices: []gpu.Device{{UUID: "GPU-1", Vendor: gpu.NVIDIA, MemoryTotal: new(80 * gpu.GiB), MemoryReserved: new(gpu.GiB), MemoryUsed: &memory}}}
	}
	for name, c := range map[string]struct {
		then gpu.Machine
		rows int
	}{"passes": {used(0), 0}, "stays": {used(20 * gpu.GiB), 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read := 0
			host := &machine.Host{Proc: proc.New("/proc"), Env: []string{"GPUARD_STATE=" + t.TempDir() + "/none"}, Run: t.TempDir(), Tmp: t.TempDir(), Messages: machine.Messages{Say: func(string) {}},
				Readers: machine.Readers{Reader: func(context.Context, gpu.Query) (gpu.Machine, error) {
					read++
					return c.then, nil
				},
				}}
			found := siteLeftovers(t.Context(), host, hostinfo.AnswerOf(used(20*gpu.GiB)))
			if found.Problem != "" || len(found.Found.rows) != c.rows || read == 0 {
				t.Errorf("%+v after %d more looks", found, read)
			}
			var s hostinfo.Site
			if setLeftovers(&s, found); len(s.Leftovers.Found) != c.rows || s.Machine.Found.Processes == nil && len(found.Found.processes) > 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestFabricManager: its process is looked for where there are switches, and counts where the machine's processes can
// be seen.
func TestFabricManager(t *testing.T) {
	for name, c := range map[string]struct {
		namespace, process string
		switches           bool
		want               *bool
	}{
		"runs":        {"pid:[4026531836]", "nv-fabricmanage", true, new(true)},
		"does not":    {"pid:[4026531836]", "systemd", true, new(false)},
		"a container": {"pid:[4026532441]", "bash", true, nil},
		"no switches": {"pid:[4026531836]", "systemd", false, nil},
	} {
		root := t.TempDir()
		for _, folder := range []string{"proc/1", "proc/self/ns", "sys"} {
			if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		stat := "1 (" + c.process + ") S 0 1 1 0 -1 4194304 90 0 0 0 1 2 0 0 20 0 1 0 5 2703360 100 18446744073709551615\n"
		err := errors.Join(os.WriteFile(filepath.Join(root, "proc/1/stat"), []byte(stat), 0o644), os.Symlink(c.namespace, filepath.Join(root, "proc/self/ns/pid")))
		if c.switches {
			err = errors.Join(err, os.MkdirAll(filepath.Join(root, "sys/bus/pci/drivers/nvidia-nvswitch/0000:c1:00.0"), 0o755))
		}
		if err != nil {
			t.Fatal(err)
		}
		host := &machine.Host{Root: root, Proc: proc.New(filepath.Join(root, "proc"))}
		got := siteDriver(t.Context(), host).Found
		if len(got.Switches) > 0 != c.switches || !reflect.DeepEqual(got.FabricManager, c.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestFleeting: memory of a live process is reported after one reading.
func TestFleeting(t *testing.T) {
	m := gpu.Machine{Processes: []gpu.Process{{PID: 7, State: "S"}, {PID: 8, State: proc.StateGone}}}
	for row, want := range map[*leftover.Row]bool{{PID: 7}: false, {PID: 8}: true, {PID: 0}: true, {PID: 7, Zombie: true}: true} {
		if got := mayBeEnding(m, *row); got != want {
			t.Errorf("%+v: %v", row, got)
		}
	}
}

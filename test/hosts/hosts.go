// Package hosts has parts of invented hosts for tests: files of /proc and machines.
package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
)

// WriteRoot writes the files below a new folder, which it returns.
func WriteRoot(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// ProcessFiles is the files of process 42.
func ProcessFiles(more map[string]string, env ...string) map[string]string {
	files := map[string]string{
		"42/stat":    StatText(42, "S"),
		"42/status":  "Uid:\t0\t0\t0\t0\n",
		"42/cmdline": "python3\x00train.py\x00",
		"42/environ": strings.Join(env, "\x00") + "\x00",
		"42/cgroup":  "0::/user.slice\n",
	}
	for name, content := range more {
		files[name] = content
	}
	return files
}

// StatText is the content of /proc/PID/stat for a process in that state.
func StatText(pid int, state string) string {
	return fmt.Sprintf("%d (python3) %s 1 %d %d 0 -1 4194304 90 0 0 0 1 2 0 0 20 0 1 0 77 2703360 100 18446744073709551615\n", pid, state, pid, pid)
}

// InventMachine is an invented machine, such as "demo:2xL4".
func InventMachine(t *testing.T, kinds string) gpu.Machine {
	t.Helper()
	m, err := gpu.InventMachine(kinds)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// VendorMachine is a machine with n devices of each vendor, as little as is needed to tell them apart.
func VendorMachine(n int, all ...gpu.Vendor) gpu.Machine {
	var m gpu.Machine
	for _, v := range all {
		for i := range n {
			d := gpu.Device{Index: i, Vendor: v, UUID: gpu.UUID(fmt.Sprintf("GPU-%s-%d", v, i)), Name: string(v), PCI: fmt.Sprintf("0000:%02x:00.0", i+1), Minor: new(i)}
			if v == gpu.AMD {
				d.UUID, d.Minor = gpu.UUID(fmt.Sprintf("GPU-%016x", 0xa0+i)), new(128+i)
			}
			m.Devices = append(m.Devices, d)
		}
	}
	return m
}

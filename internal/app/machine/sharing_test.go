package machine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/host/proc"
	"gpuard/test/hosts"
)

// TestSharedOnWindows: a Linux of Windows' subsystem has namespaces of its own and is a machine all the same; a
// container in it is none. There drivers number processes as its procfs does.
func TestSharedOnWindows(t *testing.T) {
	for name, tt := range map[string]struct {
		release, first string
		folder         bool // /run/WSL
		env            []string
		shared         bool
	}{
		"with systemd":               {"5.15.167.4-microsoft-standard-WSL2\n", "systemd", true, nil, true},
		"without":                    {"5.15.167.4-microsoft-standard-WSL2\n", "init(Ubuntu)", true, nil, true},
		"a container in it":          {"5.15.167.4-microsoft-standard-WSL2\n", "systemd", true, []string{"container=docker"}, false},
		"a container without marks":  {"5.15.167.4-microsoft-standard-WSL2\n", "python3", true, nil, false},
		"a container without /run":   {"5.15.167.4-microsoft-standard-WSL2\n", "systemd", false, nil, false},
		"a container on another one": {"6.8.0-45-generic\n", "systemd", true, nil, false},
	} {
		processes, root, run := t.TempDir(), t.TempDir(), t.TempDir()
		err := errors.Join(os.MkdirAll(filepath.Join(processes, "self/ns"), 0o755), os.Symlink("pid:[4026532441]", filepath.Join(processes, "self/ns/pid")),
			os.Mkdir(filepath.Join(processes, "1"), 0o755), os.WriteFile(filepath.Join(processes, "1/stat"), []byte(strings.Replace(hosts.StatText(1, "S"), "python3", tt.first, 1)), 0o644),
			os.MkdirAll(filepath.Join(root, "proc/sys/kernel"), 0o755), os.WriteFile(filepath.Join(root, "proc/sys/kernel/osrelease"), []byte(tt.release), 0o644))
		if tt.folder {
			err = errors.Join(err, os.Mkdir(filepath.Join(run, "WSL"), 0o755))
		}
		if err != nil {
			t.Fatal(err)
		}
		h := &Host{Env: tt.env, Root: root, Run: run, Proc: proc.New(processes), Messages: Messages{Say: func(string) {}}}
		if err := h.CheckShared("/run/lock/gpuard"); (err == nil) != tt.shared {
			t.Errorf("%s: %v", name, err)
		}
		h.Reader = func(context.Context, gpu.Query) (gpu.Machine, error) {
			return gpu.Machine{Processes: []gpu.Process{{PID: 1, GPU: "GPU-0"}}}, nil
		}
		m, err := h.Read(t.Context(), gpu.Processes)
		if err != nil || (m.Processes[0].Outside == 0) != tt.shared {
			t.Errorf("%s: process 1 on the driver's list is %+v, %v", name, m.Processes, err)
		}
		if doubt := h.SharingNote("/run/lock/gpuard"); doubt != "" {
			t.Errorf("%s: %s", name, doubt)
		}
	}
}

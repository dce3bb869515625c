package claim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/policy"
	"gpuard/internal/host/proc"
	"gpuard/test/hosts"
)

// TestMissingDriverComesFirst: where no device can be read, an unusable lease folder is not what has to be mended.
func TestMissingDriverComesFirst(t *testing.T) {
	host := newFileHost(t, gpu.Machine{}, map[string]string{"sys/kernel/random/boot_id": "00000000-0000-0000-0000-000000000000\n"})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	host.Env, host.PrivateState = []string{"GPUARD_STATE=" + file}, true
	spec := job.Spec{GPUs: 1}
	if _, err := Claim(t.Context(), host, spec, Subject{}); err == nil || !strings.Contains(err.Error(), "cannot use the state folder") {
		t.Errorf("with a driver: %v", err)
	}
	missing := &gpu.Unavailable{Cause: gpu.LibraryMissing, Text: "cannot find the driver"}
	host.Reader = func(context.Context, gpu.Query) (gpu.Machine, error) { return gpu.Machine{}, missing }
	if _, err := Claim(t.Context(), host, spec, Subject{}); !errors.Is(err, missing) {
		t.Errorf("without one: %v", err)
	}
}

// TestTicketMax: a ticket has the number of devices that the rules allow. It has none for a move, which frees as many
// devices as it takes, and inside of a lease, where rules do not apply.
func TestTicketMax(t *testing.T) {
	q := &request{host: &machine.Host{Proc: proc.New("/proc")}, spec: job.Spec{GPUs: 1}, machine: gpu.Machine{}}
	two := policy.Limits{{GPUs: new(3)}, {GPUs: new(2)}}
	for want, in := range map[int][]pick.Context{2: {{Limits: two}}, 0: {{}, {Limits: two, Moving: "k3f9"}, {Limits: two, Parent: &job.Lease{ID: "k3f9"}}}} {
		for _, in := range in {
			if got := q.makeTicket(in, time.Now()).Max; got != want {
				t.Errorf("%+v: max %d, want %d", in, got, want)
			}
		}
	}
}

// newFileHost is a host with the devices of m and the processes of files, which are below /proc.
func newFileHost(t *testing.T, m gpu.Machine, files map[string]string) *machine.Host {
	t.Helper()
	return &machine.Host{
		Readers: machine.Readers{Reader: func(context.Context, gpu.Query) (gpu.Machine, error) { return m, nil }},
		Proc:    proc.New(hosts.WriteRoot(t, files)), Run: t.TempDir(), Tmp: t.TempDir(), Messages: machine.Messages{Say: func(string) {}},
	}
}

package claim

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/host/proc"
	"gpuard/test/hosts"
)

// newFourCardHost is a machine of four equal cards, and their UUIDs.
func newFourCardHost(t *testing.T) (*machine.Host, []gpu.UUID) {
	t.Helper()
	host := &machine.Host{Machine: "demo:4xL4", Env: []string{"GPUARD_STATE=" + filepath.Join(t.TempDir(), "state")}, Proc: proc.New("/proc"),
		PrivateState: true, Messages: machine.Messages{Say: func(string) {}}}
	var ids []gpu.UUID
	for _, d := range hosts.InventMachine(t, host.Machine).Devices {
		ids = append(ids, d.UUID)
	}
	return host, ids
}

// preferringSpec asks for devices of which the job had some before.
func preferringSpec(ids ...gpu.UUID) job.Spec {
	return job.Spec{GPUs: max(1, len(ids)), Prefer: ids, Command: []string{"sleep"}, Waiting: job.Waiting{No: true}}
}

// leaseUntilEnd leases what the spec asks for until the test ends, or until give is called.
func leaseUntilEnd(t *testing.T, host *machine.Host, spec job.Spec) (d *Decision, give func()) {
	t.Helper()
	spec.Waiting.No = true
	d, err := Claim(t.Context(), host, spec, Subject{PID: os.Getpid(), Command: "sleep"})
	if err != nil {
		t.Fatal(err)
	}
	give = func() { (&claimer{folder: d.Folder, boot: d.Held.Lease.Boot}).releaseDecision(d) }
	t.Cleanup(give)
	return d, give
}

// TestPrefer: what a job had before comes first in a claim, in a dry run and inside a lease.
func TestPrefer(t *testing.T) {
	t.Parallel()
	host, ids := newFourCardHost(t)
	want := []gpu.UUID{ids[2], ids[0]}
	plan, _, err := DecideNow(t.Context(), host, preferringSpec(want...))
	if err != nil || !slices.Equal(plan.UUIDs(), want) {
		t.Fatalf("a dry run gives %v (%v), want %v", plan.UUIDs(), err, want)
	}
	d, give := leaseUntilEnd(t, host, preferringSpec(want...))
	if !slices.Equal(d.Plan.UUIDs(), want) || !slices.Equal(d.Held.Lease.Devices, want) {
		t.Errorf("a claim gives %v, want %v", d.Plan.UUIDs(), want)
	}
	inside := *host
	inside.Env = append(slices.Clone(host.Env), "GPUARD_LEASE="+d.Held.Lease.ID)
	part, _ := leaseUntilEnd(t, &inside, preferringSpec(ids[0]))
	if !slices.Equal(part.Plan.UUIDs(), ids[:1]) || part.Held.Lease.Parent != d.Held.Lease.ID {
		t.Errorf("inside the lease a claim gives %v in %s", part.Plan.UUIDs(), part.Held.Lease.Parent)
	}
	if other, _ := leaseUntilEnd(t, host, preferringSpec(ids[2])); !slices.Equal(other.Plan.UUIDs(), ids[3:]) {
		t.Errorf("with its device taken a claim gives %v, want another at once", other.Plan.UUIDs())
	}
	give()
}

// TestPreferWaits: a waiting request takes the first device that becomes free, even if the job had another one.
func TestPreferWaits(t *testing.T) {
	t.Parallel()
	host, ids := newFourCardHost(t)
	leaseUntilEnd(t, host, job.Spec{Devices: []string{"0", "1", "3"}})
	_, give := leaseUntilEnd(t, host, job.Spec{Devices: []string{"2"}})
	type answer struct {
		devices []gpu.UUID
		err     error
	}
	answered := make(chan answer, 1)
	go func() {
		spec := preferringSpec(ids[0])
		spec.Waiting = job.Waiting{Limit: time.Minute}
		d, err := Claim(t.Context(), host, spec, Subject{PID: os.Getpid(), Command: "sleep"})
		if err != nil {
			answered <- answer{err: err}
			return
		}
		answered <- answer{devices: d.Plan.UUIDs()}
		(&claimer{folder: d.Folder, boot: d.Held.Lease.Boot}).releaseDecision(d)
	}()
	folder, err := host.Folder(hosts.InventMachine(t, host.Machine), false)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close() //nolint:errcheck // read only
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		tickets, _ := folder.Tickets()
		if len(tickets) == 1 {
			if got := slices.Sorted(slices.Values(tickets[0].Devices)); !slices.Equal(got, slices.Sorted(slices.Values(ids))) {
				t.Errorf("it waits for %v, and all would do", got)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no request waits")
		}
	}
	give()
	if got := <-answered; got.err != nil || !slices.Equal(got.devices, ids[2:3]) {
		t.Errorf("it got %v (%v), want the one that became free", got.devices, got.err)
	}
}

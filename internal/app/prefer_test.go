package app

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/host/proc"
)

// sticky is a machine of four equal cards, and their UUIDs.
func sticky(t *testing.T) (*App, []gpu.UUID) {
	t.Helper()
	a := &App{Machine: "demo:4xL4", Env: []string{"GPUARD_STATE=" + filepath.Join(t.TempDir(), "state")}, Proc: proc.New("/proc"),
		PrivateState: true, Say: func(string) {}}
	var ids []gpu.UUID
	for _, d := range invented(t, a.Machine).Devices {
		ids = append(ids, d.UUID)
	}
	return a, ids
}

// before asks for devices of which the job had some before.
func before(ids ...gpu.UUID) job.Spec {
	return job.Spec{GPUs: max(1, len(ids)), Prefer: ids, Command: []string{"sleep"}, Waiting: job.Waiting{No: true}}
}

// lend leases what the spec asks for until the test ends, or until give is called.
func lend(t *testing.T, a *App, spec job.Spec) (d *decision, give func()) {
	t.Helper()
	spec.Waiting.No = true
	d, err := a.claim(t.Context(), spec, subject{pid: os.Getpid(), command: "sleep"})
	if err != nil {
		t.Fatal(err)
	}
	give = func() { (&claiming{folder: d.Folder, boot: d.Held.Lease.Boot}).giveUp(d) }
	t.Cleanup(give)
	return d, give
}

// TestPrefer: what a job had before comes first in a claim, in a dry run and inside a lease.
func TestPrefer(t *testing.T) {
	t.Parallel()
	a, ids := sticky(t)
	want := []gpu.UUID{ids[2], ids[0]}
	plan, _, err := a.decide(t.Context(), before(want...))
	if err != nil || !slices.Equal(given(plan), want) {
		t.Fatalf("a dry run gives %v (%v), want %v", given(plan), err, want)
	}
	d, give := lend(t, a, before(want...))
	if !slices.Equal(given(d.Plan), want) || !slices.Equal(d.Held.Lease.Devices, want) {
		t.Errorf("a claim gives %v, want %v", given(d.Plan), want)
	}
	inside := *a
	inside.Env = append(slices.Clone(a.Env), "GPUARD_LEASE="+d.Held.Lease.ID)
	part, _ := lend(t, &inside, before(ids[0]))
	if !slices.Equal(given(part.Plan), ids[:1]) || part.Held.Lease.Parent != d.Held.Lease.ID {
		t.Errorf("inside the lease a claim gives %v in %s", given(part.Plan), part.Held.Lease.Parent)
	}
	if other, _ := lend(t, a, before(ids[2])); !slices.Equal(given(other.Plan), ids[3:]) {
		t.Errorf("with its device taken a claim gives %v, want another at once", given(other.Plan))
	}
	give()
}

// TestPreferWaits: who waits takes what becomes free first, also where it is not what the job had.
func TestPreferWaits(t *testing.T) {
	t.Parallel()
	a, ids := sticky(t)
	lend(t, a, job.Spec{Devices: []string{"0", "1", "3"}})
	_, give := lend(t, a, job.Spec{Devices: []string{"2"}})
	type answer struct {
		devices []gpu.UUID
		err     error
	}
	answered := make(chan answer, 1)
	go func() {
		spec := before(ids[0])
		spec.Waiting = job.Waiting{Limit: time.Minute}
		d, err := a.claim(t.Context(), spec, subject{pid: os.Getpid(), command: "sleep"})
		if err != nil {
			answered <- answer{err: err}
			return
		}
		answered <- answer{devices: given(d.Plan)}
		(&claiming{folder: d.Folder, boot: d.Held.Lease.Boot}).giveUp(d)
	}()
	folder, err := a.folder(invented(t, a.Machine), false)
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
			t.Fatal("nobody waits")
		}
	}
	give()
	if got := <-answered; got.err != nil || !slices.Equal(got.devices, ids[2:3]) {
		t.Errorf("it got %v (%v), want the one that became free", got.devices, got.err)
	}
}

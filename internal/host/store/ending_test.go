package store

import (
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// TestEndedOnce: of each lease that is removed exactly one process is told, also where a claim finds it between the drop
// of its lock and its removal.
func TestEndedOnce(t *testing.T) {
	f := newStateFolder(t)
	var told []EndedLease
	f.Ended = func(list []EndedLease) { told = append(told, list...) }
	claim := func(id gpu.UUID) *Held {
		t.Helper()
		held, err := f.Claim("boot", nil, func(View) (job.Lease, error) { return job.Lease{Devices: []gpu.UUID{id}, Command: "job"}, nil })
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	want := func(what, id string, seen bool) {
		t.Helper()
		if len(told) != 1 || told[0].Lease.ID != id || told[0].Seen != seen || told[0].Lease.Command != "job" || len(told[0].Lease.Devices) != 1 || told[0].At.IsZero() {
			t.Fatalf("%s: %+v", what, told)
		}
		told = nil
	}

	a := claim("GPU-1")
	_ = a.Lock.Close()
	for range 2 { // the second finds nothing
		if gone, err := f.EndIfUnheld(a.Lease, "boot"); !gone || err != nil {
			t.Fatal(gone, err)
		}
	}
	want("at its end", a.Lease.ID, true)

	b := claim("GPU-1")
	if err := f.Release(b.Lease, "boot"); err != nil {
		t.Fatal(err)
	}
	_ = b.Lock.Close()
	want("released", b.Lease.ID, true)

	c := claim("GPU-1")
	_ = c.Lock.Close()
	d := claim("GPU-1")
	want("found dead", c.Lease.ID, false)

	done := f.AnnounceEnd(d.Lease)
	_ = d.Lock.Close()
	e := claim("GPU-1") // between the two steps of the process that ends it
	if len(told) > 0 {
		t.Fatalf("a lease that another process is ending was removed: %+v", told)
	}
	if _, err := f.EndIfUnheld(d.Lease, "boot"); err != nil {
		t.Fatal(err)
	}
	done()
	want("by the process that ends it", d.Lease.ID, true)

	done = f.AnnounceEnd(e.Lease)
	_ = e.Lock.Close()
	done() // killed before End
	g := claim("GPU-1")
	want("left by that process", e.Lease.ID, false)
	_ = g.Lock.Close()
}

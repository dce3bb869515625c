package pick

import (
	"math/rand/v2"
	"slices"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// checkHad: devices that the job had before come first where they can be given, and nothing else depends on them.
func (p puzzle) checkHad(t *testing.T, plan job.Plan, refusal *job.Refusal) {
	t.Helper()
	without := p
	without.spec.Prefer = nil
	planned, refused := Place(without.spec, p.machine, p.held, p.in)
	if refusal != nil || len(p.spec.Prefer) == 0 || len(p.spec.Devices) > 0 && p.spec.MIG == "" {
		if have, want := asJSON(t, plan, refusal), asJSON(t, planned, refused); have != want {
			t.Errorf("what the job had before decides where it must not:\n%s\n%s", have, want)
		}
		return
	}
	if refused != nil || len(plan.Devices) == 0 {
		t.Errorf("with what the job had before the plan is %+v, and without %v", plan, refused)
		return
	}
	had, could := 0, 0
	for _, r := range plan.Reasons {
		d, _, _ := p.machine.FindDevice(r.UUID)
		able := r.Verdict == job.Chosen || r.Verdict == job.Eligible && d.Vendor == plan.Devices[0].Vendor
		could += boolToInt(able && slices.Contains(p.spec.Prefer, r.UUID))
	}
	for _, g := range plan.Devices {
		had += boolToInt(slices.Contains(p.spec.Prefer, g.UUID))
	}
	inside := p.in.Parent != nil || p.in.Allocation != "" // inside, devices in use come last
	if want := min(could, len(plan.Devices)); had > want || had < want && !inside {
		t.Errorf("the plan has %d devices of %v, and could have %d: %+v", had, p.spec.Prefer, want, plan.Reasons)
	}
	p.checkHadOrder(t, plan, had)
}

// checkHadOrder: where the job had all devices of the plan before, they keep their order, which has no other effect.
func (p puzzle) checkHadOrder(t *testing.T, plan job.Plan, had int) {
	t.Helper()
	at := func(g job.Given) int { return slices.Index(p.spec.Prefer, g.UUID) }
	sorted := slices.IsSortedFunc(plan.Devices, func(a, b job.Given) int { return at(a) - at(b) })
	if had == len(plan.Devices) && !sorted {
		t.Errorf("the job had %v in this order, and now %+v", p.spec.Prefer, plan.Devices)
	}
	turned := p
	turned.spec.Prefer = slices.Clone(p.spec.Prefer)
	slices.Reverse(turned.spec.Prefer)
	other, _ := Place(turned.spec, p.machine, p.held, p.in)
	if !slices.Equal(devices(plan), devices(other)) {
		t.Errorf("the order of %v decides which devices are given: %v and %v", p.spec.Prefer, devices(plan), devices(other))
	}
}

func devices(plan job.Plan) []gpu.UUID {
	var ids []gpu.UUID
	for _, g := range plan.Devices {
		ids = append(ids, g.UUID)
	}
	slices.Sort(ids)
	return ids
}

// TestHadAgain: while leases come and go, a job that keeps asking for its last devices stays there as long as no
// other lease is on them.
func TestHadAgain(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 13))
	stayed, moved := 0, 0
	for range 300 {
		m, err := gpu.InventMachine("demo:8xA100-80GB")
		if err != nil {
			t.Fatal(err)
		}
		spec := job.Spec{GPUs: 1 + r.IntN(3)}
		for range 10 {
			var held []job.Lease
			taken := map[gpu.UUID]bool{}
			for i := range m.Devices {
				d := &m.Devices[i]
				d.Temperature, d.Utilization = new(30+r.IntN(50)), new(r.Float64())
				if len(held) < 5 && r.IntN(8) == 0 {
					held, taken[d.UUID] = append(held, job.Lease{ID: "l", UID: 7, Devices: []gpu.UUID{d.UUID}}), true
				}
			}
			plan, refusal := Place(spec, m, held, Context{Now: now, UID: 1000, Waiting: r.IntN(2) == 0, Tolerate: DefaultTolerance()})
			if refusal != nil {
				t.Fatal(refusal)
			}
			var got []gpu.UUID
			for _, g := range plan.Devices {
				got = append(got, g.UUID)
			}
			free := slices.DeleteFunc(slices.Clone(spec.Prefer), func(id gpu.UUID) bool { return taken[id] })
			for _, id := range free {
				if !slices.Contains(got, id) {
					t.Fatalf("it had %v, of which %v are free, and got %v", spec.Prefer, free, got)
				}
			}
			if len(free) == len(got) {
				if stayed++; !slices.Equal(got, spec.Prefer) {
					t.Fatalf("it had %v, and has %v", spec.Prefer, got)
				}
			} else {
				moved++
			}
			spec.Prefer = got
		}
	}
	if stayed < 500 || moved < 300 {
		t.Errorf("it stayed %d times and moved %d times: that proves little", stayed, moved)
	}
}

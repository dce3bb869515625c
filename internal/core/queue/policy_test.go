package queue

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/policy"
)

// TestMaxIsTheRuleOfPick: for a ticket that waits alone, Full is true exactly when pick refuses it for now by a limit
// on the number of devices. Otherwise it would wait for ever, or be next and get nothing.
func TestMaxIsTheRuleOfPick(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	passed, started := 0, 0
	for range 5000 {
		m, err := gpu.InventMachine("demo:4xL4")
		if err != nil {
			t.Fatal(err)
		}
		var held []job.Lease
		for i := range m.Devices { // one exclusive lease on each at most, or shares
			for n, shared := 0, r.IntN(2) == 0; n < r.IntN(3) && (shared || n == 0); n++ {
				l := job.Lease{ID: fmt.Sprintf("l%d%d", i, n), UID: uint32(7 + r.IntN(2)), Devices: []gpu.UUID{m.Devices[i].UUID}}
				if shared {
					l.Share = 4 * gpu.GiB
				}
				held = append(held, l)
			}
		}
		spec := job.Spec{GPUs: 1 + r.IntN(2)}
		if r.IntN(2) == 0 {
			spec.Share = 4 * gpu.GiB
		}
		most := 1 + r.IntN(4)
		in := pick.Context{Now: time.Unix(1_800_000_000, 0), UID: 7, Limits: policy.Limits{{GPUs: &most}}}
		_, refusal := pick.Place(spec, m, held, in)
		if refusal != nil && refusal.Never {
			continue
		}
		ticket := job.Ticket{ID: "t", UID: 7, Devices: pick.CapableDevices(spec, m, in), Count: pick.DeviceCount(spec), Max: most, Share: spec.Share}
		next, ok := NextTicket(Input{Now: in.Now.UnixNano(), Tickets: []job.Ticket{ticket}, Held: held, Rooms: pick.RoomByDevice(m, held, in)})
		if ok != (refusal == nil) || ok && next.ID != "t" {
			t.Fatalf("of %d at once, with %+v held, %+v is next: %v, and pick says %v", most, held, spec, ok, refusal)
		}
		if _, free := pick.Place(spec, m, held, pick.Context{Now: in.Now, UID: 7}); free == nil && refusal != nil {
			passed++
		} else if refusal == nil {
			started++
		}
	}
	if passed < 300 || started < 300 {
		t.Errorf("%d kept by the rule alone, %d started: too few to say anything", passed, started)
	}
}

package pick

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/policy"
	"gpuard/internal/gate"
)

// ruled is a puzzle with up to three rules, each of its own file.
func ruled(random *rand.Rand) puzzle {
	data := make([]byte, 400)
	for i := range data {
		data[i] = byte(random.IntN(256))
	}
	p := puzzleOf(data)
	for range random.IntN(4) {
		var r policy.Rule
		if random.IntN(2) == 0 {
			r.GPUs = new(random.IntN(4))
		}
		if random.IntN(3) == 0 {
			r.Memory = gpu.Bytes(1+random.IntN(100)) * gpu.GiB
		}
		if random.IntN(3) == 0 {
			r.Devices = []string{"0", "GPU-1", "2"}[:1+random.IntN(3)]
		}
		if random.IntN(6) == 0 {
			r.Models = [][]string{{"*"}, {"nothing", "*A100*"}, {"?"}}[random.IntN(3)]
		}
		p.in.Limits = append(p.in.Limits, r)
	}
	return p
}

// TestRulesNarrow: a plan under one more rule obeys the rules and would be given without that rule too. A request
// that is never possible without the rule is never possible with it.
func TestRulesNarrow(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 7))
	given, refused := 0, 0
	for range gate.SoakCount(30_000, 18_000) {
		p := ruled(random)
		if slices.ContainsFunc(p.machine.Devices, func(d gpu.Device) bool { return d.Vendor != p.machine.Devices[0].Vendor }) {
			continue // where all devices of one vendor are forbidden, another vendor is tried
		}
		plan, no := Place(p.spec, p.machine, p.held, p.in)
		less := p.in
		less.Limits = less.Limits[:max(0, len(less.Limits)-1)]
		_, before := Place(p.spec, p.machine, p.held, less)
		switch {
		case before != nil && slices.ContainsFunc(before.Reasons, func(r job.Reason) bool { return r.Code == "weak" || r.Code == "use-unknown" }):
			continue // where a rule forbids the better ones, those are given that had been set aside
		case before != nil && no == nil:
			t.Fatalf("%+v is given %+v with %+v and refused with less: %v", p.spec, plan, p.in.Limits, before)
		case before != nil && before.Never && !no.Never:
			t.Fatalf("%+v can be waited for with %+v: %v, and with less never: %v", p.spec, p.in.Limits, no, before)
		case no != nil && before == nil:
			refused++
		}
		if no != nil || p.in.Parent != nil || p.spec.CPU {
			continue
		}
		given++
		own := job.OwnedDevices(p.held, p.in.UID, "")
		allowed := AllowedDevices(p.machine, p.in.Limits[:0:0])
		for i := range p.in.Limits {
			r := p.in.Limits[i]
			r.Memory = 0 // the rule limits shares differently
			allowed = slices.DeleteFunc(allowed, func(id gpu.UUID) bool { return !slices.Contains(AllowedDevices(p.machine, policy.Limits{r}), id) })
		}
		for _, d := range plan.Devices {
			own[job.DeviceHash(d.UUID)] = true
			if len(p.in.Limits) > 0 && !slices.Contains(allowed, d.UUID) {
				t.Fatalf("%+v is given %s with %+v", p.spec, d.UUID, p.in.Limits)
			}
		}
		if r := p.in.Limits.Count(); r != nil && len(own) > *r.GPUs {
			t.Fatalf("%+v is given %+v, which makes %d of %d devices", p.spec, plan.Devices, len(own), *r.GPUs)
		}
		if r := p.in.Limits.LeastMemory(); r != nil && plan.Share > r.Memory {
			t.Fatalf("%+v is given a share of %s of %s", p.spec, plan.Share, r.Memory)
		}
	}
	if given < 300 || refused < 100 {
		t.Errorf("%d given, %d refused by one rule more: too few to say anything", given, refused)
	}
}

// TestAllowedSlices: of a split GPU the slices are allowed, not the whole.
func TestAllowedSlices(t *testing.T) {
	m, err := gpu.InventMachine("demo:2xA100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	m.Devices[1].MIG = []gpu.MIGDevice{{UUID: "MIG-a"}, {UUID: "MIG-b"}}
	for want, devices := range map[string][]string{"MIG-a,MIG-b": {"1"}, "MIG-b": {"MIG-b"}, string(m.Devices[0].UUID): {"0"}} {
		var got []string
		for _, id := range AllowedDevices(m, policy.Limits{{Devices: devices}}) {
			got = append(got, string(id))
		}
		if text := strings.Join(got, ","); text != want {
			t.Errorf("%q allows %s, want %s", devices, text, want)
		}
	}
}

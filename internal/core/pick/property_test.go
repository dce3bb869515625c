package pick

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/job"
	"gpuard/internal/gate"
)

// puzzle is one request made from bytes. Any bytes give a machine that could exist.
type puzzle struct {
	spec    job.Spec
	machine gpu.Machine
	held    []job.Lease
	in      Context
}

// source hands out the bytes, and zeros after the last one.
type source struct{ data []byte }

func (s *source) upTo(n int) int {
	if len(s.data) == 0 {
		return 0
	}
	b := int(s.data[0])
	s.data = s.data[1:]
	return b % n
}

func (s *source) coin() bool { return s.upTo(2) == 1 }

func puzzleOf(data []byte) puzzle {
	s := &source{data}
	p := puzzle{in: Context{Now: now, UID: 1000, Tolerate: DefaultTolerance(), Waiting: s.upTo(4) == 1}}
	devices := s.upTo(9)
	for i := range devices {
		p.machine.Devices = append(p.machine.Devices, s.device(i, devices))
	}
	if devices == 0 {
		p.spec.GPUs = s.upTo(3)
		return p
	}
	var ids []gpu.UUID
	for _, d := range p.machine.Devices {
		ids = append(ids, d.UUID)
		for _, slice := range d.MIG {
			ids = append(ids, slice.UUID)
		}
	}
	for i := range s.upTo(4) {
		p.machine.Processes = append(p.machine.Processes, s.process(i, ids))
	}
	for i := range s.upTo(4) {
		l := job.Lease{ID: fmt.Sprintf("l%d", i), User: "alice", UID: uint32(1000 + s.upTo(2)), Since: now.Add(-time.Duration(s.upTo(3)) * time.Hour)}
		l.Devices = append(l.Devices, ids[s.upTo(len(ids))], ids[s.upTo(len(ids))])
		if i > 0 && s.coin() {
			l.Parent = "l0"
		}
		if s.coin() {
			l.Share = gpu.Bytes(1+s.upTo(6)) * 7 * gpu.GiB
		}
		if s.coin() {
			l.Allocation = "slurm:12"
		}
		p.held = append(p.held, l)
	}
	p.in.Trees = map[string][]int{}
	for i := range p.held {
		p.in.Trees[p.held[i].ID] = []int{100 + s.upTo(4), 100 + s.upTo(4)}
	}
	s.context(&p, ids)
	s.spec(&p, ids)
	return p
}

func (s *source) device(i, devices int) gpu.Device {
	d := gpu.Device{Index: i, Vendor: gpu.NVIDIA, Name: "NVIDIA A100", UUID: gpu.UUID(fmt.Sprintf("GPU-%02d-aaaa", i)), PCI: fmt.Sprintf("0000:%02x:00.0", i),
		MemoryTotal: new(80 * gpu.GiB), MemoryUsed: new(gpu.Bytes(s.upTo(4)) * 200 * gpu.MiB), Temperature: new(40 + s.upTo(3))}
	if s.upTo(3) > 0 {
		d.Compute = &gpu.Capability{Major: 7 + s.upTo(3)}
	}
	switch s.upTo(40) {
	case 1:
		d.Drained = "fan (root)"
	case 2:
		d.XIDs = []gpu.XID{{Code: 79}}
	case 3:
		d.XIDs = []gpu.XID{{Code: 13}}
	}
	switch s.upTo(8) {
	case 1:
		d.Vendor, d.Name = gpu.AMD, "AMD Instinct"
	case 2:
		d.Problem = "no answer within 5s"
	case 3:
		d.RecoveryAction = "reset"
	case 4:
		d.MemoryUsed, d.Temperature = nil, nil
		if s.coin() {
			d.Unlisted = "not supported"
		}
	case 5:
		d.MemoryReserved, d.Utilization = new(gpu.GiB), new(0.5)
	case 7:
		d.Name, d.Integrated = "NVIDIA A10", new(s.coin())
	case 6:
		for j := range 1 + s.upTo(3) {
			profile := []string{"1g.10gb", "2g.20gb"}[s.upTo(2)]
			d.MIG = append(d.MIG, gpu.MIGDevice{Index: j, UUID: gpu.UUID(fmt.Sprintf("MIG-%02d-%d", i, j)), Profile: profile,
				MemoryTotal: new(10 * gpu.GiB), MemoryUsed: new(gpu.Bytes(0))})
		}
	}
	links := []gpu.Link{gpu.LinkNVLink, gpu.LinkSwitch, gpu.LinkBridge, gpu.LinkNode, gpu.LinkSystem}
	for range devices {
		d.Links = append(d.Links, links[s.upTo(len(links))])
	}
	return d
}

func (s *source) process(i int, ids []gpu.UUID) gpu.Process {
	p := gpu.Process{PID: 100 + i, GPU: ids[s.upTo(len(ids))], User: "bob", UID: new(uint32(1000 + s.upTo(2))), Command: "python",
		Kind: []gpu.Kind{gpu.ComputeProcess, gpu.GraphicsProcess, gpu.BothKinds, ""}[s.upTo(4)], Started: now.Add(-time.Duration(s.upTo(3)) * 9 * time.Second)}
	switch size := s.upTo(6); size {
	case 0:
	case 5:
		p.Memory = new(20 * gpu.GiB)
	default:
		p.Memory = new(gpu.Bytes(size*size) * 100 * gpu.MiB)
	}
	p.State = []string{"S", "Z", "gone", ""}[s.upTo(4)]
	return p
}

func (s *source) context(p *puzzle, ids []gpu.UUID) {
	switch s.upTo(5) {
	case 1:
		p.in.Hidden = map[gpu.UUID]string{ids[s.upTo(len(ids))]: "CUDA_VISIBLE_DEVICES=7 hides it"}
	case 2:
		p.in.Allocation = "slurm:12"
	case 3:
		if len(p.held) > 0 {
			p.in.Parent = new(p.held[0])
		}
	case 4:
		p.in.Last = []gpu.UUID{ids[s.upTo(len(ids))]}
	}
}

func (s *source) spec(p *puzzle, ids []gpu.UUID) {
	p.spec.GPUs = 1 + s.upTo(4)
	p.spec.Memory = gpu.Bytes(s.upTo(5)) * 20 * gpu.GiB
	p.spec.Place = []job.Place{job.Auto, job.Spread, job.Packed}[s.upTo(3)]
	switch s.upTo(8) {
	case 1:
		p.spec.GPUs, p.spec.MIG = 0, []string{"1g.10gb", "2G.20GB", "7g.80gb"}[s.upTo(3)]
	case 2:
		p.spec.GPUs, p.spec.Devices = 0, []string{string(ids[s.upTo(len(ids))]), fmt.Sprint(s.upTo(9))}
	case 3:
		p.spec.Exclude = []string{fmt.Sprint(s.upTo(9))}
	case 4:
		p.spec.Model = "*a100*"
	case 5:
		p.spec.MinCompute = &gpu.Capability{Major: 8}
	}
	if p.in.Parent != nil && s.coin() && p.spec.MIG == "" {
		p.spec = job.Spec{GPUs: 1}
	}
	if s.coin() && p.spec.MIG == "" {
		p.spec.Share, p.spec.Memory = gpu.Bytes(1+s.upTo(20))*4*gpu.GiB, 0
	}
	for range s.upTo(4) {
		p.spec.Prefer = append(p.spec.Prefer, append(ids, "GPU-gone")[s.upTo(len(ids)+1)])
	}
}

// shuffled is the same puzzle in another order; links go with their devices.
func (p puzzle) shuffled(r *rand.Rand) puzzle {
	order := r.Perm(len(p.machine.Devices))
	out := p
	out.machine.Devices = nil
	for _, from := range order {
		d := p.machine.Devices[from]
		var links []gpu.Link
		for _, other := range order {
			links = append(links, d.Links[other])
		}
		d.Links = links
		d.MIG = slices.Clone(d.MIG)
		r.Shuffle(len(d.MIG), func(i, j int) { d.MIG[i], d.MIG[j] = d.MIG[j], d.MIG[i] })
		out.machine.Devices = append(out.machine.Devices, d)
	}
	out.machine.Processes, out.held = slices.Clone(p.machine.Processes), slices.Clone(p.held)
	r.Shuffle(len(out.held), func(i, j int) { out.held[i], out.held[j] = out.held[j], out.held[i] })
	r.Shuffle(len(out.machine.Processes), func(i, j int) {
		ps := out.machine.Processes
		ps[i], ps[j] = ps[j], ps[i]
	})
	return out
}

// deserted is the same machine without processes and leases, and with every fault repaired.
func (p puzzle) deserted() puzzle {
	out := p
	out.machine.Devices, out.machine.Processes, out.held = slices.Clone(p.machine.Devices), nil, nil
	for i := range out.machine.Devices {
		d := &out.machine.Devices[i]
		if d.Problem != "" && d.Compute == nil {
			d.Compute = &gpu.Capability{Major: 8} // its unknown capability may turn out to be new enough, and be of any class
		}
		d.RecoveryAction, d.Problem, d.Drained, d.XIDs, d.MemoryUsed = "", "", "", nil, new(gpu.Bytes(0))
		d.MIG = slices.Clone(d.MIG)
		for j := range d.MIG {
			d.MIG[j].MemoryUsed = new(gpu.Bytes(0))
		}
	}
	return out
}

func (p puzzle) check(t *testing.T) {
	t.Helper()
	plan, refusal := Place(p.spec, p.machine, p.held, p.in)
	reasons := plan.Reasons
	if refusal != nil {
		reasons = refusal.Reasons
		p.checkRefusal(t, refusal)
	} else {
		p.checkPlan(t, plan)
	}
	p.checkReasons(t, reasons, refusal == nil)
	p.checkHad(t, plan, refusal)

	p.checkRooms(t, refusal)

	want := asJSON(t, plan, refusal)
	rooms, servers := RoomByDevice(p.machine, p.held, p.in), CapableDevices(p.spec, p.machine, p.in)
	r := rand.New(rand.NewPCG(uint64(len(want)), 1))
	for range 3 {
		s := p.shuffled(r)
		if other := RoomByDevice(s.machine, s.held, s.in); !reflect.DeepEqual(other, rooms) || !slices.Equal(servers, CapableDevices(s.spec, s.machine, s.in)) {
			t.Fatalf("another order of the same input changed the rooms:\n%v\n%v", rooms, other)
		}
		if got := asJSON2(t, s); got != want {
			t.Fatalf("another order of the same input changed the answer:\n%s\n%s", want, got)
		}
	}
}

func asJSON2(t *testing.T, p puzzle) string {
	plan, refusal := Place(p.spec, p.machine, p.held, p.in)
	return asJSON(t, plan, refusal)
}

func asJSON(t *testing.T, plan job.Plan, refusal *job.Refusal) string {
	t.Helper()
	data, err := json.Marshal([]any{plan, refusal})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func (p puzzle) checkRefusal(t *testing.T, r *job.Refusal) {
	t.Helper()
	if !strings.HasPrefix(r.Summary, "cannot ") || r.Remedy == "" || strings.Contains(r.Summary+r.Remedy, ", or ,") || strings.Contains(r.Summary, "()") {
		t.Errorf("summary %q, remedy %q", r.Summary, r.Remedy)
	}
	if slices.ContainsFunc(p.machine.Devices, func(d gpu.Device) bool { return d.UseUnknown(nil) }) {
		return // without use it is of another class
	}
	d := p.deserted()
	if _, still := Place(d.spec, d.machine, d.held, d.in); r.Never != (still != nil) {
		t.Errorf("never is %v, but on an unused machine the answer is %v (%s)", r.Never, still, r.Summary)
	}
}

func (p puzzle) checkPlan(t *testing.T, plan job.Plan) {
	t.Helper()
	need := max(p.spec.GPUs, len(p.spec.Devices))
	if p.spec.MIG != "" {
		need = 1
	}
	if len(plan.Devices) != need {
		t.Errorf("%d devices, want %d", len(plan.Devices), need)
	}
	lease := job.Lease{ID: "mine", Allocation: p.in.Allocation}
	for i, g := range plan.Devices {
		if slices.Contains(lease.Devices, g.UUID) || g.Logical != i {
			t.Errorf("device %d of the plan is %+v", i, g)
		}
		lease.Devices = append(lease.Devices, g.UUID)
		p.checkGiven(t, g)
	}
	if p.in.Parent != nil {
		lease.Parent, lease.UID = p.in.Parent.ID, p.in.Parent.UID // a sub-lease always has the user of its parent
	}
	if lease.Share = plan.Share; plan.Share > 0 && p.spec.Share > 0 {
		p.fill(t, lease)
		return
	}
	again, _ := Place(p.spec, p.machine, append(slices.Clone(p.held), lease), p.in)
	for _, g := range again.Devices {
		if slices.Contains(lease.Devices, g.UUID) {
			t.Errorf("%s was given twice", g.UUID)
		}
	}
}

// fill requests the same share until it is refused. That must happen, and before it no device may promise too much.
func (p puzzle) fill(t *testing.T, lease job.Lease) {
	t.Helper()
	for i := range 1000 {
		lease.ID = fmt.Sprintf("mine%d", i)
		p.held = append(slices.Clone(p.held), lease)
		plan, refusal := Place(p.spec, p.machine, p.held, p.in)
		if refusal != nil {
			return
		}
		lease.Devices = nil
		for _, g := range plan.Devices {
			p.checkGiven(t, g)
			lease.Devices = append(lease.Devices, g.UUID)
		}
	}
	t.Error("a share was given a thousand times")
}

// checkGiven judges one given device by the rules directly.
func (p puzzle) checkGiven(t *testing.T, g job.Given) {
	t.Helper()
	d, slice, ok := p.machine.FindDevice(g.UUID)
	if !ok || slice == nil && d.UsesMIG() {
		t.Fatalf("%s is no device that can be given", g.UUID)
	}
	if state, why := health.StateOf(*d, p.in.Now); state != health.OK {
		t.Errorf("%s is %s: %v", g.UUID, state, why)
	}
	if d.Drained != "" && p.in.Parent == nil {
		t.Errorf("%s is drained: %s", g.UUID, d.Drained)
	}
	if p.in.Hidden[g.UUID] != "" || p.in.Hidden[d.UUID] != "" {
		t.Errorf("%s is hidden", g.UUID)
	}
	if pool := p.in.Parent; pool != nil && pool.Share > 0 {
		p.checkPool(t, g.UUID, *pool)
		return
	}
	if p.spec.Share > 0 {
		p.checkShare(t, d, slice)
		return
	}
	for _, l := range p.held {
		ours := p.in.Parent != nil && l.ID == p.in.Parent.ID || p.in.Allocation != ""
		if (l.Holds(g.UUID) || l.Holds(d.UUID)) && !ours {
			t.Errorf("%s is held by %s", g.UUID, l.ID)
		}
	}
	var foreign gpu.Bytes
	for _, proc := range p.machine.ProcessesOn(g.UUID) {
		if proc.Memory != nil && proc.Kind != gpu.GraphicsProcess && p.in.Allocation == "" && p.in.Parent == nil {
			foreign += *proc.Memory
		}
	}
	if foreign > p.in.Tolerate.Memory {
		t.Errorf("%s carries %s of others", g.UUID, foreign)
	}
}

func (p puzzle) checkReasons(t *testing.T, reasons []job.Reason, planned bool) {
	t.Helper()
	seen := map[gpu.UUID]bool{}
	chosen := 0
	for _, r := range reasons {
		d, _, ok := p.machine.FindDevice(r.UUID)
		if !ok || seen[r.UUID] || r.Text == "" || r.Code == "" || r.Verdict == "" || r.Index != d.Index {
			t.Errorf("reason %+v", r)
		}
		seen[r.UUID] = true
		if r.Verdict == job.Chosen {
			chosen++
		}
	}
	if planned != (chosen > 0) {
		t.Errorf("%d devices are chosen, planned is %v", chosen, planned)
	}
	for _, d := range p.machine.Devices {
		covered := seen[d.UUID]
		for _, slice := range d.MIG {
			covered = covered || seen[slice.UUID]
		}
		if !covered {
			t.Errorf("no reason for %s", d.UUID)
		}
	}
}

func TestPlaceKeepsItsPromises(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 7))
	plans, shares, inside := 0, 0, 0
	puzzles := gate.SoakCount(5000, 1500)
	for range puzzles {
		data := make([]byte, 200)
		for i := range data {
			data[i] = byte(r.UintN(256))
		}
		p := puzzleOf(data)
		p.check(t)
		if plan, refusal := Place(p.spec, p.machine, p.held, p.in); refusal == nil {
			plans++
			shares += boolToInt(plan.Share > 0)
			inside += boolToInt(plan.Share > 0 && p.in.Parent != nil)
		}
		if t.Failed() {
			t.Fatalf("with %x", data)
		}
	}
	if plans < puzzles/10 || shares < puzzles/25 || inside < puzzles/200 {
		t.Errorf("only %d of %d puzzles had a plan, %d for shares, %d of them inside a lease: they prove little", plans, puzzles, shares, inside)
	}
}

func FuzzPlace(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 4})
	f.Add([]byte("\x00\x03 a machine with some devices and a job"))
	f.Fuzz(func(t *testing.T, data []byte) { puzzleOf(data).check(t) })
}

// TestBestSetIsBest tries all sets: none of the same size may be better than the best 8 of 16.
func TestBestSetIsBest(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	links := []gpu.Link{gpu.LinkNVLink, gpu.LinkSwitch, gpu.LinkBridge, gpu.LinkNode, gpu.LinkSystem, ""}
	for range 200 {
		n := 3 + r.IntN(6)
		q := &query{m: &gpu.Machine{}, need: 1 + r.IntN(n), spread: true}
		for i := range n {
			d := gpu.Device{Index: i}
			for range n {
				d.Links = append(d.Links, links[r.IntN(len(links))])
			}
			q.units = append(q.units, &unit{dev: &d, pos: i, use: use{idle: r.IntN(3) > 0, ours: r.IntN(5) == 0}})
		}
		got := q.gradeOf(q.bestSet(q.units))
		for mask := range 1 << n {
			var set []*unit
			for i, u := range q.units {
				if mask>>i&1 == 1 {
					set = append(set, u)
				}
			}
			if len(set) == q.need && compareGrades(q.gradeOf(set), got) < 0 {
				t.Fatalf("%d of %d: %+v is better than %+v", q.need, n, q.gradeOf(set), got)
			}
		}
	}
}

// BenchmarkPlace asks for 8 of 16 devices, once with links as machines have them, once with links that allow no
// pruning.
func BenchmarkPlace(b *testing.B) {
	r := rand.New(rand.NewPCG(5, 5))
	links := []gpu.Link{gpu.LinkNVLink, gpu.LinkSwitch, gpu.LinkBridge, gpu.LinkNode, gpu.LinkSystem}
	for name, link := range map[string]func(i, j int) gpu.Link{
		"pairs on two sockets": func(i, j int) gpu.Link {
			switch {
			case i/2 == j/2:
				return gpu.LinkNVLink
			case i/8 == j/8:
				return gpu.LinkNode
			}
			return gpu.LinkSystem
		},
		"random": func(_, _ int) gpu.Link { return links[r.IntN(len(links))] },
	} {
		b.Run(name, func(b *testing.B) {
			var m gpu.Machine
			for i := range 16 {
				d, _ := device(i, []string{fmt.Sprintf("temp=%d", 40+i*7%10)})
				for j := range 16 {
					d.Links = append(d.Links, link(i, j))
				}
				m.Devices = append(m.Devices, d)
			}
			for b.Loop() {
				if _, refusal := Place(job.Spec{GPUs: 8}, m, nil, Context{Now: now, Tolerate: DefaultTolerance()}); refusal != nil {
					b.Fatal(refusal)
				}
			}
		})
	}
}

package pick

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/policy"
)

// now is the moment of every scenario: 15:00 on some day.
var now = time.Date(2026, 3, 10, 15, 0, 0, 0, time.UTC)

// TestScenarios reads testdata/*.txt; testdata/README.txt describes the format.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 2 {
		t.Fatalf("cannot find the scenarios: %v %v", files, err)
	}
	cases := 0
	for _, file := range files {
		if filepath.Base(file) == "README.txt" {
			continue
		}
		for _, s := range readScenarios(t, file) {
			cases++
			t.Run(filepath.Base(file)+"/"+s.name, s.check)
		}
	}
	if cases < 30 {
		t.Errorf("only %d scenarios were read", cases)
	}
}

// scenario is one case of a file.
type scenario struct {
	name    string
	machine gpu.Machine
	held    []job.Lease
	spec    job.Spec
	in      Context
	answer  []string
}

func readScenarios(t *testing.T, file string) []*scenario {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []*scenario
	var s *scenario
	section := ""
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if name, ok := strings.CutPrefix(line, "case: "); ok {
			s = &scenario{name: name, in: Context{Now: now, UID: 1000, Tolerate: DefaultTolerance()}}
			out, section = append(out, s), ""
			continue
		}
		if name, ok := strings.CutSuffix(line, ":"); ok && strings.Contains(" machine held question answer ", " "+name+" ") {
			section = name
			continue
		}
		if err := s.read(section, line); err != nil {
			t.Fatalf("%s:%d: %s: %v", file, i+1, line, err)
		}
	}
	return out
}

func (s *scenario) read(section, line string) error {
	if section == "answer" {
		s.answer = append(s.answer, line)
		return nil
	}
	f, err := fields(line)
	if err != nil {
		return err
	}
	switch section {
	case "machine":
		return s.readMachine(f)
	case "held":
		return s.readHeld(f)
	case "question":
		return s.readQuestion(f)
	}
	return fmt.Errorf("no section")
}

// fields splits a line at spaces; key="a b" keeps its spaces and loses its quotes; \e is an escape character.
func fields(line string) ([]string, error) {
	var out []string
	var word strings.Builder
	quoted, begun := false, false
	for _, r := range strings.ReplaceAll(line, `\e`, "\x1b") {
		switch {
		case r == '"':
			quoted, begun = !quoted, true
		case r == ' ' && !quoted:
			if begun {
				out = append(out, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if begun {
		out = append(out, word.String())
	}
	if quoted || len(out) == 0 {
		return nil, fmt.Errorf("cannot split it")
	}
	return out, nil
}

func (s *scenario) readMachine(f []string) error {
	switch f[0] {
	case "gpu":
		first, last, many := strings.Cut(f[1], "-")
		if !many {
			last = first
		}
		for i := atoi(first); i <= atoi(last); i++ {
			d, err := device(i, f[2:])
			if err != nil {
				return err
			}
			s.machine.Devices = append(s.machine.Devices, d)
		}
		return nil
	case "mig":
		d := s.device(f[1])
		d.MIGMode = new(true)
		for _, profile := range f[2:] {
			i := len(d.MIG)
			d.MIG = append(d.MIG, gpu.MIGDevice{Index: i, Profile: profile, UUID: gpu.UUID(fmt.Sprintf("MIG-%d-%d", d.Index, i)),
				MemoryTotal: new(10 * gpu.GiB), MemoryUsed: new(gpu.Bytes(0))})
		}
		return nil
	case "vague": // slices of this GPU do not say how much memory is used
		for i := range s.device(f[1]).MIG {
			s.device(f[1]).MIG[i].MemoryUsed = nil
		}
		return nil
	case "link": // link 0 1 nvlink
		a, b := s.device(f[1]), s.device(f[2])
		s.connect()
		for i := range s.machine.Devices {
			switch s.machine.Devices[i].UUID {
			case a.UUID:
				b.Links[i] = gpu.Link(f[3])
			case b.UUID:
				a.Links[i] = gpu.Link(f[3])
			}
		}
		return nil
	case "process":
		return s.readProcess(f[1:])
	}
	return fmt.Errorf("unknown word %s", f[0])
}

// connect gives every pair the slowest link, which "link" lines then improve.
func (s *scenario) connect() {
	for i := range s.machine.Devices {
		d := &s.machine.Devices[i]
		if d.Links != nil {
			continue
		}
		for range s.machine.Devices {
			d.Links = append(d.Links, gpu.LinkSystem)
		}
		d.Links[i] = gpu.LinkSelf
	}
}

func device(index int, attributes []string) (gpu.Device, error) {
	d := gpu.Device{Index: index, Vendor: gpu.NVIDIA, Name: "NVIDIA A100-SXM4-80GB", UUID: gpu.UUID(fmt.Sprintf("GPU-%d%d%d%d-aaaa", index, index, index, index)),
		PCI: fmt.Sprintf("0000:%02x:00.0", 0x17+index), MemoryTotal: new(80 * gpu.GiB), MemoryUsed: new(gpu.Bytes(0)),
		MemoryReserved: new(gpu.Bytes(0)), Temperature: new(40), Utilization: new(0.0), Compute: &gpu.Capability{Major: 8}}
	for _, a := range attributes {
		key, value, _ := strings.Cut(a, "=")
		switch key {
		case "vendor":
			d.Vendor = gpu.Vendor(value)
			d.UUID = gpu.UUID(fmt.Sprintf("GPU-%s-%d", value, index))
		case "name":
			d.Name = value
		case "uuid":
			d.UUID = gpu.UUID(value)
		case "pci":
			d.PCI = value
		case "problem":
			d.Problem = value
		case "recovery":
			d.RecoveryAction = value
		case "drained":
			d.Drained = strings.ReplaceAll(value, "_", " ")
		case "xid": // one hour before now
			code, err := strconv.Atoi(value)
			if err != nil {
				return d, err
			}
			d.XIDs = append(d.XIDs, gpu.XID{Code: code, At: now.Add(-time.Hour), Source: "kernel log"})
		case "total":
			d.MemoryTotal = maybe(value, bytes)
		case "used":
			d.MemoryUsed = maybe(value, bytes)
		case "reserved":
			d.MemoryReserved = maybe(value, bytes)
		case "temp":
			d.Temperature = maybe(value, atoi)
		case "util":
			d.Utilization = maybe(value, func(v string) float64 { return float64(atoi(v)) / 100 })
		case "compute":
			d.Compute = maybe(value, func(v string) gpu.Capability { c, _ := gpu.ParseCapability(v); return c })
		case "integrated":
			d.Integrated = new(value == "yes")
		case "unlisted":
			d.Unlisted = strings.ReplaceAll(value, "_", " ")
		case "mode":
			d.ComputeMode = value
		case "display":
			d.DisplayActive = new(value == "on")
		case "remap":
			d.RemappedRows = &gpu.RemappedRows{Failed: value == "failed", Pending: value == "pending"}
		case "slowdown":
			d.TempSlowdown = new(atoi(value))
		case "mig":
			d.MIGMode = new(value == "on")
		default:
			return d, fmt.Errorf("unknown attribute %s", a)
		}
	}
	return d, nil
}

func (s *scenario) readProcess(f []string) error {
	p := gpu.Process{GPU: s.id(f[0]), PID: 4242, User: "bob", UID: new(uint32(1001)), Kind: gpu.ComputeProcess, Memory: new(gpu.Bytes(0)), Command: "python"}
	for _, a := range f[1:] {
		key, value, _ := strings.Cut(a, "=")
		switch key {
		case "pid":
			p.PID = atoi(value)
		case "start":
			p.Start = uint64(atoi(value))
		case "user":
			p.User = value
			p.UID = map[string]*uint32{"alice": new(uint32(1000)), "bob": new(uint32(1001)), "root": new(uint32(0))}[value]
		case "mem":
			p.Memory = maybe(value, bytes)
		case "cmd":
			p.Command = value
		case "kind":
			p.Kind = gpu.Kind(value)
		case "age":
			d, err := time.ParseDuration(value)
			if err != nil {
				return err
			}
			p.Started = now.Add(-d)
		case "state":
			p.State = value
		case "container":
			p.Container = value
		case "outside": // of this PID namespace, so that nothing is known of it
			p.PID, p.Outside, p.User, p.UID, p.Command = 0, atoi(value), "", nil, ""
		default:
			return fmt.Errorf("unknown attribute %s", a)
		}
	}
	// Its memory is used memory, unless "used=" says otherwise on purpose.
	d, slice, _ := s.machine.FindDevice(p.GPU)
	if p.Memory != nil {
		switch {
		case slice != nil && slice.MemoryUsed != nil:
			*slice.MemoryUsed += *p.Memory
		case slice == nil && d.MemoryUsed != nil:
			*d.MemoryUsed += *p.Memory
		}
	}
	s.machine.Processes = append(s.machine.Processes, p)
	return nil
}

func (s *scenario) readHeld(f []string) error {
	l := job.Lease{ID: f[0], User: "alice", UID: 1000, Command: "train.py", PID: 77, Since: now.Add(-58 * time.Minute)}
	for _, name := range strings.Split(f[1], ",") {
		l.Devices = append(l.Devices, s.id(name))
	}
	for _, a := range f[2:] {
		key, value, _ := strings.Cut(a, "=")
		switch key {
		case "user":
			l.User = value
			l.UID = 1001
		case "parent":
			l.Parent = value
		case "allocation":
			l.Allocation = value
		case "cmd":
			l.Command = value
		case "age":
			d, err := time.ParseDuration(value)
			if err != nil {
				return err
			}
			l.Since = now.Add(-d)
		case "ended":
			l.Ended, l.HeldBy = true, []job.Blocker{{PID: atoi(value), Start: 5, User: l.User, Command: "tmux"}}
		case "share":
			l.Share, l.Quota = bytes(value), job.Watch
		case "quota":
			l.Quota = job.Quota(value)
		case "pid":
			l.PID = atoi(value)
		case "unreadable":
			l.Unreadable, l.Hashes, l.Devices = true, []string{job.DeviceHash(l.Devices[0])}, nil
		default:
			return fmt.Errorf("unknown attribute %s", a)
		}
	}
	s.held = append(s.held, l)
	return nil
}

func (s *scenario) readQuestion(f []string) error {
	if s.spec.GPUs == 0 && len(s.spec.Devices) == 0 && s.spec.MIG == "" {
		s.spec.GPUs = 1
	}
	for len(f) > 0 {
		switch f[0] {
		case "--cpu":
			s.spec.CPU, s.spec.GPUs = true, 0
		case "--any":
			s.spec.Any = true
		case "waiting":
			s.in.Waiting = true
		case "apart":
			s.in.Apart = true
		default:
			if len(f) < 2 || !s.readFlag(f[0], f[1]) && !s.readPlace(f[0], f[1]) {
				return fmt.Errorf("unknown word %s", f[0])
			}
			f = f[1:]
		}
		f = f[1:]
	}
	return nil
}

func (s *scenario) readFlag(flag, value string) bool {
	switch flag {
	case "--gpus":
		s.spec.GPUs = atoi(value)
	case "--mig":
		s.spec.MIG, s.spec.GPUs = value, 0
	case "--device":
		s.spec.Devices, s.spec.GPUs = strings.Split(value, ","), 0
	case "--exclude":
		s.spec.Exclude = strings.Split(value, ",")
	case "--model":
		s.spec.Model = value
	case "--min-compute":
		c, err := gpu.ParseCapability(value)
		s.spec.MinCompute = &c
		return err == nil
	case "--mem":
		s.spec.Memory = bytes(value)
	case "--share":
		s.spec.Share = bytes(value)
	case "--quota":
		s.spec.Quota = job.Quota(value)
	case "--place":
		s.spec.Place = job.Place(value)
	case "--timeout":
		s.spec.Timeout, _ = time.ParseDuration(value)
	case "rule":
		s.in.Limits = append(s.in.Limits, ruleOf(value))
	case "moving":
		s.in.Moving = value
	default:
		return false
	}
	return true
}

// ruleOf reads "name=students line=4 gpus=2 devices=0,1 models=*A100* mem=40G time=24h".
func ruleOf(text string) policy.Rule {
	r := policy.Rule{At: policy.Place{File: "/etc/gpuard/config.yaml", Line: 4, Column: 5}}
	for _, word := range strings.Fields(text) {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "name":
			r.Name = value
		case "line":
			r.At.Line = atoi(value)
		case "gpus":
			r.GPUs = new(atoi(value))
		case "devices":
			r.Devices = strings.Split(value, ",")
		case "models":
			r.Models = strings.Split(value, ",")
		case "mem":
			r.Memory = bytes(value)
		case "time":
			r.Time, _ = time.ParseDuration(value)
		default:
			panic(word)
		}
	}
	return r
}

// readPlace reads a line about the caller: its lease, its allocation, what is hidden from it.
func (s *scenario) readPlace(word, value string) bool {
	switch word {
	case "as":
		s.in.UID = uint32(atoi(value))
	case "inside":
		i := slices.IndexFunc(s.held, func(l job.Lease) bool { return l.ID == value })
		s.in.Parent = &s.held[i]
		if above := s.held[i].Parent; above != "" {
			s.in.Ancestors = []string{above}
		}
	case "allocation":
		s.in.Allocation = value
	case "own":
		s.in.Own = []int{atoi(value)}
	case "tree": // tree k3f9=4242,4243
		if s.in.Trees == nil {
			s.in.Trees = map[string][]int{}
		}
		id, pids, _ := strings.Cut(value, "=")
		for _, pid := range strings.Split(pids, ",") {
			s.in.Trees[id] = append(s.in.Trees[id], atoi(pid))
		}
	case "avoid":
		s.spec.Avoid = append(s.spec.Avoid, s.id(value))
	case "had":
		for _, name := range strings.Split(value, ",") {
			s.spec.Prefer = append(s.spec.Prefer, s.id(name))
		}
	case "last":
		for _, name := range strings.Split(value, ",") {
			s.in.Last = append(s.in.Last, s.id(name))
		}
	case "mask": // mask 3,0
		for _, name := range strings.Split(value, ",") {
			s.in.MaskOrder = append(s.in.MaskOrder, s.id(name))
		}
	case "hidden": // hidden 0,2=why
		names, why, _ := strings.Cut(value, "=")
		s.in.Hidden = map[gpu.UUID]string{}
		for _, name := range strings.Split(names, ",") {
			s.in.Hidden[s.id(name)] = why
		}
	case "display":
		size, rest, _ := strings.Cut(value, " by=")
		s.in.Tolerate.Display = bytes(size)
		s.in.Tolerate.DisplayBy, s.in.Tolerate.DisplayCut, _ = strings.Cut(rest, " cut=")
	case "memory-cut":
		s.in.Tolerate.MemoryCut = value
	case "kept":
		s.in.Kept = map[gpu.UUID]job.Ticket{}
		for _, name := range strings.Split(value, ",") {
			s.in.Kept[s.id(name)] = job.Ticket{ID: "t1", User: "carol", UID: 1002, Command: "train.py", PID: 99, Since: now.Add(-time.Hour)}
		}
	default:
		return false
	}
	return true
}

// device finds "0", or "amd:0" for another vendor than NVIDIA.
func (s *scenario) device(name string) *gpu.Device {
	vendor, index, other := strings.Cut(name, ":")
	if !other {
		vendor, index = "nvidia", name
	}
	for i := range s.machine.Devices {
		if d := &s.machine.Devices[i]; string(d.Vendor) == vendor && d.Index == atoi(index) {
			return d
		}
	}
	panic("no device " + name)
}

// id of "0", or "0/2" for a slice.
func (s *scenario) id(name string) gpu.UUID {
	whole, slice, isSlice := strings.Cut(name, "/")
	d := s.device(whole)
	if isSlice {
		return d.MIG[atoi(slice)].UUID
	}
	return d.UUID
}

func (s *scenario) check(t *testing.T) {
	plan, refusal := Place(s.spec, s.machine, s.held, s.in)
	answered := false
	for _, line := range s.answer {
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "gives":
			answered = true
			var got []string
			for _, g := range plan.Devices {
				got = append(got, s.nameOf(g.UUID))
			}
			if have := cmp.Or(strings.Join(got, " "), "nothing"); refusal != nil || have != rest {
				t.Errorf("gives %s, want %s (refusal: %v)", have, rest, refusal)
			}
		case "busy", "never":
			answered = true
			if refusal == nil || refusal.Never != (word == "never") || refusal.Summary != rest {
				t.Errorf("got %+v, want %s %q", refusal, word, rest)
			}
		case "remedy":
			if refusal == nil || !strings.Contains(refusal.Remedy, rest) {
				t.Errorf("remedy is %+v, want %q in it", refusal, rest)
			}
		case "remedy-is":
			if refusal == nil || refusal.Remedy != rest {
				t.Errorf("remedy is %+v, want %q", refusal, rest)
			}
		case "note":
			if !strings.Contains(strings.Join(plan.Notes, "\n"), rest) {
				t.Errorf("notes are %q, want %q in one", plan.Notes, rest)
			}
		case "note-is":
			if len(plan.Notes) != 1 || plan.Notes[0] != rest {
				t.Errorf("notes are %q, want only %q", plan.Notes, rest)
			}
		case "no-notes":
			if len(plan.Notes) > 0 {
				t.Errorf("notes are %q, want none", plan.Notes)
			}
		case "no-note":
			if strings.Contains(strings.Join(plan.Notes, "\n"), rest) {
				t.Errorf("notes are %q, want none with %q", plan.Notes, rest)
			}
		case "share":
			if have := strings.TrimSpace(plan.Share.String() + " " + string(plan.Quota)); have != rest {
				t.Errorf("the plan's share is %s, want %s", have, rest)
			}
		case "servers":
			var got []string
			for _, id := range CapableDevices(s.spec, s.machine, s.in) {
				got = append(got, s.nameOf(id))
			}
			if have := cmp.Or(strings.Join(got, " "), "none"); have != rest {
				t.Errorf("servers are %s, want %s", have, rest)
			}
		case "room":
			s.checkRoom(t, rest)
		case "reason":
			s.checkReason(t, plan, refusal, rest)
		default:
			t.Errorf("unknown answer %q", line)
		}
	}
	if !answered {
		t.Error("the scenario has no answer")
	}
}

// checkRoom reads "0 whole yes, free 80 GiB, share none"; "0 none" where there is no such room.
func (s *scenario) checkRoom(t *testing.T, line string) {
	t.Helper()
	name, want, _ := strings.Cut(line, " ")
	word := func(b *gpu.Bytes) string {
		if b == nil {
			return "none"
		}
		return b.String()
	}
	have := "none"
	if r, ok := RoomByDevice(s.machine, s.held, s.in)[s.id(name)]; ok {
		have = fmt.Sprintf("whole %s, free %s, share %s", map[bool]string{true: "yes", false: "no"}[r.Whole], word(r.Free), word(r.Share))
	}
	if have != want {
		t.Errorf("the room of %s is %q, want %q", name, have, want)
	}
}

// checkReason reads "0 busy leased part of the text".
func (s *scenario) checkReason(t *testing.T, plan job.Plan, refusal *job.Refusal, line string) {
	t.Helper()
	reasons := plan.Reasons
	if refusal != nil {
		reasons = refusal.Reasons
	}
	f := strings.SplitN(line, " ", 4)
	for _, r := range reasons {
		if s.nameOf(r.UUID) != f[0] {
			continue
		}
		if string(r.Verdict) != f[1] || r.Code != f[2] || len(f) > 3 && !strings.Contains(r.Text, f[3]) {
			t.Errorf("reason of %s is %s %s %q, want %s", f[0], r.Verdict, r.Code, r.Text, line)
		}
		return
	}
	t.Errorf("no reason for %s in %+v", f[0], reasons)
}

func (s *scenario) nameOf(id gpu.UUID) string {
	d, slice, ok := s.machine.FindDevice(id)
	if !ok {
		return "?"
	}
	name := strconv.Itoa(d.Index)
	if d.Vendor != gpu.NVIDIA {
		name = string(d.Vendor) + ":" + name
	}
	if slice != nil {
		name += "/" + strconv.Itoa(slice.Index)
	}
	return name
}

// maybe reads "none" as an absent reading.
func maybe[T any](s string, read func(string) T) *T {
	if s == "none" {
		return nil
	}
	return new(read(s))
}

func bytes(s string) gpu.Bytes {
	b, err := gpu.ParseBytes(s)
	if err != nil {
		panic(err)
	}
	return b
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

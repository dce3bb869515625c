package policy

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
)

func rule(name string, line int, users, groups []string) Rule {
	return Rule{Name: name, At: Place{"f", line, 3}, Users: users, Groups: groups}
}

// TestFor: the first rule of a file that names the user counts, by name and by number; a rule for everyone does not
// bind root.
func TestFor(t *testing.T) {
	p := Policy{{Machine: true, Rules: []Rule{
		rule("a", 2, []string{"alice", "1003"}, nil), rule("s", 3, nil, []string{"students", "44"}), rule("", 4, nil, nil), rule("r", 5, []string{"root"}, nil),
	}}}
	for _, c := range []struct {
		u    User
		want string
	}{
		{User{UID: 1000, Names: []string{"alice"}, Groups: []string{"students"}}, `rule "a" (f:2)`},
		{User{UID: 1003, Names: []string{"bob"}}, `rule "a" (f:2)`},
		{User{UID: 1004, Names: []string{"carol"}, GIDs: []uint32{100, 7}, Groups: []string{"users", "students"}}, `rule "s" (f:3)`},
		{User{UID: 1005, GIDs: []uint32{44}}, `rule "s" (f:3)`},
		{User{UID: 44, Names: []string{"students"}}, "the rule at f:4"}, // user names do not match group names
		{User{UID: 0, Names: []string{"root"}}, `rule "r" (f:5)`},
		{User{UID: 0, Names: []string{"toor"}, Groups: []string{"students"}}, `rule "s" (f:3)`},
		{User{UID: 0, Names: []string{"toor"}}, ""},
	} {
		got := ""
		for _, r := range p.For(c.u) {
			got += r.String()
		}
		if got != c.want {
			t.Errorf("%+v: %s, want %s", c.u, got, c.want)
		}
	}
	for text, p := range map[string]Policy{
		"true true": p, "false false": {{Rules: []Rule{{}, {Users: []string{"7"}, Groups: []string{"7"}}}}, {}},
		"true false": {{}, {Rules: []Rule{{Groups: []string{"7"}}, {Users: []string{"7", "a"}}}}}, "false true": {{Rules: []Rule{{Groups: []string{"a"}}}}},
	} {
		if got := fmt.Sprint(p.Names()); got != text {
			t.Errorf("%+v: names of users and groups: %s, want %s", p, got, text)
		}
	}
}

// TestTogether: of several files the smallest value counts, and the limit is reported with its rule.
func TestTogether(t *testing.T) {
	one, two := rule("m", 1, nil, nil), rule("u", 9, nil, nil)
	one.GPUs, one.Memory, two.GPUs, two.Time = new(2), 40*gpu.GiB, new(0), time.Hour
	l := Policy{{Machine: true, Rules: []Rule{one}}, {Rules: []Rule{two}}}.For(User{UID: 5})
	if len(l) != 2 || l.Count().Name != "u" || l.LeastMemory().Name != "m" || l.ShortestTime().Name != "u" || (Limits{}).Count() != nil || (Limits{one}).ShortestTime() != nil {
		t.Errorf("%+v", l)
	}
	p := Policy{{Machine: true, Login: LoginAllowed, Defaults: []Default{{Flag: "mem", Value: "8G"}, {Flag: "wait"}}, Tolerate: Tolerance{Memory: new(gpu.GiB), Utilization: new(0.5)}},
		{Login: LoginAll, Defaults: []Default{{Flag: "mem", Value: "4G"}}, Tolerate: Tolerance{Memory: new(2 * gpu.GiB), Utilization: new(0.1)}}}
	base := Tolerance{Memory: new(256 * gpu.MiB), Display: new(2 * gpu.GiB), Utilization: new(0.05)}
	got := p.ApplyTolerance(base)
	if *got.Memory != gpu.GiB || *got.Display != 2*gpu.GiB || *got.Utilization != 0.1 || p.NarrowestLogin() != LoginAllowed || (Policy{}).NarrowestLogin() != LoginAll {
		t.Errorf("%s %s %v %s", got.Memory, got.Display, *got.Utilization, p.NarrowestLogin())
	}
	if text := fmt.Sprint(p.MergeDefaults()); text != "[--mem 4G is the default of :0 --wait is the default of :0]" {
		t.Error(text)
	}
}

// TestNarrows: a further file never gives a user a wider count, size, time, login or tolerance.
func TestNarrows(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	word := func(of ...string) []string { return of[:random.IntN(len(of)+1)] }
	file := func(machine bool) *File {
		f := &File{Machine: machine, Login: []Login{"", LoginAll, LoginAllowed, LoginNone}[random.IntN(4)]}
		for i := range random.IntN(4) {
			r := rule("", i+1, word("alice", "7"), word("staff", "44"))
			if random.IntN(2) == 0 {
				r.GPUs = new(random.IntN(4))
			}
			r.Memory, r.Time = gpu.Bytes(random.IntN(3)), time.Duration(random.IntN(3))
			f.Rules = append(f.Rules, r)
		}
		if random.IntN(2) == 0 {
			f.Tolerate = Tolerance{Memory: new(gpu.Bytes(random.IntN(9))), Display: new(gpu.Bytes(random.IntN(9))), Utilization: new(random.Float64())}
		}
		return f
	}
	order := map[Login]int{LoginAll: 0, LoginAllowed: 1, LoginNone: 2}
	base := Tolerance{Memory: new(gpu.Bytes(4)), Display: new(gpu.Bytes(4)), Utilization: new(0.5)}
	for range 20000 {
		p := Policy{file(random.IntN(4) > 0)} // not every machine has a file of its own
		more := append(p[:1:1], file(false), file(false))
		u := User{UID: uint32(random.IntN(9)), Names: word("alice", "bob"), Groups: word("staff", "students"), GIDs: []uint32{uint32(random.IntN(50))}}
		a, b := p.For(u), more.For(u)
		for _, of := range []func(Limits) (int64, bool){
			func(l Limits) (int64, bool) {
				if r := l.Count(); r != nil {
					return int64(*r.GPUs), true
				}
				return 0, false
			},
			func(l Limits) (int64, bool) { r := l.LeastMemory(); return int64(value(r).Memory), r != nil },
			func(l Limits) (int64, bool) { r := l.ShortestTime(); return int64(value(r).Time), r != nil },
		} {
			have, limited := of(a)
			now, still := of(b)
			if limited && (!still || now > have) {
				t.Fatalf("%+v with %+v is wider than with %+v", u, more, p)
			}
		}
		x, y := p.ApplyTolerance(base), more.ApplyTolerance(base)
		if len(b) < len(a) || order[more.NarrowestLogin()] < order[p.NarrowestLogin()] || *y.Memory > *x.Memory || *y.Display > *x.Display || *y.Utilization > *x.Utilization {
			t.Fatalf("%+v with %+v is wider than with %+v", u, more, p)
		}
	}
}

func value(r *Rule) Rule {
	if r == nil {
		return Rule{}
	}
	return *r
}

// TestDisplayLimit: who reads why a display is too large reads also in which file that stands, and whose value was cut.
func TestDisplayLimit(t *testing.T) {
	machine, own := "/etc/gpuard/config.yaml", "/home/a/.config/gpuard/config.yaml"
	says := func(path string, machine bool, size gpu.Bytes) *File {
		return &File{Path: path, Machine: machine, Tolerate: Tolerance{Display: &size}}
	}
	cut := "the 4 GiB of tolerate.display in " + own + " do not count, since only the machine's file may raise it"
	for i, c := range []struct {
		policy Policy
		want   DisplayLimit
	}{
		{nil, DisplayLimit{}},
		{Policy{{Path: machine, Machine: true}}, DisplayLimit{}},
		{Policy{says(machine, true, 3*gpu.GiB)}, DisplayLimit{By: "tolerate.display in " + machine, Raise: "have root raise tolerate.display in " + machine}},
		{Policy{says(own, false, gpu.GiB)}, DisplayLimit{By: "tolerate.display in " + own, Raise: "raise tolerate.display in " + own}},
		{Policy{says(own, false, 4*gpu.GiB)}, DisplayLimit{Cut: cut}},
		{Policy{says(machine, true, 3*gpu.GiB), says(own, false, 4*gpu.GiB)}, DisplayLimit{By: "tolerate.display in " + machine, Raise: "have root raise tolerate.display in " + machine, Cut: cut}},
	} {
		if got := c.policy.DisplayLimit(2 * gpu.GiB); got != c.want {
			t.Errorf("%d: %+v", i, got)
		}
	}
}

func TestMemoryCut(t *testing.T) {
	says := func(isMachine bool, size gpu.Bytes) *File {
		return &File{Path: "/f.yaml", Machine: isMachine, Tolerate: Tolerance{Memory: &size}}
	}
	const cut = "the 2 GiB of tolerate.memory in /f.yaml do not count, since only the machine's file may raise it"
	for _, c := range []struct {
		policy Policy
		want   string
	}{
		{nil, ""}, {Policy{says(true, 2*gpu.GiB)}, ""}, {Policy{says(false, 2*gpu.GiB)}, cut}, {Policy{says(false, gpu.MiB)}, ""},
		{Policy{says(true, 2*gpu.GiB), says(false, gpu.GiB)}, ""}, {Policy{says(true, gpu.GiB), says(false, 2*gpu.GiB)}, cut},
	} {
		if got := c.policy.MemoryCut(256 * gpu.MiB); got != c.want {
			t.Errorf("%+v: %q, want %q", c.policy, got, c.want)
		}
	}
}

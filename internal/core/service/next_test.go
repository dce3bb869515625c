package service

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
)

// TestNext: each case is one state. wanted lists instances as NAME#HASH<SERVICE (depends on) or <SERVICE+ (until done),
// ! for refused; seen lists NAME#HASH=state with k (kept), o (orphaned), r (ready), and <SERVICE.
func TestNext(t *testing.T) {
	for _, c := range []struct{ name, wanted, seen, want, held string }{
		{"nothing", "", "", "", ""},
		{"first", "a#1 b#1", "", "start a", ""},
		{"one at a time", "a#1 b#1", "a#1=starting,k", "", ""},
		{"not written yet", "a#1 b#1", "a#=,k", "", ""},
		{"the next when it is in line", "a#1 b#1", "a#1=waiting,k", "start b", ""},
		{"a GPU of its own first", "a#1 b#1@2", "", "start b", ""},
		{"then one that had one", "a#1 b#1", "b#0=done,last", "start b", ""},
		{"all is well", "a#1", "a#1=running,k,r", "", ""},
		{"over is over", "a#1 b#1 c#1", "a#1=done b#1=failed c#1=refused", "", ""},
		{"changed after its end", "a#2", "a#1=failed", "start a", ""},
		{"changed", "a#2 b#1", "a#1=running,k", "end a", ""},
		{"changed and ending", "a#2 b#1", "a#1=ending,k", "", ""},
		{"gone from the file", "b#1", "a#1=running,k b#1=running,k", "end a", ""},
		{"no keeper", "a#1 b#1", "a#1=running,o b#1=starting,k", "start a", ""},
		{"nor wants it", "b#1", "a#1=running,o b#1=running,k", "end a", ""},
		{"killed with its keeper", "a#1", "a#1=running", "start a", ""},
		{"down", "", "a#1=running,k,<b b#1=running,k", "end a", ""},
		{"down, one is ending", "", "a#1=ending,k,<b b#1=running,k", "", ""},
		{"down, a ring of two files", "", "a#1=running,k,<b b#1=running,k,<a", "end b end a", ""},
		{"dependency starts", "b#1 a#1<b", "b#1=running,k", "", "a waits for b to be ready"},
		{"dependency is ready", "b#1 a#1<b", "b#1=running,k,r", "start a", ""},
		{"dependency is healthy", "b#1 a#1<b", "b#1=running,k,r,healthy", "start a", ""},
		{"dependency is unhealthy", "b#1 a#1<b", "b#1=running,k,r,unhealthy", "", "a waits for b, which is unhealthy"},
		{"dependency was ready", "b#1 a#1<b", "b#1=running,r", "start b", "a waits for b to be ready"},
		{"dependency changes", "b#2 a#1<b", "b#1=running,k,r", "end b", "a waits for b to be ready"},
		{"dependency ended", "b#1 a#1<b+", "b#1=done", "start a", ""},
		{"dependency runs on", "b#1 a#1<b+", "b#1=running,k,r", "", "a waits for b to end"},
		{"dependency ended too early", "b#1 a#1<b", "b#1=done", "", "a waits for b, which ended before it was ready"},
		{"dependency failed", "b#1 a#1<b c#1", "b#1=failed", "start c", "a waits for b, which failed"},
		{"dependency was refused", "b#1! a#1<b c#1", "", "start c", "a waits for b, which was refused b cannot"},
		{"refused but there", "b#1!", "b#1=running,o,r", "start b", ""},
		{"dependent of what changes continues", "b#2 a#1<b", "b#1=running,k,r a#1=running,k,r,<b", "end b", ""},
		{"dependent that changes goes first", "b#2 a#2<b", "b#1=running,k,r a#1=running,k,r,<b", "end a", ""},
	} {
		wanted, seen := wantedOf(c.wanted), seenOf(c.seen)
		var got []string
		for _, a := range NextActions(wanted, seen) {
			got = append(got, string(a.Do)+" "+a.Instance)
		}
		var held []string
		for name, text := range HeldReasons(wanted, seen) {
			held = append(held, name+" "+text)
		}
		slices.Sort(held)
		if strings.Join(got, " ") != c.want || strings.Join(held, " ") != c.held {
			t.Errorf("%s: %q, held %q; want %q, held %q", c.name, got, held, c.want, c.held)
		}
	}
}

func wantedOf(text string) (out []Instance) {
	for _, word := range strings.Fields(text) {
		word, until := strings.CutSuffix(word, "+")
		word, refused := strings.CutSuffix(word, "!")
		word, after, depends := strings.Cut(word, "<")
		word, device, _ := strings.Cut(word, "@")
		name, hash, _ := strings.Cut(word, "#")
		i := Instance{Name: name, Service: name, Hash: hash}
		if device != "" {
			i.Flags = []string{"--device=" + device}
		}
		if refused {
			i.Refused = "cannot"
		}
		if depends {
			i.After = []Dependency{{after, UntilReady}}
		}
		if until {
			i.After[0].Until = UntilDone
		}
		out = append(out, i)
	}
	return out
}

func seenOf(text string) map[string]Seen {
	out := map[string]Seen{}
	for _, word := range strings.Fields(text) {
		parts := strings.Split(word, ",")
		name, state, _ := strings.Cut(parts[0], "=")
		name, hash, _ := strings.Cut(name, "#")
		s := Seen{Record: Record{Service: name, Hash: hash, State: State(state)}}
		s.Kept, s.Orphaned, s.Ready = slices.Contains(parts, "k"), slices.Contains(parts, "o"), slices.Contains(parts, "r")
		if slices.Contains(parts, "healthy") || slices.Contains(parts, "unhealthy") {
			s.Healthy = new(slices.Contains(parts, "healthy"))
		}
		if slices.Contains(parts, "last") {
			s.Last = []gpu.UUID{"GPU-1"}
		}
		for _, p := range parts {
			if on, ok := strings.CutPrefix(p, "<"); ok {
				s.After = append(s.After, Dependency{on, UntilReady})
			}
		}
		out[name] = s
	}
	return out
}

// world is a machine that does the actions of Next, and has events of its own.
type world struct {
	t      *testing.T
	rng    *rand.Rand
	wanted []Instance
	seen   map[string]Seen
	asked  map[string]bool // asked to end, but no record written yet
}

// TestNextReaches: files change, keepers and programs are killed, and actions take time. In the end exactly the wanted
// instances live. No living instance was ever started, none before its dependencies, and dependents ended first.
func TestNextReaches(t *testing.T) {
	seeds := uint64(40)
	if os.Getenv("GPUARD_SOAK") != "" {
		seeds = 5000
	}
	for seed := range seeds {
		w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 6)), seen: map[string]Seen{}, asked: map[string]bool{}}
		for range 200 {
			switch w.rng.IntN(12) {
			case 0:
				w.change()
			case 1, 2:
				w.kill()
			case 3, 4, 5, 6:
				w.progress(true)
			default:
				w.act()
			}
		}
		w.settle(seed)
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

// change is another file: services a to f, each of which may depend on those before it in a random order.
func (w *world) change() {
	names := strings.Split("abcdef", "")
	w.rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	w.wanted = nil
	for n, name := range names[:w.rng.IntN(len(names)+1)] {
		var after []Dependency
		for _, other := range names[:n] {
			if w.rng.IntN(3) == 0 {
				after = append(after, Dependency{other, []Condition{UntilReady, UntilDone}[w.rng.IntN(2)]})
			}
		}
		hash := fmt.Sprint(w.rng.IntN(2), after)
		for i := range 1 + w.rng.IntN(2) {
			one := Instance{Name: fmt.Sprint(name, i), Service: name, Hash: hash, After: after}
			if w.rng.IntN(8) == 0 {
				one.Refused = "cannot"
			}
			w.wanted = append(w.wanted, one)
		}
	}
}

// kill kills a keeper, and perhaps its program.
func (w *world) kill() {
	for name, s := range w.seen {
		if (s.Kept || s.Orphaned) && w.rng.IntN(4) == 0 {
			s.Orphaned = s.Main.PID != 0 && w.rng.IntN(2) == 0
			s.Kept = false
			w.seen[name] = s
			delete(w.asked, name)
		}
	}
}

// progress lets keepers continue on their own; wild ones also fail.
func (w *world) progress(wild bool) {
	for _, name := range w.names() {
		s := w.seen[name]
		if !s.Kept || w.rng.IntN(2) == 0 {
			continue
		}
		switch {
		case s.State == Ending:
			s.State, s.Kept, s.Main = Done, false, Process{}
		case w.asked[name] && s.State != "":
			s.State = Ending
			delete(w.asked, name)
		case s.State == "":
			i := slices.IndexFunc(w.wanted, func(i Instance) bool { return i.Name == name })
			if i < 0 { // the file has changed since and no longer has the version that was started
				s.Record = Record{State: Starting, Service: name[:1], Hash: "gone"}
			} else {
				s.Record = Record{State: Starting, Service: name[:1], Hash: w.wanted[i].Hash, After: w.wanted[i].After}
			}
		case s.State == Starting:
			s.State, s.Main = Running, Process{PID: 1}
		case s.State == Running && !s.Ready:
			s.Ready = true
		case s.State == Running && (wild || w.finishes(name)) && w.rng.IntN(3) == 0:
			s.State, s.Kept, s.Main = Done, false, Process{}
			if wild && w.rng.IntN(3) == 0 {
				s.State = Failed
			}
		}
		w.seen[name] = s
	}
}

// finishes reports whether another instance waits for the end of this one.
func (w *world) finishes(name string) bool {
	return slices.ContainsFunc(w.wanted, func(i Instance) bool {
		return slices.ContainsFunc(i.After, func(d Dependency) bool { return d.Service == name[:1] && d.Until == UntilDone })
	})
}

func (w *world) names() (out []string) {
	for name := range w.seen {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// act does the actions of Next, and checks each against the rules.
func (w *world) act() {
	starts := 0
	for _, a := range NextActions(w.wanted, w.seen) {
		s := w.seen[a.Instance]
		switch a.Do {
		case Start:
			starts++
			i := slices.IndexFunc(w.wanted, func(i Instance) bool { return i.Name == a.Instance })
			if s.Kept || i < 0 || s.Orphaned && s.Hash != w.wanted[i].Hash {
				w.t.Errorf("start of %s, which is %+v", a.Instance, s)
			}
			if !s.Orphaned {
				w.allowed(w.wanted[i])
				s.Record = Record{}
			}
			s.Kept, s.Orphaned = true, false
		case End:
			for name, other := range w.seen {
				ring := slices.ContainsFunc(s.After, func(d Dependency) bool { return true }) // it may be part of a cycle
				needs := slices.ContainsFunc(other.After, func(d Dependency) bool { return d.Service == s.Service })
				if name != a.Instance && needs && !ring && (other.Kept || other.Orphaned) && other.State != "" && !w.current(name) {
					w.t.Errorf("end of %s before %s, which depends on it", a.Instance, name)
				}
			}
			w.asked[a.Instance] = true
			if s.Orphaned {
				s.State, s.Orphaned = Done, false
				delete(w.asked, a.Instance)
			}
		}
		w.seen[a.Instance] = s
	}
	if starts > 1 {
		w.t.Errorf("%d starts at the same time", starts)
	}
}

func (w *world) current(name string) bool {
	return slices.ContainsFunc(w.wanted, func(i Instance) bool { return i.Name == name && i.Hash == w.seen[name].Hash })
}

// allowed checks that the dependencies of an instance are met.
func (w *world) allowed(i Instance) {
	if i.Refused != "" {
		w.t.Errorf("start of %s, which is refused", i.Name)
	}
	for _, d := range i.After {
		for _, of := range w.wanted {
			s := w.seen[of.Name]
			ready := s.State == Running && s.Ready && (s.Kept || s.Orphaned) || s.State == Done && s.Ready
			if of.Service == d.Service && (s.Hash != of.Hash || d.Until == UntilDone && s.State != Done || d.Until == UntilReady && !ready) {
				w.t.Errorf("start of %s, and %s is %+v", i.Name, of.Name, s)
			}
		}
	}
}

// settle continues without interference until nothing changes, and compares.
func (w *world) settle(seed uint64) {
	quiet := 0
	for round := 0; quiet < 40; round++ {
		before := fmt.Sprint(w.seen)
		w.act()
		w.progress(false)
		if quiet++; fmt.Sprint(w.seen) != before {
			quiet = 0
		}
		if round > 5000 {
			w.t.Fatalf("seed %d: no end", seed)
		}
	}
	held := HeldReasons(w.wanted, w.seen)
	for _, i := range w.wanted {
		s := w.seen[i.Name]
		reached := s.Hash == i.Hash && (s.Kept && s.State == Running || s.State.isOver())
		if !reached && held[i.Name] == "" {
			w.t.Errorf("%s is %+v, and nothing holds it", i.Name, s)
		}
		if reached && held[i.Name] != "" && i.Refused == "" {
			w.t.Errorf("%s is there, and %s", i.Name, held[i.Name])
		}
	}
	for name, s := range w.seen {
		if (s.Kept || s.Orphaned && !s.State.isOver()) && !w.current(name) {
			w.t.Errorf("%s is not wanted and there: %+v", name, s)
		}
	}
}

package lint

import (
	"slices"
	"strconv"
	"strings"
)

// flowStep is a step of Python in the order in which things happen, with the branches and calls that lead to it.
type flowStep struct {
	Step
	path []string
}

// flow is one way through a file: what happens when it is run, or what a function of it does that only others call.
type flow struct {
	moments []flowStep
	// The first that is the function's own; 0 for the whole file.
	from int
	// A function that runs in a process of its own.
	worker bool
}

// maxFlowMoments bounds a flow: calls within calls multiply, and rules compare what happens with all that happened before.
const maxFlowMoments = 4000

// maxTotalMoments limits the flows of a file in total; each has the steps around its function.
const maxTotalMoments = 100_000

type tracer struct {
	// The steps of each function; "" the file itself.
	bodies map[string][]Step
	called map[string]bool
	calls  int
	stack  []string
	out    []flowStep
}

// traceFlows follows a Python file from its top through the functions that it calls, then each function that nothing in the
// file calls. Steps of shell scripts within it are left out, except for programs that they start.
func traceFlows(f File) []flow {
	if f.Kind != Python && f.Kind != Notebook {
		return nil
	}
	if f.ways != nil {
		return f.ways
	}

	t := &tracer{bodies: map[string][]Step{}, called: map[string]bool{}}
	var names []string

	// Functions that others of the file call.
	local := map[string]bool{}
	graphs := f.usesTensorFlowGraphs()
	for _, s := range f.Steps {
		if graphs && s.isTensorFlowOp() {
			continue
		}
		if s.Do == Call && s.In != s.Name {
			local[s.Name], local[s.Name+".__init__"] = true, true
		}
		if s.Do == Define {
			if t.bodies[s.In] == nil {
				names = append(names, s.In)
			}

			// A later function of the same name takes its place.
			t.bodies[s.In] = nil
		}
		if s.Shell == 0 || s.Do == Command {
			t.bodies[s.In] = append(t.bodies[s.In], s)
		}
	}

	t.traceFunction("", nil)
	whole := flow{moments: t.out}
	var around []flowStep

	for _, m := range whole.moments {
		if m.In == "" && (len(m.path) == 0 || m.path[0][0] != 'm') {
			around = append(around, m)
		}
	}

	all := []flow{whole}
	workers := workerNames(f)
	inner := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !local[n] })
	outer := slices.DeleteFunc(names, func(n string) bool { return local[n] })
	total := 0
	for _, name := range slices.Concat(outer, inner) {
		// What others call is entered from them.
		if total > maxTotalMoments {
			break
		}

		worker := slices.Contains(workers, name)
		if t.called[name] && !worker {
			continue
		}

		t.out = nil
		if !worker {
			t.out = slices.Clone(around)
		}

		from := len(t.out)
		t.traceFunction(name, []string{t.nextCallLabel()})
		all = append(all, flow{t.out, from, worker})
		total += len(t.out)
	}

	return all
}

func (t *tracer) nextCallLabel() string {
	t.calls++
	return "c" + strconv.Itoa(t.calls) + ".0"
}

func (t *tracer) traceFunction(name string, path []string) {
	t.called[name] = true
	t.stack = append(t.stack, name)

	for _, s := range t.bodies[name] {
		if len(t.out) > maxFlowMoments {
			break
		}

		m := flowStep{s, slices.Concat(path, splitBranches(s.Branch))}
		t.out = append(t.out, m)
		if s.Do != Call {
			continue
		}

		for _, next := range []string{s.Name, s.Name + ".__init__"} {
			if _, local := t.bodies[next]; local && next != "" && !slices.Contains(t.stack, next) && len(t.stack) < 20 {
				t.traceFunction(next, append(slices.Clone(m.path), t.nextCallLabel()))
			}
		}
	}
	t.stack = t.stack[:len(t.stack)-1]
}

func splitBranches(b string) []string {
	if b == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(b, "/"), "/")
}

// compareBranches returns what of a's branches b is not in too, and whether the two are in different arms of one construct.
func (m flowStep) compareBranches(b flowStep) (rest []string, exclusive bool) {
	i := 0
	for i < len(m.path) && i < len(b.path) && m.path[i] == b.path[i] {
		i++
	}
	if i < len(m.path) && i < len(b.path) {
		one, _, _ := strings.Cut(m.path[i], ".")
		other, _, _ := strings.Cut(b.path[i], ".")
		exclusive = one == other
	}

	return m.path[i:], exclusive
}

// canReach reports whether a way leads from m to a later moment: they are not in different arms, and m's arm does not
// end in leaving what b is in.
func (m flowStep) canReach(b flowStep) bool {
	rest, exclusive := m.compareBranches(b)
	if exclusive {
		return false
	}

	inside := false
	for _, arm := range rest {
		switch {
		case arm[0] == 'c':
			inside = true
		case strings.HasSuffix(arm, "!!"), strings.HasSuffix(arm, "!") && !inside:
			return false
		}
	}

	return true
}

// alwaysPrecedes reports whether m has happened whenever the later moment is reached.
func (m flowStep) alwaysPrecedes(b flowStep) bool {
	rest, exclusive := m.compareBranches(b)
	return !exclusive && !slices.ContainsFunc(rest, func(arm string) bool {
		return arm[0] != 'c' && arm[0] != 'm' && (arm[0] != 't' || !strings.Contains(arm, ".0"))
	})
}

// findArg returns an argument by its name or else by its position.
func (s Step) findArg(position int, names ...string) (Arg, bool) {
	for _, a := range s.Args {
		if a.Name != "" && slices.Contains(names, a.Name) {
			return a, true
		}
	}
	n := 0
	for _, a := range s.Args {
		if a.Name != "" || a.Ref == "?" {
			continue
		}
		if n == position {
			return a, true
		}
		n++
	}

	return Arg{}, false
}

// childStartMethod says how a call starts processes of this very program: "fork" when the child takes over the parent's memory,
// "new" when it does not, "" when it starts none.
func (s Step) childStartMethod() string {
	root, _, _ := strings.Cut(s.Name, ".")
	last := s.Name[strings.LastIndexByte(s.Name, '.')+1:]
	_, pool := s.findArg(-1, "initializer")
	switch {
	case s.Do != Call:
		return ""
	case s.Name == "torch.multiprocessing.spawn", s.Name == "torch.multiprocessing.start_processes", strings.HasSuffix(s.Name, "notebook_launcher"),
		root == "submitit", s.Name == "joblib.delayed", s.Name == "joblib.Parallel", s.Name == "ray.remote", s.Name == "ray.init", strings.HasSuffix(s.Name, "elastic_launch"):
		return "new"
	case strings.Contains(s.Name, "spawn.") || strings.Contains(s.Name, "forkserver."):
		return "new"
	case s.Name == "os.fork", strings.HasSuffix(s.Name, ".ProcessPoolExecutor"):
		return "fork"
	case slices.Contains([]string{"multiprocessing", "multiprocess", "billiard", "torch", "loky", "concurrent"}, root) &&
		(strings.Contains(s.Name, "multiprocess") || strings.Contains(s.Name, "futures.process") || root == "billiard") &&
		slices.Contains([]string{"Process", "Pool", "map", "imap", "imap_unordered", "starmap", "apply_async", "map_async", "submit", "ProcessPoolExecutor", "process"}, last):
		return "fork"
	case s.Name == "torch.utils.data.DataLoader":
		if _, ok := s.findArg(-1, "worker_init_fn"); ok {
			return "fork"
		}
	case root == "" && (last == "Process" || last == "Pool" || pool || last == "submit" || strings.Contains(last, "map") || last == "apply_async" || last == "spawn"):
		return "new"
	}

	return ""
}

// workerNames are the functions of a file that run in processes of their own.
func workerNames(f File) (names []string) {
	// a function that is handed to another of the file may be what that one starts
	starts := slices.ContainsFunc(f.Steps, func(s Step) bool { return s.childStartMethod() != "" })
	defined := map[string]bool{}
	for _, s := range f.Steps {
		defined[s.Name] = defined[s.Name] || s.Do == Define
	}

	var refs []string
	defer func() {
		for _, s := range f.Steps {
			// The methods of a class that runs there.
			if class, _, ok := strings.Cut(s.Name, "."); ok && s.Do == Define && slices.Contains(refs, class) {
				names = append(names, s.Name)
			}
		}
	}()

	for _, s := range f.Steps {
		if s.Do == Define && slices.ContainsFunc(s.Args, func(a Arg) bool {
			return a.Name == "@" && (strings.HasPrefix(a.Ref, "ray.") || strings.HasSuffix(a.Ref, ".Process"))
		}) {
			names = append(names, s.Name)
		}
		if s.childStartMethod() == "" && (s.Do != Call || !starts || !defined[s.Name]) {
			continue
		}

		for _, a := range s.Args {
			if a.Ref != "" {
				names = append(names, a.Ref)
				refs = append(refs, a.Ref)
			}
		}
	}

	return names
}

// usesFork reports whether processes of the file take over their parent's memory: the way of Linux before Python 3.14,
// unless another one is chosen (docs.python.org: multiprocessing, contexts and start methods).
func (f File) usesFork() bool {
	return !slices.ContainsFunc(f.Steps, func(s Step) bool {
		if s.Do != Call || !strings.HasSuffix(s.Name, ".set_start_method") && !strings.HasSuffix(s.Name, ".get_context") {
			return false
		}
		how, ok := s.findArg(0, "method")
		return !ok || how.Value.Text != "fork"
	})
}

// startsChild reports whether the step starts another process, which takes over the environment as it is now.
func (m flowStep) startsChild() bool {
	if m.Do == Command {
		quiet := []string{"nvidia-smi", "git", "ls", "mkdir", "rm", "cp", "mv", "echo", "cat", "pip", "pip3", "apt", "apt-get", "wget", "curl", "cd", "pwd"}
		return len(m.Words) == 0 || !m.Words[0].Known || !slices.Contains(quiet, m.Words[0].Text)
	}
	return m.Do == Script || m.childStartMethod() != "" && m.Name != "torch.utils.data.DataLoader"
}

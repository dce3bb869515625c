package observe

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
)

// Worker is one process of a lease, with what it uses of the computer beside the devices.
type Worker struct {
	PID, Parent int
	// The depth in the tree of its lease, from 0.
	Depth int
	Start uint64
	// The command line of the caller's own processes; of others the name.
	Command string
	// Used so far, by all its threads.
	CPU time.Duration
	// Resident; 0 unknown.
	Memory gpu.Bytes
}

// Workers are the processes of each lease of a report, parents before their children. A process below that of a lease
// inside another one counts there only. A lease of another PID namespace has none, and on an invented machine no lease
// has any.
func Workers(host *machine.Host, s *status.Report) map[string][]Worker {
	out := map[string][]Worker{}
	if !host.IsHardware() {
		return out
	}

	roots := map[string][]int{}
	s.EachDevice(func(d *status.Device) {
		for _, l := range d.Leases {
			if l.PID > 0 && !l.Apart && !l.Ended && !slices.Contains(roots[l.ID], l.PID) {
				roots[l.ID] = append(roots[l.ID], l.PID)
			}
		}
		for _, p := range d.Processes {
			if p.Lease != "" && p.PID > 0 && !p.Ended && !slices.Contains(roots[p.Lease], p.PID) {
				roots[p.Lease] = append(roots[p.Lease], p.PID)
			}
		}
	})

	trees := host.Proc.ProcessTrees(roots)
	of := map[int]string{}
	ids := make([]string, 0, len(trees))
	for id := range trees {
		ids = append(ids, id)
	}

	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(trees[b]), len(trees[a])), strings.Compare(a, b))
	})

	for _, id := range ids {
		// The smaller tree is the inner one.
		for _, pid := range trees[id] {
			of[pid] = id
		}
	}

	for _, id := range ids {
		var list []Worker
		for _, pid := range trees[id] {
			if of[pid] != id {
				continue
			}
			if w, found := readWorker(host, pid); found {
				list = append(list, w)
			}
		}
		if len(list) > 0 {
			out[id] = sortAsTree(list)
		}
	}

	return out
}

// readWorker reads one process.
func readWorker(host *machine.Host, pid int) (w Worker, found bool) {
	s, err := host.Proc.Stat(pid)
	if err != nil || s.State == "Z" || s.State == "X" {
		return w, false
	}

	w = Worker{PID: pid, Parent: s.PPID, Start: s.Start, Command: s.Comm, CPU: s.CPU, Memory: host.Proc.ResidentMemory(pid)}
	if uid, known := host.Proc.Owner(pid); known && int(uid) == os.Geteuid() {
		w.Command = cmp.Or(prose.Clean(strings.Join(host.Proc.Arguments(pid), " ")), s.Comm)
	}

	return w, true
}

// sortAsTree puts children below their parents.
func sortAsTree(list []Worker) (out []Worker) {
	children := map[int][]Worker{}
	known := map[int]bool{}
	for _, w := range list {
		known[w.PID] = true
	}

	for _, w := range list {
		parent := w.Parent
		if !known[parent] || parent == w.PID {
			parent = 0
		}
		children[parent] = append(children[parent], w)
	}

	var add func(parent, depth int)
	add = func(parent, depth int) {
		for _, w := range children[parent] {
			w.Depth = depth
			out = append(out, w)
			add(w.PID, depth+1)
		}
	}

	add(0, 0)

	return out
}

// Computer is what the whole of a computer has and uses, beside its devices. What is not known is 0.
type Computer struct {
	Processors int
	// The time that all processors have worked since boot.
	Worked      time.Duration
	Memory, Use gpu.Bytes
}

// ReadComputer reads it; of an invented machine nothing is known.
func ReadComputer(host *machine.Host) (c Computer) {
	if !host.IsHardware() {
		return c
	}

	c.Processors, c.Worked = host.Proc.Processors()
	all, available, err := host.Proc.MainMemory()
	if err != nil {
		return c
	}

	c.Memory, c.Use = all, all-available

	return c
}

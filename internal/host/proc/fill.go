package proc

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/space"
)

// maxCommandLength is how much of a command line is kept, in bytes.
const maxCommandLength = 4096

// FillProcesses adds to every process in m what procfs knows: owner, command, start, state, cgroup and container. What
// cannot be read stays as the driver reported it. A process with a start that is not that of its PID by now is gone.
// now is the present time, from which Started is computed. apart: drivers number processes otherwise than this procfs.
// Then a process that does not have the device open becomes one that is not known here (gpu.Process.Outside).
func (f FS) FillProcesses(m *gpu.Machine, now time.Time, apart bool) {
	if len(m.Processes) == 0 {
		return
	}
	known := f.readProcesses(m.Processes)
	up, upErr := f.Uptime()
	for i := range m.Processes {
		p := &m.Processes[i]
		found := known[p.PID]
		if p.Start != 0 && found.Start != 0 && found.Start != p.Start {
			found = gpu.Process{State: StateGone}
		}

		if upErr == nil && found.Start != 0 {
			found.Started = now.Add(ticksToDuration(found.Start) - up)
		}

		if found.Command == "" {
			found.Command = prose.Clean(p.Command)
		}

		if found.User == "" {
			found.User = prose.Clean(p.User)
		}

		found.PID, found.GPU, found.Memory, found.Kind, found.Extra = p.PID, p.GPU, p.Memory, p.Kind, p.Extra
		*p = found
		if apart {
			*p = f.confirmOnDevice(m, found)
		}
	}
}

// readProcesses reads each PID once, up to 16 at a time: if a GPU hangs, reading each of its processes may be slow.
func (f FS) readProcesses(list []gpu.Process) map[int]gpu.Process {
	names := f.loadUserNames()
	known := map[int]gpu.Process{}
	var mu sync.Mutex
	var wait sync.WaitGroup
	turn := make(chan struct{}, 16)
	for _, p := range list {
		mu.Lock()
		_, asked := known[p.PID]
		if !asked {
			known[p.PID] = gpu.Process{}
		}
		mu.Unlock()
		if asked {
			continue
		}

		turn <- struct{}{}
		wait.Go(func() {
			found := f.readProcessInfo(p.PID, names)
			mu.Lock()
			known[p.PID] = found
			mu.Unlock()
			<-turn
		})
	}

	wait.Wait()

	return known
}

// readProcessInfo reads what procfs knows of a process; PID, GPU, Memory, Kind and Extra stay empty.
func (f FS) readProcessInfo(pid int, names *userNames) gpu.Process {
	var p gpu.Process
	s, err := f.Stat(pid)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) && !f.isHidden(pid) {
			p.State = StateGone
		}
		return p
	}

	p.Start, p.State = s.Start, s.State
	if uid, ok := f.realUID(pid); ok && names.ids.Hides(uid) {
		p.User = space.HiddenUser
	} else if ok {
		p.UID, p.User = &uid, names.lookupName(uid)
	}

	p.Command = f.commandLine(pid, s.Comm)
	if b, err := f.readFile(64<<10, strconv.Itoa(pid), "cgroup"); err == nil {
		p.Cgroup, p.Container = parseCgroup(string(b))
	}

	// The PID may have been reused during the reads: then the parts belong to two processes.
	if again, err := f.Stat(pid); err != nil || again.Start != s.Start {
		return gpu.Process{State: StateGone}
	}

	return p
}

// realUID returns the real user id. /proc/PID itself would not do: it belongs to root if the program is not dumpable.
func (f FS) realUID(pid int) (uint32, bool) {
	b, err := f.readFile(16<<10, strconv.Itoa(pid), "status")
	if err != nil {
		return 0, false
	}

	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("Uid:")); ok {
			ids := strings.Fields(string(rest))
			if len(ids) == 0 {
				return 0, false
			}
			n, err := strconv.ParseUint(ids[0], 10, 32)

			return uint32(n), err == nil
		}
	}

	return 0, false
}

// commandLine returns the command line with single spaces between arguments, or "[name]", as ps writes it, if there is
// none: for kernel threads, zombies, programs that erased it, and processes that are stuck in the kernel.
func (f FS) commandLine(pid int, comm string) string {
	b, err := f.readSlow(2*maxCommandLength, strconv.Itoa(pid), "cmdline")
	if err != nil {
		return "[" + comm + "]"
	}

	b = bytes.TrimRight(b, "\x00")
	line := strings.TrimSpace(prose.Clean(string(bytes.ReplaceAll(b, []byte{0}, []byte{' '}))))
	if line == "" {
		return "[" + comm + "]"
	}

	if len(line) > maxCommandLength {
		line = line[:maxCommandLength]
		for !utf8.ValidString(line) {
			line = line[:len(line)-1]
		}
	}

	return line
}

// DescribeProcess returns owner and command line of a process, to name it in a message. A process that is gone has
// neither.
func (f FS) DescribeProcess(pid int) job.Blocker {
	return newBlocker(pid, f.readProcessInfo(pid, f.loadUserNames()))
}

func newBlocker(pid int, p gpu.Process) job.Blocker {
	return job.Blocker{PID: pid, Start: p.Start, User: p.User, Command: p.Command, Stopped: p.State == "T"}
}

// Owner returns the real user id of a process; ok is false if it cannot be read, or is not mapped in this user
// namespace.
func (f FS) Owner(pid int) (uid uint32, ok bool) {
	uid, ok = f.realUID(pid)
	return uid, ok && !f.IDs().Hides(uid)
}

// ProcessesOfUser lists the PIDs of a user's processes, lowest first.
func (f FS) ProcessesOfUser(uid uint32) (pids []int) {
	all, err := f.listPIDs()
	if err != nil {
		return nil
	}

	for _, pid := range all {
		if owner, ok := f.realUID(pid); ok && owner == uid {
			pids = append(pids, pid)
		}
	}

	return pids
}

// ProcessTree lists the PIDs in roots and all their present descendants, each once.
func (f FS) ProcessTree(roots ...int) []int { return f.readFamily().treeOf(roots) }

// ProcessTrees is ProcessTree for several sets of processes, with one reading of procfs.
func (f FS) ProcessTrees(roots map[string][]int) map[string][]int {
	trees := map[string][]int{}
	if len(roots) == 0 {
		return trees
	}

	c := f.readFamily()
	for name, pids := range roots {
		trees[name] = c.treeOf(pids)
	}

	return trees
}

// childrenByParent maps processes to their children.
type childrenByParent map[int][]int

// readFamily returns nil if the processes cannot be listed.
func (f FS) readFamily() childrenByParent {
	pids, err := f.listPIDs()
	if err != nil {
		return nil
	}

	c := childrenByParent{}
	for _, p := range pids {
		s, err := f.Stat(p)
		if err != nil {
			continue
		}

		c[s.PPID] = append(c[s.PPID], p)
	}

	return c
}

func (c childrenByParent) treeOf(roots []int) []int {
	var tree []int
	listed := map[int]bool{}
	add := func(pids []int) {
		for _, p := range pids {
			if !listed[p] {
				listed[p] = true
				tree = append(tree, p)
			}
		}
	}

	add(roots)

	for i := 0; i < len(tree); i++ {
		add(c[tree[i]])
	}

	return tree
}

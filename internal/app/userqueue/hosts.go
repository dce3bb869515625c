package userqueue

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/host/journal"
	"gpuard/internal/host/sys"
)

// A home may be shared by several hosts. Each has a queue of its own there, and only its own processes run the jobs: of
// the queue of another host neither the lock nor the processes can be trusted here. So this host only counts them.

// HostJobs are the jobs of a queue of this user that this host does not run.
type HostJobs struct {
	// Name of the machine that has them; "" unknown: an earlier gpuard kept one queue for all.
	Host string `json:"host"`
	// That have not ended, as far as is written.
	Jobs   int    `json:"jobs"`
	Folder string `json:"folder"` // of that queue
	// Where this host's queue would be, if it has none and that one may be its own of before it was renamed.
	Here string `json:"-"`
}

// settledFile has the size of the journal at which all jobs had ended, so that a long one need not be read.
const settledFile = "settled"

// markSettled writes that file if all have ended. The journal is locked. Without the file the journal is read.
func markSettled(dir string, state *batchlog.State, size int64) {
	if state.Count.CountDone() == state.Count.All {
		_ = machine.WriteFile(filepath.Join(dir, settledFile), fmt.Appendln(nil, size), 0o600)
	}
}

// OfOtherHosts lists what other hosts have of this user in the same home, and what an earlier gpuard left there.
func OfOtherHosts(host *machine.Host) []HostJobs {
	list := []HostJobs{}
	top, err := host.HostsFolder()
	if err != nil {
		return list
	}

	own, err := host.DurablePath("")
	if err != nil {
		return list
	}

	here := filepath.Join(own, queueFolder)
	_, err = os.Lstat(here)
	var renamed []string
	if errors.Is(err, os.ErrNotExist) {
		renamed = host.FoldersOfSameID(top)
	}

	entries, _ := os.ReadDir(top)
	for _, e := range entries {
		if !e.IsDir() || e.Name() == filepath.Base(own) {
			continue
		}
		n := len(list)
		list = addJobs(list, host.NameOfHost(e.Name()), filepath.Join(top, e.Name(), queueFolder))
		if len(list) > n && slices.Contains(renamed, e.Name()) {
			list[n].Here = here
		}
	}

	before := filepath.Join(filepath.Dir(top), queueFolder)
	if state, _ := host.Env.Lookup("GPUARD_STATE"); state != "" {
		before = filepath.Join(state, fmt.Sprint(queueFolder, "-", os.Geteuid()))
	}

	return addJobs(list, "", before)
}

func addJobs(list []HostJobs, name, folder string) []HostJobs {
	if n := countOpen(folder); n > 0 {
		list = append(list, HostJobs{Host: name, Jobs: n, Folder: folder})
	}
	return list
}

// countOpen is how many jobs of a queue have not ended. What cannot be read is none: it says nothing about this host.
func countOpen(folder string) int {
	dir, err := sys.OpenOwnFolder(folder, 0)
	if err != nil {
		return 0
	}

	_ = dir.Close()
	lines, err := journal.OpenReadOnly(filepath.Join(folder, journalFile))
	if err != nil {
		return 0
	}

	defer lines.Close() //nolint:errcheck // read only
	text, _ := sys.ReadSome(filepath.Join(folder, settledFile), 32)
	if size, err := lines.Size(); err != nil || string(text) == fmt.Sprintln(size) {
		return 0
	}

	state := batchlog.NewQueue()

	// What was read before an error counts.
	_ = lines.EachNewLine(func(line []byte) error { return state.ReadLine(line, lines.Offset()) })

	return state.Count.All - state.Count.CountDone()
}

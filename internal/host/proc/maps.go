package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/prose"
)

// Libraries lists the shared objects that are mapped into a process, each once, in alphabetical order
// (proc_pid_maps(5)). Only the owner of the process and root may read them.
func (f FS) Libraries(pid int) ([]string, error) {
	b, err := f.readSlow(16<<20, strconv.Itoa(pid), "maps")
	if err != nil {
		return nil, fmt.Errorf("cannot read what is loaded into process %d: %w", pid, err)
	}

	var out []string
	for line := range strings.Lines(string(b)) {
		_, path, ok := strings.Cut(line, "/")
		path, _, _ = strings.Cut("/"+path, " (deleted)")
		path = prose.Clean(strings.TrimRight(path, "\n"))
		if name := filepath.Base(path); !ok || !strings.Contains(name, ".so.") && !strings.HasSuffix(name, ".so") {
			continue
		}

		out = append(out, path)
	}

	slices.Sort(out)

	return slices.Compact(out), nil
}

// Program is how a process was started: what is needed to start the same program again.
type Program struct {
	// Path of its file, cleaned.
	Name string
	// The words as given, with the program's name first.
	Args []string
	// It has another mount namespace or root folder than the caller, as in a container.
	Elsewhere bool
}

// ReadProgram reads how a process was started. Only the owner of the process and root may read that.
func (f FS) ReadProgram(pid int) (Program, error) {
	dir := filepath.Join(f.root, strconv.Itoa(pid))
	var p Program
	name, err := os.Readlink(filepath.Join(dir, "exe"))
	if err != nil {
		return p, fmt.Errorf("cannot read the program of process %d: %w", pid, err)
	}

	p.Name = prose.Clean(strings.TrimSuffix(name, " (deleted)"))
	b, err := f.readSlow(2<<20, strconv.Itoa(pid), "cmdline")
	if err != nil {
		return p, fmt.Errorf("cannot read the arguments of process %d: %w", pid, err)
	}

	p.Args = strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
	link := func(path ...string) string {
		// "" if it cannot be read, which counts as elsewhere.
		to, _ := os.Readlink(filepath.Join(path...))
		return to
	}

	theirs := link(dir, "ns", "mnt")
	p.Elsewhere = theirs == "" || theirs != link(f.root, "self", "ns", "mnt") || link(dir, "root") != "/"

	return p, nil
}

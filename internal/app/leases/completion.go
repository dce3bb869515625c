package leases

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/registry"
	"gpuard/internal/core/gpu"
)

// ExecutablesInPath lists the executables in PATH with that prefix, each once, for completion.
func ExecutablesInPath(host *machine.Host, prefix string) []string {
	var names []string
	path, _ := host.Env.Lookup("PATH")
	for _, dir := range filepath.SplitList(path) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			// A folder in PATH that is not there is usual.
			continue
		}

		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), prefix) {
				continue
			}
			if info, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				names = append(names, e.Name())
			}
		}
	}

	slices.Sort(names)

	return slices.Compact(names)
}

// OwnProcesses lists the caller's processes whose PIDs have that prefix, each with a tab and the beginning of its
// command, for completion. It leaves out this process, the subshell that started it, and kernel threads.
func OwnProcesses(host *machine.Host, prefix string) (list []string) {
	passing := []int{os.Getpid()}
	if shell := host.Proc.Shell(os.Getppid()); shell != os.Getppid() {
		passing = append(passing, os.Getppid())
	}

	for _, pid := range host.Proc.ProcessesOfUser(uint32(os.Getuid())) {
		id := strconv.Itoa(pid)
		if !strings.HasPrefix(id, prefix) || slices.Contains(passing, pid) {
			continue
		}
		if command := []rune(host.Proc.DescribeProcess(pid).Command); len(command) > 0 && command[0] != '[' {
			list = append(list, id+"\t"+string(command[:min(len(command), 40)]))
		}
	}

	return list
}

// ReadIdentity reads only the identity of the devices, which is fast: for completion.
func ReadIdentity(ctx context.Context, host *machine.Host) (gpu.Machine, error) {
	return host.Read(ctx, gpu.Identity)
}

// ReadHealth reads what the devices are, how they are, and whether they are drained: for completion.
func ReadHealth(ctx context.Context, host *machine.Host) (gpu.Machine, error) {
	return host.Read(ctx, gpu.Identity|gpu.Health)
}

// OwnLeases lists the ids of the caller's leases, for completion.
func OwnLeases(ctx context.Context, host *machine.Host) []string {
	m, err := host.Read(ctx, gpu.Identity)
	if err != nil {
		return nil
	}

	held, _, err := registry.LiveLeases(host, m)
	if err != nil {
		return nil
	}

	var ids []string
	for _, l := range held {
		if l.UID == uint32(os.Geteuid()) {
			ids = append(ids, l.ID)
		}
	}

	return ids
}

// Package limits reads the limits of this process and its children other than GPUs: shared memory, locked memory,
// processors. It judges nothing.
//
//	l, err := limits.ReadLimits("/") // l.Shm == nil: there is no /dev/shm
package limits

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/prose"
	"gpuard/internal/host/sys"
)

// ReadLimits reads the limits of this process from the files below root ("/" for this machine). The error says that
// /dev/shm exists and cannot be read; every other limit that cannot be read is absent.
func ReadLimits(root string) (hostinfo.Limits, error) {
	l := hostinfo.Limits{CPUs: usableCPUs(root), Memlock: lockedMemoryLimit(root), RDMA: rdmaCards(root)}
	var shm unix.Statfs_t
	err := unix.Statfs(filepath.Join(root, "dev/shm"), &shm)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return l, nil
	case err != nil:
		return l, fmt.Errorf("cannot read the size of /dev/shm: %w", err)
	}

	size := func(blocks uint64) *gpu.Bytes {
		return new(gpu.Bytes(min(blocks*uint64(shm.Bsize), math.MaxInt64))) //nolint:gosec // a size of blocks is positive, and the result is cut
	}

	l.Shm, l.ShmFree = size(shm.Blocks), size(shm.Bavail)

	return l, nil
}

// lockedMemoryLimit returns the limit of locked memory; nil if there is none, or if this process has CAP_IPC_LOCK, for
// which it does not count.
func lockedMemoryLimit(root string) *gpu.Bytes {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) != nil || limit.Cur > math.MaxInt64 {
		return nil
	}

	for line := range strings.Lines(readText(root, "proc/self/status")) {
		if mask, ok := strings.CutPrefix(line, "CapEff:"); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			if err == nil && bits&(1<<unix.CAP_IPC_LOCK) != 0 {
				return nil
			}
		}
	}

	return new(gpu.Bytes(limit.Cur))
}

// rdmaCards returns the names of InfiniBand and RoCE cards.
func rdmaCards(root string) []string {
	entries, err := os.ReadDir(filepath.Join(root, "sys/class/infiniband"))
	if err != nil {
		return nil
	}

	names := prose.Texts(entries, func(e os.DirEntry) string { return e.Name() })

	return names
}

// usableCPUs returns the number of processors that this process may use: the size of its affinity mask, or the CPU
// quota of its cgroup or one above, if that is smaller. 0 is unknown.
func usableCPUs(root string) float64 {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return 0
	}

	n := float64(set.Count())
	for line := range strings.Lines(readText(root, "proc/self/cgroup")) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		switch {
		case id == "0" && controllers == "":
			n = smallestQuotaAbove(n, root, "sys/fs/cgroup", path, func(dir string) float64 {
				quota, period, _ := strings.Cut(strings.TrimSpace(readText(dir, "cpu.max")), " ")
				return quotaRatio(quota, period)
			})
		case strings.Contains(","+controllers+",", ",cpu,"):
			n = smallestQuotaAbove(n, root, "sys/fs/cgroup/cpu", path, func(dir string) float64 {
				return quotaRatio(strings.TrimSpace(readText(dir, "cpu.cfs_quota_us")), strings.TrimSpace(readText(dir, "cpu.cfs_period_us")))
			})
		}
	}

	return n
}

// smallestQuotaAbove returns the smallest of n and the quotas of a cgroup and those above it.
func smallestQuotaAbove(n float64, root, hierarchy, path string, quota func(dir string) float64) float64 {
	for path = filepath.Clean("/" + path); ; path = filepath.Dir(path) {
		if q := quota(filepath.Join(root, hierarchy, path)); q > 0 {
			n = min(n, q)
		}
		if path == "/" {
			return n
		}
	}
}

// quotaRatio returns quota divided by period; 0 if there is no quota ("max", "-1", no such file).
func quotaRatio(quota, period string) float64 {
	q, err1 := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 || math.IsInf(q, 0) || math.IsInf(p, 0) {
		return 0
	}

	return q / p
}

// readText returns the content of a file of the kernel; "" if it cannot be read.
func readText(elements ...string) string {
	content, _ := sys.ReadSome(filepath.Join(elements...), 64<<10)
	return string(content)
}

// Package limits reads what this process and its children may use beside GPUs: shared memory, locked memory, processors. It
// judges nothing.
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
	"gpuard/internal/core/site"
	"gpuard/internal/host/sys"
)

// Read reads the limits of this process on the machine whose files lie below root ("/" for this one). The error is that
// /dev/shm is there and cannot be looked at; everything else that cannot be read is absent.
func Read(root string) (site.Limits, error) {
	l := site.Limits{CPUs: cpus(root), Memlock: memlock(root), RDMA: rdma(root)}
	var shm unix.Statfs_t
	err := unix.Statfs(filepath.Join(root, "dev/shm"), &shm)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return l, nil
	case err != nil:
		return l, fmt.Errorf("cannot look at /dev/shm: %w", err)
	}
	size := func(blocks uint64) *gpu.Bytes {
		return new(gpu.Bytes(min(blocks*uint64(shm.Bsize), math.MaxInt64))) //nolint:gosec // a size of blocks is positive, and the result is cut
	}
	l.Shm, l.ShmFree = size(shm.Blocks), size(shm.Bavail)
	return l, nil
}

// memlock is the limit of locked memory; nil where there is none, also because this process may pass it by.
func memlock(root string) *gpu.Bytes {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) != nil || limit.Cur > math.MaxInt64 {
		return nil
	}
	for line := range strings.Lines(text(root, "proc/self/status")) {
		if mask, ok := strings.CutPrefix(line, "CapEff:"); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			if err == nil && bits&(1<<unix.CAP_IPC_LOCK) != 0 {
				return nil
			}
		}
	}
	return new(gpu.Bytes(limit.Cur))
}

// rdma names the cards of the class that NVIDIA and others call InfiniBand, RoCE included.
func rdma(root string) []string {
	entries, err := os.ReadDir(filepath.Join(root, "sys/class/infiniband"))
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// cpus is how many processors this process may use: those it may run on, or the smaller share of time that a control group
// of it or around it has. 0 is unknown.
func cpus(root string) float64 {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return 0
	}
	n := float64(set.Count())
	for line := range strings.Lines(text(root, "proc/self/cgroup")) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		switch {
		case id == "0" && controllers == "":
			n = upwards(n, root, "sys/fs/cgroup", path, func(dir string) float64 {
				quota, period, _ := strings.Cut(strings.TrimSpace(text(dir, "cpu.max")), " ")
				return share(quota, period)
			})
		case strings.Contains(","+controllers+",", ",cpu,"):
			n = upwards(n, root, "sys/fs/cgroup/cpu", path, func(dir string) float64 {
				return share(strings.TrimSpace(text(dir, "cpu.cfs_quota_us")), strings.TrimSpace(text(dir, "cpu.cfs_period_us")))
			})
		}
	}
	return n
}

// upwards is the least of n and what the group and those around it may use.
func upwards(n float64, root, hierarchy, path string, quota func(dir string) float64) float64 {
	for path = filepath.Clean("/" + path); ; path = filepath.Dir(path) {
		if q := quota(filepath.Join(root, hierarchy, path)); q > 0 {
			n = min(n, q)
		}
		if path == "/" {
			return n
		}
	}
}

// share is quota by period; 0 where there is no quota ("max", "-1", no such file).
func share(quota, period string) float64 {
	q, err1 := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 || math.IsInf(q, 0) || math.IsInf(p, 0) {
		return 0
	}
	return q / p
}

// text is a small file of the kernel; "" when it cannot be read.
func text(elements ...string) string {
	content, _ := sys.ReadSome(filepath.Join(elements...), 64<<10)
	return string(content)
}

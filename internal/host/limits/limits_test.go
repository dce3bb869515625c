package limits

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// tree writes files below a folder.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestReadThisMachine(t *testing.T) {
	l, err := ReadLimits("/")
	if err != nil {
		t.Fatal(err)
	}
	if l.CPUs <= 0 || l.Shm != nil && (*l.Shm < 0 || l.ShmFree == nil || *l.ShmFree > *l.Shm) {
		t.Errorf("%+v", l)
	}
}

func TestRead(t *testing.T) {
	l, err := ReadLimits(tree(t, map[string]string{"dev/shm/x": "", "sys/class/infiniband/mlx5_0/x": "", "proc/self/status": "CapEff:\t0000000000000000\n"}))
	if err != nil || l.Shm == nil || l.ShmFree == nil || !slices.Equal(l.RDMA, []string{"mlx5_0"}) {
		t.Errorf("%+v, %v", l, err)
	}
	if l, err := ReadLimits(t.TempDir()); err != nil || l.Shm != nil || l.RDMA != nil {
		t.Errorf("without /dev/shm: %+v, %v", l, err)
	}
}

func TestMemlockOfPrivileged(t *testing.T) {
	if limit := lockedMemoryLimit(tree(t, map[string]string{"proc/self/status": "Name:\tx\nCapEff:\t000001ffffffffff\n"})); limit != nil {
		t.Errorf("who may lock everything has the limit %v", limit)
	}
}

func TestProcessors(t *testing.T) {
	whole := usableCPUs(t.TempDir())
	if whole < 1 {
		t.Fatalf("%v processors", whole)
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  float64
	}{
		"none":        {map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "max 100000\n"}, whole},
		"own":         {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "50000 100000\n"}, 0.5},
		"around":      {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "25000 100000\n", "sys/fs/cgroup/a/b/cpu.max": "50000 100000\n"}, 0.25},
		"container":   {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "75000 100000\n"}, 0.75},
		"version 1":   {map[string]string{"proc/self/cgroup": "4:cpu,cpuacct:/a\n", "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "50000\n", "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n"}, 0.5},
		"v1, no more": {map[string]string{"proc/self/cgroup": "4:cpu,cpuacct:/a\n", "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n"}, whole},
		"nonsense":    {map[string]string{"proc/self/cgroup": "0::/../..\n", "sys/fs/cgroup/cpu.max": "x y\n"}, whole},
	} {
		t.Run(name, func(t *testing.T) {
			if got := usableCPUs(tree(t, c.files)); got != c.want {
				t.Errorf("%v processors, want %v", got, c.want)
			}
		})
	}
}

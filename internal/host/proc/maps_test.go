package proc

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLibraries(t *testing.T) {
	f := tree(t, map[string]string{"42/maps": `55d0c8a5b000-55d0c8a5d000 r--p 00000000 fe:00 1311 /usr/bin/python3.11
7f2d0a000000-7f2d0a200000 r-xp 00000000 fe:00 2022 /usr/lib/torch/lib/libtorch_cpu.so
7f2d0a200000-7f2d0a400000 r--p 00200000 fe:00 2022 /usr/lib/torch/lib/libtorch_cpu.so
7f2d0b000000-7f2d0b200000 r-xp 00000000 fe:00 2023 /a folder/libcuda.so.550.54.15 (deleted)
7f2d0c000000-7f2d0c200000 rw-p 00000000 00:00 0 
7f2d0d000000-7f2d0d200000 r--p 00000000 fe:00 2024 /usr/share/locale.social
7ffd5c9f2000-7ffd5ca13000 rw-p 00000000 00:00 0                          [stack]
`})
	got, err := f.Libraries(42)
	want := []string{"/a folder/libcuda.so.550.54.15", "/usr/lib/torch/lib/libtorch_cpu.so"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
	if _, err := f.Libraries(43); err == nil || !strings.Contains(err.Error(), "process 43") {
		t.Errorf("of nobody: %v", err)
	}
}

func TestProgramOfARunningProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-x", "", "a b")
	cmd.Env, cmd.Dir = append(os.Environ(), sleeper+"=1"), t.TempDir()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	p, err := New("/proc").ReadProgram(cmd.Process.Pid)
	for end := time.Now().Add(5 * time.Second); err == nil && len(p.Args) < len(cmd.Args) && time.Now().Before(end); {
		p, err = New("/proc").ReadProgram(cmd.Process.Pid) // Start returns in the middle of exec, before the arguments are there
	}
	if err != nil || p.Name != self || !slices.Equal(p.Args, cmd.Args) || p.Elsewhere {
		t.Errorf("%+v %v", p, err)
	}
}

func TestTreeOfSeveralRoots(t *testing.T) {
	files := map[string]string{
		"2/stat": statLine(2, "a", "S", 1, 5), "3/stat": statLine(3, "b", "S", 2, 5), "4/stat": statLine(4, "c", "S", 2, 5),
		"5/stat": statLine(5, "d", "S", 3, 5), "9/stat": statLine(9, "e", "S", 1, 5), "10/stat": statLine(10, "f", "S", 9, 5),
	}
	got := tree(t, files).ProcessTree(3, 2, 9)
	slices.Sort(got)
	if want := []int{2, 3, 4, 5, 9, 10}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	both := tree(t, files).ProcessTrees(map[string][]int{"b": {3}, "e": {9, 3}})
	slices.Sort(both["e"])
	if !slices.Equal(both["b"], []int{3, 5}) || !slices.Equal(both["e"], []int{3, 5, 9, 10}) {
		t.Errorf("%v", both)
	}
}

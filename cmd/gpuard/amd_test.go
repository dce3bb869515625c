package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"gpuard/internal/app/machine"
)

// runOnAMDRoot is the program on the machine with the files of the folder AMDBOX.
func runOnAMDRoot() {
	const moment = 20 * time.Millisecond
	os.Exit(start(os.Getenv("AMDBOX"), machine.Times{Driver: 5 * time.Second, Fading: time.Second, Lock: time.Second, Touch: moment}))
}

// unpackAMDRoot unpacks a machine of the AMD reader's tests. A name that ends in @ is a symbolic link.
func unpackAMDRoot(t testing.TB, name string) string {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("../../internal/host/amdgpu/testdata", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, f := range archive.Files {
		link, isLink := strings.CutSuffix(f.Name, "@")
		path := filepath.Join(root, link)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case err != nil:
		case isLink:
			err = os.Symlink(strings.TrimSpace(string(f.Data)), path)
		default:
			err = os.WriteFile(path, f.Data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestAMD runs the program on a machine with AMD GPUs: what it reads, leases and writes is AMD's all the way through.
func TestAMD(t *testing.T) {
	r := newFakeDriverMachine(t) // a driver of NVIDIA without a GPU
	root := unpackAMDRoot(t, "mi300x")
	for name, text := range map[string]string{"class": "0x030000\n", "vendor": "0x8086\n"} {
		folder := filepath.Join(root, "sys/bus/pci/devices/0000:00:02.0")
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	job := `echo "$HIP_VISIBLE_DEVICES|$ROCR_VISIBLE_DEVICES|$CUDA_VISIBLE_DEVICES|$GPUARD_GPUS"; amdbox explain; amdbox status --json`
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"status"}, []string{"3 GPUs: 1 free, 2 busy", "MI300X", "pid 41207", "Intel GPU 0000:00:02.0: gpuard does not read these"}},
		{[]string{"explain"}, []string{"hip:0      0", "hip:2      2", "GPU-77b2c3d4e5f6071a"}},
		{[]string{"env"}, []string{"export ROCR_VISIBLE_DEVICES=2\n", "unset HIP_VISIBLE_DEVICES", "export GPUARD_GPUS=GPU-77b2c3d4e5f6071a\n"}},
		{[]string{"run", "--", "sh", "-c", job}, []string{
			"gpuard: GPU 2 (AMD Instinct MI300X OAM) is hip:0, lease ", "|2||GPU-77b2c3d4e5f6071a\n",
			"hip:0      2", `"use": "leased"`, `"here": true`,
		}},
	} {
		got := runCommand(t, r.amdCommand(root, test.args...))
		if got.code != 0 {
			t.Errorf("%q ended with %d", test.args, got.code)
		}
		for _, want := range test.want {
			if !strings.Contains(got.out+got.err, want) {
				t.Errorf("%q does not say %q:\n%s%s", test.args, want, got.out, got.err)
			}
		}
	}
}

// amdCommand prepares the program on the machine below root.
func (r *fakeDriverMachine) amdCommand(root string, args ...string) *exec.Cmd {
	r.t.Helper()
	cmd := r.cmd(args...)
	cmd.Args[0] = "amdbox"
	cmd.Env = append(cmd.Env, "AMDBOX="+root)
	return cmd
}

// TestVerifyAMD: KFD's list is the witness, and it tells the right GPU from a wrong one.
func TestVerifyAMD(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t)
	for _, test := range []struct{ visible, verdict string }{{"2", "proven"}, {"0", "wrong device"}} {
		root := unpackAMDRoot(t, "mi300x")
		child := exec.Command("sleep", "60")
		child.Env = []string{"ROCR_VISIBLE_DEVICES=" + test.visible}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
		pid := strconv.Itoa(child.Process.Pid)
		folder := filepath.Join(root, "sys/class/kfd/kfd/proc", pid)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "vram_33019"), []byte("3221225472\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		got := runCommand(t, r.amdCommand(root, "verify", "--for", "2s", pid))
		if !strings.Contains(got.out, test.verdict) || !strings.Contains(got.out, "GPU 2 (AMD Instinct MI300X OAM") {
			t.Errorf("visible %s: exit %d\n%s%s", test.visible, got.code, got.out, got.err)
		}
	}
}

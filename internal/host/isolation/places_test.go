package isolation_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/isolate"
	"gpuard/internal/core/job"
	"gpuard/internal/gate"
	"gpuard/internal/host/isolation"
)

// TestElsewhere: a device file that is also in another mount, under another name in /dev, or whose folder is bound elsewhere is closed
// there too.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	gate.Need(t, "mountns", "isolation")
	dir := public(t)
	for _, level := range possible() {
		path, argv, err := isolation.Wall{level, []string{"/dev/full"}}.Command("/bin/sh", []string{"sh", "-c",
			fmt.Sprintf("cd %s; for f in /dev/full dev/full one /dev/sub/again space\\ here/full dev/sub/again; do true <>\"$f\" && echo opens $f; test -e \"$f\" || echo opens nothing; done; true <>dev/zero && echo fine", dir)})
		if err != nil {
			t.Fatal(err)
		}
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		script := fmt.Sprintf(`cd %s; mkdir -p new dev "space here"; touch one; mount -t tmpfs none new
for n in full null zero; do touch new/$n; mount --bind /dev/$n new/$n; done; umount new/full; rm new/full; mknod -m 666 new/full c 1 7; mkdir new/sub; mknod -m 666 new/sub/again c 1 7
mount --move new /dev; mount --rbind /dev dev; mount --bind /dev "space here"; mount --bind /dev/full one; exec "$@"`, dir)
		cmd := exec.CommandContext(t.Context(), "unshare", append([]string{"--mount", "sh", "-ec", script, "sh"}, slices.Concat([]string{self}, argv[1:])...)...)
		out, code := output(t, cmd)
		if strings.Contains(out, "opens") || !strings.Contains(out, "fine\n") || code != 0 {
			t.Errorf("%s (%s): exit code %d, says\n%s", level, path, code, out)
		}
	}
}

func TestWithin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, folder, rest string
		below              bool
	}{
		{"/dev/a", "/", "dev/a", true}, {"/dev/a", "/dev", "a", true}, {"/dev/a", "/de", "/dev/a", false}, {"/dev/a", "/dev/a", "", true}, {"/", "/", "", true},
	} {
		rest, below := isolation.Within(c.path, c.folder)
		if rest != c.rest || below != c.below {
			t.Errorf("%s below %s: %q, %v", c.path, c.folder, rest, below)
		}
	}
}

func TestReadMounts(t *testing.T) {
	t.Parallel()
	got := isolation.ReadMounts("23 28 0:5 / /dev rw,nosuid shared:7 - devtmpfs devtmpfs rw\n24 28 0:5 /x /a\\040b\\134c rw - devtmpfs none rw\nshort line\n")
	want := [][3]string{{"0:5", "/", "/dev"}, {"0:5", "/x", `/a b\c`}}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

// TestNodes: which files belong to which device, from a tree as the driver makes it. Files there are no device files, so nodes are made
// where that is allowed.
func TestNodes(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root")
	root := t.TempDir()
	node := func(name string, minor int) {
		path := filepath.Join(root, name)
		out, err := exec.CommandContext(t.Context(), "sh", "-ec", fmt.Sprintf("mkdir -p $(dirname %s); mknod %[1]s c 195 %d", path, minor)).CombinedOutput()
		if err != nil {
			t.Skipf("cannot make a node: %s", out)
		}
	}
	file := func(name, text string) {
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755) //nolint:gosec // a test's
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, minor := range map[string]int{"dev/nvidia0": 0, "dev/nvidia12": 12, "dev/nvidiactl": 255, "dev/nvidia-uvm": 0, "dev/nvidia-caps/nvidia-cap2": 2, "dev/nvidia-caps/nvidia-cap12": 12, "dev/nvidia-caps/nvidia-cap13": 13,
		"dev/dri/card1": 1, "dev/dri/renderD129": 129, "dev/dri/renderD130": 130, "dev/kfd": 9} {
		node(name, minor)
	}
	file("dev/nvidia7", "no device")
	file("proc/driver/nvidia/capabilities/mig/monitor", "DeviceFileMinor: 2\n")
	file("proc/driver/nvidia/capabilities/gpu0/mig/gi1/access", "DeviceFileMinor: 12\nDeviceFileMode: 292\n")
	file("proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access", "DeviceFileMinor: 13\n")
	file("proc/driver/nvidia/capabilities/gpu0/mig/gi2/access", "nonsense\n")
	file("proc/driver/nvidia/capabilities/gpu0/mig/gi5/ci2/access", "DeviceFileMinor: 50\n")
	for name, pci := range map[string]string{"card1": "0000:17:00.0", "renderD129": "0000:17:00.0"} {
		err := os.MkdirAll(filepath.Join(root, "sys/class/drm", name), 0o755) //nolint:gosec // a test's
		if err == nil {
			err = os.Symlink("../../../"+pci, filepath.Join(root, "sys/class/drm", name, "device"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := isolation.DeviceNodes(root)
	want := []isolate.Node{
		{Path: "dev/nvidia0"}, {Path: "dev/nvidia12", Number: 12},
		{Path: "dev/nvidia-caps/nvidia-cap12", Kind: isolate.Capability, GPUInstance: 1, ComputeInstance: -1},
		{Path: "dev/nvidia-caps/nvidia-cap13", Kind: isolate.Capability, GPUInstance: 1},
		{Kind: isolate.Capability, GPUInstance: 5, ComputeInstance: 2},
		{Path: "dev/kfd", Kind: isolate.AMDCompute},
		{Path: "dev/dri/card1", Kind: isolate.Graphics, PCI: "0000:17:00.0"}, {Path: "dev/dri/renderD129", Kind: isolate.Render, Number: 129, PCI: "0000:17:00.0"},
		{Path: "dev/dri/renderD130", Kind: isolate.Render, Number: 130},
	}
	for i := range want {
		if want[i].Path != "" {
			want[i].Path = filepath.Join(root, want[i].Path)
		}
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\n%v\nwant\n%v", err, got, want)
	}
}

// TestKilledWhileBuilding: whenever the process is killed, the command either does not run, or cannot open the device. The kill comes
// after a time that grows from none to more than it takes, for a wall that a process of gpuard's builds, and for one that is built in
// place of an exec.
func TestKilledWhileBuilding(t *testing.T) {
	t.Parallel()
	gate.Need(t, "isolation")
	who := user{name: "caller", uid: uint32(os.Getuid())} //nolint:gosec // an id
	for _, level := range []job.Isolation{job.Namespace, job.Landlock} {
		log := filepath.Join(public(t), "log")
		script := "true <>/dev/full && echo opens >>" + log + "; echo begun >>" + log + "; exec sleep 60"
		for i := range 120 {
			cmd := behind(t, level, who, "sh", "-c", script)
			if i%2 == 1 {
				cmd = who.command(t, "/proc/self/exe", "exec", execFlag, string(level), "/bin/sh", "sh", "-c", script)
			}
			err := cmd.Start()
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(i) * 60 * time.Microsecond) // the moment is what is varied
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		text, _ := os.ReadFile(log)
		if strings.Contains(string(text), "opens") {
			t.Errorf("%s: a command ran without its wall:\n%s", level, text)
		}
		t.Logf("%s: %d of 120 began", level, strings.Count(string(text), "begun"))
	}
}

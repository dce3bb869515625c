package amdgpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	healthOf "gpuard/internal/core/health"
)

func TestRead(t *testing.T) {
	tests := []struct {
		tree      string
		driver    string
		identity  string
		load      string
		health    string
		processes string
		problems  string
	}{
		{
			tree: "mi300x", driver: "6.12.12",
			identity: `
0 GPU-a1b2c3d4e5f60718 "AMD Instinct MI300X OAM" 0000:05:00.0 minor 128 numa 0 total 192 GiB clock 2100 "gfx942"
1 GPU-0fd1c3d4e5f60719 "AMD Instinct MI300X OAM" 0000:26:00.0 minor 136 numa 0 total 192 GiB clock 2100 "gfx942"
2 GPU-77b2c3d4e5f6071a "AMD Instinct MI300X OAM" 0000:85:00.0 minor 144 numa 1 total 192 GiB clock 2100 "gfx942"`,
			load: `
used 57 GiB busy 0.99 at 80 of 100 margin 20, 702 of 750 W, 2103 and 1300 MHz
used 57 GiB busy 0.98 at 77 of 100 margin 23, 702 of 750 W, 2103 and 1300 MHz
used 283 MiB busy 0 at 31 of 100 margin 69, 138 of 750 W, 132 and 900 MHz`,
			health: `
ecc true 0 0 pages {0 0 false}
ecc true 3 0 pages {0 1 true}
ecc true 0 0 pages {0 0 false}`,
			// The tool that only reads (1817) is on no GPU, and the run is not on GPU 2.
			processes: `
41207 on GPU-0fd1c3d4e5f60719: 56 GiB compute
41207 on GPU-a1b2c3d4e5f60718: 56.1 GiB compute`,
		},
		{
			tree: "desktop", driver: "Linux 6.12.57+deb13-amd64",
			identity: `
0 GPU-2c1f5a9b8d7e6f40 "AMD Radeon RX 7900 XTX" 0000:03:00.0 minor 128 numa - total 24.0 GiB clock 2304 "gfx1100"`,
			load: `
used 3 GiB busy 0.07 at 51 of 100 margin 1, 61 of 327 W, 87 and 1249 MHz`,
			health: `
ecc - - - pages -`,
			// Client 11 is open in two processes and counts once.
			processes: `
2101 on GPU-2c1f5a9b8d7e6f40: 640 MiB graphics
3377 on GPU-2c1f5a9b8d7e6f40: 2 GiB compute+graphics`,
		},
		{
			tree: "apu", driver: "Linux 6.17.0-8-generic",
			identity: `
0 PCI-0000:10:00.0 "AMD Radeon Graphics" 0000:10:00.0 minor 129 numa - total 512 MiB clock 2200 "gfx1036" integrated`,
			load: `
used 16.2 MiB busy - at - of - margin -, - of - W, - and - MHz`,
			health: `
ecc - - - pages -`,
		},
		{
			tree: "partitions", driver: "6.10.5",
			identity: `
0 GPU-a1b2c3d4e5f60718-p0 "AMD Instinct MI300X OAM" 0000:05:00.0 minor 128 numa 0 total 96.0 GiB clock 2100 "gfx942"
1 GPU-a1b2c3d4e5f60718-p1 "AMD Instinct MI300X OAM" 0000:05:00.0 minor 129 numa 0 total 96.0 GiB clock 2100 "gfx942"`,
			load: `
used - busy - at 45 of 100 margin 55, 170 of 750 W, - and - MHz
used - busy - at 45 of 100 margin 55, 170 of 750 W, - and - MHz`,
			health: `
ecc - - - pages -
ecc - - - pages -`,
			processes: `
700 on GPU-a1b2c3d4e5f60718-p1: 1 GiB compute`,
		},
		{
			tree: "graphics", driver: "Linux 6.1.0",
			identity: `
0 PCI-0000:01:00.0 "AMD GPU 67df" 0000:01:00.0 minor 128 numa - total 8 GiB clock - ` + `
1 GPU-2c1f5a9b8d7e6f40 "AMD GPU 744c" 0000:02:00.0 minor - numa - total 24.0 GiB clock - `,
			load: `
used - busy - at - of - margin -, - of - W, - and - MHz
used - busy - at - of - margin -, - of - W, - and - MHz`,
			health: `
ecc - - - pages -
ecc - - - pages -`,
			problems: `
AMD GPU 0: for graphics only: the kernel's compute driver (KFD) does not list it, so ROCm programs cannot use it
AMD GPU 1: for graphics only: the kernel's compute driver (KFD) does not list it, so ROCm programs cannot use it`,
		},
		{
			tree: "broken", driver: "Linux 6.8.0",
			identity: `
0 GPU-1000000000000001 "AMD GPU 740f" 0000:c1:00.0 minor 128 numa 1 total 64.0 GiB clock 1700 "gfx90a"
1 KFD-1002 "AMD GPU"  minor - numa - total - clock - ` + `
2 KFD-1003 "AMD GPU"  minor - numa - total - clock - ` + `
3 GPU-1000000000000004 "AMD GPU" 0000:c4:00.0 minor 130 numa - total - clock 1700 "gfx90a"
4 GPU-1000000000000005 "AMD GPU" 0000:c5:00.0 minor 131 numa - total - clock 1700 "gfx90a"`,
			load: `
used 10.5 MiB busy 0 at - of - margin -, - of - W, - and - MHz
used - busy - at - of - margin -, - of - W, - and - MHz
used - busy - at - of - margin -, - of - W, - and - MHz
used - busy - at - of - margin -, - of - W, - and - MHz
used - busy - at - of - margin -, - of - W, - and - MHz`,
			health: `
ecc - - - pages -
ecc - - - pages -
ecc - - - pages -
ecc - - - pages -
ecc - - - pages {0 0 false}`,
			processes: `
55 on GPU-1000000000000001: - compute`,
			problems: `
AMD GPUs: 1 more are not given to this container or job
AMD GPU 1: cannot read KFD node 2: no such file or directory
AMD GPU 2: KFD node 3 does not say where its GPU is
AMD GPU 3: the GPU is lost: nothing is left at PCI address 0000:c4:00.0
AMD GPU 4: cannot read mem_info_vram_total: "99999999999999999999" is not a number
AMD GPU 4: cannot read mem_info_vram_used: -5 is outside 0 to 70368744177664
AMD GPU 4: cannot read gpu_busy_percent: 101 is outside 0 to 100
AMD GPU 4: cannot read hwmon/hwmon2/temp1_input: "hot" is not a number
AMD GPU 4: cannot read hwmon/hwmon2/temp2_input: is a directory
AMD GPU 4: cannot read hwmon/hwmon2/power1_average: "" is not a number`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.tree, func(t *testing.T) {
			m, err := New(tree(t, tt.tree)).Read(t.Context(), gpu.Everything)
			if err != nil {
				t.Fatal(err)
			}
			same(t, "driver", m.Driver, tt.driver)
			same(t, "identity", lines(m.Devices, identity), tt.identity)
			same(t, "load", lines(m.Devices, load), tt.load)
			same(t, "health", lines(m.Devices, health), tt.health)
			same(t, "processes", lines(m.Processes, process), tt.processes)
			same(t, "problems", lines(m.Problems, itself), tt.problems)
			if _, err := m.Encode(); err != nil {
				t.Errorf("it cannot be recorded: %v", err)
			}
		})
	}
}

// A device that cannot be used must not be called healthy, and one that answers must be.
func TestHealthOfWhatIsRead(t *testing.T) {
	for name, want := range map[string]string{
		"mi300x":   "\nok\ndegraded\nok", // a page waits to be set aside
		"desktop":  "\ndegraded",         // the hottest spot is at its limit, whatever the edge says
		"graphics": "\nunknown\nunknown",
		"broken":   "\nok\nunknown\nunknown\nunhealthy\nok",
	} {
		m, err := New(tree(t, name)).Read(t.Context(), gpu.Everything)
		if err != nil {
			t.Fatal(err)
		}
		same(t, name, lines(m.Devices, func(d gpu.Device) string {
			state, _ := healthOf.StateOf(d, m.Taken)
			return string(state)
		}), want)
	}
}

func TestLinks(t *testing.T) {
	root := tree(t, "mi300x")
	for _, link := range []string{"2/io_links/2", "10/io_links/1"} { // now GPU 2 is joined to GPU 1 alone
		write(t, root, "sys/class/kfd/kfd/topology/nodes/"+link+"/properties", "type 2\nnode_to 0\n")
	}
	got := func() string {
		m, err := New(root).Read(t.Context(), gpu.Identity|gpu.Links)
		if err != nil {
			t.Fatal(err)
		}
		return lines(m.Devices, func(d gpu.Device) string {
			var words []string
			for _, l := range d.Links {
				words = append(words, string(l))
			}
			return strings.Join(words, " ")
		})
	}
	same(t, "joined by XGMI", got(), "\nself nvlink system\nnvlink self nvlink\nsystem nvlink self")

	for _, node := range []string{"2", "3", "10"} {
		remove(t, root, "sys/class/kfd/kfd/topology/nodes/"+node+"/io_links")
	}
	same(t, "same socket", got(), "\nself node system\nnode self system\nsystem system self")

	move := func(gpu, chain string) {
		remove(t, root, "sys/bus/pci/devices/"+gpu)
		write(t, root, "sys/bus/pci/devices/"+gpu+"@", "../../../devices/"+chain+"/"+gpu)
		write(t, root, "sys/devices/"+chain+"/"+gpu+"/numa_node", "0")
	}
	move("0000:05:00.0", "pci0000:00/0000:00:01.1/0000:02:00.0/0000:03:00.0")
	move("0000:26:00.0", "pci0000:00/0000:00:01.1/0000:02:00.0/0000:03:08.0")
	move("0000:85:00.0", "pci0000:00/0000:00:03.1/0000:83:00.0")
	same(t, "below one switch, and below its neighbour", got(), "\nself switch bridge\nswitch self bridge\nbridge bridge self")

	m, err := New(tree(t, "partitions")).Read(t.Context(), gpu.Identity|gpu.Links)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "two partitions", m.Devices[0].Links, "[self nvlink]")
	m, err = New(root).Read(t.Context(), gpu.Identity)
	same(t, "not asked for", m.Devices[0].Links == nil, true)
	same(t, "error", err, nil)
}

func TestWhatIsNotAskedForIsNotRead(t *testing.T) {
	root := tree(t, "mi300x")
	m, err := New(root).Read(t.Context(), gpu.Identity)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range m.Devices {
		same(t, "load", load(d), "used - busy - at - of - margin -, - of - W, - and - MHz")
		same(t, "health", health(d), "ecc - - - pages -")
	}
	same(t, "processes", len(m.Processes), 0)
	same(t, "source", m.Source, "amdgpu")
	same(t, "taken", m.Taken.IsZero(), false)
}

func TestUnavailable(t *testing.T) {
	tests := []struct {
		name  string
		setup func(root string)
		cause gpu.Cause
		text  string
	}{
		{"nothing", func(string) {}, gpu.NoDevice, "cannot find an AMD GPU: the machine has none"},
		{"driver without a device", func(root string) {
			write(t, root, "sys/bus/pci/drivers/amdgpu/new_id", "")
		}, gpu.NoDevice, "the amdgpu driver is loaded and has no device"},
		{"driver not loaded", func(root string) {
			write(t, root, "sys/bus/pci/devices/0000:00:00.0/modalias", "pci:v00001002d00001480sv00001002sd00001480bc06sc00i00")
			write(t, root, "sys/bus/pci/devices/0000:03:00.0/modalias", "pci:v00001002d000074A1sv00001002sd000074A1bc12sc00i00")
		}, gpu.DriverNotLoaded, "cannot use the AMD GPU at 0000:03:00.0: the amdgpu kernel driver is not loaded"},
		{"given to a virtual machine", func(root string) {
			write(t, root, "sys/bus/pci/devices/0000:03:00.0/modalias", "pci:v00001002d000074A1sv00001002sd000074A1bc12sc00i00")
			write(t, root, "sys/bus/pci/devices/0000:03:00.0/driver/bind", "")
		}, gpu.NoDevice, "the machine has none"},
		{"given to others", func(root string) {
			write(t, root, "sys/class/kfd/kfd/topology/nodes/1/gpu_id", "7")
			write(t, root, "sys/class/kfd/kfd/topology/nodes/1/properties", "location_id 768\ndrm_render_minor 128\n")
			write(t, root, "sys/bus/pci/drivers/amdgpu/0000:03:00.0/device", "0x74a1")
		}, gpu.NoPermission, "the machine has 1, and none of them is given to this container or job"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			tt.setup(root)
			m, err := New(root).Read(t.Context(), gpu.Everything)
			var why *gpu.Unavailable
			if !errors.As(err, &why) || len(m.Devices) > 0 {
				t.Fatalf("%d devices, error %v", len(m.Devices), err)
			}
			if why.Cause != tt.cause || !strings.Contains(why.Text, tt.text) || why.Remedy == "" {
				t.Errorf("got %+v\nwant %s: %s", why, tt.cause, tt.text)
			}
		})
	}
}

// ROCm numbers only the GPUs that this process may open, so without GPU 0 the others move down.
func TestIndexFollowsWhatIsGiven(t *testing.T) {
	root := tree(t, "mi300x")
	remove(t, root, "dev/dri/renderD128")
	m, err := New(root).Read(t.Context(), gpu.Identity)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "devices", lines(m.Devices, func(d gpu.Device) string { return string(d.UUID) }), "\nGPU-0fd1c3d4e5f60719\nGPU-77b2c3d4e5f6071a")
	same(t, "indices", []int{m.Devices[0].Index, m.Devices[1].Index}, "[0 1]")
	same(t, "problems", lines(m.Problems, itself), "\nAMD GPUs: 1 more are not given to this container or job")
}

func TestDevicesWithoutTheDoor(t *testing.T) {
	root := tree(t, "desktop")
	remove(t, root, "dev/kfd")
	m, err := New(root).Read(t.Context(), gpu.Identity)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "problems", lines(m.Problems, itself),
		"\nAMD GPUs: /dev/kfd is missing, so ROCm programs cannot start: in a container, add --device /dev/kfd")
}

// KFD has the PIDs of the machine; in a container another process may have that PID.
func TestProcessesSeenFromAnotherNamespace(t *testing.T) {
	for link, want := range map[string]string{
		"pid:[4026531836]": "2 []",
		"pid:[4026532999]": "0 [AMD GPUs: cannot list ROCm's processes in a container or PID namespace: their PIDs are those of the machine]",
	} {
		root := tree(t, "mi300x")
		write(t, root, "proc/self/ns/pid@", link)
		m, err := New(root).Read(t.Context(), gpu.Everything)
		if err != nil {
			t.Fatal(err)
		}
		same(t, link, fmt.Sprint(len(m.Processes), " ", m.Problems), want)
		if d := m.Devices[2]; (d.Unlisted != "") != (len(m.Problems) > 0) {
			t.Errorf("%s: unlisted: %q", link, d.Unlisted)
		}
		if m, err = New(root).Read(t.Context(), gpu.Identity); err != nil || len(m.Problems) > 0 {
			t.Errorf("not asked for processes: %v, problems %q", err, m.Problems)
		}
	}
}

// unprivileged lets this thread access files as the user nobody. The thread ends with the test, so it is not used
// again.
func unprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		return
	}
	runtime.LockOSThread()
	if err := unix.Setfsuid(65534); err != nil {
		t.Fatal(err)
	}
}

func TestNoPermission(t *testing.T) {
	root := tree(t, "mi300x")
	for name, mode := range map[string]os.FileMode{
		"dev/kfd": 0o640, "dev/dri/renderD136": 0o640, // of group render
		"sys/class/kfd/kfd/topology/nodes/2/gpu_id": 0, // as the kernel answers to a container without it
	} {
		if err := os.Chmod(filepath.Join(root, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Dir(root), 0o755); err != nil {
		t.Fatal(err)
	}
	done := make(chan foundDevices)
	go func() {
		defer close(done)
		unprivileged(t)
		done <- New(root).findDevices(gpu.Identity)
	}()
	found := <-done
	if os.Geteuid() != 0 { // the owner may still write
		same(t, "devices", len(found.cards), 2)
		return
	}
	same(t, "problems", lines(found.problems, itself), `
AMD GPUs: 1 more are not given to this container or job
AMD GPUs: no permission for /dev/kfd, so ROCm programs cannot start: sudo usermod -aG render,video $USER, then log in again
AMD GPU 0: no permission for /dev/dri/renderD136, so ROCm programs cannot start: sudo usermod -aG render,video $USER, then log in again
AMD GPU 1: no permission for /dev/dri/renderD144, so ROCm programs cannot start: sudo usermod -aG render,video $USER, then log in again`)
}

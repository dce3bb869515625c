package check

import (
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
)

func TestDriver(t *testing.T) { see(t, driverChecks(), driverSightings()) }

// TestCUDAStart: only cuInit tells whether CUDA programs start.
func TestCUDAStart(t *testing.T) {
	said := func(code int) hostinfo.Site {
		return change(box(2), func(s *hostinfo.Site) {
			s.CUDA = hostinfo.AnswerOf(hostinfo.CUDA{Code: code, Word: "CUDA_ERROR", Remedy: "do this"})
		})
	}
	see(t, []Check{cudaStart()}, []sighting{
		{"cuda-starts", "it does", said(0), OK},
		{"cuda-starts", "after suspend", said(999), Error},
		{"cuda-starts", "no device for it", said(100), Error},
		{"cuda-starts", "no fabric manager", said(802), Error},
		{"cuda-starts", "not asked", change(box(1), func(s *hostinfo.Site) { s.CUDA = hostinfo.NoAnswer[hostinfo.CUDA]("no answer within 10s") }), Unknown},
		{"cuda-starts", "no GPU", none(), OK},
	})
	if v := Diagnose(said(999)); v.Runs == nil || *v.Runs || v.Next != "do this" {
		t.Errorf("the verdict is %+v", v.Verdict)
	}
}

const driver550 = "550.54.15"

// box is a machine with n working NVIDIA cards and a complete driver.
func box(n int) hostinfo.Site {
	s := hostinfo.Site{
		Driver: hostinfo.AnswerOf(hostinfo.Driver{Module: driver550, Open: new(false), Library: driver550, LibraryPath: "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", CUDALibrary: driver550, CUDAPath: "/usr/lib/x86_64-linux-gnu/libcuda.so.1"}),
		Cards:  hostinfo.AnswerOf([]hostinfo.Card{{PCI: "0000:00:02.0", Vendor: 0x1a03, Driver: "ast", Boot: true}}),
	}
	m := gpu.Machine{Driver: driver550, CUDA: "12.4"}
	files := []string{"/dev/nvidia-uvm", "/dev/nvidiactl"}
	for i := range n {
		pci := "0000:1" + string(rune('0'+i)) + ":00.0"
		s.Cards.Found = append(s.Cards.Found, hostinfo.Card{PCI: pci, Vendor: pciNVIDIA, Device: 0x20b2, Driver: "nvidia", Minor: new(i)})
		m.Devices = append(m.Devices, gpu.Device{Index: i, UUID: gpu.UUID("GPU-" + string(rune('a'+i))), Name: "NVIDIA A100-SXM4-80GB", Vendor: gpu.NVIDIA, PCI: pci, Minor: new(i)})
		files = append(files, "/dev/nvidia"+string(rune('0'+i)))
	}
	for _, path := range files {
		s.Nodes.Found = append(s.Nodes.Found, hostinfo.Node{Path: path, Mode: 0o666})
	}
	s.Machine = hostinfo.AnswerOf(m)
	return s
}

// change is s after a change.
func change(s hostinfo.Site, f func(*hostinfo.Site)) hostinfo.Site {
	f(&s)
	return s
}

// none is a machine without a GPU of a known vendor.
func none() hostinfo.Site {
	s := box(0)
	s.Driver, s.Nodes = hostinfo.AnswerOf(hostinfo.Driver{}), hostinfo.AnswerOf([]hostinfo.Node{})
	s.Machine = hostinfo.NoAnswer[gpu.Machine]("cannot find the NVIDIA driver's library")
	return s
}

// unread is a box whose driver does not answer.
func unread(problem string) hostinfo.Site {
	return change(box(2), func(s *hostinfo.Site) { s.Machine = hostinfo.NoAnswer[gpu.Machine](problem) })
}

// bound is a box whose cards other drivers have, "" none.
func bound(drivers ...string) hostinfo.Site {
	return change(box(len(drivers)), func(s *hostinfo.Site) {
		s.Driver, s.Nodes = hostinfo.AnswerOf(hostinfo.Driver{Others: []string{"nouveau"}}), hostinfo.AnswerOf([]hostinfo.Node{})
		s.Machine = hostinfo.NoAnswer[gpu.Machine]("cannot use the GPUs: the NVIDIA kernel driver is not loaded")
		for i, d := range drivers {
			s.Cards.Found[i+1].Driver, s.Cards.Found[i+1].Minor = d, nil
		}
	})
}

// amd is a machine with one AMD card.
func amd(driver string) hostinfo.Site {
	return change(none(), func(s *hostinfo.Site) {
		s.Cards = hostinfo.AnswerOf([]hostinfo.Card{{PCI: "0000:03:00.0", Vendor: pciAMD, Driver: driver}})
		s.Nodes = hostinfo.AnswerOf([]hostinfo.Node{{Path: "/dev/dri/renderD128", Mode: 0o660, GID: 44}, {Path: "/dev/kfd", Mode: 0o660, GID: 44}})
		if driver == "amdgpu" {
			s.Machine = hostinfo.AnswerOf(gpu.Machine{Devices: []gpu.Device{{UUID: "GPU-1", Vendor: gpu.AMD, PCI: "0000:03:00.0"}}})
		}
	})
}

// wslBare is WSL on a computer without a GPU of NVIDIA.
func wslBare() hostinfo.Site {
	return change(none(), func(s *hostinfo.Site) {
		s.Driver.Found.WSL, s.Cards.Found[0] = true, hostinfo.Card{PCI: "5e02:00:00.0", Vendor: 0x1414, Driver: "dxgkrnl"}
		s.Nodes = hostinfo.AnswerOf([]hostinfo.Node{{Path: "/dev/dxg"}})
	})
}

// jetsonBoard is a Jetson with a driver that is older than NVML's support for it.
func jetsonBoard() hostinfo.Site {
	return change(none(), func(s *hostinfo.Site) {
		s.Driver.Found.Tegra, s.Driver.Found.CUDAPath, s.Driver.Found.CUDALibrary, s.Cards.Found = true, "/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1", "1.1", nil
	})
}

// closedTo is a box of one with a control file that this user may not open.
func closedTo(mode, group uint32) hostinfo.Site {
	return change(box(1), func(s *hostinfo.Site) {
		s.Nodes.Found[1].Mode, s.Nodes.Found[1].GID, s.Nodes.Found[1].Problem = mode, group, "permission denied"
	})
}

// half is a box of two whose driver is installed but has no module.
func half(built, secure bool, drivers ...string) hostinfo.Site {
	return change(bound(drivers...), func(s *hostinfo.Site) {
		d := &s.Driver.Found
		d.LibraryPath, d.Kernel, d.Built, d.SecureBoot = "/usr/lib/libnvidia-ml.so.1", "6.8.0-47-generic", new(built), secure
	})
}

// switches is a box of two on NVSwitches, of one generation, with or without their daemon.
func switches(major int, managed bool, f func(*hostinfo.Site)) hostinfo.Site {
	return change(box(2), func(s *hostinfo.Site) {
		s.Driver.Found.Switches, s.Driver.Found.FabricManager = []string{"0000:c1:00.0", "0000:c2:00.0"}, &managed
		for i := range s.Machine.Found.Devices {
			s.Machine.Found.Devices[i].Compute = &gpu.Capability{Major: major}
		}
		f(s)
	})
}

func driverSightings() []sighting {
	nodes := func(s *hostinfo.Site, f func(*hostinfo.Node)) {
		for i := range s.Nodes.Found {
			f(&s.Nodes.Found[i])
		}
	}
	denied := func(paths ...string) hostinfo.Site {
		return change(box(2), func(s *hostinfo.Site) {
			nodes(s, func(n *hostinfo.Node) {
				if strings.Contains(strings.Join(paths, " ")+" ", n.Path+" ") {
					n.Mode, n.GID, n.Problem = 0o660, 27, "permission denied"
				}
			})
		})
	}
	kept := func(all bool) hostinfo.Site {
		return change(box(2), func(s *hostinfo.Site) {
			nodes(s, func(n *hostinfo.Node) {
				if n.Path == "/dev/nvidia1" || all && n.Path == "/dev/nvidia0" {
					n.Problem, n.Kept = "operation not permitted", true
				}
			})
			s.Machine.Found.Devices = s.Machine.Found.Devices[:1]
		})
	}
	files := func(container string, modprobe bool, paths ...string) hostinfo.Site {
		return change(box(1), func(s *hostinfo.Site) {
			s.Container, s.Driver.Found.Modprobe = container, modprobe
			s.Nodes = hostinfo.AnswerOf([]hostinfo.Node{})
			for _, p := range paths {
				s.Nodes.Found = append(s.Nodes.Found, hostinfo.Node{Path: p, Mode: 0o666})
			}
		})
	}
	driver := func(f func(*hostinfo.Driver)) hostinfo.Site {
		return change(box(1), func(s *hostinfo.Site) { f(&s.Driver.Found) })
	}
	unknown := func(container, nvidiaML, cuda string) hostinfo.Site {
		return change(box(1), func(s *hostinfo.Site) {
			s.Container, s.Driver.Found.LibraryPath, s.Driver.Found.CUDAPath = container, nvidiaML, cuda
		})
	}
	wsl := change(box(1), func(s *hostinfo.Site) {
		s.Driver, s.Cards = hostinfo.AnswerOf(hostinfo.Driver{WSL: true, CUDAPath: "/usr/lib/wsl/lib/libcuda.so.1"}), hostinfo.NoAnswer[[]hostinfo.Card]("no PCI")
		s.Nodes = hostinfo.AnswerOf([]hostinfo.Node{{Path: "/dev/dxg"}})
	})
	geforce := func(s hostinfo.Site) hostinfo.Site {
		s.Machine.Found.Devices[0].Name = "NVIDIA GeForce RTX 4090"
		return s
	}
	compat := func(version string) hostinfo.Site {
		return driver(func(d *hostinfo.Driver) {
			d.CUDAPath, d.CUDALibrary = "/usr/local/cuda-12.8/compat/libcuda.so.1", version
		})
	}
	fewer := func(f func(*hostinfo.Site)) hostinfo.Site {
		return change(box(2), func(s *hostinfo.Site) {
			s.Machine.Found.Devices = s.Machine.Found.Devices[:1]
			f(s)
		})
	}
	nothing := func(*hostinfo.Site) {}
	return []sighting{
		{"gpu-present", "none", none(), Error},
		{"gpu-present", "no PCI", change(none(), func(s *hostinfo.Site) { s.Cards = hostinfo.NoAnswer[[]hostinfo.Card]("sysfs is not mounted") }), Unknown},
		{"gpu-present", "two", box(2), OK},
		{"gpu-present", "without a driver", bound(""), OK},
		{"gpu-present", "WSL without an answer", change(wsl, func(s *hostinfo.Site) { s.Machine = hostinfo.NoAnswer[gpu.Machine]("no") }), OK},
		{"gpu-present", "WSL without a GPU of NVIDIA", wslBare(), Error},
		{"gpu-present", "a Jetson", jetsonBoard(), Unknown},
		{"gpu-present", "AMD", amd("amdgpu"), OK},
		{"driver-bound", "nouveau", bound("nouveau", "nouveau"), Error},
		{"driver-bound", "nova", bound("NovaCore"), Error},
		{"driver-bound", "one of two", bound("nouveau", "nvidia"), Warning},
		{"driver-bound", "the one with the screen", change(bound("nouveau", "nvidia"), func(s *hostinfo.Site) { s.Cards.Found[1].Boot = true }), Info},
		{"driver-bound", "virtual machines have all", bound("vfio-pci"), Error},
		{"driver-bound", "virtual machines have one", bound("vfio-pci", "nvidia"), Info},
		{"driver-bound", "the kernel's own framebuffer", bound("nvidiafb"), Error},
		{"driver-bound", "another", bound("pciback"), Error},
		{"driver-bound", "AMD without a driver", amd(""), Error},
		{"driver-bound", "AMD", amd("amdgpu"), OK},
		{"driver-bound", "AMD's driver, which does not answer", change(amd("amdgpu"), func(s *hostinfo.Site) { s.Machine = hostinfo.NoAnswer[gpu.Machine]("no") }), OK},
		{"driver-bound", "NVIDIA, and AMD without a driver", change(unread("no"), func(s *hostinfo.Site) { s.Cards.Found = append(s.Cards.Found, amd("").Cards.Found...) }), OK},
		{"driver-bound", "none", bound(""), OK},
		{"driver-bound", "nvidia", box(2), OK},
		{"driver-bound", "no GPU", none(), OK},
		{"driver-bound", "no PCI", change(box(1), func(s *hostinfo.Site) { s.Cards = hostinfo.NoAnswer[[]hostinfo.Card]("no PCI") }), Unknown},
		{"driver-loaded", "not installed", bound(""), Error},
		{"driver-loaded", "installed", change(bound("", "nouveau"), func(s *hostinfo.Site) { s.Driver.Found.LibraryPath = "/usr/lib/libnvidia-ml.so.1" }), Error},
		{"driver-loaded", "in a container", change(bound(""), func(s *hostinfo.Site) { s.Container = "docker" }), Error},
		{"driver-loaded", "another driver has the cards", bound("nouveau"), Info},
		{"driver-loaded", "loaded", box(1), OK},
		{"driver-loaded", "answers", driver(func(d *hostinfo.Driver) { d.Module = "" }), OK},
		{"driver-loaded", "WSL", wsl, OK},
		{"driver-loaded", "no GPU", none(), OK},
		{"driver-loaded", "AMD", amd("amdgpu"), OK},
		{"driver-loaded", "cannot look", change(bound(""), func(s *hostinfo.Site) { s.Driver = hostinfo.NoAnswer[hostinfo.Driver]("no /proc") }), Unknown},
		{"device-nodes", "closed", denied("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1"), Error},
		{"device-nodes", "closed to CUDA alone", denied("/dev/nvidia-uvm"), Error},
		{"device-nodes", "one closed", denied("/dev/nvidia1"), Warning},
		{"device-nodes", "no GPU for this job", kept(true), Error},
		{"device-nodes", "some for this job", kept(false), OK},
		{"device-nodes", "container without GPUs", files("docker", true), Error},
		{"device-nodes", "root's container with devices by hand", files("docker", true, "/dev/nvidia0", "/dev/nvidiactl"), Error},
		{"device-nodes", "container with devices by hand", files("docker", false, "/dev/nvidia0", "/dev/nvidiactl"), Error},
		{"device-nodes", "no program creates them", files("", false, "/dev/nvidia0", "/dev/nvidiactl"), Error},
		{"device-nodes", "made when needed", files("", true), OK},
		{"device-nodes", "no driver", bound(""), OK},
		{"device-nodes", "WSL", wsl, OK},
		{"device-nodes", "AMD not in the group", change(amd("amdgpu"), func(s *hostinfo.Site) { nodes(s, func(n *hostinfo.Node) { n.Problem = "permission denied" }) }), Warning},
		{"device-nodes", "AMD in a container", change(amd("amdgpu"), func(s *hostinfo.Site) {
			s.Container = "docker"
			nodes(s, func(n *hostinfo.Node) { n.Problem = "permission denied" })
		}), Info},
		{"device-nodes", "AMD and NVIDIA", change(box(1), func(s *hostinfo.Site) {
			s.Cards.Found = append(s.Cards.Found, amd("amdgpu").Cards.Found...)
			s.Nodes.Found = append(s.Nodes.Found, hostinfo.Node{Path: "/dev/kfd", Problem: "permission denied"})
		}), Info},
		{"device-nodes", "AMD", amd("amdgpu"), OK},
		{"device-nodes", "NVIDIA's closed, AMD's open", change(denied("/dev/nvidia1"), func(s *hostinfo.Site) {
			s.Cards.Found = append(s.Cards.Found, amd("amdgpu").Cards.Found...)
			s.Nodes.Found = append(s.Nodes.Found, hostinfo.Node{Path: "/dev/kfd"})
		}), Warning},
		{"device-nodes", "AMD's file without a card", change(none(), func(s *hostinfo.Site) {
			s.Nodes = hostinfo.AnswerOf([]hostinfo.Node{{Path: "/dev/kfd", Problem: "permission denied"}})
		}), OK},
		{"device-nodes", "fine", box(2), OK},
		{"device-nodes", "no GPU", none(), OK},
		{"device-nodes", "cannot look", change(box(1), func(s *hostinfo.Site) { s.Nodes = hostinfo.NoAnswer[[]hostinfo.Node]("no /dev") }), Unknown},
		{"driver-library", "no libcuda", unknown("", "/usr/lib/libnvidia-ml.so.1", ""), Error},
		{"driver-library", "neither, and nothing answers", change(unknown("", "", ""), func(s *hostinfo.Site) { s.Machine.Problem = "cannot find the library" }), Error},
		{"driver-library", "container without compute", unknown("docker", "/usr/lib/libnvidia-ml.so.1", ""), Error},
		{"driver-library", "container without GPUs", change(unknown("docker", "", ""), func(s *hostinfo.Site) {
			s.Nodes, s.Machine.Problem = hostinfo.AnswerOf([]hostinfo.Node{}), "no library"
		}), Info},
		{"driver-library", "stand-in", unknown("", "/usr/lib/libnvidia-ml.so.1", "/usr/local/cuda/lib64/stubs/libcuda.so.1"), Error},
		{"driver-library", "where only the programs of NixOS look", change(unknown("", "", ""), func(s *hostinfo.Site) {
			s.Machine, s.Driver.Found.Elsewhere = hostinfo.NoAnswer[gpu.Machine]("cannot find the library"), "/run/opengl-driver/lib/libcuda.so.1"
		}), Error},
		{"driver-library", "a system of its own, where it works", change(unknown("", "", ""), func(s *hostinfo.Site) { s.Driver.Found.Elsewhere = "/run/opengl-driver/lib/libcuda.so.1" }), Unknown},
		{"driver-library", "a driver of Linux under WSL", change(wsl, func(s *hostinfo.Site) {
			s.Machine, s.Driver.Found.CUDAPath = hostinfo.NoAnswer[gpu.Machine]("no"), "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
		}), Error},
		{"driver-library", "a driver of Linux under WSL, and it answers", change(wsl, func(s *hostinfo.Site) { s.Driver.Found.CUDAPath = "/usr/lib/x86_64-linux-gnu/libcuda.so.1" }), OK},
		{"driver-library", "a container under WSL", change(wsl, func(s *hostinfo.Site) {
			s.Container, s.Machine, s.Driver.Found.CUDAPath = "docker", hostinfo.NoAnswer[gpu.Machine]("no"), "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
		}), OK},
		{"driver-library", "WSL without a GPU of NVIDIA", wslBare(), OK},
		{"driver-library", "a system of its own", unknown("", "", ""), Unknown},
		{"driver-library", "no driver", bound(""), Info},
		{"driver-library", "there", box(1), OK},
		{"driver-library", "WSL", wsl, OK},
		{"driver-library", "no GPU", none(), OK},
		{"library-version", "update without a reboot", driver(func(d *hostinfo.Driver) { d.Library, d.CUDALibrary = "560.35.03", "560.35.03" }), Error},
		{"library-version", "only CUDA's", driver(func(d *hostinfo.Driver) { d.CUDALibrary, d.CUDAPath = "535.54.03", "/opt/old/libcuda.so.1" }), Error},
		{"library-version", "the driver says so", change(unread("cannot use the GPUs: Driver/library version mismatch (NVML 18)"), func(s *hostinfo.Site) { s.Driver.Found.Library = "" }), Error},
		{"library-version", "the driver says so, and nothing else is known", change(unread("Driver/library version mismatch"), func(s *hostinfo.Site) { s.Driver = hostinfo.NoAnswer[hostinfo.Driver]("no /proc") }), Error},
		{"library-version", "the driver says so, and its module reports no version", change(unread("Driver/library version mismatch"), func(s *hostinfo.Site) { s.Driver.Found = hostinfo.Driver{} }), Error},
		{"library-version", "container older than the update", change(driver(func(d *hostinfo.Driver) { d.Library = "560.35.03" }), func(s *hostinfo.Site) { s.Container = "docker" }), Error},
		{"library-version", "forward compatibility", compat("570.26"), Info},
		{"library-version", "forward compatibility on a desktop card", geforce(compat("570.26")), Error},
		{"library-version", "compatibility without a number", compat(""), OK},
		{"library-version", "compatibility of the same version", compat(driver550), OK},
		{"library-version", "backward compatibility", compat("535.54.03"), Error},
		{"library-version", "another library lies about, and the driver answers", change(driver(func(d *hostinfo.Driver) { d.Library, d.CUDALibrary = "535.54.03", "535.54.03" }), func(s *hostinfo.Site) { s.Machine.Found.Source = "nvml" }), OK},
		{"library-version", "one version", box(1), OK},
		{"library-version", "numbers that are none of drivers", driver(func(d *hostinfo.Driver) { d.Library, d.CUDALibrary = "1.2", "1.1" }), OK},
		{"library-version", "library without a number", driver(func(d *hostinfo.Driver) { d.Library, d.CUDALibrary = "", "" }), OK},
		{"library-version", "WSL", wsl, OK},
		{"library-version", "not loaded", bound(""), OK},
		{"library-version", "cannot look", change(unread("x"), func(s *hostinfo.Site) { s.Driver = hostinfo.NoAnswer[hostinfo.Driver]("no /proc") }), Unknown},
		{"fabric-manager", "none runs", switches(8, false, nothing), Error},
		{"fabric-manager", "none runs, in a container that sees the host", switches(8, false, func(s *hostinfo.Site) { s.Container = "docker" }), Error},
		{"fabric-manager", "GPUs that may have been set up before", switches(9, false, nothing), Warning},
		{"fabric-manager", "one GPU of an unknown generation", switches(8, false, func(s *hostinfo.Site) { s.Machine.Found.Devices[1].Compute = nil }), Warning},
		{"fabric-manager", "a GPU that is split", switches(8, false, func(s *hostinfo.Site) { s.Machine.Found.Devices[1].MIGMode = new(true) }), Warning},
		{"fabric-manager", "no GPU answers", switches(8, false, func(s *hostinfo.Site) { s.Machine = hostinfo.NoAnswer[gpu.Machine]("no answer within 5s") }), Warning},
		{"fabric-manager", "it runs", switches(8, true, nothing), OK},
		{"fabric-manager", "no NVLink wanted", switches(8, false, func(s *hostinfo.Site) { s.Driver.Found.NoNVLink = true }), OK},
		{"fabric-manager", "no NVSwitch", switches(8, false, func(s *hostinfo.Site) { s.Driver.Found.Switches = nil }), OK},
		{"fabric-manager", "no GPU", none(), OK},
		{"fabric-manager", "a container", switches(8, false, func(s *hostinfo.Site) { s.Container, s.Driver.Found.FabricManager = "docker", nil }), Unknown},
		{"fabric-manager", "hidden processes", switches(8, false, func(s *hostinfo.Site) { s.Driver.Found.FabricManager = nil }), Unknown},
		{"fabric-manager", "cannot look", change(box(1), func(s *hostinfo.Site) { s.Driver = hostinfo.NoAnswer[hostinfo.Driver]("no /proc") }), Unknown},
		{"devices-shown", "one missing", fewer(nothing), Warning},
		{"devices-shown", "none", unread("cannot find a GPU: the NVIDIA driver runs and reports no device (driver 550.54.15)"), Error},
		{"devices-shown", "none, says nvidia-smi", unread("cannot read the GPUs: nvidia-smi says: No devices were found"), Error},
		{"devices-shown", "none but AMD's", change(box(1), func(s *hostinfo.Site) {
			s.Machine.Found.Devices[0] = amd("amdgpu").Machine.Found.Devices[0]
		}), Warning},
		{"devices-shown", "of a container", fewer(func(s *hostinfo.Site) { s.Container = "docker" }), Info},
		{"devices-shown", "of a job", kept(false), Info},
		{"devices-shown", "of a job, and the module does not report the file", change(kept(false), func(s *hostinfo.Site) { s.Cards.Found[2].Minor = nil }), Info},
		{"devices-shown", "given to a virtual machine", fewer(func(s *hostinfo.Site) { s.Cards.Found[2].Driver = "vfio-pci" }), OK},
		{"devices-shown", "another one is kept", fewer(func(s *hostinfo.Site) {
			s.Nodes.Found = append(s.Nodes.Found, hostinfo.Node{Path: "/dev/nvidia7", Kept: true, Problem: "operation not permitted"})
		}), Warning},
		{"devices-shown", "no address", fewer(func(s *hostinfo.Site) { s.Machine.Found.Devices[0].PCI = "" }), Unknown},
		{"devices-shown", "all, and one is lost", change(box(2), func(s *hostinfo.Site) { s.Machine.Found.Devices[1].PCI = "" }), OK},
		{"devices-shown", "all", box(2), OK},
		{"devices-shown", "no GPU", none(), OK},
		{"devices-shown", "no answer", unread("no answer within 5s"), Unknown},
	}
}

// TestCalm: machines with nothing wrong get no bad finding; without a GPU only that is reported.
func TestCalm(t *testing.T) {
	for name, c := range map[string]struct {
		site hostinfo.Site
		but  map[string]Severity
	}{
		"two cards": {box(2), nil},
		"AMD":       {amd("amdgpu"), nil},
		"no GPU":    {none(), map[string]Severity{"gpu-present": Error}},
		"an Intel GPU": {change(none(), func(s *hostinfo.Site) {
			s.Cards.Found = append(s.Cards.Found, hostinfo.Card{PCI: "0000:00:02.0", Vendor: 0x8086, Driver: "i915", Boot: true})
		}), map[string]Severity{"gpu-present": Error}},
		"a container's part": {change(box(4), func(s *hostinfo.Site) {
			s.Container = "kubernetes"
			s.Machine.Found.Devices = s.Machine.Found.Devices[:1]
			s.Nodes.Found = s.Nodes.Found[:3]
		}), map[string]Severity{"devices-shown": Info}},
		"a job's part": {change(box(2), func(s *hostinfo.Site) {
			s.Machine.Found.Devices = s.Machine.Found.Devices[1:]
			s.Nodes.Found[2].Kept, s.Nodes.Found[2].Problem = true, "operation not permitted"
		}), map[string]Severity{"devices-shown": Info}},
	} {
		for _, topic := range [][]Check{driverChecks(), deviceChecks(), libraryChecks()} {
			for _, k := range topic {
				want := OK
				if s, ok := c.but[k.Code]; ok {
					want = s
				}
				if found := k.Look(c.site); worstOf(found) != want {
					t.Errorf("%s: %s is not %s: %+v", name, k.Code, want, found)
				}
			}
		}
	}
}

// TestDriverWords checks the texts of the most common findings.
func TestDriverWords(t *testing.T) {
	for _, c := range []struct {
		look func(hostinfo.Site) []Finding
		site hostinfo.Site
		want []string
	}{
		{checkFabric, switches(8, false, func(*hostinfo.Site) {}), []string{"NVSwitches (2)", "error 802", "\nsudo systemctl enable --now nvidia-fabricmanager", "of the driver, 550.54.15"}},
		{checkFabric, switches(8, false, func(s *hostinfo.Site) { s.Container = "docker" }), []string{"\non the host: sudo systemctl"}},
		{checkBoundDriver, bound("nouveau", "nouveau"), []string{"nouveau", "0000:10:00.0 and 0000:11:00.0", "blacklist nouveau"}},
		{checkLoadedModule, bound(""), []string{"1 NVIDIA GPU on the PCI bus", "install NVIDIA's driver"}},
		{checkLoadedModule, change(half(false, true, ""), func(s *hostinfo.Site) { s.Container = "docker" }), []string{"\nload it on the host"}},
		{checkVersion, change(box(1), func(s *hostinfo.Site) { s.Container, s.Driver.Found.Library = "docker", "560.35.03" }), []string{"start the container anew"}},
		{checkNodes, closedTo(0o660, 27), []string{"sudo usermod -aG"}},
		{checkNodes, closedTo(0o660, 0), []string{"sudo chmod a+rw /dev/nvidiactl"}},
		{checkNodes, closedTo(0o600, 27), []string{"sudo chmod a+rw /dev/nvidiactl"}},
		{checkBoundDriver, bound("nouveau"), []string{"install NVIDIA's driver, then: echo"}},
		{checkBoundDriver, half(false, false, "nouveau", "nouveau"), []string{"has no module for the kernel 6.8.0-47-generic", "build it: sudo dkms autoinstall"}},
		{checkBoundDriver, half(true, false, "nouveau", "nouveau"), []string{"\necho 'blacklist nouveau'"}},
		{checkLoadedModule, half(false, true, "", ""), []string{"not built for the kernel 6.8.0-47-generic", "build it: sudo dkms autoinstall", "modprobe nvidia"}},
		{checkLoadedModule, half(true, true, "", ""), []string{"\nsudo modprobe nvidia; if it says “Key was rejected"}},
		{checkLoadedModule, half(true, false, "", ""), []string{"\nsudo modprobe nvidia; if that fails"}},
		{checkGPUPresence, change(none(), func(s *hostinfo.Site) {
			s.Container, s.Driver.Found.Kernel = "docker", "5.15.90.1-microsoft-standard-WSL2"
		}), []string{"given no GPU", "--gpus all"}},
		{checkGPUPresence, change(none(), func(s *hostinfo.Site) { s.Container = "docker" }), []string{"no GPU of NVIDIA or AMD on the PCI bus"}},
		{checkGPUPresence, wslBare(), []string{"Windows gives this system no driver", "wsl --shutdown"}},
		{checkLibrary, change(box(1), func(s *hostinfo.Site) { s.Container, s.Driver.Found.CUDAPath = "apptainer", "" }), []string{"\nstart the container with --nv"}},
		{checkLibrary, change(box(1), func(s *hostinfo.Site) { s.Container, s.Driver.Found.CUDAPath = "kubernetes", "" }), []string{"nvidia.com/gpu: 1, and set NVIDIA_DRIVER_CAPABILITIES"}},
		{checkLibrary, change(box(1), func(s *hostinfo.Site) { s.Container, s.Driver.Found.CUDAPath = "docker", "" }), []string{"--gpus all -e NVIDIA_DRIVER_CAPABILITIES"}},
		{checkVersion, change(box(1), func(s *hostinfo.Site) { s.Driver.Found.Library = "560.35.03" }), []string{"550.54.15", "560.35.03", "reboot"}},
		{checkNodes, box(1), []string{"this user may open /dev/nvidia-uvm, /dev/nvidiactl and /dev/nvidia0"}},
		{checkVersion, change(box(1), func(s *hostinfo.Site) {
			s.Driver.Found.CUDALibrary, s.Driver.Found.CUDAPath = "535.54.03", "/opt/old/libcuda.so.1"
		}), []string{"/opt/old/libcuda.so.1 is 535.54.03", "remove that copy"}},
		{checkVersion, change(box(1), func(s *hostinfo.Site) { s.Driver.Found.CUDALibrary, s.Driver.Found.Library = "560.35.03", "560.35.03" }), []string{"reboot"}},
		{checkLibrary, change(box(1), func(s *hostinfo.Site) { s.Driver.Found.CUDAPath = "" }), []string{"libnvidia-compute-550"}},
		{checkShownDevices, change(box(2), func(s *hostinfo.Site) { s.Machine.Found.Devices = s.Machine.Found.Devices[:1] }), []string{"0000:11:00.0", "dmesg"}},
	} {
		found := c.look(c.site)
		text := found[0].Seen + "\n" + found[0].Why + "\n" + found[0].Do
		for _, w := range c.want {
			if !strings.Contains(text, w) {
				t.Errorf("%q is not in:\n%s", w, text)
			}
		}
	}
}

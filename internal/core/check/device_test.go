package check

import (
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/leftover"
)

func TestDevices(t *testing.T) { see(t, deviceChecks(), deviceSightings()) }

// second is a box of two with a changed second device.
func second(f func(*gpu.Device)) hostinfo.Site {
	return change(box(2), func(s *hostinfo.Site) {
		s.Now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
		f(&s.Machine.Found.Devices[1])
	})
}

// all is a box of two with both devices changed.
func all(f func(*gpu.Device)) hostinfo.Site {
	return change(second(f), func(s *hostinfo.Site) { f(&s.Machine.Found.Devices[0]) })
}

func xid(code int, before time.Duration) hostinfo.Site {
	return second(func(d *gpu.Device) {
		d.XIDs = []gpu.XID{{Code: code, At: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC).Add(-before), PID: 4242, Source: "kernel log"}}
	})
}

// logged is a box of two, one without a driver, with an error of that card in the kernel log.
func logged(code int) hostinfo.Site {
	return change(box(2), func(s *hostinfo.Site) {
		s.Machine.Found.Devices = s.Machine.Found.Devices[:1]
		s.Log = hostinfo.AnswerOf([]hostinfo.Error{{PCI: "0000:11:00", XID: gpu.XID{Code: code}}})
	})
}

// held is a box of one with leftovers and processes.
func held(container string, rows []leftover.Row, processes ...gpu.Process) hostinfo.Site {
	return change(box(1), func(s *hostinfo.Site) {
		s.Container, s.Leftovers = container, hostinfo.AnswerOf(rows)
		s.Machine.Found.Processes = processes
	})
}

func deviceSightings() []sighting {
	const a, gib = gpu.UUID("GPU-a"), gpu.GiB
	row := func(pid int, zombie bool) []leftover.Row {
		return []leftover.Row{{UUID: a, PID: pid, User: "ann", Memory: new(20 * gib), Zombie: zombie, Command: "/usr/bin/python train.py"}}
	}
	gone := gpu.Process{PID: 4242, GPU: a, Memory: new(20 * gib), State: "gone"}
	no := func(*gpu.Device) {}
	return []sighting{
		{"gpu-answers", "lost", second(func(d *gpu.Device) { d.Problem = "GPU is lost" }), Error},
		{"gpu-answers", "needs a reset", second(func(d *gpu.Device) { d.Problem = "GPU needs a reset" }), Error},
		{"gpu-answers", "late", second(func(d *gpu.Device) { d.Problem = "no answer within 5s" }), Error},
		{"gpu-answers", "all answer", second(no), OK},
		{"gpu-answers", "no GPU", none(), OK},
		{"temperature", "no GPU", none(), OK},
		{"temperature", "no driver", unread("not loaded"), Unknown},
		{"gpu-answers", "no driver", unread("not loaded"), Unknown},
		{"xid-errors", "fell off the bus", xid(79, time.Hour), Error},
		{"xid-errors", "fell off the bus and out of sight", logged(79), Error},
		{"xid-errors", "nothing answers", change(logged(79), func(s *hostinfo.Site) { s.Machine = hostinfo.NoAnswer[gpu.Machine]("no answer") }), Error},
		{"xid-errors", "stuck", xid(119, time.Hour), Error},
		{"xid-errors", "new code", xid(999, time.Hour), Error},
		{"xid-errors", "power cable", xid(54, time.Hour), Error},
		{"xid-errors", "double bit", logged(48), Error},
		{"xid-errors", "contained just now", xid(94, time.Minute), Warning},
		{"xid-errors", "contained long ago", xid(94, time.Hour), Info},
		{"xid-errors", "contained, at an unknown time", second(func(d *gpu.Device) { d.XIDs = []gpu.XID{{Code: 94}} }), Warning},
		{"xid-errors", "contained ten minutes ago", xid(94, 10*time.Minute), Info},
		{"xid-errors", "a program's fault", xid(31, time.Minute), Info},
		{"xid-errors", "a note", xid(63, time.Minute), OK},
		{"xid-errors", "recovery action, which says it itself", second(func(d *gpu.Device) { d.RecoveryAction, d.XIDs = "none", []gpu.XID{{Code: 154}} }), OK},
		{"xid-errors", "recovery action that is not reported", xid(154, time.Minute), Error},
		{"xid-errors", "log of a card that is shown is settled before", change(second(no), func(s *hostinfo.Site) {
			s.Log = hostinfo.AnswerOf([]hostinfo.Error{{PCI: "0000:11:00", XID: gpu.XID{Code: 79}}})
		}), OK},
		{"xid-errors", "none", second(no), OK},
		{"xid-errors", "no GPU", change(none(), func(s *hostinfo.Site) { s.Log = hostinfo.NoAnswer[[]hostinfo.Error]("no permission") }), OK},
		{"xid-errors", "log not readable", change(second(no), func(s *hostinfo.Site) { s.Log = hostinfo.NoAnswer[[]hostinfo.Error]("no permission") }), Unknown},
		{"xid-errors", "WSL has no log of the driver", change(second(no), func(s *hostinfo.Site) {
			s.Log, s.Driver.Found.WSL = hostinfo.NoAnswer[[]hostinfo.Error]("no permission"), true
		}), OK},
		{"recovery-action", "reset", second(func(d *gpu.Device) { d.RecoveryAction = "reset" }), Error},
		{"recovery-action", "reboot", second(func(d *gpu.Device) { d.RecoveryAction = "reboot" }), Error},
		{"recovery-action", "drain and reset", second(func(d *gpu.Device) { d.RecoveryAction = "drain_and_reset" }), Error},
		{"recovery-action", "drain peers", second(func(d *gpu.Device) { d.RecoveryAction = "drain_p2p" }), Warning},
		{"recovery-action", "new word", second(func(d *gpu.Device) { d.RecoveryAction = "5" }), Warning},
		{"recovery-action", "none", second(func(d *gpu.Device) { d.RecoveryAction = "none" }), OK},
		{"recovery-action", "not told", second(no), OK},
		{"nvlink-fabric", "degraded", second(func(d *gpu.Device) { d.Fabric = []string{"degraded_bandwidth"} }), Warning},
		{"nvlink-fabric", "in order", second(func(d *gpu.Device) { d.Fabric = []string{} }), OK},
		{"nvlink-fabric", "not told", second(no), OK},
		{"nvlink-fabric", "no driver", unread("not loaded"), Unknown},
		{"recovery-action", "no driver", unread("not loaded"), Unknown},
		{"ecc-errors", "two", second(func(d *gpu.Device) { d.ECC, d.ECCUncorrected = new(true), new(int64(2)) }), Warning},
		{"ecc-errors", "contained", second(func(d *gpu.Device) { d.ECCUncorrected, d.RecoveryAction = new(int64(2)), "none" }), Info},
		{"ecc-errors", "corrected ones", second(func(d *gpu.Device) { d.ECCCorrected, d.ECCUncorrected = new(int64(900)), new(int64(0)) }), OK},
		{"ecc-errors", "no ECC", second(func(d *gpu.Device) { d.ECC = new(false) }), OK},
		{"remapped-rows", "failed", second(func(d *gpu.Device) { d.RemappedRows = &gpu.RemappedRows{Failed: true, Pending: true} }), Error},
		{"remapped-rows", "pending", second(func(d *gpu.Device) { d.RemappedRows = &gpu.RemappedRows{Pending: true} }), Warning},
		{"remapped-rows", "many", second(func(d *gpu.Device) { d.RemappedRows = &gpu.RemappedRows{Uncorrectable: 512} }), Warning},
		{"remapped-rows", "almost many", second(func(d *gpu.Device) { d.RemappedRows = &gpu.RemappedRows{Uncorrectable: 511} }), OK},
		{"remapped-rows", "some", second(func(d *gpu.Device) { d.RemappedRows = &gpu.RemappedRows{Correctable: 3, Uncorrectable: 1} }), OK},
		{"remapped-rows", "not told", second(no), OK},
		{"retired-pages", "full", second(func(d *gpu.Device) { d.RetiredPages = &gpu.RetiredPages{SingleBit: 60, DoubleBit: 3} }), Warning},
		{"retired-pages", "almost full", second(func(d *gpu.Device) { d.RetiredPages = &gpu.RetiredPages{SingleBit: 60, DoubleBit: 2} }), OK},
		{"retired-pages", "pending", second(func(d *gpu.Device) { d.RetiredPages = &gpu.RetiredPages{DoubleBit: 1, Pending: true} }), Warning},
		{"retired-pages", "few", second(func(d *gpu.Device) { d.RetiredPages = &gpu.RetiredPages{SingleBit: 2} }), OK},
		{"temperature", "margin", second(func(d *gpu.Device) { d.TempMargin = new(2) }), Warning},
		{"temperature", "margin goes first", second(func(d *gpu.Device) { d.TempMargin, d.Temperature, d.TempSlowdown = new(20), new(90), new(90) }), OK},
		{"temperature", "one more degree of margin", second(func(d *gpu.Device) { d.TempMargin = new(3) }), OK},
		{"temperature", "a degree below", second(func(d *gpu.Device) { d.Temperature, d.TempSlowdown = new(86), new(90) }), OK},
		{"temperature", "a limit of zero is none", second(func(d *gpu.Device) { d.Temperature, d.TempSlowdown = new(40), new(0) }), OK},
		{"temperature", "at the limit", second(func(d *gpu.Device) { d.Temperature, d.TempSlowdown = new(87), new(90) }), Warning},
		{"temperature", "hot for a card that may be", second(func(d *gpu.Device) { d.Temperature, d.TempSlowdown = new(86), new(97) }), OK},
		{"temperature", "no limit", second(func(d *gpu.Device) { d.Temperature = new(95) }), OK},
		{"clock-events", "heat", second(func(d *gpu.Device) { d.ClockEvents = []string{"hw_slowdown", "hw_thermal_slowdown"} }), Warning},
		{"clock-events", "power", second(func(d *gpu.Device) { d.ClockEvents = []string{"hw_power_brake_slowdown"} }), Warning},
		{"clock-events", "the driver holds the temperature", second(func(d *gpu.Device) { d.ClockEvents = []string{"sw_thermal_slowdown"} }), Info},
		{"clock-events", "power cap and idle", second(func(d *gpu.Device) { d.ClockEvents = []string{"gpu_idle", "sw_power_cap"} }), OK},
		{"compute-mode", "one closed", second(func(d *gpu.Device) { d.ComputeMode = "prohibited" }), Warning},
		{"compute-mode", "all closed", all(func(d *gpu.Device) { d.ComputeMode = "prohibited" }), Error},
		{"compute-mode", "exclusive", second(func(d *gpu.Device) { d.ComputeMode = "exclusive_process" }), Info},
		{"compute-mode", "default", second(func(d *gpu.Device) { d.ComputeMode = "default" }), OK},
		{"mig-instances", "one without", second(func(d *gpu.Device) { d.MIGMode = new(true) }), Warning},
		{"mig-instances", "all without", all(func(d *gpu.Device) { d.MIGMode = new(true) }), Error},
		{"mig-instances", "with", second(func(d *gpu.Device) { d.MIGMode, d.MIG = new(true), []gpu.MIGDevice{{UUID: "MIG-1"}} }), OK},
		{"mig-instances", "off", second(func(d *gpu.Device) { d.MIGMode = new(false) }), OK},
		{"persistence", "off", all(func(d *gpu.Device) { d.Persistence = new(false) }), Info},
		{"persistence", "off, on the card with the screen", change(all(func(d *gpu.Device) { d.Persistence = new(false) }), func(s *hostinfo.Site) {
			s.Cards.Found[1].Boot, s.Machine.Found.Devices[1].Persistence = true, new(true)
		}), OK},
		{"persistence", "on", all(func(d *gpu.Device) { d.Persistence = new(true) }), OK},
		{"persistence", "off, where nothing answers", second(func(d *gpu.Device) { d.Persistence, d.Problem = new(false), "GPU is lost" }), OK},
		{"persistence", "not told", second(no), OK},
		{"memory-holders", "zombie", held("", row(4242, true), gpu.Process{PID: 4242, GPU: a, State: "Z"}), Warning},
		{"memory-holders", "zombie in this container", held("docker", row(4242, true), gpu.Process{PID: 4242, GPU: a, State: "Z"}), Warning},
		{"memory-holders", "of no process", held("", row(0, false)), Warning},
		{"memory-holders", "of a process outside", held("docker", row(0, false)), Info},
		{"memory-holders", "gone", held("", row(4242, false), gone), Warning},
		{"memory-holders", "in another PID namespace", held("docker", row(4242, false), gone), Info},
		{"memory-holders", "of a program of Windows", change(held("", row(4242, false), gone), func(s *hostinfo.Site) { s.Driver.Found.WSL = true }), Info},
		{"memory-holders", "without a lease", held("", row(4242, false), gpu.Process{PID: 4242, GPU: a, State: "S"}), Info},
		{"memory-holders", "a desktop", held("", nil, gpu.Process{PID: 99, GPU: a, Kind: gpu.GraphicsProcess, Command: "Xorg", Memory: new(gib)}), Info},
		{"memory-holders", "a login screen", held("", nil, gpu.Process{PID: 99, GPU: a, Kind: gpu.GraphicsProcess, Command: "Xorg", Memory: new(4 * gpu.MiB)}), OK},
		{"memory-holders", "none", held("", nil), OK},
		{"memory-holders", "no GPU", none(), OK},
		{"memory-holders", "processes not listed", second(func(d *gpu.Device) { d.Unlisted = "no permission" }), Unknown},
		{"memory-holders", "leases not readable", change(box(1), func(s *hostinfo.Site) { s.Leftovers = hostinfo.NoAnswer[[]leftover.Row]("no permission") }), Unknown},
	}
}

// TestEachDeviceIsChecked: a device that does not answer does not hide the findings of another, and both are named.
func TestEachDeviceIsChecked(t *testing.T) {
	s := all(func(d *gpu.Device) { d.RemappedRows = &gpu.RemappedRows{Pending: true} })
	s.Machine.Found.Devices[0].Problem = "GPU is lost"
	found := remappedRows().Look(s)
	if len(found) != 1 || !strings.Contains(found[0].Seen, "GPU 1 ") || !strings.HasSuffix(found[0].Do, "nvidia-smi --gpu-reset -i 0000:11:00.0") {
		t.Errorf("%+v", found)
	}
	found = persistenceMode().Look(all(func(d *gpu.Device) { d.Persistence = new(false) }))
	if len(found) != 1 || !strings.Contains(found[0].Seen, "GPU 0 and 1") {
		t.Errorf("%+v", found)
	}
	s = all(func(d *gpu.Device) { d.ComputeMode = "prohibited" })
	s.Machine.Found.Devices[0].Vendor = gpu.AMD
	if found = computeMode().Look(s); len(found) != 2 || !strings.HasPrefix(found[0].Seen, "GPU amd:0 ") {
		t.Errorf("%+v", found)
	}
}

// TestXIDs: each code once, the worst first, with how often and when.
func TestXIDs(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	s := second(func(d *gpu.Device) {
		d.XIDs = []gpu.XID{{Code: 31, At: now.Add(-3 * time.Hour), PID: 77}, {Code: 79, At: now.Add(-2 * time.Hour)}, {Code: 31, At: now.Add(-time.Hour), PID: 78}}
	})
	found := checkXID(s)
	if len(found) != 2 || found[0].Severity != Error || found[1].Severity != Info {
		t.Fatalf("%+v", found)
	}
	for i, want := range []string{"GPU 1 reported XID 79 on 1 May at 10:00: the GPU has fallen off the bus", "GPU 1 reported XID 31 2 times, the last on 1 May at 11:00 (process 78): a program touched GPU memory"} {
		if !strings.HasPrefix(found[i].Seen, want) {
			t.Errorf("%q, want %q", found[i].Seen, want)
		}
	}
	if !strings.Contains(found[0].Do, "reboot") {
		t.Errorf("%q", found[0].Do)
	}
	s.Machine.Found.Devices[1].XIDs = nil
	s.Log = hostinfo.AnswerOf([]hostinfo.Error{{PCI: "0000:c1:00", XID: gpu.XID{Code: 79}}, {PCI: "0000:c2:00", XID: gpu.XID{Code: 79}}, {PCI: "0000:c1:00", XID: gpu.XID{Code: 79}}})
	found = checkXID(s)
	if len(found) != 2 || !strings.HasPrefix(found[0].Seen, "the GPU at 0000:c1:00 reported XID 79 2 times: the GPU") || !strings.HasPrefix(found[1].Seen, "the GPU at 0000:c2:00 reported XID 79: ") {
		t.Errorf("of two cards that no driver shows: %+v", found)
	}
}

// TestHoldersAreNamed: programs with their memory and devices, at most four.
func TestHoldersAreNamed(t *testing.T) {
	var rows []leftover.Row
	for i := range 6 {
		rows = append(rows, leftover.Row{UUID: "GPU-a", PID: 100 + i, User: "ann", Memory: new(gpu.Bytes(10-i) * gpu.GiB), Command: "/opt/py\x1b[31m/python -m train"})
	}
	found := checkHolders(held("", rows))
	want := "10 GiB on GPU 0 (process 100 of ann, python), 9 GiB"
	if len(found) != 1 || !strings.Contains(found[0].Seen, want) || !strings.HasSuffix(found[0].Seen, "and 2 more") {
		t.Errorf("%+v, want %q", found, want)
	}
}

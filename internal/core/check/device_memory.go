package check

import (
	"fmt"
	"slices"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
)

func eccErrors() Check {
	const code = "ecc-errors"
	return Check{Page{
		Code:  code,
		Title: "No memory error was seen that could not be corrected",
		Text: `ECC memory corrects single wrong bits by itself; these say little. An error that cannot be corrected ends the program that it hits, and the counter of
such errors since the driver was loaded shows that it happened. Cards without ECC, or with ECC switched off, report none.

After such an error the GPU should be reset once it is idle. If it comes again, the card is to be checked or exchanged.`,
		From: []string{"https://docs.nvidia.com/deploy/gpu-memory-error-management/", "NVIDIA/DCGM: modules/health/DcgmHealthWatch.cpp"},
	}, false, eachDevice(code, "memory errors", "no uncorrectable memory error since the driver was loaded, as far as the GPUs say", func(l deviceSite) []Finding {
		if l.ECCUncorrected == nil || *l.ECCUncorrected == 0 {
			return nil
		}
		f := Finding{code, Warning, fmt.Sprintf("%s had %s since the driver was loaded", l.deviceName(), prose.CountNoun(int(*l.ECCUncorrected), "uncorrectable memory error")),
			"Each of them ends a program, and they tend to come again.", resetAdvice(l.Device)}
		if l.RecoveryAction == "none" {
			// The driver reports that the error was contained and repaired.
			f.Severity, f.Why, f.Do = Info, "The driver says that nothing has to be done: they were contained.", ""
		}

		return []Finding{f}
	})}
}

// manyRemaps is where DCGM warns (NVIDIA/DCGM modules/health/DcgmHealthWatch.cpp).
const manyRemaps = 512

func remappedRows() Check {
	const code = "remapped-rows"
	return Check{Page{
		Code:  code,
		Title: "Broken memory rows are exchanged for spare ones",
		Text: `From the Ampere generation on, a GPU exchanges rows of its memory that broke for spare ones, when it is reset or the driver is loaded. A row that waits
for this does no harm meanwhile: the driver keeps programs away from it. When an exchange failed, the spare rows are used up, and the
board is a case for warranty.`,
		From: []string{"https://docs.nvidia.com/deploy/gpu-memory-error-management/", "NVIDIA/go-nvml: gen/nvml/nvml.h (nvmlDeviceGetRemappedRows)", "NVIDIA/DCGM: modules/health/DcgmHealthWatch.cpp"},
	}, false, eachDevice(code, "remapped rows", "no memory row waits to be exchanged, as far as the GPUs say", func(l deviceSite) []Finding {
		r := l.RemappedRows
		switch {
		case r == nil:
		case r.Failed:
			return []Finding{{code, Error, l.deviceName() + " could not exchange a broken memory row", "Its spare rows are used up; further errors end programs.",
				option.Sprintf("have the board checked or exchanged; take it out of use: sudo {gpuard drain} %d", l.Index)}}
		case r.Pending:
			return []Finding{{code, Warning, l.deviceName() + " waits for a reset to exchange a broken memory row", "Until then gpuard gives it no new job.", resetAdvice(l.Device)}}
		case r.Uncorrectable >= manyRemaps:
			return []Finding{{code, Warning, fmt.Sprintf("%s exchanged %d memory rows after errors that could not be corrected", l.deviceName(), r.Uncorrectable), "So many foretell the end of its spare rows.", "have the board checked"}}
		}
		return nil
	})}
}

// manyPages is where DCGM fails (NVIDIA/DCGM common/DcgmGPUHardwareLimits.h, DCGM_LIMIT_MAX_RETIRED_PAGES).
const manyPages = 63

func retiredPages() Check {
	const code = "retired-pages"
	return Check{Page{
		Code:  code,
		Title: "Few memory pages were retired, and none waits for it",
		Text: `Before the Ampere generation a GPU retires pages of its memory that showed errors; from then on no program gets them. A page that waits is retired when
the driver is loaded anew. A board retires 64 pages at most; NVIDIA's page on retirement says from which number on a board is exchanged.`,
		From: []string{"https://docs.nvidia.com/deploy/dynamic-page-retirement/", "NVIDIA/DCGM: common/DcgmGPUHardwareLimits.h"},
	}, false, eachDevice(code, "retired pages", "no memory page waits to be retired, as far as the GPUs say", func(l deviceSite) []Finding {
		r := l.RetiredPages
		switch {
		case r == nil:
		case r.SingleBit+r.DoubleBit >= manyPages:
			return []Finding{{code, Warning, fmt.Sprintf("%s retired %d memory pages", l.deviceName(), r.SingleBit+r.DoubleBit), "It can hardly retire more: further errors end programs.", "have the board exchanged"}}
		case r.Pending:
			return []Finding{{code, Warning, l.deviceName() + " waits for a reset to retire a memory page", "Programs may still get the broken page.", resetAdvice(l.Device)}}
		}
		return nil
	})}
}

func persistenceMode() Check {
	const code = "persistence"
	return Check{Page{
		Code:  code,
		Title: "The driver stays ready between jobs (persistence mode)",
		Text: `Without persistence mode the driver stops a GPU when its last program ends and starts it for the next one, which takes some seconds each time, for nvidia-smi
too. Settings such as power limits are lost meanwhile. A GPU with a display, or with a program on it, stays started anyway.

NVIDIA recommends its daemon: ` + "`sudo systemctl enable --now nvidia-persistenced`" + `. ` + "`sudo nvidia-smi -pm 1`" + ` does the same until the next reboot.`,
		From: []string{"https://docs.nvidia.com/deploy/driver-persistence/"},
	}, false, eachDevice(code, "persistence mode", "persistence mode is on, or not there to be switched", func(l deviceSite) []Finding {
		var off []string
		for _, d := range l.site.Machine.Found.Devices {
			if d.Persistence != nil && !*d.Persistence && isAnswering(d) && !onScreen(l.site, d) {
				off = append(off, deviceLabel(l.site.Machine.Found, d))
			}
		}

		if len(off) == 0 || off[0] != l.deviceName() {
			// One finding for all, at the first of them.
			return nil
		}

		f := Finding{code, Info, "persistence mode is off on " + joinDeviceNames(off), "Every program waits some seconds until the driver has started the GPU.", "sudo systemctl enable --now nvidia-persistenced, or: sudo nvidia-smi -pm 1"}
		if l.site.Container != "" {
			f.Do = "on the host: " + f.Do
		}

		return []Finding{f}
	})}
}

// onScreen reports whether a device drives the screen, and so is always started.
func onScreen(s hostinfo.Site, d gpu.Device) bool {
	return slices.ContainsFunc(pciCards(s, pciNVIDIA), func(c hostinfo.Card) bool { return c.Boot && c.PCI == d.PCI })
}

func computeMode() Check {
	const code = "compute-mode"
	return Check{Page{
		Code:  code,
		Title: "The compute mode lets programs in",
		Text: `An administrator can close a GPU for CUDA programs (prohibited), or give it to one process at a time (exclusive). A second process then ends with "all
CUDA-capable devices are busy or unavailable", which hits data loaders and servers that start several processes. With the CUDA
multi-process service, exclusive is what NVIDIA recommends.

` + "`sudo nvidia-smi -c DEFAULT`" + ` opens it for everybody; the mode is lost at a reboot.`,
		From: []string{"NVIDIA/go-nvml: gen/nvml/nvml.h (nvmlComputeMode_t)", "https://docs.nvidia.com/deploy/mps/"},
	}, true, eachDevice(code, "the compute mode", "every GPU is open for programs, as far as it says", func(l deviceSite) []Finding {
		switch l.ComputeMode {
		case "prohibited":
			f := Finding{code, Warning, l.deviceName() + " is closed for programs (compute mode prohibited)", "CUDA programs on it fail.", "sudo nvidia-smi -i " + smiDeviceID(l.Device) + " -c DEFAULT"}
			if everyDevice(l, func(d gpu.Device) bool { return d.ComputeMode == "prohibited" }) {
				f.Severity, f.Why = Error, "No CUDA program can use any GPU of this machine."
			}
			return []Finding{f}
		case "exclusive_process", "exclusive_thread":
			return []Finding{{code, Info, l.deviceName() + " takes one process at a time (compute mode exclusive)", "A second process fails: all CUDA-capable devices are busy or unavailable.", ""}}
		}
		return nil
	})}
}

func migInstances() Check {
	const code = "mig-instances"
	return Check{Page{
		Code:  code,
		Title: "A GPU in MIG mode has instances",
		Text: `In MIG mode a GPU is used through its instances only; as long as it has none, no program can use it, and CUDA reports no device. Instances are
gone after a reboot or a reset: they have to be made again, by hand or by nvidia-mig-manager.

A program uses one instance as a rule; it is chosen by its UUID (MIG-…), which gpuard does.`,
		From: []string{"https://docs.nvidia.com/datacenter/tesla/mig-user-guide/"},
	}, true, eachDevice(code, "MIG mode", "no GPU is in MIG mode without instances", func(l deviceSite) []Finding {
		if l.MIGMode == nil || !*l.MIGMode || len(l.MIG) > 0 {
			return nil
		}
		f := Finding{code, Warning, l.deviceName() + " is in MIG mode and has no instance", "No program can use it.",
			fmt.Sprintf("make instances: sudo nvidia-smi mig -lgip -i %[1]s, then sudo nvidia-smi mig -cgi PROFILE -C -i %[1]s; or switch the mode off: sudo nvidia-smi -i %[1]s -mig 0", smiDeviceID(l.Device))}
		if everyDevice(l, func(d gpu.Device) bool { return d.MIGMode != nil && *d.MIGMode && len(d.MIG) == 0 }) {
			f.Severity = Error
		}

		return []Finding{f}
	})}
}

// everyDevice reports whether all devices that answer satisfy is.
func everyDevice(l deviceSite, is func(gpu.Device) bool) bool {
	return !slices.ContainsFunc(l.site.Machine.Found.Devices, func(d gpu.Device) bool { return isAnswering(d) && !is(d) })
}

package check

import (
	"fmt"
	"slices"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/prose"
)

const fabricGuide = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/"

func fabricManager() Check {
	return Check{Page{
		Code:  "fabric-manager",
		Title: "NVSwitches have their fabric manager",
		Text: `On machines whose GPUs are joined by NVSwitches (HGX, DGX) the daemon nv-fabricmanager sets the switches up. Until it has, nvidia-smi shows
every GPU, and every CUDA program ends with error 802, "system not yet initialized" (cudaErrorSystemNotReady). It is often
missing after an update of the driver: it works only with a driver of exactly its own version, and ends at once with any other.

Install it in the driver's version and start it: ` + "`sudo systemctl enable --now nvidia-fabricmanager`" + `. If it ends again,
` + "`sudo journalctl -u nvidia-fabricmanager`" + ` says why.

GPUs of the generation of H100 and later that it has once set up go on working when it stops, and GPUs in MIG mode may not need their
links: there doctor only warns. In a container the daemon is the host's, and usually out of sight.`,
		From: []string{fabricGuide, "NVIDIA/open-gpu-kernel-modules: kernel-open/nvidia/linux_nvswitch.c (driver nvidia-nvswitch, class 0x0680)",
			"https://docs.nvidia.com/cuda/cuda-runtime-api/ (cudaErrorSystemNotReady)"},
	}, true, checkFabric}
}

func checkFabric(s hostinfo.Site) []Finding {
	const code = "fabric-manager"
	d := s.Driver.Found
	switch {
	case s.Driver.Problem != "" && nvidiaHere(s):
		return unknownFinding(code, "the NVSwitches", s.Driver.Problem, "")
	case s.Driver.Problem != "", len(d.Switches) == 0:
		return okFinding(code, "not needed: NVIDIA's driver has no NVSwitch")
	case d.NoNVLink:
		return okFinding(code, "not needed: the driver was told to use no NVLink")
	case d.FabricManager == nil && s.Container != "":
		return unknownFinding(code, "whether the fabric manager runs", "it is a process of the host, and this is a container", "on the host: systemctl status nvidia-fabricmanager")
	case d.FabricManager == nil:
		return unknownFinding(code, "whether the fabric manager runs", "processes of others are hidden from this one", "systemctl status nvidia-fabricmanager")
	case *d.FabricManager:
		return okFindingf(code, "the fabric manager runs, for %s", prose.CountNoun(len(d.Switches), "NVSwitch"))
	}

	f := Finding{code, Error, fmt.Sprintf("the machine has NVSwitches (%d), and no nv-fabricmanager runs to set them up", len(d.Switches)),
		"Until it does, every CUDA program ends with error 802 (system not yet initialized), although nvidia-smi shows the GPUs.", ""}

	if !needsFabric(s) {
		f.Severity = Warning
		f.Why = "If it has not run since the driver was loaded, every CUDA program ends with error 802 (system not yet initialized), although nvidia-smi shows the GPUs."
	}

	f.Do = "sudo systemctl enable --now nvidia-fabricmanager (its version must be that of the driver"
	if d.Module != "" {
		f.Do += ", " + prose.Brief(d.Module)
	}

	f.Do += "); if it ends again: sudo journalctl -u nvidia-fabricmanager"
	if s.Container != "" {
		f.Do = "on the host: " + f.Do
	}

	return []Finding{f}
}

// firstHopperMajor is the first compute capability whose GPUs need the daemon only once: new programs start even after
// it has ended (Fabric Manager user guide, ABORT_CUDA_JOBS_ON_FM_EXIT, which works on earlier ones only).
const firstHopperMajor = 9

// needsFabric reports whether certainly no program starts on the GPUs while the daemon does not run.
func needsFabric(s hostinfo.Site) bool {
	own := devicesOfVendor(s, gpu.NVIDIA)
	return len(own) > 0 && !slices.ContainsFunc(own, func(d gpu.Device) bool {
		return d.Compute == nil || d.Compute.Major >= firstHopperMajor || d.MIGMode != nil && *d.MIGMode
	})
}

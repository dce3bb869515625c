package pick

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
)

// healthObstacle returns an obstacle when the device's health forbids work on it.
func (q *query) healthObstacle(u *unit) *obstacle {
	state, why := health.StateOf(*u.dev, q.in.Now)
	if state == health.OK {
		return nil
	}

	remedies := prose.Texts(health.Cures(*u.dev, q.in.Now), func(c health.Cure) string { return q.cureText(u, c) })

	return &obstacle{code: "unhealthy", text: fmt.Sprintf("%s: %s", state, strings.Join(why, "; ")), remedy: prose.JoinWords(remedies, "and")}
}

// CureText says how to repair the health of d, a device of m, in words for the user in.UID; "" when nothing needs to be
// done.
func CureText(m gpu.Machine, d gpu.Device, in Context) string {
	o := newQuery(job.Spec{}, m, nil, in).healthObstacle(&unit{dev: &d})
	if o == nil {
		return ""
	}
	return o.remedy
}

func (q *query) cureText(u *unit, c health.Cure) string {
	name := "GPU " + q.deviceNumber(u.dev)
	switch c {
	case health.Ask:
		return fmt.Sprintf("find out why %s does not answer (%s)", name, diagnosticTools(u.dev))
	case health.Recover:
		return fmt.Sprintf("find out why %s was lost (seating, power; %s) and reboot the machine", name, diagnosticTools(u.dev))
	case health.Inspect:
		return fmt.Sprintf("have the board of %s checked or exchanged", name)
	case health.Reboot:
		return "reboot the machine"
	case health.Drain:
		return fmt.Sprintf("let the jobs on %s end, then reset it (%s)", name, q.resetCommand(u.dev))
	case health.Reset:
		return fmt.Sprintf("reset %s when idle (%s)", name, q.resetCommand(u.dev))
	case health.Unlink:
		return fmt.Sprintf("let the jobs end that use %s together with others", name)
	case health.Relink:
		return fmt.Sprintf("look at the links of %s and at the fabric manager (nvidia-smi nvlink --status -i %s, journalctl -u nvidia-fabricmanager)", name, vendorToolID(u.dev))
	case health.Cool:
		return fmt.Sprintf("let %s cool down (look at its fans if it does not)", name)
	case health.Power:
		return fmt.Sprintf("look at the power supply of %s and its cables", name)
	case health.Confirm:
		return fmt.Sprintf("clear the errors of %s when it is well (%sgpuard undrain %s)", name, q.sudoPrefix(), q.deviceNumber(u.dev))
	}
	return fmt.Sprintf("ask the driver what %s needs (%s)", name, diagnosticTools(u.dev))
}

// diagnosticTools names where to find more about a device. The tools of the other vendors differ too much between
// models to be named.
func diagnosticTools(d *gpu.Device) string {
	switch d.Vendor {
	case gpu.NVIDIA:
		return "nvidia-smi -q -i " + vendorToolID(d) + ", kernel log"
	case gpu.AMD:
		return "amd-smi, kernel log"
	}
	return "kernel log"
}

// resetCommand is the vendor's own command, which needs root.
func (q *query) resetCommand(d *gpu.Device) string {
	switch d.Vendor {
	case gpu.NVIDIA:
		return q.sudoPrefix() + "nvidia-smi --gpu-reset -i " + vendorToolID(d)
	case gpu.AMD:
		return q.sudoPrefix() + "amd-smi reset --gpureset --gpu " + vendorToolID(d)
	}
	return "with the tool of " + cmp.Or(d.Vendor.Name(), "its vendor")
}

// vendorToolID names a device for its vendor's tool. The PCI address comes first, because a lost device reports no
// UUID, and amd-smi numbers devices differently from ROCm.
func vendorToolID(d *gpu.Device) string {
	if d.PCI != "" {
		return d.PCI
	}
	return fmt.Sprint(d.Index)
}

// sudoPrefix is the prefix of a command that needs root, "" for root.
func (q *query) sudoPrefix() string {
	if q.in.UID == 0 {
		return ""
	}
	return "sudo "
}

// computeModeObstacle returns an obstacle when the compute mode allows no program: nvmlComputeMode_t in NVIDIA/go-nvml
// gen/nvml/nvml.h.
func (q *query) computeModeObstacle(u *unit) *obstacle {
	if u.dev.ComputeMode != "prohibited" {
		return nil
	}
	return &obstacle{code: "compute-mode", text: "its compute mode is prohibited, so no program may use it",
		remedy: fmt.Sprintf("set the compute mode of GPU %s to default (%snvidia-smi -c 0 -i %d)", q.deviceNumber(u.dev), q.sudoPrefix(), u.dev.Index)}
}

// exclusiveModeObstacle returns an obstacle when the compute mode allows one process, and one is there. With NVIDIA's
// Multi-Process Service that mode is usual, and other processes connect through its server
// (docs.nvidia.com/deploy/mps).
func (q *query) exclusiveModeObstacle(u *unit, others processSet) *obstacle {
	if !allowsOneProcess(u.dev) || len(others.ps) == 0 || slices.ContainsFunc(others.ps, gpu.Process.ServesMPS) {
		return nil
	}
	return q.inUseObstacle(others, ", and its compute mode "+u.dev.ComputeMode+" lets no second process in")
}

func allowsOneProcess(d *gpu.Device) bool {
	return d.ComputeMode == "exclusive_process" || d.ComputeMode == "exclusive_thread"
}

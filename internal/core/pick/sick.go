package pick

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
)

// sick returns an obstacle when the device's health forbids work on it.
func (q *query) sick(u *unit) *obstacle {
	state, why := health.Of(*u.dev, q.in.Now)
	if state == health.OK {
		return nil
	}
	var remedies []string
	for _, c := range health.Cures(*u.dev, q.in.Now) {
		remedies = append(remedies, q.cure(u, c))
	}
	return &obstacle{code: "unhealthy", text: fmt.Sprintf("%s: %s", state, strings.Join(why, "; ")), remedy: prose.List(remedies, "and")}
}

// Cure says how to repair the health of d, a device of m, in words for the user in.UID; "" when nothing needs to be
// done.
func Cure(m gpu.Machine, d gpu.Device, in Context) string {
	o := newQuery(job.Spec{}, m, nil, in).sick(&unit{dev: &d})
	if o == nil {
		return ""
	}
	return o.remedy
}

func (q *query) cure(u *unit, c health.Cure) string {
	name := "GPU " + q.number(u.dev)
	switch c {
	case health.Ask:
		return fmt.Sprintf("find out why %s does not answer (%s)", name, diagnostics(u.dev))
	case health.Recover:
		return fmt.Sprintf("find out why %s was lost (seating, power; %s) and reboot the machine", name, diagnostics(u.dev))
	case health.Inspect:
		return fmt.Sprintf("have the board of %s checked or exchanged", name)
	case health.Reboot:
		return "reboot the machine"
	case health.Drain:
		return fmt.Sprintf("let the jobs on %s end, then reset it (%s)", name, q.reset(u.dev))
	case health.Reset:
		return fmt.Sprintf("reset %s when idle (%s)", name, q.reset(u.dev))
	case health.Unlink:
		return fmt.Sprintf("let the jobs end that use %s together with others", name)
	case health.Relink:
		return fmt.Sprintf("look at the links of %s and at the fabric manager (nvidia-smi nvlink --status -i %s, journalctl -u nvidia-fabricmanager)", name, handle(u.dev))
	case health.Cool:
		return fmt.Sprintf("let %s cool down (look at its fans if it does not)", name)
	case health.Power:
		return fmt.Sprintf("look at the power supply of %s and its cables", name)
	case health.Confirm:
		return fmt.Sprintf("clear the errors of %s when it is well (%sgpuard undrain %s)", name, q.sudo(), q.number(u.dev))
	}
	return fmt.Sprintf("ask the driver what %s needs (%s)", name, diagnostics(u.dev))
}

// diagnostics names where to find more about a device. The tools of the other vendors differ too much between models
// to be named.
func diagnostics(d *gpu.Device) string {
	switch d.Vendor {
	case gpu.NVIDIA:
		return "nvidia-smi -q -i " + handle(d) + ", kernel log"
	case gpu.AMD:
		return "amd-smi, kernel log"
	}
	return "kernel log"
}

// reset is the vendor's own command, which needs root.
func (q *query) reset(d *gpu.Device) string {
	switch d.Vendor {
	case gpu.NVIDIA:
		return q.sudo() + "nvidia-smi --gpu-reset -i " + handle(d)
	case gpu.AMD:
		return q.sudo() + "amd-smi reset --gpureset --gpu " + handle(d)
	}
	return "with the tool of " + or(vendorName(d.Vendor), "its vendor")
}

// handle names a device for its vendor's tool. The PCI address comes first, because a lost device reports no UUID,
// and amd-smi numbers devices differently from ROCm.
func handle(d *gpu.Device) string {
	if d.PCI != "" {
		return d.PCI
	}
	return fmt.Sprint(d.Index)
}

// sudo is the prefix of a command that needs root, "" for root.
func (q *query) sudo() string {
	if q.in.UID == 0 {
		return ""
	}
	return "sudo "
}

// closed returns an obstacle when the compute mode allows no program: nvmlComputeMode_t in NVIDIA/go-nvml
// gen/nvml/nvml.h.
func (q *query) closed(u *unit) *obstacle {
	if u.dev.ComputeMode != "prohibited" {
		return nil
	}
	return &obstacle{code: "compute-mode", text: "its compute mode is prohibited, so no program may use it",
		remedy: fmt.Sprintf("set the compute mode of GPU %s to default (%snvidia-smi -c 0 -i %d)", q.number(u.dev), q.sudo(), u.dev.Index)}
}

// modeTaken returns an obstacle when the compute mode allows one process, and one is there. With NVIDIA's
// Multi-Process Service that mode is usual, and other processes connect through its server
// (docs.nvidia.com/deploy/mps).
func (q *query) modeTaken(u *unit, others processSet) *obstacle {
	if !closedToSecond(u.dev) || len(others.ps) == 0 || slices.ContainsFunc(others.ps, gpu.Process.ServesMPS) {
		return nil
	}
	return q.inUse(others, ", and its compute mode "+u.dev.ComputeMode+" lets no second process in")
}

func closedToSecond(d *gpu.Device) bool {
	return d.ComputeMode == "exclusive_process" || d.ComputeMode == "exclusive_thread"
}

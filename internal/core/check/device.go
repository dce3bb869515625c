package check

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/prose"
)

func deviceChecks() []Check {
	return []Check{gpuAnswers(), xidErrors(), recoveryAction(), eccErrors(), remappedRows(), retiredPages(),
		nvlinkFabric(), gpuTemperature(), clockEvents(), computeMode(), migInstances(), persistenceMode(), memoryHolders()}
}

// deviceSite is one device as the input of a check.
type deviceSite struct {
	site hostinfo.Site
	gpu.Device
}

func (l deviceSite) deviceName() string { return deviceLabel(l.site.Machine.Found, l.Device) }

// eachDevice makes the Look of a check that runs on each device that answers. what names the readings, for the case
// that none can be read; calm is the text when check finds nothing.
func eachDevice(code, what, calm string, check func(deviceSite) []Finding) func(hostinfo.Site) []Finding {
	return func(s hostinfo.Site) []Finding {
		switch {
		case s.Machine.Problem != "" && hasNoGPU(s):
			return okFinding(code, "there is no GPU to look at")
		case s.Machine.Problem != "":
			return unknownFinding(code, what, s.Machine.Problem, "")
		}

		var found []Finding
		for _, d := range s.Machine.Found.Devices {
			if isAnswering(d) {
				found = append(found, check(deviceSite{s, d})...)
			}
		}

		if len(found) == 0 {
			return okFinding(code, calm)
		}

		return found
	}
}

func gpuAnswers() Check {
	return Check{Page{
		Code:  "gpu-answers",
		Title: "Every GPU answers the driver",
		Text: `A GPU that is lost ("GPU is lost", "fallen off the bus") answers nothing until the machine is rebooted; often its seating, its power cable, its power
supply or heat is to blame. One that needs a reset answers nothing until it is reset. One that is only late may come back: a
driver that hangs on one device does so for every program that asks for it.

Look at the kernel's log (` + "`sudo dmesg | grep -iE 'nvrm|xid'`" + `). Until then run on the other devices; gpuard gives no job to this one.`,
		From: []string{"NVIDIA/go-nvml: gen/nvml/nvml.h (NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED)", "https://docs.nvidia.com/deploy/xid-errors/"},
	}, false, checkAnswers}
}

func checkAnswers(s hostinfo.Site) []Finding {
	const code = "gpu-answers"
	switch {
	case s.Machine.Problem != "" && hasNoGPU(s):
		return okFinding(code, "there is no GPU to ask")
	case s.Machine.Problem != "":
		return unknownFinding(code, "the GPUs", s.Machine.Problem, "")
	}

	var found []Finding
	for _, d := range s.Machine.Found.Devices {
		if isAnswering(d) {
			continue
		}
		f := Finding{code, Error, deviceLabel(s.Machine.Found, d) + ": " + d.Problem, "Programs on it hang or fail.", inspectCommand(d)}
		switch {
		case strings.Contains(d.Problem, "reset"):
			f.Do = resetAdvice(d)
		case slices.Contains(health.Cures(d, s.Now), health.Recover):
			f.Do = fmt.Sprintf("look at the seating and the power cables of %s, and at the kernel's log (sudo dmesg | grep -iE 'nvrm|xid'); then reboot the machine", deviceLabel(s.Machine.Found, d))
		}
		found = append(found, f)
	}

	if len(found) == 0 {
		return okFindingf(code, "%s answering", prose.CountNoun(len(s.Machine.Found.Devices), "GPU"))
	}

	return found
}

// inspectCommand names the command that shows more about a device.
func inspectCommand(d gpu.Device) string {
	if d.Vendor != gpu.NVIDIA {
		return "sudo dmesg | grep -i " + kernelLogPattern(d.Vendor)
	}
	return fmt.Sprintf("nvidia-smi -q -i %s; sudo dmesg | grep -iE 'nvrm|xid'", smiDeviceID(d))
}

func kernelLogPattern(v gpu.Vendor) string {
	if v == gpu.AMD {
		return "amdgpu"
	}
	return string(v)
}

func resetAdvice(d gpu.Device) string {
	if d.Vendor != gpu.NVIDIA {
		return fmt.Sprintf("let the jobs on the GPU at %s end, then reset it with its vendor's tool, or reboot the machine", smiDeviceID(d))
	}
	return fmt.Sprintf("let the jobs on the GPU at %[1]s end, then: sudo nvidia-smi --gpu-reset -i %[1]s", smiDeviceID(d))
}

func nvlinkFabric() Check {
	const code = "nvlink-fabric"
	return Check{Page{
		Code:  code,
		Title: "The NVLink fabric of every GPU is in order",
		Text: `From Hopper (H100) on the driver judges the fabric that joins GPUs by NVLink: its bandwidth, its routes, its configuration. With a link or a switch
out of order, jobs on several GPUs are slow or end with errors, and gpuard gives such a GPU to nobody.

Look at the links (` + "`nvidia-smi nvlink --status`" + `) and at the log of the fabric manager (` + "`journalctl -u nvidia-fabricmanager`" + `).`,
		From: []string{"NVIDIA/go-nvml: gen/nvml/nvml.h (nvmlDeviceGetGpuFabricInfoV)", fabricGuide},
	}, false, eachDevice(code, "the NVLink fabric", "no GPU reports a fault of its NVLink fabric", func(l deviceSite) []Finding {
		if len(l.Fabric) == 0 {
			return nil
		}
		seen := fmt.Sprintf("%s: NVLink fabric: %s", l.deviceName(), strings.ReplaceAll(strings.Join(l.Fabric, ", "), "_", " "))
		do := fmt.Sprintf("look at its links and at the fabric manager: nvidia-smi nvlink --status -i %s; journalctl -u nvidia-fabricmanager", smiDeviceID(l.Device))

		return []Finding{{code, Warning, seen, "Jobs on several GPUs are slow or fail. gpuard does not give this GPU to anybody.", do}}
	})}
}

func recoveryAction() Check {
	const code = "recovery-action"
	return Check{Page{
		Code:  code,
		Title: "The driver asks for no reset or reboot",
		Text: `Newer drivers say themselves what a GPU needs after an error: nothing, a reset, a reboot, or that its jobs end first. This is the best single answer about
a device's state; doctor puts it before everything else that is known of it.

Do what it asks for. A reset needs root and that nothing uses the GPU; on machines with NVLink between all GPUs, all of them are reset
together.`,
		From: []string{"NVIDIA/go-nvml: gen/nvml/nvml.h (NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)", "https://docs.nvidia.com/deploy/nvidia-smi/"},
	}, false, eachDevice(code, "what the GPUs need", "no GPU asks for a reset or a reboot", func(l deviceSite) []Finding {
		f := Finding{code, Error, "", "New programs on it fail, or their results cannot be trusted.", resetAdvice(l.Device)}
		switch l.RecoveryAction {
		case "", "none":
			return nil
		case "reset":
			f.Seen = "the driver asks for a reset of " + l.deviceName()
		case "drain_and_reset":
			f.Seen = "the driver asks that the jobs on " + l.deviceName() + " end, and then for a reset"
		case "reboot":
			f.Seen, f.Do = "the driver asks for a reboot because of "+l.deviceName(), "let the jobs of this machine end, then: sudo reboot"
		case "drain_p2p":
			f.Severity, f.Seen = Warning, "the driver asks that jobs end which use "+l.deviceName()+" together with others"
			f.Do = "end those jobs; after that it is as before"
		default:
			f.Severity, f.Seen, f.Do = Warning, fmt.Sprintf("the driver asks for %q on %s", l.RecoveryAction, l.deviceName()), inspectCommand(l.Device)
		}
		return []Finding{f}
	})}
}

// Limits as in the health of devices: relative to the device's own limit, never a fixed temperature.
const (
	nearSlowdown = 3 // C
	nearMargin   = 2 // C
)

func gpuTemperature() Check {
	const code = "temperature"
	return Check{Page{
		Code:  code,
		Title: "No GPU is close to the temperature at which it slows itself down",
		Text: `Each card knows the temperature at which it lowers its clocks, and newer ones say how many degrees are left. Doctor compares with that
and not with a fixed number: some cards are built to run hotter than others.

Look at fans, dust, air flow and neighbours; lower the power limit for a while (` + "`sudo nvidia-smi -i 0 -pl WATTS`" + `).`,
		From: []string{"NVIDIA/go-nvml: gen/nvml/nvml.h (nvmlDeviceGetMarginTemperature, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)"},
	}, false, eachDevice(code, "temperatures", "every GPU is cooler than its limit, as far as it says", func(l deviceSite) []Finding {
		f := Finding{code, Warning, "", "It lowers its clocks to protect itself, and jobs become slow.", coolingAdvice(l, "; until then: sudo nvidia-smi -i %s -pl WATTS")}
		switch {
		case l.TempMargin != nil && *l.TempMargin <= nearMargin:
			f.Seen = fmt.Sprintf("%s has %d °C left before it slows down", l.deviceName(), *l.TempMargin)
		case l.TempMargin == nil && l.Temperature != nil && l.TempSlowdown != nil && *l.TempSlowdown > 0 && *l.Temperature >= *l.TempSlowdown-nearSlowdown:
			f.Seen = fmt.Sprintf("%s is at %d °C and slows down at %d °C", l.deviceName(), *l.Temperature, *l.TempSlowdown)
		default:
			return nil
		}
		return []Finding{f}
	})}
}

// coolingAdvice is the advice against heat, with command on NVIDIA devices.
func coolingAdvice(l deviceSite, command string) string {
	advice := "look at the fans of " + l.deviceName() + " and at the air flow"
	if l.Vendor != gpu.NVIDIA {
		return advice
	}
	return advice + fmt.Sprintf(command, smiDeviceID(l.Device))
}

func clockEvents() Check {
	const code = "clock-events"
	return Check{Page{
		Code:  code,
		Title: "Nothing slows a GPU down",
		Text: `The driver says why clocks are lowered (nvidia-smi calls it clocks event reasons, or throttle reasons). An idle GPU, a power cap and application clocks
are normal. A slowdown by the hardware because of heat, or because the power supply asks for it, is not: jobs become several times
slower, and without a word.

Heat: fans, dust, air flow. Power brake: the power supply, its cables and their distribution.`,
		From: []string{"NVIDIA/go-nvml: gen/nvml/nvml.h (nvmlClocksEventReason…)", "https://docs.nvidia.com/deploy/nvidia-smi/"},
	}, false, eachDevice(code, "why clocks are lowered", "no GPU is slowed down by heat or by its power supply, as far as it says", func(l deviceSite) []Finding {
		const why = "Jobs on it are slower, and nothing else reports that."
		has := func(event string) bool { return slices.Contains(l.ClockEvents, event) }
		switch {
		case has("hw_thermal_slowdown"):
			return []Finding{{code, Warning, l.deviceName() + " is slowed down by its hardware because of heat", why, coolingAdvice(l, ": nvidia-smi -q -d TEMPERATURE,PERFORMANCE -i %s")}}
		case has("hw_power_brake_slowdown"):
			return []Finding{{code, Warning, l.deviceName() + " is slowed down because the power supply asks for it", why, "look at its power supply and cables: nvidia-smi -q -d POWER,PERFORMANCE -i " + smiDeviceID(l.Device)}}
		case has("sw_thermal_slowdown"):
			return []Finding{{code, Info, l.deviceName() + " runs at lower clocks, because the driver holds its temperature", why, "see how far: nvidia-smi -q -d TEMPERATURE,CLOCK -i " + smiDeviceID(l.Device)}}
		}

		return nil
	})}
}

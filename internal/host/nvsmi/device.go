package nvsmi

import (
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
)

// toDevice is one <gpu> element as a device. Index is set later.
func (g *xmlGPU) toDevice() gpu.Device {
	d := gpu.Device{
		UUID:           safeUUID(g.UUID, "GPU-"),
		Name:           cleanWord(g.Name),
		Vendor:         gpu.NVIDIA,
		PCI:            kernelAddress(g.Bus),
		MemoryTotal:    parseMemory(g.Memory.Total),
		MemoryUsed:     parseMemory(g.Memory.Used),
		MemoryReserved: parseMemory(g.Memory.Reserved),
		Utilization:    parsePercent(g.Util),
		MemoryLoad:     parsePercent(g.MemUtil),
		Temperature:    parseWhole(g.Temp, "C"),
		TempSlowdown:   parseWhole(g.TempSlow, "C"),
		TempMargin:     parseWhole(g.TempLeft, "C"),
		Power:          firstReading(parseWatts, g.Power.Average, g.Power.Draw, g.PowerOld.Draw, g.Power.Instant),
		PowerLimit:     firstReading(parseWatts, g.Power.Current, g.PowerOld.Enforced, g.PowerOld.Limit),
		ClockSM:        parseWhole(g.ClockSM, "MHz"),
		ClockSMMax:     parseWhole(g.ClockMax, "MHz"),
		ClockMemory:    parseWhole(g.ClockMem, "MHz"),
		ClockEvents:    g.activeClockEvents(),
		ECC:            parseChoice(g.ECCMode, "Enabled", "Disabled"),
		ECCCorrected:   sumCounts(g.ECC.Single, g.ECC.SRAMCorrected, g.ECC.DRAMCorrected),
		ECCUncorrected: sumCounts(g.ECC.Double, g.ECC.SRAMUncorrected, g.ECC.SRAMParity, g.ECC.SRAMSECDED, g.ECC.DRAMUncorrected),
		RemappedRows:   g.Remapped.toRemappedRows(),
		RetiredPages:   g.Retired.toRetiredPages(),
		RecoveryAction: g.recoveryAction(),
		Fabric:         g.Fabric.listFaults(),
		Persistence:    parseChoice(g.Persistence, "Enabled", "Disabled"),
		DisplayActive:  parseChoice(g.Display, "Enabled", "Disabled"),
		ComputeMode:    computeMode(g.ComputeMode),
		MIGMode:        parseChoice(g.MIGMode, "Enabled", "Disabled"),
		Problem:        g.lostProblem(),
	}

	if d.PCI == "" {
		d.PCI = kernelAddress(g.ID)
	}

	if n := parseCount(g.Minor); n != nil && *n < 1<<20 {
		// Minor numbers have 20 bits.
		d.Minor = new(int(*n))
	}

	if d.UUID == "" && d.Problem == "" {
		d.Problem = "cannot read its UUID: nvidia-smi prints none"
	}

	return d
}

func firstReading[T any](read func(string) *T, texts ...string) *T {
	for _, s := range texts {
		if v := read(s); v != nil {
			return v
		}
	}
	return nil
}

// isBareUUID reports whether s is an identifier without its prefix, as nvidia-smi prints it of a Jetson: 8, 4, 4, 4 and
// 12 digits.
func isBareUUID(s string) bool {
	groups := strings.Split(s, "-")
	if len(groups) != 5 {
		return false
	}

	for i, size := range []int{8, 4, 4, 4, 12} {
		if len(groups[i]) != size || strings.Trim(groups[i], "0123456789abcdef") != "" {
			return false
		}
	}

	return true
}

// safeUUID returns s if it is safe in an environment variable and on a command line, else "". One without its prefix
// gets it.
func safeUUID(s, prefix string) gpu.UUID {
	s = strings.TrimSpace(s)
	if isBareUUID(s) {
		s = prefix + s
	}

	rest, ok := strings.CutPrefix(s, prefix)
	const allowed = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-/"
	if !ok || rest == "" || len(s) > 96 || strings.Trim(rest, allowed) != "" {
		return ""
	}

	return gpu.UUID(s)
}

// lostProblem finds the texts that replace readings of a lost device. They are those of nvmlErrorString for
// NVML_ERROR_GPU_IS_LOST and NVML_ERROR_RESET_REQUIRED.
func (g *xmlGPU) lostProblem() string {
	texts := []string{g.Name, g.UUID, g.Memory.Total, g.Memory.Used, g.Util, g.Temp, g.Persistence, g.ClockSM, g.Power.Average, g.Power.Draw, g.PowerOld.Draw, g.Power.Instant}
	for _, p := range []struct{ driver, ours string }{{"gpu is lost", "GPU is lost"}, {"gpu requires reset", "GPU needs a reset"}} {
		for _, s := range texts {
			if strings.Contains(strings.ToLower(s), p.driver) {
				return p.ours
			}
		}
	}
	return ""
}

// failedReadings names the readings in whose place nvidia-smi wrote that there was an error. What a device does not
// have is "N/A".
func (g *xmlGPU) failedReadings() (names []string) {
	if g.lostProblem() != "" {
		return nil
	}
	for _, r := range []struct{ name, text string }{
		{"name", g.Name}, {"memory", g.Memory.Used}, {"utilisation", g.Util}, {"temperature", g.Temp}, {"clock", g.ClockSM},
		{"power", g.Power.Average + g.Power.Draw + g.PowerOld.Draw},
	} {
		text := strings.ToLower(r.text)
		if strings.Contains(text, "err!") || strings.Contains(text, "unknown error") {
			names = append(names, r.name)
		}
	}
	return names
}

// activeClockEvents lists the active events by the names that gpuard uses; nil if the driver does not report them.
func (g *xmlGPU) activeClockEvents() []string {
	var active []string
	for _, group := range []xmlFlags{g.Events, g.EventsOld} {
		for _, flag := range group.Flags {
			_, name, ok := strings.Cut(flag.XMLName.Local, "_reason_")
			state := parseChoice(flag.Text, "Active", "Not Active")
			if !ok || state == nil {
				continue
			}

			if active == nil {
				active = []string{}
			}

			if event := eventName(name); *state && event != "" {
				active = append(active, event)
			}
		}
	}
	return active
}

func eventName(element string) string {
	switch element {
	case "gpu_idle", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown":
		return element
	case "applications_clocks_setting":
		return "applications_clocks"
	case "display_clocks_setting":
		return "display_clock_setting"
	}
	return ""
}

func (x *xmlRemap) toRemappedRows() *gpu.RemappedRows {
	corrected, uncorrected := parseCount(x.Corrected), parseCount(x.Uncorrected)
	if corrected == nil || uncorrected == nil {
		return nil
	}
	return &gpu.RemappedRows{Correctable: int(*corrected), Uncorrectable: int(*uncorrected), Pending: isYes(x.Pending), Failed: isYes(x.Failure)}
}

func (x *xmlRetired) toRetiredPages() *gpu.RetiredPages {
	single, double := parseCount(x.Single), parseCount(x.Double)
	if single == nil || double == nil {
		return nil
	}
	return &gpu.RetiredPages{SingleBit: int(*single), DoubleBit: int(*double), Pending: isYes(x.Pending) || isYes(x.PendingOld)}
}

// recoveryAction reads the newer element, or the two that it replaced.
func (g *xmlGPU) recoveryAction() string {
	switch action := strings.ToLower(strings.ReplaceAll(cleanWord(g.Recovery), " ", "_")); action {
	case "":
	case "none", "reset", "reboot", "drain_p2p", "drain_and_reset", "recover_imex_domain":
		return action
	default:
		// Newer than this list.
		return "unknown"
	}
	reset, drain := parseChoice(g.Reset, "Yes", "No"), parseChoice(g.Drain, "Yes", "No")
	switch {
	case reset != nil && *reset:
		return "reset"
	case drain != nil && *drain:
		return "drain_and_reset"
	case reset != nil:
		return "none"
	}

	return ""
}

// listFaults lists what is wrong with the fabric, in the words of the NVML reader; nil where the driver does not say.
func (x *xmlFabric) listFaults() []string {
	if strings.TrimSpace(x.State) != "Completed" {
		return nil
	}
	out := []string{}
	for _, w := range []struct {
		word  string
		wrong bool
	}{
		{"probe_failed", !slices.Contains([]string{"", "Success", "N/A"}, strings.TrimSpace(x.Status))},
		{"degraded_bandwidth", strings.TrimSpace(x.Bandwidth) == "Degraded"},
		{"route_unhealthy", strings.TrimSpace(x.Unhealthy) == "True"},
		{"incorrect_configuration", !slices.Contains([]string{"", "None", "N/A"}, strings.TrimSpace(x.Configuration))},
	} {
		if w.wrong {
			out = append(out, w.word)
		}
	}

	return out
}

func computeMode(s string) string {
	switch mode := strings.ToLower(cleanWord(s)); mode {
	case "", "default", "exclusive_thread", "exclusive_process", "prohibited":
		return mode
	}
	return "unknown"
}

// toProcess converts one <process_info>; ok is false if it has no PID.
func (x *xmlProcess) toProcess() (gpu.Process, bool) {
	pid := parseWhole(x.PID, "")
	if pid == nil || *pid <= 0 {
		return gpu.Process{}, false
	}
	return gpu.Process{PID: *pid, Memory: parseMemory(x.Memory), Command: cleanWord(x.Name), Kind: parseKind(x.Type)}, true
}

// parseKind reads "C", "G", "C+G", and with MPS "M+C" and "M+C+G".
func parseKind(s string) gpu.Kind {
	compute, graphics := false, false
	for part := range strings.SplitSeq(strings.TrimSpace(s), "+") {
		compute = compute || part == "C"
		graphics = graphics || part == "G"
	}
	switch {
	case compute && graphics:
		return gpu.BothKinds
	case compute:
		return gpu.ComputeProcess
	case graphics:
		return gpu.GraphicsProcess
	}

	return ""
}

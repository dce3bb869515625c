// Package nvsmi reads the NVIDIA devices of a machine through the program nvidia-smi, for machines where the driver's
// library cannot be used directly. It gives the same values as the library, except for NUMA nodes and links between
// devices, which are not in that output. It never changes a device.
//
// NVIDIA does not promise a stable format (nvidia-smi(1)), so every reading may be absent, and a reading with an
// unexpected unit counts as absent.
//
//	machine, err := nvsmi.Read(ctx, gpu.Everything) // a *gpu.Unavailable says why there is no GPU
package nvsmi

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
)

// defaultTimeout is how long nvidia-smi may take if ctx sets no shorter limit.
const defaultTimeout = 5 * time.Second

// Read runs nvidia-smi from PATH and returns the machine that it reports. It always reads all parts, because fewer
// would not be faster. Every error is a *gpu.Unavailable.
func Read(ctx context.Context, _ gpu.What) (gpu.Machine, error) {
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return gpu.Machine{}, &gpu.Unavailable{
			Cause:  gpu.LibraryMissing,
			Text:   "cannot find nvidia-smi: it is in no folder of PATH",
			Remedy: "install the NVIDIA driver's tools (nvidia-utils on Debian and Ubuntu), or add their folder to PATH",
		}
	}

	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	began := time.Now()
	capabilities := make(chan smiOutput, 1)
	go func() {
		capabilities <- runNvidiaSMI(ctx, maxListSize, path, "--query-gpu=uuid,compute_cap", "--format=csv,noheader")
	}()

	got := runNvidiaSMI(ctx, maxReportSize, path, "-q", "-x")
	if got.failure != nil {
		return gpu.Machine{}, got.failure
	}

	r, err := parseReport(got.out, got.errs)
	if err != nil {
		return gpu.Machine{}, err
	}

	if r.hasSlices() {
		list := runNvidiaSMI(ctx, maxListSize, path, "-L")
		r.nameSlices(parseList(list.out))
	}

	r.addCapabilities((<-capabilities).out)
	m := r.toMachine()
	m.DropImplausible()
	m.Taken = began

	return m, nil
}

// knownFailures maps nvidia-smi's messages to causes; the first match counts. The messages are those of nvmlErrorString
// and of nvidia-smi's start-up checks.
func knownFailures() []gpu.Unavailable {
	return []gpu.Unavailable{
		{Cause: gpu.LibraryMissing, Text: "libnvidia-ml.so", Remedy: "install the NVIDIA driver's libraries, then run ldconfig"},
		{Cause: gpu.VersionMismatch, Text: "version mismatch", Remedy: "the driver was updated while its old module is loaded: reboot, or unload and load the nvidia modules"},
		{Cause: gpu.VersionMismatch, Text: "mismatch in versions", Remedy: "install nvidia-smi and the driver's libraries from one driver version"},
		{Cause: gpu.DriverNotLoaded, Text: "couldn't communicate with the nvidia driver", Remedy: "sudo modprobe nvidia; if that fails, install the driver for the running kernel"},
		{Cause: gpu.DriverNotLoaded, Text: "driver not loaded", Remedy: "sudo modprobe nvidia"},
		{Cause: gpu.NoPermission, Text: "insufficient permissions", Remedy: "look at ls -l /dev/nvidia*: you need read and write access, often by a group such as video"},
		{Cause: gpu.NoDevice, Text: "no devices were found", Remedy: "lspci -d 10de: shows whether the machine has an NVIDIA device; dmesg shows why the driver does not take it"},
		{Cause: gpu.NoAnswer, Text: "timeout", Remedy: "look for NVRM and Xid lines in dmesg"},
	}
}

// explainOutput turns output without XML into an error.
func explainOutput(text string) *gpu.Unavailable {
	first := firstTextLine(text)
	lower := strings.ToLower(text)
	for _, f := range knownFailures() {
		if strings.Contains(lower, f.Text) {
			return &gpu.Unavailable{Cause: f.Cause, Text: "cannot read the GPUs: nvidia-smi says: " + first, Remedy: f.Remedy}
		}
	}

	if first == "" {
		first = "nothing"
	}

	return driverError("nvidia-smi says: %s", first)
}

// driverError is the error for a failure of the driver or nvidia-smi that has no cause of its own.
func driverError(format string, args ...any) *gpu.Unavailable {
	return &gpu.Unavailable{
		Cause:  gpu.DriverError,
		Text:   "cannot read the GPUs: " + fmt.Sprintf(format, args...),
		Remedy: "run nvidia-smi -q -x and look for NVRM and Xid lines in dmesg",
	}
}

func firstTextLine(text string) string {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(prose.Clean(line))
		if line != "" {
			return truncate(line, 300)
		}
	}
	return ""
}

// truncate shortens a long text of nvidia-smi; s must be valid UTF-8.
func truncate(s string, most int) string {
	for i := range s {
		if i > most {
			return s[:i] + "…"
		}
	}
	return s
}

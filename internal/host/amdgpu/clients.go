package amdgpu

import (
	"os"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
)

// drmClient is an open render node as in /proc/PID/fdinfo (torvalds/linux Documentation/gpu/drm-usage-stats.rst).
type drmClient struct {
	pci, id string
	memory  gpu.Bytes
	// Has used these engines.
	graphics, compute bool
}

// renderClients lists the processes that have device memory through an open render node. One client may be open in
// several descriptors and processes (a display server passes it on); it counts once, for the first process. Partitions
// of one GPU have the same address and cannot be distinguished here, so only KFD lists their processes.
func (f fileReader) renderClients(cards []card) []gpu.Process {
	owner := map[string]gpu.UUID{}
	for _, c := range cards {
		if !c.portion && c.device.PCI != "" {
			owner[c.device.PCI] = c.device.UUID
		}
	}

	seen := map[string]bool{}
	var out []gpu.Process
	for _, name := range f.listNames("proc") {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}

		sums := map[gpu.UUID]drmClient{}
		for _, c := range f.openClients(name) {
			uuid, ours := owner[c.pci]
			if !ours || c.memory == 0 || seen[c.pci+" "+c.id] {
				continue
			}

			seen[c.pci+" "+c.id] = c.id != ""
			sum := sums[uuid]
			sums[uuid] = drmClient{memory: sum.memory + c.memory, graphics: sum.graphics || c.graphics, compute: sum.compute || c.compute}
		}

		for uuid, c := range sums {
			out = append(out, gpu.Process{PID: pid, GPU: uuid, Memory: new(c.memory), Kind: c.processKind()})
		}
	}

	return out
}

// processKind: a client that has used the compute engine counts as a compute process too.
func (d drmClient) processKind() gpu.Kind {
	switch {
	case d.compute && d.graphics:
		return gpu.BothKinds
	case d.compute:
		return gpu.ComputeProcess
	}
	return gpu.GraphicsProcess
}

// openClients lists a process's clients of amdgpu; none if its descriptors cannot be read, as those of another user's
// process.
func (f fileReader) openClients(pid string) []drmClient {
	var out []drmClient
	for _, fd := range f.listNames("proc", pid, "fd") {
		target, err := os.Readlink(f.filePath("proc", pid, "fd", fd))
		if err != nil || !strings.HasPrefix(target, "/dev/dri/") {
			continue
		}

		text, err := f.readText("proc", pid, "fdinfo", fd)
		if err != nil {
			continue
		}

		if c, ok := parseClient(text); ok {
			out = append(out, c)
		}
	}
	return out
}

func parseClient(text string) (drmClient, bool) {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			values[key] = strings.TrimSpace(value)
		}
	}

	if values["drm-driver"] != "amdgpu" {
		return drmClient{}, false
	}

	c := drmClient{pci: values["drm-pdev"], id: values["drm-client-id"]}
	for _, key := range []string{"drm-resident-vram", "drm-memory-vram"} {
		// The second is amdgpu's older name.
		if n, ok := parseAmount(values[key]); ok {
			c.memory = n
			break
		}
	}

	c.graphics, c.compute = hasWorked(values["drm-engine-gfx"]), hasWorked(values["drm-engine-compute"])

	return c, true
}

// hasWorked reads an engine's time, such as "1234 ns".
func hasWorked(text string) bool {
	n, _, _ := strings.Cut(text, " ")
	return strings.Trim(n, "0") != ""
}

// parseAmount reads "2048 KiB", "2 MiB" or "2048", which is in bytes.
func parseAmount(text string) (gpu.Bytes, bool) {
	digits, unit, _ := strings.Cut(text, " ")
	n, err := parseWholeNumber(digits, maxMemory)
	scale := map[string]int64{"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[unit]
	if err != nil || scale == 0 || n > maxMemory/scale {
		return 0, false
	}

	return gpu.Bytes(n * scale), true
}

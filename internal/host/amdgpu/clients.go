package amdgpu

import (
	"os"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
)

// client is an open render node as in /proc/PID/fdinfo (torvalds/linux Documentation/gpu/drm-usage-stats.rst).
type client struct {
	pci, id           string
	memory            gpu.Bytes
	graphics, compute bool // has used these engines
}

// clients lists the processes that have device memory through an open render node. One client may be open in several
// descriptors and processes (a display server passes it on); it counts once, for the first process. Partitions of one
// GPU have the same address and cannot be distinguished here, so only KFD lists their processes.
func (f files) clients(cards []card) []gpu.Process {
	owner := map[string]gpu.UUID{}
	for _, c := range cards {
		if !c.portion && c.device.PCI != "" {
			owner[c.device.PCI] = c.device.UUID
		}
	}
	seen := map[string]bool{}
	var out []gpu.Process
	for _, name := range f.names("proc") {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		sums := map[gpu.UUID]client{}
		for _, c := range f.open(name) {
			uuid, ours := owner[c.pci]
			if !ours || c.memory == 0 || seen[c.pci+" "+c.id] {
				continue
			}
			seen[c.pci+" "+c.id] = c.id != ""
			sum := sums[uuid]
			sums[uuid] = client{memory: sum.memory + c.memory, graphics: sum.graphics || c.graphics, compute: sum.compute || c.compute}
		}
		for uuid, c := range sums {
			out = append(out, gpu.Process{PID: pid, GPU: uuid, Memory: new(c.memory), Kind: c.kind()})
		}
	}
	return out
}

// kind: a client that has used the compute engine counts as a compute process too.
func (c client) kind() gpu.Kind {
	switch {
	case c.compute && c.graphics:
		return gpu.BothKinds
	case c.compute:
		return gpu.ComputeProcess
	}
	return gpu.GraphicsProcess
}

// open lists a process's clients of amdgpu; none if its descriptors cannot be read, as those of another user's process.
func (f files) open(pid string) []client {
	var out []client
	for _, fd := range f.names("proc", pid, "fd") {
		target, err := os.Readlink(f.path("proc", pid, "fd", fd))
		if err != nil || !strings.HasPrefix(target, "/dev/dri/") {
			continue
		}
		text, err := f.text("proc", pid, "fdinfo", fd)
		if err != nil {
			continue
		}
		if c, ok := parseClient(text); ok {
			out = append(out, c)
		}
	}
	return out
}

func parseClient(text string) (client, bool) {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			values[key] = strings.TrimSpace(value)
		}
	}
	if values["drm-driver"] != "amdgpu" {
		return client{}, false
	}
	c := client{pci: values["drm-pdev"], id: values["drm-client-id"]}
	for _, key := range []string{"drm-resident-vram", "drm-memory-vram"} { // the second is amdgpu's older name
		if n, ok := amount(values[key]); ok {
			c.memory = n
			break
		}
	}
	c.graphics, c.compute = worked(values["drm-engine-gfx"]), worked(values["drm-engine-compute"])
	return c, true
}

// worked reads an engine's time, such as "1234 ns".
func worked(text string) bool {
	n, _, _ := strings.Cut(text, " ")
	return strings.Trim(n, "0") != ""
}

// amount reads "2048 KiB", "2 MiB" or "2048", which is in bytes.
func amount(text string) (gpu.Bytes, bool) {
	digits, unit, _ := strings.Cut(text, " ")
	n, err := wholeNumber(digits, memoryLimit)
	scale := map[string]int64{"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[unit]
	if err != nil || scale == 0 || n > memoryLimit/scale {
		return 0, false
	}
	return gpu.Bytes(n * scale), true
}

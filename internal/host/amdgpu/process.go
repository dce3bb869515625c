package amdgpu

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
)

const processFolder = "sys/class/kfd/kfd/proc"

// processes lists who uses the cards: ROCm programs from KFD, which shows those of all users, and others (desktop, Vulkan,
// video) from their open render nodes, which only their owner and root may look at.
func (f files) processes(cards []card) []gpu.Process {
	var out []gpu.Process
	if !f.elsewhere() {
		out = f.compute(cards)
	}
	seen := map[int]map[gpu.UUID]bool{}
	for _, p := range out {
		if seen[p.PID] == nil {
			seen[p.PID] = map[gpu.UUID]bool{}
		}
		seen[p.PID][p.GPU] = true
	}
	for _, p := range f.clients(cards) {
		if !seen[p.PID][p.GPU] {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b gpu.Process) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), strings.Compare(string(a.GPU), string(b.GPU)))
	})
	return out
}

// elsewhere reports that we are in a PID namespace of our own. KFD's numbers are those of the machine, and here they would
// name other processes, or a process of ours that has nothing to do with it. The number of the machine's own
// namespace is fixed: PROC_PID_INIT_INO in torvalds/linux include/linux/proc_ns.h.
func (f files) elsewhere() bool {
	link, err := os.Readlink(f.path("proc/self/ns/pid"))
	return err == nil && link != "pid:[4026531836]"
}

// compute reads KFD's folder for each process. KFD has a file for every GPU of the machine there, also for those that the
// process never touches, so a process is on a GPU when it has memory or a queue on it; tools that only look have
// neither. Source: torvalds/linux drivers/gpu/drm/amd/amdkfd/kfd_process.c.
func (f files) compute(cards []card) []gpu.Process {
	owner := map[string]gpu.UUID{}
	for _, c := range cards {
		if c.gpuID != "" {
			owner[c.gpuID] = c.device.UUID
		}
	}
	var out []gpu.Process
	for _, name := range f.names(processFolder) {
		pid, err := strconv.Atoi(name)
		if err != nil || pid <= 0 {
			continue
		}
		k := kfdProcess{files: files{f.path(processFolder, name)}, memory: map[string]gpu.Bytes{}, queues: map[string]bool{}}
		k.read("")
		for _, id := range k.used() {
			if uuid, known := owner[id]; known {
				p := gpu.Process{PID: pid, GPU: uuid, Kind: gpu.ComputeProcess}
				if n, told := k.memory[id]; told {
					p.Memory = &n
				}
				out = append(out, p)
			}
		}
	}
	return out
}

// kfdProcess is what one process has, by KFD's name of the GPU.
type kfdProcess struct {
	files
	memory map[string]gpu.Bytes
	queues map[string]bool
}

// read adds one folder. Newer kernels have one below for each further context of the process.
func (k *kfdProcess) read(folder string) {
	for _, name := range k.names(folder) {
		if strings.HasPrefix(name, "context_") && folder == "" {
			k.read(name)
			continue
		}
		if id, ok := strings.CutPrefix(name, "vram_"); ok {
			if n, err := whole(k.short(folder, name), memoryLimit); err == nil {
				k.memory[id] += gpu.Bytes(n)
			}
		}
	}
	for _, queue := range k.names(folder, "queues") {
		if id := k.short(folder, "queues", queue, "gpuid"); id != "" {
			k.queues[id] = true
		}
	}
}

func (k *kfdProcess) used() []string {
	var out []string
	for id := range k.queues {
		out = append(out, id)
	}
	for id, n := range k.memory {
		if n > 0 && !k.queues[id] {
			out = append(out, id)
		}
	}
	return out
}

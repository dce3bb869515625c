package amdgpu

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
)

const processFolder = "sys/class/kfd/kfd/proc"

// findProcesses lists the processes on the cards: ROCm programs from KFD, which lists those of all users, and others
// (desktop, Vulkan, video) from their open render nodes, which only their owner and root may read.
func (f fileReader) findProcesses(cards []card) []gpu.Process {
	var out []gpu.Process
	if !f.isNestedNamespace() {
		out = f.kfdProcesses(cards)
	}

	seen := map[int]map[gpu.UUID]bool{}
	for _, p := range out {
		if seen[p.PID] == nil {
			seen[p.PID] = map[gpu.UUID]bool{}
		}
		seen[p.PID][p.GPU] = true
	}

	for _, p := range f.renderClients(cards) {
		if !seen[p.PID][p.GPU] {
			out = append(out, p)
		}
	}

	slices.SortFunc(out, func(a, b gpu.Process) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), strings.Compare(string(a.GPU), string(b.GPU)))
	})

	return out
}

// isNestedNamespace reports whether this process is not in the machine's first PID namespace. KFD's PIDs are those of
// the first namespace, and would be those of other processes here. The inode number of the first namespace is
// PROC_PID_INIT_INO in torvalds/linux include/linux/proc_ns.h.
func (f fileReader) isNestedNamespace() bool {
	link, err := os.Readlink(f.filePath("proc/self/ns/pid"))
	return err == nil && link != "pid:[4026531836]"
}

// kfdProcesses reads KFD's folder of each process. KFD has a file there for every GPU of the machine, also for those
// that the process does not use. So a process is on a GPU only if it has memory or a queue there; tools that only read
// have neither. Source: torvalds/linux drivers/gpu/drm/amd/amdkfd/kfd_process.c.
func (f fileReader) kfdProcesses(cards []card) []gpu.Process {
	owner := map[string]gpu.UUID{}
	for _, c := range cards {
		if c.gpuID != "" {
			owner[c.gpuID] = c.device.UUID
		}
	}

	var out []gpu.Process
	for _, name := range f.listNames(processFolder) {
		pid, err := strconv.Atoi(name)
		if err != nil || pid <= 0 {
			continue
		}

		k := kfdProcess{fileReader: fileReader{f.filePath(processFolder, name)}, memory: map[string]gpu.Bytes{}, queues: map[string]bool{}}
		k.readProcess("")

		for _, id := range k.usedGPUs() {
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

// kfdProcess is what one process has on each GPU, by KFD's name of the GPU.
type kfdProcess struct {
	fileReader
	memory map[string]gpu.Bytes
	queues map[string]bool
}

// readProcess adds the files of one folder. Newer kernels have a subfolder for each further context of the process.
func (k *kfdProcess) readProcess(folder string) {
	for _, name := range k.listNames(folder) {
		if strings.HasPrefix(name, "context_") && folder == "" {
			k.readProcess(name)
			continue
		}

		id, isMemory := strings.CutPrefix(name, "vram_")
		if !isMemory {
			continue
		}

		n, err := parseWholeNumber(k.readShort(folder, name), maxMemory)
		if err != nil {
			continue
		}

		k.memory[id] += gpu.Bytes(n)
	}

	for _, queue := range k.listNames(folder, "queues") {
		if id := k.readShort(folder, "queues", queue, "gpuid"); id != "" {
			k.queues[id] = true
		}
	}
}

func (k *kfdProcess) usedGPUs() []string {
	out := slices.Collect(maps.Keys(k.queues))
	for id, n := range k.memory {
		if n > 0 && !k.queues[id] {
			out = append(out, id)
		}
	}

	return out
}

package amd

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gpuard/test/preload"
)

// gpuEntry is one line after another of a machine's file; "gpu" begins one.
type gpuEntry struct {
	pci       string
	bus       int
	name      string
	device    int // PCI device
	target    int // gfx_target_version: 90010 is gfx90a
	unique    uint64
	minor     int // of the render node
	memory    int // MiB
	simds     int // four to a compute unit
	partition int
	node      int // of KFD; 0 is the processor
	missing   bool
}

func parseMachine(t testing.TB, text string) (cards []gpuEntry) {
	t.Helper()
	for _, line := range strings.Split(text, "\n") {
		key, value, _ := strings.Cut(line, " ")
		if key == "" || key == "#" {
			continue
		}
		if key == "gpu" {
			cards = append(cards, gpuEntry{pci: value, simds: 440, node: len(cards) + 1})
		}
		c := &cards[len(cards)-1]
		var err error
		switch key {
		case "gpu":
			_, err = fmt.Sscanf(value, "0000:%x:00.0", &c.bus)
		case "name":
			c.name = value
		case "device":
			_, err = fmt.Sscanf(value, "%x", &c.device)
		case "target":
			c.target, err = strconv.Atoi(value)
		case "unique":
			c.unique, err = strconv.ParseUint(value, 16, 64)
		case "minor":
			c.minor, err = strconv.Atoi(value)
		case "memory":
			c.memory, err = strconv.Atoi(value)
		case "simds":
			c.simds, err = strconv.Atoi(value)
		case "partition":
			c.partition, err = strconv.Atoi(value)
		default:
			err = fmt.Errorf("there is no key %q", key)
		}
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	return cards
}

func (l *InventedMachine) writeFile(path, text string) {
	l.t.Helper()
	preload.WriteFile(l.t, l.root, path, text)
}

func (l *InventedMachine) writeLink(path, target string) {
	l.t.Helper()
	path = filepath.Join(l.root, path)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.Symlink(target, path)
	}
	if err != nil && !os.IsExist(err) {
		l.t.Fatalf("cannot make the invented machine: %v", err)
	}
}

// writeProperties writes a file of KFD: "name number" lines.
func (l *InventedMachine) writeProperties(path string, values ...any) {
	var text strings.Builder
	for i := 0; i < len(values); i += 2 {
		fmt.Fprintln(&text, values[i], values[i+1])
	}
	l.writeFile(path, text.String())
}

const topologyFolder = "sys/devices/virtual/kfd/kfd/topology/"

// writeSysFiles writes what the libraries and gpuard read of /sys. The libraries need every file of KFD here; a number that they do not need
// is left out. Names and meaning: torvalds/linux drivers/gpu/drm/amd/amdkfd/kfd_topology.c.
func (l *InventedMachine) writeSysFiles() {
	l.writeFile(topologyFolder+"generation_id", "1\n")
	l.writeProperties(topologyFolder+"system_properties", "platform_oem", 0, "platform_id", 0, "platform_rev", 0)
	l.writeLink("sys/class/kfd/kfd", "../../devices/virtual/kfd/kfd")
	l.writeFile("sys/module/amdgpu/initstate", "live\n")
	l.writeFile("sys/module/amdgpu/version", "6.12.12\n")
	l.writeFile("proc/modules", "amdgpu 19722240 0 - Live 0x0000000000000000\n")
	l.writeFile("dev/kfd", "") // gpuard looks whether it may use them; the libraries are given others
	processor := topologyFolder + "nodes/0/"
	l.writeFile(processor+"gpu_id", "0\n")
	l.writeProperties(processor+"properties", "cpu_cores_count", 2, "simd_count", 0, "mem_banks_count", 1, "caches_count", 0, "io_links_count", len(l.gpus), "wave_front_size", 0)
	l.writeProperties(processor+"mem_banks/0/properties", "heap_type", 0, "size_in_bytes", int64(8)<<30, "flags", 0, "width", 64, "mem_clk_max", 1600)
	for i, c := range l.gpus {
		l.writeLinkFile(fmt.Sprintf("%sio_links/%d/properties", processor, i), 0, c.node)
		l.writeNodeFiles(i, c)
		l.writePCIFiles(c)
		if !c.missing {
			l.writeFile(fmt.Sprintf("dev/dri/renderD%d", c.minor), "")
		}
	}
}

// writeLinkFile writes a way between two nodes, over PCI.
func (l *InventedMachine) writeLinkFile(path string, from, to int) {
	l.writeProperties(path, "type", 2, "version_major", 0, "version_minor", 0, "node_from", from, "node_to", to, "weight", 20, "min_latency", 0, "max_latency", 0,
		"min_bandwidth", 312, "max_bandwidth", 31504, "recommended_transfer_size", 0, "flags", 1)
}

func (l *InventedMachine) writeNodeFiles(i int, c gpuEntry) {
	node := fmt.Sprintf("%snodes/%d/", topologyFolder, c.node)
	l.writeFile(node+"gpu_id", fmt.Sprintln(10000+1000*i))
	wave := 64
	if c.target >= 100000 { // RDNA
		wave = 32
	}
	l.writeProperties(node+"properties", "cpu_cores_count", 0, "simd_count", c.simds, "mem_banks_count", 1, "caches_count", 1, "io_links_count", 1,
		"max_waves_per_simd", 8, "lds_size_in_kb", 64, "wave_front_size", wave, "array_count", 8, "simd_arrays_per_engine", 1, "cu_per_simd_array", 16,
		"simd_per_cu", wave/16, "max_slots_scratch_cu", 32, "gfx_target_version", c.target, "vendor_id", 0x1002, "device_id", c.device,
		"location_id", c.bus<<8|c.partition<<28, "domain", 0, "drm_render_minor", c.minor, "num_sdma_engines", 2, "num_sdma_queues_per_engine", 8, "num_cp_queues", 24,
		"max_engine_clk_fcompute", 1700, "fw_version", 70, "capability", 671588992, "debug_prop", 1511, "sdma_fw_version", 8, "unique_id", c.unique, "max_engine_clk_ccompute", 3000)
	l.writeProperties(node+"mem_banks/0/properties", "heap_type", 1, "size_in_bytes", int64(c.memory)<<20, "flags", 0, "width", 4096, "mem_clk_max", 1600)
	l.writeProperties(node+"caches/0/properties", "processor_id_low", 4096, "level", 1, "size", 16, "cache_line_size", 64, "cache_lines_per_tag", 1, "association", 64, "latency", 0, "type", 9, "sibling_map", 1)
	l.writeLinkFile(node+"io_links/0/properties", c.node, 0)
}

func (l *InventedMachine) writePCIFiles(c gpuEntry) {
	place := "sys/devices/pci0000:00/" + c.pci + "/"
	l.writeLink("sys/bus/pci/devices/"+c.pci, "../../../devices/pci0000:00/"+c.pci)
	l.writeLink("sys/bus/pci/drivers/amdgpu/"+c.pci, "../../../../devices/pci0000:00/"+c.pci)
	render := fmt.Sprintf("renderD%d", c.minor)
	for name, text := range map[string]string{
		"vendor": "0x1002", "device": fmt.Sprintf("0x%04x", c.device), "revision": "0x01", "class": "0x038000", "numa_node": "0", "product_name": c.name,
		"mem_info_vram_total": strconv.Itoa(c.memory << 20), "mem_info_vram_used": "11000000", "gpu_busy_percent": "0",
		"drm/" + render + "/dev": fmt.Sprintf("226:%d", c.minor),
	} {
		l.writeFile(place+name, text+"\n")
	}
	l.writeLink(place+"drm/"+render+"/device", "../..")
	l.writeLink("sys/class/drm/"+render, "../../devices/pci0000:00/"+c.pci+"/drm/"+render)
	l.writeLink(fmt.Sprintf("sys/dev/char/226:%d", c.minor), "../../devices/pci0000:00/"+c.pci+"/drm/"+render)
}

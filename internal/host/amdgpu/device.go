package amdgpu

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
)

// deviceReader reads one device; its files are those of the PCI device.
type deviceReader struct {
	fileReader
	card card
	deviceAnswer
}

// readingParts lists the steps of reading one device, the most important first.
func (r *deviceReader) readingParts(machine fileReader, what gpu.What) []func() {
	if r.card.dir == "" || strings.Contains(r.device.Problem, "lost") {
		return nil
	}

	out := []func(){func() { r.readIdentity(machine) }}
	if what&gpu.Load != 0 {
		out = append(out, r.readMemory, r.readLoad)
	}

	if what&gpu.Health != 0 {
		out = append(out, r.readHealth)
	}

	return out
}

func (r *deviceReader) addProblem(file, text string) {
	r.problems = append(r.problems[:len(r.problems):len(r.problems)], fmt.Sprintf("cannot read %s: %s", file, text))
}

// readNumber reads a file with one number. It returns nil if there is no such file, or if it cannot be read, which it
// records as a problem.
func (r *deviceReader) readNumber(most int64, parts ...string) *int64 {
	text, err := r.readText(parts...)
	if err != nil {
		if !isAbsent(err) {
			r.addProblem(filepath.Join(parts...), errorReason(err))
		}
		return nil
	}

	n, err := parseWholeNumber(text, most)
	if err != nil {
		r.addProblem(filepath.Join(parts...), prose.Clean(err.Error()))
		return nil
	}

	return &n
}

// Far above any device.
const maxMemory = int64(64 * gpu.TiB)

func (r *deviceReader) readBytes(parts ...string) *gpu.Bytes {
	if n := r.readNumber(maxMemory, parts...); n != nil {
		return new(gpu.Bytes(*n))
	}
	return nil
}

// readScaled reads a number in units of a fraction: millidegrees, hertz.
func (r *deviceReader) readScaled(unit int64, parts ...string) *int {
	if n := r.readNumber(1<<62, parts...); n != nil {
		return new(int((*n + unit/2) / unit))
	}
	return nil
}

// readIdentity reads the name and the memory size. Server boards have a name (product_name); for other boards libdrm
// has a list by device and revision (mesa/drm data/amdgpu.ids), if it is installed.
func (r *deviceReader) readIdentity(machine fileReader) {
	d := &r.device
	code := strings.TrimPrefix(r.readShort("device"), "0x")
	d.Name = prose.Clean(r.readShort("product_name"))
	if d.Name == "" {
		d.Name = machine.marketingName(code, strings.TrimPrefix(r.readShort("revision"), "0x"))
	}

	if d.Name == "" {
		d.Name = strings.TrimSpace("AMD GPU " + prose.Clean(code))
	}

	if r.card.portion {
		d.MemoryTotal = r.partitionMemory(machine)
		return
	}

	d.MemoryTotal = r.readBytes("mem_info_vram_total")
}

// marketingName returns the product name of a device and revision from libdrm's list.
func (f fileReader) marketingName(device, revision string) string {
	if device == "" {
		return ""
	}
	for _, list := range []string{"usr/share/libdrm/amdgpu.ids", "opt/amdgpu/share/libdrm/amdgpu.ids"} {
		text, err := f.readText(list)
		if err != nil {
			continue
		}

		for line := range strings.Lines(text) {
			fields := strings.SplitN(line, ",", 3)
			if len(fields) == 3 && strings.EqualFold(fields[0], device) && strings.EqualFold(strings.TrimSpace(fields[1]), revision) {
				return prose.Clean(strings.TrimSpace(fields[2]))
			}
		}
	}
	return ""
}

// partitionMemory returns the memory of a partition: the sum of KFD's banks of device memory, heap types 1 and 2
// (torvalds/linux drivers/gpu/drm/amd/amdkfd/kfd_topology.h HSA_MEM_HEAP_TYPE_FB_…).
func (r *deviceReader) partitionMemory(machine fileReader) *gpu.Bytes {
	var sum int64
	banks := filepath.Join(nodeFolder, r.card.node, "mem_banks")
	for _, bank := range machine.listNames(banks) {
		text, _ := machine.readText(banks, bank, "properties")
		if p := parseProperties(text); p["heap_type"] == 1 || p["heap_type"] == 2 {
			sum += int64(p["size_in_bytes"] & (1<<56 - 1))
		}
	}

	if sum == 0 || sum > maxMemory {
		return nil
	}

	return new(gpu.Bytes(sum))
}

// readMemory reads the memory in use, which is known only for a whole GPU.
func (r *deviceReader) readMemory() {
	d := &r.device
	if r.card.portion {
		return
	}
	if used := r.readBytes("mem_info_vram_used"); used != nil && d.MemoryTotal != nil {
		d.MemoryUsed = new(min(*used, *d.MemoryTotal))
	}
}

// readLoad reads the sensors. On many kernels that wakes a sleeping GPU, which takes a second and uses power, so load
// skips a sleeping one (torvalds/linux drivers/gpu/drm/amd/pm/amdgpu_pm.c; power/runtime_status).
func (r *deviceReader) readLoad() {
	if r.readShort("power", "runtime_status") == "suspended" {
		return
	}
	d := &r.device
	if !r.card.portion {
		// The file has the sum of all partitions.
		if n := r.readNumber(100, "gpu_busy_percent"); n != nil {
			d.Utilization = new(float64(*n) / 100)
		}
	}

	for _, entry := range r.listNames("hwmon") {
		if r.readShort("hwmon", entry, "name") == "amdgpu" {
			r.readSensors(filepath.Join("hwmon", entry))
			return
		}
	}
}

// readSensors reads hwmon: temperatures in millidegrees, power in microwatts, clocks in hertz (the comment "hwmon" in
// torvalds/linux drivers/gpu/drm/amd/pm/amdgpu_pm.c).
func (r *deviceReader) readSensors(dir string) {
	d := &r.device
	r.readTemperatures(dir)

	for _, name := range []string{"power1_average", "power1_input"} {
		// Boards have one of the two.
		if n := r.readNumber(1e12, dir, name); n != nil {
			d.Power = new(float64(*n) / 1e6)
			break
		}
	}

	if n := r.readNumber(1e12, dir, "power1_cap"); n != nil && *n > 0 {
		d.PowerLimit = new(float64(*n) / 1e6)
	}

	d.ClockSM = r.readScaled(1e6, dir, "freq1_input")
	d.ClockMemory = r.readScaled(1e6, dir, "freq2_input")
}

// readTemperatures reads the edge sensor, as AMD's tools do, or the hottest spot (junction) if there is no edge sensor.
// The margin before the GPU slows down is the smallest one of all sensors: the hottest spot reaches its limit first.
func (r *deviceReader) readTemperatures(dir string) {
	d := &r.device
	shown := 4
	for n := 1; n <= 3; n++ {
		file := func(suffix string) string { return "temp" + strconv.Itoa(n) + suffix }
		now := r.readScaled(1000, dir, file("_input"))
		if now == nil {
			continue
		}

		critical := r.readScaled(1000, dir, file("_crit"))
		if critical != nil && *critical <= 0 {
			critical = nil
		}

		rank := map[string]int{"edge": 0, "": 1, "junction": 2}
		order, known := rank[r.readShort(dir, file("_label"))]
		if !known {
			// "mem".
			order = 3
		}

		if order < shown {
			shown, d.Temperature, d.TempSlowdown = order, now, critical
		}

		if critical != nil && (d.TempMargin == nil || *critical-*now < *d.TempMargin) {
			d.TempMargin = new(*critical - *now)
		}
	}
}

// readHealth reads the memory errors since the driver was loaded, and the retired pages. Formats: the comments "RAS
// sysfs Error Count Interface" and "gpu_vram_bad_pages" in torvalds/linux drivers/gpu/drm/amd/amdgpu/amdgpu_ras.c.
func (r *deviceReader) readHealth() {
	d := &r.device
	for _, file := range []string{"umc_err_count", "aca_umc"} {
		text, err := r.readText("ras", file)
		if err != nil {
			if !isAbsent(err) {
				r.addProblem("ras/"+file, errorReason(err))
			}
			continue
		}

		counts := parseProperties(strings.ReplaceAll(text, ":", " "))
		if n, ok := counts["ue"]; ok {
			d.ECC, d.ECCUncorrected = new(true), new(int64(n&(1<<62-1)))
		}

		if n, ok := counts["ce"]; ok {
			d.ECC, d.ECCCorrected = new(true), new(int64(n&(1<<62-1)))
		}

		break
	}
	if text, err := r.readText("ras", "gpu_vram_bad_pages"); err == nil {
		d.RetiredPages = parseRetiredPages(text)
	}
}

// parseRetiredPages reads lines such as "0x00000001 : 0x00001000 : R": R is retired, P is pending. Pages are retired
// for errors that could not be corrected.
func parseRetiredPages(text string) *gpu.RetiredPages {
	var out gpu.RetiredPages
	for line := range strings.Lines(text) {
		fields := strings.Split(line, ":")
		switch strings.TrimSpace(fields[len(fields)-1]) {
		case "R":
			out.DoubleBit++
		case "P":
			out.Pending = true
		}
	}
	return &out
}

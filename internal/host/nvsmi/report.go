package nvsmi

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
)

// parsedReport is a parsed output before the names of MIG devices are known.
type parsedReport struct {
	driver, cuda string
	units        []unassignedDevice
	problems     []string
}

// unassignedDevice is a device with its slices and processes, which are not assigned to it yet.
type unassignedDevice struct {
	device gpu.Device
	// The slices without UUID until named; with the index unlisted: known by a process alone, or without its instances.
	slices    []gpu.MIGDevice
	processes []xmlProcess
	// Readings in whose place nvidia-smi wrote an error.
	failed []string
}

// maxProblems limits the messages that are taken from nvidia-smi.
const maxProblems = 32

// parseReport reads what `nvidia-smi -q -x` printed on standard output and standard error.
func parseReport(out, errs []byte) (*parsedReport, error) {
	if len(out) > maxReportSize {
		return nil, driverError("the output of nvidia-smi has more than %d MiB", maxReportSize>>20)
	}

	begin := bytes.Index(out, []byte("<nvidia_smi_log"))
	if begin < 0 {
		return nil, explainOutput(string(out) + "\n" + string(errs))
	}

	doc, err := decodeDocument(out[begin:])
	if err != nil {
		return nil, driverError("the output of nvidia-smi is damaged: %s", firstTextLine(err.Error()))
	}

	r := &parsedReport{driver: cleanWord(doc.driver), cuda: cleanWord(doc.cuda)}
	seen := map[gpu.UUID]bool{}
	for i := range doc.gpus {
		u := doc.gpus[i].toUnit()
		if seen[u.device.UUID] && u.device.UUID != "" {
			r.addProblem("nvidia-smi describes %s twice: only the first is used", u.device.UUID)
			continue
		}
		seen[u.device.UUID] = true
		r.units = append(r.units, u)
	}

	if doc.damage != "" {
		r.addProblem("the output of nvidia-smi is damaged behind GPU %d, so GPUs behind it are not known: %s", len(doc.gpus)-1, firstTextLine(doc.damage))
	}

	tail := out[begin:]
	tail = tail[bytes.LastIndex(tail, []byte("</nvidia_smi_log>"))+1:]
	_, after, _ := strings.Cut(string(tail), ">")
	r.readComplaints(textBeforeDocument(string(out[:begin])) + "\n" + doc.loose + "\n" + after + "\n" + string(errs))
	if n := parseCount(doc.attached); n != nil && *n > int64(len(r.units)) {
		r.addProblem("nvidia-smi counts %d GPUs and describes %d", *n, len(r.units))
	}

	if len(r.units) == 0 {
		return nil, explainOutput("No devices were found")
	}

	return r, r.checkIdentified()
}

// checkIdentified returns an error if no device has a UUID.
func (r *parsedReport) checkIdentified() error {
	for _, u := range r.units {
		if u.device.UUID != "" {
			return nil
		}
	}
	return driverError("nvidia-smi can use none of %d GPUs; the first: %s", len(r.units), r.units[0].device.Problem)
}

// textBeforeDocument returns the text before the document, without XML declarations.
func textBeforeDocument(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if t := strings.TrimSpace(line); !strings.HasPrefix(t, "<?xml") && !strings.HasPrefix(t, "<!DOCTYPE") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func (r *parsedReport) addProblem(format string, args ...any) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, fmt.Sprintf(format, args...))
	}
}

// readComplaints reads the lines that nvidia-smi prints outside of the document.
func (r *parsedReport) readComplaints(text string) {
	for line := range strings.Lines(text) {
		line = truncate(strings.TrimSpace(prose.Clean(line)), 300)
		if line == "" {
			continue
		}
		if rest, ok := strings.CutPrefix(line, "Unable to determine the device handle for GPU"); ok {
			r.addLostDevice(strings.TrimSpace(rest), line)
			continue
		}
		if !slices.Contains(r.problems, line) {
			r.addProblem("%s", line)
		}
	}
}

// addLostDevice adds a device that has no element because the driver cannot open it. The line has one of these forms:
// "GPU 0000:02:00.0: GPU is lost. …", "GPU0000:65:00.0: Unknown Error", "GPU3: 0000:5F:00.0: Unknown Error".
func (r *parsedReport) addLostDevice(rest, line string) {
	index := -1
	if number, after, ok := strings.Cut(rest, ": "); ok {
		if n, err := strconv.Atoi(number); err == nil && n >= 0 && n < 1024 {
			index, rest = n, after
		}
	}

	address, reason, _ := strings.Cut(rest, ": ")
	pci := kernelAddress(address)
	if pci == "" && index < 0 {
		r.addProblem("%s", line)
		return
	}

	if pci == "" {
		reason = rest
	}

	problem := "cannot open the device: " + reason
	if strings.Contains(reason, "GPU is lost") {
		problem = "GPU is lost"
	}

	at := len(r.units)
	for i, u := range r.units {
		if pci != "" && u.device.PCI == pci {
			// Reported twice, on standard output and standard error.
			return
		}
		if at == len(r.units) && (index == i || index < 0 && u.device.PCI > pci) {
			// NVML counts devices in the order of their PCI addresses, this one included.
			at = i
		}
	}

	r.units = slices.Insert(r.units, at, unassignedDevice{device: gpu.Device{Vendor: gpu.NVIDIA, PCI: pci, Problem: problem}})
}

// toUnit converts one <gpu> element.
func (g *xmlGPU) toUnit() unassignedDevice {
	u := unassignedDevice{device: g.toDevice(), failed: g.failedReadings()}
	for _, l := range []xmlProcesses{g.Processes, g.ProcessesOld} {
		u.processes = append(u.processes, l.List...)
		if text := strings.TrimSpace(prose.Clean(l.Text)); text != "" {
			u.device.Unlisted = "cannot list its processes: nvidia-smi says " + truncate(text, 60)
		}
	}

	u.addSlices(g.MIG)
	if mode := strings.TrimSpace(g.MIGMode); mode == "" || mode == "Enabled" {
		// A device without MIG has processes without instances.
		u.addSlicesOfProcesses()
	}

	if len(u.slices) > 0 {
		u.device.MIGMode = new(true)
	}

	return u
}

// unlistedIndex is the index of a slice that nvidia-smi -L cannot name.
const unlistedIndex = -1

// addSlices adds the slices that are described. A device with any is in MIG mode, whatever else is said of it: it is
// not given whole.
func (u *unassignedDevice) addSlices(described []xmlMIG) {
	for i := range described {
		x := &described[i]
		s := gpu.MIGDevice{Index: unlistedIndex, GPUInstance: unlistedIndex, MemoryTotal: parseMemory(x.Memory.Total), MemoryUsed: parseMemory(x.Memory.Used)}
		gi, ci, ok := readInstance(x.GI, x.CI)
		if index := parseCount(x.Index); index != nil && ok {
			s.Index, s.UUID, s.GPUInstance, s.ComputeInstance = int(*index), safeUUID(x.UUID, "MIG-"), gi, ci
		}

		u.slices = append(u.slices, s)
	}
}

// addSlicesOfProcesses adds the slices that only a process names.
func (u *unassignedDevice) addSlicesOfProcesses() {
	for i := range u.processes {
		gi, ci, ok := readInstance(u.processes[i].GI, u.processes[i].CI)
		if ok && !slices.ContainsFunc(u.slices, func(s gpu.MIGDevice) bool { return s.GPUInstance == gi && s.ComputeInstance == ci }) {
			u.slices = append(u.slices, gpu.MIGDevice{Index: unlistedIndex, GPUInstance: gi, ComputeInstance: ci})
		}
	}
}

// maxInstances is above every number of an instance: 4294967295 is the library's way of saying that there is none.
const maxInstances = 1 << 16

// readInstance reads the two numbers of a slice; ok is false where one is missing.
func readInstance(gi, ci string) (g, c int, ok bool) {
	one, two := parseCount(gi), parseCount(ci)
	if one == nil || two == nil || max(*one, *two) > maxInstances {
		return 0, 0, false
	}
	return int(*one), int(*two), true
}

// toMachine makes the machine from the units.
func (r *parsedReport) toMachine() gpu.Machine {
	m := gpu.Machine{Driver: r.driver, CUDA: r.cuda, Source: "nvidia-smi", Problems: slices.Clone(r.problems)}
	for i, u := range r.units {
		d := u.device
		d.Index = i
		if d.Problem != "" {
			m.Problems = append(m.Problems, fmt.Sprintf("GPU %d: %s", i, d.Problem))
		}

		for _, what := range u.failed {
			m.Problems = append(m.Problems, fmt.Sprintf("GPU %d: cannot read its %s: nvidia-smi says that there was an error", i, what))
		}

		unnamed := 0
		for _, s := range u.slices {
			if s.UUID == "" {
				unnamed++
				continue
			}
			d.MIG = append(d.MIG, s)
		}

		if unnamed > 0 {
			m.Problems = append(m.Problems, fmt.Sprintf("GPU %d: %d of its MIG devices cannot be named, so no job gets them and their processes count for the whole GPU: nvidia-smi -L does not name them; see whether sudo nvidia-smi -L does", i, unnamed))
		}

		m.Devices = append(m.Devices, d)
		m.Processes = append(m.Processes, u.assignProcesses(&d)...)
	}
	return m
}

// assignProcesses assigns each process to the device, or to its slice with the same instance ids. The processes of a
// slice without a UUID are assigned to the device, so that they do not disappear.
func (u *unassignedDevice) assignProcesses(d *gpu.Device) []gpu.Process {
	if d.UUID == "" {
		return nil
	}
	var out []gpu.Process
	for i := range u.processes {
		x := &u.processes[i]
		p, ok := x.toProcess()
		if !ok {
			continue
		}

		p.GPU = d.UUID
		gi, ci, sliced := readInstance(x.GI, x.CI)
		for _, s := range d.MIG {
			if sliced && s.GPUInstance == gi && s.ComputeInstance == ci {
				p.GPU = s.UUID
			}
		}

		out = p.AddTo(out)
	}

	return out
}

package gpu

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"gpuard/internal/core/option"
)

const (
	fileSchema = "gpuard.machine/1"
	fileLimit  = 16 << 20 // bytes
	// Far above any device.
	memoryLimit = 64 * TiB
	// PID_MAX_LIMIT, torvalds/linux include/linux/threads.h.
	pidLimit = 1 << 22
)

// DecodeMachine reads a machine file: JSON as Encode writes it, at most 16 MiB. Only the identity, memory, utilisation
// and temperature of each device and the facts of each process are required; a reading that is null is absent. Unknown
// keys are kept in Extra. Source is always "file", because the processes of a file must not be looked up in /proc.
// Errors name line, column and key.
func DecodeMachine(data []byte) (Machine, error) {
	if len(data) > fileLimit {
		return Machine{}, option.Errorf("cannot read machine file: it is larger than %v: record a smaller one with {gpuard status} {record}", Bytes(fileLimit))
	}

	d := &document{data: bytes.TrimPrefix(data, []byte("\ufeff"))}
	root, err := d.parseDocument()
	if err != nil {
		return Machine{}, err
	}

	var m Machine
	if err := d.checkSchema(&root); err != nil {
		return Machine{}, err
	}
	if err := m.fileRecord().readNode(d, &root, ""); err != nil {
		return Machine{}, err
	}
	if err := d.checkDevices(&root, &m); err != nil {
		return Machine{}, err
	}

	m.Source = "file"

	return m, nil
}

// Encode writes the machine as indented JSON with one newline at the end. Readings that are absent are null where the
// key is required and left out elsewhere. The error is a number that JSON cannot hold, or a kept key that is not JSON.
func (m Machine) Encode() ([]byte, error) {
	var compact, out bytes.Buffer
	enc := json.NewEncoder(&compact)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m.fileRecord().jsonValue()); err != nil {
		return nil, fmt.Errorf("cannot write machine file: %w", err)
	}
	if err := json.Indent(&out, compact.Bytes(), "", "  "); err != nil {
		return nil, fmt.Errorf("cannot write machine file: %w", err)
	}

	return append(bytes.TrimSpace(out.Bytes()), '\n'), nil
}

// fixedText is the schema key: always written, and checked before all others.
type fixedText string

func (fixedText) readNode(*document, *node, string) error { return nil }
func (f fixedText) jsonValue() any                        { return string(f) }

func (d *document) checkSchema(root *node) error {
	n := root.findKey("schema")
	if n == nil || n.kind == '"' && n.text == fileSchema {
		return nil
	}

	name, major, _ := strings.Cut(n.text, "/")
	if _, err := strconv.Atoi(major); name == "gpuard.machine" && err == nil {
		return d.errorAt(n.begin, "schema is %q and this gpuard reads only %q: use the version of gpuard that recorded it", n.text, fileSchema)
	}

	return d.errorAt(n.begin, "schema must be %q: record a machine with %s", fileSchema, option.Expand("{gpuard status} {record}"))
}

func (m *Machine) fileRecord() record {
	source := m.Source
	return record{[]key{
		{"schema", false, fixedText(fileSchema)},
		{"taken", true, instant{&m.Taken}},
		{"driver", true, text[string]{into: &m.Driver}},
		{"cuda", true, text[string]{into: &m.CUDA}},
		{"source", false, text[string]{into: &source}},
		{"problems", false, list[string]{&m.Problems, wordValue, true}},
		{"gpus", true, list[Device]{&m.Devices, func(d *Device) value { return d.fileRecord() }, false}},
		{"processes", true, list[Process]{&m.Processes, func(p *Process) value { return p.fileRecord() }, false}},
	}, &m.Extra}
}

func (d *Device) fileRecord() record {
	keys := []key{
		{"index", true, number[int]{into: &d.Index, high: 4095}},
		{"uuid", true, uuidValue(&d.UUID)},
		{"name", true, text[string]{into: &d.Name, filled: true, want: "the model's name"}},
		{"vendor", true, textOneOf(&d.Vendor, true, Vendors()...)},
		{"pci", true, text[string]{into: &d.PCI, tidy: tidyPCI, want: "a PCI address such as 0000:17:00.0"}},
		{"minor", true, integerValue(&d.Minor, 0, 1<<20)},
		{"memory_total", true, memoryValue(&d.MemoryTotal)},
		{"memory_used", true, memoryValue(&d.MemoryUsed)},
		{"memory_reserved", false, memoryValue(&d.MemoryReserved)},
		{"utilization", true, fractionValue(&d.Utilization, 1)},
		{"temperature", true, integerValue(&d.Temperature, -100, 300)},
	}
	return record{append(keys, d.optionalKeys()...), &d.Extra}
}

// optionalKeys are the keys of a device that a file may leave out.
func (d *Device) optionalKeys() []key {
	return []key{
		{"memory_utilization", false, fractionValue(&d.MemoryLoad, 1)},
		{"temp_slowdown", false, integerValue(&d.TempSlowdown, -100, 300)},
		{"temp_margin", false, integerValue(&d.TempMargin, -300, 300)},
		{"power", false, fractionValue(&d.Power, 1e5)},
		{"power_limit", false, fractionValue(&d.PowerLimit, 1e5)},
		{"energy", false, fractionValue(&d.Energy, mostJoules)},
		{"clock_sm", false, integerValue(&d.ClockSM, 0, 1e5)},
		{"clock_sm_max", false, integerValue(&d.ClockSMMax, 0, 1e5)},
		{"clock_memory", false, integerValue(&d.ClockMemory, 0, 1e5)},
		{"clock_events", false, list[string]{&d.ClockEvents, wordValue, true}},
		{"ecc", false, boolValue(&d.ECC)},
		{"ecc_corrected", false, integerValue(&d.ECCCorrected, 0, 1<<62)},
		{"ecc_uncorrected", false, integerValue(&d.ECCUncorrected, 0, 1<<62)},
		{"remapped_rows", false, optional[RemappedRows]{&d.RemappedRows, func(r *RemappedRows) value {
			return record{keys: []key{
				{"correctable", true, number[int]{into: &r.Correctable, high: 1 << 30}},
				{"uncorrectable", true, number[int]{into: &r.Uncorrectable, high: 1 << 30}},
				{"pending", true, truth{&r.Pending}},
				{"failed", true, truth{&r.Failed}},
			}}
		}}},
		{"retired_pages", false, optional[RetiredPages]{&d.RetiredPages, func(r *RetiredPages) value {
			return record{keys: []key{
				{"single_bit", true, number[int]{into: &r.SingleBit, high: 1 << 30}},
				{"double_bit", true, number[int]{into: &r.DoubleBit, high: 1 << 30}},
				{"pending", true, truth{&r.Pending}},
			}}
		}}},
		{"xids", false, list[XID]{&d.XIDs, func(x *XID) value { return x.fileRecord() }, true}},
		{"drained", false, text[string]{into: &d.Drained}},
		{"recovery_action", false, text[string]{into: &d.RecoveryAction}},
		{"fabric", false, list[string]{&d.Fabric, wordValue, true}},
		{"persistence", false, boolValue(&d.Persistence)},
		{"compute_mode", false, text[string]{into: &d.ComputeMode}},
		{"integrated", false, boolValue(&d.Integrated)},
		{"main_memory", false, memoryValue(&d.MainMemory)},
		{"main_available", false, memoryValue(&d.MainAvailable)},
		{"compute", false, optional[Capability]{&d.Compute, func(c *Capability) value { return capability{c} }}},
		{"numa", false, integerValue(&d.NUMA, 0, 1<<16)},
		{"mig_mode", false, boolValue(&d.MIGMode)},
		{"mig", false, list[MIGDevice]{&d.MIG, func(m *MIGDevice) value { return m.fileRecord() }, true}},
		{"display_active", false, boolValue(&d.DisplayActive)},
		{"links", false, list[Link]{&d.Links, func(l *Link) value {
			return keepEmpty{textOneOf(l, false, LinkSelf, LinkNVLink, LinkSwitch, LinkBridge, LinkNode, LinkSystem)}
		}, true}},
		{"problem", false, text[string]{into: &d.Problem}},
		{"unlisted", false, text[string]{into: &d.Unlisted}},
	}
}

func (m *MIGDevice) fileRecord() record {
	return record{[]key{
		{"index", true, number[int]{into: &m.Index, high: 4095}},
		{"uuid", true, uuidValue(&m.UUID)},
		{"profile", true, text[string]{into: &m.Profile, filled: true, want: "a profile such as 1g.10gb"}},
		{"gpu_instance", true, number[int]{into: &m.GPUInstance, high: 4095}},
		{"compute_instance", true, number[int]{into: &m.ComputeInstance, high: 4095}},
		{"memory_total", true, memoryValue(&m.MemoryTotal)},
		{"memory_used", true, memoryValue(&m.MemoryUsed)},
	}, &m.Extra}
}

func (x *XID) fileRecord() record {
	return record{keys: []key{
		{"code", true, number[int]{into: &x.Code, high: 1 << 20}},
		{"at", true, instant{&x.At}},
		{"pid", false, number[int]{into: &x.PID, high: pidLimit, hideZero: true}},
		{"source", false, text[string]{into: &x.Source}},
	}}
}

func (p *Process) fileRecord() record {
	return record{[]key{
		{"pid", true, number[int]{into: &p.PID, high: pidLimit}},
		{"outside_pid", false, number[int]{into: &p.Outside, high: pidLimit, hideZero: true}},
		{"gpu", true, uuidValue(&p.GPU)},
		{"memory", true, memoryValue(&p.Memory)},
		{"user", true, text[string]{into: &p.User}},
		{"command", true, text[string]{into: &p.Command}},
		{"kind", false, textOneOf(&p.Kind, false, ComputeProcess, GraphicsProcess, BothKinds)},
		{"uid", false, optional[uint32]{&p.UID, func(u *uint32) value { return number[uint32]{into: u, high: 1<<32 - 1} }}},
		{"start", false, number[uint64]{into: &p.Start, high: 1 << 62, hideZero: true}},
		{"started", false, instant{&p.Started}},
		{"state", false, text[string]{into: &p.State}},
		{"cgroup", false, text[string]{into: &p.Cgroup}},
		{"container", false, text[string]{into: &p.Container}},
	}, &p.Extra}
}

// checkDevices checks what single keys cannot show: that identities are unique and references valid.
func (d *document) checkDevices(root *node, m *Machine) error {
	gpus := root.findKey("gpus")
	owner := map[UUID]string{}
	claim := func(id UUID, n *node, path string) error {
		if first, taken := owner[id]; taken {
			return d.errorAt(n.findKey("uuid").begin, "%s.uuid is %q, which is already %s: every device has its own", path, id, first)
		}
		owner[id] = path
		return nil
	}

	index := map[string]int{}
	for i := range m.Devices {
		dev, n, path := &m.Devices[i], &gpus.items[i], fmt.Sprintf("gpus[%d]", i)
		if err := claim(dev.UUID, n, path); err != nil {
			return err
		}

		place := fmt.Sprintf("%s:%d", dev.Vendor, dev.Index)
		if first, taken := index[place]; taken {
			return d.errorAt(n.findKey("index").begin, "%s.index is %d, as is gpus[%d].index: give each %s device its own", path, dev.Index, first, dev.Vendor)
		}

		index[place] = i
		if err := d.checkMemory(n, path, dev.MemoryTotal, dev.MemoryUsed); err != nil {
			return err
		}
		if err := d.checkMainMemory(n, path, dev); err != nil {
			return err
		}
		if dev.Links != nil && len(dev.Links) != len(m.Devices) {
			return d.errorAt(n.findKey("links").begin, "%s.links has %d entries for %d devices: write one for each, in the order of gpus", path, len(dev.Links), len(m.Devices))
		}

		for j := range dev.MIG {
			slice, at, path := &dev.MIG[j], &n.findKey("mig").items[j], fmt.Sprintf("%s.mig[%d]", path, j)
			if err := claim(slice.UUID, at, path); err != nil {
				return err
			}
			if err := d.checkMemory(at, path, slice.MemoryTotal, slice.MemoryUsed); err != nil {
				return err
			}
		}
	}

	for i, p := range m.Processes {
		if p.PID == 0 && p.Outside == 0 {
			return d.errorAt(root.findKey("processes").items[i].findKey("pid").begin, "processes[%d].pid is 0: write a number from 1 to %d, or outside_pid beside it", i, pidLimit)
		}
		if _, known := owner[p.GPU]; !known {
			return d.errorAt(root.findKey("processes").items[i].findKey("gpu").begin, "processes[%d].gpu is %q, which no device in this file has: write the uuid of one of gpus or of its mig devices", i, p.GPU)
		}
	}

	return nil
}

// checkMainMemory checks the main memory of a device: both readings or none.
func (d *document) checkMainMemory(n *node, path string, dev *Device) error {
	switch {
	case dev.MainMemory == nil && dev.MainAvailable == nil:
		return nil
	case dev.MainMemory == nil || dev.MainAvailable == nil:
		return d.errorAt(n.begin, "%s has one of main_memory and main_available: write both or none", path)
	case *dev.MainMemory == 0 || *dev.MainAvailable > *dev.MainMemory:
		return d.errorAt(n.findKey("main_available").begin, "%s.main_available is %d, and main_memory is %d: it must be more than 0 and hold what is available", path, *dev.MainAvailable, *dev.MainMemory)
	}
	return nil
}

func (d *document) checkMemory(n *node, path string, total, used *Bytes) error {
	if total != nil && used != nil && *used > *total {
		return d.errorAt(n.findKey("memory_used").begin, "%s.memory_used is %d, more than its memory_total of %d", path, *used, *total)
	}
	return nil
}

// uuidValue is a UUID without commas or spaces, because it is written to comma-separated variables and to terminals.
func uuidValue(into *UUID) value {
	return text[UUID]{into, true, func(id UUID) (UUID, bool) {
		return id, len(id) <= 128 && !strings.ContainsAny(string(id), ", ;=\u00a0\t")
	}, "a device's UUID such as GPU-8932f937-…"}
}

func memoryValue(into **Bytes) value { return integerValue(into, 0, memoryLimit) }

func integerValue[N ~int | ~int64](into **N, low, high N) value {
	return optional[N]{into, func(n *N) value { return number[N]{into: n, low: low, high: high} }}
}

func fractionValue(into **float64, high float64) value {
	return optional[float64]{into, func(f *float64) value { return number[float64]{into: f, high: high} }}
}

func boolValue(into **bool) value {
	return optional[bool]{into, func(b *bool) value { return truth{b} }}
}

func wordValue(s *string) value { return keepEmpty{text[string]{into: s}} }

// keepEmpty writes an empty text inside a list, where leaving it out would shift the others.
type keepEmpty struct{ value }

func (a keepEmpty) jsonValue() any {
	if v := a.value.jsonValue(); v != nil {
		return v
	}
	return ""
}

// tidyPCI converts a PCI address to the kernel's form: NVML writes eight digits of domain in upper case.
func tidyPCI(s string) (string, bool) {
	s = strings.ToLower(s)
	parts := regexp.MustCompile(`^(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])$`).FindStringSubmatch(s)
	if parts == nil {
		return "", false
	}

	domain, err := strconv.ParseUint("0"+parts[1], 16, 33)

	return fmt.Sprintf("%04x:%s", domain, parts[2]), err == nil
}

package gpu

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// Devices.
const maxInvented = 64

// model describes one kind of device. Memory is what the driver reports for the card, which is not the round number in
// its name.
type model struct {
	word    string
	name    string
	vendor  Vendor
	memory  Bytes
	compute Capability // zero for AMD
	// Watts, default limit.
	power    float64
	slowdown int // Celsius
	// MHz, highest SM clock.
	clock int
	// Devices reach each other by NVLink, or by AMD's Infinity Fabric.
	fabric bool
	// ECC on and persistence mode on.
	server bool
	// A system on a chip: memory is the machine's.
	chip bool
}

// knownModels lists all kinds. Sources: NVIDIA's data sheets and nvidia-smi as quoted in public issue reports; for AMD
// the vram_total of the amdgpu kernel driver, one entry per graphics die.
func knownModels() []model {
	return []model{
		{"A100-40GB", "NVIDIA A100-SXM4-40GB", NVIDIA, 40960 * MiB, Capability{8, 0}, 400, 89, 1410, true, true, false},
		{"A100-80GB", "NVIDIA A100-SXM4-80GB", NVIDIA, 81920 * MiB, Capability{8, 0}, 400, 89, 1410, true, true, false},
		{"H100", "NVIDIA H100 80GB HBM3", NVIDIA, 81559 * MiB, Capability{9, 0}, 700, 92, 1980, true, true, false},
		{"H200", "NVIDIA H200", NVIDIA, 143771 * MiB, Capability{9, 0}, 700, 92, 1980, true, true, false},
		{"B200", "NVIDIA B200", NVIDIA, 183359 * MiB, Capability{10, 0}, 1000, 92, 1965, true, true, false},
		{"L4", "NVIDIA L4", NVIDIA, 23034 * MiB, Capability{8, 9}, 72, 92, 2040, false, true, false},
		{"L40S", "NVIDIA L40S", NVIDIA, 46068 * MiB, Capability{8, 9}, 350, 92, 2520, false, true, false},
		{"T4", "Tesla T4", NVIDIA, 15360 * MiB, Capability{7, 5}, 70, 93, 1590, false, true, false},
		{"V100-32GB", "Tesla V100-SXM2-32GB", NVIDIA, 32768 * MiB, Capability{7, 0}, 300, 87, 1530, true, true, false},
		{"RTX4090", "NVIDIA GeForce RTX 4090", NVIDIA, 24564 * MiB, Capability{8, 9}, 450, 90, 3105, false, false, false},
		{"RTX3090", "NVIDIA GeForce RTX 3090", NVIDIA, 24576 * MiB, Capability{8, 6}, 350, 95, 2100, false, false, false},
		{"RTX6000Ada", "NVIDIA RTX 6000 Ada Generation", NVIDIA, 49140 * MiB, Capability{8, 9}, 300, 92, 3105, false, false, false},
		{"MI250X", "AMD Instinct MI250X", AMD, 65520 * MiB, Capability{}, 560, 105, 1700, true, true, false},
		{"GB10", "NVIDIA GB10", NVIDIA, 122570 * MiB, Capability{12, 1}, 140, 95, 3003, false, false, true},
		{"MI300X", "AMD Instinct MI300X", AMD, 196592 * MiB, Capability{}, 750, 100, 2100, true, true, false},
	}
}

// InventMachine makes an idle, healthy machine that is always the same, UUIDs included: "demo" is "demo:4xA100-80GB";
// "demo:2xL4+1xH100" joins kinds; "demo:1xA100-80GB:1g.10gb*7" splits each device into MIG slices. At most 64 devices.
// Taken is zero. The error lists the models.
func InventMachine(spec string) (Machine, error) {
	if spec == "demo" {
		spec = "demo:4xA100-80GB"
	}

	kinds, ok := strings.CutPrefix(spec, "demo:")
	if !ok {
		return Machine{}, fmt.Errorf("cannot invent the machine %q: write demo, or demo:4xA100-80GB, or demo:2xL4+1xH100", spec)
	}

	m := Machine{Source: "invented", Processes: []Process{}}
	next := map[Vendor]int{}
	for part := range strings.SplitSeq(kinds, "+") {
		count, kind, slices, err := parseKind(spec, part)
		if err != nil {
			return Machine{}, err
		}
		if len(m.Devices)+count > maxInvented {
			return Machine{}, fmt.Errorf("cannot invent the machine %q: it has more than %d devices", spec, maxInvented)
		}
		if kind.chip && (count > 1 || next[kind.vendor] > 0) {
			return Machine{}, fmt.Errorf("cannot invent the machine %q: %s is the processor of a machine, which has one of it: put it first, as in demo:1x%s", spec, kind.word, kind.word)
		}

		for range count {
			d := kind.newDevice(next[kind.vendor], len(m.Devices))
			d.splitIntoSlices(slices)
			m.Devices = append(m.Devices, d)
			next[kind.vendor]++
		}
	}

	m.Driver = "6.12.12"
	if next[NVIDIA] > 0 {
		m.Driver, m.CUDA = "580.95.05", "13.0"
	}

	m.linkDevices()

	return m, nil
}

// splitKind splits "4xL4" into "4" and "L4"; the number may be missing. A sweep reads a machine for each run, and would
// compile a regular expression each time.
func splitKind(s string) (count, name string, ok bool) {
	name = strings.TrimLeft(s, "0123456789")
	count = s[:len(s)-len(name)]
	if count != "" {
		if name == "" || name[0] != 'x' && name[0] != 'X' {
			return "", "", false
		}
		name = name[1:]
	}

	return count, name, strings.IndexFunc(name, unicode.IsLetter) == 0
}

// parseKind reads "4xA100-80GB" or "1xA100-80GB:1g.10gb*7".
func parseKind(spec, part string) (int, model, []string, error) {
	fail := func(format string, args ...any) (int, model, []string, error) {
		return 0, model{}, nil, fmt.Errorf("cannot invent the machine %q: %s", spec, fmt.Sprintf(format, args...))
	}

	whole, layout, split := strings.Cut(part, ":")
	number, name, ok := splitKind(whole)
	if !ok {
		return fail("%q is not a kind of device: write a number, an x and a model, such as 4xA100-80GB", whole)
	}

	count := 1
	if number != "" {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > maxInvented {
			return fail("%s devices of a kind are outside 1 to %d", number, maxInvented)
		}
		count = n
	}

	var words []string
	for _, k := range knownModels() {
		if !strings.EqualFold(k.word, name) {
			words = append(words, k.word)
			continue
		}

		if !split {
			return count, k, nil, nil
		}

		slices, err := k.parseLayout(layout)
		if err != nil {
			return fail("%v", err)
		}

		return count, k, slices, nil
	}

	return fail("the model %q is not known: write one of %s", name, strings.Join(words, ", "))
}

// parseLayout reads "1g.10gb*3,3g.40gb" and refuses more slices than the device has.
func (m model) parseLayout(text string) ([]string, error) {
	if m.vendor != NVIDIA || m.compute.Major < 8 || m.compute.Minor != 0 {
		return nil, fmt.Errorf("a %s cannot be split into MIG devices: use A100-40GB, A100-80GB, H100, H200 or B200", m.word)
	}

	var out []string
	var units int
	var room Bytes
	for part := range strings.SplitSeq(text, ",") {
		profile, times, repeated := strings.Cut(part, "*")
		n := 1
		var err error
		if repeated {
			n, err = strconv.Atoi(times)
		}

		g, memory, ok := sliceSize(profile)
		if err != nil || !ok || n < 1 || n > 7 {
			return nil, fmt.Errorf("%q is not a MIG layout: write it as 1g.10gb*7 or 3g.40gb,1g.10gb*2", part)
		}

		units, room = units+n*g, room+Bytes(n)*memory

		for range n {
			out = append(out, profile)
		}
	}

	if units > 7 || room > m.memory+GiB {
		return nil, fmt.Errorf("%q asks for more than the 7 compute slices and %v of a %s: leave some out", text, m.memory, m.word)
	}

	return out, nil
}

// sliceSize reads "3g.40gb" as 3 compute slices and 40 GiB.
func sliceSize(profile string) (int, Bytes, bool) {
	got := regexp.MustCompile(`^([1-7])g\.([0-9]{1,3})gb$`).FindStringSubmatch(profile)
	if got == nil {
		return 0, 0, false
	}

	g, _ := strconv.Atoi(got[1])
	gib, _ := strconv.Atoi(got[2])

	return g, Bytes(gib) * GiB, gib > 0
}

// newDevice makes device index of its vendor, at a position in the whole machine.
func (m model) newDevice(index, place int) Device {
	id := sha256.Sum256(fmt.Appendf(nil, "gpuard demo %s %d", m.name, index))
	d := Device{
		Index: index, Name: m.name, Vendor: m.vendor,
		PCI:            fmt.Sprintf("0000:%02x:00.0", 7+3*place),
		MemoryTotal:    new(m.memory),
		MemoryUsed:     new(Bytes(0)),
		MemoryReserved: new(m.memory / 128 / MiB * MiB), // drivers keep somewhat less than one percent
		Utilization:    new(0.0),
		Temperature:    new(30 + int(id[31])%6),
		TempSlowdown:   new(m.slowdown),
		Power:          new(float64(int(m.power * 0.12))),
		PowerLimit:     new(m.power),
		ClockSM:        new(210),
		ClockSMMax:     new(m.clock),
		ClockEvents:    []string{},
	}

	if m.chip {
		d.Integrated, d.MainMemory, d.MainAvailable = new(true), new(m.memory), new(m.memory-4*GiB)
		d.MemoryTotal, d.MemoryUsed, d.MemoryReserved = nil, nil, nil
	}

	if m.server {
		d.ECC, d.ECCCorrected, d.ECCUncorrected = new(true), new(int64(0)), new(int64(0))
	}

	if m.vendor == AMD {
		d.UUID = UUID(fmt.Sprintf("GPU-%x", id[:8]))
		return d
	}

	d.UUID = formatUUID("GPU-", id)
	d.Minor = new(index)
	d.RecoveryAction, d.ComputeMode = "none", "default"
	d.Persistence, d.Compute = new(m.server), new(m.compute)
	if m.server && m.compute.Major >= 8 {
		d.RemappedRows = new(RemappedRows{})
	}

	if m.compute.Major >= 8 && m.compute.Minor == 0 {
		d.MIGMode = new(false)
	}

	return d
}

// splitIntoSlices turns the device into MIG slices. A slice has somewhat less memory than its profile's name says.
func (d *Device) splitIntoSlices(profiles []string) {
	if len(profiles) == 0 {
		return
	}

	// The driver reports no utilisation of a split device.
	d.MIGMode, d.Utilization = new(true), nil

	for i, profile := range profiles {
		_, memory, _ := sliceSize(profile)
		d.MIG = append(d.MIG, MIGDevice{
			Index:       i,
			UUID:        formatUUID("MIG-", sha256.Sum256(fmt.Appendf(nil, "%s slice %d %s", d.UUID, i, profile))),
			Profile:     profile,
			GPUInstance: 7 + i,
			MemoryTotal: new(memory - memory/20/MiB*MiB),
			MemoryUsed:  new(Bytes(0)),
		})
	}
}

// linkDevices puts the first half of the devices on socket 0 and the rest on socket 1, and links those of one fabric.
func (m *Machine) linkDevices() {
	fabric := map[string]bool{}
	for _, k := range knownModels() {
		fabric[k.name] = k.fabric
	}

	n := len(m.Devices)
	socket := func(i int) int { return i * 2 / max(n, 2) }
	for i := range m.Devices {
		d := &m.Devices[i]
		d.NUMA = new(socket(i))
		d.Links = make([]Link, n)

		for j, other := range m.Devices {
			switch {
			case i == j:
				d.Links[j] = LinkSelf
			case d.Name == other.Name && fabric[d.Name]:
				d.Links[j] = LinkNVLink
			case socket(i) == socket(j):
				d.Links[j] = LinkNode
			default:
				d.Links[j] = LinkSystem
			}
		}
	}
}

func formatUUID(prefix string, id [sha256.Size]byte) UUID {
	return UUID(fmt.Sprintf("%s%x-%x-%x-%x-%x", prefix, id[:4], id[4:6], id[6:8], id[8:10], id[10:16]))
}

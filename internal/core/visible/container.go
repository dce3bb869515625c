package visible

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
)

const containerVariable = "NVIDIA_VISIBLE_DEVICES"

// InsideContainer returns the machine as seen inside a container that NVIDIA_VISIBLE_DEVICES gives its NVIDIA devices.
// The remaining devices keep their Index, so that users can find the card; programs number them from 0 by their
// position. A GPU with named MIG devices has only those. A value that keeps the container from starting leaves none.
// Devices of other vendors are not changed.
//
// Sources: "Specialized Configurations with Docker" in NVIDIA's Container Toolkit documentation;
// NVIDIA/nvidia-container-toolkit internal/config/image/cuda_image.go, devices.go and pkg/nvcdi/identifier.go;
// NVIDIA/libnvidia-container src/cli/common.c.
func InsideContainer(env Env, m gpu.Machine) (inside gpu.Machine, notes []Note) {
	devices := indexOrder(devicesOf(m, gpu.NVIDIA))
	value, set := env.Lookup(containerVariable)
	r := containerReader{noter: noter{variable{containerVariable, value}, duplicateNotes(env, containerVariable)}, devices: devices}
	if !set && legacyImage(env) {
		r.notes = append(r.notes, Note{codeContainer, containerVariable + " is not set, and CUDA_VERSION without NVIDIA_REQUIRE_CUDA marks an old image, which gets all GPUs"})
		value = "all"
	}

	chosen := r.readList(value, set)
	inside = keepChosen(m, gpu.NVIDIA, chosen)
	r.noteNumbers(devicesOf(inside, gpu.NVIDIA))

	return inside, r.notes
}

// legacyImage reports an image from before NVIDIA_VISIBLE_DEVICES was common, by the rule of NVIDIA's runtime.
func legacyImage(env Env) bool {
	cuda, _ := env.Lookup("CUDA_VERSION")
	require, _ := env.Lookup("NVIDIA_REQUIRE_CUDA")
	return cuda != "" && require == ""
}

// keepChosen returns m with only the chosen devices of the vendor. Links are by position, so they are dropped.
func keepChosen(m gpu.Machine, vendor gpu.Vendor, chosen []choice) gpu.Machine {
	out := m
	out.Devices = nil

	for i := range m.Devices {
		d := m.Devices[i]
		d.Links = nil
		if d.Vendor == vendor {
			whole, slices := chosenParts(&m.Devices[i], chosen)
			if !whole && len(slices) == 0 {
				continue
			}
			d.MIG = slices
		}
		out.Devices = append(out.Devices, d)
	}

	return out
}

// chosenParts reports whether the device is chosen, and which of its MIG devices are, in their own order.
func chosenParts(d *gpu.Device, chosen []choice) (whole bool, migs []gpu.MIGDevice) {
	for _, c := range chosen {
		whole = whole || c.dev == d && c.mig == nil
	}
	for j := range d.MIG {
		if slices.ContainsFunc(chosen, func(c choice) bool { return c.mig == &d.MIG[j] }) {
			migs = append(migs, d.MIG[j])
		}
	}
	return whole, migs
}

type containerReader struct {
	noter
	// The devices in the driver's order.
	devices []*gpu.Device
}

func (r *containerReader) readList(value string, set bool) []choice {
	entries := strings.Split(value, ",")
	for i := range entries {
		entries[i] = strings.TrimSpace(entries[i])
	}

	entries = slices.DeleteFunc(entries, func(s string) bool { return s == "" })
	switch {
	case len(entries) == 0 || slices.Contains(entries, "void"):
		what := variable{containerVariable, value}.String()
		if !set {
			what = containerVariable + " is not set"
		}
		r.notes = append(r.notes, Note{codeContainer, what + ": through it the container gets no NVIDIA GPU; what is given by CDI (docker --device nvidia.com/gpu=…) or a Kubernetes plugin does not show here"})

		return nil
	case slices.Contains(entries, "none"):
		r.addNote(codeContainer, "the container gets the driver's files and no GPU")
		return nil
	case slices.Contains(entries, "all"):
		return r.chooseAll()
	}

	var chosen []choice
	for _, entry := range entries {
		if strings.EqualFold(entry, "all") {
			r.addNote(codeUndocumented, "only the older runtime reads %s as all; write it in small letters", quoteEntry(entry))
			return r.chooseAll()
		}
		c, ok := r.readEntry(entry)
		if !ok {
			r.noteFailure(entry)
			return nil
		}
		chosen = append(chosen, c)
	}

	r.noteOrder(chosen)

	return chosen
}

func (r *containerReader) chooseAll() []choice { return allChoices(r.devices) }

// allChoices is all devices, followed by all their slices.
func allChoices(devices []*gpu.Device) []choice {
	chosen := wholeChoices(devices)
	for _, d := range devices {
		for j := range d.MIG {
			chosen = append(chosen, choice{d, &d.MIG[j]})
		}
	}
	return chosen
}

// readEntry reads an index, GPU:slice, a whole UUID or a PCI address.
func (r *containerReader) readEntry(s string) (choice, bool) {
	if n, err := strconv.ParseUint(s, 10, 16); err == nil {
		return r.chooseWhole(int(n))
	}
	if card, slice, ok := strings.Cut(s, ":"); ok {
		n, err := strconv.ParseUint(card, 10, 16)
		j, err2 := strconv.ParseUint(slice, 10, 16)
		if err == nil && err2 == nil {
			return r.chooseSlice(int(n), func(m *gpu.MIGDevice) bool { return m.Index == int(j) })
		}
	}

	for i, d := range r.devices {
		if strings.EqualFold(string(d.UUID), s) {
			return r.chooseWhole(i)
		}
		if d.PCI != "" && samePCI(d.PCI, s) {
			r.addNote(codeUndocumented, "only the older runtime reads the address %s; an identifier is understood by both", quoteEntry(s))
			return r.chooseWhole(i)
		}
		if c, ok := r.chooseSlice(i, func(m *gpu.MIGDevice) bool { return strings.EqualFold(string(m.UUID), s) }); ok {
			return c, true
		}
		if c, ok := r.chooseSlice(i, func(m *gpu.MIGDevice) bool { return "MIG-"+string(d.UUID)+"/"+instancePath(m) == s }); ok {
			r.addNote(codeUndocumented, "%s is the older form of MIG identifiers, which the older runtime refuses with newer drivers; write %s", quoteEntry(s), c.mig.UUID)
			return c, true
		}
	}

	return choice{}, false
}

func (r *containerReader) chooseWhole(n int) (choice, bool) {
	if n >= len(r.devices) {
		return choice{}, false
	}
	d := r.devices[n]
	if d.UsesMIG() {
		r.addNote(codeUndocumented, "GPU %d is split: naming it whole gives the container none of its MIG devices; write %d:0 for the first, or MIG identifiers", d.Index, d.Index)
	}

	return choice{dev: d}, true
}

func (r *containerReader) chooseSlice(n int, is func(*gpu.MIGDevice) bool) (choice, bool) {
	if n >= len(r.devices) {
		return choice{}, false
	}
	if j := slices.IndexFunc(r.devices[n].MIG, func(m gpu.MIGDevice) bool { return is(&m) }); j >= 0 {
		return choice{r.devices[n], &r.devices[n].MIG[j]}, true
	}
	return choice{}, false
}

// samePCI compares addresses with any number of digits.
func samePCI(a, b string) bool {
	x, ok := pciNumber(a)
	y, ok2 := pciNumber(b)
	return ok && ok2 && x == y
}

// noteFailure notes why an entry keeps the container from starting.
func (r *containerReader) noteFailure(entry string) {
	short := isIdentifier(entry) && slices.ContainsFunc(r.chooseAll(), func(c choice) bool {
		return strings.HasPrefix(strings.ToUpper(string(c.uuid())), strings.ToUpper(entry))
	})
	switch {
	case short:
		r.addNote(codeContainerFails, "%s is only the beginning of an identifier; the container does not start: write the whole identifier", quoteEntry(entry))
		r.addNote(codeUndocumented, "NVIDIA's page shows a shortened identifier, the source of both runtimes wants all of it")
	case len(r.devices) == 0:
		r.addNote(codeContainerFails, "%s names no NVIDIA GPU, since this machine has none; the container does not start", quoteEntry(entry))
	default:
		r.addNote(codeContainerFails, "%s names no NVIDIA GPU of this machine (0 to %d, GPU:slice, or a whole identifier); the container does not start", quoteEntry(entry), len(r.devices)-1)
	}
}

// noteOrder notes a list whose order suggests numbers that the programs inside do not get.
func (r *containerReader) noteOrder(chosen []choice) {
	place := func(c choice) int { return slices.Index(r.devices, c.dev) }
	if !slices.IsSortedFunc(chosen, func(a, b choice) int { return place(a) - place(b) }) {
		r.addNote(codeContainerOrder, "the order of this list changes nothing; inside, CUDA orders the GPUs itself (CUDA_VISIBLE_DEVICES inside the container chooses another order)")
	}
}

// noteNumbers notes which number inside is which GPU.
func (r *containerReader) noteNumbers(inside []*gpu.Device) {
	var pairs []string
	for i, d := range indexOrder(inside) {
		if d.Index != i {
			pairs = append(pairs, fmt.Sprintf("GPU %d is %d", d.Index, i))
		}
	}
	if len(pairs) > 8 {
		pairs = append(pairs[:8], "…")
	}
	if len(pairs) > 0 {
		r.notes = append(r.notes, Note{codeRenumbered, "inside the container GPUs are numbered from 0: " + strings.Join(pairs, ", ") + "; numbers of the host mean other GPUs there, identifiers stay right"})
	}
}

package pick

import (
	"fmt"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
)

// readNames finds the devices of --device and --exclude and selects the units that get a reason. The refusal says
// which name is wrong; the caller fills in its reasons.
func (q *query) readNames() *job.Refusal {
	all := q.allUnits()
	var wrong *job.Refusal
	fail := func(summary, remedy string) {
		if wrong == nil {
			wrong = &job.Refusal{Summary: summary, Never: true, Remedy: remedy}
		}
	}

	said := map[*unit]string{}
	for _, name := range q.spec.Devices {
		u, problem, remedy := q.findUnit(all, "device", name)
		switch {
		case problem != "":
			fail("cannot find device "+problem, remedy)
		case said[u] != "":
			fail(option.Sprintf("cannot give %s twice: {device} names it as %s and as %s", u.label, said[u], name), "name each device once")
		default:
			said[u] = name
			q.named = append(q.named, u)
		}
	}

	if len(q.spec.Devices) > 0 && q.spec.MIG == "" {
		q.need = len(q.spec.Devices)
	}

	for _, name := range q.spec.Exclude {
		u, problem, remedy := q.findUnit(all, "exclude", name)
		if problem != "" {
			fail("cannot exclude device "+problem, remedy)
			continue
		}
		u.markExcluded(all)
	}

	if q.need <= 0 {
		fail(fmt.Sprintf("cannot give %d GPUs: the number must be 1 or more", q.need), option.Expand("write {gpus=1}, or {cpu} for none"))
	}

	q.selectUnits(all)

	return wrong
}

// markExcluded marks the unit and, for a whole GPU, its slices.
func (u *unit) markExcluded(all []*unit) {
	for _, other := range all {
		if other == u || u.mig == nil && other.dev == u.dev {
			other.excluded = true
		}
	}
}

// findUnit returns the one unit that a name means, or what is wrong with the name and what to write.
func (q *query) findUnit(all []*unit, flag, name string) (u *unit, problem, remedy string) {
	name = strings.TrimSpace(name)
	var hits []*unit
	for _, u := range all {
		exact, match := matchUnit(u, name)
		if exact {
			hits = []*unit{u}
			break
		}
		if match {
			hits = append(hits, u)
		}
	}

	if len(hits) == 1 && !isBarePrefix(name) {
		return hits[0], "", ""
	}

	if len(hits) > 0 {
		problem, remedy = q.describeAmbiguity(hits, flag, name)
		return nil, problem, remedy
	}

	return nil, fmt.Sprintf("%s: %s", quoteEmpty(name), q.inventoryText()), q.suggestName(all, flag, name)
}

// isBarePrefix reports whether a name is only the prefix of a vendor's UUIDs, as "GPU-$EMPTY" leaves it. It names
// nothing, even on a machine with one device.
func isBarePrefix(name string) bool {
	return strings.HasSuffix(name, "-") && strings.Count(name, "-") == 1
}

func quoteEmpty(name string) string {
	if name == "" {
		return `""`
	}
	return name
}

// matchUnit reports whether a name means the unit. exact is a whole UUID, which wins over a name that is also the
// beginning of another UUID.
func matchUnit(u *unit, name string) (exact, match bool) {
	if vendor, index, ok := strings.Cut(name, ":"); ok && strings.EqualFold(vendor, string(u.dev.Vendor)) {
		name = index
		if _, ok := parseIndex(name); !ok {
			return false, false
		}
	}

	if index, ok := parseIndex(name); ok {
		return false, u.mig == nil && u.dev.Index == index
	}

	if want, ok := parsePCI(name); ok {
		have, known := parsePCI(u.dev.PCI)
		return false, known && u.mig == nil && have.matchesAddress(want)
	}

	id, start := strings.ToLower(string(u.id())), strings.ToLower(name)

	return id == start && id != "" && !u.twin, strings.Contains(start, "-") && strings.HasPrefix(id, start)
}

func parseIndex(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n), err == nil
}

// pciAddress is a PCI address. A domain of -1 was not written and matches any.
type pciAddress struct{ domain, bus, device, function int64 }

// parsePCI reads "0000:17:00.0", nvidia-smi's "00000000:17:00.0", "17:00.0" and "17:00", in any case.
func parsePCI(s string) (pciAddress, bool) {
	s = strings.TrimPrefix(strings.ToLower(s), "pci:")
	rest, function, dotted := strings.Cut(s, ".")
	parts := strings.Split(rest, ":")
	if !dotted {
		function = "0"
	}

	if len(parts) == 2 {
		parts = append([]string{""}, parts...)
	}

	if len(parts) != 3 {
		return pciAddress{}, false
	}

	a := pciAddress{domain: -1}
	for _, field := range []struct {
		text string
		to   *int64
	}{{parts[0], &a.domain}, {parts[1], &a.bus}, {parts[2], &a.device}, {function, &a.function}} {
		if field.text == "" && field.to == &a.domain {
			continue
		}
		n, err := strconv.ParseUint(field.text, 16, 32)
		if err != nil {
			return pciAddress{}, false
		}
		*field.to = int64(n)
	}

	return a, true
}

func (a pciAddress) matchesAddress(want pciAddress) bool {
	if want.domain < 0 {
		want.domain = a.domain
	}
	return a == want
}

// inventoryText lists the devices for the refusal of an unknown name: "this machine has 0-3".
func (q *query) inventoryText() string {
	if len(q.m.Devices) == 0 {
		return "this machine has no GPU"
	}

	byVendor := map[gpu.Vendor][]int{}
	var vendors []gpu.Vendor
	for _, u := range q.allUnits() {
		if u.mig != nil {
			continue
		}
		if len(byVendor[u.dev.Vendor]) == 0 {
			vendors = append(vendors, u.dev.Vendor)
		}
		byVendor[u.dev.Vendor] = append(byVendor[u.dev.Vendor], u.dev.Index)
	}

	var parts []string
	for _, v := range vendors {
		text := prose.Ranges(byVendor[v], ", ")
		if q.mixed {
			text = fmt.Sprintf("%s:%s", v, text)
		}
		parts = append(parts, text)
	}

	return "this machine has " + prose.JoinWords(parts, "and")
}

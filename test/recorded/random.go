package recorded

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"gpuard/internal/core/gpu"
)

// Random makes n different questions about a machine: rows without an answer. The same seed makes the same questions.
// Most are lists of a few entries, near the border between valid and not.
func Random(m gpu.Machine, seed uint64, n int) []Row {
	g := generator{rand.New(rand.NewPCG(seed, 0)), m}
	rows := make([]Row, 0, n)
	asked := map[string]bool{}
	for len(rows) < n {
		r := Row{Machine: m, Visible: g.value(), Order: g.order()}
		if key := strings.Join(r.Env(), "\n"); !asked[key] {
			asked[key] = true
			rows = append(rows, r)
		}
	}
	return rows
}

type generator struct {
	*rand.Rand
	m gpu.Machine
}

func (g generator) one(of ...string) string { return of[g.IntN(len(of))] }

func (g generator) order() *string {
	switch g.IntN(10) {
	case 0, 1, 2:
		return new("PCI_BUS_ID")
	case 3:
		return new("FASTEST_FIRST")
	case 4:
		return new(g.one("", "pci_bus_id", " PCI_BUS_ID", "SLOWEST_FIRST", "0"))
	}
	return nil
}

func (g generator) value() *string {
	switch g.IntN(100) {
	case 0:
		return nil
	case 1:
		return new(g.one("", " ", "\t", ",", ",,", "-1", "all", "none", "void", "NoDevFiles"))
	}
	entry := g.number
	switch g.IntN(10) {
	case 0, 1, 2:
		entry = g.identifier
	case 3:
		entry = g.anything
	}
	entries := make([]string, 1+g.length())
	for i := range entries {
		entries[i] = entry()
	}
	if g.IntN(8) == 0 { // one that does not fit the others
		entries[g.IntN(len(entries))] = g.anything()
	}
	separator := ","
	if g.IntN(20) == 0 {
		separator = g.one(" ", ";", ", ", " ,", ",,", ":", "|", ".")
	}
	return new(strings.Join(entries, separator))
}

// length is mostly small, and now and then more than any machine has.
func (g generator) length() int {
	if g.IntN(30) == 0 {
		return g.IntN(70)
	}
	return g.IntN(5)
}

func (g generator) anything() string {
	switch g.IntN(4) {
	case 0:
		return g.number()
	case 1:
		return g.identifier()
	}
	return g.one("", " ", "x", "one", "0x0", "0x1", "1e0", "0.5", "00", "010", "+", "-", "--1", "cuda:0", `"0"`, "'0'", "all", "none", "void",
		"NoDevFiles", "GPU", "GPU-", "MIG-", "MIG-GPU-", "\t0", "0\t", "٣", "4294967296", "18446744073709551616", "-4294967295", "2147483648")
}

func (g generator) number() string {
	n := g.IntN(len(g.m.Devices) + 1)
	text := fmt.Sprint(n)
	switch g.IntN(16) {
	case 0:
		return g.one("-1", "-0", "+0", fmt.Sprintf("-%d", n), fmt.Sprintf("%d", 1000+n))
	case 1:
		return g.one(" ", "\t", "  ", "\n") + text
	case 2:
		return text + g.one(" ", "\t", "\n", "gpu", ".5", "-3", "x", "e", " 1", ":0", "/0")
	case 3:
		return g.one("+", "0", "00", "0x", "0X", "0b", "0o", "#") + text
	}
	return text
}

func (g generator) identifier() string {
	var all []string
	for _, d := range g.m.Devices {
		all = append(all, string(d.UUID))
		for _, s := range d.MIG {
			all = append(all, string(s.UUID), fmt.Sprintf("MIG-%s/%d/%d", d.UUID, s.GPUInstance, s.ComputeInstance),
				fmt.Sprintf("MIG-%s/%d/%d", d.UUID, s.GPUInstance, s.ComputeInstance+1))
		}
	}
	if len(all) == 0 {
		return "GPU-00000000"
	}
	id := all[g.IntN(len(all))]
	switch g.IntN(14) {
	case 0, 1, 2:
		return id[:min(len(id), 4+g.IntN(len(id)-3))] // a prefix
	case 3:
		return strings.ToLower(id)
	case 4:
		return strings.ToUpper(id)
	case 5:
		return strings.ReplaceAll(id, "-", "")
	case 6:
		return g.one(" ", "\t") + id
	case 7:
		return id + g.one(" ", "x", "0", "-", "/0/0", "/0")
	case 8: // a digit that is wrong
		at := 4 + g.IntN(len(id)-4)
		return id[:at] + g.one("0", "7", "f", "-") + id[at+1:]
	case 9:
		return strings.TrimPrefix(strings.TrimPrefix(id, "GPU-"), "MIG-")
	case 10:
		return "MIG-" + id
	}
	return id
}

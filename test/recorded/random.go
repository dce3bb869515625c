package recorded

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"

	"gpuard/internal/core/gpu"
)

// RandomRows makes n different questions about a machine: rows without an answer. The same seed makes the same questions.
// Most are lists of a few entries, near the border between valid and not.
func RandomRows(m gpu.Machine, seed uint64, n int) []Row {
	g := questionGenerator{rand.New(rand.NewPCG(seed, 0)), m}
	rows := make([]Row, 0, n)
	asked := map[string]bool{}
	for len(rows) < n {
		r := Row{Machine: m, Visible: g.visibleValue(), Order: g.orderValue()}
		if key := strings.Join(r.Env(), "\n"); !asked[key] {
			asked[key] = true
			rows = append(rows, r)
		}
	}
	return rows
}

// RandomValues makes values of a variable that lists devices, as Random does, one with each call.
func RandomValues(m gpu.Machine, seed uint64) func() *string {
	return questionGenerator{rand.New(rand.NewPCG(seed, 0)), m}.visibleValue
}

type questionGenerator struct {
	*rand.Rand
	m gpu.Machine
}

func (g questionGenerator) pickOne(of ...string) string { return of[g.IntN(len(of))] }

// blankText is one of those that a C library skips, or one that it does not.
func (g questionGenerator) blankText() string {
	return g.pickOne(" ", " ", "  ", "\t", "\n", "\v", "\f", "\r", "\u00a0", "\u2003")
}

func (g questionGenerator) orderValue() *string {
	switch g.IntN(10) {
	case 0, 1, 2:
		return new("PCI_BUS_ID")
	case 3:
		return new("FASTEST_FIRST")
	case 4:
		return new(g.pickOne("", "pci_bus_id", " PCI_BUS_ID", "SLOWEST_FIRST", "0"))
	}
	return nil
}

func (g questionGenerator) visibleValue() *string {
	switch g.IntN(100) {
	case 0:
		return nil
	case 1:
		return new(g.pickOne("", " ", "\t", ",", ",,", "-1", "all", "none", "void", "NoDevFiles"))
	case 2:
		return new(g.longValue())
	}
	entry := g.numberEntry
	switch g.IntN(10) {
	case 0, 1, 2:
		entry = g.identifierEntry
	case 3:
		entry = g.anyEntry
	}
	entries := make([]string, 1+g.listLength())
	for i := range entries {
		entries[i] = entry()
	}
	if g.IntN(8) == 0 { // one that does not fit the others
		entries[g.IntN(len(entries))] = g.anyEntry()
	}
	separator := ","
	if g.IntN(20) == 0 {
		separator = g.pickOne(" ", ";", ", ", " ,", ",,", ":", "|", ".")
	}
	return new(strings.Join(entries, separator))
}

// longValue is a value near one of the sizes from which drivers take it for unset.
func (g questionGenerator) longValue() string {
	size := []int{1024, 1024, 2625}[g.IntN(3)] + g.IntN(5) - 3
	start := g.pickOne(g.numberEntry(), g.identifierEntry(), "0,"+g.numberEntry())
	filler := g.pickOne("0", " ", "x", ",", "9", "1,2,3,", "GPU-")
	switch text := start + strings.Repeat(filler, size); g.IntN(3) {
	case 0:
		return strings.Repeat(g.pickOne(" ", "0"), max(0, size-len(start))) + start
	default:
		return text[:size]
	}
}

// listLength is mostly small, and now and then more than any machine has.
func (g questionGenerator) listLength() int {
	if g.IntN(30) == 0 {
		return g.IntN(70)
	}
	return g.IntN(5)
}

func (g questionGenerator) anyEntry() string {
	switch g.IntN(4) {
	case 0:
		return g.numberEntry()
	case 1:
		return g.identifierEntry()
	}
	return g.pickOne("", " ", "x", "one", "0x0", "0x1", "1e0", "0.5", "00", "010", "+", "-", "--1", "cuda:0", `"0"`, "'0'", "all", "none", "void",
		"NoDevFiles", "GPU", "GPU-", "MIG-", "MIG-GPU-", "\t0", "0\t", "٣", "4294967296", "18446744073709551616", "-4294967295", "2147483648")
}

func (g questionGenerator) numberEntry() string {
	n := g.IntN(len(g.m.Devices) + 1)
	text := fmt.Sprint(n)
	switch g.IntN(18) {
	case 0:
		return g.pickOne("-1", "-0", "+0", fmt.Sprintf("-%d", n), fmt.Sprintf("+%d", n), fmt.Sprintf("%d", 1000+n))
	case 1:
		return g.blankText() + text
	case 2:
		return text + g.pickOne(g.blankText(), "gpu", ".5", "-3", "x", "e", " 1", ":0", "/0", "\"", "'", ";", "٣")
	case 3:
		return g.pickOne("+", "0", "00", "0x", "0X", "0b", "0o", "#", "--", "+-", "- ") + text
	case 4:
		return g.overflowingNumber(n)
	}
	return text
}

// overflowingNumber is a number that means n, or another one, where it is cut to 32 bits, or to 64.
func (g questionGenerator) overflowingNumber(n int) string {
	number := big.NewInt(int64(n))
	for range 1 + g.IntN(2) {
		power := new(big.Int).Lsh(big.NewInt(1+int64(g.IntN(3))), uint([]int{16, 31, 32, 33, 63, 64, 65}[g.IntN(7)])) //nolint:gosec // small
		number.Add(number, power)
	}
	if g.IntN(3) == 0 {
		number.Neg(number)
	}
	return number.String()
}

func (g questionGenerator) identifierEntry() string {
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
	switch g.IntN(12) {
	case 0:
		id = "MIG-" + id
	case 1:
		id = "MIG-" + id[4:]
	case 2:
		id = "MIG-" + id + g.pickOne("/", "/0", "/0/0", "/1/0", "/01/0", "/1/0x", "/ 1/0", "//", "/1/0/0", "/x")
	}
	for range g.IntN(3) {
		id = g.changeIdentifier(id)
	}
	return id
}

// changeIdentifier is an identifier with one thing done to it.
func (g questionGenerator) changeIdentifier(id string) string {
	at := 0 // somewhere behind the first letters
	if len(id) > 4 {
		at = 4 + g.IntN(len(id)-3)
	}
	switch g.IntN(14) {
	case 0, 1, 2:
		return id[:at] // a prefix
	case 3:
		return strings.ToLower(id)
	case 4:
		return strings.ToUpper(id)
	case 5:
		return id[:min(4, len(id))] + strings.ToUpper(id[min(4, len(id)):])
	case 6:
		return strings.ReplaceAll(id, "-", "")
	case 7:
		return id[:min(4, len(id))] + strings.ReplaceAll(id[min(4, len(id)):], "-", "")
	case 8:
		return g.blankText() + id
	case 9:
		return id + g.pickOne(g.blankText(), "x", "0", "-", "/0/0", "/0", "_")
	case 10: // between two digits
		return id[:at] + g.pickOne("-", "-", "--", g.blankText(), "x", "/", "0") + id[at:]
	case 11: // a digit that is wrong
		if at < len(id) {
			return id[:at] + g.pickOne("0", "7", "f", "-", "g") + id[at+1:]
		}
	case 12:
		return strings.TrimPrefix(strings.TrimPrefix(id, "GPU-"), "MIG-")
	}
	return id
}

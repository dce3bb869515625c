package compat

import (
	_ "embed"
	"slices"
	"strings"
)

// nameTable is the list of names; its head explains it.
//
//go:embed data/names.txt
var nameTable string

// Kind is why a variable's name is listed.
type Kind string

// Kinds of names.
const (
	// Still read, but a newer name or way exists.
	Old Kind = "deprecated"
	// No program reads it any more.
	Gone Kind = "removed"
	// For debugging, not to be left on.
	Debug    Kind = "debug"
	maskKind Kind = "mask" // chooses devices
)

// Name is the entry of a variable's name.
type Name struct {
	Name string
	Kind Kind
	// It may do harm; otherwise it is only information.
	Warns bool
	// Today's version reads both names, and versions that are in use this one only.
	Either bool
	// The name to write; "" when the variable should be left out.
	Instead string
	// "NCCL 2.17"; "" unknown.
	Since string
	// What it does or why it changed: one clause.
	What   string
	From   string // the source
	values string
}

// DeprecatedName reports whether this name, with this value, should be replaced: an older spelling (Old) or a variable
// that no program reads any more (Gone).
func DeprecatedName(name, value string) (Name, bool) {
	n, ok := lookUpName(name)
	return n, ok && (n.Kind == Old || n.Kind == Gone) && n.appliesTo(value)
}

// DebugOnly reports whether the variable, with this value, is for debugging and costs speed or safety if left on.
func DebugOnly(name, value string) (Name, bool) {
	n, ok := lookUpName(name)
	return n, ok && n.Kind == Debug && n.appliesTo(value)
}

// SuggestName returns the variable that chooses devices and that a wrong name probably means. The part before the first
// _ must be right, and the rest must differ by one or two letters, or by capitals alone; what has no capitals is a
// variable of a script's own. A longer name, such as CUDA_VISIBLE_DEVICES_OLD, is not taken for a misspelling.
func SuggestName(name string) (meant Name, ok bool) {
	if _, known := lookUpName(name); known {
		return Name{}, false
	}

	capitals := strings.ToUpper(name)
	if capitals != name && strings.ToLower(name) != name {
		meant, ok = lookUpName(capitals)
		if ok {
			return meant, meant.Kind == maskKind
		}
	}

	vendor, _, _ := strings.Cut(name, "_")
	if vendor == "" || !strings.Contains(nameTable, "\n"+vendor+"_") {
		return Name{}, false
	}

	for _, n := range allNames() {
		if n.Kind == maskKind && strings.HasPrefix(n.Name, vendor+"_") && !strings.HasPrefix(name, n.Name) && editDistance(name, n.Name) <= 2 {
			return n, true
		}
	}

	return Name{}, false
}

// lookUpName reads one line of the table without the others, because lint checks every variable of every file.
func lookUpName(name string) (Name, bool) {
	if name == "" || strings.ContainsAny(name, "\n\t") {
		return Name{}, false
	}

	at := strings.Index(nameTable, "\n"+name+"\t")
	if at < 0 {
		return Name{}, false
	}

	line, _, _ := strings.Cut(nameTable[at+1:], "\n")
	n, ok := readName(line)
	if source := strings.LastIndex(nameTable[:at], "\n@ "); source >= 0 {
		n.From, _, _ = strings.Cut(nameTable[source+len("\n@ "):], "\n")
	}

	return n, ok
}

// allNames reads the table; invalid lines are left out here and fail the package's test.
func allNames() []Name {
	var all []Name
	from := ""
	for line := range strings.Lines(nameTable) {
		line = strings.TrimSuffix(line, "\n")
		if source, ok := strings.CutPrefix(line, "@ "); ok {
			from = source
			continue
		}
		if n, ok := readName(line); ok {
			n.From = from
			all = append(all, n)
		}
	}

	return all
}

func readName(line string) (Name, bool) {
	c := strings.Split(line, "\t")
	if strings.HasPrefix(line, "#") || len(c) != 7 || !slices.Contains([]Kind{Old, Gone, Debug, maskKind}, Kind(c[1])) || !slices.Contains([]string{"info", "warning", "either"}, c[2]) {
		return Name{}, false
	}
	known := func(s string) string { return strings.TrimPrefix(s, "-") }

	return Name{Name: c[0], Kind: Kind(c[1]), Warns: c[2] == "warning", Either: c[2] == "either", Instead: known(c[3]), Since: known(c[4]), values: c[5], What: c[6]}, true
}

// OfValue reports whether it is one value of the variable that is judged, and not the variable.
func (n Name) OfValue() bool { return !slices.Contains([]string{"*", "on", "number"}, n.values) }

// appliesTo reports whether the name matters with this value.
func (n Name) appliesTo(value string) bool {
	value = strings.TrimSpace(value)
	switch n.values {
	case "*":
		return true
	case "number":
		digits := strings.TrimLeft(strings.TrimPrefix(value, "-"), "0")
		return digits != "" && digits[0] >= '1' && digits[0] <= '9'
	case "on":
		return !slices.Contains([]string{"", "0", "false", "no", "off", "n", "f"}, strings.ToLower(value))
	}
	return slices.ContainsFunc(strings.Split(n.values, ","), func(word string) bool { return strings.EqualFold(word, value) })
}

// editDistance counts the letters to add, remove, change or swap with a neighbour to turn one word into the other.
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}

	for j := range rows[0] {
		rows[0][j] = j
	}

	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}

	return rows[len(a)][len(b)]
}

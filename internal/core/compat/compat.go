// Package compat says which versions work together: CUDA and the driver, wheels and devices:
//
//	floor, own, ok := compat.DriverFor("12.8") // "525", "570.26", true
//
// Its tables are data files with source and date, so that a new release changes a table and no code. It must not read
// the machine.
package compat

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
)

// Compare orders two versions as dotted numbers: "12.10" is newer than "12.9", "12" equals "12.0". What follows the
// numbers ("2.9.0+cu128", "1.22.0rc1") does not count.
func Compare(a, b string) int {
	x, y := LeadingNumbers(a), LeadingNumbers(b)
	for i := range max(len(x), len(y)) {
		if c := cmp.Compare(numberAt(x, i), numberAt(y, i)); c != 0 {
			return c
		}
	}
	return 0
}

func numberAt(numbers []int, i int) int {
	if i < len(numbers) {
		return numbers[i]
	}
	return 0
}

// LeadingNumbers are the leading numbers of a version: 2, 9, 0 of "2.9.0+cu128". Nil: there are none.
func LeadingNumbers(version string) []int {
	var numbers []int
	for part := range strings.SplitSeq(version, ".") {
		end := strings.IndexFunc(part, func(r rune) bool { return r < '0' || r > '9' })
		digits := part
		if end >= 0 {
			digits = part[:end]
		}

		n, err := strconv.Atoi(digits)
		if err != nil {
			break
		}

		numbers = append(numbers, n)
		if end >= 0 {
			break
		}
	}
	return numbers
}

// Major is the first number of a version; ok is false when it begins with none.
func Major(version string) (major int, ok bool) {
	if n := LeadingNumbers(version); len(n) > 0 {
		return n[0], true
	}
	return 0, false
}

// majorMinor is a version's first two numbers: "12.8" of "12.8.93".
func majorMinor(version string) string {
	n := LeadingNumbers(version)
	return fmt.Sprintf("%d.%d", numberAt(n, 0), numberAt(n, 1))
}

// isInRange reports whether a version belongs to a range; "-" has no end. The end is compared at its own precision:
// "2.18" to "2.21" includes 2.21.3, and "0.4.26" to "0.4.29" does not include 0.4.30.
func isInRange(version, first, last string) bool {
	short := LeadingNumbers(version)
	short = short[:min(len(short), len(LeadingNumbers(last)))]
	return Compare(version, first) >= 0 && (last == "-" || slices.Compare(short, LeadingNumbers(last)) <= 0)
}

// Table is one data file of versions.
type Table struct {
	Title, Note string
	// Pages, separated by semicolons.
	Source string
	// When the pages were read.
	Date    time.Time
	Columns []string
	Rows    [][]string // "-" means none
}

// Tables lists all data files of versions, for the documentation.
func Tables() []Table {
	var all []Table
	for _, text := range []string{cudaTable, hardwareTable, tensorlessTable, integratedTable, torchTable, packageTable} {
		all = append(all, mustReadTable(text))
	}
	return all
}

// readTable reads a data file: a head of "# key: value" lines, then rows of columns separated by tabs.
func readTable(text string) (Table, error) {
	var t Table
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSuffix(line, "\n")
		if head, ok := strings.CutPrefix(line, "# "); ok {
			if err := t.readHead(head); err != nil {
				return Table{}, fmt.Errorf("line %d: %w", n, err)
			}
			continue
		}

		row := strings.Split(line, "\t")
		if len(row) != len(t.Columns) {
			return Table{}, fmt.Errorf("line %d: %d columns instead of %d", n, len(row), len(t.Columns))
		}

		for i, cell := range row {
			if cell == "" || cell != strings.TrimSpace(cell) {
				return Table{}, fmt.Errorf("line %d: column %d is empty or has spaces around it", n, i+1)
			}
		}

		t.Rows = append(t.Rows, row)
	}

	if t.Title == "" || t.Source == "" || t.Date.IsZero() || len(t.Rows) == 0 {
		return Table{}, errors.New("cannot use a table without title, source, date and rows")
	}

	return t, nil
}

// readHead reads one line of the head.
func (t *Table) readHead(line string) (err error) {
	key, value, _ := strings.Cut(line, ": ")
	switch key {
	case "title":
		t.Title = value
	case "note":
		t.Note = value
	case "source":
		t.Source = value
	case "date":
		t.Date, err = time.Parse(time.DateOnly, value)
	case "columns":
		t.Columns = strings.Split(value, "\t")
	default:
		return fmt.Errorf("cannot use the line %q: title, note, source, date and columns are known", line)
	}
	return err
}

// mustReadTable reads a table of this package; a test checks that all are valid.
func mustReadTable(text string) Table {
	t, err := readTable(text)
	if err != nil {
		panic(err)
	}
	return t
}

func tableRows(text string) [][]string { return mustReadTable(text).Rows }

// mustCapability reads a cell of a table.
func mustCapability(text string) gpu.Capability {
	c, err := gpu.ParseCapability(text)
	if err != nil {
		panic(err)
	}
	return c
}

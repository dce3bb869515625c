// Package compat says which versions work together: CUDA and the driver, wheels and devices:
//
//	floor, own, ok := compat.Driver("12.8") // "525", "570.26", true
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
	x, y := Numbers(a), Numbers(b)
	for i := range max(len(x), len(y)) {
		if c := cmp.Compare(at(x, i), at(y, i)); c != 0 {
			return c
		}
	}
	return 0
}

func at(numbers []int, i int) int {
	if i < len(numbers) {
		return numbers[i]
	}
	return 0
}

// Numbers are the leading numbers of a version: 2, 9, 0 of "2.9.0+cu128". Nil: there are none.
func Numbers(version string) []int {
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
	if n := Numbers(version); len(n) > 0 {
		return n[0], true
	}
	return 0, false
}

// series is a version's first two numbers: "12.8" of "12.8.93".
func series(version string) string {
	n := Numbers(version)
	return fmt.Sprintf("%d.%d", at(n, 0), at(n, 1))
}

// within reports whether a version belongs to a range; "-" has no end. The end is compared at its own precision: "2.18"
// to "2.21" includes 2.21.3, and "0.4.26" to "0.4.29" does not include 0.4.30.
func within(version, first, last string) bool {
	short := Numbers(version)
	short = short[:min(len(short), len(Numbers(last)))]
	return Compare(version, first) >= 0 && (last == "-" || slices.Compare(short, Numbers(last)) <= 0)
}

// Table is one data file of versions.
type Table struct {
	Title, Note string
	Source      string    // pages, separated by semicolons
	Date        time.Time // when the pages were read
	Columns     []string
	Rows        [][]string // "-" means none
}

// Tables lists all data files of versions, for the documentation.
func Tables() []Table {
	var all []Table
	for _, text := range []string{cudaTable, hardwareTable, tensorlessTable, integratedTable, torchTable, packageTable} {
		all = append(all, table(text))
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
			if err := t.head(head); err != nil {
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

// head reads one line of the head.
func (t *Table) head(line string) (err error) {
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

// table reads a table of this package; a test checks that all are valid.
func table(text string) Table {
	t, err := readTable(text)
	if err != nil {
		panic(err)
	}
	return t
}

func rows(text string) [][]string { return table(text).Rows }

// capability reads a cell of a table.
func capability(text string) gpu.Capability {
	c, err := gpu.ParseCapability(text)
	if err != nil {
		panic(err)
	}
	return c
}

// Package prompt words the question which GPU a person wants, and reads the answer. It asks nobody.
package prompt

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
)

// ErrCancelled is for somebody who was asked and did not want any more.
var ErrCancelled = errors.New("cancelled: nothing was leased")

// Choice is one device that can be asked for.
type Choice struct {
	Label  string // what is typed: "0", or "amd:0" on a mixed machine, "0.1" for a slice
	Device string // what --device calls it
	Model  string
	Free   string // memory, "?" when unknown
	Use    string // "free", or what it is used for
}

// Question is everything that is shown.
type Question struct {
	Choices []Choice
	Count   int // how many devices are wanted
}

// Answer is what was asked for: these devices; without any, either any free ones or, with None, no GPU at all.
type Answer struct {
	Devices []string
	None    bool
}

// Words that stand for no device.
const (
	whichever = "any"
	none      = "c"
)

// Line is the question itself, to be followed by the answer on the same line.
func (q Question) Line() string {
	anything := "any free one"
	if q.Count > 1 {
		anything += "s"
	}
	return fmt.Sprintf("%s [Enter: %s, %s, %s: none] ", q.Text(), anything, strings.Join(q.labels(), " "), none)
}

// Text is what is asked.
func (q Question) Text() string {
	if q.Count > 1 {
		return fmt.Sprintf("Which %d GPUs?", q.Count)
	}
	return "Which GPU?"
}

func (q Question) labels() []string {
	var list []string
	for _, c := range q.Choices {
		list = append(list, c.Label)
	}
	return list
}

// Table is one line for each device, below a line of titles. Lines are cut to a width, 0 for no limit.
func (q Question) Table(width int) []string {
	rows := [][]string{{"GPU", "MODEL", "FREE", "USE"}}
	for _, c := range q.Choices {
		rows = append(rows, c.cells())
	}
	widths := make([]int, 4)
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	var lines []string
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			line += cell + strings.Repeat(" ", widths[i]-len([]rune(cell))+2)
		}
		line = strings.TrimRight(line, " ")
		if runes := []rune(line); width > 1 && len(runes) > width-1 {
			line = string(runes[:width-1])
		}
		lines = append(lines, line)
	}
	return lines
}

// Rows is what a window lists: for each line the word that it stands for, and its cells.
func (q Question) Rows() (rows [][]string) {
	rows = append(rows, []string{whichever, "any free GPU", "", ""})
	if q.Count > 1 {
		rows[0][1] = fmt.Sprintf("any %d free GPUs", q.Count)
	}
	for _, c := range q.Choices {
		rows = append(rows, c.cells())
	}
	return append(rows, []string{none, "no GPU", "", ""})
}

// cells are cleaned: nothing that a device says of itself may move a terminal's cursor or look like an option of a program.
func (c Choice) cells() []string {
	cells := []string{c.Label, c.Model, c.Free, c.Use}
	for i := range cells {
		cells[i] = strings.TrimLeft(gpu.Clean(cells[i]), "- ")
	}
	return cells
}

// Read understands an answer. The error says how to write one.
func (q Question) Read(text string) (Answer, error) {
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' || r == '|' || r == '\n' })
	if len(words) == 0 || len(words) == 1 && strings.EqualFold(words[0], whichever) {
		return Answer{}, nil
	}
	if len(words) == 1 && strings.EqualFold(words[0], none) {
		return Answer{None: true}, nil
	}
	var a Answer
	for _, word := range words {
		i := slices.IndexFunc(q.Choices, func(c Choice) bool { return strings.EqualFold(c.Label, word) })
		switch {
		case i < 0:
			return Answer{}, fmt.Errorf("cannot take %q: type %s, Enter, or %s", gpu.Brief(word), among(q.labels()), none)
		case slices.Contains(a.Devices, q.Choices[i].Device):
			return Answer{}, fmt.Errorf("cannot take %s twice", word)
		}
		a.Devices = append(a.Devices, q.Choices[i].Device)
	}
	if len(a.Devices) != q.Count {
		return Answer{}, fmt.Errorf("cannot take %d: %d wanted", len(a.Devices), q.Count)
	}
	return a, nil
}

// among is "0, 1 or 2".
func among(labels []string) string {
	if len(labels) < 2 {
		return strings.Join(labels, "")
	}
	last := len(labels) - 1
	return strings.Join(labels[:last], ", ") + " or " + labels[last]
}

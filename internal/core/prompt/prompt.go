// Package prompt writes the question which GPU the user wants, and parses the answer. It must not read or write a
// terminal:
//
//	fmt.Print(q.Text())
//	answer, err := q.Read(line)
package prompt

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/prose"
)

// ErrCancelled is the error of a user who cancelled the prompt.
var ErrCancelled = errors.New("cancelled: nothing was leased")

// Choice is one device on offer.
type Choice struct {
	// What the user types: "0", or "amd:0" on a mixed machine, "0.1" for a slice.
	Label string
	// Its name for --device.
	Device string
	Model  string
	// Memory, "?" when unknown.
	Free string
	// "free", or its present use.
	Use string
}

// Question is everything that is shown.
type Question struct {
	Choices []Choice
	// How many devices are wanted.
	Count int
}

// Answer is the chosen devices; if there are none, any free devices or, with None, no GPU at all.
type Answer struct {
	Devices []string
	None    bool
}

// Words that are no device names.
const (
	anyWord  = "any"
	noneWord = "c"
)

// Line is the question itself; the answer follows on the same line.
func (q Question) Line() string {
	anything := "any free one"
	if q.Count > 1 {
		anything += "s"
	}
	return fmt.Sprintf("%s [Enter: %s, %s, %s: none] ", q.Text(), anything, strings.Join(q.choiceLabels(), " "), noneWord)
}

// Text is the whole question.
func (q Question) Text() string {
	if q.Count > 1 {
		return fmt.Sprintf("Which %d GPUs?", q.Count)
	}
	return "Which GPU?"
}

func (q Question) choiceLabels() []string {
	return prose.Texts(q.Choices, func(c Choice) string { return c.Label })
}

// TableLines is one line for each device, after a line of titles. Lines are cut to a width, 0 for no limit. translate
// says words in the language of the user.
func (q Question) TableLines(width int, translate func(string) string) []string {
	rows := [][]string{{"GPU", translate("MODEL"), translate("FREE"), translate("USE")}}
	for _, c := range q.Choices {
		rows = append(rows, c.cleanCells(translate))
	}

	widths := make([]int, 4)
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], prose.Cells(cell))
		}
	}

	var lines []string
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			line += cell + strings.Repeat(" ", widths[i]-prose.Cells(cell)+2)
		}

		line = strings.TrimRight(line, " ")
		if width > 1 {
			line = prose.CutToWidth(line, width-1, "")
		}

		lines = append(lines, line)
	}

	return lines
}

// Rows is the content of a list window: for each line the word that it means, and its cells. translate says them in the
// language of the user.
func (q Question) Rows(translate func(string) string) (rows [][]string) {
	anything := "any free GPU"
	if q.Count > 1 {
		anything = fmt.Sprintf("any %d free GPUs", q.Count)
	}

	rows = append(rows, []string{anyWord, translate(anything), "", ""})
	for _, c := range q.Choices {
		rows = append(rows, c.cleanCells(translate))
	}

	return append(rows, []string{noneWord, translate("no GPU"), "", ""})
}

// cleanCells are cleaned: a device's name must not move a terminal's cursor or look like an option of a program.
func (c Choice) cleanCells(translate func(string) string) []string {
	cells := []string{c.Label, c.Model, c.Free, translate(c.Use)}
	for i := range cells {
		cells[i] = strings.TrimLeft(prose.Clean(cells[i]), "- ")
	}
	return cells
}

// ParseAnswer parses an answer. The error says how to write one.
func (q Question) ParseAnswer(text string) (Answer, error) {
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' || r == '|' || r == '\n' })
	if len(words) == 0 || len(words) == 1 && strings.EqualFold(words[0], anyWord) {
		return Answer{}, nil
	}
	if len(words) == 1 && strings.EqualFold(words[0], noneWord) {
		return Answer{None: true}, nil
	}

	var a Answer
	for _, word := range words {
		i := slices.IndexFunc(q.Choices, func(c Choice) bool { return strings.EqualFold(c.Label, word) })
		switch {
		case i < 0:
			return Answer{}, fmt.Errorf("cannot take %q: type %s, Enter, or %s", prose.Brief(word), prose.JoinWords(q.choiceLabels(), "or"), noneWord)
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

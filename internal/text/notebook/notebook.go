// Package notebook reads Jupyter notebooks: the Python of their cells, and what their magic lines do. It runs nothing.
package notebook

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"gpuard/internal/core/lint"
)

// book is what is read of a notebook: nbformat 4, and nbformat 3 with its worksheets
// (https://nbformat.readthedocs.io/en/latest/format_description.html).
type book struct {
	Cells      []cell `json:"cells"`
	Worksheets []struct {
		Cells []cell `json:"cells"`
	} `json:"worksheets"`
	Metadata struct {
		Info struct {
			Name string `json:"name"`
		} `json:"language_info"`
		Kernel struct {
			Language string `json:"language"`
		} `json:"kernelspec"`
	} `json:"metadata"`
}

type cell struct {
	Type   string `json:"cell_type"`
	Source lines  `json:"source"`
	Input  lines  `json:"input"` // nbformat 3
}

// lines is a text in one string, or in a list of strings.
type lines string

func (l *lines) UnmarshalJSON(b []byte) error {
	var whole string
	if json.Unmarshal(b, &whole) == nil {
		*l = lines(whole)
		return nil
	}

	var parts []string
	err := json.Unmarshal(b, &parts)
	*l = lines(strings.Join(parts, ""))

	return err
}

// ReadCells returns the code cells of a notebook, numbered from 1 in its order, all cells counted. A notebook in another
// language than Python has none.
func ReadCells(src []byte) ([]lint.Cell, error) {
	var b book
	if err := json.Unmarshal(src, &b); err != nil {
		return nil, fmt.Errorf("cannot read the notebook: %w", err)
	}

	for _, w := range b.Worksheets {
		b.Cells = append(b.Cells, w.Cells...)
	}

	if b.Cells == nil {
		return nil, errors.New("cannot read the notebook: it has no list of cells")
	}

	for _, language := range []string{b.Metadata.Info.Name, b.Metadata.Kernel.Language} {
		if language != "" && !strings.Contains(strings.ToLower(language), "python") {
			return nil, nil
		}
	}

	var cells []lint.Cell

	for i, c := range b.Cells {
		if c.Type == "code" {
			cells = append(cells, splitMagic(i+1, string(c.Source+c.Input)))
		}
	}

	return cells, nil
}

// WithoutOutputs returns a notebook as JSON that has its code and nothing else: outputs may be many times as long. What
// is no notebook stays as it is.
func WithoutOutputs(src []byte) []byte {
	var b book
	if err := json.Unmarshal(src, &b); err != nil {
		return src
	}

	for i := range b.Cells {
		b.Cells[i].dropSource()
	}

	for _, w := range b.Worksheets {
		for i := range w.Cells {
			w.Cells[i].dropSource()
		}
	}

	short, err := json.Marshal(b)
	if err != nil {
		return src
	}

	return short
}

// dropSource takes away what is no code; the cell stays, and counts.
func (c *cell) dropSource() {
	if c.Type != "code" {
		c.Source, c.Input = "", ""
	}
}

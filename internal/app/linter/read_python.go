package linter

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"gpuard/internal/core/lint"
	"gpuard/internal/text/notebook"
	"gpuard/internal/text/python"
)

// readPython reads scripts and notebooks by the parser of a Python that is there. Files without a word of interest need
// none.
func (o Options) readPython(ctx context.Context, all []*fileReading) {
	var sources []python.Source
	var asked []*fileReading

	for _, one := range all {
		one.file = lint.File{Path: one.path, Kind: one.kind}
		if one.cutCells() && python.HasRuleWord(one.text) {
			sources = append(sources, python.Source{Path: one.path, Kind: one.kind, Cells: one.code})
			asked = append(asked, one)
		}
	}

	if len(sources) == 0 {
		return
	}

	program := o.Python
	if strings.ContainsRune(program, filepath.Separator) {
		if whole, err := filepath.Abs(program); err == nil {
			// It is started in another folder.
			program = whole
		}
	}

	read, err := pythonFiles(ctx, program, o.Env, sources)
	for i, one := range asked {
		if err != nil {
			one.problem, one.unread = err.Error(), true
			continue
		}
		one.file = read[i].File
		if bad := read[i].Problems; len(bad) > 0 && one.kind == lint.Python {
			one.skipped = fmt.Sprintf("not read: line %d: %s", bad[0].Line, bad[0].Why)
		}
	}
}

// cutCells takes a notebook apart; a script is one cell. It is false where nothing is left to be read.
func (one *fileReading) cutCells() bool {
	if one.kind != lint.Notebook {
		one.code = []lint.Cell{{Text: one.text}}
		return true
	}

	cells, err := notebook.ReadCells(one.text)
	if err != nil {
		one.skipped = "not read: " + err.Error()
	}

	one.code = cells

	return len(cells) > 0
}

// Package python reads Python through the interpreter's own parser: a request holds many files, the script that is
// embedded here answers with what each of them does. The package starts nothing: host/interpreter runs the script.
package python

import (
	"bytes"
	// The parts of the script.
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/lint"
)

// The parts of the script, each an idea of its own.
var (
	//go:embed names.py
	namesSource string
	//go:embed values.py
	valuesSource string
	//go:embed statements.py
	statementsSource string
	//go:embed bindings.py
	bindingsSource string
	//go:embed calls.py
	callsSource string
	//go:embed programs.py
	programsSource string
	//go:embed texts.py
	textsSource string
	//go:embed file.py
	fileSource string
)

// Script is the program for the interpreter, for Python 3.6 and newer: its parts in one file, in the order in which
// they need each other. It reads a request on standard input and imports, opens and starts nothing of the files it is
// given.
func Script() string {
	return strings.Join([]string{namesSource, valuesSource, statementsSource, bindingsSource, callsSource, programsSource, textsSource, fileSource}, "\n\n")
}

// Source is one file for the interpreter: a script has one cell, with number 0.
type Source struct {
	Path  string
	Kind  lint.Kind // Python or Notebook
	Cells []lint.Cell
}

// Reading is what one file does, and what of it could not be read.
type Reading struct {
	File     lint.File
	Problems []Problem
}

// Problem is why a cell, or the whole of a script, could not be read. It is no finding: it is counted.
type Problem struct {
	Cell int    `json:"cell"`
	Line int    `json:"line"`
	Why  string `json:"why"`
}

// minBytesPerProcess is how many bytes are worth a process of their own: starting one takes as long as reading 100 kB.
const minBytesPerProcess = 200_000

// DivideFiles divides files among at most n processes, in their order and about evenly by size.
func DivideFiles(files []Source, n int) [][]Source {
	total := 0
	for _, f := range files {
		total += f.byteSize()
	}

	n = max(1, min(n, total/minBytesPerProcess))
	var parts [][]Source
	begin, sum := 0, 0
	for i, f := range files {
		sum += f.byteSize()
		if i == len(files)-1 || sum >= total*(len(parts)+1)/n {
			parts = append(parts, files[begin:i+1])
			begin = i + 1
		}
	}

	return parts
}

func (s Source) byteSize() (n int) {
	for _, c := range s.Cells {
		n += len(c.Text)
	}
	return n
}

// fileHeader is the header of a file in a request; the bytes of its cells follow the line.
type fileHeader struct {
	Cells []cellHeader `json:"cells"`
}

type cellHeader struct {
	Number int `json:"number"`
	Bytes  int `json:"bytes"`
}

// EncodeRequest is what the script reads: for each file a line of JSON, then the bytes of its cells.
func EncodeRequest(files []Source) []byte {
	var b bytes.Buffer
	for _, f := range files {
		var h fileHeader
		for _, c := range f.Cells {
			h.Cells = append(h.Cells, cellHeader{c.Number, len(c.Text)})
		}

		line, _ := json.Marshal(h) //nolint:errchkjson // two numbers each
		b.Write(line)
		b.WriteByte('\n')

		for _, c := range f.Cells {
			b.Write(c.Text)
		}
	}
	return b.Bytes()
}

// DecodeAnswer returns what the files of a request do, in their order, as the script answered. What could not be parsed is
// among a reading's problems; an answer that is not of the script is an error.
func DecodeAnswer(files []Source, answer []byte) ([]Reading, error) {
	if len(files) == 0 {
		return nil, nil
	}

	lines := bytes.Split(bytes.TrimSuffix(answer, []byte("\n")), []byte("\n"))
	if len(lines) != len(files) {
		return nil, fmt.Errorf("cannot read the answer of Python: it has %d lines for %d files", len(lines), len(files))
	}

	read := make([]Reading, len(files))
	for i, line := range lines {
		var said reply
		if err := json.Unmarshal(line, &said); err != nil {
			return nil, fmt.Errorf("cannot read the answer of Python about %s: %w", files[i].Path, err)
		}
		read[i] = Reading{lint.File{Path: files[i].Path, Kind: files[i].Kind, Steps: said.toSteps(files[i])}, said.Problems}
	}

	return read, nil
}

// HasRuleWord reports whether a file has a word without which no rule about Python has anything to say. Others need not
// be parsed.
func HasRuleWord(src []byte) bool {
	return slices.ContainsFunc(ruleWords(), func(w string) bool { return bytes.Contains(src, []byte(w)) })
}

// ruleWords are parts of every name that a rule needs.
func ruleWords() []string {
	return []string{"VISIBLE_DEVICES", "CUDA", "cuda", "NCCL", "XLA_", "MASTER_PORT", "LOCAL_RANK", "AFFINITY_MASK", "TF_FORCE", "TF_GPU", "ROCR", "HIP_", "gpu", "GPU", "_DEVICES", "init_process_group", "vllm", "JAX_PLATFORM"}
}

package sweep

import (
	"fmt"
	"os"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/grid"
	"gpuard/internal/host/files"
)

// maxRunsFile is the size of a file of runs that must be a mistake, in bytes.
const maxRunsFile = 128 << 20

// ReadTable reads the runs from a CSV file, or from standard input for "-".
func ReadTable(path string) (grid.Grid, error) { return readRuns(path, "--csv", grid.ReadTable) }

// ReadLines reads the runs from a file of commands, or from standard input for "-".
func ReadLines(path string) (grid.Grid, error) {
	return readRuns(path, "--commands", grid.ReadCommands)
}

func readRuns(path, flag string, parse func([]byte) (grid.Grid, error)) (grid.Grid, error) {
	var data []byte
	var err error
	if path != "-" {
		data, err = files.ReadNamed(path, maxRunsFile)
	} else {
		data, err = files.ReadInput(os.Stdin, maxRunsFile)
	}

	if err != nil {
		return grid.Grid{}, &exit.Usage{Text: fmt.Sprintf("cannot read %s %s: %v", flag, path, err)}
	}

	g, err := parse(data)
	if err != nil {
		return g, &exit.Usage{Text: fmt.Sprintf("cannot read %s %s: %v", flag, path, err)}
	}

	return g, nil
}

// PreviewRuns makes the commands of some runs, the first and the last among them, and starts nothing.
func PreviewRuns(host *machine.Host, q *Request, most int) (runs []int, commands [][]string, unused []string, err error) {
	q.Folder, err = os.Getwd()
	if err != nil {
		return nil, nil, nil, err
	}

	command, err := checkCommands(host, q)
	if err != nil {
		return nil, nil, nil, err
	}

	n := q.Grid.Len()
	for i := range min(n, most) {
		if i == most-1 {
			i = n - 1
		}
		words, err := command.Words(i)
		if err != nil {
			return nil, nil, nil, err
		}
		runs, commands = append(runs, i), append(commands, words)
	}

	return runs, commands, command.Unused, nil
}

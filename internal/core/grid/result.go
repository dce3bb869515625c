package grid

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/batchlog"
)

// Result is one run in the tables.
type Result struct {
	Run        int               `json:"run"`        // its number, from 0
	Parameters map[string]string `json:"parameters"` // by name
	// "ok", "failed", "running" or "not done".
	State string `json:"state"`
	// Its exit code; null while there is none, and after a signal.
	Exit *int `json:"exit"`
	// That ended it, such as "SIGKILL"; "" none.
	Signal string `json:"signal"`
	// How often it was started.
	Starts int `json:"starts"`
	// Duration of the last start.
	Seconds float64           `json:"seconds"`
	Devices []batchlog.Device `json:"devices"` // of the last start
	// Its output, a path in the sweep's folder.
	Log string `json:"log"`
	// Why it could not be started, or a fault of the machine; "" none.
	Problem string `json:"problem"`
}

// ResultOf is the result of run i.
func ResultOf(s *batchlog.State, g *Grid, i int) Result {
	r := &s.Runs[i]
	out := Result{Run: i, Parameters: map[string]string{}, State: "not done", Starts: r.Starts, Devices: []batchlog.Device{}, Log: path.Join(batchlog.RunFolder(i, len(s.Runs)), "log")}
	if g.Commands == nil {
		for at, value := range g.ValuesOf(i) {
			out.Parameters[g.Names[at]] = value
		}
	}

	switch r.Phase {
	case batchlog.Waiting, batchlog.Begun:
	case batchlog.Running:
		out.State = "running"
	case batchlog.OK:
		out.State = "ok"
	case batchlog.Failed, batchlog.Cancelled:
		out.State = "failed"
	}

	last := r.LastEvent()
	if last.Kind == batchlog.End {
		out.Signal = last.Signal
		if out.Signal == "" && !last.Stopped {
			out.Exit = &last.Exit
		}
		out.Seconds, out.Problem = last.Seconds, last.Problem+last.Fault
	}

	out.Devices = append(out.Devices, last.Devices...)

	return out
}

// fixedColumns are the columns of the table other than the parameters.
func fixedColumns() []string {
	return []string{"run", "state", "exit", "signal", "starts", "seconds", "devices", "uuids", "log"}
}

// WriteCSV writes the table of results: one line for each run, the parameters after its number. A parameter with the
// name of another column gets the prefix "param_".
func WriteCSV(w io.Writer, s *batchlog.State, g *Grid) error {
	out := csv.NewWriter(w)
	head := fixedColumns()[:1:1]
	for _, name := range g.Names {
		for slices.Contains(fixedColumns(), name) {
			name = "param_" + name
		}
		head = append(head, name)
	}

	// An error is kept, and returned by Error.
	_ = out.Write(append(head, fixedColumns()[1:]...))
	for i := range s.Runs {
		r := ResultOf(s, g, i)
		row := []string{strconv.Itoa(i)}
		for _, name := range g.Names {
			row = append(row, r.Parameters[name])
		}

		exit, indices, uuids := "", []string{}, []string{}
		if r.Exit != nil {
			exit = strconv.Itoa(*r.Exit)
		}

		for _, d := range r.Devices {
			indices, uuids = append(indices, strconv.Itoa(d.Index)), append(uuids, string(d.UUID))
		}

		_ = out.Write(append(row, r.State, exit, r.Signal, strconv.Itoa(r.Starts), strconv.FormatFloat(r.Seconds, 'f', 3, 64),
			strings.Join(indices, " "), strings.Join(uuids, " "), r.Log))
	}

	out.Flush()

	return out.Error()
}

// WriteJSON writes the same as one object, a run on each line.
func WriteJSON(w io.Writer, s *batchlog.State, g *Grid) error {
	if _, err := io.WriteString(w, `{"schema":"gpuard.sweep-results/1","runs":[`); err != nil {
		return err
	}
	for i := range s.Runs {
		line, err := json.Marshal(ResultOf(s, g, i))
		if err != nil {
			return err
		}

		end := ",\n"
		if i == 0 {
			end = "\n"
		}

		if _, err := fmt.Fprintf(w, "%s%s", end, line); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, "\n]}\n")

	return err
}

package projectcmd

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/app/services"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/service"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/failure"
)

// NewPsCommand makes gpuard ps.
func NewPsCommand(p *cli.Program) *cobra.Command {
	o := &ProjectFlags{}
	cmd := &cobra.Command{
		Use:   "ps [flags] [SERVICE...]",
		Short: "Show the services that are up, and their devices",
		Long: `Shows each instance of the services that gpuard up has started: state, devices,
process and age, and the reason if it waits, has failed or cannot be placed.
gpuard status shows the GPUs of other projects and users.`,
		Example: `  gpuard ps
  gpuard ps node                           one service
  gpuard ps --json                         for scripts`,
		ValidArgsFunction: CompleteServices(p, o, true),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, view, mine, err := FindInstances(cmd.Context(), p, o.File, args)
			switch {
			case err != nil && len(args) > 0 && slices.Contains([]string{"a", "ax", "aux"}, args[0]):
				return failure.Usagef("cannot find a service %q: gpuard ps shows the services of a gpuard.yaml; the processes on the GPUs: gpuard status", args[0])
			case err != nil:
				return err
			}

			answer := MakePsAnswer(cli.SchemaOf(cmd), view, mine.Has)

			return p.Show(o.JSON, answer, func(v *console.Page) { instancesView(v, view, mine.Has, time.Now()) })
		},
	}
	o.Add(cmd, "answer as one JSON object")

	return cmd
}

// PsAnswer is the JSON answer of ps, and of up -d and restart.
type PsAnswer struct {
	// "gpuard.ps/1", "gpuard.up/1" or "gpuard.restart/1".
	Schema  string `json:"schema"`
	Project string `json:"project"` // its name
	File    string `json:"file"`    // its gpuard.yaml
	// --machine of its gpuard up; "" for the hardware.
	Machine string `json:"machine"`
	// A supervisor starts and ends instances; without one they keep running.
	Supervised bool `json:"supervised"`
	// Dependencies first, else in the order of the file.
	Instances []PsInstance `json:"instances"`
}

// PsInstance is an instance of a service in the JSON answer.
type PsInstance struct {
	Name    string        `json:"name"`    // such as "node-0"
	Service string        `json:"service"` // its service
	Ordinal int           `json:"ordinal"` // its number, from 0
	State   service.State `json:"state"`   // its state
	// It can be used, by the key ready of its service.
	Ready bool `json:"ready"`
	// The answer of the key healthy of its service; null without that key, or before an answer.
	Healthy *bool `json:"healthy"`
	// why it waits, how it ended, or why it was refused or is unhealthy; "" for none.
	Why string `json:"why"`
	// false if it was ended by gpuard down or removed from the file.
	Wanted bool `json:"wanted"`
	// It was started with the settings that the file has now.
	Current bool `json:"current"`
	// The PID of its command; 0 when it does not run.
	PID int `json:"pid"`
	// "" without a device.
	Lease string `json:"lease"`
	// The devices in the order that it sees them.
	Devices []job.Given `json:"devices"`
	// The share of the memory of each of them; 0 for whole devices.
	Share gpu.Bytes `json:"share"`
	// The begin of its state; null when it was never started.
	Since *time.Time `json:"since"`
	// The restarts since it was started by up or restart.
	Restarts int `json:"restarts"`
	// Code of its last end; null before the first, after a signal, and if it was not seen.
	Exit *int `json:"exit"`
	// That ended it last; "" for none.
	Signal string `json:"signal"`
	// Words of its command.
	Command []string `json:"command"`
	// File with its output.
	Log string `json:"log"`
	// The port of this machine that its check of readiness or health asks; 0 none.
	Port int `json:"port,omitempty"`
}

// MakePsAnswer is the JSON answer about a project.
func MakePsAnswer(schema string, view *services.View, which func(*services.Row) bool) PsAnswer {
	answer := PsAnswer{schema, view.Name, view.File, view.Machine, view.Supervised, []PsInstance{}}
	for i := range view.Rows {
		row := &view.Rows[i]
		if !which(row) {
			continue
		}

		out := PsInstance{Name: row.Name, Service: serviceOf(row), Ordinal: row.Ordinal, State: row.State, Ready: row.IsUsable(), Healthy: row.Seen.Healthy, Why: row.Why,
			Wanted: row.Wanted, Current: row.Fresh, PID: row.Main.PID, Lease: row.Lease, Devices: append([]job.Given{}, row.Devices...), Share: row.Share,
			Restarts: row.Restarts, Exit: row.Exit, Signal: row.Signal, Command: append([]string{}, row.Command...), Log: row.Log, Port: row.Port()}

		if !row.Since.IsZero() {
			out.Since = &row.Since
		}

		answer.Instances = append(answer.Instances, out)
	}
	return answer
}

// stateWord is the state of an instance in one or two words, and its colour.
func stateWord(row *services.Row) (string, console.Style) {
	switch row.State {
	case service.Running:
		if !row.Seen.Ready {
			return "not ready", console.Yellow
		}
		if !row.IsUsable() {
			return "unhealthy", console.Red
		}
		return "running", console.Green
	case service.Done:
		return "done", console.Dim
	case service.Failed, service.Refused:
		return string(row.State), console.Red
	case "":
		return "starting", console.Yellow
	}
	return string(row.State), console.Yellow
}

// whereOf lists the devices of an instance: "GPU 0, GPU 1", or "8 GiB of GPU 2" for a share.
func whereOf(row *services.Row) string {
	var labels []string
	for _, d := range row.Devices {
		label, _, _ := strings.Cut(d.String(), " (")
		labels = append(labels, label)
	}

	text := strings.Join(labels, ", ")
	switch {
	case text == "" && row.State == service.Running:
		return "no GPU"
	case text == "":
		return "-"
	case row.Share > 0:
		return row.Share.String() + " of " + text
	}

	return text
}

// remarkText is the text below the line of an instance; "" if there is none.
func remarkText(row *services.Row) string {
	var parts []string
	switch {
	case row.Why != "":
		parts = append(parts, row.Why)
	case row.State == service.Done || row.State == service.Failed:
		if text := endText(row); text != "ended" {
			parts = append(parts, text)
		}
	}

	if row.Restarts > 0 {
		parts = append(parts, prose.CountNoun(row.Restarts, "restart"))
	}

	switch {
	case !row.Wanted:
		parts = append(parts, "no longer wanted")
	case !row.Fresh && isAlive(row):
		parts = append(parts, "the file has changed since it was started")
	}

	return strings.Join(parts, "; ")
}

// NothingUpText says that nothing of a project is up, and how to start it.
func NothingUpText(view *services.View) string {
	name := "this project"
	if view.Name != "" {
		name = "the project " + prose.Clean(view.Name)
	}
	return "nothing of " + name + " is up; to start it: gpuard up -d"
}

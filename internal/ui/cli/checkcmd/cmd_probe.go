package checkcmd

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app/explain"
	"gpuard/internal/core/visible"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/failure"
)

// probeAnswer is the JSON answer of explain --probe.
type probeAnswer struct {
	Schema string `json:"schema"` // "gpuard.explain/1"
	visible.View
	// The driver's own answer.
	Probe explain.Probe `json:"probe"`
}

// showProbe is explain --probe: the view of explain and the driver's own answer. A difference exits with 1.
func showProbe(p *cli.Program, cmd *cobra.Command, given []string, asJSON bool) error {
	view, m, probe, err := explain.RunProbe(cmd.Context(), p.Host, given)
	if err != nil {
		return err
	}

	view.Notes = append(unknownVariables(given), view.Notes...)
	err = p.Show(asJSON, probeAnswer{"gpuard.explain/1", view, probe}, func(v *console.Page) {
		explainView(v, view, m)
		probeView(v, probe)
	})
	if err == nil && !probe.Agrees {
		err = &failure.ShownError{Err: errors.New("the driver shows something else")}
	}

	return err
}

// probeView writes the driver's answer: one line if it agrees, else every difference and the data for a bug report.
func probeView(p *console.Page, probe explain.Probe) {
	p.Line()
	about := fmt.Sprintf("(CUDA %s, %s)", orUnknown(probe.CUDA), probe.Library)
	if probe.Code != 0 {
		about = fmt.Sprintf("(cuInit answers %d, %s; CUDA %s, %s)", probe.Code, probe.Word, orUnknown(probe.CUDA), probe.Library)
	}

	if probe.Agrees {
		what := "the same devices in the same order"
		if len(probe.Devices) == 0 {
			what = "no device either"
		}
		p.WriteParagraph(console.Green.Span("driver: "), console.Normal, p.Text("agrees, it shows "+what+" "+about))
	} else {
		p.WriteParagraph(console.Red.Span("driver: "), console.Normal, p.Text("shows something else, and the driver is right "+about))
		for _, d := range probe.Differences {
			p.WriteParagraph(console.Normal.Span("  "), console.Normal, p.Text(d))
		}

		p.Line()
		p.WriteParagraph(console.Span{}, console.Normal, "This is a mistake in gpuard. Please report it with these lines:")

		for _, line := range probeEvidence(probe) {
			p.WriteParagraph(console.Normal.Span("  "), console.Normal, p.Text(line))
		}
	}
}

// probeEvidence lists the variables, versions and devices on which the answer depends.
func probeEvidence(probe explain.Probe) []string {
	out := append([]string{}, probe.Variables...)
	out = append(out, fmt.Sprintf("driver %s, CUDA %s, cuInit %d, %s", orUnknown(probe.Driver), orUnknown(probe.CUDA), probe.Code, probe.Library))
	for _, g := range probe.GPUs {
		words := []string{fmt.Sprintf("GPU %d:", g.Index), string(g.UUID), g.PCI, g.Name, g.Compute}
		out = append(out, strings.TrimRight(strings.Join(words, " "), " "))
		out = append(out, g.MIG...)
	}

	return out
}

func orUnknown(version string) string { return cmp.Or(version, "unknown") }

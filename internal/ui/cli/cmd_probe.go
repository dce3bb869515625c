package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app/explain"
	"gpuard/internal/core/visible"
)

// explainedAndProbed is the JSON answer of explain --probe.
type explainedAndProbed struct {
	Schema string `json:"schema"` // "gpuard.explain/1"
	visible.View
	Probe explain.Probe `json:"probe"` // the driver's own answer
}

// probe is explain --probe: the view of explain and the driver's own answer. A difference exits with 1.
func (p *Program) probe(cmd *cobra.Command, given []string, asJSON bool) error {
	view, m, probe, err := explain.RunProbe(cmd.Context(), p.Host, given)
	if err != nil {
		return err
	}
	view.Notes = append(unknownVariables(given), view.Notes...)
	if asJSON {
		if err := writeJSON(p.Out, explainedAndProbed{"gpuard.explain/1", view, probe}); err != nil {
			return err
		}
	} else {
		Explain(p.Out, view, m, p.term(p.Out))
		Probed(p.Out, probe, p.term(p.Out))
	}
	if !probe.Agrees {
		return &silent{errors.New("the driver shows something else")}
	}
	return nil
}

// Probed writes the driver's answer: one line if it agrees, else every difference and the data for a bug report.
func Probed(w io.Writer, probe explain.Probe, term Term) {
	p := page{term: term}
	p.line()
	about := fmt.Sprintf("(CUDA %s, %s)", orUnknown(probe.CUDA), probe.Library)
	if probe.Code != 0 {
		about = fmt.Sprintf("(cuInit answers %d, %s; CUDA %s, %s)", probe.Code, probe.Word, orUnknown(probe.CUDA), probe.Library)
	}
	if probe.Agrees {
		what := "the same devices in the same order"
		if len(probe.Devices) == 0 {
			what = "no device either"
		}
		p.paragraph(span{green, "driver: "}, normal, p.text("agrees, it shows "+what+" "+about))
	} else {
		p.paragraph(span{red, "driver: "}, normal, p.text("shows something else, and the driver is right "+about))
		for _, d := range probe.Differences {
			p.paragraph(span{normal, "  "}, normal, p.text(d))
		}
		p.line()
		p.paragraph(span{}, normal, "This is a mistake in gpuard. Please report it with these lines:")
		for _, line := range evidence(probe) {
			p.paragraph(span{normal, "  "}, normal, p.text(line))
		}
	}
	_, _ = io.WriteString(w, p.out.String())
}

// evidence lists the variables, versions and devices on which the answer depends.
func evidence(probe explain.Probe) []string {
	out := append([]string{}, probe.Variables...)
	out = append(out, fmt.Sprintf("driver %s, CUDA %s, cuInit %d, %s", orUnknown(probe.Driver), orUnknown(probe.CUDA), probe.Code, probe.Library))
	for _, g := range probe.GPUs {
		words := []string{fmt.Sprintf("GPU %d:", g.Index), string(g.UUID), g.PCI, g.Name, g.Compute}
		out = append(out, strings.TrimRight(strings.Join(words, " "), " "))
		out = append(out, g.MIG...)
	}
	return out
}

func orUnknown(version string) string {
	if version == "" {
		return "unknown"
	}
	return version
}

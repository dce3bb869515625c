package checkcmd

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/app/verify"
	"gpuard/internal/core/gpu"
	"gpuard/internal/ui/console"
)

// verdictView writes the result between the output lines of the command: every paragraph begins with "gpuard: ".
func verdictView(p *console.Page, v *verify.Verification) {
	p.WriteParagraph(console.Normal.Span("gpuard: "), console.Normal, p.Text(v.Line()))

	for _, n := range v.Notes {
		p.WriteParagraph(console.Normal.Span("gpuard: note: "), console.Normal, p.Text(n))
	}

	if v.Remedy != "" {
		p.WriteParagraph(console.Normal.Span("gpuard: to do: "), console.Normal, p.Text(v.Remedy))
	}
}

// verificationView writes the verdict, then the facts of each source, then the notes and what to do.
func verificationView(p *console.Page, v *verify.Verification) {
	p.WriteParagraph(wordStyle(v.Verdict).Span(v.Verdict.Words()+": "), console.Normal, p.Text(v.Text))
	f := &v.Facts
	names := func(ids []gpu.UUID) string {
		if len(ids) == 0 {
			return "no GPU"
		}
		var out []string
		for _, id := range ids {
			out = append(out, f.Device(id))
		}

		return strings.Join(out, ", ")
	}

	said := func(witness, text string) {
		p.WriteParagraph(console.Dim.Span(console.Pad(witness, 13, false, "")), console.Normal, p.Text(text))
	}

	switch {
	case len(f.Machine.Devices) == 0:
		said("environment", "not known: the GPUs could not be read")
	case f.Unread != "":
		said("environment", "not known: "+f.Unread)
	case v.Variable != "":
		said("environment", v.Variable+" shows "+names(f.Promised))
	default:
		said("environment", "no variable is set: "+names(f.Promised))
	}

	if v.Lease != "" {
		said("lease", v.Lease+" has "+names(f.Leased))
	}

	for _, s := range v.Sightings {
		memory := "memory unknown"
		if s.Memory != nil {
			memory = s.Memory.String()
		}
		said("driver", fmt.Sprintf("%s (process %d) on %s, %s, seen for %.1f s", s.Command, s.PID, f.Device(s.UUID), memory, s.Last-s.First))
	}

	switch {
	case len(v.Sightings) > 0:
	case f.Unlisted != "":
		said("driver", "not known: "+f.Unlisted)
	default:
		said("driver", fmt.Sprintf("no process of the job on any GPU, watched for %.1f s", v.Watched))
	}

	var sentences []string
	for i := range v.Frameworks {
		sentences = append(sentences, v.Frameworks[i].Sentence())
		said("framework", sentences[i])
	}

	for _, n := range v.Notes {
		if !slices.Contains(sentences, n) {
			p.WriteParagraph(console.Yellow.Span("note: "), console.Normal, p.Text(n))
		}
	}

	if v.Remedy != "" {
		p.WriteParagraph(console.Bold.Span("to do: "), console.Normal, p.Text(v.Remedy))
	}
}

package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"gpuard/internal/app/verify"
	"gpuard/internal/core/gpu"
)

// Verdict writes the result between the output lines of the command: every paragraph begins with "gpuard: ".
func Verdict(w io.Writer, v *verify.Verification, term Term) {
	p := page{term: term}
	p.paragraph(span{normal, "gpuard: "}, normal, p.text(v.Line()))
	for _, n := range v.Notes {
		p.paragraph(span{normal, "gpuard: note: "}, normal, p.text(n))
	}
	if v.Remedy != "" {
		p.paragraph(span{normal, "gpuard: to do: "}, normal, p.text(v.Remedy))
	}
	_, _ = io.WriteString(w, p.out.String())
}

// Verification writes the verdict, then the facts of each source, then the notes and what to do.
func Verification(w io.Writer, v *verify.Verification, term Term) {
	p := page{term: term}
	p.paragraph(span{wordStyle(v.Verdict), v.Verdict.Words() + ": "}, normal, p.text(v.Text))
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
	said := func(witness, text string) { p.paragraph(span{dim, pad(witness, 13, false, "")}, normal, p.text(text)) }
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
			p.paragraph(span{yellow, "note: "}, normal, p.text(n))
		}
	}
	if v.Remedy != "" {
		p.paragraph(span{bold, "to do: "}, normal, p.text(v.Remedy))
	}
	_, _ = io.WriteString(w, p.out.String())
}

package job

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/prose"
)

// maxPublicNames is how many processes a discreet reason names.
const maxPublicNames = 3

// PublicView is the reason as it may be shown to anybody: of a command line only the program is left, for arguments may
// hold secrets.
func (r Reason) PublicView() Reason {
	if len(r.Processes) == 0 {
		return r
	}

	r.Processes, r.Remedy = slices.Clone(r.Processes), ""
	var names []string
	for i := range r.Processes {
		b := &r.Processes[i]
		b.Command = prose.ProgramName(b.Command)
		names = append(names, b.publicName())
	}

	if more := len(names) - maxPublicNames; more > 0 {
		names = append(names[:maxPublicNames], fmt.Sprintf("%d more", more))
	}

	if r.Verdict == Busy {
		r.Text = "in use by " + prose.JoinWords(names, "and")
	}

	return r
}

// publicName names a process: "PID 4242 of bob (python, 20 GiB)".
func (b *Blocker) publicName() string {
	var about []string
	if b.Command != "" {
		about = append(about, b.Command)
	}

	if b.Memory != nil {
		about = append(about, b.Memory.String())
	}

	who := "a process outside of this PID namespace"
	if b.PID > 0 {
		who = fmt.Sprintf("PID %d", b.PID)
		if b.User != "" {
			who += " of " + prose.Clean(b.User)
		}
	}

	if len(about) == 0 {
		return who
	}

	return who + " (" + strings.Join(about, ", ") + ")"
}

// PublicView is the refusal with discreet reasons. What to do is left out where a process is in the way, for it may
// name the command.
func (r *Refusal) PublicView() *Refusal {
	out := *r
	out.Reasons = slices.Clone(r.Reasons)

	for i := range out.Reasons {
		from := &r.Reasons[i]
		if len(from.Processes) == 0 {
			continue
		}
		out.Reasons[i], out.Remedy = from.PublicView(), ""
		if before, told := strings.CutSuffix(out.Summary, from.Text); told {
			out.Summary = before + out.Reasons[i].Text
		}
	}

	return &out
}

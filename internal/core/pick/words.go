package pick

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
)

// processText names a process: "PID 4242 of bob (python train.py, 20 GiB, 3 h old)".
func (q *query) processText(p gpu.Process) string {
	if p.PID == 0 {
		return fmt.Sprintf("a process outside of this PID namespace (PID %d there, %s)", p.Outside, memoryText(p.Memory))
	}

	about := []string{cmp.Or(shortCommand(p.Command), "unknown command"), memoryText(p.Memory)}
	if age := q.processAge(p); age != "" {
		about = append(about, age+" old")
	}

	if p.Container != "" {
		about = append(about, "in container "+prose.Clean(p.Container[:min(12, len(p.Container))]))
	}

	text := fmt.Sprintf("PID %d of %s (%s)", p.PID, cmp.Or(prose.Clean(p.User), "an unknown user"), strings.Join(about, ", "))
	if isEnding(p) {
		text += ", which is ending"
	}

	return text
}

// untilFreedRemedy is the remedy where all processes in the way are ending. Mostly the driver frees their memory at
// once; where it does not, as for a zombie, doctor says what holds it.
func untilFreedRemedy() string {
	return option.Expand("try again in a moment (if nothing changes: {gpuard doctor})")
}

// isEnding reports zombies and processes that /proc no longer has: the driver will free their memory without help.
func isEnding(p gpu.Process) bool { return p.State == "Z" || p.State == "gone" }

// maxNamesInText is the number of processes, leases or remedies that one sentence names.
const maxNamesInText = 3

// processesText names the largest processes and counts the others.
func (q *query) processesText(ps []gpu.Process) string {
	names := prose.Texts(ps[:min(maxNamesInText, len(ps))], q.processText)
	if more := len(ps) - maxNamesInText; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}

	return prose.JoinWords(names, "and")
}

// blockersText is the short form of processesText.
func (q *query) blockersText(bs []job.Blocker) string {
	var names []string
	for _, b := range bs[:min(maxNamesInText, len(bs))] {
		who := fmt.Sprintf("PID %d of %s", b.PID, cmp.Or(prose.Clean(b.User), "an unknown user"))
		if b.PID == 0 {
			who = "a process outside of this PID namespace"
		}
		names = append(names, fmt.Sprintf("%s uses %s", who, memoryText(b.Memory)))
	}
	return prose.JoinWords(names, "and")
}

func blockersOf(ps []gpu.Process) []job.Blocker {
	var out []job.Blocker
	for _, p := range ps {
		out = append(out, job.Blocker{PID: p.PID, Start: p.Start, User: p.User, Memory: p.Memory, Command: p.Command})
	}
	return out
}

// leaseText names a lease: "k3f9 by alice (train.py, PID 4242, since 14:02)".
func leaseText(in Context, l job.Lease) string {
	about := []string{cmp.Or(shortCommand(l.Command), "unknown command")}
	if l.Unreadable {
		about[0] = "its file cannot be read"
	}

	if l.Share > 0 {
		about = append([]string{fmt.Sprintf("share of %s", l.Share)}, about...)
	}

	if l.PID > 0 {
		about = append(about, PIDText(l.PID, isOtherNamespace(l.Namespace, in.Namespace)))
	}

	if !l.Since.IsZero() {
		about = append(about, "since "+clockText(in.Now, l.Since))
	}

	return fmt.Sprintf("%s by %s (%s)", l.ID, cmp.Or(prose.Clean(l.User), fmt.Sprintf("uid %d", l.UID)), strings.Join(about, ", "))
}

// PIDText names a process by its number, which counts only in its own PID namespace: apart if that is not the caller's.
func PIDText(pid int, apart bool) string {
	if apart {
		return fmt.Sprintf("PID %d in its container", pid)
	}
	return fmt.Sprintf("PID %d", pid)
}

func isOtherNamespace(namespace, here uint64) bool {
	return namespace != 0 && here != 0 && namespace != here
}

// endedText says that the command of a lease has ended, and which processes keep the lease; "" while the command
// runs.
func endedText(l job.Lease, now time.Time) string {
	if !l.Ended {
		return ""
	}
	if until := l.WaitsUntil(now); !until.IsZero() {
		return ", whose command has ended and which is kept for its next start until " + until.Format(time.TimeOnly)
	}

	var names []string
	for _, b := range l.HeldBy {
		about := cmp.Or(prose.ProgramName(b.Command), "unknown command")
		if b.Stopped {
			about += ", stopped"
		}
		names = append(names, fmt.Sprintf("PID %d (%s)", b.PID, about))
	}

	return ", whose command has ended but which is still held by " + cmp.Or(prose.JoinWords(names, "and"), "an unknown process")
}

// clockText writes the time of day, with the date if it is not today.
func clockText(now, t time.Time) string {
	if now.IsZero() {
		return t.Format("2006-01-02 15:04")
	}
	t = t.In(now.Location())
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format("15:04")
	}

	return t.Format("2006-01-02 15:04")
}

// processAge is rounded down to its largest unit; "" when unknown.
func (q *query) processAge(p gpu.Process) string {
	if q.in.Now.IsZero() || p.Started.IsZero() {
		return ""
	}
	d := max(0, q.in.Now.Sub(p.Started))
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d d", d/(24*time.Hour))
	case d >= time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d >= time.Minute:
		return fmt.Sprintf("%d min", d/time.Minute)
	}

	return fmt.Sprintf("%d s", d/time.Second)
}

func memoryText(b *gpu.Bytes) string {
	if b == nil {
		return "unknown size"
	}
	return b.String()
}

// formatSizeFlag writes a size for --mem, rounded down so that a device can meet it.
func formatSizeFlag(b gpu.Bytes) string {
	if b >= 10*gpu.GiB || b%gpu.GiB == 0 {
		return fmt.Sprintf("%dG", b/gpu.GiB)
	}
	return fmt.Sprintf("%dM", b/gpu.MiB)
}

// shortCommand fits a command line into a sentence: it drops the program's folder, then cuts. The reason's blockers
// have the whole command.
func shortCommand(command string) string {
	text := prose.Clean(command)
	if text == prose.Brief(text) {
		return text
	}
	program, arguments, _ := strings.Cut(text, " ")

	return prose.Brief(strings.TrimSpace(program[strings.LastIndexByte(program, '/')+1:] + " " + arguments))
}

// uniqueStrings keeps the first of each, in order.
func uniqueStrings(parts []string) []string {
	seen := map[string]bool{}
	var out []string
	for _, p := range parts {
		if !seen[p] {
			seen[p] = true
			out = append(out, p)
		}
	}

	return out
}

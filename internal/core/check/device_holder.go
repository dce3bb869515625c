package check

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/display"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/leftover"
	"gpuard/internal/core/prose"
)

func memoryHolders() Check {
	return Check{Page{
		Code:  "memory-holders",
		Title: "GPU memory belongs to living programs",
		Text: `A program that has ended gives its memory back, once its parent has collected it and its last thread has left the driver. Memory of a
process that has ended (a zombie), or of none that can be seen, is lost for everybody else until somebody ends what holds it: the zombie's parent,
a worker that lost its main process, a container.

Programs without a lease of gpuard are listed too, as information: gpuard keeps its jobs off their devices. A desktop takes a few hundred MiB of
the GPU that shows it.`,
		From: []string{"https://man7.org/linux/man-pages/man5/proc.5.html", "NVIDIA/go-nvml: gen/nvml/nvml.h (nvmlDeviceGetComputeRunningProcesses)"},
	}, false, checkHolders}
}

func checkHolders(s hostinfo.Site) []Finding {
	const code = "memory-holders"
	m := s.Machine.Found
	switch {
	case s.Machine.Problem != "" && bare(s):
		return ok(code, "there is no GPU whose memory could be held")
	case s.Machine.Problem != "":
		return blind(code, "who holds GPU memory", s.Machine.Problem, "")
	case s.Leftovers.Problem != "":
		return blind(code, "which memory belongs to a lease", s.Leftovers.Problem, "")
	}
	var found []Finding
	for _, d := range m.Devices {
		if d.Unlisted != "" {
			found = append(found, blind(code, "who is on "+named(m, d), d.Unlisted, "")...)
		}
	}
	var living []leftover.Row
	for _, r := range s.Leftovers.Found {
		if f, dead := lost(code, s, r); dead {
			found = append(found, f)
		} else if r.PID != 0 {
			living = append(living, r)
		}
	}
	if len(living) > 0 {
		found = append(found, Finding{code, Info, "programs without a lease of gpuard hold " + holders(s, living), "gpuard keeps its jobs off these devices.", "gpuard evict lists them"})
	}
	if text := desktop(m); text != "" {
		found = append(found, Finding{code, Info, text, "That memory is missing to programs.", ""})
	}
	if len(found) == 0 {
		return ok(code, "no memory is held without a lease")
	}
	return found
}

// lost reports memory that no living process accounts for; false for the others. Processes outside a container, and
// those of Windows under WSL, cannot be seen.
func lost(code string, s hostinfo.Site, r leftover.Row) (Finding, bool) {
	m, limitedView := s.Machine.Found, s.Container != "" || s.Driver.Found.WSL
	where := fmt.Sprintf("GPU %d", r.Index)
	if d, _, found := m.Find(r.UUID); found {
		where = named(m, *d)
	}
	memory := "memory"
	if r.Memory != nil {
		memory = r.Memory.String()
	}
	gone := slices.ContainsFunc(m.Processes, func(p gpu.Process) bool { return p.PID == r.PID && p.State == "gone" })
	f := Finding{Code: code, Severity: Warning, Why: "No other program can use it until the process that holds it has ended."}
	switch {
	case r.Zombie:
		f.Seen = fmt.Sprintf("process %d%s has ended and still holds %s on %s", r.PID, of(r.User), memory, where)
		f.Do = fmt.Sprintf("see whether its parent, which has not collected it, may end: ps -fp $(ps -o ppid= -p %d)", r.PID)
		return f, true
	case r.PID != 0 && !gone:
		return f, false
	case limitedView && r.PID == 0:
		return Finding{code, Info, fmt.Sprintf("%s on %s are held by something outside of this system's view", memory, where), "It is missing to programs here.", ""}, true
	case limitedView:
		return f, false
	case gone:
		f.Seen = fmt.Sprintf("process %d, which does not exist any more, holds %s on %s", r.PID, memory, where)
	default:
		f.Seen = fmt.Sprintf("%s on %s belong to no process that can be seen", memory, where)
	}
	f.Do = "see who has the driver open: sudo fuser -v /dev/nvidia*; if none has: " + resetAt(m, r)
	return f, true
}

func resetAt(m gpu.Machine, r leftover.Row) string {
	if d, _, found := m.Find(r.UUID); found {
		if _, command, told := strings.Cut(reset(*d), ", then: "); told {
			return command
		}
	}
	return "reboot the machine"
}

func of(user string) string {
	if user == "" {
		return ""
	}
	return " of " + prose.Clean(user)
}

// holders names the largest programs, each with its memory and device.
func holders(s hostinfo.Site, rows []leftover.Row) string {
	const most = 4
	var words []string
	for i, r := range rows {
		if i == most {
			words = append(words, fmt.Sprintf("%d more", len(rows)-most))
			break
		}
		memory := "memory"
		if r.Memory != nil {
			memory = r.Memory.String()
		}
		where := fmt.Sprintf("GPU %d", r.Index)
		if d, _, found := s.Machine.Found.Find(r.UUID); found {
			where = named(s.Machine.Found, *d)
		}
		program, _, _ := strings.Cut(r.Command, " ")
		words = append(words, fmt.Sprintf("%s on %s (process %d%s, %s)", memory, where, r.PID, of(r.User), prose.Brief(program[strings.LastIndex(program, "/")+1:])))
	}
	return prose.List(words, "and")
}

// worthAWord is the graphics memory from which a desktop is reported.
const worthAWord = 256 * gpu.MiB

// desktop says how much memory display programs use.
func desktop(m gpu.Machine) string {
	var words []string
	for _, d := range m.Devices {
		var sum gpu.Bytes
		processes := m.On(d.UUID)
		screen := display.Of(d, processes)
		for _, p := range processes {
			if screen.Serves(p) && p.Memory != nil {
				sum += *p.Memory
			}
		}
		if sum >= worthAWord {
			words = append(words, fmt.Sprintf("%s of %s", sum, named(m, d)))
		}
	}
	if len(words) == 0 {
		return ""
	}
	return "display programs take " + prose.List(words, "and")
}

package check

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/display"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/leftover"
	"gpuard/internal/core/option"
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
	case s.Machine.Problem != "" && hasNoGPU(s):
		return okFinding(code, "there is no GPU whose memory could be held")
	case s.Machine.Problem != "":
		return unknownFinding(code, "who holds GPU memory", s.Machine.Problem, "")
	case s.Leftovers.Problem != "":
		return unknownFinding(code, "which memory belongs to a lease", s.Leftovers.Problem, "")
	}

	var found []Finding
	for _, d := range m.Devices {
		if d.Unlisted != "" {
			found = append(found, unknownFinding(code, "who is on "+deviceLabel(m, d), d.Unlisted, "")...)
		}
	}

	var living []leftover.Row
	for _, r := range s.Leftovers.Found {
		if f, dead := lostMemory(code, s, r); dead {
			found = append(found, f)
		} else if r.PID != 0 {
			living = append(living, r)
		}
	}

	if len(living) > 0 {
		found = append(found, Finding{code, Info, "programs hold memory without a lease: " + holdersText(s, living), "gpuard keeps its jobs off these devices.", option.Expand("list them: {gpuard evict}")})
	}

	if text := desktopMemoryText(m); text != "" {
		found = append(found, Finding{code, Info, text, "That memory is missing to programs.", ""})
	}

	if len(found) == 0 {
		return okFinding(code, "no memory is held without a lease")
	}

	return found
}

// lostMemory reports memory that no living process accounts for; false for the others. Processes outside a container,
// and those of Windows under WSL, cannot be seen.
func lostMemory(code string, s hostinfo.Site, r leftover.Row) (Finding, bool) {
	m, limitedView := s.Machine.Found, s.Container != "" || s.Driver.Found.WSL
	where := fmt.Sprintf("GPU %d", r.Index)
	if d, _, found := m.FindDevice(r.UUID); found {
		where = deviceLabel(m, *d)
	}

	memory := "memory"
	if r.Memory != nil {
		memory = r.Memory.String()
	}

	gone := slices.ContainsFunc(m.Processes, func(p gpu.Process) bool { return p.PID == r.PID && p.State == "gone" })
	f := Finding{Code: code, Severity: Warning, Why: "No other program can use it until the process that holds it has ended."}
	switch {
	case r.Zombie:
		f.Seen = fmt.Sprintf("process %d%s has ended and still holds %s on %s", r.PID, ofUser(r.User), memory, where)
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

	f.Do = "see who has the driver open: sudo fuser -v /dev/nvidia*; if none has: " + resetCommandFor(m, r)

	return f, true
}

func resetCommandFor(m gpu.Machine, r leftover.Row) string {
	if d, _, found := m.FindDevice(r.UUID); found {
		if _, command, told := strings.Cut(resetAdvice(*d), ", then: "); told {
			return command
		}
	}
	return "reboot the machine"
}

func ofUser(user string) string {
	if user == "" {
		return ""
	}
	return " of " + prose.Clean(user)
}

// holdersText names the largest programs, each with its memory and device.
func holdersText(s hostinfo.Site, rows []leftover.Row) string {
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
		if d, _, found := s.Machine.Found.FindDevice(r.UUID); found {
			where = deviceLabel(s.Machine.Found, *d)
		}

		program, _, _ := strings.Cut(r.Command, " ")
		words = append(words, fmt.Sprintf("%s on %s (process %d%s, %s)", memory, where, r.PID, ofUser(r.User), prose.Brief(program[strings.LastIndex(program, "/")+1:])))
	}

	return prose.JoinWords(words, "and")
}

// minDesktopMemory is the graphics memory from which a desktop is reported.
const minDesktopMemory = 256 * gpu.MiB

// desktopMemoryText says how much memory display programs use.
func desktopMemoryText(m gpu.Machine) string {
	var words []string
	for _, d := range m.Devices {
		var sum gpu.Bytes
		processes := m.ProcessesOn(d.UUID)
		screen := display.ScreenOf(d, processes)
		for _, p := range processes {
			if screen.Serves(p) && p.Memory != nil {
				sum += *p.Memory
			}
		}

		if sum >= minDesktopMemory {
			words = append(words, fmt.Sprintf("%s of %s", sum, deviceLabel(m, d)))
		}
	}
	if len(words) == 0 {
		return ""
	}

	return "display programs take " + prose.JoinWords(words, "and")
}

// Package isolate decides what keeps a job from the devices of others: which level of isolation this machine can do,
// and which device files the job must not open.
//
//	level, note, refusal := isolate.ChooseLevel(spec.Isolate, spec.Isolated, means)
//	closed, refusal := isolate.FilesToClose(nodes, machine, plan)
//
// Without a level only variables hide other devices, and a program that sets them anew leaves its lease. It must not
// open or list files; the caller passes in what there is.
package isolate

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/job"
	"gpuard/internal/core/option"
)

// Means says for each level why this machine cannot do it; "" where it can.
type Means struct{ Namespace, Landlock, Cgroup string }

// reasonAgainst is why a level is not possible.
func (m Means) reasonAgainst(level job.Isolation) string {
	switch level {
	case job.Landlock:
		return m.Landlock
	case job.Cgroup:
		return m.Cgroup
	}
	return m.Namespace
}

// reasons are why no level that is at least this one is possible.
func (m Means) reasons(least job.Isolation) string {
	var all []string
	for _, l := range preferred() {
		if why := m.reasonAgainst(l); why != "" && levelRank(l) >= levelRank(least) {
			all = append(all, fmt.Sprintf("%s: %s", l, why))
		}
	}
	return strings.Join(all, "; ")
}

// possibleLevels are the levels that this machine can do, the one that auto takes first.
func (m Means) possibleLevels() []job.Isolation {
	return slices.DeleteFunc(preferred(), func(l job.Isolation) bool { return m.reasonAgainst(l) != "" })
}

// Levels are those that can be in force, weakest first. A control group is the weakest, because who may build it, root,
// can move out of it again, and because it keeps nobody from the processes outside; both others hold against that.
func Levels() []job.Isolation { return []job.Isolation{job.Cgroup, job.Namespace, job.Landlock} }

// preferred is the order in which auto tries them: of the two that nothing undoes the one that breaks less, and then
// the other.
func preferred() []job.Isolation {
	return []job.Isolation{job.Namespace, job.Landlock, job.Cgroup}
}

// levelRank orders the levels, weakest first.
func levelRank(level job.Isolation) int { return slices.Index(Levels(), level) + 1 }

// WantsIsolation reports whether a request wants any isolation, so that it has to be found out what is possible.
func WantsIsolation(asked, required job.Isolation) bool {
	return required != job.NoIsolation && required != job.Off || asked != job.NoIsolation && asked != job.Off
}

// ChooseLevel is the level of a job. auto takes what is possible, and says so in a note where that is none. Every other
// level that is not possible, and less than what is required, is a permanent refusal.
func ChooseLevel(asked, required job.Isolation, can Means) (level job.Isolation, note string, refusal *job.Refusal) {
	if !WantsIsolation(asked, required) {
		return job.NoIsolation, "", nil
	}

	if levelRank(asked) > 0 {
		switch why := can.reasonAgainst(asked); {
		case levelRank(asked) < levelRank(required):
			return "", "", newRefusal(fmt.Sprintf("cannot isolate the job by %s: at least %s is required", asked, required), option.Sprintf("ask for {isolate=%s}, or auto", required))
		case why != "":
			return "", "", newRefusal(fmt.Sprintf("cannot isolate the job by %s: %s", asked, why), otherRemedy(asked, required, can))
		}
		return asked, "", nil
	}

	for _, l := range can.possibleLevels() {
		if levelRank(l) >= levelRank(required) {
			return l, "", nil
		}
	}

	why := can.reasons(required)
	if levelRank(required) == 0 {
		return job.NoIsolation, "nothing but variables keeps the job from other GPUs: " + why, nil
	}

	return "", "", newRefusal(option.Sprintf("cannot isolate the job as hard as {require-isolation=%s} asks: %s", required, why), option.Expand("leave {require-isolation} out to rely on variables, or ask the administrator: {gpuard doctor}"))
}

func newRefusal(summary, remedy string) *job.Refusal {
	return &job.Refusal{Summary: summary, Never: true, Reasons: []job.Reason{}, Remedy: remedy}
}

// otherRemedy is what to type where a level is not possible.
func otherRemedy(level, required job.Isolation, can Means) string {
	for _, l := range can.possibleLevels() {
		if l != level && levelRank(l) >= levelRank(required) {
			return option.Sprintf("here works {isolate=%s}", l)
		}
	}
	return option.Expand("leave {isolate} out to rely on variables; {gpuard doctor} says what this machine can do")
}

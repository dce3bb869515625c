// Package isolate decides what keeps a job from the devices of others: which level of isolation this machine can do, and which
// device files the job must not open.
//
//	level, note, refusal := isolate.Choose(spec.Isolate, spec.Isolated, means)
//	closed, refusal := isolate.Close(nodes, machine, plan)
//
// Without a level only variables hide other devices, and a program that sets them anew leaves its lease. It must not open or
// list files; the caller passes in what there is.
package isolate

import (
	"fmt"
	"slices"

	"gpuard/internal/core/job"
)

// Means says for each level why this machine cannot do it; "" where it can.
type Means struct{ Namespace, Landlock string }

// reason is why a level is not possible.
func (m Means) reason(level job.Isolation) string {
	if level == job.Landlock {
		return m.Landlock
	}
	return m.Namespace
}

// Levels are those that can be in force, weakest first; auto takes the first that is possible.
func Levels() []job.Isolation { return []job.Isolation{job.Namespace, job.Landlock} }

// rank orders the levels, weakest first.
func rank(level job.Isolation) int { return slices.Index(Levels(), level) + 1 }

// Wanted reports whether a request wants any isolation, so that it has to be found out what is possible.
func Wanted(asked, required job.Isolation) bool {
	return required != job.NoIsolation && required != job.Off || asked != job.NoIsolation && asked != job.Off
}

// Choose is the level of a job. auto takes what is possible, and says so in a note where that is none. Every other level that is
// not possible, and less than what is required, is a permanent refusal.
func Choose(asked, required job.Isolation, can Means) (level job.Isolation, note string, refusal *job.Refusal) {
	if !Wanted(asked, required) {
		return job.NoIsolation, "", nil
	}
	if rank(asked) > 0 {
		switch why := can.reason(asked); {
		case rank(asked) < rank(required):
			return "", "", refuse(fmt.Sprintf("cannot isolate the job by %s: at least %s is required", asked, required), "ask for --isolate "+string(required)+", or auto")
		case why != "":
			return "", "", refuse(fmt.Sprintf("cannot isolate the job by %s: %s", asked, why), other(asked, required, can))
		}
		return asked, "", nil
	}
	for _, l := range Levels() {
		if rank(l) >= rank(required) && can.reason(l) == "" {
			return l, "", nil
		}
	}
	why := fmt.Sprintf("namespace: %s; landlock: %s", can.Namespace, can.Landlock)
	if rank(required) == 0 {
		return job.NoIsolation, "nothing but variables keeps the job from other GPUs: " + why, nil
	}
	return "", "", refuse(fmt.Sprintf("cannot isolate the job as hard as --require-isolation %s asks: %s", required, why), "leave --require-isolation out to rely on variables, or ask the administrator: gpuard doctor")
}

func refuse(summary, remedy string) *job.Refusal {
	return &job.Refusal{Summary: summary, Never: true, Reasons: []job.Reason{}, Remedy: remedy}
}

// other is what to type where a level is not possible.
func other(level, required job.Isolation, can Means) string {
	for _, l := range Levels() {
		if l != level && rank(l) >= rank(required) && can.reason(l) == "" {
			return "here works --isolate " + string(l)
		}
	}
	return "leave --isolate out to rely on variables; gpuard doctor says what this machine can do"
}

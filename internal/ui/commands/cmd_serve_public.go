package commands

import (
	"path"
	"slices"

	"gpuard/internal/core/job"
)

// publicOf lets a function about one type be a Source.Public. An answer of another type is not shown at all.
func publicOf[T any](public func(T) T) func(any) any {
	return func(answer any) any {
		if a, ok := answer.(T); ok {
			return public(a)
		}
		return nil
	}
}

// publicQueue is the queue as others may see it: names of jobs and commands, as in gpuard status; no arguments,
// folders, notes or paths.
func publicQueue(a queuePart) queuePart {
	a.Reasons = slices.Clone(a.Reasons)
	for i := range a.Reasons {
		a.Reasons[i] = a.Reasons[i].PublicView()
	}

	a.Others = slices.Clone(a.Others)

	for i := range a.Others {
		a.Others[i].Why = a.Others[i].Discreet
	}

	if a.Problem != "" {
		a.Problem = "the processes of the queue have ended; see: gpuard queue"
	}

	a.Jobs = slices.Clone(a.Jobs)

	for i := range a.Jobs {
		e := &a.Jobs[i]
		e.Command, e.Folder, e.Note, e.Log, e.Spec = nameOnly(e.Command), "", "", "", job.Spec{}
		e.Why, e.Remedy = e.Discreet, ""
	}

	return a
}

// publicServices are the services as others may see them: names and states.
func publicServices(a servicesAnswer) servicesAnswer {
	a.Projects = slices.Clone(a.Projects)
	for i := range a.Projects {
		p := &a.Projects[i]
		p.File, p.Instances = "", slices.Clone(p.Instances)

		for j := range p.Instances {
			one := &p.Instances[j]
			one.Command, one.Log, one.Why = nameOnly(one.Command), "", ""
		}
	}
	return a
}

// nameOnly is a command without its arguments and folder.
func nameOnly(command []string) []string {
	if len(command) == 0 {
		return []string{}
	}
	return []string{path.Base(command[0])}
}

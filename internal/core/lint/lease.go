package lint

import (
	"slices"

	"gpuard/internal/core/check"
	enginecli "gpuard/internal/core/container"
)

// beyondLease is about gpuard docker and gpuard podman.
func lookBeyondLease(_ indexedFile, _ int, s Step) (all []Finding) {
	line := engineCommandLine(programOf(s))
	if len(line) == 0 || slices.ContainsFunc(line, func(w Word) bool { return !w.Known }) {
		return nil
	}

	call, err := enginecli.ReadCall(wordTexts(line))
	if err == nil {
		err = call.CheckStart()
	}

	if err != nil {
		all = append(all, Finding{Finding: check.Finding{Seen: "gpuard does not start this container",
			Why: err.Error(), Do: "leave it out, or start the container without gpuard"}, At: line[0].At})
	}

	return all
}

// engineCommandLine is the command line of a container engine that gpuard docker, gpuard podman or gpuard run is given.
func engineCommandLine(p program) []Word {
	end := slices.IndexFunc(p.args, func(w Word) bool { return w.Text == "--" })
	if p.name != "gpuard" || end < 1 {
		return nil
	}

	line := p.args[end+1:]
	if sub := p.args[0]; enginecli.EngineOf(sub.Text) != "" {
		line = append([]Word{sub}, line...)
	}

	if len(line) < 2 || enginecli.EngineOf(line[0].Text) == "" {
		return nil
	}

	return line
}

package lint

import (
	"path"
	"slices"

	"gpuard/internal/core/check"
	"gpuard/internal/core/option"
)

func lookCondaHook(f File) (all []Finding) {
	if f.UndoPath == "" {
		return nil
	}

	left := map[string]Step{}
	for _, s := range f.Steps {
		if _, devices := findListVariable(s.Name); !devices || s.Name == nvidiaVisibleDevices || !inItsShell(s) || s.In != "" {
			continue
		}
		switch {
		case s.Do == Unset && !s.Maybe:
			delete(left, s.Name)
		case s.Do == Set && s.Exported && s.Value.From != s.Name:
			left[s.Name] = s
		}
	}

	for name, s := range left {
		if slices.ContainsFunc(f.Undo, func(undo File) bool { return mayUndo(undo, name) }) {
			continue
		}
		all = append(all, Finding{Finding: check.Finding{
			Seen: assignmentText(s) + " stays set after conda deactivate",
			Why:  "conda takes back nothing that a file of activate.d exports, and no file of deactivate.d does it",
			Do:   option.Sprintf("leave the export out and start programs by {gpuard run}, or let {gpuard setup conda} write both hooks; by hand: %s has to give the value from before back", f.UndoPath)},
			At: s.At})
	}

	return all
}

// inItsShell reports whether a step changes the shell that reads the file, and not a process of its own.
func inItsShell(s Step) bool { return s.Process == "" && s.Lost == "" }

// mayUndo reports whether a script gives a variable another value or none, or reads text that may do so. A value that is empty hides every
// device.
func mayUndo(f File, name string) bool {
	return slices.ContainsFunc(f.Steps, func(s Step) bool {
		switch {
		case !inItsShell(s):
			return false
		case s.Do == Command && len(s.Words) > 0:
			return isOneOf(path.Base(s.Words[0].Text), "source", ".", "eval")
		}
		hidesAll := s.Do == Set && s.Value.Known && s.Value.Text == ""
		return (s.Do == Set || s.Do == Unset) && s.Name == name && !hidesAll
	})
}

package lint

import (
	"path"
	"slices"

	"gpuard/internal/core/check"
)

func condaHook() Rule {
	return Rule{
		Page: check.Page{
			Code:  "conda-hook-not-undone",
			Title: "A list of devices that a conda hook exports stays after conda deactivate",
			Text: "conda runs the files of `etc/conda/activate.d` in your shell when an environment is activated, and those of `etc/conda/deactivate.d` when it is left. It does not take back what they export: `export CUDA_VISIBLE_DEVICES=1` in `activate.d/env_vars.sh` also counts for everything that is started in that shell after `conda deactivate`, in another environment too.\n\n" +
				"Leave the export out, and start programs by `gpuard run`, which chooses a free GPU for each. Where the variable must be set by the hook, let `gpuard setup conda` write both hooks, or give the value from before back in a file of `deactivate.d` that ends in `.sh`: `unset` alone would take the list of a lease or of a Slurm job away, and show every GPU. Where such a file reads another one by `source`, or uses `eval`, it is not known what that does, and nothing is found.",
			From: []string{"https://docs.conda.io/projects/conda/en/latest/user-guide/tasks/manage-environments.html#saving-environment-variables", "conda/conda: conda/activate.py (_get_activate_scripts, _get_deactivate_scripts)"},
		},
		Severity: check.Warning,
		Bad: []Example{
			{"etc/conda/activate.d/env_vars.sh", "#!/bin/sh\n\nexport CUDA_VISIBLE_DEVICES=1\n"},
			{"etc/conda/activate.d/once.sh", "if [ -z \"$HIP_VISIBLE_DEVICES\" ]; then\n  export HIP_VISIBLE_DEVICES=0\nfi\n"},
		},
		Good: []Example{
			{"etc/conda/deactivate.d/env_vars.sh", "#!/bin/sh\n\nunset CUDA_VISIBLE_DEVICES\n"},
			{"etc/conda/activate.d/paths.sh", "export CUDA_DEVICE_ORDER=PCI_BUS_ID\nexport CUDA_VISIBLE_DEVICES=0\npython warm_up.py\nunset CUDA_VISIBLE_DEVICES\n"},
			{"etc/conda/activate.d/kept.sh", "export CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES\n"},
			{"activate.sh", "export CUDA_VISIBLE_DEVICES=0\n"},
		},
		Look: lookCondaHook,
	}
}

func lookCondaHook(f File) []Finding {
	if f.UndoPath == "" {
		return nil
	}
	left := map[string]Step{}
	for _, s := range f.Steps {
		if _, devices := listNamed(s.Name); !devices || s.Name == container || !inItsShell(s) || s.In != "" {
			continue
		}
		switch {
		case s.Do == Unset && !s.Maybe:
			delete(left, s.Name)
		case s.Do == Set && s.Exported && s.Value.From != s.Name:
			left[s.Name] = s
		}
	}

	var all []Finding
	for name, s := range left {
		if slices.ContainsFunc(f.Undo, func(undo File) bool { return mayUndo(undo, name) }) {
			continue
		}
		all = append(all, Finding{Finding: check.Finding{Code: "conda-hook-not-undone", Severity: check.Warning,
			Seen: assigned(s) + " stays set after conda deactivate",
			Why:  "conda takes back nothing that a file of activate.d exports, and no file of deactivate.d does it",
			Do:   "leave the export out and start programs by gpuard run, or let gpuard setup conda write both hooks; by hand: " + f.UndoPath + " has to give the value from before back"},
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

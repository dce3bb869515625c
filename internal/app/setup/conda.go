package setup

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/edit"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/host/files"
)

// Conda is a choice of devices for an environment, made each time it is activated and taken back when it is left, by
// hooks in its activate.d and deactivate.d.
type Conda struct {
	Host *machine.Host
	// Or a folder; "" is the active one.
	Name  string
	Flags []string // of gpuard env
	// Ask at activation, if there is a terminal.
	Ask bool
	// The choice is leased for the life of the shell, or until the environment is left.
	Lease bool
}

// Key is what the setup is remembered by, also when the environment is gone.
func (c Conda) Key() (string, error) {
	dir, err := c.findPrefix()
	if err == nil {
		return "conda " + dir, nil
	}

	keys, _ := (&Setup{Host: c.Host}).Keys()
	abs, _ := filepath.Abs(c.Name)
	keys = slices.DeleteFunc(keys, func(key string) bool {
		dir, ok := strings.CutPrefix(key, "conda ")
		return !ok || c.Name == "" || dir != abs && filepath.Base(dir) != c.Name
	})

	if len(keys) == 1 {
		return keys[0], nil
	}

	return "", err
}

// Wish are the hooks. conda runs those of one folder in the order of their names, and at deactivation in reverse order
// (conda/conda: conda/activate.py). The hooks of gpuard are the last, so that no other one changes the choice.
func (c Conda) Wish() (ChangePlan, error) {
	dir, err := c.findPrefix()
	if err != nil {
		return ChangePlan{}, err
	}

	program, err := ProgramPath()
	if err != nil {
		return ChangePlan{}, err
	}

	h := condaHook{program: program, id: "conda:" + dir, flags: c.Flags, ask: c.Ask, lease: c.Lease}
	w := ChangePlan{Key: "conda " + dir}
	for _, kind := range []string{"activate", "deactivate"} {
		for _, ext := range []string{".sh", ".fish"} {
			w.Changes = append(w.Changes, edit.Change{Path: filepath.Join(dir, "etc", "conda", kind+".d", "~~gpuard"+ext), Content: h.hookText("conda-" + kind + ext)})
		}
	}

	name := dir
	if filepath.Base(filepath.Dir(dir)) == "envs" {
		name = filepath.Base(dir)
	}

	w.Try = []string{"conda activate " + shellquote.Sh(name), "gpuard explain", "conda deactivate"}
	if active, _ := c.Host.Env.Lookup("CONDA_PREFIX"); active == dir {
		w.Notes = append(w.Notes, "the environment is active: it gets its GPUs when it is activated the next time")
	}

	w.Notes = append(w.Notes, nameMasks(filepath.Join(dir, "etc", "conda", "activate.d"))...)

	switch {
	case c.Lease:
		w.Notes = append(w.Notes, "when nothing is free at that moment, the environment sees no GPU and says how to try again")
	case c.Ask:
		w.Notes = append(w.Notes, "a script that activates the environment is not asked: it gets any free GPU")
	default:
		w.Notes = append(w.Notes, "nothing is leased: another job may get the same GPU; for a lease add --lease, or start programs by gpuard run")
	}

	return w, nil
}

// maskAssignment is a line of a shell that sets which GPUs are visible.
var maskAssignment = regexp.MustCompile(`(?m)^[ \t]*(?:export[ \t]+)?((?:CUDA|HIP|ROCR)_VISIBLE_DEVICES)=`)

// nameMasks names the other hooks of a folder that set a mask. The hook of gpuard runs after them, and chooses only
// among the GPUs that they leave visible.
func nameMasks(folder string) (notes []string) {
	names, _ := files.ListNames(folder, ".sh")
	for _, name := range names {
		text, err := files.ReadFile(filepath.Join(folder, name))
		if err != nil || strings.HasPrefix(name, "~~gpuard") {
			continue
		}
		if found := maskAssignment.FindSubmatch(text.Content); found != nil {
			notes = append(notes, filepath.Join(folder, name)+" sets "+string(found[1])+" too, so that gpuard chooses only among those GPUs: take the line out")
		}
	}
	return notes
}

// CondaFile is a choice of devices in an environment.yml, for gpuard setup conda on the machine where the environment
// is made.
type CondaFile struct {
	Path  string
	Words []string // flags
	// Environment that is set up with the file by the same command; "": none.
	Made string
}

// Key is what the setup is remembered by.
func (c CondaFile) Key() (string, error) {
	path, err := filepath.Abs(c.Path)
	return "conda-file " + path, err
}

// Wish is a block with a variable. It is not one that GPU programs read: conda leaves an empty string behind in bash
// and zsh, which would hide every GPU from later programs.
func (c CondaFile) Wish() (ChangePlan, error) {
	key, err := c.Key()
	if err != nil {
		return ChangePlan{}, err
	}

	path := strings.TrimPrefix(key, "conda-file ")
	change, err := c.makeChange(path)
	if err != nil {
		return ChangePlan{}, err
	}
	if c.Made != "" {
		return ChangePlan{Key: key, Changes: []edit.Change{change}, Notes: []string{
			"in another environment that is made from " + c.Path + ", gpuard setup conda NAME writes the hooks",
		}}, nil
	}

	return ChangePlan{
		Key: key, Changes: []edit.Change{change},
		Try: []string{"conda env create -f " + shellquote.Sh(c.Path), "gpuard setup conda NAME"},
		Notes: []string{
			"conda only keeps the line: gpuard setup conda NAME makes the hooks of it, where the environment is",
			"CUDA_VISIBLE_DEVICES is not written there: conda would leave it behind as an empty string, which hides every GPU",
		},
	}, nil
}

package linter

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCondaHook: an export of activate.d is found where no script of deactivate.d beside it takes it back.
func TestCondaHook(t *testing.T) {
	const export = "#!/bin/sh\nexport MY_KEY=x\nexport CUDA_VISIBLE_DEVICES=0\n"
	const script = "etc/conda/activate.d/env_vars.sh"
	for name, c := range map[string]struct {
		beside map[string]string // files of deactivate.d
		undone bool
	}{
		"none":                    {nil, false},
		"unset":                   {map[string]string{"env_vars.sh": "unset MY_KEY CUDA_VISIBLE_DEVICES\n"}, true},
		"unset in another file":   {map[string]string{"a.sh": "unset MY_KEY\n", "b.sh": "unset CUDA_VISIBLE_DEVICES\n"}, true},
		"set again":               {map[string]string{"env_vars.sh": "export CUDA_VISIBLE_DEVICES=$OLD\n"}, true},
		"one or the other":        {map[string]string{"env_vars.sh": "if [ -n \"$OLD\" ]; then CUDA_VISIBLE_DEVICES=$OLD; else unset CUDA_VISIBLE_DEVICES; fi\n"}, true},
		"in a function":           {map[string]string{"env_vars.sh": "back() { unset CUDA_VISIBLE_DEVICES; }\nback\n"}, true},
		"by what it reads":        {map[string]string{"env_vars.sh": ". \"$CONDA_PREFIX/share/undo\"\n"}, true},
		"set to nothing":          {map[string]string{"env_vars.sh": "export CUDA_VISIBLE_DEVICES=\n"}, false},
		"of another variable":     {map[string]string{"env_vars.sh": "unset MY_KEY HIP_VISIBLE_DEVICES\n"}, false},
		"in a process of its own": {map[string]string{"env_vars.sh": "(unset CUDA_VISIBLE_DEVICES)\n"}, false},
		"for another shell":       {map[string]string{"env_vars.fish": "unset CUDA_VISIBLE_DEVICES\n", "env_vars.csh": "unset CUDA_VISIBLE_DEVICES\n"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{script: export}
			for file, text := range c.beside {
				files["etc/conda/deactivate.d/"+file] = text
			}
			root := lay(t, files)
			for _, paths := range [][]string{{root}, {filepath.Join(root, script)}, {filepath.Join(root, "etc/conda/deactivate.d"), filepath.Join(root, "etc/conda/activate.d")}} {
				if c.beside == nil && len(paths) > 1 {
					continue
				}
				r := look(t, false, paths...)
				var want []string
				if !c.undone {
					want = []string{script + " conda-hook-not-undone"}
				}
				if got := found(root, r); !slices.Equal(got, want) || len(r.Problems) > 0 {
					t.Errorf("%q: found %q, want %q; %+v", paths, got, want, r.Problems)
				}
				for _, f := range r.Findings {
					if f.Line != 3 || !strings.HasPrefix(f.Seen, "CUDA_VISIBLE_DEVICES=0 ") || !strings.HasSuffix(f.Do, "by hand: "+filepath.Join(root, "etc/conda/deactivate.d/env_vars.sh")+" has to give the value from before back") {
						t.Errorf("%+v", f)
					}
				}
			}
		})
	}
}

// TestCondaHookPlace: the folders are found by the place of a file, from whichever folder it is named; other folders have no hooks.
func TestCondaHookPlace(t *testing.T) {
	const export = "export CUDA_VISIBLE_DEVICES=0\n"
	root := lay(t, map[string]string{"activate.d/a.sh": export, "activate.d/a.bash": export, "start.d/a.sh": export})
	t.Chdir(filepath.Join(root, "activate.d"))
	r := look(t, false, "a.sh", "a.bash", "../start.d/a.sh")
	if got := found("", r); !slices.Equal(got, []string{"a.sh conda-hook-not-undone"}) || !strings.Contains(r.Findings[0].Do, "by hand: ../deactivate.d/a.sh has to give") {
		t.Errorf("%q: %+v", got, r.Findings)
	}
}

// TestCondaHookUnread: where a script of deactivate.d cannot be read, that is said once, and nothing is claimed of what it does.
func TestCondaHookUnread(t *testing.T) {
	const export = "export CUDA_VISIBLE_DEVICES=0\n"
	root := lay(t, map[string]string{"activate.d/a.sh": export, "activate.d/b.sh": export, "deactivate.d/a.sh": "unset CUDA_VISIBLE_DEVICES\n"})
	if err := os.Symlink("nowhere", filepath.Join(root, "deactivate.d/b.sh")); err != nil {
		t.Fatal(err)
	}
	r := look(t, false, root)
	want := []Omission{{filepath.Join(root, "deactivate.d/b.sh"), "cannot read it: no such file or directory"}}
	if len(r.Findings) > 0 || !slices.Equal(r.Problems, want) {
		t.Errorf("%+v, %+v", r.Findings, r.Problems)
	}
}

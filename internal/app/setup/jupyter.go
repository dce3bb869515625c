package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/judge"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/edit"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/suggest"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/files"
	"gpuard/internal/text/kernelspec"
)

// Jupyter is a kernel over an existing one. Each of its processes has a lease.
type Jupyter struct {
	Host *machine.Host
	// That it is over; "" is python3.
	Kernel string
	// The name for people; "" is made from that of the kernel.
	Name  string
	Flags []string // of gpuard run
	// What they ask for; without a GPU there is no lease.
	Spec job.Spec
}

// isKernelName reports what Jupyter takes for the name of a kernel; case does not count (jupyter_client/kernelspec.py).
func isKernelName(text string) bool {
	return text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}

// baseKernel is the name of the kernel that it is over.
func (j Jupyter) baseKernel() (string, error) {
	switch {
	case j.Kernel == "":
		return "python3", nil
	case !isKernelName(j.Kernel):
		return "", &exit.Usage{Text: fmt.Sprintf("cannot use the kernel %q: names of kernels are letters, digits, dots, - and _; jupyter kernelspec list shows them", j.Kernel)}
	}
	return strings.ToLower(j.Kernel), nil
}

// newKernelName is that of the new kernel: the same one for the same choice.
func (j Jupyter) newKernelName() (string, error) {
	base, err := j.baseKernel()
	name, lost := base+"-gpuard", false
	for _, flag := range j.Flags {
		word := strings.Map(func(r rune) rune {
			if isKernelName(string(r)) {
				return r
			}

			// Such as * or ? of a pattern.
			lost = lost || r != ','
			return '-'
		}, strings.ReplaceAll(strings.TrimLeft(strings.ToLower(flag), "-"), "=", ""))
		name += "-" + word
	}

	if lost || len(name) > 100 {
		name = name[:min(len(name), 80)] + "-" + edit.TextSum(strings.Join(j.Flags, "\n"))
	}

	return name, err
}

// Key is what the setup is remembered by: its folder. One in an environment that is not active is meant where there is
// no other.
func (j Jupyter) Key() (string, error) {
	name, err := j.newKernelName()
	if err != nil {
		return "", err
	}

	dir, err := j.recordedFolder(name)
	if dir != "" || err != nil {
		return "jupyter " + dir, err
	}

	all, err := (&Setup{Host: j.Host}).Keys()
	all = slices.DeleteFunc(all, func(key string) bool {
		return !strings.HasPrefix(key, "jupyter ") || filepath.Base(key) != name
	})

	switch {
	case err != nil:
		return "", err
	case len(all) == 1:
		return all[0], nil
	case len(all) > 1:
		return "", &exit.Usage{Text: fmt.Sprintf("cannot tell which kernel %s is meant: there is %s; activate the environment that it is in", name,
			strings.ReplaceAll(strings.Join(all, " and "), "jupyter ", ""))}
	}

	dir, err = j.userKernels()

	return "jupyter " + filepath.Join(dir, name), err
}

// recordedFolder is where a kernel of this name was set up before, "" for nowhere.
func (j Jupyter) recordedFolder(name string) (string, error) {
	keys, err := (&Setup{Host: j.Host}).Keys()
	if err != nil {
		return "", err
	}

	where, err := j.kernelPlaces()
	for _, p := range where {
		if dir := filepath.Join(p.kernels, name); slices.Contains(keys, "jupyter "+dir) {
			return dir, nil
		}
	}

	return "", err
}

// Wish is a folder with a kernel.json, and with the other files of the kernel that it is over.
func (j Jupyter) Wish() (ChangePlan, error) {
	base, err := j.baseKernel()
	if err != nil {
		return ChangePlan{}, err
	}
	if strings.TrimSpace(j.Name) != j.Name || prose.Clean(j.Name) != j.Name {
		return ChangePlan{}, &exit.Usage{Text: fmt.Sprintf("cannot use the name %q: write it in one line, without blanks around it", j.Name)}
	}

	found, err := j.findKernel(base)
	if err != nil {
		return ChangePlan{}, err
	}

	dir, err := j.destinationFolder(found)
	if err != nil {
		return ChangePlan{}, err
	}

	own, spec, notes, err := j.makeSpec(found)
	if err != nil {
		return ChangePlan{}, err
	}

	changes, err := copiesOf(found.folder, dir)
	if err != nil {
		return ChangePlan{}, err
	}

	return ChangePlan{
		Key:     "jupyter " + dir,
		Changes: append(changes, edit.Change{Path: filepath.Join(dir, "kernel.json"), Content: own}), // last: before it, the folder is no kernel
		Try:     []string{"jupyter kernelspec list", "gpuard status"},
		Notes: append([]string{
			fmt.Sprintf("in Jupyter and VS Code it is the kernel %q, over the one in %s", spec.Display, found.folder),
		}, notes...),
	}, nil
}

// makeSpec is the new kernel.json.
func (j Jupyter) makeSpec(over jupyterKernel) (text string, spec kernelspec.Spec, notes []string, err error) {
	path := filepath.Join(over.folder, "kernel.json")
	spec, err = readKernel(path)
	if err != nil {
		again := ""
		if over.name == "python3" {
			again = ", or make it again: python3 -m ipykernel install --user"
		}
		return "", spec, nil, fmt.Errorf("cannot use the kernel %s: %s: %w; mend it%s", over.name, path, err, again)
	}

	if i := slices.Index(spec.Argv, "run"); i > 0 && filepath.Base(spec.Argv[i-1]) == "gpuard" {
		return "", spec, nil, &exit.Usage{Text: fmt.Sprintf("cannot set up a kernel over %s: that one starts gpuard already; name the one that it is over", over.name)}
	}

	notes, err = judge.Later(j.Spec, spec.Argv, judge.Place{File: path})
	if err != nil {
		return "", spec, nil, err
	}

	program, err := ProgramPath()
	if err != nil {
		return "", spec, nil, err
	}

	run := append([]string{program, "run"}, j.Flags...)
	if !j.Spec.CPU {
		run = append(run, "--keep-while=kernel")
	}

	argv := slices.Concat(run, []string{"--"}, spec.Argv)
	if isPython(filepath.Base(spec.Argv[0])) {
		argv = slices.Concat([]string{spec.Argv[0], "-c", pythonStarter}, argv)
	}

	spec, dropped, err := spec.With(argv, j.displayName(spec.Display, over.name), visible.Variables())
	if err != nil {
		return "", spec, nil, fmt.Errorf("cannot use the kernel %s: %s: %w", over.name, path, err)
	}

	if len(dropped) > 0 {
		notes = append(notes, fmt.Sprintf("what chooses devices was left out of its variables, since gpuard does that: %s", strings.Join(dropped, ", ")))
	}

	if spec.Starter != "" {
		notes = append(notes, fmt.Sprintf("the provisioner %q starts it: gpuard has to be where that does so, with this path", spec.Starter))
	}

	text, err = spec.Text()

	return text, spec, notes, err
}

func readKernel(path string) (spec kernelspec.Spec, err error) {
	file, err := files.ReadFile(path)
	if err != nil {
		return spec, err
	}

	return kernelspec.ReadSpec(file.Content)
}

// isPython reports an interpreter as the first word of a command line. It has to stay the first: Jupyter replaces a
// "python" without a path by its own interpreter (jupyter_client/manager.py, format_kernel_cmd), and VS Code replaces
// the first word by the interpreter that the user has chosen (microsoft/vscode-jupyter: kernelProcess.node.ts,
// launchAsObservable).
func isPython(name string) bool {
	return regexp.MustCompile(`^python([0-9]+(\.[0-9]+)?)?$`).MatchString(name)
}

// pythonStarter makes that interpreter become gpuard, in the same process, which then becomes the kernel of the same
// interpreter.
const pythonStarter = `import os, sys; a = sys.argv[1:]; a[a.index("--") + 1] = sys.executable; os.execv(a[0], a)`

// displayName is the name for people: "Python 3 (GPU)", "Python 3 (GPU, mem 20G)".
func (j Jupyter) displayName(of, name string) string {
	if j.Name != "" {
		return j.Name
	}

	if i := strings.LastIndex(of, " ("); i > 0 && strings.HasSuffix(of, ")") {
		of = of[:i]
	}

	if of == "" {
		of = name
	}

	if j.Spec.CPU {
		return of + " (no GPU)"
	}

	words := []string{"GPU"}
	for _, flag := range j.Flags {
		words = append(words, strings.ReplaceAll(strings.TrimLeft(flag, "-"), "=", " "))
	}

	return of + " (" + strings.Join(words, ", ") + ")"
}

// maxKernelFiles is how many files a kernel's folder may have; usually there are three pictures.
const maxKernelFiles = 100

// copiesOf are copies of all files in a kernel's folder but its kernel.json.
func copiesOf(from, to string) (changes []edit.Change, err error) {
	from, err = filepath.EvalSymlinks(from)
	if err != nil {
		// Such as jupyter kernelspec install --symlink makes it.
		return nil, fmt.Errorf("cannot copy the kernel: %w", err)
	}

	err = filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}

		rel, err := filepath.Rel(from, path)
		if err != nil || rel == "kernel.json" {
			return err
		}

		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			return nil //nolint:nilerr // a link that leads nowhere, or to no file: no kernel needs it
		}

		text, err := files.ReadFile(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}

		changes = append(changes, edit.Change{Path: filepath.Join(to, rel), Content: string(text.Content), Mode: uint32(info.Mode().Perm()), Copy: true})
		if len(changes) > maxKernelFiles {
			return fmt.Errorf("it has more than %d files", maxKernelFiles)
		}

		return nil
	})

	if err != nil {
		return nil, fmt.Errorf("cannot copy the kernel in %s: %w", from, err)
	}

	return changes, nil
}

// destinationFolder is the folder of the new kernel. One over a kernel of an environment belongs to that environment:
// the same Jupyters find it, and it goes when that goes. Everything else is the user's.
func (j Jupyter) destinationFolder(over jupyterKernel) (string, error) {
	name, err := j.newKernelName()
	if err != nil {
		return "", err
	}

	dir, err := j.recordedFolder(name)
	if err != nil {
		return "", err
	}

	if dir == "" {
		parent, err := j.userKernels()
		if err != nil {
			return "", err
		}
		if over.prefix != "" && isWritable(over.kernels) {
			parent = over.kernels
		}
		dir = filepath.Join(parent, name)
	}

	all, _, err := j.findKernels()
	for _, k := range all {
		if k.name == name && k.folder != dir {
			err = &exit.Usage{Text: fmt.Sprintf("cannot set up the kernel %s: there is one of that name in %s; move it away and try again", name, k.folder)}
		}
	}

	return dir, err
}

func isWritable(dir string) bool {
	// access(2), W_OK.
	const w = 2
	return syscall.Access(dir, w) == nil
}

// findKernel finds the kernel that Jupyter would start by that name.
func (j Jupyter) findKernel(name string) (jupyterKernel, error) {
	all, where, err := j.findKernels()
	if err != nil {
		return jupyterKernel{}, err
	}

	for _, k := range all {
		if k.name == name {
			return k, nil
		}
	}

	names := j.Names()
	text := fmt.Sprintf("cannot set up a kernel over %s: there is none in %s", name, strings.Join(where, ", "))
	switch meant := suggest.ClosestWord(name, names); {
	case meant != "":
		text += "; did you mean --kernel " + meant + "?"
	case name == "python3":
		// Jupyter offers that of ipykernel without a file; a person can have the file made.
		text += "; make one: python3 -m ipykernel install --user"
	case len(names) > 0:
		text += "; choose another: " + strings.Join(names, ", ")
	default:
		text += "; jupyter kernelspec list shows what Jupyter finds"
	}

	if j.Kernel != "" {
		return jupyterKernel{}, &exit.Usage{Text: text}
	}

	return jupyterKernel{}, errors.New(text)
}

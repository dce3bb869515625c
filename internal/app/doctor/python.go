package doctor

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/host/pyenv"
	"gpuard/internal/text/pydist"
)

// importTimeout is for one library to be imported and to say what it sees; from a cold disk that takes many seconds.
const importTimeout = 20 * time.Second

// sitePythons reads Python environments: the one that of names, else all that are found. Its error is a mistake in of.
// With run, libraries of the first of them that starts are imported.
func sitePythons(ctx context.Context, host *machine.Host, of string, run bool) (hostinfo.Answer[[]hostinfo.Python], error) {
	folder, _ := os.Getwd()
	w := pyenv.SearchScope{Root: cmp.Or(host.Root, "/"), Env: host.Env, Folder: folder}
	var places []pyenv.Environment
	if of == "" {
		places = w.FindEnvironments()
	} else {
		p, err := w.NamedEnvironment(of)
		if err != nil {
			return hostinfo.NoAnswer[[]hostinfo.Python]("not looked"), exit.Usagef("cannot find the Python environment %q: %v", of, err)
		}
		p.Active = true
		places = []pyenv.Environment{p}
	}

	found := readPythons(ctx, host, w, places)

	// One that starts, and that the caller has activated: a .venv in this folder may be another user's.
	i := slices.IndexFunc(found, func(p hostinfo.Python) bool { return p.Interpreter != "" && p.Active })
	if run && i >= 0 {
		found[i].Ran = probePython(ctx, w, found[i])
	}

	return hostinfo.AnswerOf(found), nil
}

// readPythons reads all environments at the same time. One on a disk that does not answer is left out.
func readPythons(ctx context.Context, host *machine.Host, w pyenv.SearchScope, places []pyenv.Environment) []hostinfo.Python {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(host.Times.Survey, 5*time.Second)*4/5)
	defer cancel()
	found := make([]hostinfo.Python, len(places))
	type read struct {
		i int
		p hostinfo.Python
	}

	done := make(chan read, len(places))
	for i, place := range places {
		found[i] = hostinfo.Python{Prefix: place.Prefix, Interpreter: place.Interpreter, Version: place.Version, Kind: place.Kind, Active: place.Active, Problem: "its disk did not answer in time"}
		go func() { done <- read{i, readPython(ctx, w, place)} }()
	}

	for range places {
		select {
		case r := <-done:
			found[r.i] = r.p
		case <-ctx.Done():
			return found
		}
	}

	return found
}

// readPython reads one environment.
func readPython(ctx context.Context, w pyenv.SearchScope, place pyenv.Environment) hostinfo.Python {
	p := hostinfo.Python{Prefix: place.Prefix, Interpreter: place.Interpreter, Kind: place.Kind, Active: place.Active, Problem: place.Problem}
	config := pydist.ParseVenv(w.ReadConfig(place))
	if parts := strings.SplitN(config.Version, ".", 3); place.Version == "" && len(parts) >= 2 {
		place.Version = parts[0] + "." + parts[1]
	}

	own, version := w.PackageFolders(ctx, place)
	p.Version = cmp.Or(version, place.Version)
	venv := place.Kind == "venv"
	before, user := w.SharedFolders(ctx, p.Version, !venv || config.System)
	folders := slices.Concat(before, user, own)
	if venv && config.System {
		system, _ := w.PackageFolders(ctx, pyenv.Environment{Prefix: filepath.Dir(config.Home), Version: p.Version})
		folders = slices.Concat(before, own, user, system)
	}

	for _, f := range folders {
		if f.Problem != "" && p.Problem == "" {
			p.Problem = fmt.Sprintf("cannot list %s: %s", f.Path, f.Problem)
		}

		for _, name := range f.Names {
			if name, version, ok := pydist.ParseFolderName(name); ok {
				p.Packages = append(p.Packages, hostinfo.Package{Name: name, Version: version, Folder: f.Path, From: "dist-info"})
			}
		}

		if t, ok := pydist.ParseTorch(f.Torch); ok && p.Torch == nil {
			p.Torch = &t
		}

		p.ONNX = cmp.Or(p.ONNX, pydist.ParseONNX(f.ONNX))
		if p.Llama == nil {
			p.Llama = f.Llama
		}
	}

	for _, file := range w.CondaFiles(place) {
		if name, version, build, ok := pydist.ParseCondaRecord(file); ok {
			p.Packages = append(p.Packages, hostinfo.Package{Name: name, Version: version, Build: build, Folder: place.Prefix, From: "conda"})
		}
	}

	return p
}

// probePython imports the libraries that an environment has, one after the other: together they may not fit into
// memory.
func probePython(ctx context.Context, w pyenv.SearchScope, p hostinfo.Python) []hostinfo.Probe {
	said := []hostinfo.Probe{}
	for _, library := range pyenv.KnownLibraries() {
		if !slices.ContainsFunc(p.Packages, func(k hostinfo.Package) bool { return providesLibrary(k.Name, library) }) {
			continue
		}
		one, cancel := context.WithTimeout(ctx, importTimeout)
		said = append(said, w.Ask(one, p.Interpreter, library))
		cancel()
	}
	return said
}

// providesLibrary reports whether a package brings a library: "pytorch" of conda and "onnxruntime-gpu" do under another
// name.
func providesLibrary(name, library string) bool {
	return name == library || library == "torch" && name == "pytorch" || strings.HasPrefix(name, library+"-gpu") ||
		library == "tensorflow" && name == "tensorflow-cpu" || library == "cupy" && (strings.HasPrefix(name, "cupy-cuda") || strings.HasPrefix(name, "cupy-rocm"))
}

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/app/setup"
	"gpuard/internal/text/config"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/commands"
	"gpuard/internal/ui/manual"
)

// content is a file of the release, by where it lies in the archive and on a machine with the package.
type content struct {
	// The path below the archive's folder; "" where the archive has none.
	archive string
	// "" where the package has none.
	deb, rpm string
	text     []byte
	mode     int64
}

// docFolder is the folder of the documents on a machine with a package.
const docFolder = "/usr/share/doc/gpuard/"

// commitTime is the time of the commit, or what SOURCE_DATE_EPOCH says
// (reproducible-builds.org/specs/source-date-epoch).
func commitTime(ctx context.Context) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, err := runOutput(ctx, "git", "log", "-1", "--format=%ct")
		if err != nil {
			return time.Time{}, fmt.Errorf("%w; outside of a clone set SOURCE_DATE_EPOCH", err)
		}
		text = strings.TrimSpace(string(out))
	}

	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("cannot read the time %q of the commit: %w", text, err)
	}

	return time.Unix(seconds, 0).UTC(), nil
}

// runOutput runs a program. What it complains about is part of the error.
func runOutput(ctx context.Context, name string, args ...string) ([]byte, error) {
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("cannot run %s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(complaint.String()))
	}

	return out.Bytes(), nil
}

// programs are what a release has for each architecture.
func programs() []string { return []string{"gpuard", "gpuard-view"} }

// buildPrograms is the folder with the programs for one architecture. Without the flags they would know the folder in
// which they were built.
func (r *release) buildPrograms(ctx context.Context, arch string) (string, error) {
	folder := filepath.Join(r.work, "programs-"+arch)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid= -X gpuard/internal/ui/cli.released="+r.version, "-o", folder+"/")
	for _, name := range programs() {
		cmd.Args = append(cmd.Args, "./cmd/"+name)
	}

	// For every processor, whatever the builder's own is.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build for %s: %w: %s", arch, err, out)
	}

	return folder, nil
}

// commonFiles are all files but the program.
func (r *release) commonFiles(ctx context.Context) ([]content, error) {
	licences, err := collectLicences(ctx)
	if err != nil {
		return nil, err
	}

	list := []content{
		{archive: "config.yaml", deb: docFolder + "examples/config.yaml", rpm: docFolder + "config.yaml", text: []byte(config.Example())},
		{archive: "LICENSES-of-others", deb: docFolder + "LICENSES-of-others", rpm: docFolder + "LICENSES-of-others", text: licences},
		{deb: "/usr/lib/tmpfiles.d/gpuard.conf", rpm: "/usr/lib/tmpfiles.d/gpuard.conf", text: []byte(setup.Tmpfiles())},
	}

	for _, name := range []string{"README.md", "LICENSE"} {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("cannot read what belongs to a release: %w; call it in the root of the repository", err)
		}

		one := content{archive: name, deb: docFolder + name, rpm: docFolder + name, text: text}
		if name == "LICENSE" {
			// The place that Debian prescribes.
			one.deb = docFolder + "copyright"
		}

		list = append(list, one)
	}

	for _, page := range manual.ManPages(cli.CommandTree(commands.CommandTable()), r.version) {
		packed, err := gzipText(page.Text)
		if err != nil {
			return nil, err
		}
		at := path.Join("/usr/share/man", "man"+strings.TrimPrefix(path.Ext(page.Name), "."), page.Name+".gz")
		list = append(list, content{archive: "man/" + page.Name, text: []byte(page.Text)}, content{deb: at, rpm: at, text: packed})
	}

	scripts, err := cli.Completions(cli.CommandTree(commands.CommandTable()))
	if err != nil {
		return nil, err
	}

	for _, c := range []struct{ shell, archive, deb, rpm string }{
		{"bash", "gpuard.bash", "bash-completion/completions/gpuard", "bash-completion/completions/gpuard"},
		{"zsh", "_gpuard", "zsh/vendor-completions/_gpuard", "zsh/site-functions/_gpuard"},
		{"fish", "gpuard.fish", "fish/vendor_completions.d/gpuard.fish", "fish/vendor_completions.d/gpuard.fish"},
	} {
		list = append(list, content{archive: "completions/" + c.archive, deb: "/usr/share/" + c.deb, rpm: "/usr/share/" + c.rpm, text: []byte(scripts[c.shell])})
	}

	return list, nil
}

// gzipText is text as gzip -9n makes it: without a name and a time.
func gzipText(text string) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}

	_, err = io.WriteString(w, text)
	err = errors.Join(err, w.Close())

	return b.Bytes(), err
}

// collectLicences are those of the modules in the programs, and of Go's own library: they ask to be passed on with it.
func collectLicences(ctx context.Context) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=Module", "./cmd/gpuard", "./cmd/gpuard-view")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list the modules: %w", err)
	}

	var b bytes.Buffer
	folders := map[string]string{"Go " + strings.TrimPrefix(runtime.Version(), "go"): goroot(ctx)}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p struct {
			Module *struct {
				Path, Version, Dir string
				Main               bool
			}
		}
		if err := d.Decode(&p); err != nil {
			return nil, fmt.Errorf("cannot read the list of modules: %w", err)
		}
		if p.Module != nil && !p.Module.Main {
			folders[p.Module.Path+" "+p.Module.Version] = p.Module.Dir
		}
	}

	var names []string
	for name := range folders {
		names = append(names, name)
	}

	slices.Sort(names)

	for _, name := range names {
		var found []string
		for _, pattern := range []string{"LICENSE*", "LICENCE*", "COPYING*", "NOTICE*"} {
			files, _ := filepath.Glob(filepath.Join(folders[name], pattern))
			found = append(found, files...)
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("cannot find the licence of %s in %s", name, folders[name])
		}

		for _, file := range found {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("cannot read the licence of %s: %w", name, err)
			}
			fmt.Fprintf(&b, "==== %s: %s\n\n%s\n\n", name, filepath.Base(file), bytes.TrimSpace(text))
		}
	}

	return b.Bytes(), nil
}

// goroot is where the Go lies that builds the release.
func goroot(ctx context.Context) string {
	// Where there is none, its licence is missed.
	out, _ := runOutput(ctx, "go", "env", "GOROOT")
	return strings.TrimSpace(string(out))
}

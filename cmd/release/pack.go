package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// checksumFile is the file with the checksums of the others, as sha256sum -c reads it.
const checksumFile = "SHA256SUMS"

func (r *release) writeArchive(dir, arch, folder string, files []content) (err error) {
	name := fmt.Sprintf("gpuard-%s-linux-%s", r.version, arch)
	out, err := os.Create(filepath.Join(dir, name+".tar.gz"))
	if err != nil {
		return fmt.Errorf("cannot write the archive: %w", err)
	}

	defer func() { err = errors.Join(err, out.Close()) }()
	squeeze := gzip.NewWriter(out)
	w := tar.NewWriter(squeeze)
	files = slices.Clone(files)
	for _, program := range programs() {
		text, err := os.ReadFile(filepath.Join(folder, program))
		if err != nil {
			return fmt.Errorf("cannot read what was built: %w", err)
		}
		files = append(files, content{archive: program, text: text, mode: 0o755})
	}

	slices.SortStableFunc(files, func(a, b content) int { return strings.Compare(a.archive, b.archive) })

	for _, f := range files {
		if f.archive == "" {
			continue
		}

		if f.mode == 0 {
			f.mode = 0o644
		}

		err := w.WriteHeader(&tar.Header{Name: name + "/" + f.archive, Mode: f.mode, Size: int64(len(f.text)), ModTime: r.when, Uname: "root", Gname: "root", Format: tar.FormatUSTAR})
		if err != nil {
			return fmt.Errorf("cannot write the archive: %w", err)
		}

		_, err = w.Write(f.text)
		if err != nil {
			return fmt.Errorf("cannot write the archive: %w", err)
		}
	}

	return errors.Join(w.Close(), squeeze.Close())
}

// makePackage has nfpm make a package. Its description is JSON, which is YAML, too
// (nfpm.goreleaser.com/docs/configuration).
func (r *release) makePackage(ctx context.Context, dir, arch, kind, folder string, files []content) error {
	stage, err := os.MkdirTemp(r.work, kind+"-")
	if err != nil {
		return err
	}

	type object = map[string]any
	info := func(mode int) object {
		return object{"mode": mode, "owner": "root", "group": "root", "mtime": r.when}
	}

	var contents []object
	for _, program := range programs() {
		contents = append(contents, object{"src": filepath.Join(folder, program), "dst": "/usr/bin/" + program, "file_info": info(0o755)})
	}

	if kind == "rpm" {
		// A folder that no package owns stays when this one goes.
		contents = append(contents, object{"dst": strings.TrimSuffix(docFolder, "/"), "type": "dir", "file_info": info(0o755)})
	}

	for i, f := range files {
		place := map[string]string{"deb": f.deb, "rpm": f.rpm}[kind]
		if place == "" {
			continue
		}

		at := filepath.Join(stage, fmt.Sprint(i))
		if err := os.WriteFile(at, f.text, 0o644); err != nil {
			return fmt.Errorf("cannot write a file of the package: %w", err)
		}

		contents = append(contents, object{"src": at, "dst": place, "file_info": info(0o644)})
	}

	script := filepath.Join(stage, "installed")
	if err := os.WriteFile(script, []byte(postInstallScript), 0o755); err != nil { //nolint:gosec // a script for everybody
		return err
	}

	needs := map[string]string{"deb": "libc6", "rpm": "glibc"}
	description, err := json.Marshal(object{
		"name": "gpuard", "arch": arch, "platform": "linux", "version": r.version, "release": "1", "mtime": r.when,
		"maintainer": "gpuard maintainers <maintainers@gpuard.invalid>", "license": "Apache-2.0", "section": "utils", "priority": "optional",
		"description": "choose, lease and prove GPUs on a shared machine\n" +
			"gpuard finds the GPUs of a machine, picks one that really is free, leases it\nso that nobody else gets it, sets CUDA_VISIBLE_DEVICES and its relatives, and\nstarts a command. The GPU is given back when the command ends, also when it\nis killed. There is no daemon.",
		"depends": []string{needs[kind]}, "contents": contents, "scripts": object{"postinstall": script},
		"rpm": object{"summary": "Choose, lease and prove GPUs on a shared machine", "group": "System Environment/Base", "buildhost": "localhost"},
	})

	if err != nil {
		return err
	}

	config := filepath.Join(stage, "nfpm.yaml")
	if err := os.WriteFile(config, description, 0o644); err != nil {
		return err
	}

	cmd := exec.CommandContext(ctx, r.nfpm, "package", "--config", config, "--packager", kind, "--target", dir+"/")
	cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.when.Unix()))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot make the %s for %s: %w: %s", kind, arch, err, out)
	}

	return nil
}

// postInstallScript runs after the files are in their places.
const postInstallScript = `#!/bin/sh
# The folder of the leases, now; at each boot systemd makes it.
if command -v systemd-tmpfiles >/dev/null; then
	systemd-tmpfiles --create gpuard.conf || :
fi
`

func writeChecksums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}

	var lines strings.Builder
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return fmt.Errorf("cannot read what was made: %w", err)
		}
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(text), e.Name())
	}

	return os.WriteFile(filepath.Join(dir, checksumFile), []byte(lines.String()), 0o644)
}

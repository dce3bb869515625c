// Command release builds what is given to people: for each architecture an archive, a package for Debian and one for
// Red Hat and their kin, and their checksums. The same commit and version give the same bytes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"time"
)

func main() {
	var r release
	flag.StringVar(&r.version, "version", "", "version to release, such as v1.2.3")
	flag.StringVar(&r.out, "out", "dist/release", "output folder; must be missing, or hold an earlier release")
	flag.StringVar(&r.nfpm, "nfpm", ".cache/bin/nfpm", "the program that makes packages")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := r.makeRelease(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "release: "+err.Error())
		os.Exit(1)
	}

	fmt.Println("release: " + r.version + " is in " + r.out)
}

// release is one release to build. Paths are relative to the root of the repository, where the program is started.
type release struct {
	version, out, nfpm string

	// The time of the commit; every file in the release gets it, so that two builds give the same bytes.
	when time.Time
	// The folder for what is not complete yet.
	work string
}

// architectures are named as in Go; Debian has the same names.
func architectures() []string { return []string{"amd64", "arm64"} }

// makeRelease builds the program, and puts the release into its place.
func (r *release) makeRelease(ctx context.Context) error {
	if err := r.prepareRelease(ctx); err != nil {
		return err
	}

	defer os.RemoveAll(r.work) //nolint:errcheck // what stays there is named after what it is
	folders := map[string]string{}
	for _, arch := range architectures() {
		folder, err := r.buildPrograms(ctx, arch)
		if err != nil {
			return err
		}
		folders[arch] = folder
	}

	return r.replaceRelease(ctx, folders)
}

// prepareRelease checks the conditions, and makes the folder for unfinished files.
func (r *release) prepareRelease(ctx context.Context) (err error) {
	if !regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$`).MatchString(r.version) {
		return fmt.Errorf("cannot release the version %q: write it like v1.2.3, or v1.2.3-rc.1 (make release VERSION=v1.2.3)", r.version)
	}
	if err := checkOutFolder(r.out); err != nil {
		return err
	}

	r.nfpm, err = filepath.Abs(r.nfpm)
	if err != nil {
		return err
	}

	r.when, err = commitTime(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(r.out), 0o755); err != nil {
		return fmt.Errorf("cannot make the folder of the release: %w", err)
	}

	r.work, err = os.MkdirTemp(filepath.Dir(r.out), ".release-")
	if err != nil {
		return fmt.Errorf("cannot make a folder for the release: %w", err)
	}

	return nil
}

// replaceRelease puts the release into its place in one step: a reader finds all of it, or the one before.
func (r *release) replaceRelease(ctx context.Context, folders map[string]string) error {
	done := filepath.Join(r.work, "done")
	if err := os.Mkdir(done, 0o755); err != nil {
		return err
	}
	if err := r.fillFolder(ctx, done, folders); err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return fmt.Errorf("cannot replace the earlier release: %w", err)
	}

	return os.Rename(done, r.out)
}

// fillFolder puts what is given to people into a folder, with the folders of programs by their architectures.
func (r *release) fillFolder(ctx context.Context, dir string, folders map[string]string) error {
	common, err := r.commonFiles(ctx)
	if err != nil {
		return err
	}

	for _, arch := range architectures() {
		if err := r.writeArchive(dir, arch, folders[arch], common); err != nil {
			return err
		}
		for _, kind := range []string{"deb", "rpm"} {
			if err := r.makePackage(ctx, dir, arch, kind, folders[arch], common); err != nil {
				return err
			}
		}
	}

	return writeChecksums(dir)
}

// checkOutFolder refuses to replace a folder that is not one of releases.
func checkOutFolder(out string) error {
	entries, err := os.ReadDir(out)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot look into the folder of the release: %w", err)
	}
	if _, err := os.Stat(filepath.Join(out, checksumFile)); err != nil && len(entries) > 0 {
		return fmt.Errorf("cannot write to %s: it is no release; choose another folder", out)
	}

	return nil
}

package doctor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/check"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/redact"
	"gpuard/internal/host/atomicfile"
)

// bundleArchive is an archive that was written.
type bundleArchive struct {
	Path  string
	Size  gpu.Bytes
	Files []packedFile
}

// packedFile is one file of the archive.
type packedFile struct {
	Name  string
	About string
	data  []byte
}

// Bundle writes one archive for a bug report: what doctor found and what it found that from. path is "" for a name of
// its own in the working folder, or a folder; a file that is there is never overwritten. version is the program's.
// Without raw, names, paths, addresses and identifiers are replaced by words that are the same in all files.
func Bundle(host *machine.Host, d check.Diagnosis, path, version string, raw bool) (*bundleArchive, error) { //nolint:revive // the caller only shows it
	files, err := collectEvidence(host, d, version)
	if err != nil {
		return nil, err
	}

	if !raw {
		files, err = scrubFiles(files, newScrubber(host, d.Site))
		if err != nil {
			return nil, err
		}
	}

	files = slices.Insert(files, 0, packedFile{"README.txt", "what is in here", bundleReadme(files, raw)})
	name := "gpuard-doctor-" + d.Site.Now.Format("20060102-150405") + ".tar.gz"
	if info, err := os.Stat(path); path == "" || err == nil && info.IsDir() {
		path = filepath.Join(path, name)
	}

	data, err := packArchive(strings.TrimSuffix(name, ".tar.gz"), files, d.Site.Now)
	if err != nil {
		return nil, fmt.Errorf("cannot pack the files: %w", err)
	}
	if err := writeOnce(path, data); err != nil {
		return nil, err
	}

	return &bundleArchive{path, gpu.Bytes(len(data)), files}, nil
}

// writeOnce makes a file for the caller alone, and never changes one that is there.
func writeOnce(path string, data []byte) error {
	err := atomicfile.Create(path, data, 0o600)
	switch {
	case errors.Is(err, os.ErrExist):
		return fmt.Errorf("cannot write %s: there is such a file already; name another: gpuard doctor --bundle=FILE", path)
	case err != nil:
		return fmt.Errorf("%w; name a place that you can write: gpuard doctor --bundle=FILE", err)
	}
	return nil
}

func packArchive(folder string, files []packedFile, now time.Time) ([]byte, error) {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	tape := tar.NewWriter(zip)
	for _, f := range files {
		head := &tar.Header{Typeflag: tar.TypeReg, Name: folder + "/" + f.Name, Mode: 0o600, Size: int64(len(f.data)), ModTime: now.Truncate(time.Second)}
		if err := tape.WriteHeader(head); err != nil {
			return nil, err
		}
		if _, err := tape.Write(f.data); err != nil {
			return nil, err
		}
	}

	err := errors.Join(tape.Close(), zip.Close())

	return out.Bytes(), err
}

// newScrubber knows what is secret of this machine and has no form that would betray it.
func newScrubber(host *machine.Host, s hostinfo.Site) *redact.Scrubber {
	var secrets []redact.Secret
	add := func(kind redact.Kind, texts ...string) {
		for _, t := range texts {
			if t != "" {
				secrets = append(secrets, redact.Secret{Kind: kind, Text: t})
			}
		}
	}

	value := func(name string) string {
		v, _ := host.Env.Lookup(name)
		return v
	}

	name, _ := os.Hostname()
	short, _, _ := strings.Cut(name, ".")
	add(redact.Host, name, short, value("HOSTNAME"), value("HOST"), value("MASTER_ADDR"), value("NCCL_HOSTID"), value("SLURMD_NODENAME"))
	add(redact.User, host.Names(uint32(os.Geteuid())), value("USER"), value("LOGNAME"), value("SUDO_USER"), filepath.Base(value("HOME")))

	for _, p := range s.Machine.Found.Processes {
		add(redact.User, p.User)
		add(redact.Command, p.Command, prose.Brief(p.Command))
	}

	for _, l := range s.Leftovers.Found {
		add(redact.User, l.User)
		add(redact.Command, l.Command, prose.Brief(l.Command))
	}

	var keep []string
	for _, p := range s.Pythons.Found {
		add(redact.Path, p.Prefix, p.Interpreter)
		add(redact.Name, filepath.Base(p.Prefix))

		for _, q := range p.Packages {
			add(redact.Path, q.Folder)
			keep = append(keep, q.Version)
		}
	}

	for _, l := range s.Libraries.Found {
		keep = append(keep, l.Version)
	}

	add(redact.Path, value("HOME"), value("VIRTUAL_ENV"), value("CONDA_PREFIX"), s.State.Found.Folder)
	add(redact.User, s.Policy.Found.Names...)
	add(redact.User, folderOwners(host, s.State.Found)...)

	for _, pair := range tellingVariables(host.Env) {
		// A path with blanks ends where no pattern sees it.
		if _, v, _ := strings.Cut(pair, "="); strings.HasPrefix(v, "/") || strings.HasPrefix(v, "~") {
			add(redact.Path, filepath.SplitList(v)...)
		}
	}

	return redact.New(secrets, keep)
}

// folderOwners are the users that texts about the state folder may name: the owners of the folder, of its parents, and
// of its content.
func folderOwners(host *machine.Host, state hostinfo.State) (names []string) {
	seen := map[uint32]bool{}
	add := func(path string) {
		info, err := os.Lstat(path)
		if err != nil {
			return
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && !seen[st.Uid] {
			seen[st.Uid] = true
			names = append(names, host.Names(st.Uid))
		}
	}
	for _, folder := range append([]string{state.Folder}, state.Others...) {
		if folder == "" {
			continue
		}

		for above := folder; above != filepath.Dir(above); above = filepath.Dir(above) {
			add(above)
		}

		entries, _ := filepath.Glob(filepath.Join(folder, "*"))
		inner, _ := filepath.Glob(filepath.Join(folder, "*", "*"))
		for _, path := range slices.Concat(entries, inner) {
			add(path)
		}
	}

	return names
}

// scrubFiles replaces secrets in all files, with the same words.
func scrubFiles(files []packedFile, by *redact.Scrubber) ([]packedFile, error) {
	for i, f := range files {
		if !strings.HasSuffix(f.Name, ".json") {
			files[i].data = []byte(by.Text(string(f.data)))
			continue
		}
		data, err := by.ScrubJSON(f.data)
		if err != nil {
			return nil, fmt.Errorf("cannot scrub %s: %w", f.Name, err)
		}
		files[i].data = data
	}
	return files, nil
}

// bundleReadme is the first page of the archive.
func bundleReadme(files []packedFile, raw bool) []byte {
	var b strings.Builder
	b.WriteString("What gpuard doctor saw, for a bug report.\n\n")

	for _, f := range files {
		fmt.Fprintf(&b, "%-16s %s\n", f.Name, f.About)
	}

	if raw {
		_, _ = io.WriteString(&b, "\nNothing was replaced: names, paths and addresses are in it as they are.\n")
	} else {
		_, _ = io.WriteString(&b, "\nNames of people, computers and files, addresses, serial numbers and UUIDs were replaced by words such as user-1,\nthe same word for the same thing. What is left is worth a look before it is sent.\n")
	}

	return []byte(b.String())
}

// Package setup puts gpuard where people already work: shells, conda, Jupyter, systemd, desktops, workflows, and the
// machine. Each target has a file that says what it wishes for; this one compares that with what is there, does it and
// undoes it. Either everything that a target wishes is done, or nothing.
package setup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/edit"
	"gpuard/internal/host/files"
	"gpuard/internal/host/manifest"
	"gpuard/internal/host/store"
	"gpuard/internal/host/sys"
)

// Setup is what the targets need.
type Setup struct {
	Host *machine.Host
	// The setup is for the whole machine: the record is root's.
	System bool
}

// ChangePlan is what one target wants.
type ChangePlan struct {
	// What it is remembered by, and taken away: "conda /home/ann/envs/train".
	Key string
	// The changes of files; what was wished for under this key before and is no more goes away.
	Changes []edit.Change
	// The folder of the machine's leases, made unless it is there; "" where that is not asked for.
	Leases string
	// The folder in which each user has one, likewise.
	Users string
	// Commands that show that it works.
	Try []string
	// What else there is to know, a sentence each.
	Notes []string
}

// Report is what was done, or would be.
type Report struct {
	Schema string `json:"schema"` // "gpuard.setup/1"
	// The target, with what it was named for.
	Setup string `json:"setup"`
	// false: only looked at (--dry-run).
	Done bool `json:"done"`
	// One for each file that the setup is about.
	Files []File `json:"files"`
	// Commands that show that it works.
	Try []string `json:"try"`
	// What else there is to know, one sentence each.
	Notes []string `json:"notes"`
}

// File says what happened to one file.
type File struct {
	Path string `json:"path"` // absolute
	// What was done, or would be.
	Action edit.Action `json:"action"`
	// What gpuard writes there; after a setup only where it did, and "" for a copy of another file.
	Text string `json:"text"`
}

// Preview says what Apply would do.
func (s *Setup) Preview(w ChangePlan) (Report, error) {
	_, record, err := s.peekRecord()
	if err != nil {
		return Report{}, err
	}

	steps, err := planSteps(&record, w)
	if err == nil && !s.System {
		// Every user may see what root would do.
		err = checkSteps(steps)
	}

	if err != nil {
		return Report{}, err
	}

	r := makeReport(w, steps, false)
	r.addLeaseFolder(w.Leases)

	return r, nil
}

// Apply does what w wants. The error is an *edit.Conflict if a file is in its way; then nothing was changed.
func (s *Setup) Apply(w ChangePlan) (_ Report, err error) {
	path, err := s.recordPath()
	if err != nil {
		return Report{}, err
	}

	m, err := manifest.Open(path, s.sayBusy)
	if err != nil {
		return Report{}, err
	}

	defer func() { err = errors.Join(err, m.Close()) }()
	steps, err := planSteps(&m.Record, w)
	if err != nil {
		return Report{}, err
	}

	err = checkSteps(steps)
	if err != nil {
		return Report{}, err
	}

	r := makeReport(w, steps, true)
	if r.addLeaseFolder(w.Leases) {
		if err := store.CreateFolder(w.Leases); err != nil {
			return Report{}, err
		}
	}

	if err := makeUsers(w.Users); err != nil {
		return Report{}, err
	}
	if err := applySteps(m, w.Key, steps); err != nil {
		return Report{}, err
	}

	return r, nil
}

// Remove removes what was set up under a key. With dry it only reports. Files that a user has changed since stay, and
// the error says so after the rest is gone.
func (s *Setup) Remove(key string, dry bool) (_ Report, err error) {
	path, record, err := s.peekRecord()
	if err != nil {
		return Report{}, err
	}

	adoptMoved(&record, key)
	if len(record.EntriesOf(key)) == 0 {
		if len(record.Entries) == 0 && !dry {
			err = manifest.TidyRecord(path, s.sayBusy)
		}
		return makeReport(ChangePlan{Key: key, Notes: []string{"there is nothing to take away"}}, nil, !dry), err
	}

	if dry {
		steps, err := planRemoval(&record, key, nil)
		if err == nil && !s.System {
			err = checkSteps(steps)
		}
		if err != nil {
			return Report{}, err
		}

		return makeReport(ChangePlan{Key: key}, steps, false), nil
	}

	if key == machineKey {
		// If it is empty.
		_ = os.Remove(filepath.Join(s.Host.Root, machine.UsersFolder))
	}

	m, err := manifest.Open(path, s.sayBusy)
	if err != nil {
		return Report{}, err
	}

	defer func() { err = errors.Join(err, m.Close()) }()
	adoptMoved(&m.Record, key)
	steps, err := planRemoval(&m.Record, key, nil)
	if err != nil {
		return Report{}, err
	}

	err = checkSteps(steps)
	if err != nil {
		return Report{}, err
	}
	if err := applySteps(m, key, steps); err != nil {
		return Report{}, err
	}

	for _, step := range steps {
		if step.Action == edit.Left {
			err = errors.Join(err, fmt.Errorf("cannot take %s away: it was changed since gpuard wrote it; take out what is gpuard's by hand", step.Path))
		}
	}

	return makeReport(ChangePlan{Key: key}, steps, true), err
}

// Keys are the setups that are there now, sorted.
func (s *Setup) Keys() ([]string, error) {
	_, record, err := s.peekRecord()
	var keys []string
	for _, e := range record.Entries {
		keys = append(keys, e.Setup)
	}

	slices.Sort(keys)

	return slices.Compact(keys), err
}

// recordPath is where it is remembered what was set up.
func (s *Setup) recordPath() (string, error) {
	if s.System {
		return filepath.Join(s.Host.Root, "var", "lib", "gpuard", "setup.json"), nil
	}
	return s.homePath("XDG_STATE_HOME", ".local/state", "gpuard", "setup.json")
}

// sayBusy tells a person what is waited for.
func (s *Setup) sayBusy() { s.Host.Say("another gpuard setup is at work: waiting for its end") }

// peekRecord is the record as it is now, and where it lies.
func (s *Setup) peekRecord() (path string, record edit.Record, err error) {
	path, err = s.recordPath()
	if err != nil {
		return path, record, err
	}

	record, err = manifest.Peek(path)

	return path, record, err
}

// homePath is a path below a folder of the user's that a variable names, or below its usual place at home.
func (s *Setup) homePath(variable, usual string, below ...string) (string, error) {
	dir, _ := s.Host.Env.Lookup(variable)
	if !filepath.IsAbs(dir) {
		home, _ := s.Host.Env.Lookup("HOME")
		if !filepath.IsAbs(home) {
			return "", &exit.Usage{Text: "cannot find your home folder: set HOME"}
		}
		dir = filepath.Join(home, usual)
	}
	return filepath.Join(append([]string{dir}, below...)...), nil
}

// ProgramPath is the absolute path under which gpuard is started from what is set up: by its name on PATH where that
// leads to this program, because that path outlives an update.
func ProgramPath() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("cannot find the path of this program: %w", err)
	}
	if regexp.MustCompile(`/go-build[0-9]+/b[0-9]+/exe/`).MatchString(self) {
		return "", &exit.Usage{Text: "cannot set anything up for a program that goes away: install it first, go build -o ~/.local/bin/gpuard ./cmd/gpuard"}
	}

	mine, err := os.Stat(self)
	if err != nil {
		return "", fmt.Errorf("cannot find this program: %w", err)
	}

	if found, err := exec.LookPath("gpuard"); err == nil && filepath.IsAbs(found) {
		if info, err := os.Stat(found); err == nil && os.SameFile(info, mine) {
			return found, nil
		}
	}

	return self, nil
}

// readFound reads the file of a change. A block goes to where a symbolic link of the caller's or of root's leads; a
// file of gpuard's own is never a link.
func readFound(c *edit.Change, known []string) (edit.Found, error) {
	info, err := os.Lstat(c.Path)
	if errors.Is(err, os.ErrNotExist) {
		return edit.Found{Known: known}, nil
	}
	if err != nil {
		return edit.Found{}, fmt.Errorf("cannot read %s: %w", c.Path, err)
	}

	if c.Block != "" && info.Mode().Type() == os.ModeSymlink {
		actual, err := sys.ResolvePath(c.Path)
		if errors.Is(err, os.ErrNotExist) {
			return edit.Found{}, &edit.Conflict{Path: c.Path, Why: "it is a symbolic link to what is not there", Remedy: "make that file, or delete the link, and try again"}
		}
		if err != nil {
			return edit.Found{}, fmt.Errorf("cannot follow %s: %w", c.Path, err)
		}

		c.Path = actual
		info, err = os.Lstat(actual)
		if err != nil {
			return edit.Found{}, fmt.Errorf("cannot read %s: %w", actual, err)
		}
	}

	if !info.Mode().IsRegular() {
		return edit.Found{}, &edit.Conflict{Path: c.Path, Why: "it is not a plain file", Remedy: "move it away, and try again"}
	}

	text, err := files.ReadFile(c.Path)
	if err != nil {
		return edit.Found{}, fmt.Errorf("cannot read %s: %w", c.Path, err)
	}

	return edit.Found{Exists: true, Content: string(text.Content), Known: known}, nil
}

// addLeaseFolder puts the folder of the leases before the files, and returns whether it is missing.
func (r *Report) addLeaseFolder(folder string) bool {
	if folder == "" {
		return false
	}

	f := File{Path: folder, Action: edit.Same}
	_, err := os.Lstat(folder)
	missing := errors.Is(err, os.ErrNotExist)
	if missing {
		f.Action = edit.Create
	}

	r.Files = slices.Insert(r.Files, 0, f)

	return missing
}

func makeReport(w ChangePlan, steps []edit.Step, done bool) Report {
	r := Report{Schema: "gpuard.setup/1", Setup: w.Key, Done: done, Files: []File{}, Try: append([]string{}, w.Try...), Notes: append([]string{}, w.Notes...)}
	for _, step := range steps {
		f := File{Path: step.Path, Action: step.Action}
		written := step.Action == edit.Create || step.Action == edit.Update || step.Action == edit.Insert
		if (written || step.Action == edit.Same && !done) && !step.Copy {
			f.Text = strings.ToValidUTF8(step.Content, "\uFFFD")
		}
		r.Files = append(r.Files, f)
	}
	return r
}

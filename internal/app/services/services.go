// Package services runs the programs of a gpuard.yaml. Commands write what is wanted into the project's folder; one
// supervisor per project starts what is missing; and one keeper per instance runs it. They communicate by files, locks
// and inotify only. So a killed one is noticed and replaced, and nothing runs twice.
//
//	projects := &services.Projects{Host: host}
//	p, err := projects.Load("")        // gpuard.yaml here or above
//	folder, err := projects.Open(p)
//	change, err := folder.Up(ctx, p, nil)
package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/diagnostic"
	"gpuard/internal/core/service"
	"gpuard/internal/host/projectdir"
	"gpuard/internal/text/config"

	"gpuard/internal/text/projectyaml"
)

// Projects are the projects of this user on this machine.
type Projects struct{ Host *machine.Host }

// Load reads a project's file; with "" it searches gpuard.yaml here and above. The error is a *diagnostic.Many with
// every mistake, and the project then has what could be read; or an *exit.Usage if there is no such file.
func (s *Projects) Load(path string) (*service.Project, error) {
	file, data, err := s.readProjectFile(path)
	if err != nil {
		return nil, err
	}

	p, mistakes := projectyaml.Read(data, file)
	var more []diagnostic.One
	p.Policy, more = config.ReadProject(data, file)
	mistakes = append(mistakes, more...)
	if len(mistakes) > 0 {
		return p, &diagnostic.Many{File: displayPath(path, file), List: mistakes}
	}

	return p, nil
}

// displayPath is a file as its user knows it.
func displayPath(path, file string) string {
	here, err := os.Getwd()
	if path != "" || err != nil {
		return path
	}

	rel, err := filepath.Rel(here, file)
	if err != nil {
		return file
	}

	return rel
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

// absolutePath resolves the folder of a file, and not the file: it may be gone.
func absolutePath(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("cannot find %s: %w", path, err)
	}

	dir, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return "", &exit.Usage{Text: fmt.Sprintf("cannot find %s: %v", path, err)}
	}

	return filepath.Join(dir, filepath.Base(abs)), nil
}

// Open is the folder of a project whose file was read. It is made when it is first needed.
func (s *Projects) Open(p *service.Project) (*Folder, error) { return s.folderOf(p.File) }

// FindFolder is the folder of a project by its file, which may be unreadable or gone; with "" it searches here and
// above. The error is an *exit.Usage if there is neither file nor folder. A project that was never up has no instances.
func (s *Projects) FindFolder(path string) (*Folder, error) {
	if path == "" {
		file, _, err := s.searchUpwards(s.wasEverUp)
		if err != nil {
			return nil, err
		}
		return s.folderOf(file)
	}

	file, err := namedFilePath(path)
	if err != nil {
		return nil, err
	}
	if !isFile(file) && !s.wasEverUp(file) {
		return nil, &exit.Usage{Text: fmt.Sprintf("cannot find %s: there is no such file, and it was never up", path)}
	}

	return s.folderOf(file)
}

// wasEverUp reports whether a project of this user was up, whatever its file is by now.
func (s *Projects) wasEverUp(file string) bool {
	f, err := s.folderOf(file)
	if err != nil {
		return false
	}
	folder, _ := f.openFolder()

	return folder != nil
}

func (s *Projects) folderOf(file string) (*Folder, error) {
	top, err := folderOfProjects(s.Host, false)
	if err != nil {
		return nil, err
	}
	return &Folder{host: s.Host, file: file, path: filepath.Join(top, projectdir.ID(file))}, nil
}

// Folder is one project: what is wanted of it, and what is known of its instances.
type Folder struct {
	host       *machine.Host
	file, path string
}

// openFolder opens the folder; nil when the project was never up.
func (f *Folder) openFolder() (*projectdir.Folder, error) {
	folder, err := projectdir.Open(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // nothing is known
	}
	return folder, err
}

// createFolder opens the folder, which is made when it is missing.
func (f *Folder) createFolder() (*projectdir.Folder, error) {
	top, err := folderOfProjects(f.host, true)
	if err != nil {
		return nil, err
	}
	return projectdir.MakeFolder(top, filepath.Base(f.path))
}

// Changes returns a channel with a value after each change that ReadView may show, closed when ctx ends. Call ReadView
// once after it, for earlier changes.
func (f *Folder) Changes(ctx context.Context) <-chan struct{} {
	w, err := f.watchFolder()
	out := make(chan struct{})
	go func() {
		defer close(out)
		if err != nil {
			// Looking now and then is what remains.
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			forwardChanges(ctx, out, nil, tick.C)

			return
		}

		defer w.Close()
		forwardChanges(ctx, out, w.Changed, nil)
	}()

	return out
}

func (f *Folder) watchFolder() (*projectdir.Watcher, error) {
	folder, err := f.createFolder()
	if err != nil {
		return nil, err
	}
	return folder.Watch("")
}

// forwardChanges hands changes on until ctx ends.
func forwardChanges(ctx context.Context, out chan<- struct{}, changed <-chan struct{}, tick <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-tick:
		}
		select {
		case <-ctx.Done():
			return
		case out <- struct{}{}:
		}
	}
}

package setup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gpuard/internal/app/engine"
	"gpuard/internal/app/exit"
	"gpuard/internal/core/container"
	"gpuard/internal/core/edit"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/host/files"
)

// Docker is a file beside a project of Docker Compose, which gives its services the GPUs of a lease.
type Docker struct {
	Setup *Setup
	File  string // the project's
}

// Key is what the setup is remembered by.
func (d Docker) Key() (string, error) {
	file, err := filepath.Abs(d.File)
	if err != nil {
		return "", fmt.Errorf("cannot find the current folder: %w", err)
	}
	return "docker " + file, nil
}

// Wish is the file, under the name that Compose reads by itself if that is free.
func (d Docker) Wish(ctx context.Context) (ChangePlan, error) {
	key, err := d.Key()
	if err != nil {
		return ChangePlan{}, err
	}

	file := strings.TrimPrefix(key, "docker ")
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		return ChangePlan{}, exit.Usagef("cannot set up %s: it is no file; name the project's file, such as compose.yaml", d.File)
	}

	project, err := d.readProject(ctx, file)
	if err != nil {
		return ChangePlan{}, err
	}

	target, alone := d.overridePath(key, file)
	up := "gpuard docker -- compose up"
	if !alone {
		up = fmt.Sprintf("gpuard docker -- compose -f %s -f %s up", shellquote.Sh(filepath.Base(file)), shellquote.Sh(filepath.Base(target)))
	}

	text, err := project.OverrideText(up)
	if err != nil {
		return ChangePlan{}, &exit.Usage{Text: err.Error()}
	}

	w := ChangePlan{Key: key, Changes: []edit.Change{{Path: target, Content: text}}, Try: []string{up}}
	for _, s := range project.Services {
		switch {
		case s.All:
			w.Notes = append(w.Notes, fmt.Sprintf("service %s asks for all GPUs and gets 1; for more, write count: 2 in %s and call this again", s.Name, filepath.Base(file)))
		case s.GPUs > 0:
			w.Notes = append(w.Notes, fmt.Sprintf("service %s gets %d of the GPUs", s.Name, s.GPUs))
		}
	}

	if w.Notes == nil {
		return ChangePlan{}, exit.Usagef("cannot set up %s: none of its services asks for a GPU; see https://docs.docker.com/compose/how-tos/gpu-support", d.File)
	}

	for _, s := range project.Services {
		if why := s.RefusalReason(); why != "" {
			w.Notes = append(w.Notes, fmt.Sprintf("gpuard does not start service %s, which has no GPU: %s; start it by: docker compose up -d %s", s.Name, why, s.Name))
		}
	}

	return w, nil
}

// readProject asks docker for the services of the file.
func (d Docker) readProject(ctx context.Context, file string) (container.Project, error) {
	call, err := container.ReadCall([]string{"docker"})
	if err != nil {
		return container.Project{}, err
	}

	e, err := engine.FindEngine(d.Setup.Host, call)
	if err != nil {
		return container.Project{}, err
	}

	err = e.CheckOverride(ctx)
	if err != nil {
		return container.Project{}, err
	}

	return e.Project(ctx, []string{"compose", "-f", file}, "--no-interpolate")
}

// overridePath is the path of the file that is written, and whether Compose reads it without being told.
//
// https://docs.docker.com/compose/how-tos/multiple-compose-files/merge: compose.override.yaml beside compose.yaml.
func (d Docker) overridePath(key, file string) (path string, alone bool) {
	base := filepath.Base(file)
	stem, extension := strings.TrimSuffix(base, filepath.Ext(base)), filepath.Ext(base)
	path = filepath.Join(filepath.Dir(file), stem+".override"+extension)
	if slices.Contains([]string{"compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"}, base) {
		keys, _ := d.Setup.Keys()
		if text, _ := files.ReadFile(path); !files.Exists(path) || slices.Contains(keys, key) && strings.HasPrefix(string(text.Content), "# Written by gpuard.") {
			return path, true
		}
	}

	return filepath.Join(filepath.Dir(file), stem+".gpuard"+extension), false
}

package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gpuard/internal/core/container"
	"gpuard/internal/host/files"
)

// LookUp looks up what has to be known of this machine before a call is judged. What does not exist shows a container
// nothing; the engine says so itself.
func (e Engine) LookUp(ctx context.Context, asked container.Lookups, rootless bool) (container.Found, error) {
	dir, err := os.Getwd()
	if err != nil {
		return container.Found{}, fmt.Errorf("cannot find the current folder: %w", err)
	}

	found := container.Found{Dir: dir, Rootless: rootless, Paths: map[string][]string{}, Volumes: map[string][]string{}, Others: map[string][]string{}}
	for _, path := range asked.Paths {
		found.Paths[path] = realPaths(joinPath(dir, path))
	}

	for _, pattern := range asked.Patterns {
		// A pattern that is wrong matches nothing in the engine, either.
		matches, _ := filepath.Glob(joinPath(dir, pattern))
		for _, path := range matches {
			found.Paths[pattern] = append(found.Paths[pattern], realPaths(path)...)
		}
	}

	if err := e.lookAtVolumes(ctx, asked.Volumes, found.Volumes); err != nil {
		return found, err
	}

	return found, e.lookAtOthers(ctx, asked, found.Others)
}

// joinPath is a path in a folder, with its dots: what they mean depends on the links before them.
func joinPath(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return dir + "/" + path
}

// realPaths are the path without links: read from the left, as the kernel does, and with its dots taken away first, as
// some engines do. A device file of GPUs is named as usual, too.
func realPaths(path string) (paths []string) {
	for _, one := range []string{path, filepath.Clean(path)} {
		one = files.ResolveLinks(one)
		paths = append(paths, one)
		if name := container.DeviceFile(files.DeviceNumbers(one)); name != "" {
			paths = append(paths, name)
		}
	}
	return paths
}

// lookAtVolumes finds out what volumes show of this machine: one may have been made of a folder.
func (e Engine) lookAtVolumes(ctx context.Context, names []string, found map[string][]string) error {
	if len(names) == 0 {
		return nil
	}

	var volumes []struct {
		Name    string
		Options map[string]string
	}

	text, err := e.askEngine(ctx, append([]string{"volume", "inspect"}, names...)...)
	if bad := json.Unmarshal(text, &volumes); bad != nil && !isMissing(err) {
		return fmt.Errorf("cannot ask %s about the volumes %s: %w", e.Name, strings.Join(names, ", "), firstError(err, bad))
	}

	for _, v := range volumes {
		for _, path := range container.VolumePaths(v.Options) {
			found[v.Name] = append(found[v.Name], realPaths(path)...)
		}
	}

	return nil
}

// lookAtOthers finds out what containers and pods, whose volumes and devices a container takes over, have of this
// machine.
func (e Engine) lookAtOthers(ctx context.Context, asked container.Lookups, found map[string][]string) error {
	for _, name := range asked.Containers {
		all, err := e.Inspect(ctx, name)
		if err != nil {
			return fmt.Errorf("cannot ask %s about the container %s: %w", e.Name, name, err)
		}

		for _, c := range all {
			if err := e.lookAtMounts(ctx, c.Mounts, name, found); err != nil {
				return err
			}
		}
	}
	for _, name := range asked.Pods {
		text, err := e.askEngine(ctx, "pod", "inspect", name)
		var pods []struct {
			Mounts  mounts
			Devices []struct{ PathOnHost string }
		}

		text = []byte(strings.TrimSpace(string(text)))
		if len(text) > 0 && text[0] == '{' {
			// Before podman 5.
			text = []byte("[" + string(text) + "]")
		}

		if bad := json.Unmarshal(text, &pods); bad != nil && !isMissing(err) {
			return fmt.Errorf("cannot ask %s about the pod %s: %w", e.Name, name, firstError(err, bad))
		}

		for _, pod := range pods {
			if err := e.lookAtMounts(ctx, pod.Mounts, name, found); err != nil {
				return err
			}
			for _, device := range pod.Devices {
				found[name] = append(found[name], realPaths(device.PathOnHost)...)
			}
		}
	}
	return nil
}

// mounts are what a container or a pod is shown.
type mounts []struct{ Type, Name, Source string }

// lookAtMounts finds out what the mounts of a container or a pod show of this machine. Volumes lie in a folder of the
// engine's own, and one may have been made of a folder.
func (e Engine) lookAtMounts(ctx context.Context, all mounts, owner string, found map[string][]string) error {
	var names []string
	for _, mount := range all {
		switch {
		case mount.Type == "volume" && mount.Name != "":
			names = append(names, mount.Name)
		case mount.Type == "bind" && mount.Source != "":
			found[owner] = append(found[owner], realPaths(mount.Source)...)
		}
	}

	volumes := map[string][]string{}
	if err := e.lookAtVolumes(ctx, names, volumes); err != nil {
		return err
	}

	for _, paths := range volumes {
		found[owner] = append(found[owner], paths...)
	}

	return nil
}

// isMissing reports whether an engine says that something does not exist.
func isMissing(err error) bool {
	return err != nil && strings.Contains(strings.ToLower(err.Error()), "no such")
}

func firstError(err, bad error) error {
	if err != nil {
		return err
	}
	return bad
}

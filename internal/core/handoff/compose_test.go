package handoff_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/handoff"
	"gpuard/internal/core/job"
	"gpuard/internal/gate"
	"gpuard/test/works"
)

// service is what docker compose reads. It writes $ as $$ again.
type service struct {
	Image       string
	Command     []string
	Entrypoint  []string
	Environment map[string]string
	Restart     string
	WorkingDir  string `json:"working_dir"`
	StopSignal  string `json:"stop_signal"`
	Labels      map[string]string
	Deploy      struct {
		Resources struct {
			Reservations struct {
				Devices []struct {
					Driver       string
					Count        int
					DeviceIDs    []string `json:"device_ids"`
					Capabilities []string
				}
			}
		}
	}
}

// projectName is what Docker Compose accepts as the name of a project (docs.docker.com/reference/compose-file/version-and-name).
var projectName = regexp.MustCompile(`^[a-z0-9][-_a-z0-9]*$`)

// TestCompose: docker compose reads what was meant, of 200 random jobs. A start of it takes a third of a second, and it reads 25
// of their files at once.
func TestCompose(t *testing.T) {
	gate.Need(t, "compose")
	random := rand.New(rand.NewPCG(15, 16))
	for range 8 {
		meant := map[string]handoff.Work{}
		args, last := []string{"compose"}, ""
		folder := t.TempDir()
		for len(meant) < 25 {
			w := works.Random(random)
			if len(meant) == 0 {
				w = works.Named(random, "./run")
				w.Spec.Command = append([]string{"./run"}, works.HostileWords()...)
			}
			w.Spec.Name = fmt.Sprintf("%d %s", len(meant), w.Spec.Name) // two of one name would be one service
			out, err := handoff.Write(handoff.Compose, w, works.Site())
			if refusal := (*job.Refusal)(nil); errors.As(err, &refusal) {
				continue
			}
			if err != nil || !projectName.MatchString(out.Name) {
				t.Fatalf("%q: %v", out.Name, err)
			}
			file := filepath.Join(folder, out.Name+".yaml")
			if err := os.WriteFile(file, []byte(out.Text), 0o600); err != nil {
				t.Fatal(err)
			}
			args, last = append(args, "-f", file), out.Name
			meant[strings.TrimSuffix(out.Name, "-"+out.ID)] = w
		}
		checkProject(t, folder, append(args, "config", "--format", "json"), last, meant)
	}
}

// checkProject compares what docker compose reads with what was meant, by the names of services. The name of the project is the one
// of the last file.
func checkProject(t *testing.T, folder string, args []string, name string, meant map[string]handoff.Work) {
	t.Helper()
	cmd := exec.Command("docker", args...)
	cmd.Dir = folder
	said, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	var p struct {
		Name     string
		Services map[string]service
	}
	if err := json.Unmarshal(said, &p); err != nil || p.Name != name || len(p.Services) != len(meant) {
		t.Fatalf("%v\n%s", err, said)
	}
	for service, w := range meant {
		read := p.Services[service]
		checkService(t, &w, &read)
	}
}

func checkService(t *testing.T, w *handoff.Work, s *service) {
	t.Helper()
	plain := func(text string) string { return strings.ReplaceAll(text, "$$", "$") }
	words := []string{}
	for _, word := range s.Entrypoint {
		words = append(words, plain(word))
	}
	if !slices.Equal(words[len(words)-len(w.Spec.Command):], w.Spec.Command) || len(s.Command) > 0 || plain(s.Labels["gpuard.note"]) != w.Note || plain(s.WorkingDir) != w.Folder {
		t.Fatalf("%+v of %+v", s, w)
	}
	for _, v := range w.Env {
		if plain(s.Environment[v.Name]) != v.Value {
			t.Fatalf("%s is %q instead of %q", v.Name, s.Environment[v.Name], v.Value)
		}
	}
	if _, there := s.Environment["CUDA_VISIBLE_DEVICES"]; there != w.Spec.CPU || s.StopSignal != w.Care.Stop || (s.Restart != "no") != (w.Care.Retries > 0) {
		t.Fatalf("%+v of %+v", s, w)
	}
	devices := s.Deploy.Resources.Reservations.Devices
	if w.Spec.CPU {
		if len(devices) > 0 {
			t.Fatalf("%+v", devices)
		}
		return
	}
	if len(devices) != 1 || devices[0].Count != w.Spec.GPUs || !slices.Equal(devices[0].DeviceIDs, w.Spec.Devices) || devices[0].Driver != "nvidia" || devices[0].Capabilities[0] != "gpu" {
		t.Fatalf("%+v of %+v", devices, w.Spec)
	}
}

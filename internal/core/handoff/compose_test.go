package handoff_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os/exec"
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

// TestCompose: docker compose reads what was meant, of 200 random jobs.
func TestCompose(t *testing.T) {
	gate.Need(t, "compose")
	random := rand.New(rand.NewPCG(15, 16))
	for written := 0; written < 200; {
		w := works.Random(random)
		if written == 0 {
			w = works.Named(random, "./run")
			w.Spec.Command = append([]string{"./run"}, works.Hostile()...)
		}
		out, err := handoff.Write(handoff.Compose, w, works.Site())
		var refusal *job.Refusal
		if errors.As(err, &refusal) {
			continue
		}
		written++
		cmd := exec.Command("docker", "compose", "-f", "-", "config", "--format", "json")
		cmd.Stdin, cmd.Dir = strings.NewReader(out.Text), t.TempDir()
		said, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, out.Text)
		}
		var p struct {
			Name     string
			Services map[string]service
		}
		if err := json.Unmarshal(said, &p); err != nil || p.Name != out.Name || len(p.Services) != 1 {
			t.Fatalf("%v\n%s", err, said)
		}
		for _, s := range p.Services {
			checkService(t, &w, &s)
		}
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

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/test/kubectl"
)

// clusterRecordings are the recordings of kubectl.
const clusterRecordings = "../../internal/host/kube/testdata"

// recordedClusterEnv is the environment in which kubectl answers from a recording.
func recordedClusterEnv(t testing.TB, recording string) (env []string, calls string) {
	t.Helper()
	dir, env := kubectl.InstallPlayer(t, filepath.Join(clusterRecordings, recording))
	return append(env, "PATH="+dir+":"+os.Getenv("PATH")), dir
}

// TestDoctorKubernetes: one screen with the nodes, their free GPUs and the verdict; the same as JSON.
func TestDoctorKubernetes(t *testing.T) {
	t.Parallel()
	env, _ := recordedClusterEnv(t, "survey.jsonl")
	got := runCommand(t, gpuardCommand(t, stateFolder(t), env, "doctor", "--engine", "kubernetes"))
	for _, want := range []string{"jobs get GPUs from this cluster: 5 of 8 GPUs are free", "claims     3     2  dra     NVIDIA GB10, NVIDIA H100 80GB HBM3, NVIDIA L4", "large      4     2  plugin  NVIDIA-A100-SXM4-80GB", "small      1     1  plugin  Tesla-T4"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("%q is not in\n%s%s", want, got.out, got.err)
		}
	}
	if lines := strings.Count(got.out, "\n"); lines > 24 || got.code != 0 {
		t.Errorf("exit code %d, %d lines:\n%s", got.code, lines, got.out)
	}
	got = runCommand(t, gpuardCommand(t, stateFolder(t), env, "doctor", "--engine", "kubernetes", "--json"))
	var answer struct {
		Schema, Engine, Context, Namespace string
		Runs                               *bool
		Nodes                              []struct {
			Node, By    string
			GPUs, Taken int
		}
		Findings []struct{ Code string }
	}
	if err := json.Unmarshal([]byte(got.out), &answer); err != nil || answer.Schema != "gpuard.doctor/1" || answer.Context != "lab" || answer.Namespace != "team" || answer.Runs == nil || !*answer.Runs || len(answer.Nodes) != 3 || len(answer.Findings) < 6 {
		t.Errorf("%v in %s", err, got.out)
	}
}

// TestDoctorKubernetesMistakes: no kubectl, no cluster, and flags that do not fit are said, with what to do.
func TestDoctorKubernetesMistakes(t *testing.T) {
	t.Parallel()
	env, _ := recordedClusterEnv(t, "silent.jsonl")
	got := runCommand(t, gpuardCommand(t, stateFolder(t), env, "doctor", "--engine", "kubernetes"))
	if want := "the cluster does not answer (the context lab): The connection to the server 127.0.0.1:6443 was refused"; got.code != 1 || !strings.Contains(got.out, want) || !strings.Contains(got.out, "Next: kubectl cluster-info") {
		t.Errorf("exit code %d, without %q:\n%s%s", got.code, want, got.out, got.err)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{`cannot read --engine "nomad": write slurm or kubernetes`, []string{"--engine", "nomad"}},
		{"cannot use --engine with --run", []string{"--engine", "kubernetes", "--run"}},
		{"cannot use --context or --namespace without --engine kubernetes", []string{"--context", "lab"}},
	} {
		got := runCommand(t, gpuardCommand(t, stateFolder(t), env, append([]string{"doctor"}, c.args...)...))
		if got.code != 2 || !strings.Contains(got.err, c.want) {
			t.Errorf("%q: exit code %d, %s", c.args, got.code, got.err)
		}
	}
	got = runCommand(t, gpuardCommand(t, stateFolder(t), []string{"PATH=" + t.TempDir()}, "doctor", "--engine", "kubernetes"))
	if got.code != 1 || !strings.Contains(got.err, "there is no kubectl in PATH; install it") {
		t.Errorf("without kubectl: exit code %d, %s", got.code, got.err)
	}
}

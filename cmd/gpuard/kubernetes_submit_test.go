package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/app/userqueue"
	"gpuard/test/kubectl"
)

// kubernetesFixture calls the program with a cluster that answers from a recording.
type kubernetesFixture struct {
	t     *testing.T
	state string
	env   []string
	calls string
}

func newKubernetesFixture(t *testing.T, recording string) *kubernetesFixture {
	t.Helper()
	env, calls := recordedClusterEnv(t, recording)
	return &kubernetesFixture{t, stateFolder(t), env, calls}
}

func (k *kubernetesFixture) runGPUard(args ...string) runResult {
	k.t.Helper()
	return runCommand(k.t, gpuardCommand(k.t, k.state, k.env, args...))
}

// listJobs are those of queue or history.
func (k *kubernetesFixture) listJobs(list string) (jobs []userqueue.Entry, troubles []userqueue.Trouble) {
	k.t.Helper()
	got := k.runGPUard(list, "--json")
	var a struct {
		Jobs    []userqueue.Entry
		Engines []userqueue.Trouble
	}
	if err := json.Unmarshal([]byte(got.out), &a); err != nil {
		k.t.Fatalf("%v: %+v", err, got)
	}
	return a.Jobs, a.Engines
}

// TestSubmitKubernetes: a job is handed in with a claim, because the cluster has the driver; it waits with the reason, runs,
// and ends: wait ends with its exit code, and logs shows what it printed. The dry run makes nothing.
func TestSubmitKubernetes(t *testing.T) {
	t.Parallel()
	k := newKubernetesFixture(t, "submit.jsonl")
	submit := []string{"submit", "--engine", "kubernetes", "--image", "train:1", "--gpus", "3", "--note", "of ada"}
	got := k.runGPUard(append(append(submit, "--dry-run"), "--", "python", "train.py")...)
	if got.code != 0 || !strings.Contains(got.out, "Kubernetes would take it: the cluster accepts it") || !strings.Contains(got.err, "it claims devices (kubernetes-dra): the cluster has the device class gpu.nvidia.com") {
		t.Fatalf("dry run: %+v", got)
	}
	words, _ := kubectl.ReadCalls(t, k.calls)
	for _, call := range words {
		if strings.Contains(call, "create") && !strings.Contains(call, "--dry-run=server") {
			t.Errorf("the dry run called kubectl %s", call)
		}
	}
	got = k.runGPUard(append(submit, "--", "python", "train.py")...)
	if got.code != 0 || !strings.HasPrefix(got.out, "job 1 is handed to Kubernetes (python-") {
		t.Fatalf("submit: %+v", got)
	}
	jobs, _ := k.listJobs("queue")
	if len(jobs) != 1 || jobs[0].State != userqueue.Waiting || jobs[0].Engine != "kubernetes" || jobs[0].Place != "lab/team" || !strings.HasPrefix(jobs[0].Why, "no node can take it now: 3 of 3 have no free devices as its claim wants them") {
		t.Errorf("queue: %+v", jobs)
	}
	got = k.runGPUard("wait", "1")
	if got.code != 3 {
		t.Errorf("wait ended with %d: %s", got.code, got.err)
	}
	if jobs, _ = k.listJobs("history"); len(jobs) != 1 || jobs[0].State != userqueue.Failed || jobs[0].Exit == nil || *jobs[0].Exit != 3 || jobs[0].Node != "claims" || jobs[0].Seconds < 4 || jobs[0].Seconds > 6 {
		t.Errorf("history: %+v", jobs)
	}
	for range 2 { // the second time it is copied again, and shown once
		if got = k.runGPUard("logs", "1"); got.out != "epoch 1\nepoch 2\n" || got.code != 0 {
			t.Errorf("logs: %+v", got)
		}
	}
	if got = k.runGPUard("logs", "-f", "1"); got.out != "epoch 1\nepoch 2\n" || got.code != 0 {
		t.Errorf("logs -f: %+v", got)
	}
	words, in := kubectl.ReadCalls(t, k.calls)
	for i, call := range words {
		if strings.HasPrefix(call, "--context=lab create") && (!strings.Contains(in[i], "kind: ResourceClaimTemplate") || !strings.Contains(in[i], "count: 3") || strings.Contains(in[i], "VISIBLE")) {
			t.Errorf("the manifest is\n%s", in[i])
		}
	}
}

// TestSubmitKubernetesCancel: what waits for quota says so, and cancel deletes it.
func TestSubmitKubernetesCancel(t *testing.T) {
	t.Parallel()
	k := newKubernetesFixture(t, "cancel.jsonl")
	if got := k.runGPUard("submit", "-q", "--engine", "kubernetes-plugin", "--image", "train:1", "--gpus", "3", "--", "train"); got.code != 0 || got.out != "1\n" {
		t.Fatalf("submit: %+v", got)
	}
	if got := k.runGPUard("queue"); !strings.Contains(got.out, "the quota gpus of the namespace gives 4 GPUs, 2 are used, and it asks for 3") {
		t.Errorf("queue:\n%s%s", got.out, got.err)
	}
	if got := k.runGPUard("cancel", "1"); got.code != 0 {
		t.Fatalf("cancel: %+v", got)
	}
	if words, _ := kubectl.ReadCalls(t, k.calls); !strings.Contains(words[len(words)-1], "delete --ignore-not-found --cascade=foreground") {
		t.Errorf("the last call is %s", words[len(words)-1])
	}
	if jobs, _ := k.listJobs("history"); len(jobs) != 1 || jobs[0].State != userqueue.Cancelled {
		t.Errorf("history: %+v", jobs)
	}
	if got := k.runGPUard("wait", "1"); got.code != 1 {
		t.Errorf("wait: %+v", got)
	}
}

// TestSubmitKubernetesRefused: where the Job cannot be made, the template that was made before it is deleted, and there is
// no job; what a cluster cannot be told is refused before it is asked.
func TestSubmitKubernetesRefused(t *testing.T) {
	t.Parallel()
	k := newKubernetesFixture(t, "refused.jsonl")
	got := k.runGPUard("submit", "--engine", "kubernetes", "--image", "train:1", "--", "train")
	if got.code != 125 || !strings.Contains(got.err, `User "ada" cannot create resource "jobs"`) || !strings.Contains(got.err, "gpuard doctor --engine kubernetes") {
		t.Errorf("submit: %+v", got)
	}
	if words, _ := kubectl.ReadCalls(t, k.calls); !strings.Contains(words[len(words)-1], "delete") {
		t.Errorf("the last call is %s", words[len(words)-1])
	}
	if jobs, _ := k.listJobs("queue"); len(jobs) != 0 {
		t.Errorf("queue: %+v", jobs)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"a container needs an image", nil},
		{"--share", []string{"--image", "train:1", "--share", "8G"}},
	} {
		got := k.runGPUard(append(append([]string{"submit", "--engine", "kubernetes"}, c.args...), "--", "train")...)
		if got.code != 122 || !strings.Contains(got.err, c.want) {
			t.Errorf("%q: %+v", c.args, got)
		}
	}
}

// TestSubmitKubernetesSilent: a cluster that no longer answers is said, and hides no job of this machine.
func TestSubmitKubernetesSilent(t *testing.T) {
	t.Parallel()
	k := newKubernetesFixture(t, "lost.jsonl")
	if got := k.runGPUard("submit", "--engine", "kubernetes-plugin", "--image", "train:1", "--", "train"); got.code != 0 {
		t.Fatalf("submit: %+v", got)
	}
	if got := k.runGPUard("submit", "--machine", "demo", "--hold", "--", "true"); got.code != 0 {
		t.Fatalf("submit here: %+v", got)
	}
	jobs, troubles := k.listJobs("queue")
	if len(jobs) != 2 || jobs[0].State != userqueue.Waiting || len(troubles) != 1 || troubles[0].Engine != "kubernetes" || !strings.Contains(troubles[0].Problem, "lab/team: The connection to the server 127.0.0.1:6443 was refused") {
		t.Errorf("queue: %+v, %+v", jobs, troubles)
	}
	if got := k.runGPUard("cancel", "2"); got.code != 0 {
		t.Errorf("cancel of the job of this machine: %+v", got)
	}
	if got := k.runGPUard("cancel", "1"); got.code == 0 || !strings.Contains(got.err, "was refused") {
		t.Errorf("cancel: %+v", got)
	}
	if err := os.Remove(filepath.Join(k.calls, "kubectl")); err != nil {
		t.Fatal(err)
	}
	k.env = append(k.env, "PATH="+k.calls)
	if got := k.runGPUard("queue"); got.code != 0 || !strings.Contains(got.out, "cannot ask Kubernetes: there is no") {
		t.Errorf("queue without kubectl: %+v", got)
	}
}

// TestSubmitKubernetesUnsure: a job whose hand-in got no answer is looked for by its mark, and found.
func TestSubmitKubernetesUnsure(t *testing.T) {
	t.Parallel()
	k := newKubernetesFixture(t, "unsure.jsonl")
	got := k.runGPUard("submit", "--engine", "kubernetes-plugin", "--image", "train:1", "--", "train")
	if got.code != 125 || !strings.Contains(got.err, "cannot say whether job 1 was handed to Kubernetes") {
		t.Errorf("submit: %+v", got)
	}
	for range 2 { // the second time by its name
		var jobs []userqueue.Entry
		var troubles []userqueue.Trouble
		waitUntil(t, "the cluster has answered in time", func() bool { // queue waits for it a few seconds, and then says so
			jobs, troubles = k.listJobs("queue")
			return len(troubles) == 0
		})
		if len(jobs) != 1 || jobs[0].State != userqueue.Running || !strings.HasPrefix(jobs[0].ID, "train-") || jobs[0].Place != "lab/team" || jobs[0].Node != "gpu-b" {
			t.Errorf("queue: %+v", jobs)
		}
	}
}

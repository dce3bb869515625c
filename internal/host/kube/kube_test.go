package kube

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/kubernetes"
	"gpuard/test/executable"
	"gpuard/test/kubectl"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "kubectl" {
		kubectl.Main()
	}
	os.Exit(m.Run())
}

// recorded is a cluster that answers as in testdata.
func recorded(t *testing.T, file string) (*Cluster, string) {
	t.Helper()
	dir, env := kubectl.InstallPlayer(t, filepath.Join("testdata", file))
	t.Setenv("PATH", dir)
	c, err := FindKubectl(append(os.Environ(), env...), "", "")
	if err != nil {
		t.Fatal(err)
	}
	return c, dir
}

const manifest = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: train-1\n"

// TestJob follows a job through a recording: made with the template of its claim, pending, running, over, deleted.
func TestJob(t *testing.T) {
	c, dir := recorded(t, "job.jsonl")
	ctx := t.Context()
	if err := c.DryRun(ctx, []byte(manifest)); err != nil {
		t.Fatal(err)
	}
	made, err := c.Create(ctx, []byte(manifest))
	if err != nil || len(made) != 2 || made[0].Kind != "resourceclaimtemplate.resource.k8s.io" || made[1].Kind != "job.batch" || made[1].Meta.Name != "train-1" || made[1].Meta.UID == "" {
		t.Fatalf("made %+v, %v", made, err)
	}
	if err := c.Own(ctx, made[1], made[0]); err != nil {
		t.Fatal(err)
	}
	var phases []string
	for range 3 {
		jobs, err := c.Jobs(ctx, ManagedSelector([]string{"train-1"}))
		if err != nil || len(jobs) != 1 {
			t.Fatalf("%d jobs, %v", len(jobs), err)
		}
		pods, err := c.ListJobPods(ctx, ManagedSelector([]string{"train-1"}))
		if err != nil {
			t.Fatal(err)
		}
		events, err := c.ListJobEvents(ctx)
		if err != nil {
			t.Fatal(err)
		}
		p := kubernetes.JobProgress(&jobs[0], pods, events, nil)
		phases = append(phases, string(p.Phase))
		if p.Phase.Over() && (p.Exit == nil || *p.Exit != 3 || p.Node != "gpu-b") {
			t.Errorf("it ended with %v on %q", p.Exit, p.Node)
		}
	}
	if got := strings.Join(phases, " "); got != "waiting running failed" {
		t.Errorf("phases %s", got)
	}
	var log bytes.Buffer
	if err := c.CopyLogs(ctx, &log, "train-1-abcde", true); err != nil || log.String() != "epoch 1\n" {
		t.Errorf("log %q, %v", log.String(), err)
	}
	if err := c.Delete(ctx, "job.batch/train-1", "resourceclaimtemplate.resource.k8s.io/train-1"); err != nil {
		t.Error(err)
	}
	if jobs, err := c.Jobs(ctx, ManagedSelector([]string{"train-1"})); err != nil || len(jobs) != 0 {
		t.Errorf("the job is deleted and found: %v, %v", jobs, err)
	}
	if _, in := kubectl.ReadCalls(t, dir); in[0] != manifest || in[1] != manifest {
		t.Errorf("the manifest did not arrive as it is: %q", in[:2])
	}
}

// TestSurvey reads what doctor needs.
func TestSurvey(t *testing.T) {
	c, _ := recorded(t, "survey.jsonl")
	ctx := t.Context()
	var k kubernetes.Cluster
	var errs [8]error
	k.Context, k.Namespace, errs[0] = c.CurrentContext(ctx)
	k.Serves.Found, errs[1] = c.Serves(ctx)
	k.Nodes.Found, errs[2] = c.Nodes(ctx)
	k.Pods.Found, errs[3] = c.ListPods(ctx)
	k.Classes.Found, errs[4] = c.ListDeviceClasses(ctx)
	k.Slices.Found, errs[5] = c.ListSlices(ctx)
	k.Claims.Found, errs[6] = c.ListClaims(ctx)
	k.Quotas.Found, errs[7] = c.ListQuotas(ctx)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	if k.Context != "lab" || k.Namespace != "team" {
		t.Errorf("context %q, namespace %q", k.Context, k.Namespace)
	}
	if dra, why := k.ChooseForm(); !dra {
		t.Errorf("no claims, because %s", why)
	}
	hosts := k.Hosts()
	if len(hosts) != 3 || !hosts[0].DRA || hosts[0].All != 3 || *hosts[0].Taken != 1 || hosts[1].All != 4 || *hosts[1].Taken != 2 || hosts[2].All != 1 || *hosts[2].Taken != 0 {
		t.Errorf("hosts %+v", hosts)
	}
	if limits := k.Limits(); len(limits) != 1 || limits[0].Hard != 4 || limits[0].Used != 2 {
		t.Errorf("limits %+v", limits)
	}
	for resource, want := range map[string]bool{"jobs.batch": true, "secrets": false} {
		if can, err := c.CanDo(ctx, "create", resource); can != want || err != nil {
			t.Errorf("may create %s: %v, %v; want %v", resource, can, err, want)
		}
	}
}

// TestContext: what was chosen goes to kubectl, before anything else.
func TestContext(t *testing.T) {
	c, dir := recorded(t, "survey.jsonl")
	c.Context, c.Namespace = "lab", "team"
	_ = c.SetSuspended(t.Context(), "x", true) // not in the recording
	words, _ := kubectl.ReadCalls(t, dir)
	if want := "--context=lab --namespace=team patch job.batch x --type=merge --output=name --patch={\"spec\":{\"suspend\":true}} --request-timeout=20s"; len(words) != 1 || words[0] != want {
		t.Errorf("called %q, want %q", words, want)
	}
}

// script is a cluster whose kubectl is a shell script.
func script(t *testing.T, text string) *Cluster {
	t.Helper()
	dir := t.TempDir()
	executable.Write(t, filepath.Join(dir, "kubectl"), []byte("#!/bin/sh\n"+text+"\n"))
	return &Cluster{Path: filepath.Join(dir, "kubectl"), Env: os.Environ()}
}

// TestFailures: what kubectl says decides what follows. The texts are those of kubectl 1.36.
func TestFailures(t *testing.T) {
	for _, c := range []struct {
		said, text string
		kind       ErrorKind
	}{
		{`Error from server (NotFound): jobs.batch "x" not found`, `jobs.batch "x" not found`, NotFound},
		{`Error from server (Forbidden): nodes is forbidden: User "a" cannot list resource "nodes"`, `nodes is forbidden: User "a" cannot list resource "nodes"`, Forbidden},
		{`error: context "nowhere" does not exist`, `context "nowhere" does not exist`, Refused},
		{`Error from server (BadRequest): error when creating "STDIN": Job in version "v1" cannot be handled as a Job: strict decoding error: unknown field "spec.gpus"`, `error when creating "STDIN": Job in version "v1" cannot be handled as a Job: strict decoding error: unknown field "spec.gpus"`, Refused},
		{`The connection to the server localhost:8080 was refused - did you specify the right host or port?`, `The connection to the server localhost:8080 was refused - did you specify the right host or port?`, Silent},
		{"E1124 memcache.go:265] \"Unhandled Error\" err=\"couldn't get current server API group list\"\nUnable to connect to the server: dial tcp: lookup a on b: no such host", `Unable to connect to the server: dial tcp: lookup a on b: no such host`, Silent},
		{`Error from server (InternalError): an error on the server`, `an error on the server`, Silent},
		{"Warning: v1 is old\nerror: You must be logged in to the server (Unauthorized)", "You must be logged in to the server (Unauthorized)", Refused},
	} {
		_, err := script(t, "cat >&2 <<'END'\n"+c.said+"\nEND\nexit 1").Nodes(t.Context())
		if err == nil || err.Error() != c.text || !IsKind(err, c.kind) {
			t.Errorf("%q: %v; want kind %d, %q", c.said, err, c.kind, c.text)
		}
	}
	if _, err := script(t, "exit 7").Nodes(t.Context()); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("an end without words: %v", err)
	}
	if _, err := script(t, "echo '{'").Nodes(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot read what kubectl printed") {
		t.Errorf("half an answer: %v", err)
	}
}

// TestLate: an answer that does not come ends the wait, also where a child of kubectl still has its output; so does the caller.
func TestLate(t *testing.T) {
	c := script(t, "sleep 5 & wait")
	c.Patience = 200 * time.Millisecond
	began := time.Now()
	if _, err := c.Nodes(t.Context()); !IsKind(err, Silent) || time.Since(began) > 4*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := c.CopyLogs(ctx, &bytes.Buffer{}, "x", true); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the caller's end: %v", err)
	}
}

func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := FindKubectl(nil, "", ""); err == nil || !strings.Contains(err.Error(), "no kubectl in PATH") {
		t.Errorf("%v", err)
	}
}

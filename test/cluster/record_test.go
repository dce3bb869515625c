package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Variables of the kubectl that records.
const (
	recordToVariable    = "GPUARD_RECORD_TO"   // file that gets a line for each call
	realKubectlVariable = "GPUARD_RECORD_REAL" // path of the real kubectl
)

// TestMain makes this binary the kubectl that records. On its own the folder has nothing to test.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "kubectl" {
		os.Exit(recordCall(os.Args[1:]))
	}
	if os.Getenv(programsVariable) == "" {
		fmt.Println("these tests need kube-apiserver and its like: make check-kubernetes")
	}
	os.Exit(m.Run())
}

// jobNamePattern finds the name of the Job in a manifest.
var jobNamePattern = regexp.MustCompile(`(?s)kind: Job\n.*?name: ([a-z0-9-]+)`)

// recordCall is kubectl, and adds the call to a recording in the form that test/kubectl plays; {job} is the name of the job
// that was made last.
func recordCall(args []string) int {
	var in []byte
	if slices.Contains(args, "--filename=-") {
		in, _ = io.ReadAll(os.Stdin)
	}
	cmd := exec.Command(os.Getenv(realKubectlVariable), args...)
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), io.MultiWriter(os.Stdout, &out), io.MultiWriter(os.Stderr, &said)
	_ = cmd.Run()
	file := os.Getenv(recordToVariable)
	name, _ := os.ReadFile(file + ".job")
	if m := jobNamePattern.FindSubmatch(in); m != nil {
		name = m[1]
		_ = os.WriteFile(file+".job", name, 0o600)
	}
	call := struct {
		Args []string `json:"args"`
		Out  string   `json:"out,omitempty"`
		Err  string   `json:"err,omitempty"`
		Exit int      `json:"exit,omitempty"`
	}{args, out.String(), said.String(), cmd.ProcessState.ExitCode()}
	if small := (bytes.Buffer{}); json.Compact(&small, out.Bytes()) == nil {
		call.Out = small.String() // the same object on one line
	}
	var line bytes.Buffer
	text := json.NewEncoder(&line)
	text.SetEscapeHTML(false)
	_ = text.Encode(call)
	entry := line.String()
	if len(name) > 0 {
		entry = strings.ReplaceAll(entry, string(name), "{job}")
	}
	to, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err == nil {
		_, err = to.WriteString(entry)
		err = errors.Join(err, to.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot record:", err)
		return 99
	}
	return cmd.ProcessState.ExitCode()
}

// recordingCaller has ada's calls of gpuard recorded in a file.
func (c *testCluster) recordingCaller(t *testing.T, dir, file string) func(args ...string) runResult {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin, to := t.TempDir(), filepath.Join(dir, file)
	_ = os.Remove(to)
	if err := os.Symlink(self, filepath.Join(bin, "kubectl")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(to + ".job") })
	t.Setenv(recordToVariable, to)
	t.Setenv(realKubectlVariable, filepath.Join(c.bin, "kubectl"))
	own := *c
	own.bin, own.state = bin, filepath.Join(t.TempDir(), "state") // whose first job it is
	return func(args ...string) runResult { return own.runGPUard(t, "ada", args...) }
}

// TestRecord makes the recordings that the tests of every run play.
func TestRecord(t *testing.T) {
	dir := os.Getenv("GPUARD_RECORD")
	if dir == "" {
		t.Skip("GPUARD_RECORD names no folder for recordings")
	}
	c := startTestCluster(t)
	c.publishDevices(t)
	c.createObjects(t, "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: gpus, namespace: team}\nspec: {hard: {requests.nvidia.com/gpu: 4}}\n")
	two := c.submitJob(t, "kubernetes-plugin", "--image", "train:1", "--gpus", "2", "--", "sleep", "300")
	c.waitForState(t, two, "running", "")
	claimed := c.waitForState(t, c.submitJob(t, "kubernetes-dra", "--image", "train:1", "--", "sleep", "300"), "running", "")
	t.Run("survey", func(t *testing.T) {
		call := c.recordingCaller(t, dir, "survey.jsonl")
		c.waitUntil(t, 30*time.Second, "the quota counts", func() error {
			if got := c.runGPUard(t, "ada", "doctor", "--engine", "kubernetes", "--all"); !strings.Contains(got.out, "gives 4 GPUs of the device plugin: 2 are used") {
				return errors.New(got.out)
			}
			return nil
		})
		if got := call("doctor", "--engine", "kubernetes"); got.code != 0 {
			t.Errorf("%+v", got)
		}
		os.Args[0] = "kubectl" // a question that only a test asks
		t.Setenv("KUBECONFIG", c.pathOf("ada.conf"))
		if code := recordCall([]string{"auth", "can-i", "create", "secrets", "--request-timeout=20s"}); code != 1 {
			t.Errorf("ada may create secrets: %d", code)
		}
	})
	t.Run("cancel", func(t *testing.T) {
		call := c.recordingCaller(t, dir, "cancel.jsonl")
		got := call("submit", "-q", "--engine", "kubernetes-plugin", "--image", "train:1", "--gpus", "3", "--", "train")
		n := strings.TrimSpace(got.out)
		time.Sleep(3 * time.Second) // until the controller has tried to make its pod
		if got := call("queue"); !strings.Contains(got.out, "gives 4 GPUs, 2 are used, and it asks for 3") {
			t.Errorf("queue: %+v", got)
		}
		if got := call("cancel", n); got.code != 0 {
			t.Errorf("cancel: %+v", got)
		}
	})
	t.Run("submit", func(t *testing.T) {
		call := c.recordingCaller(t, dir, "submit.jsonl")
		submit := []string{"submit", "-q", "--engine", "kubernetes", "--image", "train:1", "--gpus", "3", "--note", "of ada"}
		words := []string{"--", "python3", "-c", "import sys, time; print('epoch 1', flush=True); time.sleep(4); print('epoch 2'); sys.exit(3)"}
		if got := call(append(append(submit, "--dry-run"), words...)...); got.code != 0 {
			t.Fatalf("dry run: %+v", got)
		}
		n := strings.TrimSpace(call(append(submit, words...)...).out)
		time.Sleep(2 * time.Second) // until the scheduler has looked at it
		if got := call("queue"); !strings.Contains(got.out, "no node can take it now") {
			t.Errorf("queue: %+v", got)
		}
		c.cancelJob(t, claimed)
		if got := call("wait", n); got.code != 3 {
			t.Errorf("wait: %+v", got)
		}
		for range 2 {
			if got := call("logs", n); got.out != "epoch 1\nepoch 2\n" {
				t.Errorf("logs: %+v", got)
			}
		}
		if got := call("logs", "-f", n); got.code != 0 {
			t.Errorf("logs -f: %+v", got)
		}
	})
}

package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// queuedJob is a job as gpuard queue and gpuard history show it.
type queuedJob struct {
	Job                    int
	State, Why, Node, Name string
	ID                     string `json:"engine_job"`
	Exit                   *int
}

// listJobs are those of ada that go on, or that have ended.
func (c *testCluster) listJobs(t *testing.T, list string) map[int]queuedJob {
	t.Helper()
	got := c.runGPUard(t, "ada", list, "--json")
	var a struct {
		Jobs    []queuedJob
		Engines []struct{ Problem string }
	}
	if err := json.Unmarshal([]byte(got.out), &a); err != nil || len(a.Engines) > 0 {
		t.Fatalf("%s: %v: %+v", list, err, got)
	}
	all := map[int]queuedJob{}
	for _, j := range a.Jobs {
		all[j.Job] = j
	}
	return all
}

// submitJob hands a job in for ada, and returns its number.
func (c *testCluster) submitJob(t *testing.T, args ...string) (number int) {
	t.Helper()
	got := c.runGPUard(t, "ada", append([]string{"submit", "-q", "--engine"}, args...)...)
	if _, err := fmt.Sscan(got.out, &number); err != nil || got.code != 0 {
		t.Fatalf("submit %q: %+v", args, got)
	}
	return number
}

// waitForState waits until a job is in a state, with a text in its reason.
func (c *testCluster) waitForState(t *testing.T, number int, state, why string) (j queuedJob) {
	t.Helper()
	c.waitUntil(t, 60*time.Second, fmt.Sprintf("job %d is %s because of %q", number, state, why), func() error {
		var there bool
		if j, there = c.listJobs(t, "queue")[number]; !there {
			j = c.listJobs(t, "history")[number]
		}
		if j.State != state || !strings.Contains(j.Why, why) {
			return fmt.Errorf("it is %q: %s", j.State, j.Why)
		}
		return nil
	})
	return j
}

// cancelJob ends a job, after which nothing of it may be left.
func (c *testCluster) cancelJob(t *testing.T, j queuedJob) {
	t.Helper()
	if got := c.runGPUard(t, "ada", "cancel", fmt.Sprint(j.Job)); got.code != 0 {
		t.Fatalf("cancel: %+v", got)
	}
	c.checkNothingLeft(t, "app.kubernetes.io/instance="+j.ID)
	if now := c.listJobs(t, "history")[j.Job]; now.State != "cancelled" {
		t.Errorf("job %d is %q", j.Job, now.State)
	}
}

// checkNothingLeft asserts that no object of a selector is there, and no claim that was made of a template.
func (c *testCluster) checkNothingLeft(t *testing.T, selector string) {
	t.Helper()
	out, err := c.runKubectl("", "get", "jobs,pods,resourceclaimtemplates,secrets,configmaps", "--namespace=team", "--selector="+selector, "--output=name")
	if err != nil || strings.Contains(out, "/") {
		t.Errorf("left: %s, %v", out, err)
	}
}

// TestSubmit: jobs of a user on a cluster with the device plugin, from handing in to the end.
func TestSubmit(t *testing.T) {
	c := startTestCluster(t)
	t.Run("ends with 3", func(t *testing.T) {
		got := c.runGPUard(t, "ada", "submit", "--engine", "kubernetes", "--image", "train:1", "--gpus", "2", "--dry-run", "--", "true")
		if got.code != 0 || !strings.Contains(got.err, "it asks the device plugin (kubernetes-plugin): nodes offer nvidia.com/gpu, and there is no device class gpu.nvidia.com") {
			t.Errorf("dry run: %+v", got)
		}
		c.checkNothingLeft(t, "app.kubernetes.io/managed-by=gpuard")
		n := c.submitJob(t, "kubernetes", "--image", "train:1", "--gpus", "2", "--", "sh", "-c", "echo begin; sleep 1; echo 'to the end' >&2; exit 3")
		if got := c.runGPUard(t, "ada", "logs", "-f", fmt.Sprint(n)); got.code != 0 || got.out != "begin\nto the end\n" {
			t.Errorf("logs -f: %+v", got)
		}
		if got := c.runGPUard(t, "ada", "wait", fmt.Sprint(n)); got.code != 3 {
			t.Errorf("wait: %+v", got)
		}
		if j := c.listJobs(t, "history")[n]; j.State != "failed" || j.Exit == nil || *j.Exit != 3 || j.Node != "large" {
			t.Errorf("history: %+v", j)
		}
		if got := c.runGPUard(t, "ada", "logs", fmt.Sprint(n)); got.out != "begin\nto the end\n" {
			t.Errorf("logs: %+v", got)
		}
	})
	t.Run("time limit", func(t *testing.T) {
		n := c.submitJob(t, "kubernetes", "--image", "train:1", "--timeout", "2s", "--", "sleep", "60")
		if got := c.runGPUard(t, "ada", "wait", fmt.Sprint(n)); got.code != 124 {
			t.Errorf("wait: %+v", got)
		}
		c.waitForState(t, n, "failed", "it was ended by its limit of time")
	})
	t.Run("more than any node has", func(t *testing.T) {
		n := c.submitJob(t, "kubernetes", "--image", "train:1", "--gpus", "8", "--", "true")
		c.cancelJob(t, c.waitForState(t, n, "waiting", "no node has 8 GPUs: the largest, large, has 4; cancel it, and ask for at most 4"))
	})
	t.Run("no GPU is free", func(t *testing.T) {
		first := c.submitJob(t, "kubernetes", "--image", "train:1", "--gpus", "3", "--", "sleep", "300")
		j := c.waitForState(t, first, "running", "")
		second := c.submitJob(t, "kubernetes", "--image", "train:1", "--gpus", "3", "--", "sleep", "300")
		c.waitForState(t, second, "waiting", "too few GPUs free")
		time.AfterFunc(3*time.Second, func() { _, _ = c.runKubectl("", "delete", "job", j.ID, "--namespace=team", "--wait=false") })
		if got := c.runGPUard(t, "ada", "wait", "--any", fmt.Sprint(first), fmt.Sprint(second)); !strings.Contains(got.err, fmt.Sprintf("job %d waits: no node can take it now", second)) {
			t.Errorf("wait does not say why: %+v", got)
		}
		c.waitForState(t, second, "running", "")
		if got := c.runGPUard(t, "ada", "doctor", "--engine", "kubernetes"); !strings.Contains(got.out, "2 of 5 GPUs are free") {
			t.Errorf("doctor: %s", got.out)
		}
		c.cancelJob(t, c.waitForState(t, second, "running", ""))
	})
	t.Run("labels", func(t *testing.T) {
		n := c.submitJob(t, "kubernetes", "--image", "train:1", "--model", "NVIDIA H100 80GB HBM3", "--", "true")
		c.cancelJob(t, c.waitForState(t, n, "waiting", "not the labels of the model and memory that it asks for; check --model and --mem"))
	})
	t.Run("image", func(t *testing.T) {
		n := c.submitJob(t, "kubernetes", "--image", "missing/train:1", "--", "true")
		c.cancelJob(t, c.waitForState(t, n, "waiting", "cannot get the image missing/train:1: pull access denied"))
	})
	t.Run("held", func(t *testing.T) {
		n := c.submitJob(t, "kubernetes", "--image", "train:1", "--hold", "--", "true")
		c.waitForState(t, n, "held", "it is suspended")
		if got := c.runGPUard(t, "ada", "queue", "unhold", fmt.Sprint(n)); got.code != 0 {
			t.Errorf("unhold: %+v", got)
		}
		c.waitForState(t, n, "done", "")
	})
	t.Run("Kueue", func(t *testing.T) { // is played: it suspends the Jobs that name a queue
		n := c.submitJob(t, "kubernetes", "--image", "train:1", "--queue", "team-a", "--", "sleep", "300")
		j := c.waitForState(t, n, "running", "")
		if _, err := c.runKubectl("", "patch", "job", j.ID, "--namespace=team", "--type=merge", `--patch={"spec":{"suspend":true}}`); err != nil {
			t.Fatal(err)
		}
		c.waitForState(t, n, "waiting", "Kueue keeps it in the queue team-a until there is quota")
		if got := c.runGPUard(t, "ada", "queue", "unhold", fmt.Sprint(n)); got.code == 0 || !strings.Contains(got.err, "only Kueue decides when it starts") {
			t.Errorf("unhold: %+v", got)
		}
		c.cancelJob(t, j)
	})
	t.Run("array", func(t *testing.T) {
		n := c.submitJob(t, "kubernetes", "--image", "train:1", "--cpu", "--array", "0-2", "--", "sh", "-c", "echo task $GPUARD_ARRAY_TASK; exit $GPUARD_ARRAY_TASK")
		for task, state := range []string{"done", "failed", "failed"} {
			if j := c.waitForState(t, n+task, state, ""); j.Exit == nil || *j.Exit != task {
				t.Errorf("task %d: %+v", task, j)
			}
			if got := c.runGPUard(t, "ada", "logs", fmt.Sprint(n+task)); got.out != fmt.Sprintf("task %d\n", task) {
				t.Errorf("logs of task %d: %+v", task, got)
			}
		}
	})
	t.Run("array as a whole", func(t *testing.T) {
		n := c.submitJob(t, "kubernetes", "--image", "train:1", "--cpu", "--array", "0-1", "--", "sleep", "300")
		j := c.waitForState(t, n, "running", "")
		if got := c.runGPUard(t, "ada", "cancel", fmt.Sprint(n)); got.code != 2 || !strings.Contains(got.err, fmt.Sprintf("Kubernetes has the array as one object, and job %d is in it", n+1)) {
			t.Errorf("cancel of one: %+v", got)
		}
		if got := c.runGPUard(t, "ada", "cancel", fmt.Sprint(n), fmt.Sprint(n+1)); got.code != 0 {
			t.Errorf("cancel of all: %+v", got)
		}
		c.checkNothingLeft(t, "app.kubernetes.io/instance="+strings.TrimSuffix(j.ID, "_0"))
		c.waitForState(t, n+1, "cancelled", "")
	})
	t.Run("service", func(t *testing.T) { // the file of the services of one machine
		file := c.pathOf("gpuard.yaml")
		text, err := os.ReadFile("../same/gpuard.yaml")
		if err == nil {
			err = os.WriteFile(file, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		n := c.submitJob(t, "kubernetes", "-f", file, "train")
		if got := c.runGPUard(t, "ada", "queue"); got.code != 0 || !strings.Contains(got.out, "train") {
			t.Errorf("queue: %+v", got)
		}
		if got := c.runGPUard(t, "ada", "wait", fmt.Sprint(n)); got.code != 7 {
			t.Errorf("wait: %+v", got)
		}
		if got := c.runGPUard(t, "ada", "logs", fmt.Sprint(n)); got.out != "hello $(you) there\n" {
			t.Errorf("logs: %+v", got)
		}
	})
	t.Run("not allowed", func(t *testing.T) {
		got := c.runGPUard(t, "bob", "submit", "--engine", "kubernetes", "--image", "train:1", "--", "true")
		if got.code != 125 || !strings.Contains(got.err, `User "bob" cannot create resource "jobs"`) || !strings.Contains(got.err, "gpuard doctor --engine kubernetes") {
			t.Errorf("%+v", got)
		}
	})
	t.Run("deleted by somebody", func(t *testing.T) {
		n := c.submitJob(t, "kubernetes", "--image", "train:1", "--", "sleep", "300")
		j := c.waitForState(t, n, "running", "")
		if _, err := c.runKubectl("", "delete", "job", j.ID, "--namespace=team"); err != nil {
			t.Fatal(err)
		}
		c.waitForState(t, n, "unknown", "the cluster has no Job "+j.ID+" any more")
	})
	t.Run("quota", func(t *testing.T) {
		c.createObjects(t, "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: gpus, namespace: team}\nspec: {hard: {requests.nvidia.com/gpu: 1}}\n")
		c.waitUntil(t, 30*time.Second, "the quota counts", func() error {
			_, err := c.runKubectl("", "wait", "--for=jsonpath={.status.hard}", "--timeout=1s", "--namespace=team", "resourcequota/gpus")
			return err
		})
		n := c.submitJob(t, "kubernetes", "--image", "train:1", "--gpus", "2", "--", "true")
		c.cancelJob(t, c.waitForState(t, n, "waiting", "the quota gpus of the namespace gives 1 GPUs, 0 are used, and it asks for 2; ask for at most 1 GPUs"))
	})
	t.Run("does not answer", func(t *testing.T) {
		n := c.submitJob(t, "kubernetes", "--image", "train:1", "--", "sleep", "300")
		j := c.waitForState(t, n, "running", "")
		path := c.pathOf("ada.conf")
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(good), c.url, "https://"+freeAddress(t))), 0o600); err != nil {
			t.Fatal(err)
		}
		got := c.runGPUard(t, "ada", "queue")
		if got.code != 0 || !strings.Contains(got.out, "kubernetes does not answer") || !strings.Contains(got.out, "running") {
			t.Errorf("queue: %+v", got)
		}
		// Another current context moves no job.
		other := strings.Replace(strings.Replace(string(good), `"current-context":"lab"`, `"current-context":"other"`, 1), `"contexts":[`, `"contexts":[{"name":"other","context":{"cluster":"lab","user":"me","namespace":"default"}},`, 1)
		if err := os.WriteFile(path, []byte(other), 0o600); err != nil {
			t.Fatal(err)
		}
		c.cancelJob(t, j)
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	})
}

// TestClaims: with a driver for claims in the cluster the same words claim devices, one by one.
func TestClaims(t *testing.T) {
	c := startTestCluster(t)
	c.publishDevices(t)
	var n int
	c.waitUntil(t, 30*time.Second, "the scheduler knows the driver", func() error {
		got := c.runGPUard(t, "ada", "submit", "--engine", "kubernetes", "--image", "train:1", "--dry-run", "--", "true")
		if got.code != 0 || !strings.Contains(got.err, "it claims devices (kubernetes-dra): the cluster has the device class gpu.nvidia.com") {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	n = c.submitJob(t, "kubernetes", "--image", "train:1", "--model", "*H100*", "--mem", "70G", "--", "sleep", "300")
	j := c.waitForState(t, n, "running", "")
	if j.Node != "claims" {
		t.Errorf("it is on %s", j.Node)
	}
	claims := fmt.Sprint(c.readObject(t, "resourceclaims"))
	if !strings.Contains(claims, "device:gpu-1") {
		t.Errorf("it has not the H100: %s", claims)
	}
	owners := fmt.Sprint(c.readObject(t, "resourceclaimtemplate", j.ID)["metadata"])
	if !strings.Contains(owners, "kind:Job name:"+j.ID) {
		t.Errorf("the Job does not own the template of its claim: %s", owners)
	}
	second := c.submitJob(t, "kubernetes", "--image", "train:1", "--model", "*H100*", "--", "sh", "-c", "echo ran")
	c.waitForState(t, second, "waiting", "no free devices as its claim wants them")
	c.cancelJob(t, j)
	c.waitForState(t, second, "done", "")
	if got := c.runGPUard(t, "ada", "logs", fmt.Sprint(second)); got.out != "ran\n" {
		t.Errorf("logs: %+v", got)
	}
	c.waitUntil(t, 30*time.Second, "no claim is left", func() error {
		if left := fmt.Sprint(c.readObject(t, "resourceclaims")["items"]); left != "[]" {
			return fmt.Errorf("%s", left)
		}
		return nil
	})
	// Who deletes the Job by other means deletes the template with it.
	if _, err := c.runKubectl("", "delete", "jobs", "--all", "--namespace=team"); err != nil {
		t.Fatal(err)
	}
	c.waitUntil(t, 60*time.Second, "no template is left", func() error {
		if left := fmt.Sprint(c.readObject(t, "resourceclaimtemplates")["items"]); left != "[]" {
			return fmt.Errorf("%s", left)
		}
		return nil
	})
}

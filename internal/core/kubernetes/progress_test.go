package kubernetes

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// decode reads an object as kubectl prints it.
func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

const twoGPUs = `"containers":[{"name":"main","image":"registry.example.org/train:1","resources":{"limits":{"nvidia.com/gpu":"2"}}}]`

func pendingPod(message string) string {
	return fmt.Sprintf(`[{"metadata":{"name":"train-x"},"spec":{%s},"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":%q}]}}]`, twoGPUs, message)
}

func onNode(status string) string {
	return fmt.Sprintf(`[{"metadata":{"name":"train-x"},"spec":{"nodeName":"gpu-1",%s},"status":%s}]`, twoGPUs, status)
}

// TestLook has one row for each answer of a cluster that people meet; the messages are those of Kubernetes 1.36.
func TestLook(t *testing.T) {
	const open, four = `{"metadata":{"name":"train"}}`, `[{"metadata":{"name":"big"},"status":{"allocatable":{"nvidia.com/gpu":"4"}}}]`
	one := `[{"metadata":{"name":"small"},"status":{"allocatable":{"nvidia.com/gpu":"1"}}}]`
	for _, c := range []struct{ name, job, pods, events, nodes, want, text, do string }{
		{"no pod yet", open, `[]`, `[]`, `null`, "waiting starting", "its pod is being made", ""},
		{"quota", open, `[]`, `[{"reason":"FailedCreate","message":"Error creating: pods \"train-x\" is forbidden: exceeded quota: team, requested: requests.nvidia.com/gpu=2, used: requests.nvidia.com/gpu=3, limited: requests.nvidia.com/gpu=4"}]`, `null`,
			"waiting quota", "the quota team of the namespace gives 4 GPUs, 3 are used, and it asks for 2", "wait until other jobs"},
		{"quota that is too small", open, `[]`, `[{"reason":"FailedCreate","message":"Error creating: pods \"x\" is forbidden: exceeded quota: team, requested: pods=1,requests.nvidia.com/gpu=8, used: pods=1,requests.nvidia.com/gpu=0, limited: pods=9,requests.nvidia.com/gpu=4"}]`, `null`,
			"waiting quota", "it asks for 8", "ask for at most 4 GPUs"},
		{"quota of memory", open, `[]`, `[{"reason":"FailedCreate","message":"Error creating: pods \"x\" is forbidden: failed quota: mem: must specify limits.memory for: main"}]`, `null`, "waiting quota", "limits.memory for: main", "kubectl describe resourcequota"},
		{"not allowed", open, `[]`, `[{"reason":"FailedCreate","message":"Error creating: pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\""}]`, `null`, "waiting forbidden", "violates PodSecurity", "ask whoever runs"},
		{"too few free", open, pendingPod("0/5 nodes are available: 2 Insufficient nvidia.com/gpu, 3 node(s) had untolerated taint {dedicated: a, b}. preemption: 0/5 nodes are available: 5 Preemption is not helpful for scheduling."), `[]`, four,
			"waiting no-gpu", "no node can take it now: 2 of 5 have too few GPUs free; 3 of 5 have a taint that it does not tolerate", "wait until another job ends"},
		{"more than any node has", open, pendingPod("0/1 nodes are available: 1 Insufficient nvidia.com/gpu."), `[]`, one, "waiting too-many", "no node has 2 GPUs: the largest, small, has 1", "--gpus 1"},
		{"no node with a GPU", open, pendingPod("0/1 nodes are available: 1 Insufficient nvidia.com/gpu."), `[]`, `[{"metadata":{"name":"cpu"}}]`, "waiting too-many", "no node of the cluster has a GPU", "gpuard doctor --engine kubernetes"},
		{"nodes that cannot be read", open, pendingPod("0/1 nodes are available: 1 Insufficient nvidia.com/gpu."), `[]`, `null`, "waiting no-gpu", "1 of 1 has too few GPUs free", "wait until"},
		{"labels", open, pendingPod("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."), `[]`, four, "waiting labels", "2 of 2 have not the labels", "kubectl get nodes -L"},
		{"taint", open, pendingPod("0/1 nodes are available: 1 node(s) had untolerated taint(s)."), `[]`, four, "waiting taint", "a taint that it does not tolerate", "whoever runs the cluster"},
		{"unknown cause", open, pendingPod("0/1 nodes are available: 1 node(s) had a bad day."), `[]`, four, "waiting no-node", "1 of 1: node(s) had a bad day", "kubectl describe nodes"},
		{"claim", open, pendingPod("0/2 nodes are available: 2 cannot allocate all claims. still not schedulable, preemption: 0/2 nodes are available"), `[]`, four, "waiting claim", "2 of 2 have no free devices", "wait until"},
		{"claim not made", open, pendingPod(`running PreEnqueue plugin "DynamicResources": waiting for dynamic resource claim "x" - resourceclaim not found`), `[]`, four, "waiting claim", "not ready", "kubectl get resourceclaims"},
		{"volume", open, pendingPod("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"), `[]`, four, "waiting volume", "", "kubectl get persistentvolumeclaims"},
		{"gate", open, `[{"metadata":{"name":"x"},"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"SchedulingGated","message":"Scheduling is blocked"}]}}]`, `[]`, `null`, "waiting gate", "holds it back", "kubectl describe pod x"},
		{"image", open, onNode(`{"phase":"Pending","containerStatuses":[{"name":"main","state":{"waiting":{"reason":"ImagePullBackOff","message":"Back-off pulling image \"registry.example.org/train:1\""}}}]}`), `[]`, `null`,
			"waiting image", "the node gpu-1 cannot get the image registry.example.org/train:1: Back-off", "gpuard submit --image"},
		{"secret", open, onNode(`{"phase":"Pending","containerStatuses":[{"name":"main","state":{"waiting":{"reason":"CreateContainerConfigError","message":"secret \"a\" not found"}}}]}`), `[]`, `null`, "waiting container", `secret "a" not found`, "kubectl describe pod train-x"},
		{"being started", open, onNode(`{"phase":"Pending","containerStatuses":[{"name":"main","state":{"waiting":{"reason":"ContainerCreating"}}}]}`), `[]`, `null`, "waiting starting", "on the node gpu-1", ""},
		{"suspended", `{"metadata":{"name":"train"},"spec":{"suspend":true}}`, `[]`, `[]`, `null`, "waiting suspended", "it is suspended", "kubectl patch job train"},
		{"Kueue", `{"metadata":{"name":"train","labels":{"kueue.x-k8s.io/queue-name":"team"}},"spec":{"suspend":true}}`, `[]`,
			`[{"reason":"Pending","message":"couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor a100, 1 more needed"}]`, `null`, "waiting queue", "in the queue team until there is quota: couldn't assign flavors", "kubectl get localqueue team"},
		{"runs", open, onNode(`{"phase":"Running","containerStatuses":[{"name":"main","state":{"running":{"startedAt":"2026-01-02T03:04:05Z"}}}]}`), `[]`, `null`, "running", "", ""},
		{"ended, and the Job does not say so yet", open, onNode(`{"phase":"Failed","containerStatuses":[{"name":"main","state":{"terminated":{"exitCode":3}}}]}`), `[]`, `null`, "running 3", "", ""},
		{"done", `{"status":{"conditions":[{"type":"SuccessCriteriaMet","status":"True"},{"type":"Complete","status":"True"}]}}`, onNode(`{"phase":"Succeeded","containerStatuses":[{"name":"main","state":{"terminated":{"exitCode":0}}}]}`), `[]`, `null`, "done 0", "", ""},
		{"done, and its pod is gone", `{"status":{"conditions":[{"type":"Complete","status":"True"}]}}`, `[]`, `[]`, `null`, "done 0", "", ""},
		{"failed", `{"status":{"conditions":[{"type":"Failed","status":"True","reason":"BackoffLimitExceeded"}]}}`, onNode(`{"phase":"Failed","containerStatuses":[{"name":"main","state":{"terminated":{"exitCode":3,"reason":"Error"}}}]}`), `[]`, `null`, "failed 3", "", ""},
		{"main memory", `{"status":{"conditions":[{"type":"Failed","status":"True","reason":"BackoffLimitExceeded"}]}}`, onNode(`{"phase":"Failed","containerStatuses":[{"name":"main","state":{"terminated":{"exitCode":137,"reason":"OOMKilled"}}}]}`), `[]`, `null`, "failed memory 137", "more main memory", ""},
		{"evicted", `{"status":{"conditions":[{"type":"Failed","status":"True","reason":"BackoffLimitExceeded"}]}}`, onNode(`{"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory."}`), `[]`, `null`, "failed node", "evicted by the cluster: The node was low", "hand it in again"},
		{"device is gone", `{"status":{"conditions":[{"type":"Failed","status":"True","reason":"BackoffLimitExceeded"}]}}`, onNode(`{"phase":"Failed","reason":"UnexpectedAdmissionError","message":"Allocate failed"}`), `[]`, `null`, "failed node", "gpu-1 could not give it the devices", ""},
		{"time", `{"status":{"conditions":[{"type":"Failed","status":"True","reason":"DeadlineExceeded"}]}}`, `[]`, `[]`, `null`, "failed time 124", "limit of time", ""},
		{"time of its pod", `{"status":{"conditions":[{"type":"Failed","status":"True","reason":"BackoffLimitExceeded"}]}}`, onNode(`{"phase":"Failed","reason":"DeadlineExceeded","containerStatuses":[{"name":"main","state":{"terminated":{"exitCode":143}}}]}`), `[]`, `null`, "failed time 124", "limit of time", ""},
		{"failed, and its pod is gone", `{"status":{"conditions":[{"type":"Failed","status":"True","reason":"BackoffLimitExceeded","message":"Job has reached the specified backoff limit"}]}}`, `[]`, `[]`, `null`, "failed failed", "backoff limit", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := JobProgress(new(decode[Job](t, c.job)), decode[[]Pod](t, c.pods), decode[[]Event](t, c.events), decode[[]Node](t, c.nodes))
			got, text, do := string(p.Phase), "", ""
			if p.Why != nil {
				got, text, do = got+" "+p.Why.Code, p.Why.Text, p.Why.Do
			}
			if p.Exit != nil {
				got += fmt.Sprint(" ", *p.Exit)
			}
			if got != c.want || !strings.Contains(text, c.text) || !strings.Contains(do, c.do) {
				t.Errorf("got %q, %q, do %q; want %q, …%q…, do …%q…", got, text, do, c.want, c.text, c.do)
			}
		})
	}
}

// TestLookLatest: the youngest pod of a job that was tried again tells where it is.
func TestLookLatest(t *testing.T) {
	pods := decode[[]Pod](t, `[{"metadata":{"name":"b","creationTimestamp":"2026-01-01T00:00:09Z"},"status":{"phase":"Pending"}},
		{"metadata":{"name":"a","creationTimestamp":"2026-01-01T00:00:01Z"},"spec":{"nodeName":"gpu-1"},"status":{"phase":"Failed","containerStatuses":[{"name":"main","state":{"terminated":{"exitCode":1}}}]}}]`)
	if p := JobProgress(&Job{}, pods, nil, nil); p.Pod != "b" || p.Phase != Waiting || p.Exit != nil || p.Node != "" {
		t.Errorf("the pod %q on %q, %s, exit %v; want b, waiting", p.Pod, p.Node, p.Phase, p.Exit)
	}
}

// TestLookBeside: a container that the cluster puts beside the job's own says nothing about it.
func TestLookBeside(t *testing.T) {
	pods := decode[[]Pod](t, onNode(`{"phase":"Running","containerStatuses":[{"name":"proxy","state":{"terminated":{"exitCode":9}}},{"name":"main","state":{"running":{"startedAt":"2026-01-02T03:04:05Z"}}},{"name":"proxy-2","state":{"terminated":{"exitCode":8}}}]}`))
	if p := JobProgress(&Job{}, pods, nil, nil); p.Phase != Running || p.Exit != nil {
		t.Errorf("it is %s, exit %v", p.Phase, p.Exit)
	}
}

// TestLookTask: each number of an indexed Job has its own state and exit code, also when its pod is gone.
func TestLookTask(t *testing.T) {
	j := decode[Job](t, `{"status":{"completedIndexes":"0,2-3","failedIndexes":"1","active":2}}`)
	pods := decode[[]Pod](t, `[
		{"metadata":{"name":"t-1","labels":{"batch.kubernetes.io/job-completion-index":"1"}},"spec":{"nodeName":"b"},"status":{"phase":"Failed","containerStatuses":[{"name":"main","state":{"terminated":{"exitCode":4}}}]}},
		{"metadata":{"name":"t-4","labels":{"batch.kubernetes.io/job-completion-index":"4"}},"spec":{"nodeName":"a"},"status":{"phase":"Running","containerStatuses":[{"name":"main","state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}}}]}}]`)
	want := []string{"done 0", "failed 4", "done 0", "done 0", "running", "waiting"}
	for task := range want {
		p := TaskProgress(&j, task, pods, nil, nil)
		got := string(p.Phase)
		if p.Exit != nil {
			got += fmt.Sprint(" ", *p.Exit)
		}
		if got != want[task] {
			t.Errorf("task %d is %s, want %s", task, got, want[task])
		}
	}
	j.Status.Conditions = []Condition{{Type: "Failed", Status: "True", Reason: "FailedIndexes"}}
	if p := TaskProgress(&j, 5, pods, nil, nil); p.Phase != Failed || p.Why == nil {
		t.Errorf("what had not begun when the Job failed is %s", p.Phase)
	}
}

// FuzzLook: no message of a cluster makes it panic, and what waits always has a reason.
func FuzzLook(f *testing.F) {
	f.Add("0/5 nodes are available: 2 Insufficient nvidia.com/gpu, 3 node(s) had x. preemption: y", "exceeded quota: a, requested: b=1, used: c, limited: d")
	f.Add("0/ nodes are available: , ,", "failed quota: ")
	f.Fuzz(func(t *testing.T, message, event string) {
		var pod Pod
		pod.Status.Conditions = []Condition{{"PodScheduled", "False", "Unschedulable", message}}
		for _, pods := range [][]Pod{nil, {pod}} {
			p := JobProgress(&Job{}, pods, []Event{{Reason: "FailedCreate", Message: event}}, []Node{{}})
			if p.Phase != Waiting || p.Why == nil || p.Why.Code == "" || p.Why.Text == "" {
				t.Errorf("%q, %q: %s %+v", message, event, p.Phase, p.Why)
			}
		}
	})
}

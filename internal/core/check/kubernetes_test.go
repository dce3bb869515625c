package check

import (
	"strings"
	"testing"

	"gpuard/internal/core/kubernetes"
)

// gpuNode is a node of the device plugin with so many GPUs.
func gpuNode(name, gpus string, labels map[string]string) (n kubernetes.Node) {
	n.Meta = kubernetes.Meta{Name: name, Labels: labels}
	n.Status.Allocatable = map[string]string{"cpu": "8"}
	if gpus != "" {
		n.Status.Allocatable[kubernetes.GPUs] = gpus
	}
	n.Status.Conditions = []kubernetes.Condition{{Type: "Ready", Status: "True"}}
	return n
}

func rights() (list []kubernetes.Right) {
	for _, r := range []string{"create jobs.batch", "get jobs.batch", "delete jobs.batch", "list pods", "get pods/log", "list events", "create resourceclaimtemplates.resource.k8s.io"} {
		verb, resource, _ := strings.Cut(r, " ")
		list = append(list, kubernetes.Right{Verb: verb, Resource: resource, Granted: true})
	}
	return list
}

// TestKubernetes: a cluster where nothing is odd, and each finding alone. An unreadable part is unknown, and hides no other.
func TestKubernetes(t *testing.T) {
	labels := map[string]string{"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.sharing-strategy": "none"}
	deny := func(right string) func(*kubernetes.Cluster) {
		return func(c *kubernetes.Cluster) {
			for i, r := range c.Allowed.Found {
				if r.Verb+" "+r.Resource == right {
					c.Allowed.Found[i].Granted = false
				}
			}
		}
	}
	quota := func(used string) func(*kubernetes.Cluster) {
		return func(c *kubernetes.Cluster) {
			var q kubernetes.Quota
			q.Meta.Name = "team"
			q.Status.Hard, q.Status.Used = map[string]string{"requests.nvidia.com/gpu": "4"}, map[string]string{"requests.nvidia.com/gpu": used}
			c.Quotas.Found = []kubernetes.Quota{q}
		}
	}
	for _, c := range []struct {
		name    string
		change  func(*kubernetes.Cluster)
		runs    string // of the verdict
		summary string
		code    string // of the only finding that is not ok; "" none
		worst   Severity
		seen    string
	}{
		{"fine", func(*kubernetes.Cluster) {}, "true", "6 of 6 GPUs are free", "", OK, ""},
		{"silent", func(c *kubernetes.Cluster) {
			*c = kubernetes.Cluster{Context: "lab"}
			c.Serves.Problem = "no answer within 20s"
		}, "false", "does not answer (the context lab): no answer within 20s", "kubernetes-api", Error, "no answer"},
		{"may make no job", deny("create jobs.batch"), "false", "you may not create jobs.batch in the namespace team", "kubernetes-permissions", Error, ""},
		{"may not delete", deny("delete jobs.batch"), "true", "6 of 6", "kubernetes-permissions", Warning, "delete jobs.batch"},
		{"may not see events", deny("list events"), "true", "6 of 6", "kubernetes-permissions", Info, "list events"},
		{"no claims, and none wanted", deny("create resourceclaimtemplates.resource.k8s.io"), "true", "6 of 6", "", OK, ""},
		{"no GPUs", func(c *kubernetes.Cluster) { c.Nodes.Found = []kubernetes.Node{gpuNode("cpu", "", nil)} }, "false", "none of 1 node offers a GPU", "kubernetes-gpus", Error, ""},
		{"cordoned", func(c *kubernetes.Cluster) { c.Nodes.Found[0].Spec.Cordoned = true }, "true", "2 of 2 GPUs", "kubernetes-nodes", Info, "1 node with GPUs is cordoned: a"},
		{"not ready", func(c *kubernetes.Cluster) { c.Nodes.Found[1].Status.Conditions = nil }, "true", "4 of 4 GPUs", "kubernetes-nodes", Info, "not ready: b"},
		{"no labels", func(c *kubernetes.Cluster) { c.Nodes.Found[1].Meta.Labels = nil }, "true", "6 of 6", "kubernetes-labels", Warning, "no label nvidia.com/gpu.product: b"},
		{"shared", func(c *kubernetes.Cluster) {
			c.Nodes.Found[1].Meta.Labels = map[string]string{"nvidia.com/gpu.product": "T4-SHARED", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
		}, "true", "6 of 6", "kubernetes-labels", Info, "b (time-slicing)"},
		{"quota with room", quota("1"), "true", "6 of 6", "", OK, ""},
		{"quota used up", quota("4"), "true", "6 of 6", "kubernetes-quota", Warning, "gives 4 GPUs of the device plugin: 4 are used"},
		{"pods of others are hidden", func(c *kubernetes.Cluster) { c.Pods.Problem = "forbidden" }, "true", "it has 6 GPUs, and how many are free is unknown", "", OK, ""},
		{"quotas are hidden", func(c *kubernetes.Cluster) { c.Quotas.Problem = "forbidden" }, "true", "6 of 6", "kubernetes-quota", Unknown, "forbidden"},
		{"rights are hidden", func(c *kubernetes.Cluster) { c.Allowed.Problem = "forbidden" }, "true", "6 of 6", "kubernetes-permissions", Unknown, "forbidden"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := &kubernetes.Cluster{Context: "lab", Namespace: "team"}
			k.Serves.Found = []string{"batch/v1"}
			k.Nodes.Found = []kubernetes.Node{gpuNode("a", "4", labels), gpuNode("b", "2", labels)}
			k.Allowed.Found = rights()
			c.change(k)
			d := DiagnoseCluster(k)
			runs := "?"
			if d.Runs != nil {
				runs = map[bool]string{true: "true", false: "false"}[*d.Runs]
			}
			if runs != c.runs || !strings.Contains(d.Summary, c.summary) {
				t.Errorf("runs %s: %s; want %s: …%s…", runs, d.Summary, c.runs, c.summary)
			}
			for _, f := range d.Findings {
				if f.Severity == OK {
					continue
				}
				if f.Code != c.code || f.Severity != c.worst || !strings.Contains(f.Seen, c.seen) {
					t.Errorf("%s %s: %s; want %s %s: …%s…", f.Severity, f.Code, f.Seen, c.worst, c.code, c.seen)
				}
				c.code = "" // found
				if f.Severity.Bad() && (f.Do == "" || f.Why == "" || d.Next == "") {
					t.Errorf("%s says not what to do, or why: %+v", f.Code, f)
				}
			}
			if c.code != "" {
				t.Errorf("no finding %s", c.code)
			}
		})
	}
}

// TestKubernetesHidden: where the nodes cannot be read nothing is claimed about them.
func TestKubernetesHidden(t *testing.T) {
	k := &kubernetes.Cluster{Namespace: "team"}
	k.Serves.Found = []string{"batch/v1"}
	k.Nodes.Problem, k.Allowed.Found = "nodes is forbidden", rights()
	d := DiagnoseCluster(k)
	if d.Runs != nil || d.Next == "" {
		t.Errorf("runs %v, next %q", d.Runs, d.Next)
	}
	for _, f := range d.Findings {
		if f.Severity.Bad() {
			t.Errorf("%+v", f)
		}
	}
}

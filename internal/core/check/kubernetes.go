package check

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/kubernetes"
	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
)

// clusterCheck is one check of a Kubernetes cluster.
type clusterCheck struct {
	Page
	// An error means that no job of this person gets a GPU there.
	stops bool
	look  func(c *kubernetes.Cluster) []Finding
}

// clusterChecks lists them, causes before consequences.
func clusterChecks() []clusterCheck {
	return []clusterCheck{clusterAnswers(), clusterRights(), clusterOffers(), clusterNodes(), clusterLabels(), clusterQuota()}
}

// KubernetesPages are the pages of the checks of gpuard doctor --engine kubernetes.
func KubernetesPages() (pages []Page) {
	for _, c := range clusterChecks() {
		pages = append(pages, c.Page)
	}
	return pages
}

// DiagnoseCluster runs every check of a cluster and says whether it can give GPUs to this person.
func DiagnoseCluster(c *kubernetes.Cluster) Diagnosis {
	d := Diagnosis{Findings: []Finding{}}
	var stop *Finding
	for _, check := range clusterChecks() {
		found := check.look(c)
		d.Findings = append(d.Findings, found...)
		if i := slices.IndexFunc(found, func(f Finding) bool { return f.Severity == Error }); check.stops && stop == nil && i >= 0 {
			stop = &found[i]
		}
		if c.Serves.Problem != "" {
			// The others would only repeat that nothing answers.
			break
		}
	}

	free, all, known := countClusterGPUs(c.Hosts())
	worst := worstFinding(d.Findings)
	switch {
	case stop != nil:
		d.Verdict = Verdict{new(false), "no job of yours gets a GPU from this cluster: " + stop.Seen, stop.Do}
	case all == 0:
		d.Verdict = Verdict{nil, "cannot tell whether this cluster has GPUs for you", worst.Do}
		if worst.Do == "" {
			d.Next = option.Expand("try: {gpuard submit} {engine=kubernetes} {image=IMAGE} {dry-run} -- COMMAND")
		}
	case !known:
		d.Verdict = Verdict{new(true), fmt.Sprintf("jobs get GPUs from this cluster: it has %s, and how many are free is unknown", prose.CountNoun(all, "GPU")), worst.Do}
	case free == 0:
		d.Verdict = Verdict{new(true), fmt.Sprintf("jobs get GPUs from this cluster, and wait for them now: none of %s is free", prose.CountNoun(all, "GPU")), worst.Do}
	default:
		d.Verdict = Verdict{new(true), fmt.Sprintf("jobs get GPUs from this cluster: %d of %s are free", free, prose.CountNoun(all, "GPU")), worst.Do}
	}

	return d
}

// countClusterGPUs counts the GPUs of nodes that take jobs. A GPU that both the plugin and the driver offer is counted
// once.
func countClusterGPUs(hosts []kubernetes.Host) (free, all int, known bool) {
	known = true
	seen := map[string]bool{}
	for _, h := range hosts {
		if h.Off != "" || seen[h.Node] {
			continue
		}

		seen[h.Node] = true
		all += h.All
		if h.Taken == nil {
			known = false
			continue
		}

		free += max(0, h.All-*h.Taken)
	}

	return free, all, known
}

func clusterAnswers() clusterCheck {
	page := Page{
		Code: "kubernetes-api", Title: "The API server of the Kubernetes cluster does not answer, or does not know who asks",
		Text: option.Expand("gpuard asks a cluster through `kubectl`, with the context, the namespace and the credentials that `kubectl` takes by itself: `KUBECONFIG`, else `~/.kube/config`. Where `kubectl get pods` works, this check is fine. `{context}` and `{namespace}` choose another cluster or namespace for one call."),
		From: []string{"https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig"},
	}
	return clusterCheck{page, true, func(c *kubernetes.Cluster) []Finding {
		where := "the context " + c.Context
		if c.Context == "" {
			where = "no context is chosen"
		}
		if c.Serves.Problem != "" {
			return []Finding{{page.Code, Error, fmt.Sprintf("the cluster does not answer (%s): %s", where, c.Serves.Problem), "nothing can be handed in there", "kubectl cluster-info; other contexts: kubectl config get-contexts"}}
		}

		return okFinding(page.Code, fmt.Sprintf("the cluster answers (%s, namespace %s)", where, c.Namespace))
	}}
}

func clusterRights() clusterCheck {
	page := Page{
		Code: "kubernetes-permissions", Title: "The cluster does not let this person do what gpuard needs for a job",
		Text: option.Expand("`{gpuard submit} {engine=kubernetes}` makes a Job in the namespace, and with claims a ResourceClaimTemplate; `queue` and `wait` read the Job and its pods, `logs` the logs of a pod, `cancel` deletes the Job. Events say why a Job has no pod. The cluster decides all of this by its own rules, as `kubectl auth can-i` shows. Whoever runs the cluster can give the missing right with a RoleBinding."),
		From: []string{"https://kubernetes.io/docs/reference/access-authn-authz/rbac"},
	}
	return clusterCheck{page, true, func(c *kubernetes.Cluster) []Finding {
		if c.Allowed.Problem != "" {
			return unknownFinding(page.Code, "what you may do", c.Allowed.Problem, "kubectl auth can-i --list")
		}

		dra, _ := c.SupportsDRA()
		plugin := slices.ContainsFunc(c.Hosts(), func(h kubernetes.Host) bool { return !h.DRA })
		var found []Finding
		for _, r := range c.Allowed.Found {
			if r.Granted || strings.HasPrefix(r.Resource, "resourceclaimtemplates") && !dra {
				continue
			}
			f := Finding{page.Code, Warning, fmt.Sprintf("you may not %s %s in the namespace %s", r.Verb, r.Resource, c.Namespace), missingRightEffect(r), "ask whoever runs the cluster for a role with it; to see what you may: kubectl auth can-i --list"}
			switch {
			case r.Verb == "create" && (r.Resource == "jobs.batch" || !plugin):
				f.Severity = Error
			case r.Resource == "resourceclaimtemplates.resource.k8s.io":
				f.Do = option.Expand("use the device plugin: {gpuard submit} {engine=kubernetes-plugin}")
			case r.Resource == "events":
				f.Severity = Info
			}
			found = append(found, f)
		}

		if found == nil {
			return okFinding(page.Code, "you may make, read and delete jobs in the namespace "+c.Namespace)
		}

		return found
	}}
}

// missingRightEffect says what does not work without a right.
func missingRightEffect(r kubernetes.Right) string {
	switch r.Verb + " " + r.Resource {
	case "create jobs.batch":
		return "nothing can be handed in"
	case "delete jobs.batch":
		return option.Expand("{gpuard cancel} ends no job there")
	case "get pods/log":
		return option.Expand("{gpuard logs} shows nothing")
	case "list events":
		return "why a job has no pod is then unknown"
	case "create resourceclaimtemplates.resource.k8s.io":
		return "no job can claim devices"
	}
	return option.Expand("{gpuard queue} and wait do not see what becomes of a job")
}

func clusterOffers() clusterCheck {
	page := Page{
		Code: "kubernetes-gpus", Title: "No node of the cluster offers a GPU",
		Text: "Kubernetes gives GPUs that something on the nodes announces: NVIDIA's device plugin as the resource `nvidia.com/gpu`, or NVIDIA's DRA driver as devices of the class `gpu.nvidia.com` (Kubernetes 1.34 and later). Both come with NVIDIA's GPU operator. Without them a job that asks for a GPU waits for ever.",
		From: []string{"NVIDIA/k8s-device-plugin: README.md", "kubernetes-sigs/dra-driver-nvidia-gpu: README.md", "https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/getting-started.html"},
	}
	return clusterCheck{page, true, func(c *kubernetes.Cluster) []Finding {
		hosts := c.Hosts()
		plugin := slices.ContainsFunc(hosts, func(h kubernetes.Host) bool { return !h.DRA })
		dra, not := c.SupportsDRA()
		switch {
		case plugin && dra:
			return okFinding(page.Code, "nodes offer GPUs through the device plugin and the driver for claims")
		case dra:
			return okFinding(page.Code, "nodes offer GPUs through the driver for claims ("+kubernetes.Driver+")")
		case plugin:
			return okFinding(page.Code, "nodes offer GPUs through the device plugin ("+kubernetes.GPUs+"); no claims: "+not)
		case c.Nodes.Problem != "":
			return unknownFinding(page.Code, "the nodes", c.Nodes.Problem, "ask whoever runs the cluster for the right to list nodes, or which resource its GPUs have")
		}

		return []Finding{{page.Code, Error, fmt.Sprintf("none of %s offers a GPU (%s), and %s", prose.CountNoun(len(c.Nodes.Found), "node"), kubernetes.GPUs, not), "a job that asks for a GPU would wait for ever", "whoever runs the cluster installs NVIDIA's GPU operator: https://docs.nvidia.com/datacenter/cloud-native/gpu-operator"}}
	}}
}

func clusterNodes() clusterCheck {
	page := Page{
		Code: "kubernetes-nodes", Title: "A node with GPUs takes no new jobs",
		Text: "A node that is cordoned (`kubectl cordon`) or whose kubelet does not report (`Ready` is not true) gets no new pods. Its GPUs are not counted as free. Cordoned nodes are usually in maintenance; `kubectl describe node NAME` says more about one that is not ready.",
		From: []string{"https://kubernetes.io/docs/concepts/architecture/nodes"},
	}
	return clusterCheck{page, false, func(c *kubernetes.Cluster) []Finding {
		if c.Nodes.Problem != "" {
			return unknownFinding(page.Code, "the nodes", c.Nodes.Problem, "")
		}

		by := map[string][]string{}
		for _, h := range c.Hosts() {
			if !slices.Contains(by[h.Off], h.Node) {
				by[h.Off] = append(by[h.Off], h.Node)
			}
		}

		var found []Finding
		for _, off := range []string{"not ready", "cordoned"} {
			if len(by[off]) > 0 {
				found = append(found, Finding{page.Code, Info, fmt.Sprintf("%s with GPUs is %s: %s", prose.CountNoun(len(by[off]), "node"), off, fewNames(by[off])), "no job is started there", "kubectl describe node " + by[off][0]})
			}
		}

		if found == nil {
			return okFinding(page.Code, fmt.Sprintf("%s with GPUs take jobs", prose.CountNoun(len(by[""]), "node")))
		}

		return found
	}}
}

func clusterLabels() clusterCheck {
	page := Page{
		Code: "kubernetes-labels", Title: "Nodes lack the labels that say which GPUs they have",
		Text: option.Expand("With the device plugin, `{model}`, `{mem}` and `{min-compute}` choose nodes by the labels `nvidia.com/gpu.product`, `nvidia.com/gpu.memory` and `nvidia.com/gpu.compute.major`, which NVIDIA's GPU Feature Discovery writes; the GPU operator brings it along. A node without them is never chosen for a job with one of these flags. On a node whose GPUs are shared (`nvidia.com/gpu.sharing-strategy` is `time-slicing` or `mps`) a job would not have its GPU alone: gpuard's jobs are not put there. Claims need no labels."),
		From: []string{"NVIDIA/k8s-device-plugin: docs/gpu-feature-discovery/README.md"},
	}
	return clusterCheck{page, false, func(c *kubernetes.Cluster) []Finding {
		if c.Nodes.Problem != "" {
			return unknownFinding(page.Code, "labels of nodes", c.Nodes.Problem, "")
		}

		var bare, shared []string
		with := 0
		for _, h := range c.Hosts() {
			switch {
			case h.DRA:
			case h.Bare:
				bare = append(bare, h.Node)
			default:
				with++
			}
			if h.Shared != "" {
				shared = append(shared, h.Node+" ("+h.Shared+")")
			}
		}

		var found []Finding
		if len(bare) > 0 {
			found = append(found, Finding{page.Code, Warning, fmt.Sprintf("%s with GPUs has no label nvidia.com/gpu.product: %s", prose.CountNoun(len(bare), "node"), fewNames(bare)), option.Expand("{model}, {mem} and {min-compute} never choose it"), option.Expand("whoever runs the cluster installs GPU Feature Discovery, which is part of the GPU operator; until then leave {model}, {mem} and {min-compute} out")})
		}

		if len(shared) > 0 {
			found = append(found, Finding{page.Code, Info, "GPUs are shared between pods: " + fewNames(shared), "gpuard's jobs are not put there, because they would not have their GPU alone", ""})
		}

		switch {
		case found != nil:
			return found
		case with == 0:
			return okFinding(page.Code, "no node needs them: devices are claimed")
		}

		return okFinding(page.Code, fmt.Sprintf("%s with GPUs have the labels of their model and memory", prose.CountNoun(with, "node")))
	}}
}

func clusterQuota() clusterCheck {
	page := Page{
		Code: "kubernetes-quota", Title: "The namespace may use no more GPUs",
		Text: "A ResourceQuota limits what all pods of a namespace may have together: `requests.nvidia.com/gpu` for the device plugin, `gpu.nvidia.com.deviceclass.resource.k8s.io/devices` for claims. Where it is used up, the pods of a new Job are not made until others of the namespace end; a Job that asks for more than all of it waits for ever.",
		From: []string{"https://kubernetes.io/docs/concepts/policy/resource-quotas"},
	}
	return clusterCheck{page, false, func(c *kubernetes.Cluster) []Finding {
		if c.Quotas.Problem != "" {
			return unknownFinding(page.Code, "quotas of the namespace "+c.Namespace, c.Quotas.Problem, "")
		}

		var found []Finding
		limits := c.Limits()
		for _, l := range limits {
			what := "GPUs of the device plugin"
			if l.Class != "" {
				what = "claimed GPUs"
			}

			f := Finding{page.Code, OK, fmt.Sprintf("the quota %s of the namespace %s gives %d %s: %d are used", l.Name, c.Namespace, l.Hard, what, l.Used), "", ""}
			if l.Used >= l.Hard {
				f.Severity, f.Why, f.Do = Warning, "a new job waits until others of the namespace end", "kubectl get jobs; ask whoever runs the cluster for more"
			}

			found = append(found, f)
		}

		if found == nil {
			return okFinding(page.Code, "the namespace "+c.Namespace+" has no quota of GPUs")
		}

		return found
	}}
}

// fewNames lists names, of many only the first.
func fewNames(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

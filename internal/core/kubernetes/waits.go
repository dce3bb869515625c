package kubernetes

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/core/option"
)

// setWaitReason finds out why a job that has not ended does not run. A job that runs gets no reason.
func (p *Progress) setWaitReason(j *Job, pod *Pod, events []Event, nodes []Node) {
	switch {
	case p.Phase == Running:
	case j.Spec.Suspend:
		p.Why = suspendedReason(j, events)
	case pod == nil:
		p.Why = noPodReason(events)
	default:
		p.Why = pendingReason(pod, nodes)
	}
}

// suspendedReason is the reason of a job that has no pod because it shall not have one.
func suspendedReason(j *Job, events []Event) *Reason {
	queue := j.Meta.Labels[KueueLabel]
	if queue == "" {
		return &Reason{"suspended", "it is suspended", "kubectl patch job " + j.Meta.Name + ` --type=merge -p '{"spec":{"suspend":false}}'`}
	}

	text := "Kueue keeps it in the queue " + queue + " until there is quota"
	if last := latestEvent(events, func(e *Event) bool {
		return e.Reason == "Pending" || e.Reason == "CreatedWorkload" || e.Reason == "Stopped"
	}); last != nil && last.Reason != "CreatedWorkload" {
		text += ": " + firstLine(last.Message)
	}

	return &Reason{"queue", text, "kubectl get localqueue " + queue + "; kubectl get workloads"}
}

// noPodReason is the reason of a job whose pod does not exist: what its controller could not do.
func noPodReason(events []Event) *Reason {
	failed := latestEvent(events, func(e *Event) bool { return e.Reason == "FailedCreate" })
	switch {
	case failed == nil:
		return &Reason{"starting", "its pod is being made", ""}
	case strings.Contains(failed.Message, "exceeded quota"):
		return quotaReason(failed.Message)
	case strings.Contains(failed.Message, "failed quota"):
		// A quota on memory or processors, and the pod names none.
		return &Reason{"quota", "the quota of the namespace wants a limit that the job does not name: " + textAfter(failed.Message, "failed quota: "), "kubectl describe resourcequota"}
	}
	return &Reason{"forbidden", "the cluster does not let its pod be made: " + firstLine(failed.Message), "ask whoever runs the cluster; kubectl describe job"}
}

// quotaReason reads "exceeded quota: team, requested: requests.nvidia.com/gpu=4, used: requests.nvidia.com/gpu=1,
// limited: requests.nvidia.com/gpu=4" (k8s.io/apiserver, pkg/admission/plugin/resourcequota/controller.go).
func quotaReason(message string) *Reason {
	const do = "wait until other jobs of the namespace end, or ask whoever runs the cluster for more; kubectl describe resourcequota"
	m := regexp.MustCompile(`exceeded quota: ([^,]+), requested: (.*), used: (.*), limited: (.*)$`).FindStringSubmatch(firstLine(message))
	if m == nil {
		return &Reason{"quota", "the quota of the namespace is used up: " + textAfter(message, "exceeded quota: "), do}
	}

	const key = "requests." + GPUs
	asked, used, most := valueOfKey(m[2], key), valueOfKey(m[3], key), valueOfKey(m[4], key)
	if asked == "" || used == "" || most == "" {
		return &Reason{"quota", fmt.Sprintf("the quota %s of the namespace does not allow it: it asks for %s, %s is used of %s", m[1], m[2], m[3], m[4]), do}
	}

	why := &Reason{"quota", fmt.Sprintf("the quota %s of the namespace gives %s GPUs, %s are used, and it asks for %s", m[1], most, used, asked), do}
	if a, ok := parseCount(asked); ok {
		if b, ok := parseCount(most); ok && a > b {
			why.Do = "ask for at most " + most + " GPUs, or ask whoever runs the cluster for more"
		}
	}

	return why
}

// valueOfKey is the value of a key in "a=1,b=2".
func valueOfKey(list, key string) string {
	for word := range strings.SplitSeq(list, ",") {
		if name, value, ok := strings.Cut(strings.TrimSpace(word), "="); ok && name == key {
			return value
		}
	}
	return ""
}

// pendingReason is the reason of a pod that is there and does not run.
func pendingReason(pod *Pod, nodes []Node) *Reason {
	for _, c := range pod.Status.Conditions {
		switch {
		case c.Type != "PodScheduled" || c.Status != "False":
		case c.Reason == "SchedulingGated":
			return &Reason{"gate", "something in the cluster holds it back before it is scheduled: " + firstLine(c.Message), "kubectl describe pod " + pod.Meta.Name}
		default:
			return unscheduledReason(pod, c.Message, nodes)
		}
	}
	for _, c := range pod.Status.Containers {
		if w := c.State.Waiting; w != nil {
			return notStartedReason(pod, w.Reason, w.Message)
		}
	}
	if pod.Spec.Node == "" {
		return &Reason{"starting", "the scheduler has not looked at it yet", ""}
	}

	return &Reason{"starting", "it is being started on the node " + pod.Spec.Node, ""}
}

// notStartedReason is the reason of a pod that has a node and whose container does not run (kubernetes/kubernetes,
// pkg/kubelet/images/types.go and pkg/kubelet/kuberuntime/kuberuntime_container.go).
func notStartedReason(pod *Pod, reason, message string) *Reason {
	image := ""
	if len(pod.Spec.Containers) > 0 {
		image = pod.Spec.Containers[0].Image
	}

	text := firstLine(message)
	switch reason {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed":
		if text == "" {
			text = reason
		}
		return &Reason{"image", fmt.Sprintf("the node %s cannot get the image %s: %s", pod.Spec.Node, image, text), option.Expand("check the name: {gpuard submit} {image=NAME}; a private registry needs a secret: kubectl create secret docker-registry")}
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		return &Reason{"container", fmt.Sprintf("the node %s cannot start the container: %s", pod.Spec.Node, text), "kubectl describe pod " + pod.Meta.Name}
	}

	return &Reason{"starting", "it is being started on the node " + pod.Spec.Node, ""}
}

// cause is one part of the scheduler's message: for how many nodes, and why.
type cause struct {
	nodes int
	text  string
}

// parseCauses reads "0/5 nodes are available: 2 Insufficient nvidia.com/gpu, 3 node(s) had untolerated taint {a: b}.
// preemption: …" (kubernetes/kubernetes, pkg/scheduler/framework/types.go, FitError).
func parseCauses(message string) (all int, list []cause) {
	head, rest, ok := strings.Cut(message, " nodes are available: ")
	_, number, _ := strings.Cut(head, "/")
	all, err := strconv.Atoi(number)
	if !ok || err != nil {
		return 0, nil
	}

	rest, _, _ = strings.Cut(rest, " preemption: ")
	rest, _, _ = strings.Cut(rest, " no new claims to deallocate")
	for word := range strings.SplitSeq(strings.TrimRight(rest, " .,"), ", ") {
		n, text, _ := strings.Cut(word, " ")
		if many, err := strconv.Atoi(n); err == nil {
			list = append(list, cause{many, strings.TrimRight(text, ".")})
		} else if len(list) > 0 {
			// A comma inside of a cause.
			list[len(list)-1].text += ", " + word
		}
	}

	return all, list
}

// causeKinds are the causes in the order in which they decide the code: what the person can change, or waits for, comes
// first.
func causeKinds() []struct{ code, sign, words string } {
	return []struct{ code, sign, words string }{
		{"no-gpu", "Insufficient " + GPUs, "too few GPUs free"},
		{"claim", "cannot allocate all claims", "no free devices as its claim wants them"},
		{"labels", "didn't match Pod's node affinity/selector", "not the labels of the model and memory that it asks for"},
		{"volume", "unbound immediate PersistentVolumeClaims", "no volume for its claim"},
		{"memory", "Insufficient memory", "too little main memory free"},
		{"cpu", "Insufficient cpu", "too few processors free"},
		{"taint", "untolerated taint", "a taint that it does not tolerate"},
		{"cordoned", "were unschedulable", "no new work for now (cordoned)"},
	}
}

// unscheduledReason is the reason of a pod for which the scheduler finds no node.
func unscheduledReason(pod *Pod, message string, nodes []Node) *Reason {
	all, list := parseCauses(message)
	if all == 0 || len(list) == 0 {
		return otherReason(message)
	}

	why := &Reason{Code: "no-node"}
	var parts []string
	for _, k := range causeKinds() {
		n := 0
		for i := range list {
			if strings.Contains(list[i].text, k.sign) {
				n, list[i].text = n+list[i].nodes, ""
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d of %d %s %s", n, all, hasOrHave(n), k.words))
			if why.Code == "no-node" {
				why.Code = k.code
			}
		}
	}

	for _, c := range list {
		if c.text != "" {
			parts = append(parts, fmt.Sprintf("%d of %d: %s", c.nodes, all, c.text))
		}
	}

	why.Text = "no node can take it now: " + strings.Join(parts, "; ")
	why.Do = remedyFor(why.Code)
	replaceIfTooMany(why, pod, nodes)

	return why
}

func hasOrHave(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}

func remedyFor(code string) string {
	switch code {
	case "no-gpu", "claim":
		return option.Expand("wait until another job ends; see what is free: {gpuard doctor} {engine=kubernetes}")
	case "labels":
		return option.Expand("check {model} and {mem} against the nodes: kubectl get nodes -L nvidia.com/gpu.product,nvidia.com/gpu.memory")
	case "volume":
		return "kubectl get persistentvolumeclaims"
	case "taint", "cordoned":
		return "kubectl describe nodes; ask whoever runs the cluster which nodes are yours"
	}
	return "wait, or ask for less; kubectl describe nodes"
}

// replaceIfTooMany replaces the reason of a job that asks for more GPUs than any node has: it would wait for ever.
func replaceIfTooMany(why *Reason, pod *Pod, nodes []Node) {
	asked, largest, name := pod.Spec.pluginGPUs(), 0, ""
	for _, n := range nodes {
		if has, ok := parseCount(n.Status.Allocatable[GPUs]); ok && has > largest {
			largest, name = has, n.Meta.Name
		}
	}

	if why.Code != "no-gpu" || len(nodes) == 0 || asked <= largest {
		return
	}

	why.Code = "too-many"
	if largest == 0 {
		why.Text, why.Do = "no node of the cluster has a GPU that the device plugin offers", option.Expand("{gpuard doctor} {engine=kubernetes}")
		return
	}

	why.Text = fmt.Sprintf("no node has %d GPUs: the largest, %s, has %d", asked, name, largest)
	why.Do = option.Sprintf("cancel it, and ask for at most %d: {gpus=%[1]d}", largest)
}

// otherReason is the reason of a message that is not about nodes.
func otherReason(message string) *Reason {
	switch text := firstLine(message); {
	case strings.Contains(message, "resourceclaim") || strings.Contains(message, "device class"):
		return &Reason{"claim", "its claim of devices is not ready: " + text, option.Expand("kubectl get resourceclaims; {gpuard doctor} {engine=kubernetes}")}
	case strings.Contains(strings.ToLower(message), "persistentvolumeclaim"):
		return &Reason{"volume", "a volume that it wants is not there: " + text, remedyFor("volume")}
	default:
		return &Reason{"no-node", "the scheduler finds no node: " + text, option.Expand("{gpuard doctor} {engine=kubernetes}")}
	}
}

func latestEvent(events []Event, which func(*Event) bool) (last *Event) {
	at := func(e *Event) time.Time { return *cmp.Or(e.Last, &e.Meta.Created) }
	for i := range events {
		if e := &events[i]; which(e) && (last == nil || !at(e).Before(at(last))) {
			last = e
		}
	}
	return last
}

func firstLine(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	return text
}

// textAfter is the first line behind a sign, or all of it without the sign.
func textAfter(text, sign string) string {
	if _, rest, ok := strings.Cut(text, sign); ok {
		text = rest
	}
	return firstLine(text)
}

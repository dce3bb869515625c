package handoff

import (
	"fmt"
	"strconv"
	"strings"

	"gpuard/internal/core/job"
)

// kept is how long a Job and its logs stay when it has ended.
const kept = 7 * 24 * 60 * 60

// driver is the domain of the attributes of NVIDIA's DRA driver (kubernetes-sigs/dra-driver-nvidia-gpu:
// site/content/docs/reference/resourceslice-attributes.md).
const driver = "gpu.nvidia.com"

// manifest is the work as a Job, with claims behind the template of its claim.
func manifest(w *Work, claims bool) string {
	claims = claims && !w.Spec.CPU
	var text string
	if claims {
		text = claimTemplate(w).document() + "---\n"
	}
	doc := object{{"apiVersion", "batch/v1"}, {"kind", "Job"}, {"metadata", metadata(w, labels(w).with(w.Queue != "", "kueue.x-k8s.io/queue-name", w.Queue)).
		with(len(annotations(w)) > 0, "annotations", annotations(w))}}
	spec := object{}.with(w.Held, "suspend", true)
	spec = append(spec, repeats(w)...)
	spec = append(spec, field{"ttlSecondsAfterFinished", kept},
		field{"template", object{{"metadata", object{{"labels", labels(w)}}}, {"spec", pod(w, claims)}}})
	return text + append(doc, field{"spec", spec}).document()
}

func labels(w *Work) object {
	return object{{"app.kubernetes.io/managed-by", "gpuard"}, {"app.kubernetes.io/instance", objectName(w)}}
}

func metadata(w *Work, own object) object {
	return object{{"name", objectName(w)}}.with(w.Namespace != "", "namespace", w.Namespace).with(true, "labels", own)
}

func annotations(w *Work) object {
	return object{}.
		with(w.Spec.Name != "" && oddName(w), "gpuard/name", strings.ToValidUTF8(w.Spec.Name, "?")).
		with(w.Note != "", "gpuard/note", strings.ToValidUTF8(w.Note, "?")).
		with(w.Spec.Time > 0, "gpuard/expect", w.Spec.Time.String())
}

// repeats says how often it is started. Without Any only pods that were evicted, or whose node failed, are started again.
// An array goes on when one of its jobs fails.
func repeats(w *Work) object {
	failures := w.Care.Retries
	if w.Care.Restart == job.OnFailure {
		if failures = w.Care.Limit; failures == 0 {
			failures = 1<<31 - 1
		}
	}
	limit, fails := "backoffLimit", "FailJob"
	spec := object{}
	if n := len(w.Array.Tasks); n > 0 {
		limit, fails = "backoffLimitPerIndex", "FailIndex"
		together := n
		if w.Array.Most > 0 {
			together = min(n, w.Array.Most)
		}
		spec = object{{"completionMode", "Indexed"}, {"completions", n}, {"parallelism", together}}
	}
	spec = append(spec, field{limit, failures})
	if w.Care.Retries == 0 || w.Care.Any {
		return spec
	}
	return append(spec, field{"podFailurePolicy", object{{"rules", []object{
		{{"action", "Count"}, {"onPodConditions", []object{{{"type", "DisruptionTarget"}, {"status", "True"}}}}},
		{{"action", fails}, {"onExitCodes", object{{"operator", "NotIn"}, {"values", numbers{0}}}}},
	}}}})
}

func pod(w *Work, claims bool) object {
	limit := w.Spec.Timeout > 0
	spec := object{{"restartPolicy", "Never"}}.
		with(limit, "activeDeadlineSeconds", seconds(w.Spec.Timeout)).
		with(w.Spec.Grace > 0, "terminationGracePeriodSeconds", seconds(w.Spec.Grace))
	if !w.Spec.CPU {
		spec = append(spec, field{"tolerations", []object{{{"key", "nvidia.com/gpu"}, {"operator", "Exists"}, {"effect", "NoSchedule"}}}})
	}
	if !w.Spec.CPU && !claims {
		spec = append(spec, field{"affinity", object{{"nodeAffinity", object{{"requiredDuringSchedulingIgnoredDuringExecution", object{{"nodeSelectorTerms", nodes(w)}}}}}}})
	}
	if claims {
		spec = append(spec, field{"resourceClaims", []object{{{"name", "gpus"}, {"resourceClaimTemplateName", objectName(w)}}}})
	}
	if sharesMemory(w) {
		spec = append(spec, field{"volumes", []object{{{"name", "shm"}, {"emptyDir", object{{"medium", "Memory"}}}}}})
	}
	return append(spec, field{"containers", []object{container(w, claims)}})
}

func container(w *Work, claims bool) object {
	words := make([]string, len(command(w)))
	for i, word := range command(w) {
		words[i] = unexpanded(word)
	}
	c := object{{"name", "main"}, {"image", w.Image}, {"command", words}}.with(w.Folder != "", "workingDir", w.Folder)
	var env []object
	if len(w.Array.Tasks) > 0 {
		env = append(env, object{{"name", "GPUARD_ARRAY_TASK"}, {"valueFrom", object{{"fieldRef", object{{"fieldPath", "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}}}}})
	}
	for _, v := range variables(w) {
		env = append(env, object{{"name", v.Name}, {"value", unexpanded(v.Value)}})
	}
	c = append(c, field{"env", env})
	if sharesMemory(w) {
		c = append(c, field{"volumeMounts", []object{{{"name", "shm"}, {"mountPath", "/dev/shm"}}}})
	}
	switch {
	case claims:
		c = append(c, field{"resources", object{{"claims", []object{{{"name", "gpus"}}}}}})
	case w.Spec.MIG != "":
		c = append(c, field{"resources", object{{"limits", object{{"nvidia.com/mig-" + strings.ReplaceAll(w.Spec.MIG, "+", "."), 1}}}}})
	case !w.Spec.CPU:
		c = append(c, field{"resources", object{{"limits", object{{"nvidia.com/gpu", w.Spec.GPUs}}}}})
	}
	return c
}

// unexpanded keeps Kubernetes from filling in $(NAME) in commands and variables: there $$ is one $
// (kubernetes/kubernetes: third_party/forked/golang/expansion/expand.go).
func unexpanded(text string) string {
	if !strings.Contains(text, "$(") && !strings.Contains(text, "$$") {
		return text
	}
	return strings.ReplaceAll(text, "$", "$$")
}

// nodes are the nodes that will do. Labels describe a node, so they assume that its GPUs are of one model; Gt is strict.
// A node without sharing may lack the label of it, which NotIn allows.
func nodes(w *Work) []object {
	label := func(key, operator string, values ...string) object {
		return object{{"key", key}, {"operator", operator}, {"values", values}}
	}
	terms := []object{label("nvidia.com/gpu.sharing-strategy", "NotIn", "time-slicing", "mps")}
	if w.Spec.Model != "" {
		terms = append(terms, label("nvidia.com/gpu.product", "In", productLabel(w.Spec.Model)))
	}
	if w.Spec.Memory > 0 {
		terms = append(terms, label("nvidia.com/gpu.memory", "Gt", strconv.FormatInt(mebibytes(w.Spec.Memory)-1, 10)))
	}
	c := w.Spec.MinCompute
	if c == nil {
		return []object{{{"matchExpressions", terms}}}
	}
	const major, minor = "nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor"
	more := func(extra ...object) object {
		return object{{"matchExpressions", append(terms[:len(terms):len(terms)], extra...)}}
	}
	if c.Minor == 0 {
		return []object{more(label(major, "Gt", strconv.Itoa(c.Major-1)))}
	}
	return []object{more(label(major, "Gt", strconv.Itoa(c.Major))), more(label(major, "In", strconv.Itoa(c.Major)), label(minor, "Gt", strconv.Itoa(c.Minor-1)))}
}

// claimTemplate asks for devices one by one, so that a node with several models is no difficulty.
func claimTemplate(w *Work) object {
	class, count := driver, w.Spec.GPUs
	if w.Spec.MIG != "" {
		class, count = "mig.nvidia.com", 1
	}
	if len(w.Spec.Devices) > 0 {
		count = len(w.Spec.Devices)
	}
	exactly := object{{"deviceClassName", class}, {"allocationMode", "ExactCount"}, {"count", count}}
	if e := selector(w); e != "" {
		exactly = append(exactly, field{"selectors", []object{{{"cel", object{{"expression", e}}}}}})
	}
	return object{{"apiVersion", "resource.k8s.io/v1"}, {"kind", "ResourceClaimTemplate"}, {"metadata", metadata(w, labels(w))},
		{"spec", object{{"spec", object{{"devices", object{{"requests", []object{{{"name", "gpu"}, {"exactly", exactly}}}}}}}}}}}
}

// selector is the condition for a device, in CEL. A device that lacks an attribute does not match: without .? it would
// be an error, which ends the allocation of the whole claim (kubernetes/kubernetes:
// staging/src/k8s.io/dynamic-resource-allocation/structured). The name is looked at behind has: the API server knows how
// long an attribute can be, and not a value of orValue, and refuses what might be costly (the same, cel/compile.go).
func selector(w *Work) string {
	attribute := func(name, none string) string {
		return fmt.Sprintf("device.attributes['%s'].?%s.orValue(%s)", driver, name, none)
	}
	var terms []string
	if w.Spec.MIG != "" {
		terms = append(terms, attribute("profile", "''")+" == "+literal(w.Spec.MIG))
	}
	if w.Spec.Model != "" {
		product := "device.attributes['" + driver + "'].productName"
		terms = append(terms, "has("+product+") && "+product+".matches("+literal(expression(w.Spec.Model))+")")
	}
	if w.Spec.Memory > 0 {
		terms = append(terms, fmt.Sprintf("device.capacity['%s'].?memory.orValue(quantity('0')).compareTo(quantity('%dMi')) >= 0", driver, mebibytes(w.Spec.Memory)))
	}
	if c := w.Spec.MinCompute; c != nil {
		terms = append(terms, fmt.Sprintf("%s.compareTo(semver('%d.%d.0')) >= 0", attribute("cudaComputeCapability", "semver('0.0.0')"), c.Major, c.Minor))
	}
	if len(w.Spec.Devices) > 0 {
		terms = append(terms, attribute("uuid", "''")+" in "+literals(w.Spec.Devices))
	}
	if len(w.Spec.Exclude) > 0 {
		terms = append(terms, "!("+attribute("uuid", "''")+" in "+literals(w.Spec.Exclude)+")")
	}
	return strings.Join(terms, " && ")
}

func literal(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`, "\r", `\r`).Replace(text) + "'"
}

func literals(list []string) string {
	var out []string
	for _, one := range list {
		out = append(out, literal(one))
	}
	return "[" + strings.Join(out, ", ") + "]"
}

package handoff

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
)

// jobTTLSeconds is how long a Job and its logs stay when it has ended.
const jobTTLSeconds = 7 * 24 * 60 * 60

// draDriver is the domain of the attributes of NVIDIA's DRA driver (kubernetes-sigs/dra-driver-nvidia-gpu:
// site/content/docs/reference/resourceslice-attributes.md).
const draDriver = "gpu.nvidia.com"

// jobManifest is the work as a Job, with claims behind the template of its claim.
func jobManifest(w *Work, claims bool) string {
	claims = claims && !w.Spec.CPU
	var text string
	if claims {
		text = claimTemplate(w).yamlDocument() + "---\n"
	}

	doc := object{{"apiVersion", "batch/v1"}, {"kind", "Job"}, {"metadata", objectMetadata(w, objectLabels(w).withField(w.Queue != "", "kueue.x-k8s.io/queue-name", w.Queue)).
		withField(len(jobAnnotations(w)) > 0, "annotations", jobAnnotations(w))}}

	spec := object{}.withField(w.Held, "suspend", true)
	spec = append(spec, repeatSpec(w)...)
	spec = append(spec, field{"ttlSecondsAfterFinished", jobTTLSeconds},
		field{"template", object{{"metadata", object{{"labels", objectLabels(w)}}}, {"spec", podSpec(w, claims)}}})

	return text + append(doc, field{"spec", spec}).yamlDocument()
}

func objectLabels(w *Work) object {
	return object{{"app.kubernetes.io/managed-by", "gpuard"}, {"app.kubernetes.io/instance", objectName(w)}}
}

func objectMetadata(w *Work, own object) object {
	return object{{"name", objectName(w)}}.withField(w.Namespace != "", "namespace", w.Namespace).withField(true, "labels", own)
}

func jobAnnotations(w *Work) object {
	return object{}.
		withField(w.Spec.Name != "" && hasOddName(w), "gpuard/name", strings.ToValidUTF8(w.Spec.Name, "?")).
		withField(w.Note != "", "gpuard/note", strings.ToValidUTF8(w.Note, "?")).
		withField(w.Spec.Time > 0, "gpuard/expect", w.Spec.Time.String())
}

// repeatSpec says how often it is started. Without Any only pods that were evicted, or whose node failed, are started
// again. An array goes on when one of its jobs fails.
func repeatSpec(w *Work) object {
	failures := w.Care.Retries
	if w.Care.Restart == job.OnFailure {
		failures = cmp.Or(w.Care.Limit, 1<<31-1)
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
		{{"action", fails}, {"onExitCodes", object{{"operator", "NotIn"}, {"values", intList{0}}}}},
	}}}})
}

func podSpec(w *Work, claims bool) object {
	limit := w.Spec.Timeout > 0
	spec := object{{"restartPolicy", "Never"}}.
		withField(limit, "activeDeadlineSeconds", ceilSeconds(w.Spec.Timeout)).
		withField(w.Spec.Grace > 0, "terminationGracePeriodSeconds", ceilSeconds(w.Spec.Grace))

	if !w.Spec.CPU {
		spec = append(spec, field{"tolerations", []object{{{"key", "nvidia.com/gpu"}, {"operator", "Exists"}, {"effect", "NoSchedule"}}}})
	}

	if !w.Spec.CPU && !claims {
		spec = append(spec, field{"affinity", object{{"nodeAffinity", object{{"requiredDuringSchedulingIgnoredDuringExecution", object{{"nodeSelectorTerms", nodeSelectorTerms(w)}}}}}}})
	}

	if claims {
		spec = append(spec, field{"resourceClaims", []object{{{"name", "gpus"}, {"resourceClaimTemplateName", objectName(w)}}}})
	}

	if sharesMemory(w) {
		spec = append(spec, field{"volumes", []object{{{"name", "shm"}, {"emptyDir", object{{"medium", "Memory"}}}}}})
	}

	return append(spec, field{"containers", []object{containerSpec(w, claims)}})
}

func containerSpec(w *Work, claims bool) object {
	words := prose.Texts(startCommand(w), escapeExpansion)

	c := object{{"name", "main"}, {"image", w.Image}, {"command", words}}.withField(w.Folder != "", "workingDir", w.Folder)
	var env []object
	if len(w.Array.Tasks) > 0 {
		env = append(env, object{{"name", "GPUARD_ARRAY_TASK"}, {"valueFrom", object{{"fieldRef", object{{"fieldPath", "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}}}}})
	}

	for _, v := range jobVariables(w) {
		env = append(env, object{{"name", v.Name}, {"value", escapeExpansion(v.Value)}})
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

// escapeExpansion keeps Kubernetes from filling in $(NAME) in commands and variables: there $$ is one $
// (kubernetes/kubernetes: third_party/forked/golang/expansion/expand.go).
func escapeExpansion(text string) string {
	if !strings.Contains(text, "$(") && !strings.Contains(text, "$$") {
		return text
	}
	return strings.ReplaceAll(text, "$", "$$")
}

// nodeSelectorTerms are the nodes that will do. Labels describe a node, so they assume that its GPUs are of one model;
// Gt is strict. A node without sharing may lack the label of it, which NotIn allows.
func nodeSelectorTerms(w *Work) []object {
	label := func(key, operator string, values ...string) object {
		return object{{"key", key}, {"operator", operator}, {"values", values}}
	}

	terms := []object{label("nvidia.com/gpu.sharing-strategy", "NotIn", "time-slicing", "mps")}
	if w.Spec.Model != "" {
		terms = append(terms, label("nvidia.com/gpu.product", "In", productLabel(w.Spec.Model)))
	}

	if w.Spec.Memory > 0 {
		terms = append(terms, label("nvidia.com/gpu.memory", "Gt", strconv.FormatInt(ceilMebibytes(w.Spec.Memory)-1, 10)))
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
	class, count := draDriver, w.Spec.GPUs
	if w.Spec.MIG != "" {
		class, count = "mig.nvidia.com", 1
	}

	if len(w.Spec.Devices) > 0 {
		count = len(w.Spec.Devices)
	}

	exactly := object{{"deviceClassName", class}, {"allocationMode", "ExactCount"}, {"count", count}}
	if e := deviceSelector(w); e != "" {
		exactly = append(exactly, field{"selectors", []object{{{"cel", object{{"expression", e}}}}}})
	}

	return object{{"apiVersion", "resource.k8s.io/v1"}, {"kind", "ResourceClaimTemplate"}, {"metadata", objectMetadata(w, objectLabels(w))},
		{"spec", object{{"spec", object{{"devices", object{{"requests", []object{{{"name", "gpu"}, {"exactly", exactly}}}}}}}}}}}
}

// deviceSelector is the condition for a device, in CEL. A device that lacks an attribute does not match: without .? it
// would be an error, which ends the allocation of the whole claim (kubernetes/kubernetes:
// staging/src/k8s.io/dynamic-resource-allocation/structured). The name is looked at behind has: the API server knows
// how long an attribute can be, and not a value of orValue, and refuses what might be costly (the same,
// cel/compile.go).
func deviceSelector(w *Work) string {
	attribute := func(name, none string) string {
		return fmt.Sprintf("device.attributes['%s'].?%s.orValue(%s)", draDriver, name, none)
	}

	var terms []string
	if w.Spec.MIG != "" {
		terms = append(terms, attribute("profile", "''")+" == "+celString(w.Spec.MIG))
	}

	if w.Spec.Model != "" {
		product := "device.attributes['" + draDriver + "'].productName"
		terms = append(terms, "has("+product+") && "+product+".matches("+celString(globRegexp(w.Spec.Model))+")")
	}

	if w.Spec.Memory > 0 {
		terms = append(terms, fmt.Sprintf("device.capacity['%s'].?memory.orValue(quantity('0')).compareTo(quantity('%dMi')) >= 0", draDriver, ceilMebibytes(w.Spec.Memory)))
	}

	if c := w.Spec.MinCompute; c != nil {
		terms = append(terms, fmt.Sprintf("%s.compareTo(semver('%d.%d.0')) >= 0", attribute("cudaComputeCapability", "semver('0.0.0')"), c.Major, c.Minor))
	}

	if len(w.Spec.Devices) > 0 {
		terms = append(terms, attribute("uuid", "''")+" in "+celList(w.Spec.Devices))
	}

	if len(w.Spec.Exclude) > 0 {
		terms = append(terms, "!("+attribute("uuid", "''")+" in "+celList(w.Spec.Exclude)+")")
	}

	return strings.Join(terms, " && ")
}

func celString(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`, "\r", `\r`).Replace(text) + "'"
}

func celList(list []string) string {
	return "[" + strings.Join(prose.Texts(list, celString), ", ") + "]"
}

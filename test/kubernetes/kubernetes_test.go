// Package kubernetes reads what gpuard export writes with the types and the rules of Kubernetes itself: decoded strictly,
// node selectors by the scheduler's own matching, CEL compiled and evaluated by the official package. It is a module of
// its own, so that gpuard does not depend on Kubernetes.
package kubernetes

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/handoff"
	"gpuard/internal/core/job"
	"gpuard/test/works"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/yaml"
	strict "sigs.k8s.io/yaml"
)

// manifestObjects are what a manifest holds.
type manifestObjects struct {
	job      batch.Job
	template *resource.ResourceClaimTemplate
}

// decodeManifest decodes a manifest as kubectl splits it, and as the API server with fieldValidation=Strict does: an unknown field, or
// one that is there twice, is an error.
func decodeManifest(t *testing.T, text string) (o manifestObjects) {
	t.Helper()
	docs := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader([]byte(text))))
	defer docs.Close() //nolint:errcheck // of a buffer
	buffer := make([]byte, 2<<20)
	for {
		n, err := docs.Read(buffer)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		doc := buffer[:n]
		if bytes.Contains(doc, []byte("kind: ResourceClaimTemplate")) && bytes.HasPrefix(doc, []byte("apiVersion: resource")) {
			o.template = &resource.ResourceClaimTemplate{}
			err = strict.UnmarshalStrict(doc, o.template)
		} else {
			err = strict.UnmarshalStrict(doc, &o.job)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
	}
	if o.job.APIVersion != "batch/v1" || o.job.Kind != "Job" || len(o.job.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("no Job with one container:\n%s", text)
	}
	return o
}

// TestBack: 200 random jobs for each form. What is not refused is decoded strictly, has names and labels that the API
// takes, and everything that was promised is in the objects.
func TestBack(t *testing.T) {
	for _, target := range []handoff.Target{handoff.Kubernetes, handoff.KubernetesDRA} {
		t.Run(string(target), func(t *testing.T) {
			random := rand.New(rand.NewPCG(5, 6))
			written, refused := 0, 0
			for written < 200 {
				w := works.Random(random)
				if written == 0 {
					w = works.Named(random, "./run")
					w.Env = append(w.Env, handoff.Variable{Name: "LARGE", Value: strings.Repeat("$(x) '\"\n", 100<<10/8)})
				}
				out, err := handoff.Write(target, w, works.Site())
				var refusal *job.Refusal
				if errors.As(err, &refusal) {
					checkRefused(t, target, w, out)
					if refused++; refused > 40_000 {
						t.Fatal("nearly everything is refused")
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				written++
				o := decodeManifest(t, out.Text)
				checkNames(t, &w, out, o)
				checkJob(t, &w, &o.job)
				checkPod(t, &w, &o.job.Spec.Template.Spec)
				checkDevices(t, &w, o, target == handoff.KubernetesDRA)
			}
			t.Logf("%d written, %d refused", written, refused)
		})
	}
}

// checkRefused: only what has no place in the API is refused.
func checkRefused(t *testing.T, target handoff.Target, w handoff.Work, out handoff.Output) {
	may := []string{"Care.Stop", "Care.Log", "Spec.Nice", "After", "Array.Tasks", "Held"}
	if target == handoff.Kubernetes {
		may = append(may, "Spec.Devices", "Spec.Exclude", "Spec.Model")
	}
	for _, v := range out.Verdicts {
		if v.Level == handoff.Refused && !slices.Contains(may, v.Field) {
			t.Fatalf("%+v of %+v", v, w)
		}
	}
}

func checkNames(t *testing.T, w *handoff.Work, out handoff.Output, o manifestObjects) {
	meta := o.job.ObjectMeta
	for _, why := range slices.Concat(validation.IsDNS1123Label(meta.Name), validation.IsDNS1123Label(meta.Name+"-9999")) {
		t.Fatalf("name %s: %s", meta.Name, why)
	}
	if meta.Name != out.Name || meta.Namespace != w.Namespace || meta.Labels["kueue.x-k8s.io/queue-name"] != w.Queue || meta.Annotations["gpuard/note"] != w.Note {
		t.Fatalf("%+v of %+v", meta, w)
	}
	if name := meta.Annotations["gpuard/name"]; w.Spec.Name != "" && name != w.Spec.Name && !strings.HasPrefix(meta.Name, w.Spec.Name+"-") {
		t.Fatalf("the name %q is %q", w.Spec.Name, name)
	}
	for _, labels := range []map[string]string{meta.Labels, o.job.Spec.Template.Labels} {
		if labels["app.kubernetes.io/managed-by"] != "gpuard" || labels["app.kubernetes.io/instance"] != meta.Name {
			t.Fatalf("labels %v", labels)
		}
		for key, value := range labels {
			for _, why := range slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)) {
				t.Fatalf("label %s=%s: %s", key, value, why)
			}
		}
	}
	for key := range meta.Annotations {
		for _, why := range validation.IsQualifiedName(key) {
			t.Fatalf("annotation %s: %s", key, why)
		}
	}
	if o.template != nil && (o.template.Name != meta.Name || o.template.Namespace != w.Namespace) {
		t.Fatalf("%+v", o.template.ObjectMeta)
	}
}

func checkJob(t *testing.T, w *handoff.Work, j *batch.Job) {
	limit := j.Spec.BackoffLimit
	if n := len(w.Array.Tasks); n > 0 {
		limit = j.Spec.BackoffLimitPerIndex
		if j.Spec.CompletionMode == nil || *j.Spec.CompletionMode != batch.IndexedCompletion || *j.Spec.Completions != int32(n) || *j.Spec.Parallelism > int32(n) ||
			w.Array.Most > 0 && *j.Spec.Parallelism > int32(w.Array.Most) {
			t.Fatalf("%+v of %+v", j.Spec, w.Array)
		}
	}
	policy := j.Spec.PodFailurePolicy
	switch {
	case limit == nil || *limit != int32(w.Care.Retries):
		t.Fatalf("it is started again %v times, asked were %d", limit, w.Care.Retries)
	case w.Care.Retries > 0 && !w.Care.Any && (policy == nil || len(policy.Rules) != 2 || policy.Rules[0].Action != batch.PodFailurePolicyActionCount):
		t.Fatalf("%+v", policy)
	case w.Care.Any && policy != nil:
		t.Fatalf("%+v", policy)
	case (j.Spec.Suspend != nil && *j.Spec.Suspend) != w.Held || j.Spec.TTLSecondsAfterFinished == nil || j.Spec.ActiveDeadlineSeconds != nil:
		t.Fatalf("%+v", j.Spec)
	}
}

func checkPod(t *testing.T, w *handoff.Work, pod *core.PodSpec) {
	c := &pod.Containers[0]
	if pod.RestartPolicy != core.RestartPolicyNever || c.Image != w.Image || c.WorkingDir != w.Folder {
		t.Fatalf("%+v", pod)
	}
	if w.Spec.Timeout > 0 {
		if d := time.Duration(*pod.ActiveDeadlineSeconds) * time.Second; d < w.Spec.Timeout || d >= w.Spec.Timeout+time.Second {
			t.Fatalf("%v instead of %v", d, w.Spec.Timeout)
		}
	}
	if w.Spec.Grace > 0 && *pod.TerminationGracePeriodSeconds != int64(w.Spec.Grace/time.Second) {
		t.Fatal(*pod.TerminationGracePeriodSeconds)
	}
	values := map[string]string{}
	for _, v := range c.Env {
		for _, why := range validation.IsEnvVarName(v.Name) {
			t.Fatalf("variable %s: %s", v.Name, why)
		}
		values[v.Name] = expandVariables(v.Value, values)
	}
	var words []string
	for _, word := range c.Command {
		words = append(words, expandVariables(word, values))
	}
	if !slices.Equal(words[len(words)-len(w.Spec.Command):], w.Spec.Command) || (len(words) > len(w.Spec.Command)) != (w.Spec.Ranks != nil) {
		t.Fatalf("%q instead of %q", words, w.Spec.Command)
	}
	for _, v := range w.Env {
		if values[v.Name] != v.Value {
			t.Fatalf("%s is %q instead of %q", v.Name, values[v.Name], v.Value)
		}
	}
	if _, there := values["CUDA_VISIBLE_DEVICES"]; there != w.Spec.CPU {
		t.Fatal("CUDA_VISIBLE_DEVICES belongs to the engine, and is written only to hide all devices")
	}
	if task := slices.IndexFunc(c.Env, func(v core.EnvVar) bool { return v.Name == "GPUARD_ARRAY_TASK" }); (task >= 0) != (len(w.Array.Tasks) > 0) {
		t.Fatalf("%+v", c.Env)
	}
}

// expandVariables fills in $(NAME) as the kubelet does (kubernetes/kubernetes: third_party/forked/golang/expansion/expand.go).
func expandVariables(text string, values map[string]string) string {
	return regexp.MustCompile(`\$\$|\$\([^)]*\)`).ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		if value, known := values[found[2:len(found)-1]]; known {
			return value
		}
		return found
	})
}

// checkDevices: as many devices as were asked for, of the resource or the class that has them.
func checkDevices(t *testing.T, w *handoff.Work, o manifestObjects, claims bool) {
	pod := &o.job.Spec.Template.Spec
	limits := pod.Containers[0].Resources.Limits
	if w.Spec.CPU {
		if len(limits) > 0 || o.template != nil || len(pod.ResourceClaims) > 0 {
			t.Fatalf("devices for a job that wants none: %+v", limits)
		}
		return
	}
	if !claims {
		name, count := core.ResourceName("nvidia.com/gpu"), int64(w.Spec.GPUs)
		if w.Spec.MIG != "" {
			name, count = core.ResourceName("nvidia.com/mig-"+strings.ReplaceAll(w.Spec.MIG, "+", ".")), 1
		}
		if got := limits[name]; len(limits) != 1 || got.Value() != count || len(validation.IsQualifiedName(string(name))) > 0 {
			t.Fatalf("%v instead of %d of %s", limits, count, name)
		}
		return
	}
	if o.template == nil || len(limits) > 0 || len(pod.ResourceClaims) != 1 || *pod.ResourceClaims[0].ResourceClaimTemplateName != o.template.Name || pod.Containers[0].Resources.Claims[0].Name != pod.ResourceClaims[0].Name {
		t.Fatalf("the claim is not used: %+v", pod.ResourceClaims)
	}
	exactly := o.template.Spec.Spec.Devices.Requests[0].Exactly
	class, count := "gpu.nvidia.com", int64(max(w.Spec.GPUs, len(w.Spec.Devices)))
	if w.Spec.MIG != "" {
		class, count = "mig.nvidia.com", 1
	}
	if exactly.DeviceClassName != class || exactly.Count != count || exactly.AllocationMode != resource.DeviceAllocationModeExactCount {
		t.Fatalf("%+v instead of %d of %s", exactly, count, class)
	}
}

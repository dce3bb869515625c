package kubernetes

import (
	"os"
	"strings"
	"testing"

	"gpuard/internal/core/handoff"
	"gpuard/internal/core/job"
	"gpuard/internal/core/policy"

	batch "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	strict "sigs.k8s.io/yaml"
)

// TestOverlay: the file that the page on Kubernetes shows is laid over a Job for two GPUs as kubectl patch does it: what it
// says is there, and what gpuard wrote still is.
func TestOverlay(t *testing.T) {
	page, err := os.ReadFile("../../docs/how-to/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(page), "with `site.yaml`:\n\n")
	block, _, ends := strings.Cut(block, "\n\n")
	if !found || !ends {
		t.Fatal("the page has no site.yaml")
	}
	patch, err := strict.YAMLToJSON([]byte(block))
	if err != nil {
		t.Fatal(err)
	}
	out, err := handoff.Write(handoff.Kubernetes, handoff.Work{Spec: job.Spec{Command: []string{"python", "train.py"}, GPUs: 2}, Image: "train:1"}, policy.Slurm{})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := strict.YAMLToJSON([]byte(out.Text))
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(whole, patch, batch.Job{})
	if err != nil {
		t.Fatal(err)
	}
	pod := decodeManifest(t, string(merged)).job.Spec.Template.Spec
	main := pod.Containers[0]
	gpus := main.Resources.Limits["nvidia.com/gpu"]
	if len(pod.Volumes) != 2 || len(main.VolumeMounts) != 2 || len(pod.ImagePullSecrets) != 1 || main.Image != "train:1" || main.Command[0] != "python" ||
		gpus.Value() != 2 || main.Resources.Requests.Cpu().Value() != 8 {
		t.Errorf("%s", merged)
	}
}

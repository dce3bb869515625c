package kubernetes

import (
	"context"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/handoff"
	"gpuard/internal/core/job"
	"gpuard/internal/core/policy"
	"gpuard/test/works"

	core "k8s.io/api/core/v1"
	"k8s.io/api/resource/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/cel"
)

// gpuModel is a GPU as node labels and the DRA driver describe it.
type gpuModel struct {
	name         string
	mebibytes    int64 // 0: unified memory, of which neither says anything
	major, minor int
	uuid         string
	shared       string // strategy; "" no label
}

func gpuModels() []gpuModel {
	return []gpuModel{
		{"NVIDIA H100 80GB HBM3", 81559, 9, 0, works.UUID(rand.New(rand.NewPCG(1, 1))), ""},
		{"NVIDIA A100-SXM4-80GB", 81920, 8, 0, works.UUID(rand.New(rand.NewPCG(2, 1))), "none"},
		{"NVIDIA A100-SXM4-40GB", 40960, 8, 0, works.UUID(rand.New(rand.NewPCG(3, 1))), ""},
		{"NVIDIA L4", 23034, 8, 9, works.UUID(rand.New(rand.NewPCG(4, 1))), ""},
		{"Tesla T4", 15360, 7, 5, works.UUID(rand.New(rand.NewPCG(5, 1))), "time-slicing"},
		{"NVIDIA GB10", 0, 12, 1, works.UUID(rand.New(rand.NewPCG(6, 1))), ""},
	}
}

// makeNode is a node with GPUs of one card, with the labels that GPU Feature Discovery writes.
func (c gpuModel) makeNode() *core.Node {
	labels := map[string]string{"nvidia.com/gpu.product": strings.ReplaceAll(c.name, " ", "-"), "nvidia.com/gpu.compute.major": strconv.Itoa(c.major), "nvidia.com/gpu.compute.minor": strconv.Itoa(c.minor)}
	if c.mebibytes > 0 {
		labels["nvidia.com/gpu.memory"] = strconv.FormatInt(c.mebibytes, 10)
	}
	if c.shared != "" {
		labels["nvidia.com/gpu.sharing-strategy"] = c.shared
	}
	return &core.Node{ObjectMeta: meta.ObjectMeta{Name: "n", Labels: labels}}
}

// draDevice is the same card as NVIDIA's DRA driver publishes it.
func (c gpuModel) draDevice(t *testing.T) cel.Device {
	version := strconv.Itoa(c.major) + "." + strconv.Itoa(c.minor) + ".0"
	d := cel.Device{Driver: "gpu.nvidia.com", Attributes: map[v1.QualifiedName]v1.DeviceAttribute{
		"productName": {StringValue: &c.name}, "uuid": {StringValue: &c.uuid}, "cudaComputeCapability": {VersionValue: &version}, "type": {StringValue: new("gpu")},
	}}
	if c.mebibytes > 0 {
		d.Capacity = map[v1.QualifiedName]v1.DeviceCapacity{"memory": {Value: *quantity.NewQuantity(c.mebibytes<<20, quantity.BinarySI)}}
	}
	return d
}

// isSuitable says what the job means by itself.
func (c gpuModel) isSuitable(s *job.Spec) bool {
	model := regexp.MustCompile("(?is)^" + strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(s.Model)) + "$")
	return (s.Model == "" || model.MatchString(c.name)) && (s.Memory == 0 || c.mebibytes > 0 && gpu.Bytes(c.mebibytes)*gpu.MiB >= s.Memory) &&
		(s.MinCompute == nil || c.major > s.MinCompute.Major || c.major == s.MinCompute.Major && c.minor >= s.MinCompute.Minor) &&
		(len(s.Devices) == 0 || slices.Contains(s.Devices, c.uuid)) && !slices.Contains(s.Exclude, c.uuid)
}

// randomSpec are random limits, of which some are met exactly.
func randomSpec(random *rand.Rand) job.Spec {
	s := job.Spec{Command: []string{"x"}, GPUs: 1}
	c := gpuModels()[random.IntN(len(gpuModels()))]
	if random.IntN(2) == 0 {
		s.Model = []string{c.name, c.name, "*80GB*", "nvidia*", "*L?", "*it's \\ \"*"}[random.IntN(6)]
	}
	if random.IntN(2) == 0 {
		s.Memory = []gpu.Bytes{gpu.Bytes(c.mebibytes) * gpu.MiB, gpu.Bytes(c.mebibytes)*gpu.MiB + 1, 40 * gpu.GiB, 1}[random.IntN(4)]
	}
	if random.IntN(2) == 0 {
		s.MinCompute = &gpu.Capability{Major: c.major, Minor: c.minor + random.IntN(2)}
	}
	return s
}

// TestNodes: the scheduler's own matching accepts exactly the nodes whose GPUs the job means and that do not share them.
func TestNodes(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	matched, checked := 0, 0
	for range 2000 {
		s := randomSpec(random)
		out, err := handoff.Write(handoff.Kubernetes, handoff.Work{Spec: s, Image: "i"}, policy.Slurm{})
		if strings.ContainsAny(s.Model, "*?") {
			if err == nil {
				t.Fatalf("a pattern is not refused: %q", s.Model)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		terms := decodeManifest(t, out.Text).job.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		selector, err := nodeaffinity.NewNodeSelector(terms)
		if err != nil {
			t.Fatalf("%v\n%s", err, out.Text)
		}
		for _, c := range gpuModels() {
			fits := selector.Match(c.makeNode())
			want := c.isSuitable(&s) && c.shared != "time-slicing"
			if checked++; fits != want {
				t.Fatalf("%+v: %v, want %v\n%s", c, fits, want, out.Text)
			}
			if fits {
				matched++
			}
		}
	}
	t.Logf("%d of %d nodes match", matched, checked)
}

// TestSelectors: every expression compiles with the official package, within its limits of cost, and accepts exactly the
// devices that the job means; a device without memory is no error, which would end the allocation of the claim.
func TestSelectors(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	matched := 0
	for i := range 1000 {
		s := randomSpec(random)
		if random.IntN(3) == 0 {
			s.Exclude = []string{gpuModels()[random.IntN(6)].uuid, works.UUID(random)}
		}
		if random.IntN(4) == 0 {
			s.GPUs, s.Devices = 0, []string{gpuModels()[random.IntN(6)].uuid, gpuModels()[random.IntN(6)].uuid}
		}
		if i == 0 {
			s = job.Spec{Command: []string{"x"}, GPUs: 1, Memory: 1}
		}
		out, err := handoff.Write(handoff.KubernetesDRA, handoff.Work{Spec: s, Image: "i"}, policy.Slurm{})
		if err != nil {
			t.Fatal(err)
		}
		selectors := decodeManifest(t, out.Text).template.Spec.Spec.Devices.Requests[0].Exactly.Selectors
		if len(selectors) == 0 {
			continue
		}
		compiled := cel.GetCompiler(cel.Features{}).CompileCELExpression(selectors[0].CEL.Expression, cel.Options{})
		if compiled.Error != nil || compiled.MaxCost > v1.CELSelectorExpressionMaxCost {
			t.Fatalf("%v, cost %d\n%s", compiled.Error, compiled.MaxCost, selectors[0].CEL.Expression)
		}
		for _, c := range gpuModels() {
			fits, _, err := compiled.DeviceMatches(context.Background(), c.draDevice(t))
			if err != nil || fits != c.isSuitable(&s) {
				t.Fatalf("%+v: %v, %v, want %v\n%s", c, fits, err, c.isSuitable(&s), selectors[0].CEL.Expression)
			}
			if fits {
				matched++
			}
		}
	}
	if matched == 0 {
		t.Error("nothing matches")
	}
	t.Logf("%d devices match", matched)
}

// TestSlice: a claim for a slice accepts a slice of that profile, and nothing without one.
func TestSlice(t *testing.T) {
	out, err := handoff.Write(handoff.KubernetesDRA, handoff.Work{Spec: job.Spec{Command: []string{"x"}, MIG: "1g.10gb"}, Image: "i"}, policy.Slurm{})
	if err != nil {
		t.Fatal(err)
	}
	compiled := cel.GetCompiler(cel.Features{}).CompileCELExpression(decodeManifest(t, out.Text).template.Spec.Spec.Devices.Requests[0].Exactly.Selectors[0].CEL.Expression, cel.Options{})
	if compiled.Error != nil {
		t.Fatal(compiled.Error)
	}
	slice := cel.Device{Driver: "gpu.nvidia.com", Attributes: map[v1.QualifiedName]v1.DeviceAttribute{"profile": {StringValue: new("1g.10gb")}}}
	other := cel.Device{Driver: "gpu.nvidia.com", Attributes: map[v1.QualifiedName]v1.DeviceAttribute{"profile": {StringValue: new("3g.40gb")}}}
	for want, d := range map[*cel.Device]bool{&slice: true, &other: false} {
		if fits, _, err := compiled.DeviceMatches(context.Background(), *want); err != nil || fits != d {
			t.Errorf("%v, %v", fits, err)
		}
	}
	if fits, _, err := compiled.DeviceMatches(context.Background(), gpuModels()[0].draDevice(t)); err != nil || fits {
		t.Errorf("a whole GPU: %v, %v", fits, err)
	}
}

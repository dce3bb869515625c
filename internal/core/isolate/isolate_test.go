package isolate

import (
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

func TestChoose(t *testing.T) {
	const user = "only root may"
	all, none := Means{}, Means{"forbidden", "too old", user}
	both, onlyLandlock, onlyNamespace, onlyGroup := Means{Cgroup: user}, Means{"forbidden", "", user}, Means{"", "too old", user}, Means{"forbidden", "too old", ""}
	for _, c := range []struct {
		asked, required job.Isolation
		can             Means
		level           job.Isolation
		says            string // in the note or the refusal; "" neither
		refused         bool
	}{
		{"", "", both, "", "", false},
		{"off", "", none, "", "", false},
		{"auto", "", both, "namespace", "", false},
		{"auto", "", onlyLandlock, "landlock", "", false},
		{"auto", "", none, "", "nothing but variables keeps the job from other GPUs: namespace: forbidden; landlock: too old; cgroup: only root may", false},
		{"namespace", "", both, "namespace", "", false},
		{"namespace", "", onlyLandlock, "", "here works --isolate landlock", true},
		{"landlock", "", onlyNamespace, "", "cannot isolate the job by landlock: too old", true},
		{"landlock", "", none, "", "leave --isolate out", true},
		{"", "namespace", both, "namespace", "", false},
		{"off", "namespace", both, "namespace", "", false},
		{"", "namespace", onlyLandlock, "landlock", "", false},
		{"", "landlock", both, "landlock", "", false},
		{"auto", "landlock", both, "landlock", "", false},
		{"", "landlock", onlyNamespace, "", "as hard as --require-isolation landlock asks", true},
		{"landlock", "namespace", onlyLandlock, "landlock", "", false},
		{"namespace", "landlock", both, "", "at least landlock is required", true},
		{"namespace", "namespace", none, "", "forbidden", true},
		{"auto", "namespace", none, "", "forbidden", true},
		{"auto", "", all, "namespace", "", false},
		{"auto", "", onlyGroup, "cgroup", "", false},
		{"cgroup", "", all, "cgroup", "", false},
		{"cgroup", "cgroup", onlyGroup, "cgroup", "", false},
		{"cgroup", "", both, "", "cannot isolate the job by cgroup: only root may; here works --isolate namespace", true},
		{"cgroup", "namespace", all, "", "at least namespace is required", true},
		{"", "cgroup", all, "namespace", "", false},
		{"", "cgroup", onlyGroup, "cgroup", "", false},
		{"", "cgroup", onlyLandlock, "landlock", "", false},
		{"auto", "cgroup", none, "", "--require-isolation cgroup asks: namespace: forbidden; landlock: too old; cgroup: only root may", true},
		{"auto", "namespace", onlyGroup, "", "--require-isolation namespace asks: namespace: forbidden; landlock: too old; leave", true},
		{"auto", "landlock", onlyGroup, "", "--require-isolation landlock asks: landlock: too old; leave", true},
		{"namespace", "", onlyGroup, "", "here works --isolate cgroup", true},
		{"landlock", "namespace", onlyGroup, "", "leave --isolate out", true},
	} {
		level, note, refusal := ChooseLevel(c.asked, c.required, c.can)
		said := note
		if refusal != nil {
			said = refusal.Summary + "; " + refusal.Remedy
		}
		if level != c.level || !strings.Contains(said, c.says) || (said == "") != (c.says == "") || (refusal != nil) != c.refused || refusal != nil && !refusal.Never {
			t.Errorf("asked %q, required %q, %+v: %q, says %q", c.asked, c.required, c.can, level, said)
		}
		if again, _, _ := ChooseLevel(level, c.required, c.can); refusal == nil && again != level {
			t.Errorf("asked %q, required %q: %q, and of that %q", c.asked, c.required, level, again)
		}
	}
}

// machine has four GPUs whose minor numbers are not their indices, one of them in MIG mode, and one of AMD.
func machine() (gpu.Machine, []Node) {
	one := func(index, minor int, id gpu.UUID, pci string) gpu.Device {
		return gpu.Device{Index: index, Minor: &minor, UUID: id, PCI: pci, Vendor: gpu.NVIDIA}
	}
	m := gpu.Machine{Devices: []gpu.Device{one(0, 3, "GPU-a", "0000:01:00.0"), one(1, 2, "GPU-b", "0000:02:00.0"), one(2, 0, "GPU-c", "0000:03:00.0"), one(3, 1, "GPU-d", "0000:04:00.0"),
		{UUID: "GPU-amd", PCI: "0000:05:00.0", Vendor: gpu.AMD, Minor: new(132)}}}
	m.Devices[3].MIG = []gpu.MIGDevice{{UUID: "MIG-x", GPUInstance: 1}, {UUID: "MIG-y", GPUInstance: 1, ComputeInstance: 1}, {UUID: "MIG-z", GPUInstance: 2}}
	nodes := []Node{{Path: "0", Number: 0}, {Path: "1", Number: 1}, {Path: "2", Number: 2}, {Path: "3", Number: 3}, {Path: "9", Number: 9},
		{Path: "gi1", Kind: Capability, Number: 1, GPUInstance: 1, ComputeInstance: -1}, {Path: "gi1ci0", Kind: Capability, Number: 1, GPUInstance: 1},
		{Path: "gi1ci1", Kind: Capability, Number: 1, GPUInstance: 1, ComputeInstance: 1}, {Path: "gi2", Kind: Capability, Number: 1, GPUInstance: 2, ComputeInstance: -1},
		{Path: "gi2ci0", Kind: Capability, Number: 1, GPUInstance: 2},
		{Path: "card a", Kind: Graphics, PCI: "0000:01:00.0"}, {Path: "render a", Kind: Render, PCI: "0000:01:00.0"}, {Path: "render c", Kind: Render, PCI: "0000:03:00.0"}, {Path: "render amd", Kind: Render, PCI: "0000:05:00.0"},
		{Path: "unread card", Kind: Graphics, PCI: "0000:06:00.0"}, {Path: "unread render", Kind: Render, PCI: "0000:06:00.0"}, {Path: "unknown", Kind: Graphics}, {Path: "kfd", Kind: AMDCompute},
		{Path: "screen", Kind: Graphics, PCI: "0000:00:02.0"}}
	return m, nodes
}

func given(ids ...gpu.UUID) (list []job.Given) {
	for _, id := range ids {
		list = append(list, job.Given{UUID: id, Label: string(id)})
	}
	return list
}

func TestClose(t *testing.T) {
	m, nodes := machine()
	for _, c := range []struct {
		given []job.Given
		open  string
	}{
		{given("GPU-a"), "3, card a, render a, screen"},
		{given("GPU-c", "GPU-a"), "0, 3, card a, render a, render c, screen"},
		{given("GPU-d"), "1, gi1, gi1ci0, gi1ci1, gi2, gi2ci0, screen"},
		{given("MIG-y"), "1, gi1, gi1ci1, screen"},
		{given("MIG-z"), "1, gi2, gi2ci0, screen"},
		{given("MIG-x", "MIG-y"), "1, gi1, gi1ci0, gi1ci1, screen"},
		{nil, ""},
	} {
		closed, refusal := FilesToClose(nodes, m, c.given)
		var open []string
		for _, n := range nodes {
			if !slices.Contains(closed, n.Path) {
				open = append(open, n.Path)
			}
		}
		if got := strings.Join(open, ", "); got != c.open || refusal != nil {
			t.Errorf("%v: open are %s, want %s (%v)", c.given, got, c.open, refusal)
		}
	}
}

// TestCloseUnread: a job without a device is kept from GPUs that nobody has read, of every vendor.
func TestCloseUnread(t *testing.T) {
	nodes := []Node{{Path: "kfd", Kind: AMDCompute}, {Path: "amd", Kind: Render, PCI: "0000:05:00.0"}, {Path: "intel", Kind: Graphics, PCI: "0000:00:02.0"}, {Path: "unknown", Kind: Render}}
	closed, refusal := FilesToClose(nodes, gpu.Machine{}, nil)
	if got := strings.Join(closed, " "); got != "kfd amd intel unknown" || refusal != nil {
		t.Errorf("closed are %s (%v)", got, refusal)
	}
}

// TestCloseRefuses: where it is not known which file is whose, nothing is left open by mistake.
func TestCloseRefuses(t *testing.T) {
	m, nodes := machine()
	unnumbered := m
	unnumbered.Devices = slices.Clone(m.Devices)
	unnumbered.Devices[0].Minor = nil
	for name, c := range map[string]struct {
		m     gpu.Machine
		nodes []Node
		id    gpu.UUID
		says  string
	}{
		"gone":                {m, nodes, "GPU-z", "not on the machine any more"},
		"no render node":      {m, nodes, "GPU-amd", "does not say which device file"},
		"Intel":               {gpu.Machine{Devices: []gpu.Device{{UUID: "GPU-i", Vendor: gpu.Intel}}}, nodes, "GPU-i", "NVIDIA and AMD alone"},
		"no number":           {unnumbered, nodes, "GPU-a", "does not say which device file"},
		"slice without files": {m, nodes[:5], "MIG-x", "no device file of a slice"},
	} {
		closed, refusal := FilesToClose(c.nodes, c.m, given(c.id))
		if refusal == nil || !strings.Contains(refusal.Summary, c.says) || refusal.Remedy == "" || !refusal.Never || closed != nil {
			t.Errorf("%s: %v, %+v", name, closed, refusal)
		}
	}
}

// TestUnmade: another slice of the own GPU whose file is not there yet is refused behind a namespace, where it could be opened later, and
// closed as what comes later under Landlock.
func TestUnmade(t *testing.T) {
	m, nodes := machine()
	all := nodes
	nodes = slices.Clone(nodes)
	for i := range nodes {
		if nodes[i].Path == "gi1ci1" || nodes[i].Path == "gi2" {
			nodes[i].Path = ""
		}
	}
	for _, c := range []struct {
		level job.Isolation
		nodes []Node
		id    gpu.UUID
		says  string
	}{
		{job.Namespace, nodes, "MIG-x", "sudo nvidia-modprobe -f /proc/driver/nvidia/capabilities/gpu1/mig/gi1/ci1/access; or write --isolate landlock"},
		{job.Namespace, nodes, "MIG-y", "/gpu1/mig/gi2/access"},
		{job.Namespace, nodes, "GPU-d", ""}, {job.Namespace, nodes, "GPU-a", ""}, {job.Namespace, all, "MIG-x", ""}, {job.Landlock, nodes, "MIG-x", ""},
		{job.Cgroup, nodes, "MIG-x", "write --isolate landlock"}, {job.Cgroup, all, "MIG-x", ""},
	} {
		refusal := CheckSliceFiles(c.level, c.nodes, m, given(c.id))
		if (refusal != nil) != (c.says != "") || refusal != nil && !strings.Contains(refusal.Remedy, c.says) {
			t.Errorf("%s behind %s: %+v", c.id, c.level, refusal)
		}
		closed, _ := FilesToClose(c.nodes, m, given(c.id))
		if slices.Contains(closed, "") {
			t.Errorf("%s: closes a file that is not there: %q", c.id, closed)
		}
	}
}

func TestMissing(t *testing.T) {
	for name, c := range map[string]struct {
		exist   string
		devices []job.Given
		refused bool
	}{
		"all are there":  {"/dev/nvidiactl /dev/nvidia-uvm", given("GPU-a"), false},
		"no driver here": {"", given("GPU-a"), false},
		"not yet":        {"/dev/nvidiactl", given("GPU-a"), true},
		"no GPU":         {"/dev/nvidiactl", nil, false},
		"of AMD":         {"/dev/nvidiactl", []job.Given{{UUID: "GPU-amd", Vendor: gpu.AMD}}, false},
	} {
		refusal := CheckSharedFiles(c.devices, func(path string) bool { return slices.Contains(strings.Fields(c.exist), path) })
		if (refusal != nil) != c.refused {
			t.Errorf("%s: %v", name, refusal)
		}
	}
}

// TestDoubt: what is known not to work is said for the level at which it does not, and for nothing else.
func TestDoubt(t *testing.T) {
	for program, levels := range map[string]string{"sudo": "cgroup namespace landlock", "runuser": "cgroup", "bwrap": "landlock", "podman": "namespace landlock", "python": "", "": ""} {
		for _, l := range append(Levels(), job.NoIsolation) {
			if got := ProgramDoubt(l, program); (got != "") != slices.Contains(strings.Fields(levels), string(l)) {
				t.Errorf("%s at %q: %q", program, l, got)
			}
		}
	}
}

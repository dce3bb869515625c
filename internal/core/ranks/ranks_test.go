package ranks

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/visible"
)

// TestCPUs: the kernel's lists are parsed, written the same way, and intersected with others.
func TestCPUs(t *testing.T) {
	for text, want := range map[string]string{
		"0-3": "0-3", "0": "0", "0-3,8,10-11\n": "0-3,8,10-11", "": "", "\n": "", "3,1,2": "1-3", "5-5": "5", "1,1,0-2": "0-2",
	} {
		c, err := ParseCPUs(text)
		if err != nil || c.String() != want {
			t.Errorf("%q is %q, %v; want %q", text, c, err, want)
		}
	}
	for _, text := range []string{"a", "3-1", "-1", "0-", "0-99999999999", "1;2", "0-9000"} {
		if c, err := ParseCPUs(text); err == nil {
			t.Errorf("%q is %v", text, c)
		}
	}
	half, _ := ParseCPUs("0-15,32-47")
	for other, want := range map[string]string{"8-40": "8-15,32-40", "16-31": "", "0-63": "0-15,32-47"} {
		o, _ := ParseCPUs(other)
		if got := half.Intersect(o).String(); got != want {
			t.Errorf("%s within %s is %q, want %q", half, other, got, want)
		}
	}
}

// TestEncode: Decode reads what Encode wrote, and rejects other text.
func TestEncode(t *testing.T) {
	crew := Crew{Port: 4711, FD: 7, Grace: time.Second, JSON: true, Members: []Member{
		{Node: 0, CPUs: "0-3", Vars: []visible.Var{{Name: "A", Value: "x=\"$y\""}, {Name: "B", Unset: true}}}, {Node: -1}}}
	text, err := crew.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Decode(text); err != nil || !reflect.DeepEqual(got, crew) {
		t.Errorf("%+v, %v", got, err)
	}
	most := Crew{Port: 65535, FD: 1 << 20, Grace: time.Hour, JSON: true, Members: slices.Repeat([]Member{{Node: -1}}, MaxRanks)}
	most.ShareThreads(nil, make(CPUs, maxCPUs))
	if text, err = most.Encode(); err != nil || len(Variable+"="+text) >= 128<<10 {
		t.Errorf("%d processes give %d bytes, %v", MaxRanks, len(text), err)
	}
	for _, text := range []string{"", "{}", "x", `{"members":[]}`} {
		if _, err := Decode(text); err == nil || !strings.Contains(err.Error(), "by hand") {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, rank := range []string{"", "2", "-1", "x"} {
		if m, err := crew.Member(rank); err == nil {
			t.Errorf("rank %q is %v", rank, m)
		}
	}
	if m, err := crew.Member("1"); err != nil || m.Node != -1 {
		t.Errorf("%v, %v", m, err)
	}
}

// find is the variable's value among vars, "-" where it is removed and "" where it is not mentioned.
func find(vars []visible.Var, name string) string {
	i := slices.IndexFunc(vars, func(v visible.Var) bool { return v.Name == name })
	switch {
	case i < 0:
		return ""
	case vars[i].Unset:
		return "-"
	}
	return vars[i].Value
}

// TestEnv: a rank gets the variables that torchrun would set, and none of an outer torchrun.
func TestEnv(t *testing.T) {
	crew := Crew{Port: 29871, Members: make([]Member, 4)}
	crew.Members[2].Vars = []visible.Var{{Name: "CUDA_VISIBLE_DEVICES", Value: "5"}}
	vars := crew.Env(2)
	for name, want := range map[string]string{
		"RANK": "2", "LOCAL_RANK": "2", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1",
		"NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29871", "CUDA_VISIBLE_DEVICES": "5",
		"TORCHELASTIC_USE_AGENT_STORE": "-", "TORCHELASTIC_RUN_ID": "-", "OMP_NUM_THREADS": "",
	} {
		if got := find(vars, name); got != want {
			t.Errorf("%s=%s, want %s", name, got, want)
		}
	}
}

// TestShareThreads: processors are divided among the ranks that use the same ones, each gets at least one, and the
// user's own number stays.
func TestShareThreads(t *testing.T) {
	allowed, _ := ParseCPUs("0-31")
	for _, c := range []struct {
		cpus []string
		env  visible.Env
		want string
	}{
		{[]string{"0-15", "0-15", "16-31", "16-31"}, nil, "8 8 8 8"},
		{[]string{"0-15", "16-31", "16-31"}, nil, "16 8 8"},
		{[]string{"", "", ""}, nil, "10 10 10"},
		{[]string{"0", "0"}, nil, "1 1"},
		{[]string{"", ""}, visible.Env{"OMP_NUM_THREADS=3"}, " "},
		{[]string{"", ""}, visible.Env{"OMP_NUM_THREADS="}, " "},
	} {
		crew := Crew{}
		for _, cpus := range c.cpus {
			crew.Members = append(crew.Members, Member{CPUs: cpus})
		}
		crew.ShareThreads(c.env, allowed)
		var got []string
		for i := range crew.Members {
			got = append(got, find(crew.Env(i), "OMP_NUM_THREADS"))
		}
		if text := strings.Join(got, " "); text != c.want || crew.ThreadCount() != got[0] {
			t.Errorf("%q with %v: %q, the first %q; want %q", c.cpus, c.env, text, crew.ThreadCount(), c.want)
		}
	}
	crew := Crew{Members: make([]Member, 2)}
	if crew.ShareThreads(nil, nil); crew.ThreadCount() != "" {
		t.Errorf("%s threads where the processors are unknown", crew.ThreadCount())
	}
}

// TestRemarks: old names and debugging settings, only of NCCL, each with its remedy.
func TestRemarks(t *testing.T) {
	for pair, want := range map[string]string{
		"NCCL_BLOCKING_WAIT=1":          "write TORCH_NCCL_BLOCKING_WAIT",
		"NCCL_ASYNC_ERROR_HANDLING=1":   "write TORCH_NCCL_ASYNC_ERROR_HANDLING",
		"NCCL_LL_THRESHOLD=0":           "leave it out",
		"NCCL_P2P_DISABLE=1":            "search for an error",
		"NCCL_SHM_DISABLE=1":            "search for an error",
		"NCCL_IB_DISABLE=1":             "search for an error",
		"NCCL_P2P_DISABLE=0":            "",
		"NCCL_DEBUG=WARN":               "",
		"NCCL_DEBUG=INFO":               "",
		"NCCL_SOCKET_IFNAME=eth0":       "",
		"TORCH_NCCL_BLOCKING_WAIT=1":    "",
		"PYTORCH_CUDA_ALLOC_CONF=x":     "",
		"CUDA_LAUNCH_BLOCKING=1":        "",
		"TORCH_NCCL_TRACE_BUFFER_SIZE=": "write TORCH_FR_BUFFER_SIZE",
	} {
		got := NCCLRemarks(visible.Env{pair})
		if text := strings.Join(got, "\n"); want == "" && text != "" || want != "" && (len(got) != 1 || !strings.Contains(text, want)) {
			t.Errorf("%s: %q, want %q", pair, got, want)
		}
	}
	if got := NCCLRemarks(visible.Env{"NCCL_BLOCKING_WAIT=1", "TORCH_NCCL_BLOCKING_WAIT=1"}); len(got) != 0 {
		t.Errorf("both names, for old and new versions: %q", got)
	}
}

// TestPlan checks the description.
func TestPlan(t *testing.T) {
	p := PlanOf(true, "all", make([]Member, 4))
	if got := p.String(); got != "4 ranks by torchrun at a port chosen at the start, each sees all devices" {
		t.Error(got)
	}
	p = PlanOf(false, "own", []Member{{CPUs: "0-3"}})
	p.Port = new(4711)
	if got := p.String(); got != "1 rank by gpuard at 127.0.0.1:4711, each sees its own device" {
		t.Error(got)
	}
	if got := PlanOf(false, "none", make([]Member, 2)).String(); got != "2 ranks by gpuard at a port chosen at the start" {
		t.Error(got)
	}
	if !slices.Equal(p.CPUs, []string{"0-3"}) {
		t.Error(p.CPUs)
	}
}

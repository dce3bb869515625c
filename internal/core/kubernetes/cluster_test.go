package kubernetes

import (
	"fmt"
	"strings"
	"testing"
)

func slice(node, pool string, generation int, devices ...string) string {
	var list []string
	for i, model := range devices {
		list = append(list, fmt.Sprintf(`{"name":"gpu-%d","attributes":{"type":{"string":"gpu"},"productName":{"string":%q}}}`, i, model))
	}
	return fmt.Sprintf(`{"spec":{"driver":"gpu.nvidia.com","nodeName":%q,"pool":{"name":%q,"generation":%d},"devices":[%s]}}`, node, pool, generation, strings.Join(list, ","))
}

func TestChoose(t *testing.T) {
	served := Answer[[]string]{Found: []string{"batch/v1", "resource.k8s.io/v1"}}
	class := Answer[[]string]{Found: []string{Driver}}
	offers := Answer[[]Slice]{Found: decode[[]Slice](t, "["+slice("a", "a", 1, "H100")+"]")}
	nodes := Answer[[]Node]{Found: decode[[]Node](t, `[{"status":{"allocatable":{"nvidia.com/gpu":"4"}}}]`)}
	refused := "forbidden"
	for _, c := range []struct {
		name string
		c    Cluster
		dra  bool
		why  string
	}{
		{"claims", Cluster{Serves: served, Classes: class, Slices: offers, Nodes: nodes}, true, "device class gpu.nvidia.com"},
		{"slices that cannot be read", Cluster{Serves: served, Classes: class, Slices: Answer[[]Slice]{Problem: refused}}, true, ""},
		{"too old", Cluster{Serves: Answer[[]string]{Found: []string{"batch/v1"}}, Classes: class, Nodes: nodes}, false, "does not serve resource.k8s.io/v1"},
		{"no class", Cluster{Serves: served, Nodes: nodes}, false, "no device class gpu.nvidia.com"},
		{"a driver without devices", Cluster{Serves: served, Classes: class, Nodes: nodes}, false, "offers no device"},
		{"classes that cannot be read", Cluster{Serves: served, Classes: Answer[[]string]{Problem: refused}, Nodes: nodes}, false, refused},
		{"nothing can be read", Cluster{Serves: served, Classes: class, Nodes: Answer[[]Node]{Problem: refused}}, false, "its nodes cannot be read"},
		{"neither", Cluster{Serves: served}, false, "no node offers nvidia.com/gpu"},
	} {
		if dra, why := c.c.ChooseForm(); dra != c.dra || !strings.Contains(why, c.why) {
			t.Errorf("%s: DRA %v because %q; want %v, …%q…", c.name, dra, why, c.dra, c.why)
		}
	}
}

func TestHosts(t *testing.T) {
	ready := `"conditions":[{"type":"Ready","status":"True"}]`
	c := Cluster{
		Nodes: Answer[[]Node]{Found: decode[[]Node](t, `[
			{"metadata":{"name":"b","labels":{"nvidia.com/gpu.product":"NVIDIA-A100-SXM4-80GB"}},"status":{"allocatable":{"nvidia.com/gpu":"4"},`+ready+`}},
			{"metadata":{"name":"a"},"spec":{"unschedulable":true},"status":{"allocatable":{"nvidia.com/gpu":"2"},`+ready+`}},
			{"metadata":{"name":"cpu"},"status":{"allocatable":{"nvidia.com/gpu":"0"}}},
			{"metadata":{"name":"d"},"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}]`)},
		Pods: Answer[[]Pod]{Found: decode[[]Pod](t, `[
			{"spec":{"nodeName":"b",`+twoGPUs+`},"status":{"phase":"Running"}},
			{"spec":{"nodeName":"b",`+twoGPUs+`},"status":{"phase":"Succeeded"}},
			{"spec":{`+twoGPUs+`},"status":{"phase":"Pending"}}]`)},
		Slices: Answer[[]Slice]{Found: decode[[]Slice](t, "["+slice("d", "d", 1, "old", "old")+","+slice("d", "d", 2, "H100", "L4", "H100")+"]")},
		Claims: Answer[[]Claim]{Found: decode[[]Claim](t, `[{},{"status":{"allocation":{"devices":{"results":[{"driver":"gpu.nvidia.com","pool":"d","device":"gpu-1"},{"driver":"other","pool":"d","device":"gpu-2"}]}}}}]`)},
	}
	show := func() (out string) {
		for _, h := range c.Hosts() {
			taken := "?"
			if h.Taken != nil {
				taken = fmt.Sprint(*h.Taken)
			}
			out += fmt.Sprintf("%s %q dra=%v %s/%d %s bare=%v\n", h.Node, h.Model, h.DRA, taken, h.All, h.Off, h.Bare)
		}
		return out
	}
	want := "a \"\" dra=false 0/2 cordoned bare=true\nb \"NVIDIA-A100-SXM4-80GB\" dra=false 2/4  bare=false\nd \"H100, L4\" dra=true 1/3 not ready bare=false\n"
	if got := show(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	c.Pods.Problem, c.Claims.Problem = "forbidden", "forbidden"
	if got, want := show(), strings.NewReplacer("0/2", "?/2", "2/4", "?/4", "1/3", "?/3").Replace(want); got != want {
		t.Errorf("what cannot be read is shown as a number: got\n%swant\n%s", got, want)
	}
}

func TestLimits(t *testing.T) {
	c := Cluster{Quotas: Answer[[]Quota]{Found: decode[[]Quota](t, `[{"metadata":{"name":"team"},"status":{
		"hard":{"requests.nvidia.com/gpu":"8","gpu.nvidia.com.deviceclass.resource.k8s.io/devices":"4","pods":"9"},"used":{"requests.nvidia.com/gpu":"3"}}}]`)}}
	got := fmt.Sprint(c.Limits())
	if want := "[{team 8 3 } {team 4 0 gpu.nvidia.com}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

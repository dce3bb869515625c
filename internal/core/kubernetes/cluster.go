package kubernetes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Answer is what was read of one kind of object, or why it could not be read.
type Answer[T any] struct {
	Found   T
	Problem string // "" it was read
}

// Cluster is what was read of a cluster for one person.
type Cluster struct {
	// The context of kubectl; "" the only one.
	Context string
	// The namespace in which jobs are made.
	Namespace string
	// Groups and versions of the API: "batch/v1", "resource.k8s.io/v1", ….
	Serves  Answer[[]string]
	Nodes   Answer[[]Node]
	Pods    Answer[[]Pod] // of all namespaces
	Classes Answer[[]string]
	Slices  Answer[[]Slice]
	Claims  Answer[[]Claim] // of all namespaces
	Quotas  Answer[[]Quota] // of the namespace
	Allowed Answer[[]Right]
}

// Right is one thing that a person may or may not do in the namespace.
type Right struct {
	Verb     string
	Resource string
	Granted  bool
}

// SupportsDRA reports whether jobs may claim whole GPUs from NVIDIA's driver for dynamic resource allocation, and why
// not.
func (c *Cluster) SupportsDRA() (has bool, why string) {
	switch {
	case c.Serves.Problem != "":
		return false, c.Serves.Problem
	case !slices.Contains(c.Serves.Found, "resource.k8s.io/v1"):
		return false, "the cluster does not serve resource.k8s.io/v1 (Kubernetes 1.34 does)"
	case c.Classes.Problem != "":
		return false, c.Classes.Problem
	case !slices.Contains(c.Classes.Found, Driver):
		return false, "there is no device class " + Driver
	case c.Slices.Problem == "" && !slices.ContainsFunc(c.Slices.Found, func(s Slice) bool { return s.Spec.Driver == Driver }):
		return false, "the driver " + Driver + " offers no device"
	}
	return true, ""
}

// hasPluginGPUs reports whether a node has GPUs of the device plugin; nil: nobody knows.
func (c *Cluster) hasPluginGPUs() *bool {
	if c.Nodes.Problem != "" {
		return nil
	}
	return new(slices.ContainsFunc(c.Nodes.Found, func(n Node) bool {
		has, ok := parseCount(n.Status.Allocatable[GPUs])
		return ok && has > 0
	}))
}

// ChooseForm says whether a job claims devices (SupportsDRA) or asks the device plugin, and why. Claims are preferred:
// they are right on nodes with different models. A cluster that offers neither gets the form of the plugin, which every
// cluster accepts.
func (c *Cluster) ChooseForm() (dra bool, why string) {
	dra, not := c.SupportsDRA()
	plugin := c.hasPluginGPUs()
	switch {
	case dra:
		return true, "the cluster has the device class " + Driver
	case plugin == nil:
		return false, "the form that every cluster accepts: " + not + ", and its nodes cannot be read"
	case *plugin:
		return false, "nodes offer " + GPUs + ", and " + not
	}

	return false, "the form that every cluster accepts: no node offers " + GPUs + ", and " + not
}

// Host is a node with GPUs.
type Host struct {
	Node string
	// The model as the label or the driver writes it; "" unknown; several are joined by a comma.
	Model string
	// Offered by the driver for claims, else by the device plugin.
	DRA bool
	All int
	// nil: the pods or claims of others cannot be read.
	Taken *int
	// Why it takes no new jobs: "cordoned", "not ready"; "" it does.
	Off string
	// The device plugin offers them and nobody wrote labels: --model and --mem find nothing there.
	Bare bool
	// How the plugin gives one GPU to several pods: "time-slicing", "mps"; "" it does not.
	Shared string
}

// Hosts lists the nodes with GPUs, by name, the form of the driver after that of the plugin.
func (c *Cluster) Hosts() (list []Host) {
	for i := range c.Nodes.Found {
		n := &c.Nodes.Found[i]
		all, ok := parseCount(n.Status.Allocatable[GPUs])
		if !ok || all == 0 {
			continue
		}

		model := n.Meta.Labels["nvidia.com/gpu.product"]
		host := Host{Node: n.Meta.Name, Model: model, All: all, Off: offReason(n), Bare: model == ""}
		if how := n.Meta.Labels["nvidia.com/gpu.sharing-strategy"]; how != "none" {
			host.Shared = how
		}

		if c.Pods.Problem == "" {
			host.Taken = new(gpusInUse(c.Pods.Found, n.Meta.Name))
		}

		list = append(list, host)
	}
	list = append(list, c.draHosts()...)
	slices.SortFunc(list, func(a, b Host) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), strings.Compare(fmt.Sprint(a.DRA), fmt.Sprint(b.DRA)))
	})

	return list
}

// offReason says why a node takes no new jobs; "" it does.
func offReason(n *Node) string {
	switch {
	case n.Spec.Cordoned:
		return "cordoned"
	case trueCondition(n.Status.Conditions, "Ready") == nil:
		return "not ready"
	}
	return ""
}

// gpusInUse counts the GPUs of the plugin that pods on a node have.
func gpusInUse(pods []Pod, node string) (n int) {
	for i := range pods {
		if p := &pods[i]; p.Spec.Node == node && !p.hasEnded() {
			n += p.Spec.pluginGPUs()
		}
	}
	return n
}

// draHosts lists the nodes with devices of the driver. Only the newest generation of a pool counts
// (k8s.io/api, resource/v1, ResourcePool).
func (c *Cluster) draHosts() (list []Host) {
	newest := map[string]int{}
	for _, s := range c.Slices.Found {
		if s.Spec.Driver == Driver {
			newest[s.Spec.Pool.Name] = max(newest[s.Spec.Pool.Name], s.Spec.Pool.Generation)
		}
	}

	used := c.allocatedDevices()
	hosts := map[string]*Host{}
	models := map[string][]string{}
	for _, s := range c.Slices.Found {
		if s.Spec.Driver != Driver || s.Spec.Pool.Generation < newest[s.Spec.Pool.Name] {
			continue
		}
		for _, d := range s.Spec.Devices {
			if kind := d.Attributes["type"].String; kind != "" && kind != "gpu" {
				continue
			}

			h := hosts[s.Spec.Node]
			if h == nil {
				h = &Host{Node: s.Spec.Node, DRA: true, Off: c.offReasonOf(s.Spec.Node)}
				if c.Claims.Problem == "" {
					h.Taken = new(int)
				}
				hosts[s.Spec.Node] = h
			}

			h.All++
			models[s.Spec.Node] = append(models[s.Spec.Node], d.Attributes["productName"].String)
			if used[s.Spec.Pool.Name+"/"+d.Name] && h.Taken != nil {
				*h.Taken++
			}
		}
	}

	for node, h := range hosts {
		names := slices.DeleteFunc(models[node], func(m string) bool { return m == "" })
		slices.Sort(names)
		h.Model = strings.Join(slices.Compact(names), ", ")
		list = append(list, *h)
	}

	return list
}

func (c *Cluster) offReasonOf(name string) string {
	for i := range c.Nodes.Found {
		if n := &c.Nodes.Found[i]; n.Meta.Name == name {
			return offReason(n)
		}
	}
	return ""
}

// allocatedDevices is the set of "pool/device" that claims have.
func (c *Cluster) allocatedDevices() map[string]bool {
	used := map[string]bool{}
	for _, claim := range c.Claims.Found {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			if r.Driver == Driver {
				used[r.Pool+"/"+r.Device] = true
			}
		}
	}
	return used
}

// Limit is a quota of the namespace on GPUs.
type Limit struct {
	Name       string
	Hard, Used int
	// The class of claims; "" of the device plugin.
	Class string
}

// Limits lists the quotas of the namespace that concern GPUs (kubernetes.io/docs/concepts/policy/resource-quotas).
func (c *Cluster) Limits() (list []Limit) {
	for _, q := range c.Quotas.Found {
		for key, hard := range q.Status.Hard {
			class, devices := strings.CutSuffix(key, ".deviceclass.resource.k8s.io/devices")
			if key != "requests."+GPUs && (!devices || class != Driver) {
				continue
			}

			most, ok := parseCount(hard)
			used, _ := parseCount(q.Status.Used[key])
			if !devices {
				class = ""
			}

			if ok {
				list = append(list, Limit{q.Meta.Name, most, used, class})
			}
		}
	}
	slices.SortFunc(list, func(a, b Limit) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Class, b.Class))
	})
	return list
}

// Package kubernetes says in gpuard's words what a Kubernetes cluster answers: where a job is and why it waits, which
// GPUs there are, and in which form a job asks for them. Its types are the parts of the API's objects that this needs,
// as kubectl prints them with -o json. It must not call kubectl.
package kubernetes

import (
	"strconv"
	"time"
)

// GPUs is the resource of NVIDIA's device plugin (NVIDIA/k8s-device-plugin, README.md).
const GPUs = "nvidia.com/gpu"

// Driver is NVIDIA's driver for dynamic resource allocation, and its class of whole GPUs
// (kubernetes-sigs/dra-driver-nvidia-gpu, site/content/docs/reference/resourceslice-attributes.md).
const Driver = "gpu.nvidia.com"

// Main is the container of the job's command; clusters may put others beside it.
const Main = "main"

// indexLabel is the number of a pod in an indexed Job (kubernetes/kubernetes,
// staging/src/k8s.io/api/batch/v1/types.go).
const indexLabel = "batch.kubernetes.io/job-completion-index"

// KueueLabel names the queue of Kueue that a job goes through (kubernetes-sigs/kueue,
// site/content/en/docs/tasks/run/jobs.md).
const KueueLabel = "kueue.x-k8s.io/queue-name"

// Meta is what every object has.
type Meta struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	UID       string            `json:"uid"`
	Created   time.Time         `json:"creationTimestamp"`
	Labels    map[string]string `json:"labels"`
}

// Condition is one condition of a status.
type Condition struct {
	Type string `json:"type"`
	// "True", "False", "Unknown".
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// trueCondition is the condition of that type if it is true.
func trueCondition(list []Condition, kind string) *Condition {
	for i := range list {
		if list[i].Type == kind && list[i].Status == "True" {
			return &list[i]
		}
	}
	return nil
}

// Job is a Job of batch/v1.
type Job struct {
	Meta Meta `json:"metadata"`
	Spec struct {
		Suspend  bool `json:"suspend"`
		Template struct {
			Spec PodSpec `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
	Status struct {
		Conditions []Condition `json:"conditions"`
		// The indexes of an indexed Job that have succeeded: "0,3-5".
		Succeeded string     `json:"completedIndexes"`
		Failed    string     `json:"failedIndexes"` // likewise
		Started   *time.Time `json:"startTime"`
		Completed *time.Time `json:"completionTime"`
	} `json:"status"`
}

// PodSpec is what a pod asks for.
type PodSpec struct {
	// "" until the scheduler has chosen one.
	Node       string      `json:"nodeName"`
	Containers []container `json:"containers"`
	Claims     []struct {
		Template string `json:"resourceClaimTemplateName"`
	} `json:"resourceClaims"`
}

// pluginGPUs is how many GPUs of the device plugin the pod asks for.
func (s PodSpec) pluginGPUs() (n int) {
	for _, c := range s.Containers {
		if number, given := parseCount(c.Resources.Limits[GPUs]); given {
			n += number
		}
	}
	return n
}

// container is a container of a pod.
type container struct {
	Image     string `json:"image"`
	Resources struct {
		Limits map[string]string `json:"limits"`
	} `json:"resources"`
}

// Pod is a Pod of v1.
type Pod struct {
	Meta   Meta    `json:"metadata"`
	Spec   PodSpec `json:"spec"`
	Status struct {
		// "Pending", "Running", "Succeeded", "Failed", "Unknown".
		Phase      string      `json:"phase"`
		Reason     string      `json:"reason"`
		Message    string      `json:"message"`
		Conditions []Condition `json:"conditions"`
		Containers []struct {
			Name  string `json:"name"`
			State struct {
				Waiting *struct {
					Reason  string `json:"reason"`
					Message string `json:"message"`
				} `json:"waiting"`
				Running *struct {
					Started time.Time `json:"startedAt"`
				} `json:"running"`
				Ended *containerEnd `json:"terminated"`
			} `json:"state"`
		} `json:"containerStatuses"`
	} `json:"status"`
}

// containerEnd is the end of a container.
type containerEnd struct {
	Exit int `json:"exitCode"`
	// "Completed", "Error", "OOMKilled", ….
	Reason   string     `json:"reason"`
	Started  *time.Time `json:"startedAt"`
	Finished *time.Time `json:"finishedAt"`
}

// hasEnded reports whether the pod uses nothing of its node any more.
func (p *Pod) hasEnded() bool { return p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" }

// Event is an Event of v1.
type Event struct {
	Meta    Meta   `json:"metadata"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// The last time of an event that was repeated.
	Last  *time.Time `json:"lastTimestamp"`
	About struct {
		Name string `json:"name"`
	} `json:"involvedObject"`
}

// Node is a Node of v1.
type Node struct {
	Meta Meta `json:"metadata"`
	Spec struct {
		Cordoned bool `json:"unschedulable"`
	} `json:"spec"`
	Status struct {
		Allocatable map[string]string `json:"allocatable"`
		Conditions  []Condition       `json:"conditions"`
	} `json:"status"`
}

// Quota is a ResourceQuota of v1.
type Quota struct {
	Meta   Meta `json:"metadata"`
	Status struct {
		Hard map[string]string `json:"hard"`
		Used map[string]string `json:"used"`
	} `json:"status"`
}

// Slice is a ResourceSlice of resource.k8s.io/v1: devices that a driver offers on a node.
type Slice struct {
	Spec struct {
		Driver string `json:"driver"`
		Node   string `json:"nodeName"`
		Pool   struct {
			Name       string `json:"name"`
			Generation int    `json:"generation"`
		} `json:"pool"`
		Devices []struct {
			Name       string `json:"name"`
			Attributes map[string]struct {
				String string `json:"string"`
			} `json:"attributes"`
		} `json:"devices"`
	} `json:"spec"`
}

// Claim is a ResourceClaim of resource.k8s.io/v1.
type Claim struct {
	Status struct {
		Allocation *struct {
			Devices struct {
				Results []struct {
					Driver string `json:"driver"`
					Pool   string `json:"pool"`
					Device string `json:"device"`
				} `json:"results"`
			} `json:"devices"`
		} `json:"allocation"`
	} `json:"status"`
}

// parseCount reads a quantity that counts devices: a whole number, perhaps with k. given is false without one.
func parseCount(quantity string) (n int, given bool) {
	times := 1
	if len(quantity) > 1 && quantity[len(quantity)-1] == 'k' {
		quantity, times = quantity[:len(quantity)-1], 1000
	}
	n, err := strconv.Atoi(quantity)

	return n * times, err == nil && n >= 0
}

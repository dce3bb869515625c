package cluster

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// startTestCluster is the cluster of the tests: nodes with 4, 1 and no GPUs of the device plugin, one with three devices of the driver
// for claims, the rights of ada, who may do what gpuard needs in the namespace team, and of bob, who may do nothing.
func startTestCluster(t *testing.T) *testCluster {
	t.Helper()
	c := startCluster(t)
	k := startKubelets(t, c)
	k.addNode(t, "large", 4, map[string]string{"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.memory": "81920", "nvidia.com/gpu.compute.major": "8", "nvidia.com/gpu.compute.minor": "0"})
	k.addNode(t, "small", 1, map[string]string{"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.memory": "15360", "nvidia.com/gpu.compute.major": "7", "nvidia.com/gpu.compute.minor": "5"})
	k.addNode(t, "claims", 0, nil)
	c.createObjects(t, `apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: jobs, namespace: team}
rules:
- {apiGroups: [batch], resources: [jobs], verbs: [create, get, list, delete, patch]}
- {apiGroups: [""], resources: [pods, pods/log, events, resourcequotas], verbs: [get, list]}
- {apiGroups: [resource.k8s.io], resources: [resourceclaimtemplates, resourceclaims], verbs: [create, get, list, delete, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: jobs, namespace: team}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: jobs}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ada}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: look}
rules:
- {apiGroups: [""], resources: [nodes, pods], verbs: [get, list]}
- {apiGroups: [resource.k8s.io], resources: [deviceclasses, resourceslices, resourceclaims], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: look}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: look}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ada}]
`)
	c.waitUntil(t, 60*time.Second, "the namespace has its account", func() error {
		_, err := c.runKubectl("", "get", "serviceaccount", "default", "--namespace=team")
		return err
	})
	return c
}

// publishDevices publishes a device class and three devices on the node claims, as NVIDIA's driver does.
func (c *testCluster) publishDevices(t *testing.T) {
	t.Helper()
	c.createObjects(t, `apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
spec:
  selectors: [{cel: {expression: "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: claims-gpu}
spec:
  driver: gpu.nvidia.com
  nodeName: claims
  pool: {name: claims, generation: 1, resourceSliceCount: 1}
  devices:
  - {name: gpu-0, attributes: {type: {string: gpu}, productName: {string: NVIDIA L4}, uuid: {string: GPU-0}}, capacity: {memory: {value: 23034Mi}}}
  - {name: gpu-1, attributes: {type: {string: gpu}, productName: {string: NVIDIA H100 80GB HBM3}, uuid: {string: GPU-1}}, capacity: {memory: {value: 81559Mi}}}
  - {name: gpu-2, attributes: {type: {string: gpu}, productName: {string: NVIDIA GB10}, uuid: {string: GPU-2}}}
`)
}

// runResult is how a call of gpuard ended.
type runResult struct {
	code     int
	out, err string
}

// runGPUard calls the program as a user.
func (c *testCluster) runGPUard(t *testing.T, user string, args ...string) runResult {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Getenv("GPUARD"), args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(pair string) bool {
		return strings.HasPrefix(pair, "PATH=") || strings.HasPrefix(pair, "KUBECONFIG=")
	}), "PATH="+c.bin+":"+os.Getenv("PATH"), "KUBECONFIG="+c.pathOf(user+".conf"), "GPUARD_STATE="+cmp.Or(c.state, c.pathOf("state-"+user)), "HOME="+c.dir, "COLUMNS=160")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("cannot start gpuard: %v", err)
	}
	return runResult{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// readObject reads one object as the administrator.
func (c *testCluster) readObject(t *testing.T, args ...string) (v map[string]any) {
	t.Helper()
	out, err := c.runKubectl("", append(append([]string{"get"}, args...), "--namespace=team", "--output=json")...)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// waitForPodNode waits until a job's pod has a node, and returns it.
func (c *testCluster) waitForPodNode(t *testing.T, job string) (node string) {
	t.Helper()
	c.waitUntil(t, 60*time.Second, "the pod of "+job+" is bound", func() error {
		out, err := c.runKubectl("", "get", "pods", "--namespace=team", "--selector=batch.kubernetes.io/job-name="+job, "--output=jsonpath={.items[*].spec.nodeName}")
		if node = strings.TrimSpace(out); err == nil && node == "" {
			err = errors.New("it has no node")
		}
		return err
	})
	return node
}

// TestManifests: what gpuard export writes is accepted by strict validation on the server, and its pod gets the node that
// fits: by number, by model, by memory, by claim. The command that runs is the one that was meant.
func TestManifests(t *testing.T) {
	c := startTestCluster(t)
	c.publishDevices(t)
	words := []string{"printf", "%s|", "a b", "$(HOME)", "$$x", `"quoted"`, "line\nbreak", "grüße"}
	for _, one := range []struct {
		name, target, node string
		flags              []string
	}{
		{"two", "kubernetes", "large", []string{"--gpus", "2"}},
		{"model", "kubernetes", "small", []string{"--model", "Tesla T4"}},
		{"memory", "kubernetes", "large", []string{"--mem", "40G"}},
		{"compute", "kubernetes", "small", []string{"--min-compute", "7.5", "--model", "Tesla T4"}},
		{"claim", "kubernetes-dra", "claims", []string{"--gpus", "1"}},
		{"claim-model", "kubernetes-dra", "claims", []string{"--model", "*H100*", "--mem", "70G"}},
	} {
		t.Run(one.name, func(t *testing.T) {
			args := append([]string{"export", one.target, "--image", "train:1", "--name", one.name, "--timeout", "10m", "--note", one.name}, one.flags...)
			got := c.runGPUard(t, "ada", append(append(args, "--"), words...)...)
			if got.code != 0 {
				t.Fatalf("export: %d, %s", got.code, got.err)
			}
			for _, dry := range []string{"--dry-run=server", "--dry-run=none"} {
				if out, err := c.runKubectl(got.out, "create", "--namespace=team", "--validate=strict", dry, "--filename=-"); err != nil {
					t.Fatalf("%v\n%s\n%s", err, out, got.out)
				}
			}
			out, err := c.runKubectl(got.out, "get", "--namespace=team", "--filename=-", "--output=jsonpath={range .items[*]}{.metadata.name} {end}{.metadata.name}")
			if err != nil {
				t.Fatal(err)
			}
			job := strings.Fields(out)[0]
			if node := c.waitForPodNode(t, job); node != one.node {
				t.Errorf("it is on %s, want %s", node, one.node)
			}
			c.waitUntil(t, 60*time.Second, "it has ended", func() error {
				_, err := c.runKubectl("", "wait", "--namespace=team", "--for=condition=complete", "--timeout=1s", "job/"+job)
				return err
			})
			log, err := c.runKubectl("", "logs", "--namespace=team", "job/"+job)
			if want := strings.Join(words[2:], "|") + "|"; err != nil || log != want {
				t.Errorf("it printed %q, want %q (%v)", log, want, err)
			}
		})
	}
	t.Run("strict", func(t *testing.T) { // a test that could not fail shows nothing
		bad := "apiVersion: batch/v1\nkind: Job\nmetadata: {name: bad}\nspec: {gpus: 1, template: {spec: {restartPolicy: Never, containers: [{name: main, image: a}]}}}\n"
		if out, err := c.runKubectl(bad, "create", "--namespace=team", "--validate=strict", "--dry-run=server", "--filename=-"); err == nil || !strings.Contains(err.Error(), `unknown field "spec.gpus"`) {
			t.Errorf("%v, %s", err, out)
		}
	})
}

// TestDoctor: what ada and bob can have, before and after the driver for claims is there.
func TestDoctor(t *testing.T) {
	c := startTestCluster(t)
	got := c.runGPUard(t, "ada", "doctor", "--engine", "kubernetes", "--all")
	for _, want := range []string{"5 of 5 GPUs are free", "NVIDIA-A100-SXM4-80GB", "Tesla-T4", "no claims: there is no device class gpu.nvidia.com", "you may make, read and delete jobs in the namespace team"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("ada: %q is not in\n%s%s", want, got.out, got.err)
		}
	}
	if got.code != 0 {
		t.Errorf("ada: exit code %d\n%s", got.code, got.out)
	}
	got = c.runGPUard(t, "bob", "doctor", "--engine", "kubernetes")
	if want := "you may not create jobs.batch in the namespace team"; got.code != 1 || !strings.Contains(got.out, want) || !strings.Contains(got.out, "ask whoever runs the cluster") {
		t.Errorf("bob: exit code %d, without %q:\n%s%s", got.code, want, got.out, got.err)
	}
	c.publishDevices(t)
	c.createObjects(t, "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: gpus, namespace: team}\nspec: {hard: {requests.nvidia.com/gpu: 0}}\n")
	c.waitUntil(t, 30*time.Second, "the quota counts", func() error {
		got = c.runGPUard(t, "ada", "doctor", "--engine", "kubernetes")
		if !strings.Contains(got.out, "the quota gpus of the namespace team gives 0 GPUs of the device plugin") || !strings.Contains(got.out, "NVIDIA GB10, NVIDIA H100 80GB HBM3, NVIDIA L4") || got.code != 1 {
			return fmt.Errorf("exit code %d:\n%s%s", got.code, got.out, got.err)
		}
		return nil
	})
}

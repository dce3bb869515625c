package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// fakeKubelet plays the kubelets of all nodes: it starts the command of a pod as a process of this machine, reports its
// state and its end, and serves what it printed. Images, volumes and devices are not used; an image whose name begins
// with missing/ cannot be pulled.
type fakeKubelet struct {
	c    *testCluster
	dir  string
	port int
	mu   sync.Mutex
	pods map[string]*startedPod // by UID
}

// startedPod is a pod that was started.
type startedPod struct {
	cmd     *exec.Cmd
	log     string
	started time.Time
	over    chan struct{}
	exit    int
	late    bool // its activeDeadlineSeconds are over
}

type podMeta struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	UID         string            `json:"uid"`
	Deleted     *time.Time        `json:"deletionTimestamp"`
	Annotations map[string]string `json:"annotations"`
}

type podObject struct {
	Meta podMeta `json:"metadata"`
	Spec struct {
		Node       string `json:"nodeName"`
		Deadline   *int   `json:"activeDeadlineSeconds"`
		Containers []struct {
			Name    string   `json:"name"`
			Image   string   `json:"image"`
			Command []string `json:"command"`
			Args    []string `json:"args"`
			Folder  string   `json:"workingDir"`
			Env     []struct {
				Name, Value string
				From        struct {
					Field struct {
						Path string `json:"fieldPath"`
					} `json:"fieldRef"`
				} `json:"valueFrom"`
			} `json:"env"`
		} `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

// startKubelets starts them, with nodes that have so many GPUs for the device plugin.
func startKubelets(t *testing.T, c *testCluster) *fakeKubelet {
	t.Helper()
	k := &fakeKubelet{c: c, dir: t.TempDir(), pods: map[string]*startedPod{}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(k.serveLogs))
	server.StartTLS()
	k.port = server.Listener.Addr().(*net.TCPAddr).Port
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for beat := time.Now(); ; {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
			k.syncPods()
			if time.Since(beat) > 10*time.Second {
				k.keepNodesReady()
				beat = time.Now()
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
		k.mu.Lock()
		for _, r := range k.pods {
			_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
		}
		k.mu.Unlock()
		server.Close()
	})
	return k
}

// addNode registers one with labels and GPUs of the device plugin.
func (k *fakeKubelet) addNode(t *testing.T, name string, gpus int, labels map[string]string) {
	t.Helper()
	room := map[string]any{"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
	if gpus > 0 {
		room["nvidia.com/gpu"] = fmt.Sprint(gpus)
	}
	all := map[string]string{"kubernetes.io/hostname": name}
	for key, value := range labels {
		all[key] = value
	}
	err := k.c.callAPI("POST", "/api/v1/nodes", "", map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name, "labels": all},
		"status": map[string]any{"capacity": room, "allocatable": room, "conditions": readyConditions(), "addresses": []any{map[string]any{"type": "InternalIP", "address": "127.0.0.1"}},
			"daemonEndpoints": map[string]any{"kubeletEndpoint": map[string]any{"Port": k.port}}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
}

func readyConditions() []any {
	now := time.Now().UTC().Format(time.RFC3339)
	return []any{map[string]any{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now, "lastTransitionTime": now}}
}

// keepNodesReady keeps the nodes ready.
func (k *fakeKubelet) keepNodesReady() {
	var nodes struct {
		Items []struct {
			Meta podMeta `json:"metadata"`
		}
	}
	_ = k.c.callAPI("GET", "/api/v1/nodes", "", nil, &nodes)
	for _, n := range nodes.Items {
		_ = k.c.callAPI("PATCH", "/api/v1/nodes/"+n.Meta.Name+"/status", "application/strategic-merge-patch+json", map[string]any{"status": map[string]any{"conditions": readyConditions()}}, nil)
	}
}

// syncPods does what is to be done for each pod that has a node.
func (k *fakeKubelet) syncPods() {
	var list struct{ Items []podObject }
	if k.c.callAPI("GET", "/api/v1/pods", "", nil, &list) != nil {
		return
	}
	for i := range list.Items {
		p := &list.Items[i]
		if p.Spec.Node == "" {
			continue
		}
		k.mu.Lock()
		r := k.pods[p.Meta.UID]
		k.mu.Unlock()
		switch {
		case p.Meta.Deleted != nil:
			k.removePod(p, r)
		case p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed":
		case r == nil && strings.HasPrefix(p.Spec.Containers[0].Image, "missing/"):
			k.patchStatus(p, "Pending", "", map[string]any{"waiting": map[string]any{"reason": "ErrImagePull", "message": "pull access denied: " + p.Spec.Containers[0].Image}})
		case r == nil:
			k.startPod(p)
		default:
			k.checkPod(p, r)
		}
	}
}

// startPod starts the command of a pod, in which $(NAME) is replaced as the kubelet does.
func (k *fakeKubelet) startPod(p *podObject) {
	one := p.Spec.Containers[0]
	values := map[string]string{}
	env := []string{"PATH=" + os.Getenv("PATH")}
	for _, v := range one.Env {
		values[v.Name] = expansion.Expand(v.Value, expansion.MappingFuncFor(values))
		if key, ok := strings.CutPrefix(v.From.Field.Path, "metadata.annotations['"); ok {
			values[v.Name] = p.Meta.Annotations[strings.TrimSuffix(key, "']")]
		}
		env = append(env, v.Name+"="+values[v.Name])
	}
	var words []string
	for _, word := range append(one.Command, one.Args...) {
		words = append(words, expansion.Expand(word, expansion.MappingFuncFor(values)))
	}
	r := &startedPod{log: filepath.Join(k.dir, p.Meta.UID), started: time.Now().UTC(), over: make(chan struct{})}
	log, err := os.Create(r.log)
	if err != nil {
		return
	}
	r.cmd = exec.Command(words[0], words[1:]...)
	r.cmd.Env, r.cmd.Dir, r.cmd.Stdout, r.cmd.Stderr = env, one.Folder, log, log
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := r.cmd.Start(); err != nil {
		_ = log.Close()
		k.patchStatus(p, "Failed", "", map[string]any{"terminated": map[string]any{"exitCode": 128, "reason": "StartError", "message": err.Error()}})
		return
	}
	k.mu.Lock()
	k.pods[p.Meta.UID] = r
	k.mu.Unlock()
	go func() {
		var exit *exec.ExitError
		if err := r.cmd.Wait(); errors.As(err, &exit) {
			if r.exit = exit.ExitCode(); r.exit < 0 {
				r.exit = 128 + int(exit.Sys().(syscall.WaitStatus).Signal())
			}
		}
		_ = log.Close()
		close(r.over)
	}()
	k.patchStatus(p, "Running", "", map[string]any{"running": map[string]any{"startedAt": r.started.Format(time.RFC3339)}})
}

// checkPod reports the end, and ends what is late.
func (k *fakeKubelet) checkPod(p *podObject, r *startedPod) {
	select {
	case <-r.over:
		phase, reason, word := "Succeeded", "", "Completed"
		if r.exit != 0 {
			phase, word = "Failed", "Error"
		}
		if r.late {
			phase, reason = "Failed", "DeadlineExceeded"
		}
		k.patchStatus(p, phase, reason, map[string]any{"terminated": map[string]any{"exitCode": r.exit, "reason": word,
			"startedAt": r.started.Format(time.RFC3339), "finishedAt": time.Now().UTC().Format(time.RFC3339)}})
	default:
		if d := p.Spec.Deadline; d != nil && time.Since(r.started) > time.Duration(*d)*time.Second {
			r.late = true
			_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGTERM)
		}
	}
}

// removePod ends the pod that was deleted, reports its end, and lets it go.
func (k *fakeKubelet) removePod(p *podObject, r *startedPod) {
	if r != nil {
		_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
		<-r.over
		k.checkPod(p, r)
	} else if p.Status.Phase == "Pending" {
		k.patchStatus(p, "Failed", "", map[string]any{"terminated": map[string]any{"exitCode": 137, "reason": "Error"}})
	}
	_ = k.c.callAPI("DELETE", "/api/v1/namespaces/"+p.Meta.Namespace+"/pods/"+p.Meta.Name, "", map[string]any{"gracePeriodSeconds": 0, "preconditions": map[string]any{"uid": p.Meta.UID}}, nil)
}

// patchStatus writes the status of a pod.
func (k *fakeKubelet) patchStatus(p *podObject, phase, reason string, state map[string]any) {
	status := map[string]any{"phase": phase, "containerStatuses": []any{map[string]any{"name": p.Spec.Containers[0].Name, "image": p.Spec.Containers[0].Image, "imageID": "", "ready": phase == "Running", "restartCount": 0, "state": state}}}
	if reason != "" {
		status["reason"] = reason
	}
	_ = k.c.callAPI("PATCH", "/api/v1/namespaces/"+p.Meta.Namespace+"/pods/"+p.Meta.Name+"/status", "application/strategic-merge-patch+json", map[string]any{"status": status}, nil)
}

// serveLogs serves /containerLogs/NAMESPACE/POD/CONTAINER (kubernetes/kubernetes, pkg/kubelet/server/server.go).
func (k *fakeKubelet) serveLogs(w http.ResponseWriter, req *http.Request) {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	if len(parts) != 4 || parts[0] != "containerLogs" {
		http.NotFound(w, req)
		return
	}
	var p podObject
	if err := k.c.callAPI("GET", "/api/v1/namespaces/"+parts[1]+"/pods/"+parts[2], "", nil, &p); err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	k.mu.Lock()
	r := k.pods[p.Meta.UID]
	k.mu.Unlock()
	if r == nil {
		http.Error(w, "the container has not started", http.StatusBadRequest)
		return
	}
	for sent := 0; ; time.Sleep(50 * time.Millisecond) {
		over := req.URL.Query().Get("follow") != "true"
		select {
		case <-r.over:
			over = true
		case <-req.Context().Done():
			return
		default:
		}
		text, _ := os.ReadFile(r.log)
		if _, err := io.Copy(w, bytes.NewReader(text[sent:])); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		if sent = len(text); over {
			return
		}
	}
}

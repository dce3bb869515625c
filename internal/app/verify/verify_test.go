package verify

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpuard/internal/app/explain"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/proof"
	"gpuard/internal/gate"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/proc"
	"gpuard/test/hosts"
)

// TestUnreadable: root gets no advice to use sudo, and the text does not name root twice.
func TestUnreadable(t *testing.T) {
	for _, c := range []struct {
		owner *uint32
		user  string
		euid  int
		says  string
		never []string
	}{
		{new(uint32(1000)), "alice", 1001, "it belongs to the user alice, and only that user and root may read its environment: sudo gpuard explain k3f9", nil},
		{new(uint32(65534)), "nobody", 1001, "it belongs to the user nobody, and only that user and root may", []string{"only nobody"}},
		{new(uint32(0)), "root", 1001, "it belongs to root, and only root may read its environment: sudo gpuard explain k3f9", []string{"root and root", "that user"}},
		{new(uint32(1001)), "bob", 1001, "to root only: sudo gpuard explain k3f9", nil},
		{nil, "", 1001, "this machine hides the processes of others; ask its owner, or: sudo gpuard explain k3f9", nil},
		{new(uint32(1000)), "alice", 0, "even to root here", []string{"sudo", "belongs to"}},
		{new(uint32(0)), "root", 0, "even to root here", []string{"sudo", "belongs to"}},
		{nil, "", 0, "even to root here", []string{"sudo"}},
	} {
		got := explain.UnreadableError(gpu.Process{Command: "python", UID: c.owner, User: c.user}, 42, c.euid, "k3f9").Error()
		bad := slices.ContainsFunc(c.never, func(no string) bool { return strings.Contains(got, no) })
		if bad || !strings.HasPrefix(got, "cannot explain process 42 (python): ") || !strings.Contains(got, c.says) {
			t.Errorf("%s for uid %d: %s", c.user, c.euid, got)
		}
	}
	denied := fmt.Errorf("cannot read the environment: %w", os.ErrPermission)
	if got := outsideAdvice(denied, 0); !strings.Contains(got, "outside of this container") {
		t.Errorf("root is told %q", got)
	}
	if outsideAdvice(denied, 1000) != "" || outsideAdvice(os.ErrNotExist, 0) != "" {
		t.Error("others are told what is for root")
	}
}

// TestPromiseDoubt: what explain calls a guess is one for verify, and what it is certain of is not.
func TestPromiseDoubt(t *testing.T) {
	for _, c := range []struct {
		kinds string
		env   []string
		doubt string // "" none
	}{
		{"demo:2xA100-80GB+1xL4", []string{"CUDA_VISIBLE_DEVICES=1"}, "is a guess here"},
		{"demo:2xA100-80GB+1xL4", []string{"CUDA_VISIBLE_DEVICES=1", "CUDA_DEVICE_ORDER=PCI_BUS_ID"}, ""},
		{"demo:2xA100-80GB", []string{"CUDA_VISIBLE_DEVICES=1"}, ""},
		{"demo:2xA100-80GB", []string{"CUDA_VISIBLE_DEVICES=0,1,1"}, ""},
		{"demo:2xA100-80GB", []string{"CUDA_VISIBLE_DEVICES=0x1"}, ""},
		{"demo:2xA100-80GB", []string{"CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1"}, "the first is read"},
	} {
		host := written(t, hosts.InventMachine(t, c.kinds), hosts.ProcessFiles(nil, c.env...))
		w := &treeWatch{host: host, env: c.env, facts: proof.Facts{PID: 42}}
		w.facts.Machine, _ = host.Reader(context.Background(), gpu.Query{What: gpu.Identity})
		w.readPromise()
		if got := w.facts.Doubt; (got == "") != (c.doubt == "") || !strings.Contains(got, c.doubt) {
			t.Errorf("%s %q: doubt %q, want %q", c.kinds, c.env, got, c.doubt)
		}
		if w.facts.Doubt != "" && !slices.Contains(w.facts.Notes, w.facts.Doubt) {
			t.Errorf("%q: the doubt is not told: %q", c.env, w.facts.Notes)
		}
	}
}

// TestPromiseAMD: OpenCL programs on AMD do not obey HIP's variables, and no other vendor's are meant.
func TestPromiseAMD(t *testing.T) {
	for _, c := range []struct {
		vendor gpu.Vendor
		env    string
		also   int // devices
	}{
		{gpu.AMD, "HIP_VISIBLE_DEVICES=1", 2},
		{gpu.AMD, "ROCR_VISIBLE_DEVICES=1", 1},
		{gpu.AMD, "GPU_DEVICE_ORDINAL=1", 1},
		{gpu.NVIDIA, "HIP_VISIBLE_DEVICES=1", 0},
	} {
		env := []string{c.env}
		w := &treeWatch{host: written(t, hosts.VendorMachine(2, c.vendor), hosts.ProcessFiles(nil, env...)), env: env, facts: proof.Facts{PID: 42}}
		w.facts.Machine, _ = w.host.Reader(t.Context(), gpu.Query{What: gpu.Identity})
		if w.readPromise(); len(w.facts.Besides) != c.also {
			t.Errorf("%s with %s: %v besides %v", c.vendor, c.env, w.facts.Besides, w.facts.Promised)
		}
	}
}

// TestDone: an answer that ends the job waits for all of the patience, unless more readings could not change it.
func TestDone(t *testing.T) {
	for _, c := range []struct {
		verdict proof.Verdict
		acts    bool
		watched time.Duration
		ended   bool
		want    bool
	}{
		{proof.CPU, false, time.Second, false, true},
		{proof.CPU, true, time.Second, false, false},
		{proof.CPU, true, time.Second, true, true},
		{proof.CPU, true, 30 * time.Second, false, true},
		{proof.OutsideLease, true, time.Second, false, true},
		{proof.TooEarly, true, time.Second, false, false},
	} {
		w := &treeWatch{acts: c.acts, facts: proof.Facts{Watched: c.watched, Ended: c.ended, Patience: 30 * time.Second}}
		if got := w.isDone(proof.Finding{Verdict: c.verdict}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestAskProgram: a process that began at another time, or is another user's, has got the number of the one that is
// meant.
func TestAskProgram(t *testing.T) {
	own, err := proc.New("/proc").Stat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	q := launch.Question{Args: []string{"this", "-test.run=^$"}}
	if out, err := askProgram(t.Context(), q, os.Getpid(), own.Start); err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("this program does not answer: %v\n%s", err, out)
	}
	if out, err := askProgram(t.Context(), q, os.Getpid(), own.Start-1); err == nil || !strings.Contains(err.Error(), "not the same process") {
		t.Errorf("an earlier process was asked: %v\n%s", err, out)
	}
	gate.Need(t, "privileged")
	cmd := exec.Command("/bin/sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	theirs, err := proc.New("/proc").Stat(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	q.Args = []string{"sleep", "0"}
	if _, err := askProgram(t.Context(), q, cmd.Process.Pid, theirs.Start); err == nil || !strings.Contains(err.Error(), "not the same process") {
		t.Errorf("the program of another user was started: %v", err)
	}
}

// written is a host with the devices of m and the processes of files, which are below /proc.
func written(t *testing.T, m gpu.Machine, files map[string]string) *machine.Host {
	t.Helper()
	return &machine.Host{
		Readers: machine.Readers{Reader: func(context.Context, gpu.Query) (gpu.Machine, error) { return m, nil }},
		Proc:    proc.New(hosts.WriteRoot(t, files)), Run: t.TempDir(), Tmp: t.TempDir(), Messages: machine.Messages{Say: func(string) {}},
	}
}

package proc

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"gpuard/internal/core/gpu"
)

const id64 = "3f1c0a5be2d94786a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718"

func TestFill(t *testing.T) {
	f := tree(t, map[string]string{
		"passwd":      "# comment\nroot:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\nsecond:x:1000:1::/:/bin/sh\nbroken line\nnouid:x:abc:1::/:/bin/sh\n",
		"uptime":      "1000.50 3000.00\n",
		"100/stat":    statLine(100, "python3", "R", 1, 90050),
		"100/status":  "Name:\tpython3\nUid:\t1000\t0\t0\t0\nGid:\t1000\t1000\t1000\t1000\n",
		"100/cmdline": "python3\x00train.py\x00--name\x00two words\nand \x1b[31mred\x00",
		"100/cgroup":  "0::/system.slice/docker-" + id64 + ".scope\n",
		"101/stat":    statLine(101, "kworker/0:1", "S", 2, 5),
		"101/status":  "Uid:\t4242\t4242\t4242\t4242\n",
		"101/cmdline": "",
		"101/cgroup":  "0::/\n",
	})
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	m := gpu.Machine{Processes: []gpu.Process{
		{PID: 100, GPU: "GPU-a", Memory: new(5 * gpu.GiB), Kind: gpu.ComputeProcess, Command: "python3"},
		{PID: 100, GPU: "GPU-b"},
		{PID: 101, GPU: "GPU-a"},
		{PID: 999, GPU: "GPU-a", Command: "old\x1bname", Memory: new(gpu.MiB)},
	}}
	f.FillProcesses(&m, now, false)
	p := m.Processes[0]
	if p.User != "alice" || *p.UID != 1000 || p.Command != "python3 train.py --name two words and [31mred" || p.State != "R" || p.Start != 90050 {
		t.Errorf("first process: %+v", p)
	}
	if want := now.Add(-100 * time.Second); !p.Started.Equal(want) {
		t.Errorf("Started = %v, want %v", p.Started, want)
	}
	if p.GPU != "GPU-a" || *p.Memory != 5*gpu.GiB || p.Kind != gpu.ComputeProcess || p.Container != id64 || p.Cgroup != "/system.slice/docker-"+id64+".scope" {
		t.Errorf("first process: %+v", p)
	}
	if q := m.Processes[1]; q.GPU != "GPU-b" || q.Memory != nil || q.Command != p.Command || !q.Started.Equal(p.Started) {
		t.Errorf("same process on a second device: %+v", q)
	}
	if q := m.Processes[2]; q.Command != "[kworker/0:1]" || q.User != "4242" || q.Cgroup != "/" || q.Container != "" {
		t.Errorf("without a command line: %+v", q)
	}
	if q := m.Processes[3]; q.State != StateGone || q.Command != "oldname" || q.UID != nil || q.Start != 0 || !q.Started.IsZero() || *q.Memory != gpu.MiB {
		t.Errorf("without /proc: %+v", q)
	}
}

// TestFillLater: a list of processes that was made a while ago says when each began; another one with that PID is not it.
func TestFillLater(t *testing.T) {
	f := tree(t, map[string]string{"passwd": "", "uptime": "1000.50 3000.00\n", "100/stat": statLine(100, "python3", "R", 1, 90050), "100/status": "Uid:\t1000\t0\t0\t0\n"})
	m := gpu.Machine{Processes: []gpu.Process{{PID: 100, GPU: "GPU-a", Start: 90050}, {PID: 100, GPU: "GPU-b", Start: 80000}, {PID: 100, GPU: "GPU-c"}}}
	f.FillProcesses(&m, time.Now(), false)
	for i, gone := range []bool{false, true, false} {
		if p := m.Processes[i]; (p.State == StateGone) != gone || (p.UID == nil) != gone || (p.Start == 0) != gone {
			t.Errorf("process %d: %+v", i, p)
		}
	}
}

func TestFillHostileNames(t *testing.T) {
	long := strings.Repeat("é", 5000)
	f := tree(t, map[string]string{
		"uptime":    "10.00 1.00\n",
		"1/stat":    statLine(1, "x\x1b]0;t\x07) S", "S", 0, 1),
		"1/cmdline": "\x00\x00\x00",
		"1/cgroup":  "0::/a\x1b[2J\u202eb\n0:\ngarbage",
		"2/stat":    statLine(2, "y", "S", 0, 1),
		"2/cmdline": "\xff\xfe" + long,
		"3/stat":    "3 (no fields",
	})
	m := gpu.Machine{Processes: []gpu.Process{{PID: 1}, {PID: 2}, {PID: 3, Command: "kept"}}}
	f.FillProcesses(&m, time.Now(), false)
	if p := m.Processes[0]; p.Command != "[x]0;t) S]" || p.Cgroup != "/a[2Jb" || p.UID != nil || p.User != "" {
		t.Errorf("hostile name: %+v", p)
	}
	if c := m.Processes[1].Command; len(c) > maxCommandLength || len(c) < maxCommandLength-4 || !utf8.ValidString(c) || !strings.HasPrefix(c, "é") {
		t.Errorf("long command: %d bytes, valid %v", len(c), utf8.ValidString(c))
	}
	if p := m.Processes[2]; p.Command != "kept" || p.State != "" {
		t.Errorf("unreadable stat is unknown, not gone: %+v", p)
	}
}

func TestFillRealProcess(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	f := New("/proc")
	waitFor(t, f, cmd.Process.Pid, func(Stat) bool { return f.DescribeProcess(cmd.Process.Pid).Command == "sleep 60" })
	m := gpu.Machine{Processes: []gpu.Process{{PID: cmd.Process.Pid, GPU: "GPU-a"}}}
	now := time.Now()
	f.FillProcesses(&m, now, false)
	p := m.Processes[0]
	if p.Command != "sleep 60" || p.UID == nil || int(*p.UID) != os.Getuid() || p.User != f.User(*p.UID) || p.Cgroup == "" {
		t.Errorf("filled %+v", p)
	}
	if d := now.Sub(p.Started); d < -time.Second || d > time.Minute {
		t.Errorf("Started %v, now %v", p.Started, now)
	}
}

func TestUserFallsBackToTheNumber(t *testing.T) {
	f := tree(t, map[string]string{"passwd": "bob:x:7:7::/:/bin/sh\nev\x1bil:x:8:8::/:/bin/sh\n"})
	for uid, want := range map[uint32]string{7: "bob", 8: "evil", 9: "9", 4294967295: "4294967295"} {
		if got := f.User(uid); got != want {
			t.Errorf("User(%d) = %q, want %q", uid, got, want)
		}
	}
	f.passwd += ".missing"
	if got := f.User(7); got != "bob" {
		t.Errorf("what was read counts no longer: %q", got)
	}
	f.names.read = time.Now().Add(-nameCacheTime)
	if got := f.User(7); got != "7" {
		t.Errorf("without passwd: %q", got)
	}
}

func TestCgroupForms(t *testing.T) {
	for text, want := range map[string][2]string{
		"0::/docker/" + id64: {"/docker/" + id64, id64},
		"12:devices:/docker/" + id64 + "\n1:name=systemd:/docker/" + id64 + "\n0::/\n":                      {"/docker/" + id64, id64},
		"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id64 + ".scope/container":   {"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id64 + ".scope/container", id64},
		"0::/machine.slice/libpod-conmon-" + id64 + ".scope":                                                {"/machine.slice/libpod-conmon-" + id64 + ".scope", ""},
		"0::/machine.slice/libpod-" + id64 + ".scope":                                                       {"/machine.slice/libpod-" + id64 + ".scope", id64},
		"0::/kubepods.slice/kubepods-burstable.slice/kubepods-pod1.slice/cri-containerd-" + id64 + ".scope": {"/kubepods.slice/kubepods-burstable.slice/kubepods-pod1.slice/cri-containerd-" + id64 + ".scope", id64},
		"0::/kubepods.slice/kubepods-pod1.slice/crio-" + id64 + ".scope":                                    {"/kubepods.slice/kubepods-pod1.slice/crio-" + id64 + ".scope", id64},
		"0::/kubepods.slice/kubepods-pod1.slice/crio-conmon-" + id64 + ".scope":                             {"/kubepods.slice/kubepods-pod1.slice/crio-conmon-" + id64 + ".scope", ""},
		"4:memory:/kubepods/burstable/pod2b7c/" + id64:                                                      {"/kubepods/burstable/pod2b7c/" + id64, id64},
		"0::/system.slice/containerd.service/kubepods-besteffort-pod5.slice:cri-containerd:" + id64:         {"/system.slice/containerd.service/kubepods-besteffort-pod5.slice:cri-containerd:" + id64, id64},
		"0::/docker/" + id64 + "/docker/" + strings.Repeat("ab", 32):                                        {"/docker/" + id64 + "/docker/" + strings.Repeat("ab", 32), id64},
		"0::/user.slice/user-1000.slice/session-3.scope":                                                    {"/user.slice/user-1000.slice/session-3.scope", ""},
		"0::/\n2:cpu,cpuacct:/\n1:name=systemd:/user.slice/session-3.scope":                                 {"/user.slice/session-3.scope", ""},
		"0::/docker/" + id64[:63]:             {"/docker/" + id64[:63], ""},
		"0::/docker/" + id64 + "0":            {"/docker/" + id64 + "0", ""},
		"0::/docker/" + strings.ToUpper(id64): {"/docker/" + strings.ToUpper(id64), ""},
		"":                                    {"", ""},
		"nonsense\n:::\n0::relative":          {"", ""},
	} {
		path, container := parseCgroup(text)
		if got := [2]string{path, container}; got != want {
			t.Errorf("cgroup %q:\n got %q\nwant %q", text, got, want)
		}
	}
}

func TestFillKeepsManyApart(t *testing.T) {
	files := map[string]string{"uptime": "10.00 1.00\n"}
	m := gpu.Machine{}
	for pid := 1; pid <= 200; pid++ {
		dir := strconv.Itoa(pid)
		files[dir+"/stat"] = statLine(pid, "job", "S", 0, 1)
		files[dir+"/cmdline"] = "job\x00" + dir
		m.Processes = append(m.Processes, gpu.Process{PID: pid})
	}
	tree(t, files).FillProcesses(&m, time.Now(), false)
	for _, p := range m.Processes {
		if p.Command != "job "+strconv.Itoa(p.PID) {
			t.Fatalf("process %d got the command %q", p.PID, p.Command)
		}
	}
}

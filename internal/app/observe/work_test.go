package observe

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/status"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/proc"
)

// TestWorkers: the processes of a lease are a tree, with what they use of the computer; those of a lease inside it count there.
func TestWorkers(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	cmd := exec.Command("sh", "-c", `sleep 1000 & inner=$!; sleep 1001 & echo $inner > "$0.new"; mv "$0.new" "$0"; wait`, ready)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	host := &machine.Host{Proc: proc.New("/proc")}
	t.Cleanup(func() {
		for _, pid := range host.Proc.ProcessTree(cmd.Process.Pid) {
			process, _ := os.FindProcess(pid)
			_ = process.Kill()
		}
		_ = cmd.Wait()
	})
	var inner int
	for end := time.Now().Add(time.Minute); inner == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		text, _ := os.ReadFile(ready)
		inner = number(string(text))
	}
	s := status.Report{Devices: []status.Device{{Leases: []status.Lease{{ID: "outer", PID: cmd.Process.Pid}}}, {Leases: []status.Lease{{ID: "inner", PID: inner}, {ID: "apart", PID: inner, Apart: true}, {ID: "ended", PID: inner, Ended: true}}}}}
	var all map[string][]Worker
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) { // until both have become sleep
		all = Workers(host, &s)
		if len(all["outer"]) == 2 && all["outer"][1].Command == "sleep 1001" && len(all["inner"]) == 1 && all["inner"][0].Command == "sleep 1000" {
			break
		}
	}
	if len(all) != 2 || len(all["outer"]) != 2 || len(all["inner"]) != 1 {
		t.Fatalf("%+v", all)
	}
	first, second, third := all["outer"][0], all["outer"][1], all["inner"][0]
	if first.PID != cmd.Process.Pid || first.Depth != 0 || second.Depth != 1 || second.Command != "sleep 1001" || third.PID != inner || third.Command != "sleep 1000" {
		t.Errorf("%+v", all)
	}
	if first.Memory < 100*gpu.KiB || first.Memory > gpu.GiB {
		t.Errorf("%d bytes", first.Memory)
	}
	if c := ReadComputer(host); c.Processors < 1 || c.Worked < time.Second || c.Memory < gpu.MiB || c.Use <= 0 || c.Use >= c.Memory {
		t.Errorf("%+v", c)
	}
	host.Machine = "demo"
	if c := ReadComputer(host); c != (Computer{}) {
		t.Errorf("of an invented machine: %+v", c)
	}
	if got := Workers(host, &s); len(got) != 0 {
		t.Errorf("on an invented machine: %+v", got)
	}
}

func number(text string) (n int) {
	for _, r := range text {
		if r >= '0' && r <= '9' {
			n = 10*n + int(r-'0')
		}
	}
	return n
}

// TestPast: the last day that a gpuard serve keeps can be read while it runs; what is no minute is left out.
func TestPast(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "serve")
	host := &machine.Host{Env: visible.Env{"STATE_DIRECTORY=" + folder}, Root: t.TempDir()}
	if got := PastMinutes(host); len(got) != 0 {
		t.Errorf("before a serve has run: %v", got)
	}
	file, _, err := openDay(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer file.close()
	const day = `{"at":"2026-03-01T11:58:00Z","devices":{"GPU-1":{"load":0.5}}}` + "\n" + `{"at":"2026-03-01T11:57:00Z"}` + "\nno minute\n" + `{"at":"2026-03-01T11:59:00Z","devices":{}}` + "\n" + `{"at":"2026-03-`
	if err := os.WriteFile(filepath.Join(folder, "day"), []byte(day), 0o600); err != nil {
		t.Fatal(err)
	}
	got := PastMinutes(host)
	if len(got) != 2 || *got[0].Devices["GPU-1"].Load != 0.5 || got[1].At.Minute() != 59 {
		t.Errorf("%+v", got)
	}
	if host.Machine = "demo"; len(PastMinutes(host)) != 0 {
		t.Error("an invented machine has a past")
	}
}

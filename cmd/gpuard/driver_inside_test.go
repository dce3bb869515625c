package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/job"
	"gpuard/internal/core/status"
	"gpuard/internal/gate"
)

// withEnv adds variables to a command.
func withEnv(cmd *exec.Cmd, env ...string) *exec.Cmd {
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// TestDriverSubLeases: inside a lease of two devices two runs get one each and a third none, although a device is free
// outside.
func TestDriverSubLeases(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(3)...)
	const script = `
echo "outer $GPUARD_LEASE $GPUARD_GPUS $CUDA_VISIBLE_DEVICES"
inner='echo "inner $GPUARD_LEASE $GPUARD_GPUS $CUDA_VISIBLE_DEVICES"; echo > "$DONE/$1"; while ! test -e "$DONE/over"; do sleep 0.1; done'
gpuard run -q $PRIVATE -- sh -c "$inner" sh one &
gpuard run -q $PRIVATE -- sh -c "$inner" sh two &
while ! test -e "$DONE/one" || ! test -e "$DONE/two"; do sleep 0.1; done
gpuard run -q $PRIVATE --no-wait --json -- true
echo "third $?"
gpuard run -q $PRIVATE --any -- sh -c 'echo "any $GPUARD_GPUS"'
echo > "$DONE/over"
wait
gpuard run -q $PRIVATE --gpus 2 -- sh -c 'echo "both $CUDA_VISIBLE_DEVICES"'
`
	got := runCommand(t, withEnv(r.cmd("run", "-q", "--device", "2,0", "--", "sh", "-c", script), "DONE="+t.TempDir()))
	if got.code != 0 {
		t.Fatalf("exit %d\n%s%s", got.code, got.out, got.err)
	}
	words := map[string][]string{}
	inner := map[string]string{}
	leases := map[string]bool{}
	for line := range strings.Lines(got.out) {
		f := strings.Fields(line)
		words[f[0]] = f[1:]
		if f[0] == "inner" {
			inner[f[2]] = f[3]
		}
		if len(f) == 4 {
			leases[f[1]] = true
		}
	}
	checkEqual(t, "the outer one", words["outer"][1:], []string{fakeUUID(2) + "," + fakeUUID(0), "2,0"})
	checkEqual(t, "the inner ones", inner, map[string]string{fakeUUID(0): "0", fakeUUID(2): "2"})
	checkEqual(t, "leases", len(leases), 3)
	checkEqual(t, "the third", words["third"], []string{"120"})
	checkContains(t, got.err, "none of 3 is free", "add --any to look outside lease "+words["outer"][0])
	checkEqual(t, "with --any", words["any"], []string{fakeUUID(1)})
	if both := words["both"]; len(both) != 1 || both[0] != "0,2" && both[0] != "2,0" {
		t.Errorf("both devices after the inner leases: %q", both)
	}
}

func TestDriverEndedLeaseInTheEnvironment(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	lease := strings.TrimSpace(r.run("run", "-q", "--device", "0", "--", "sh", "-c", "echo $GPUARD_LEASE").out)
	got := runCommand(t, withEnv(r.cmd("run", "-q", "--gpus", "2", "--", "sh", "-c", "echo $GPUARD_LEASE"), "GPUARD_LEASE="+lease))
	if got.code != 0 || strings.TrimSpace(got.out) == lease {
		t.Errorf("exit %d, lease %s\n%s", got.code, got.out, got.err)
	}
}

// TestDriverEndingLeaseInTheEnvironment: the command of that lease is gone and its holder is about to notice.
func TestDriverEndingLeaseInTheEnvironment(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	cmd := r.cmd("run", "-q", "--device", "0", "--", "sh", "-c", "echo $GPUARD_LEASE; exec sleep 60")
	lease := startToFirstLine(t, cmd)
	holder := waitForHolder(t, r.state)
	if err := unix.Kill(holder, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	_, _ = cmd.Process.Kill(), cmd.Wait()
	goOn := func() { _ = unix.Kill(holder, unix.SIGCONT) }
	t.Cleanup(goOn)
	time.AfterFunc(100*time.Millisecond, goOn)
	got := runCommand(t, withEnv(r.cmd("run", "--gpus", "2", "--", "true"), "GPUARD_LEASE="+lease))
	if got.code != 0 {
		t.Errorf("exit %d\n%s", got.code, got.err)
	}
}

func TestDriverOthersLeaseInTheEnvironment(t *testing.T) {
	gate.Need(t, "root")
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	if got := r.run("run", "-q", "--", "true"); got.code != 0 { // makes the folder
		t.Fatal(got.err)
	}
	theirs := r.cmd("run", "-q", "--", "sh", "-c", `echo "$GPUARD_LEASE $GPUARD_GPUS"; exec sleep 60`)
	theirs.Path = r.installForAllUsers()
	theirs.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyUID, Gid: nobodyUID}}
	lease, device, _ := strings.Cut(startToFirstLine(t, theirs), " ")
	free := map[string]string{fakeUUID(0): fakeUUID(1), fakeUUID(1): fakeUUID(0)}[device]
	got := runCommand(t, withEnv(r.cmd("run", "-q", "--", "sh", "-c", "echo $GPUARD_GPUS"), "GPUARD_LEASE="+lease))
	checkEqual(t, "given", []any{got.code, got.out}, []any{0, free + "\n"})
	refusal := mustRefuse(t, withEnv(r.cmd("run", "--json", "--device", device, "--", "true"), "GPUARD_LEASE="+lease), 120)
	checkContains(t, refusal.Error, "leased as "+lease)
}

// installForAllUsers puts the program where every user can start it.
func (r *fakeDriverMachine) installForAllUsers() string {
	r.t.Helper()
	path := filepath.Join(r.Dir, "bin", "gpuard")
	linkProgram(r.t, path)
	return path
}

// TestDriverSlurm: devices of an allocation are taken as given, recorded, and shared out among its own runs only.
func TestDriverSlurm(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(4)...)
	slurm := []string{"SLURM_JOB_ID=12", "SLURM_JOB_GPUS=1,2", "CUDA_VISIBLE_DEVICES=1,2"}
	outside := startToFirstLine(t, r.cmd("run", "-q", "--device", "1", "--", "sh", "-c", "echo $GPUARD_LEASE; exec sleep 60"))
	r.startFakeJob(2, "20G", "C")

	const script = `echo "$GPUARD_LEASE $GPUARD_GPUS $CUDA_VISIBLE_DEVICES"; exec sleep 60`
	runs := map[string]string{}
	for range 2 {
		words := strings.Fields(startToFirstLine(t, withEnv(r.cmd("run", "-q", "--", "sh", "-c", script), slurm...)))
		runs[words[1]+" "+words[2]] = words[0]
	}
	one, two := runs[fakeUUID(1)+" 1"], runs[fakeUUID(2)+" 2"]
	if one == "" || two == "" {
		t.Fatalf("two runs in an allocation of GPU 1 and 2 were given %v", runs)
	}
	s, _ := r.readStatus()
	var ids [4][]string
	for i, d := range s.Devices {
		for _, l := range d.Leases {
			ids[i] = append(ids[i], l.ID)
		}
	}
	if len(ids[0])+len(ids[3]) > 0 || len(ids[1]) != 2 || len(ids[2]) != 1 || ids[2][0] != two {
		t.Errorf("recorded are %v, not %s and %s on GPU 1 and %s on GPU 2", ids, outside, one, two)
	}
	checkEqual(t, "use", s.Devices[2].Use, status.Leased)
	refusal := mustRefuse(t, withEnv(r.cmd("run", "--json", "--", "true"), slurm...), 120)
	codes := map[int]string{}
	for _, reason := range refusal.Reasons {
		codes[reason.Index] = reason.Code + " " + reason.Lease
	}
	checkEqual(t, "reasons", codes, map[int]string{0: "hidden ", 1: "leased " + one, 2: "leased " + two, 3: "hidden "})
	// Requests of another allocation, and without one, do not get what this one has leased.
	checkContains(t, mustRefuse(t, r.cmd("run", "--json", "--device", "2", "--", "true"), 120).Error, "leased as "+two)
}

// TestDriverSlurmNote: a process on a device of the allocation is named, and the device is given all the same.
func TestDriverSlurmNote(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(4)...)
	outside := startToFirstLine(t, r.cmd("run", "-q", "--device", "1", "--", "sh", "-c", "echo $GPUARD_LEASE; exec sleep 60"))
	got := runCommand(t, withEnv(r.cmd("run", "--gpus", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"),
		"SLURM_JOB_ID=12", "SLURM_JOB_GPUS=1,2", "CUDA_VISIBLE_DEVICES=1,2"))
	if got.code != 0 || got.out != "1,2\n" && got.out != "2,1\n" {
		t.Errorf("exit %d, %s\n%s", got.code, got.out, got.err)
	}
	checkContains(t, got.err, "lease "+outside, "slurm:12 gave it to you all the same")
}

// TestDriverMask: a mask that the caller already has is obeyed; a refusal that it causes names it and the way out.
func TestDriverMask(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(3)...)
	const mask = "CUDA_VISIBLE_DEVICES=1"
	for range 3 {
		got := runCommand(t, withEnv(r.cmd("run", "-q", "--", "sh", "-c", "echo $GPUARD_GPUS $CUDA_VISIBLE_DEVICES"), mask))
		checkEqual(t, "given", []any{got.code, got.out}, []any{0, fakeUUID(1) + " 1\n"})
	}
	startToFirstLine(t, r.cmd("run", "-q", "--device", "1", "--", "sh", "-c", "echo on; exec sleep 60"))
	got := runCommand(t, withEnv(r.cmd("run", "--no-wait", "--", "true"), mask))
	checkEqual(t, "exit", got.code, 120)
	checkContains(t, strings.Join(strings.Fields(got.err), " "), mask+" hides it", "--any")
	refusal := mustRefuse(t, withEnv(r.cmd("run", "--json", "--gpus", "2", "--", "true"), mask), 122)
	checkContains(t, refusal.Remedy, "--any", mask)
	for _, reason := range refusal.Reasons {
		if hidden := reason.Verdict == job.Never && reason.Code == "hidden"; hidden != (reason.Index != 1) {
			t.Errorf("reason: %+v", reason)
		}
	}
	got = runCommand(t, withEnv(r.cmd("run", "-q", "--any", "--gpus", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"), mask))
	if got.code != 0 || strings.Contains(got.out, "1") {
		t.Errorf("with --any: %d %s%s", got.code, got.out, got.err)
	}
	got = runCommand(t, withEnv(r.cmd("run", "--", "true"), "CUDA_VISIBLE_DEVICES="))
	checkEqual(t, "nothing visible", got.code, 122)
	checkContains(t, strings.Join(strings.Fields(got.err), " "), "CUDA_VISIBLE_DEVICES= hides it", "--any")
}

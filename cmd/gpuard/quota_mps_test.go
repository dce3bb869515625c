package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/job"
	"gpuard/internal/host/proc"
	"gpuard/test/executable"
	"gpuard/test/fakegpu"
)

// startMPSJob starts a job with a share of 8 GiB that shall go through MPS, with a folder of its own for the daemon.
func (r *fakeDriverMachine) startMPSJob(name, temporary string, flags, command []string) (cmd *exec.Cmd, heard *outputBuffer, over chan struct{}) {
	r.t.Helper()
	cmd = r.cmd(append(append([]string{"run", "--no-wait", "--share", "8G", "--quota", "mps"}, flags...), append([]string{"--"}, command...)...)...)
	cmd.Args[0] = name
	cmd.Env = append(cmd.Env, "TMPDIR="+temporary)
	heard, over = &outputBuffer{}, make(chan struct{})
	cmd.Stdout, cmd.Stderr = heard, heard
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() { _ = cmd.Wait(); close(over) }()
	r.t.Cleanup(func() { _ = cmd.Process.Kill(); <-over })
	waitUntil(r.t, "the job is on its GPU, or over", func() bool { return strings.Contains(heard.String(), "ready") || isClosed(over) })
	return cmd, heard, over
}

// mpsDaemonPID is the process id of the daemon in that folder, 0 without one.
func mpsDaemonPID(temporary string) (pid int) {
	text, err := os.ReadFile(filepath.Join(temporary, fmt.Sprint("gpuard-mps-", os.Geteuid()), "nvidia-cuda-mps-control.pid"))
	if err != nil {
		return 0
	}
	_, _ = fmt.Sscan(string(text), &pid)
	if !proc.New("/proc").IsAlive(pid, 0) {
		return 0
	}
	return pid
}

// TestQuotaMPS: the daemon is started once for two jobs, limits each, and ends with the last of them.
func TestQuotaMPS(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	temporary := t.TempDir()
	first, heard, _ := r.startMPSJob("gpuard", temporary, []string{"--mps-threads", "50"}, []string{"sh", "-c",
		`echo "$CUDA_MPS_PINNED_DEVICE_MEM_LIMIT $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE $CUDA_VISIBLE_DEVICES"; exec fakegpu-job --gpu 0 --mem 7G`})
	checkContains(t, heard.String(), "a share of 8 GiB (mps)", fakeUUID(0)+"=7680M 50 "+fakeUUID(0)+"\n")
	checkEqual(t, "level", r.leaseQuota(), job.MPS)
	started := mpsDaemonPID(temporary)
	if started == 0 {
		t.Fatal("no daemon runs")
	}
	_, greedy, over := r.startMPSJob("gpuard", temporary, nil, []string{"fakegpu-job", "--gpu", "0", "--mem", "8G"})
	<-over
	checkContains(t, greedy.String(), "CUDA error: out of memory")
	checkEqual(t, "the daemon", mpsDaemonPID(temporary), started)
	time.Sleep(1500 * time.Millisecond) // it was looked for among the clients
	_ = first.Process.Kill()
	waitUntil(t, "the daemon has ended", func() bool { return mpsDaemonPID(temporary) == 0 })
	if strings.Contains(heard.String(), "does not go through MPS") {
		t.Errorf("a client is accused:\n%s", heard)
	}
}

// TestQuotaMPSUnreached: a job that does not go through MPS has no limit there. That is said, the lease says so, and it
// is measured from outside.
func TestQuotaMPSUnreached(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	temporary := t.TempDir()
	_, heard, over := r.startMPSJob("hasty", temporary, nil, []string{"fakegpu-job", "--gpu", "0", "--mem", "16G", "--no-mps"})
	waitUntil(t, "it is ended from outside", func() bool { return isClosed(over) })
	checkContains(t, heard.String(), "does not go through MPS (it is not among the clients), so the share of lease ", "has no hard limit for it; it is measured from outside instead",
		"uses 16 GiB on GPU 0", "to end (SIGTERM)")
	_, heard, _ = r.startMPSJob("hasty", temporary, nil, []string{"fakegpu-job", "--gpu", "0", "--mem", "6G", "--no-mps"})
	checkEqual(t, "level at the start", r.leaseQuota(), job.MPS)
	waitUntil(t, "the lease says it", func() bool { return r.leaseQuota() == job.Watch })
	checkContains(t, heard.String(), "does not go through MPS")
}

// TestQuotaMPSAbsent: without the program the share is measured, or refused for ever where more is required.
func TestQuotaMPSAbsent(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	r.RemoveFile("bin/nvidia-cuda-mps-control")
	got := r.run("run", "--share", "8G", "--quota", "mps", "--", "true")
	checkEqual(t, "exit", got.code, 0)
	checkContains(t, got.err, "there is no nvidia-cuda-mps-control in PATH", "the share is measured from outside instead", "a share of 8 GiB (watch)")
	refusal := mustRefuse(t, r.cmd("run", "--json", "--share", "8G", "--require-quota", "mps", "--", "true"), 122)
	checkContains(t, refusal.Error, "cannot keep the share as hard as --require-quota mps asks", "there is no nvidia-cuda-mps-control in PATH")
	checkContains(t, refusal.Remedy, "--require-quota watch")
	r.waitForNoLeases()
}

// TestQuotaMPSBroken: that a daemon cannot start shows after the lease is written; then the lease records it, or is
// freed.
func TestQuotaMPSBroken(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	r.RemoveFile("bin/nvidia-cuda-mps-control")
	executable.Write(t, filepath.Join(r.Dir, "bin/nvidia-cuda-mps-control"), []byte("#!/bin/sh\necho no device supports it; exit 1\n"))
	r.env = append(r.env, "TMPDIR="+t.TempDir())
	got := r.run("run", "--share", "8G", "--quota", "mps", "--", "true")
	checkEqual(t, "exit", got.code, 0)
	checkContains(t, got.err, "no device supports it", "the share is measured from outside instead", "a share of 8 GiB (watch)")
	refusal := mustRefuse(t, r.cmd("run", "--json", "--share", "8G", "--require-quota", "mps", "--", "true"), 122)
	checkContains(t, refusal.Error, "no device supports it")
	r.waitForNoLeases()
}

// TestQuotaMPSShort: the daemon also ends after a job that never used its GPU and was over before the first check, and where it does not
// answer at once when it is to end.
func TestQuotaMPSShort(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]string{"answers": "", "fails once": "touch $FAIL; "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newFakeDriverMachine(t, fakegpu.GeForce(0))
			temporary, fail := t.TempDir(), filepath.Join(t.TempDir(), "fail")
			r.wrapMPSControl(fmt.Sprintf("rm %s 2>/dev/null && exit 1", fail))
			r.env = append(r.env, "FAIL="+fail)
			_, heard, over := r.startMPSJob("gpuard", temporary, nil, []string{"sh", "-c",
				before + `pid=$(cat "$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"); echo "daemon $pid $(cut -d " " -f 22 /proc/$pid/stat)"`})
			<-over
			var pid int
			var start uint64
			if _, said, _ := strings.Cut(heard.String(), "daemon "); said != "" {
				_, _ = fmt.Sscan(said, &pid, &start)
			}
			if pid == 0 || start == 0 {
				t.Fatalf("no daemon was there:\n%s", heard)
			}
			waitUntil(t, "the daemon has ended", func() bool { return !proc.New("/proc").IsAlive(pid, start) })
			if _, err := os.Stat(fail); err == nil {
				t.Error("the daemon was never asked")
			}
		})
	}
}

// wrapMPSControl has a script run before each call of the control program of MPS.
func (r *fakeDriverMachine) wrapMPSControl(script string) {
	r.t.Helper()
	control := filepath.Join(r.Dir, "bin/nvidia-cuda-mps-control")
	if err := os.Rename(control, control+".real"); err != nil {
		r.t.Fatal(err)
	}
	executable.Write(r.t, control, fmt.Appendf(nil, "#!/bin/sh\n%s\nexec \"$0.real\" \"$@\"\n", script))
}

// TestQuotaMPSInside: what has all of a lease that goes through MPS goes through it too, so that its devices are
// written by UUID there; as indices they could be others to the daemon, and then it does not go through.
func TestQuotaMPSInside(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	cmd := r.cmd()
	cmd.Env = append(cmd.Env, "TMPDIR="+t.TempDir())
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `gpuard run $PRIVATE -q --no-wait --share 8G --quota mps -- sh -c '
gpuard run $PRIVATE -q --no-wait -- sh -c "echo \$CUDA_VISIBLE_DEVICES \$CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
gpuard run $PRIVATE --no-wait --ids index -- sh -c "echo \$CUDA_VISIBLE_DEVICES \${CUDA_MPS_PINNED_DEVICE_MEM_LIMIT-free}"'`}
	got := runCommand(t, cmd)
	checkEqual(t, "output", got.out, fakeUUID(0)+" "+fakeUUID(0)+"=7680M\n0 free\n")
	checkContains(t, got.err, "--ids index would name other devices to its daemon", "a share of 8 GiB (watch)")
}

// TestQuotaMPSHangs: a daemon that does not answer delays no measurement, however many processes it would be asked
// about.
func TestQuotaMPSHangs(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	hang := filepath.Join(t.TempDir(), "hang")
	r.wrapMPSControl(fmt.Sprintf("test -e %s && exec sleep 60", hang))
	_, heard, over := r.startMPSJob("gpuard", t.TempDir(), nil, []string{"sh", "-c",
		fmt.Sprintf("touch %s; for i in 1 2 3 4; do fakegpu-job --gpu 0 --mem 4G & done; wait; rm %[1]s", hang)})
	began := time.Now()
	waitUntil(t, "it is ended", func() bool { return isClosed(over) })
	if spent := time.Since(began); spent > 40*time.Second {
		t.Errorf("it took %s", spent)
	}
	checkContains(t, heard.String(), "and 3 more use 16 GiB on GPU 0", "and 3 more to end (SIGTERM)")
}

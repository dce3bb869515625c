package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/status"
	"gpuard/test/fakegpu"
)

// TestUseUnknown: a GPU of which neither memory nor load nor processes can be read is not called free. It is leased, for
// gpuard knows its own leases, and that is said once; not beside a process that was seen.
func TestUseUnknown(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	const notSupported = 3
	for _, function := range []string{
		"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetUtilizationRates",
		"nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses_v3",
	} {
		r.Fail(function, fakegpu.AnyGPU, notSupported)
	}
	s, _ := r.readStatus()
	checkEqual(t, "use", s.Devices[0].Use, status.Unknown)
	checkContains(t, r.run("status").out, "1 GPU: 1 use unknown")
	got := r.run("run", "--", "sh", "-c", "gpuard run $PRIVATE --any --no-wait -- true; echo $?")
	checkEqual(t, "another lease beside it", got.out, "120\n")
	const line = "whether GPU 0 is in use cannot be read (its memory, load and processes): only the leases of gpuard are known"
	if n := strings.Count(strings.Join(strings.Fields(got.err), " "), line); n != 1 {
		t.Errorf("said %d times:\n%s", n, got.err)
	}
}

// TestProcessOutsideLease: a process of the lease's own user that the lease did not start belongs to it in no view, and a
// job inside the lease is not put beside it; what the lease did start is its own, also where it has left the tree.
func TestProcessOutsideLease(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	dir := t.TempDir()
	cmd := r.cmd()
	cmd.Path, cmd.Args, cmd.Dir = "/bin/sh", []string{"sh", "-c", `eval "$(gpuard reserve $PRIVATE --shell)" || exit 9
mkfifo ready
(setsid sh -c 'echo $$ >pid; exec fakegpu-job --gpu 0 --mem 1G' >ready &)
read word <ready
gpuard run $PRIVATE --no-wait -- true 2>inside; echo $? >code
echo $GPUARD_LEASE
read go
gpuard run $PRIVATE --no-wait -- true 2>beside; echo $? >>code
kill $(cat pid)`}, dir
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	lease := strings.TrimSpace(startToFirstLine(t, cmd))
	text := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(string(data)), " ")
	}
	var child int
	if _, err := fmt.Sscan(text("pid"), &child); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(child, unix.SIGKILL) })
	checkContains(t, text("inside"), fmt.Sprintf("already used inside lease %s by PID %d", lease, child))

	stranger := r.startFakeJob(0, "4G", fakegpu.Compute)
	s, _ := r.readStatus()
	whose := map[int]string{}
	for _, p := range s.Devices[0].Processes {
		whose[p.PID] = fmt.Sprint(p.Lease, " ", p.Foreign)
	}
	checkEqual(t, "processes", whose, map[int]string{child: lease + " false", stranger: " true"})
	checkContains(t, r.run("status").out, fmt.Sprintf("pid %d, no lease", stranger))
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	checkEqual(t, "codes", text("code"), "0 120")
	checkContains(t, text("beside"), fmt.Sprintf("in use without a lease by PID %d", stranger))
}

package main

import (
	"bufio"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// kernelFixture is a machine with one device, and the file of a program that is started repeatedly.
type kernelFixture struct {
	*demoMachine
	file string
}

func newKernelFixture(t *testing.T) *kernelFixture {
	t.Helper()
	k := kernelFixtureOn(newDemoMachine(t, "demo:1xL4"))
	k.writeKernelFile()
	return k
}

// kernelFixtureOn is a rig with the path of a kernel's file.
func kernelFixtureOn(r *demoMachine) *kernelFixture {
	k := &kernelFixture{r, filepath.Join(r.t.TempDir(), "kernel.json")}
	r.t.Cleanup(func() { _ = os.Remove(k.file) })
	return k
}

func (k *kernelFixture) writeKernelFile() {
	k.t.Helper()
	if err := os.WriteFile(k.file, []byte("{}"), 0o600); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kernelFixture) removeKernelFile() {
	k.t.Helper()
	if err := os.Remove(k.file); err != nil {
		k.t.Fatal(err)
	}
}

// kernelCommand is the program, with flags before those that keep its lease.
func (k *kernelFixture) kernelCommand(flags []string, command ...string) *exec.Cmd {
	cmd := k.jobCommand(command...)
	cmd.Args = append(append([]string{"gpuard", "run", "-q", "--machine", k.machine, "--keep-while", k.file}, flags...), append([]string{"--"}, command...)...)
	return cmd
}

// startKernel starts it with a command that says its lease, and returns that.
func (k *kernelFixture) startKernel(flags ...string) (cmd *exec.Cmd, lease string) {
	k.t.Helper()
	cmd = k.kernelCommand(flags, "sh", "-c", `echo "$GPUARD_LEASE $CUDA_VISIBLE_DEVICES"; exec sleep 600`)
	return cmd, strings.Fields(startAndReadLine(k.t, cmd))[0]
}

func startAndReadLine(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%q: %v", cmd.Args, err)
	}
	return line
}

func killAndWait(cmd *exec.Cmd) { _, _ = cmd.Process.Kill(), cmd.Wait() }

// TestKeepWhile: a lease outlives its command while the file exists, the next start gets it and no waiting request
// does, and it ends soon after the file.
func TestKeepWhile(t *testing.T) {
	t.Parallel()
	k := newKernelFixture(t)
	first, lease := k.startKernel()
	waiter := k.waitingCommand("sh", "-c", `echo "$GPUARD_LEASE" >"$DEVICES/served"`)
	if err := waiter.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { killAndWait(waiter) })
	waitUntil(t, "somebody waits for the device", func() bool { return k.isWaiting(waiter.Process.Pid) })
	for range 5 {
		killAndWait(first)
		waitUntil(t, "the lease waits for the next start", func() bool {
			s, _ := runStatus(t, gpuardCommand(t, k.state, nil, "status", "--machine", k.machine, "--json"))
			held := s.Devices[0].Leases
			return len(held) == 1 && held[0].ID == lease && held[0].Ended && held[0].KeptUntil != nil
		})
		checkContains(t, runCommand(t, gpuardCommand(t, k.state, nil, "status", "--machine", k.machine)).out, "is kept for the next start of its command until")
		checkContains(t, runCommand(t, withEnv(k.jobCommand("true"), "COLUMNS=2000")).err, "kept for its next start", "wait until lease "+lease)
		next, again := k.startKernel()
		checkEqual(t, "lease after a restart", again, lease)
		if !k.isWaiting(waiter.Process.Pid) {
			t.Fatal("the waiter got the device between two starts")
		}
		first = next
	}
	waitUntil(t, "the holders of the starts before leave", func() bool { return len(holdersOf(k.leaseFolder())) == 1 })
	killAndWait(first)
	k.removeKernelFile()
	removed := time.Now()
	if err := waiter.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("the waiter had run %s after the end", time.Since(removed))
	if served, _ := os.ReadFile(filepath.Join(k.devices, "served")); strings.TrimSpace(string(served)) == lease {
		t.Error("the waiter got the same lease")
	}
	k.waitUntilFreed()
}

// TestKeepWhileNeverLapses: two other requests that try without a pause never get the device while the program is
// started repeatedly.
func TestKeepWhileNeverLapses(t *testing.T) {
	t.Parallel()
	k := newKernelFixture(t)
	first, lease := k.startKernel()
	var others sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got := runCommand(t, k.jobCommand("true")); got.code != 120 {
					t.Errorf("somebody else got the device: exit %d, %s", got.code, got.err)
					return
				}
			}
		})
	}
	for range soakCount(100, 8) {
		killAndWait(first)
		time.Sleep(rand.N(5 * time.Millisecond))
		next, again := k.startKernel()
		checkEqual(t, "lease after a restart", again, lease)
		first = next
	}
	close(stop)
	others.Wait()
}

// TestKeepWhileKilled: kill -9 of the next start at any moment leaves the lease, or none, and never two on a device.
// Some starts ask for something else with the same file: they free the lease, but never take it from one that has just
// taken it over.
func TestKeepWhileKilled(t *testing.T) {
	t.Parallel()
	k := newKernelFixture(t)
	stop := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if got := runCommand(t, k.jobCommand("occupy")); got.code != 0 && got.code != 120 {
				t.Errorf("exit %d, %s", got.code, got.err)
			}
		}
	})
	var served, killed atomic.Int32
	var starts sync.WaitGroup
	for _, flags := range [][]string{{"--wait", "20s"}, {"--wait", "20s"}, {"--wait", "20s", "--mem", "8G"}} {
		starts.Go(func() {
			for range soakCount(100, 10) {
				cmd := k.kernelCommand(flags, "occupy")
				cmd.Env = append(cmd.Env, "LINGER=3ms")
				switch got := runAndKill(t, cmd, rand.N(120*time.Millisecond)); got.code {
				case 0:
					served.Add(1)
				case -1:
					killed.Add(1)
				default:
					t.Errorf("exit %d, %s", got.code, got.err)
				}
			}
		})
	}
	starts.Wait()
	t.Logf("%d ran to their end, %d were killed", served.Load(), killed.Load())
	close(stop)
	others.Wait()
	k.removeKernelFile()
	k.waitUntilFreed()
	k.checkViolations()
	k.claimAll(1)
}

// TestKeepWhileOther: a start that asks for something else frees the lease and claims anew; another file is another
// program.
func TestKeepWhileOther(t *testing.T) {
	t.Parallel()
	k := newKernelFixture(t)
	first, lease := k.startKernel()
	killAndWait(first)
	next, other := k.startKernel("--mem", "8G")
	if other == lease {
		t.Error("another request has the lease of the first")
	}
	checkEqual(t, "leases", k.countLeases(), 1)
	killAndWait(next)
	mine := k.file
	k.file = filepath.Join(t.TempDir(), "other.json")
	k.writeKernelFile()
	cmd := k.kernelCommand([]string{"--no-wait", "--mem", "8G"}, "true")
	checkContains(t, runCommand(t, cmd).err, "cannot give 1 GPU")
	k.file = mine
	again, same8 := k.startKernel("--mem", "8G")
	checkEqual(t, "lease", same8, other)
	killAndWait(again)
	inside := k.kernelCommand([]string{"--mem", "8G"}, "sh", "-c", `echo "$GPUARD_LEASE"; exec sleep 600`)
	inside.Env = append(inside.Env, "GPUARD_LEASE=abcd")
	if other = strings.TrimSpace(startAndReadLine(t, inside)); other == same8 {
		t.Error("a start inside of another lease has the same one")
	}
	killAndWait(inside)
	if got := runCommand(t, k.releaseCommand(other)); got.code != 0 {
		t.Errorf("a lease that is kept cannot be released: exit %d, %s", got.code, got.err)
	}
	k.waitUntilFreed()
}

// TestKeepWhileBeside: the same file while the first still runs is one more run, which waits for a device of its own.
func TestKeepWhileBeside(t *testing.T) {
	t.Parallel()
	k := newKernelFixture(t)
	first, _ := k.startKernel()
	if got := runCommand(t, k.kernelCommand([]string{"--no-wait"}, "true")); got.code != 120 {
		t.Errorf("exit %d, %s", got.code, got.err)
	}
	killAndWait(first)
	k.removeKernelFile()
	k.waitUntilFreed()
}

// startServerWithKernel is a program that another one starts, by one of gpuard's names, and that says its process; that lives until
// it is killed.
func (k *kernelFixture) startServerWithKernel(name, script string) (server *exec.Cmd, pid int) {
	k.t.Helper()
	inner := k.kernelCommand(nil, "sh", "-c", `echo >"$DEVICES/served"; `+script)
	server = exec.CommandContext(k.t.Context(), "sh", append([]string{"-c", `"$@" & echo $!; wait; exec sleep 600`, "server", "./" + name}, inner.Args[1:]...)...)
	server.Dir, server.Env = k.t.TempDir(), inner.Env
	if err := os.Symlink(inner.Path, filepath.Join(server.Dir, name)); err != nil {
		k.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(startAndReadLine(k.t, server)))
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
	return server, pid
}

// waitForServedKernel waits until the program has begun.
func (k *kernelFixture) waitForServedKernel() {
	k.t.Helper()
	waitUntil(k.t, "it has begun", func() bool { _, err := os.Stat(filepath.Join(k.devices, "served")); return err == nil })
}

// TestKeepWhileParentEnds: when the parent of the program has ended it is not started again, even if the file stays.
func TestKeepWhileParentEnds(t *testing.T) {
	t.Parallel()
	k := newKernelFixture(t)
	server, pid := k.startServerWithKernel("gpuard", "exec sleep 600")
	k.waitForServedKernel()
	_ = unix.Kill(pid, unix.SIGKILL)
	waitUntil(t, "the lease waits for the next start", func() bool {
		s, _ := runStatus(t, gpuardCommand(t, k.state, nil, "status", "--machine", k.machine, "--json"))
		return len(s.Devices[0].Leases) == 1 && s.Devices[0].Leases[0].KeptUntil != nil
	})
	killAndWait(server)
	if spent := k.waitUntilFreed(); spent > 10*time.Second { // it would be 15 s
		t.Errorf("the lease ends %s after its parent", spent)
	}
}

// TestKeepWhileParentEndsBefore: nor when that one was gone while the command still stood in line.
func TestKeepWhileParentEndsBefore(t *testing.T) {
	t.Parallel()
	k := newKernelFixture(t)
	first := k.jobCommand("sleep", "600")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { killAndWait(first) })
	waitUntil(t, "the device is leased", func() bool { return k.countLeases() == 1 })
	server, pid := k.startServerWithKernel("lasting", "")
	waitUntil(t, "it waits for the device", func() bool { return k.isWaiting(pid) })
	killAndWait(server)
	killAndWait(first)
	k.waitForServedKernel()
	k.waitUntilFreed() // and not only after ten minutes
}

// TestKeepWhileOnADevice: the same on devices of a driver, with a share that is watched.
func TestKeepWhileOnADevice(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	file := filepath.Join(t.TempDir(), "kernel.json")
	writeFile(t, file, "{}", 0)
	begin := func(flags ...string) (*exec.Cmd, []string) {
		cmd := r.cmd(append(append([]string{"run", "-q", "--no-wait", "--keep-while", file}, flags...), "--", "sh", "-c", "echo $GPUARD_LEASE $GPUARD_GPUS $CUDA_VISIBLE_DEVICES; exec sleep 600")...)
		cmd.Args[0] = "lasting"
		return cmd, strings.Fields(startAndReadLine(t, cmd))
	}
	for _, flags := range [][]string{{"--device", "1,0"}, {"--share", "8G"}} {
		first, had := begin(flags...)
		for range 2 {
			killAndWait(first)
			next, has := begin(flags...)
			checkEqual(t, strings.Join(flags, " ")+": lease, devices and mask after a restart", has, had)
			first = next
		}
		killAndWait(first)
		if got := r.run("release", had[0]); got.code != 0 {
			t.Errorf("%+v", got)
		}
	}
}

// TestKeepWhileWrittenAnew: the file goes and comes again before the next start, as when Jupyter chooses new ports.
func TestKeepWhileWrittenAnew(t *testing.T) {
	t.Parallel()
	k := newKernelFixture(t)
	first := k.kernelCommand(nil, "sh", "-c", `echo "$GPUARD_LEASE"; exec sleep 600`)
	first.Args[0] = "lasting" // so that a machine with much to do is no reason to fail
	lease := strings.TrimSpace(startAndReadLine(t, first))
	killAndWait(first)
	k.removeKernelFile()
	time.Sleep(20 * time.Millisecond)
	k.writeKernelFile()
	next, again := k.startKernel()
	checkEqual(t, "lease", again, lease)
	killAndWait(next)
	k.removeKernelFile()
	k.waitUntilFreed()
}

// TestKeepWhileEnds: without a next start the lease ends by itself although the file stays, and without delay if the
// file never existed.
func TestKeepWhileEnds(t *testing.T) {
	t.Parallel()
	k := newKernelFixture(t)
	cmd := k.kernelCommand(nil, "true")
	cmd.Args[0] = "hasty" // 1.5 s in place of 15
	started := time.Now()
	if got := runCommand(t, cmd); got.code != 0 {
		t.Fatal(got.err)
	}
	k.waitUntilFreed()
	if spent := time.Since(started); spent < time.Second {
		t.Errorf("the lease was kept for %s only", spent)
	}
	k.removeKernelFile()
	if got := runCommand(t, k.kernelCommand(nil, "true")); got.code != 0 {
		t.Fatal(got.err)
	}
	if spent := k.waitUntilFreed(); spent > 10*time.Second {
		t.Errorf("without the file the lease was kept for %s", spent)
	}
}

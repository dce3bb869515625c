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

// kernelRig is a machine with one device, and the file of a program that is started repeatedly.
type kernelRig struct {
	*rig
	file string
}

func newKernelRig(t *testing.T) *kernelRig {
	t.Helper()
	k := keptOn(newRig(t, "demo:1xL4"))
	k.write()
	return k
}

// keptOn is a rig with the path of a kernel's file.
func keptOn(r *rig) *kernelRig {
	k := &kernelRig{r, filepath.Join(r.t.TempDir(), "kernel.json")}
	r.t.Cleanup(func() { _ = os.Remove(k.file) })
	return k
}

func (k *kernelRig) write() {
	k.t.Helper()
	if err := os.WriteFile(k.file, []byte("{}"), 0o600); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kernelRig) remove() {
	k.t.Helper()
	if err := os.Remove(k.file); err != nil {
		k.t.Fatal(err)
	}
}

// kernel is the program, with flags before those that keep its lease.
func (k *kernelRig) kernel(flags []string, command ...string) *exec.Cmd {
	cmd := k.job(command...)
	cmd.Args = append(append([]string{"gpuard", "run", "-q", "--machine", k.machine, "--keep-while", k.file}, flags...), append([]string{"--"}, command...)...)
	return cmd
}

// begin starts it with a command that says its lease, and returns that.
func (k *kernelRig) begin(flags ...string) (cmd *exec.Cmd, lease string) {
	k.t.Helper()
	cmd = k.kernel(flags, "sh", "-c", `echo "$GPUARD_LEASE $CUDA_VISIBLE_DEVICES"; exec sleep 600`)
	return cmd, strings.Fields(saysLine(k.t, cmd))[0]
}

func saysLine(t *testing.T, cmd *exec.Cmd) string {
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

func endNow(cmd *exec.Cmd) { _, _ = cmd.Process.Kill(), cmd.Wait() }

// TestKeepWhile: a lease outlives its command while the file exists, the next start gets it and no waiting request
// does, and it ends soon after the file.
func TestKeepWhile(t *testing.T) {
	t.Parallel()
	k := newKernelRig(t)
	first, lease := k.begin()
	waiter := k.waiter("sh", "-c", `echo "$GPUARD_LEASE" >"$DEVICES/served"`)
	if err := waiter.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endNow(waiter) })
	eventually(t, "somebody waits for the device", func() bool { return k.waits(waiter.Process.Pid) })
	for range 5 {
		endNow(first)
		eventually(t, "the lease waits for the next start", func() bool {
			s, _ := statusOf(t, program(t, k.state, nil, "status", "--machine", k.machine, "--json"))
			held := s.Devices[0].Leases
			return len(held) == 1 && held[0].ID == lease && held[0].Ended && held[0].KeptUntil != nil
		})
		contains(t, run(t, program(t, k.state, nil, "status", "--machine", k.machine)).out, "is kept for the next start of its command until")
		contains(t, run(t, with(k.job("true"), "COLUMNS=2000")).err, "kept for its next start", "wait until lease "+lease)
		next, again := k.begin()
		same(t, "lease after a restart", again, lease)
		if !k.waits(waiter.Process.Pid) {
			t.Fatal("the waiter got the device between two starts")
		}
		first = next
	}
	eventually(t, "the holders of the starts before leave", func() bool { return len(holdersOf(k.folder())) == 1 })
	endNow(first)
	k.remove()
	removed := time.Now()
	if err := waiter.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("the waiter had run %s after the end", time.Since(removed))
	if served, _ := os.ReadFile(filepath.Join(k.devices, "served")); strings.TrimSpace(string(served)) == lease {
		t.Error("the waiter got the same lease")
	}
	k.freed()
}

// TestKeepWhileNeverLapses: two other requests that try without a pause never get the device while the program is
// started repeatedly.
func TestKeepWhileNeverLapses(t *testing.T) {
	t.Parallel()
	k := newKernelRig(t)
	first, lease := k.begin()
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
				if got := run(t, k.job("true")); got.code != 120 {
					t.Errorf("somebody else got the device: exit %d, %s", got.code, got.err)
					return
				}
			}
		})
	}
	for range soaked(100, 8) {
		endNow(first)
		time.Sleep(rand.N(5 * time.Millisecond))
		next, again := k.begin()
		same(t, "lease after a restart", again, lease)
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
	k := newKernelRig(t)
	stop := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if got := run(t, k.job("occupy")); got.code != 0 && got.code != 120 {
				t.Errorf("exit %d, %s", got.code, got.err)
			}
		}
	})
	var served, killed atomic.Int32
	var starts sync.WaitGroup
	for _, flags := range [][]string{{"--wait", "20s"}, {"--wait", "20s"}, {"--wait", "20s", "--mem", "8G"}} {
		starts.Go(func() {
			for range soaked(100, 10) {
				cmd := k.kernel(flags, "occupy")
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
	k.remove()
	k.freed()
	k.check()
	k.all(1)
}

// TestKeepWhileOther: a start that asks for something else frees the lease and claims anew; another file is another
// program.
func TestKeepWhileOther(t *testing.T) {
	t.Parallel()
	k := newKernelRig(t)
	first, lease := k.begin()
	endNow(first)
	next, other := k.begin("--mem", "8G")
	if other == lease {
		t.Error("another request has the lease of the first")
	}
	same(t, "leases", k.leases(), 1)
	endNow(next)
	mine := k.file
	k.file = filepath.Join(t.TempDir(), "other.json")
	k.write()
	cmd := k.kernel([]string{"--no-wait", "--mem", "8G"}, "true")
	contains(t, run(t, cmd).err, "cannot give 1 GPU")
	k.file = mine
	again, same8 := k.begin("--mem", "8G")
	same(t, "lease", same8, other)
	endNow(again)
	inside := k.kernel([]string{"--mem", "8G"}, "sh", "-c", `echo "$GPUARD_LEASE"; exec sleep 600`)
	inside.Env = append(inside.Env, "GPUARD_LEASE=abcd")
	if other = strings.TrimSpace(saysLine(t, inside)); other == same8 {
		t.Error("a start inside of another lease has the same one")
	}
	endNow(inside)
	if got := run(t, k.release(other)); got.code != 0 {
		t.Errorf("a lease that is kept cannot be released: exit %d, %s", got.code, got.err)
	}
	k.freed()
}

// TestKeepWhileBeside: the same file while the first still runs is one more run, which waits for a device of its own.
func TestKeepWhileBeside(t *testing.T) {
	t.Parallel()
	k := newKernelRig(t)
	first, _ := k.begin()
	if got := run(t, k.kernel([]string{"--no-wait"}, "true")); got.code != 120 {
		t.Errorf("exit %d, %s", got.code, got.err)
	}
	endNow(first)
	k.remove()
	k.freed()
}

// ofServer is a program that another one starts, by one of gpuard's names, and that says its process; that lives until
// it is killed.
func (k *kernelRig) ofServer(name, script string) (server *exec.Cmd, pid int) {
	k.t.Helper()
	inner := k.kernel(nil, "sh", "-c", `echo >"$DEVICES/served"; `+script)
	server = exec.CommandContext(k.t.Context(), "sh", append([]string{"-c", `"$@" & echo $!; wait; exec sleep 600`, "server", "./" + name}, inner.Args[1:]...)...)
	server.Dir, server.Env = k.t.TempDir(), inner.Env
	if err := os.Symlink(inner.Path, filepath.Join(server.Dir, name)); err != nil {
		k.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(saysLine(k.t, server)))
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
	return server, pid
}

// served waits until the program has begun.
func (k *kernelRig) served() {
	k.t.Helper()
	eventually(k.t, "it has begun", func() bool { _, err := os.Stat(filepath.Join(k.devices, "served")); return err == nil })
}

// TestKeepWhileParentEnds: when the parent of the program has ended it is not started again, even if the file stays.
func TestKeepWhileParentEnds(t *testing.T) {
	t.Parallel()
	k := newKernelRig(t)
	server, pid := k.ofServer("gpuard", "exec sleep 600")
	k.served()
	_ = unix.Kill(pid, unix.SIGKILL)
	eventually(t, "the lease waits for the next start", func() bool {
		s, _ := statusOf(t, program(t, k.state, nil, "status", "--machine", k.machine, "--json"))
		return len(s.Devices[0].Leases) == 1 && s.Devices[0].Leases[0].KeptUntil != nil
	})
	endNow(server)
	if spent := k.freed(); spent > 10*time.Second { // it would be 15 s
		t.Errorf("the lease ends %s after its parent", spent)
	}
}

// TestKeepWhileParentEndsBefore: nor when that one was gone while the command still stood in line.
func TestKeepWhileParentEndsBefore(t *testing.T) {
	t.Parallel()
	k := newKernelRig(t)
	first := k.job("sleep", "600")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endNow(first) })
	eventually(t, "the device is leased", func() bool { return k.leases() == 1 })
	server, pid := k.ofServer("lasting", "")
	eventually(t, "it waits for the device", func() bool { return k.waits(pid) })
	endNow(server)
	endNow(first)
	k.served()
	k.freed() // and not only after ten minutes
}

// TestKeepWhileOnADevice: the same on devices of a driver, with a share that is watched.
func TestKeepWhileOnADevice(t *testing.T) {
	t.Parallel()
	r := newRack(t, a100s(2)...)
	file := filepath.Join(t.TempDir(), "kernel.json")
	writeFile(t, file, "{}", 0)
	begin := func(flags ...string) (*exec.Cmd, []string) {
		cmd := r.cmd(append(append([]string{"run", "-q", "--no-wait", "--keep-while", file}, flags...), "--", "sh", "-c", "echo $GPUARD_LEASE $GPUARD_GPUS $CUDA_VISIBLE_DEVICES; exec sleep 600")...)
		cmd.Args[0] = "lasting"
		return cmd, strings.Fields(saysLine(t, cmd))
	}
	for _, flags := range [][]string{{"--device", "1,0"}, {"--share", "8G"}} {
		first, had := begin(flags...)
		for range 2 {
			endNow(first)
			next, has := begin(flags...)
			same(t, strings.Join(flags, " ")+": lease, devices and mask after a restart", has, had)
			first = next
		}
		endNow(first)
		if got := r.run("release", had[0]); got.code != 0 {
			t.Errorf("%+v", got)
		}
	}
}

// TestKeepWhileWrittenAnew: the file goes and comes again before the next start, as when Jupyter chooses new ports.
func TestKeepWhileWrittenAnew(t *testing.T) {
	t.Parallel()
	k := newKernelRig(t)
	first := k.kernel(nil, "sh", "-c", `echo "$GPUARD_LEASE"; exec sleep 600`)
	first.Args[0] = "lasting" // so that a machine with much to do is no reason to fail
	lease := strings.TrimSpace(saysLine(t, first))
	endNow(first)
	k.remove()
	time.Sleep(20 * time.Millisecond)
	k.write()
	next, again := k.begin()
	same(t, "lease", again, lease)
	endNow(next)
	k.remove()
	k.freed()
}

// TestKeepWhileEnds: without a next start the lease ends by itself although the file stays, and without delay if the
// file never existed.
func TestKeepWhileEnds(t *testing.T) {
	t.Parallel()
	k := newKernelRig(t)
	cmd := k.kernel(nil, "true")
	cmd.Args[0] = "hasty" // 1.5 s in place of 15
	started := time.Now()
	if got := run(t, cmd); got.code != 0 {
		t.Fatal(got.err)
	}
	k.freed()
	if spent := time.Since(started); spent < time.Second {
		t.Errorf("the lease was kept for %s only", spent)
	}
	k.remove()
	if got := run(t, k.kernel(nil, "true")); got.code != 0 {
		t.Fatal(got.err)
	}
	if spent := k.freed(); spent > 10*time.Second {
		t.Errorf("without the file the lease was kept for %s", spent)
	}
}

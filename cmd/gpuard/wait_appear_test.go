package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/host/store"
	"gpuard/test/fakegpu"
)

// printAndSleepScript is a command that says what it was given and stays there.
const printAndSleepScript = "echo $GPUARD_GPUS; exec sleep 60"

// startWaiter starts a request that waits, and returns when the queue has n. The channel gets the output of its command.
func (r *fakeDriverMachine) startWaiter(n int, cmd *exec.Cmd) <-chan string {
	r.t.Helper()
	said := startForFirstLine(r.t, cmd)
	r.waitForQueueLength(n)
	return said
}

// startForFirstLine starts a command and passes on the first line that it writes.
func startForFirstLine(t testing.TB, cmd *exec.Cmd) <-chan string {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		said <- strings.TrimSpace(line)
	}()
	return said
}

// checkNotOvertaken lets newcomers ask until the waiter has said what it was given, and fails if one of them gets anything.
func checkNotOvertaken(t testing.TB, waiter <-chan string, newcomer func() *exec.Cmd) string {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		select {
		case got := <-waiter:
			return got
		default:
		}
		if got := runCommand(t, newcomer()); got.code != 120 {
			t.Fatalf("a newcomer went before the waiter: exit %d\n%s%s", got.code, got.out, got.err)
		}
	}
	t.Fatal("the waiter got nothing within 2 minutes")
	return ""
}

func (r *fakeDriverMachine) newcomerCommand() *exec.Cmd {
	return r.cmd("run", "-q", "--no-wait", "--", "true")
}

// politeNewcomerCommand leaves its device to the first in line, also where that has no processor for a while.
func (r *fakeDriverMachine) politeNewcomerCommand() *exec.Cmd {
	cmd := r.newcomerCommand()
	cmd.Args[0] = "polite"
	return cmd
}

// holdDevice takes a device until the end of the test, or until the answer is called.
func (r *fakeDriverMachine) holdDevice(device string) (end func()) {
	r.t.Helper()
	cmd := r.cmd("run", "-q", "--device", device, "--", "sh", "-c", "echo on; exec sleep 60")
	startToFirstLine(r.t, cmd)
	return func() { _, _ = cmd.Process.Kill(), cmd.Wait() }
}

// TestWaitAppears: a GPU that is added goes to the first in line, and not to a request that comes then.
func TestWaitAppears(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	r.holdDevice("0")
	r.holdDevice("1")
	first := r.startWaiter(1, r.cmd("run", "-q", "--", "sh", "-c", printAndSleepScript))
	second := r.startWaiter(2, r.cmd("run", "-q", "--", "sh", "-c", printAndSleepScript))
	r.Add(fakegpu.A100(2))
	checkEqual(t, "the first in line got", checkNotOvertaken(t, first, r.politeNewcomerCommand), fakeUUID(2))
	r.Add(fakegpu.A100(3))
	checkEqual(t, "the second in line got", checkNotOvertaken(t, second, r.politeNewcomerCommand), fakeUUID(3))
}

// TestWaitAppearsAlone: the first in line finds a GPU that is added, by the kernel driver's list, where nothing else
// happens, and where much happens that is of no use.
func TestWaitAppearsAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ bustle bool }{"quiet": {}, "bustle": {true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newKernelLogMachine(t, 1)
			w.listDevice(0)
			w.holdDevice("0")
			waiter := w.startWaiter(1, w.kernelLogCommand("run", "-q", "--", "sh", "-c", printAndSleepScript))
			if c.bustle {
				defer keepWakingWaiters(t, w.state)()
			}
			w.addGPUForWaiter(waiter)
		})
	}
}

// TestWaitAppearsBehind: a new GPU is found even if the first requests of the queue are stopped.
func TestWaitAppearsBehind(t *testing.T) {
	t.Parallel()
	w := newKernelLogMachine(t, 1)
	w.listDevice(0)
	w.holdDevice("0")
	for n := range 2 {
		cmd := w.kernelLogCommand("run", "-q", "--", "sh", "-c", printAndSleepScript)
		w.startWaiter(n+1, cmd)
		defer func() { _ = cmd.Process.Signal(syscall.SIGCONT) }()
		stopWithoutLock(t, filepath.Join(w.state, "lock"), cmd.Process)
	}
	w.addGPUForWaiter(w.startWaiter(3, w.kernelLogCommand("run", "-q", "--", "sh", "-c", printAndSleepScript)))
}

// addGPUForWaiter adds a GPU, which the waiter gets.
func (w *kernelLogMachine) addGPUForWaiter(waiter <-chan string) {
	w.t.Helper()
	w.Add(fakegpu.A100(1))
	w.listDevice(1)
	select {
	case got := <-waiter:
		checkEqual(w.t, "the waiter got", got, fakeUUID(1))
	case <-time.After(50 * time.Second):
		w.t.Error("the waiter got nothing within 50 s")
	}
}

// listDevice lets the kernel driver's list have a device.
func (w *kernelLogMachine) listDevice(i int) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Join(w.root, fmt.Sprintf("proc/driver/nvidia/gpus/0000:%02x:00.0", 0x10+i)), 0o755); err != nil {
		w.t.Fatal(err)
	}
}

// keepWakingWaiters wakes all waiting requests repeatedly, until end is called.
func keepWakingWaiters(t *testing.T, state string) (end func()) {
	t.Helper()
	folders, _ := filepath.Glob(filepath.Join(state, "tickets", "*"))
	if len(folders) != 1 {
		t.Fatalf("the folders of tickets are %v", folders)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				path := filepath.Join(folders[0], ".new-call")
				_, _ = os.WriteFile(path, nil, 0o600), os.Remove(path)
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

// TestWaitReturns: a GPU that was lost when a request began to wait, so that its ticket does not know it, is that
// request's when it comes back.
func TestWaitReturns(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	r.holdDevice("0")
	r.LoseGPU(1)
	first := r.startWaiter(1, r.cmd("run", "-q", "--", "sh", "-c", printAndSleepScript))
	r.RemoveFile("gpus/1/lost")
	checkEqual(t, "the first in line got", checkNotOvertaken(t, first, r.politeNewcomerCommand), fakeUUID(1))
}

// TestWaitCalled: requests that are not first in line do not read the machine; the first calls them when one of them
// may start, as with a GPU that comes back and that the first cannot use.
func TestWaitCalled(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	r.holdDevice("0")
	r.LoseGPU(1)
	r.startWaiter(1, r.cmd("run", "-q", "--device", "0", "--", "true"))
	second := r.startWaiter(2, r.cmd("run", "-q", "--", "sh", "-c", printAndSleepScript))
	back := time.Now()
	r.RemoveFile("gpus/1/lost")
	checkEqual(t, "the second in line got", <-second, fakeUUID(1))
	if spent := time.Since(back); spent > 20*time.Second { // alone it would read the machine after 30 s
		t.Errorf("it was called only after %s", spent)
	}
}

// TestWaitUndrained: a GPU that is put into use again goes to the request that waits for it, first in line or not, at
// once.
func TestWaitUndrained(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	admin := func(verb string) {
		t.Helper()
		if got := r.run(verb, "1"); got.code != 0 {
			t.Fatalf("%s: exit %d, %s", verb, got.code, got.err)
		}
	}
	r.holdDevice("0")
	admin("drain")
	r.startWaiter(1, r.cmd("run", "-q", "--device", "0", "--", "true"))
	second := r.startWaiter(2, r.cmd("run", "-q", "--", "sh", "-c", printAndSleepScript))
	admin("undrain")
	checkEqual(t, "the second in line got", checkNotOvertaken(t, second, r.politeNewcomerCommand), fakeUUID(1))
}

// machineFile is a file that describes a machine, and what it can be changed to.
type machineFile struct {
	t    testing.TB
	path string
	all  map[string]any
}

func newMachineFile(t testing.TB, state, machine string) *machineFile {
	t.Helper()
	f := &machineFile{t: t, path: filepath.Join(t.TempDir(), "machine.json")}
	if err := json.Unmarshal([]byte(runCommand(t, gpuardCommand(t, state, nil, "status", "--machine", machine, "--record")).out), &f.all); err != nil {
		t.Fatal(err)
	}
	return f
}

// replaceFile replaces the file in one step.
func (f *machineFile) replaceFile(text []byte) {
	f.t.Helper()
	err := os.WriteFile(f.path+".new", text, 0o600)
	if err == nil {
		err = os.Rename(f.path+".new", f.path)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// writeMachine writes the machine with its first GPUs, and each with its first slices.
func (f *machineFile) writeMachine(gpus, slices int) {
	f.t.Helper()
	var some []any
	for _, one := range f.all["gpus"].([]any)[:gpus] {
		g := maps.Clone(one.(map[string]any))
		delete(g, "links")
		if mig, split := g["mig"].([]any); split {
			g["mig"] = mig[:min(slices, len(mig))]
		}
		some = append(some, g)
	}
	m := maps.Clone(f.all)
	m["gpus"] = some
	text, err := json.Marshal(m)
	if err != nil {
		f.t.Fatal(err)
	}
	f.replaceFile(text)
}

// TestWaitSlices: MIG slices that are made while a request waits for one, on a machine from a file.
func TestWaitSlices(t *testing.T) {
	t.Parallel()
	state := stateFolder(t)
	file := newMachineFile(t, state, "demo:1xA100-80GB:1g.10gb*2")
	ask := func(flags ...string) *exec.Cmd {
		args := append([]string{"run", "-q", "--machine", file.path, "--mig", "1g.10gb"}, flags...)
		return gpuardCommand(t, state, nil, append(args, "--", "sh", "-c", printAndSleepScript)...)
	}
	file.writeMachine(1, 1)
	had := startToFirstLine(t, ask())
	first := startForFirstLine(t, ask())
	waitUntil(t, "it stands in the line", func() bool {
		files, _ := filepath.Glob(filepath.Join(state, "machines/*/tickets/*/*.ticket"))
		return len(files) == 1
	})
	file.writeMachine(1, 2)
	if got := checkNotOvertaken(t, first, func() *exec.Cmd { return ask("--no-wait") }); !strings.HasPrefix(got, "MIG-") || got == had {
		t.Errorf("the first in line got %q, and %q is leased", got, had)
	}
}

// TestWaitVanished: a request in line stays there while a GPU that it waits for is gone, and while the machine cannot
// be read.
func TestWaitVanished(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:2xL4")
	file := newMachineFile(t, r.state, r.machine)
	file.writeMachine(2, 0)
	r.machine = file.path
	holders := []*exec.Cmd{r.startJob("exec sleep 60"), r.startJob("exec sleep 60")}
	both := gpuardCommand(t, r.state, nil, "run", "--gpus", "2", "--machine", file.path, "--", "sh", "-c", printAndSleepScript)
	var heard outputBuffer
	both.Stderr = &heard
	first := startForFirstLine(t, both)
	waitUntil(t, "it stands in the line", func() bool { return len(r.waitingTickets()) == 1 })
	file.writeMachine(1, 0)
	_, _ = holders[0].Process.Kill(), holders[0].Wait()
	waitUntil(t, "it says what is gone", func() bool { return strings.Contains(heard.String(), "is not there now") })
	file.replaceFile([]byte("rubbish"))
	waitUntil(t, "it says that the machine cannot be read", func() bool {
		return strings.Contains(heard.String(), "stays in the line meanwhile")
	})
	file.writeMachine(2, 0)
	_, _ = holders[1].Process.Kill(), holders[1].Wait()
	if got := <-first; strings.Count(got, ",") != 1 {
		t.Errorf("it got %q\n%s", got, heard.String())
	}
}

// TestWaitIgnorant: a ticket that knows no device, as no gpuard writes it, keeps a free GPU that it does not wait for
// from others once, for as long as one that is next may let a GPU lie, and not again.
func TestWaitIgnorant(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	r.holdDevice("0")
	folder, err := store.Open(r.state, nil, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close() //nolint:errcheck // the ticket is withdrawn
	mine, err := folder.QueueTicket(job.Ticket{Devices: []gpu.UUID{gpu.UUID(fakeUUID(0))}, Count: 1, PID: os.Getpid(), Command: "silent"})
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Withdraw() //nolint:errcheck // dead all the same
	refused, began := 0, time.Now()
	for got := runCommand(t, r.newcomerCommand()); got.code != 0; got = runCommand(t, r.newcomerCommand()) {
		refused++
		checkContains(t, got.err, "kept for silent")
		if time.Since(began) > 50*time.Second {
			t.Fatal("it keeps a free device for ever")
		}
	}
	if refused == 0 {
		t.Error("a device that the first in line may not have seen yet went to a newcomer")
	}
	for range 3 {
		checkEqual(t, "exit of a later newcomer", runCommand(t, r.newcomerCommand()).code, 0)
	}
}

// TestWaitReadsAlone: of those in line the first alone reads the machine and decides now and then; the others sleep.
func TestWaitReadsAlone(t *testing.T) {
	t.Parallel()
	l := newLineFixture(t)
	trace := filepath.Join(t.TempDir(), "trace")
	var pids []int
	for i := range 4 {
		cmd := withEnv(l.waitingCommand("true"), "GPUARD_TRACE="+trace)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
		pids = append(pids, cmd.Process.Pid)
		waitUntil(t, "it stands in the line and has looked", func() bool {
			return len(l.waitingTickets()) == i+1 && countDecisions(trace)[cmd.Process.Pid] > 1
		})
	}
	before := countDecisions(trace)
	waitUntil(t, "the first looks", func() bool { return countDecisions(trace)[pids[0]] >= before[pids[0]]+3 })
	for _, pid := range pids[1:] {
		if n := countDecisions(trace)[pid] - before[pid]; n > 0 {
			t.Errorf("process %d, which is not first, decided %d times while nothing happened", pid, n)
		}
	}
}

// countDecisions counts the lines of a trace by process.
func countDecisions(trace string) map[int]int {
	text, _ := os.ReadFile(trace)
	count := map[int]int{}
	for line := range strings.Lines(string(text)) {
		var l struct{ PID int }
		if json.Unmarshal([]byte(line), &l) == nil {
			count[l.PID]++
		}
	}
	return count
}

// TestWaitBesideHung: a GPU whose driver call hangs does not keep a waiting request from another GPU, which it gets
// long before the driver's deadline.
func TestWaitBesideHung(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	end := r.holdDevice("0")
	first := r.startWaiter(1, r.patientCommand("run", "-q", "--device", "0", "--", "sh", "-c", "echo $GPUARD_GPUS")) // a minute for the driver
	r.Hang("nvmlDeviceGetTemperature", 1)
	time.Sleep(time.Second) // the first in line reads the machine every 200 ms; how often it did so does not matter
	end()
	select {
	case got := <-first:
		checkEqual(t, "the first in line got", got, fakeUUID(0))
	case <-time.After(40 * time.Second):
		t.Error("the first in line got nothing within 40 s")
	}
}

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

// keepsOn is a command that says what it was given and stays there.
const keepsOn = "echo $GPUARD_GPUS; exec sleep 60"

// waits starts a request that waits, and returns when the queue has n. The channel gets the output of its command.
func (r *rack) waits(n int, cmd *exec.Cmd) <-chan string {
	r.t.Helper()
	said := speaks(r.t, cmd)
	r.inLine(n)
	return said
}

// speaks starts a command and passes on the first line that it writes.
func speaks(t testing.TB, cmd *exec.Cmd) <-chan string {
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

// overtaken lets newcomers ask until the waiter has said what it was given, and fails if one of them gets anything.
func overtaken(t testing.TB, waiter <-chan string, newcomer func() *exec.Cmd) string {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		select {
		case got := <-waiter:
			return got
		default:
		}
		if got := run(t, newcomer()); got.code != 120 {
			t.Fatalf("a newcomer went before the waiter: exit %d\n%s%s", got.code, got.out, got.err)
		}
	}
	t.Fatal("the waiter got nothing within 2 minutes")
	return ""
}

func (r *rack) newcomer() *exec.Cmd { return r.cmd("run", "-q", "--no-wait", "--", "true") }

// politeNewcomer leaves its device to the first in line, also where that has no processor for a while.
func (r *rack) politeNewcomer() *exec.Cmd {
	cmd := r.newcomer()
	cmd.Args[0] = "polite"
	return cmd
}

// holds takes a device until the end of the test, or until the answer is called.
func (r *rack) holds(device string) (end func()) {
	r.t.Helper()
	cmd := r.cmd("run", "-q", "--device", device, "--", "sh", "-c", "echo on; exec sleep 60")
	begin(r.t, cmd)
	return func() { _, _ = cmd.Process.Kill(), cmd.Wait() }
}

// TestWaitAppears: a GPU that is added goes to the first in line, and not to a request that comes then.
func TestWaitAppears(t *testing.T) {
	t.Parallel()
	r := newRack(t, a100s(2)...)
	r.holds("0")
	r.holds("1")
	first := r.waits(1, r.cmd("run", "-q", "--", "sh", "-c", keepsOn))
	second := r.waits(2, r.cmd("run", "-q", "--", "sh", "-c", keepsOn))
	r.Add(fakegpu.A100(2))
	same(t, "the first in line got", overtaken(t, first, r.politeNewcomer), uuid(2))
	r.Add(fakegpu.A100(3))
	same(t, "the second in line got", overtaken(t, second, r.politeNewcomer), uuid(3))
}

// TestWaitAppearsAlone: the first in line finds a GPU that is added, by the kernel driver's list, where nothing else
// happens, and where much happens that is of no use.
func TestWaitAppearsAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ bustle bool }{"quiet": {}, "bustle": {true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWard(t, 1)
			w.listed(0)
			w.holds("0")
			waiter := w.waits(1, w.program("run", "-q", "--", "sh", "-c", keepsOn))
			if c.bustle {
				defer bustle(t, w.state)()
			}
			w.finds(waiter)
		})
	}
}

// TestWaitAppearsBehind: a new GPU is found even if the first requests of the queue are stopped.
func TestWaitAppearsBehind(t *testing.T) {
	t.Parallel()
	w := newWard(t, 1)
	w.listed(0)
	w.holds("0")
	for n := range 2 {
		cmd := w.program("run", "-q", "--", "sh", "-c", keepsOn)
		w.waits(n+1, cmd)
		defer func() { _ = cmd.Process.Signal(syscall.SIGCONT) }()
		halt(t, filepath.Join(w.state, "lock"), cmd.Process)
	}
	w.finds(w.waits(3, w.program("run", "-q", "--", "sh", "-c", keepsOn)))
}

// finds adds a GPU, which the waiter gets.
func (w *ward) finds(waiter <-chan string) {
	w.t.Helper()
	w.Add(fakegpu.A100(1))
	w.listed(1)
	select {
	case got := <-waiter:
		same(w.t, "the waiter got", got, uuid(1))
	case <-time.After(50 * time.Second):
		w.t.Error("the waiter got nothing within 50 s")
	}
}

// listed lets the kernel driver's list have a device.
func (w *ward) listed(i int) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Join(w.root, fmt.Sprintf("proc/driver/nvidia/gpus/0000:%02x:00.0", 0x10+i)), 0o755); err != nil {
		w.t.Fatal(err)
	}
}

// bustle wakes all waiting requests repeatedly, until end is called.
func bustle(t *testing.T, state string) (end func()) {
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
	r := newRack(t, a100s(2)...)
	r.holds("0")
	r.Lose(1)
	first := r.waits(1, r.cmd("run", "-q", "--", "sh", "-c", keepsOn))
	r.Remove("gpus/1/lost")
	same(t, "the first in line got", overtaken(t, first, r.politeNewcomer), uuid(1))
}

// TestWaitCalled: requests that are not first in line do not read the machine; the first calls them when one of them
// may start, as with a GPU that comes back and that the first cannot use.
func TestWaitCalled(t *testing.T) {
	t.Parallel()
	r := newRack(t, a100s(2)...)
	r.holds("0")
	r.Lose(1)
	r.waits(1, r.cmd("run", "-q", "--device", "0", "--", "true"))
	second := r.waits(2, r.cmd("run", "-q", "--", "sh", "-c", keepsOn))
	back := time.Now()
	r.Remove("gpus/1/lost")
	same(t, "the second in line got", <-second, uuid(1))
	if spent := time.Since(back); spent > 20*time.Second { // alone it would read the machine after 30 s
		t.Errorf("it was called only after %s", spent)
	}
}

// TestWaitUndrained: a GPU that is put into use again goes to the request that waits for it, first in line or not, at
// once.
func TestWaitUndrained(t *testing.T) {
	t.Parallel()
	r := newRack(t, a100s(2)...)
	admin := func(verb string) {
		t.Helper()
		if got := r.run(verb, "1"); got.code != 0 {
			t.Fatalf("%s: exit %d, %s", verb, got.code, got.err)
		}
	}
	r.holds("0")
	admin("drain")
	r.waits(1, r.cmd("run", "-q", "--device", "0", "--", "true"))
	second := r.waits(2, r.cmd("run", "-q", "--", "sh", "-c", keepsOn))
	admin("undrain")
	same(t, "the second in line got", overtaken(t, second, r.politeNewcomer), uuid(1))
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
	if err := json.Unmarshal([]byte(run(t, program(t, state, nil, "status", "--machine", machine, "--record")).out), &f.all); err != nil {
		t.Fatal(err)
	}
	return f
}

// write replaces the file in one step.
func (f *machineFile) write(text []byte) {
	f.t.Helper()
	err := os.WriteFile(f.path+".new", text, 0o600)
	if err == nil {
		err = os.Rename(f.path+".new", f.path)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// describe writes the machine with its first GPUs, and each with its first slices.
func (f *machineFile) describe(gpus, slices int) {
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
	f.write(text)
}

// TestWaitSlices: MIG slices that are made while a request waits for one, on a machine from a file.
func TestWaitSlices(t *testing.T) {
	t.Parallel()
	state := stateFolder(t)
	file := newMachineFile(t, state, "demo:1xA100-80GB:1g.10gb*2")
	ask := func(flags ...string) *exec.Cmd {
		args := append([]string{"run", "-q", "--machine", file.path, "--mig", "1g.10gb"}, flags...)
		return program(t, state, nil, append(args, "--", "sh", "-c", keepsOn)...)
	}
	file.describe(1, 1)
	had := begin(t, ask())
	first := speaks(t, ask())
	eventually(t, "it stands in the line", func() bool {
		files, _ := filepath.Glob(filepath.Join(state, "machines/*/tickets/*/*.ticket"))
		return len(files) == 1
	})
	file.describe(1, 2)
	if got := overtaken(t, first, func() *exec.Cmd { return ask("--no-wait") }); !strings.HasPrefix(got, "MIG-") || got == had {
		t.Errorf("the first in line got %q, and %q is leased", got, had)
	}
}

// TestWaitVanished: a request in line stays there while a GPU that it waits for is gone, and while the machine cannot
// be read.
func TestWaitVanished(t *testing.T) {
	t.Parallel()
	r := newRig(t, "demo:2xL4")
	file := newMachineFile(t, r.state, r.machine)
	file.describe(2, 0)
	r.machine = file.path
	holders := []*exec.Cmd{r.start("exec sleep 60"), r.start("exec sleep 60")}
	both := program(t, r.state, nil, "run", "--gpus", "2", "--machine", file.path, "--", "sh", "-c", keepsOn)
	var heard said
	both.Stderr = &heard
	first := speaks(t, both)
	eventually(t, "it stands in the line", func() bool { return len(r.tickets()) == 1 })
	file.describe(1, 0)
	_, _ = holders[0].Process.Kill(), holders[0].Wait()
	eventually(t, "it says what is gone", func() bool { return strings.Contains(heard.String(), "is not there now") })
	file.write([]byte("rubbish"))
	eventually(t, "it says that the machine cannot be read", func() bool {
		return strings.Contains(heard.String(), "stays in the line meanwhile")
	})
	file.describe(2, 0)
	_, _ = holders[1].Process.Kill(), holders[1].Wait()
	if got := <-first; strings.Count(got, ",") != 1 {
		t.Errorf("it got %q\n%s", got, heard.String())
	}
}

// TestWaitIgnorant: a ticket that knows no device, as no gpuard writes it, keeps a free GPU that it does not wait for
// from others once, for as long as one that is next may let a GPU lie, and not again.
func TestWaitIgnorant(t *testing.T) {
	t.Parallel()
	r := newRack(t, a100s(2)...)
	r.holds("0")
	folder, err := store.Open(r.state, nil, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close() //nolint:errcheck // the ticket is withdrawn
	mine, err := folder.Queue(job.Ticket{Devices: []gpu.UUID{gpu.UUID(uuid(0))}, Count: 1, PID: os.Getpid(), Command: "silent"})
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Withdraw() //nolint:errcheck // dead all the same
	refused, began := 0, time.Now()
	for got := run(t, r.newcomer()); got.code != 0; got = run(t, r.newcomer()) {
		refused++
		contains(t, got.err, "kept for silent")
		if time.Since(began) > 50*time.Second {
			t.Fatal("it keeps a free device for ever")
		}
	}
	if refused == 0 {
		t.Error("a device that the first in line may not have seen yet went to a newcomer")
	}
	for range 3 {
		same(t, "exit of a later newcomer", run(t, r.newcomer()).code, 0)
	}
}

// TestWaitReadsAlone: of those in line the first alone reads the machine and decides now and then; the others sleep.
func TestWaitReadsAlone(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	trace := filepath.Join(t.TempDir(), "trace")
	var pids []int
	for i := range 4 {
		cmd := with(l.waiter("true"), "GPUARD_TRACE="+trace)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
		pids = append(pids, cmd.Process.Pid)
		eventually(t, "it stands in the line and has looked", func() bool {
			return len(l.tickets()) == i+1 && decisions(trace)[cmd.Process.Pid] > 1
		})
	}
	before := decisions(trace)
	eventually(t, "the first looks", func() bool { return decisions(trace)[pids[0]] >= before[pids[0]]+3 })
	for _, pid := range pids[1:] {
		if n := decisions(trace)[pid] - before[pid]; n > 0 {
			t.Errorf("process %d, which is not first, decided %d times while nothing happened", pid, n)
		}
	}
}

// decisions counts the lines of a trace by process.
func decisions(trace string) map[int]int {
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
	r := newRack(t, a100s(2)...)
	end := r.holds("0")
	first := r.waits(1, r.trusting("run", "-q", "--device", "0", "--", "sh", "-c", "echo $GPUARD_GPUS")) // a minute for the driver
	r.Hang("nvmlDeviceGetTemperature", 1)
	time.Sleep(time.Second) // the first in line reads the machine every 200 ms; how often it did so does not matter
	end()
	select {
	case got := <-first:
		same(t, "the first in line got", got, uuid(0))
	case <-time.After(40 * time.Second):
		t.Error("the first in line got nothing within 40 s")
	}
}

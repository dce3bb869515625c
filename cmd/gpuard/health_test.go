package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/status"
	"gpuard/internal/host/devicestate"
	"gpuard/internal/host/proc"
)

// unwell is hasty on a machine with the kernel log dev/kmsg below the folder UNWELL.
func unwell() {
	const moment = 20 * time.Millisecond
	os.Exit(start(os.Getenv("UNWELL"), machine.Times{Driver: 2 * time.Second, Fading: time.Second, Lock: time.Second, Touch: moment, Log: moment, Drift: 4 * moment, Minute: driftMinute, Slow: 10 * moment}))
}

// ward is a rack with a kernel's log.
type ward struct {
	*rack
	root string
}

func newWard(t testing.TB, gpus int) *ward {
	t.Helper()
	w := &ward{newRack(t, a100s(gpus)...), t.TempDir()}
	if err := os.Mkdir(filepath.Join(w.root, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.log("<6>[    0.000000] Linux version 6.1")
	return w
}

// log appends lines to the kernel's log.
func (w *ward) log(lines ...string) {
	w.t.Helper()
	file, err := os.OpenFile(filepath.Join(w.root, "dev/kmsg"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = file.WriteString(strings.Join(lines, "\n") + "\n")
	}
	if err != nil {
		w.t.Fatal(err)
	}
	_ = file.Close()
}

// xid logs an error of a device, now.
func (w *ward) xid(device, code int, detail string) {
	w.t.Helper()
	w.driver(fmt.Sprintf("Xid (PCI:0000:%02x:00): %d, %s", 0x10+device, code, detail))
}

// driver logs what the driver says, now.
func (w *ward) driver(text string) {
	w.t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		w.t.Fatal(err)
	}
	w.log(fmt.Sprintf("<4>[%5d.%06d] NVRM: %s", now.Sec, now.Nsec/1000, text))
}

func (w *ward) run(args ...string) result {
	w.t.Helper()
	return run(w.t, w.program(args...))
}

func (w *ward) program(args ...string) *exec.Cmd {
	cmd := w.cmd(args...)
	cmd.Args[0] = "unwell"
	return with(cmd, "UNWELL="+w.root)
}

func (w *ward) given(args ...string) string {
	w.t.Helper()
	got := w.run(append(append([]string{"run", "-q"}, args...), "--", "sh", "-c", "echo $GPUARD_GPUS")...)
	if got.code != 0 {
		w.t.Fatalf("run %q ended with %d:\n%s", args, got.code, got.err)
	}
	return strings.TrimSpace(got.out)
}

func (w *ward) status() status.Report {
	w.t.Helper()
	s, _ := statusOf(w.t, w.program("status", "--json"))
	return s
}

// TestXIDTakesAGPUOutOfUse: XID 79 on one of four: no new lease there, the others go on, and it is said what happened
// and what to do. Nothing but a person's word or the driver's ends it, and what comes later counts again.
func TestXIDTakesAGPUOutOfUse(t *testing.T) {
	t.Parallel()
	w := newWard(t, 4)
	same(t, "given before", len(strings.Split(w.given("--gpus", "4"), ",")), 4)
	w.xid(1, 79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
	w.xid(2, 31, "pid=4242, name=python, MMU Fault")
	same(t, "given", w.given("--gpus", "3"), uuid(0)+","+uuid(2)+","+uuid(3))
	got := w.run("run", "--no-wait", "--device", "1", "--", "true")
	same(t, "exit", got.code, 120)
	contains(t, got.err, "unhealthy: XID 79 on ", "the GPU has fallen off the bus", "gpuard undrain 1")

	s := w.status()
	sick, other := s.Devices[1], s.Devices[2]
	same(t, "health", []any{sick.Health, other.Health, s.Devices[0].Health}, []any{health.Unhealthy, health.OK, health.OK})
	same(t, "errors", []any{len(sick.XIDs), sick.XIDs[0].Code, sick.XIDs[0].Class, sick.XIDs[0].Source, sick.XIDs[0].At != nil},
		[]any{1, 79, health.Host, "kernel log", true})
	same(t, "blamed", []any{other.XIDs[0].Code, other.XIDs[0].PID}, []any{31, 4242})
	contains(t, sick.Remedy, "gpuard undrain 1")
	contains(t, strings.Join(strings.Fields(w.run("status").out), " "), sick.Remedy)
	same(t, "what a device needs that is well", other.Remedy, "")
	contains(t, w.run("status").out, "4 GPUs: 3 free, 1 unhealthy", "unhealthy: XID 79 on ", "XID 31: a program touched GPU memory that is not its own", "process 4242")

	got = w.run("undrain", "1")
	same(t, "undrain", got, result{0, "GPU 1 (NVIDIA A100-SXM4-80GB) was not drained; cleared: XID 79\n", ""})
	same(t, "after it", w.status().Devices[1].Health, health.OK)
	time.Sleep(5 * time.Millisecond) // the next error has a later moment
	w.xid(1, 119, "pid=7, name=x, Timeout")
	same(t, "a new error", w.status().Devices[1].Health, health.Unhealthy)
	time.Sleep(5 * time.Millisecond)
	w.xid(1, 154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
	same(t, "the driver calls it well", w.status().Devices[1].Health, health.OK)
}

// TestNotedErrorsEnd: what was noted about a device is over when the driver says so, or was loaded anew, and not
// before.
func TestNotedErrorsEnd(t *testing.T) {
	t.Parallel()
	w := newWard(t, 2)
	w.given() // makes the folder
	boot, err := proc.New("/proc").BootID()
	if err != nil {
		t.Fatal(err)
	}
	note := func(device int) {
		t.Helper()
		e := gpu.Event{Device: gpu.UUID(uuid(device)), XID: gpu.XID{Code: 119, At: time.Now(), Source: "nvml"}}
		if err := devicestate.Record(w.state, boot, e); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond) // what comes next has a later moment
	}
	state := func() []health.State {
		s := w.status()
		return []health.State{s.Devices[0].Health, s.Devices[1].Health}
	}
	note(0)
	note(1)
	same(t, "noted", state(), []health.State{health.Unhealthy, health.Unhealthy})
	w.xid(1, 154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
	same(t, "one needs nothing any more", state(), []health.State{health.Unhealthy, health.OK})
	time.Sleep(5 * time.Millisecond)
	note(1)
	same(t, "and again", state(), []health.State{health.Unhealthy, health.Unhealthy})
	w.driver("loading NVIDIA UNIX x86_64 Kernel Module  550.54.15")
	same(t, "the driver was loaded anew", state(), []health.State{health.OK, health.OK})
}

// TestUndrainARecordedMachine: a drain that a machine file has can be ended like any other.
func TestUndrainARecordedMachine(t *testing.T) {
	t.Parallel()
	w := newWard(t, 2)
	same(t, "drain", w.run("drain", "1").code, 0)
	file := filepath.Join(t.TempDir(), "machine.json")
	if err := os.WriteFile(file, []byte(w.run("status", "--record").out), 0o600); err != nil {
		t.Fatal(err)
	}
	state := stateFolder(t)
	recorded := func(args ...string) result { return run(t, program(t, state, nil, append(args, "--machine", file)...)) }
	contains(t, recorded("status").out, "drained: no reason given (")
	contains(t, recorded("undrain", "1").out, "is in use again")
	if got := recorded("status").out; strings.Contains(got, "drained") {
		t.Errorf("it is drained still:\n%s", got)
	}
}

// TestDrain: a drained device gets no new lease, its job keeps it, and all commands show who drained it and why.
func TestDrain(t *testing.T) {
	t.Parallel()
	w := newWard(t, 2)
	held := begin(t, w.program("run", "-q", "--device", "0", "--", "sh", "-c", "echo $GPUARD_LEASE; exec sleep 60"))
	waiter := w.program("run", "-q", "--device", "0", "--", "true")
	if err := waiter.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "somebody waits", func() bool { return len(w.status().Waiting) == 1 })
	got := w.run("drain", "0", "--reason", "the fan is broken")
	contains(t, got.out, fmt.Sprintf("true (process %d) waits for it, and keeps waiting until it is in use again\n", waiter.Process.Pid))
	_ = waiter.Process.Kill()
	_ = waiter.Wait()
	same(t, "exit", got.code, 0)
	contains(t, got.out, "GPU 0 (NVIDIA A100-SXM4-80GB) gets no new lease: the fan is broken\n", "(lease "+held+", process ", "keeps it until it ends", "gpuard undrain 0")
	d := w.status().Devices[0]
	same(t, "use", []any{d.Use, d.Health, len(d.Leases)}, []any{status.Draining, health.OK, 1})
	contains(t, d.Drained, "the fan is broken (", ", since ")
	contains(t, w.run("status").out, "2 GPUs: 1 free, 1 draining", "drained: the fan is broken (", "gpuard undrain 0", held)
	same(t, "given", w.given(), uuid(1))
	got = w.run("run", "--no-wait", "--gpus", "2", "--", "true")
	same(t, "refusal", got.code, 120)
	contains(t, got.err, "drained  the fan is broken (", "gpuard undrain 0")
	contains(t, w.run("undrain", "0").out, "is in use again")
	same(t, "use", w.status().Devices[0].Use, status.Leased)
	for _, args := range [][]string{{"drain"}, {"drain", "9"}, {"undrain", "GPU-none"}, {"drain", "0", "9"}} {
		if got := w.run(args...); got.code != 2 || !strings.Contains(got.err, "gpuard status") {
			t.Errorf("%q ended with %d: %s", args, got.code, got.err)
		}
	}
	got = w.run("drain", "1", "--reason", strings.Repeat("long ", 20_000))
	same(t, "a reason that nobody would read", got, result{2, "", "gpuard: cannot drain 1: the reason has 100000 characters; say it in 500\n"})
}

// TestDrainBesideAClaim: a command that read the GPU before it was drained, and decides after it, does not get it; or
// drain names it.
func TestDrainBesideAClaim(t *testing.T) {
	t.Parallel()
	r := newRack(t, a100s(2)...)
	r.given() // makes the folder
	lock, err := os.OpenFile(filepath.Join(r.state, "lock"), os.O_RDWR, 0)
	if err == nil {
		err = unix.FcntlFlock(lock.Fd(), unix.F_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK})
	}
	if err != nil {
		t.Fatal(err)
	}
	waits := func(cmd *exec.Cmd) bool {
		return strings.Contains(strings.Join(strings.Fields(text(t, "/proc/locks")), " "), fmt.Sprintf("-> POSIX ADVISORY WRITE %d ", cmd.Process.Pid))
	}
	started := func(args ...string) (cmd *exec.Cmd, said string, over chan error) {
		cmd, said, over = r.cmd(args...), filepath.Join(t.TempDir(), "said"), make(chan error, 1)
		cmd.Stdout = create(t, said)
		cmd.Stderr = cmd.Stdout
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { over <- cmd.Wait() }()
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		return cmd, said, over
	}
	claim, refusal, refused := started("run", "--no-wait", "--device", "0", "--", "sleep", "60")
	eventually(t, "the claim has read the machine", func() bool { return waits(claim) })
	drain, named, drained := started("drain", "0", "--reason", "smoke")
	eventually(t, "it is drained", func() bool {
		found, _ := filepath.Glob(filepath.Join(r.state, "drained", "*.json"))
		return len(found) == 1 && (waits(drain) || len(drained) == 1)
	})
	_ = lock.Close()
	if err := <-drained; err != nil {
		t.Fatalf("%v\n%s", err, text(t, named))
	}
	var held bool
	eventually(t, "the claim is decided", func() bool {
		s, _ := r.status()
		held = len(s.Devices[0].Leases) == 1
		return held || len(refused) == 1
	})
	if held {
		contains(t, text(t, named), "keeps it until it ends")
		return
	}
	if err := <-refused; err == nil {
		t.Error("the claim was refused and ended with 0")
	}
	same(t, "exit", claim.ProcessState.ExitCode(), 120)
	contains(t, text(t, refusal), "drained: smoke")
}

// TestOthersCannotDrain: in a folder of root an ordinary user is told what to type.
func TestOthersCannotDrain(t *testing.T) {
	t.Parallel()
	r := forUsers(t, "demo:2xL4")
	if got := run(t, r.job("true")); got.code != 0 { // makes the folder
		t.Fatal(got.err)
	}
	for _, verb := range []string{"drain", "undrain"} {
		got := run(t, as(alice, program(t, r.state, nil, verb, "--machine", r.machine, "1")))
		same(t, verb, got, result{1, "", fmt.Sprintf("gpuard: cannot %s GPU 1: only root may; type: sudo \"$(command -v gpuard)\" %[1]s 1\n", verb)})
	}
	if got := run(t, program(t, r.state, nil, "drain", "--machine", r.machine, "1", "--reason", "\x1b[31mnew\x07 board")); got.code != 0 {
		t.Fatal(got.err)
	}
	got := run(t, as(alice, program(t, r.state, nil, "run", "--no-wait", "--machine", r.machine, "--device", "1", "--", "true")))
	same(t, "exit", got.code, 120)
	contains(t, got.err, "drained: [31mnew board (root, since ")
}

// TestXIDWhileACommandRuns: a supervising gpuard receives the driver's errors without delay, shows them, and records
// them for other processes; a command that failed with one is started again on another GPU, once.
func TestXIDWhileACommandRuns(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"nvml", "kernel log", "nothing can be noted"} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			w := newWard(t, 3)
			failed := filepath.Join(t.TempDir(), "failed")
			cmd := w.program("run", "--retry", "1", "--device", "1", "--", "true") // makes the folder; nothing is wrong yet
			same(t, "exit", run(t, cmd).code, 0)
			if source == "nothing can be noted" { // any user can create the file first in a folder where all may write
				if err := os.Mkdir(filepath.Join(w.state, fmt.Sprintf("xids-%d", os.Geteuid())), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			out, errs := filepath.Join(w.root, "out"), filepath.Join(w.root, "err")
			cmd = w.program("run", "--retry", "1", "--", "sh", "-c",
				`echo "$GPUARD_GPUS $GPUARD_RESTART"; [ -n "$GPUARD_RESTART" ] || { while [ ! -e `+failed+` ]; do sleep 0.1; done; exit 9; }`)
			cmd.Stdout, cmd.Stderr = create(t, out), create(t, errs)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it runs", func() bool { return strings.Contains(text(t, out), "\n") })
			first := strings.Fields(text(t, out))[0]
			device := 0
			for i := range 3 {
				if uuid(i) == first {
					device = i
				}
			}
			eventually(t, "the error is heard", func() bool {
				if source != "kernel log" { // the start of listening is not visible
					w.XID(device, 79)
				} else if !strings.Contains(text(t, filepath.Join(w.root, "dev/kmsg")), "79") {
					w.xid(device, 79, "GPU has fallen off the bus.")
				}
				return strings.Contains(text(t, errs), fmt.Sprintf("GPU %d reported XID 79: the GPU has fallen off the bus", device))
			})
			if source == "nothing can be noted" {
				contains(t, strings.Join(w.status().Problems, "\n"), "what was noted about devices is not all known: cannot use "+filepath.Join(w.state, "xids-"))
			} else {
				d := w.status().Devices[device]
				same(t, "for others", []any{d.Health, d.XIDs[0].Code, d.XIDs[0].Source}, []any{health.Unhealthy, 79, source})
			}
			_ = create(t, failed)
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v\n%s", err, text(t, errs))
			}
			lines := strings.Split(strings.TrimSpace(text(t, out)), "\n")
			if len(lines) != 2 || strings.HasPrefix(lines[1], first) || !strings.HasSuffix(lines[1], " 1") {
				t.Errorf("it ran on %q", lines)
			}
			contains(t, text(t, errs), "XID 79", "starting it again elsewhere")
		})
	}
}

// TestXIDMovesAJob: XID 79 on one of four cards, reported only by the driver: a job that may be moved continues
// elsewhere, once, and gets the reason; the card is not given again.
func TestXIDMovesAJob(t *testing.T) {
	t.Parallel()
	w := newWard(t, 4)
	out, errs := filepath.Join(w.root, "out"), filepath.Join(w.root, "err")
	cmd := w.program("run", "--drift=sick", "--", "sh", "-c", `echo "$GPUARD_GPUS $GPUARD_RESTART $GPUARD_DRIFT_REASON"; exec sleep 60`)
	cmd.Stdout, cmd.Stderr = create(t, out), create(t, errs)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Signal(unix.SIGTERM), cmd.Wait() }() // a cleanup would come after the kill at the end of the test, which leaves the command behind
	eventually(t, "it runs", func() bool { return strings.Contains(text(t, out), "\n") })
	sick := 0
	for i := range 4 {
		if strings.HasPrefix(text(t, out), uuid(i)) {
			sick = i
		}
	}
	heard := fmt.Sprintf("GPU %d reported XID 79", sick)
	eventually(t, "the error is heard", func() bool {
		w.XID(sick, 79)
		return strings.Contains(text(t, errs), heard)
	})
	eventually(t, "it runs again", func() bool { return strings.Count(text(t, out), "\n") > 1 })
	lines := strings.Split(text(t, out), "\n")
	if strings.HasPrefix(lines[1], uuid(sick)) || !strings.Contains(lines[1], " 1 sick: GPU "+fmt.Sprint(sick)) {
		t.Errorf("it runs again on %q", lines[1])
	}
	free := w.given("--gpus", "2")
	if strings.Contains(free, uuid(sick)) || strings.Contains(free, strings.Fields(lines[1])[0]) {
		t.Errorf("given %s", free)
	}
	same(t, "starts", strings.Count(text(t, out), "\n"), 2)
	same(t, "said", strings.Count(text(t, errs), heard), 1)
}

func create(t testing.TB, name string) *os.File {
	t.Helper()
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func text(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(data)
}

// TestHangBesideErrors: one GPU of a job blocks every call of the driver for a minute. Errors of the other one are
// received as soon as ever, by its job and in the device's state, and a third GPU is given meanwhile.
func TestHangBesideErrors(t *testing.T) {
	t.Parallel()
	w := newWard(t, 3)
	errs := filepath.Join(w.root, "err")
	cmd := w.program("run", "--timeout", "1h", "--device", "0,1", "--", "sleep", "60")
	cmd.Stderr = create(t, errs)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Signal(unix.SIGTERM), cmd.Wait() }() // a cleanup would come after the kill at the end of the test, which leaves the command behind
	eventually(t, "it listens", func() bool {
		w.XID(1, 43)
		return strings.Contains(text(t, errs), "GPU 1 reported XID 43")
	})
	w.Delay("*", 1, 60_000)
	soon := false
	for _, code := range []int{31, 13, 45, 68, 69} { // that the machine was busy once says nothing
		began := time.Now()
		eventually(t, "the error of the other GPU is heard", func() bool {
			w.XID(0, code)
			return strings.Contains(text(t, errs), fmt.Sprint("GPU 0 reported XID ", code))
		})
		if soon = time.Since(began) < time.Second; soon {
			break
		}
	}
	same(t, "heard within a second", soon, true)
	same(t, "given meanwhile", w.given(), uuid(2))
	s := w.status()
	same(t, "health", []any{s.Devices[0].Health, s.Devices[1].Health, s.Devices[2].Health}, []any{health.OK, health.Unknown, health.OK})
}

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

// runWithKernelLog is hasty on a machine with the kernel log dev/kmsg below the folder UNWELL.
func runWithKernelLog() {
	const moment = 20 * time.Millisecond
	os.Exit(start(os.Getenv("UNWELL"), machine.Times{Driver: 2 * time.Second, Fading: time.Second, Lock: time.Second, Touch: moment, Log: moment, Drift: 4 * moment, Minute: driftMinute, Slow: 10 * moment}))
}

// kernelLogMachine is a rack with a kernel's log.
type kernelLogMachine struct {
	*fakeDriverMachine
	root string
}

func newKernelLogMachine(t testing.TB, gpus int) *kernelLogMachine {
	t.Helper()
	w := &kernelLogMachine{newFakeDriverMachine(t, makeA100s(gpus)...), t.TempDir()}
	if err := os.Mkdir(filepath.Join(w.root, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.appendKernelLog("<6>[    0.000000] Linux version 6.1")
	return w
}

// appendKernelLog appends lines to the kernel's log.
func (w *kernelLogMachine) appendKernelLog(lines ...string) {
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

// logXID logs an error of a device, now.
func (w *kernelLogMachine) logXID(device, code int, detail string) {
	w.t.Helper()
	w.logDriverMessage(fmt.Sprintf("Xid (PCI:0000:%02x:00): %d, %s", 0x10+device, code, detail))
}

// logDriverMessage logs what the driver says, now.
func (w *kernelLogMachine) logDriverMessage(text string) {
	w.t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		w.t.Fatal(err)
	}
	w.appendKernelLog(fmt.Sprintf("<4>[%5d.%06d] NVRM: %s", now.Sec, now.Nsec/1000, text))
}

func (w *kernelLogMachine) run(args ...string) runResult {
	w.t.Helper()
	return runCommand(w.t, w.kernelLogCommand(args...))
}

func (w *kernelLogMachine) kernelLogCommand(args ...string) *exec.Cmd {
	cmd := w.cmd(args...)
	cmd.Args[0] = "unwell"
	return withEnv(cmd, "UNWELL="+w.root)
}

func (w *kernelLogMachine) givenDevices(args ...string) string {
	w.t.Helper()
	got := w.run(append(append([]string{"run", "-q"}, args...), "--", "sh", "-c", "echo $GPUARD_GPUS")...)
	if got.code != 0 {
		w.t.Fatalf("run %q ended with %d:\n%s", args, got.code, got.err)
	}
	return strings.TrimSpace(got.out)
}

func (w *kernelLogMachine) readStatus() status.Report {
	w.t.Helper()
	s, _ := runStatus(w.t, w.kernelLogCommand("status", "--json"))
	return s
}

// TestXIDTakesAGPUOutOfUse: XID 79 on one of four: no new lease there, the others go on, and it is said what happened
// and what to do. Nothing but a person's word or the driver's ends it, and what comes later counts again.
func TestXIDTakesAGPUOutOfUse(t *testing.T) {
	t.Parallel()
	w := newKernelLogMachine(t, 4)
	checkEqual(t, "given before", len(strings.Split(w.givenDevices("--gpus", "4"), ",")), 4)
	w.logXID(1, 79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
	w.logXID(2, 31, "pid=4242, name=python, MMU Fault")
	checkEqual(t, "given", w.givenDevices("--gpus", "3"), fakeUUID(0)+","+fakeUUID(2)+","+fakeUUID(3))
	got := w.run("run", "--no-wait", "--device", "1", "--", "true")
	checkEqual(t, "exit", got.code, 120)
	checkContains(t, got.err, "unhealthy: XID 79 on ", "the GPU has fallen off the bus", "gpuard undrain 1")

	s := w.readStatus()
	sick, other := s.Devices[1], s.Devices[2]
	checkEqual(t, "health", []any{sick.Health, other.Health, s.Devices[0].Health}, []any{health.Unhealthy, health.OK, health.OK})
	checkEqual(t, "errors", []any{len(sick.XIDs), sick.XIDs[0].Code, sick.XIDs[0].Class, sick.XIDs[0].Source, sick.XIDs[0].At != nil},
		[]any{1, 79, health.Host, "kernel log", true})
	checkEqual(t, "blamed", []any{other.XIDs[0].Code, other.XIDs[0].PID}, []any{31, 4242})
	checkContains(t, sick.Remedy, "gpuard undrain 1")
	checkContains(t, strings.Join(strings.Fields(w.run("status").out), " "), sick.Remedy)
	checkEqual(t, "what a device needs that is well", other.Remedy, "")
	checkContains(t, w.run("status").out, "4 GPUs: 3 free, 1 unhealthy", "unhealthy: XID 79 on ", "XID 31: a program touched GPU memory that is not its own", "process 4242")

	got = w.run("undrain", "1")
	checkEqual(t, "undrain", got, runResult{0, "GPU 1 (NVIDIA A100-SXM4-80GB) was not drained; cleared: XID 79\n", ""})
	checkEqual(t, "after it", w.readStatus().Devices[1].Health, health.OK)
	time.Sleep(5 * time.Millisecond) // the next error has a later moment
	w.logXID(1, 119, "pid=7, name=x, Timeout")
	checkEqual(t, "a new error", w.readStatus().Devices[1].Health, health.Unhealthy)
	time.Sleep(5 * time.Millisecond)
	w.logXID(1, 154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
	checkEqual(t, "the driver calls it well", w.readStatus().Devices[1].Health, health.OK)
}

// TestNotedErrorsEnd: what was noted about a device is over when the driver says so, or was loaded anew, and not
// before.
func TestNotedErrorsEnd(t *testing.T) {
	t.Parallel()
	w := newKernelLogMachine(t, 2)
	w.givenDevices() // makes the folder
	boot, err := proc.New("/proc").BootID()
	if err != nil {
		t.Fatal(err)
	}
	note := func(device int) {
		t.Helper()
		e := gpu.Event{Device: gpu.UUID(fakeUUID(device)), XID: gpu.XID{Code: 119, At: time.Now(), Source: "nvml"}}
		if err := devicestate.RecordErrors(w.state, boot, e); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond) // what comes next has a later moment
	}
	state := func() []health.State {
		s := w.readStatus()
		return []health.State{s.Devices[0].Health, s.Devices[1].Health}
	}
	note(0)
	note(1)
	checkEqual(t, "noted", state(), []health.State{health.Unhealthy, health.Unhealthy})
	w.logXID(1, 154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
	checkEqual(t, "one needs nothing any more", state(), []health.State{health.Unhealthy, health.OK})
	time.Sleep(5 * time.Millisecond)
	note(1)
	checkEqual(t, "and again", state(), []health.State{health.Unhealthy, health.Unhealthy})
	w.logDriverMessage("loading NVIDIA UNIX x86_64 Kernel Module  550.54.15")
	checkEqual(t, "the driver was loaded anew", state(), []health.State{health.OK, health.OK})
}

// TestUndrainARecordedMachine: a drain that a machine file has can be ended like any other.
func TestUndrainARecordedMachine(t *testing.T) {
	t.Parallel()
	w := newKernelLogMachine(t, 2)
	checkEqual(t, "drain", w.run("drain", "1").code, 0)
	file := filepath.Join(t.TempDir(), "machine.json")
	if err := os.WriteFile(file, []byte(w.run("status", "--record").out), 0o600); err != nil {
		t.Fatal(err)
	}
	state := stateFolder(t)
	recorded := func(args ...string) runResult {
		return runCommand(t, gpuardCommand(t, state, nil, append(args, "--machine", file)...))
	}
	checkContains(t, recorded("status").out, "drained: no reason given (")
	checkContains(t, recorded("undrain", "1").out, "is in use again")
	if got := recorded("status").out; strings.Contains(got, "drained") {
		t.Errorf("it is drained still:\n%s", got)
	}
}

// TestDrain: a drained device gets no new lease, its job keeps it, and all commands show who drained it and why.
func TestDrain(t *testing.T) {
	t.Parallel()
	w := newKernelLogMachine(t, 2)
	held := startToFirstLine(t, w.kernelLogCommand("run", "-q", "--device", "0", "--", "sh", "-c", "echo $GPUARD_LEASE; exec sleep 60"))
	waiter := w.kernelLogCommand("run", "-q", "--device", "0", "--", "true")
	if err := waiter.Start(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "somebody waits", func() bool { return len(w.readStatus().Waiting) == 1 })
	got := w.run("drain", "0", "--reason", "the fan is broken")
	checkContains(t, got.out, fmt.Sprintf("true (process %d) waits for it, and keeps waiting until it is in use again\n", waiter.Process.Pid))
	_ = waiter.Process.Kill()
	_ = waiter.Wait()
	checkEqual(t, "exit", got.code, 0)
	checkContains(t, got.out, "GPU 0 (NVIDIA A100-SXM4-80GB) gets no new lease: the fan is broken\n", "(lease "+held+", process ", "keeps it until it ends", "gpuard undrain 0")
	d := w.readStatus().Devices[0]
	checkEqual(t, "use", []any{d.Use, d.Health, len(d.Leases)}, []any{status.Draining, health.OK, 1})
	checkContains(t, d.Drained, "the fan is broken (", ", since ")
	checkContains(t, w.run("status").out, "2 GPUs: 1 free, 1 draining", "drained: the fan is broken (", "gpuard undrain 0", held)
	checkEqual(t, "given", w.givenDevices(), fakeUUID(1))
	got = w.run("run", "--no-wait", "--gpus", "2", "--", "true")
	checkEqual(t, "refusal", got.code, 120)
	checkContains(t, got.err, "drained  the fan is broken (", "gpuard undrain 0")
	checkContains(t, w.run("undrain", "0").out, "is in use again")
	checkEqual(t, "use", w.readStatus().Devices[0].Use, status.Leased)
	for _, args := range [][]string{{"drain"}, {"drain", "9"}, {"undrain", "GPU-none"}, {"drain", "0", "9"}} {
		if got := w.run(args...); got.code != 2 || !strings.Contains(got.err, "gpuard status") {
			t.Errorf("%q ended with %d: %s", args, got.code, got.err)
		}
	}
	got = w.run("drain", "1", "--reason", strings.Repeat("long ", 20_000))
	checkEqual(t, "a reason that nobody would read", got, runResult{2, "", "gpuard: cannot drain 1: the reason has 100000 characters; say it in 500\n"})
}

// TestDrainBesideAClaim: a command that read the GPU before it was drained, and decides after it, does not get it; or
// drain names it.
func TestDrainBesideAClaim(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	r.givenDevices() // makes the folder
	lock, err := os.OpenFile(filepath.Join(r.state, "lock"), os.O_RDWR, 0)
	if err == nil {
		err = unix.FcntlFlock(lock.Fd(), unix.F_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK})
	}
	if err != nil {
		t.Fatal(err)
	}
	waits := func(cmd *exec.Cmd) bool {
		return strings.Contains(strings.Join(strings.Fields(readText(t, "/proc/locks")), " "), fmt.Sprintf("-> POSIX ADVISORY WRITE %d ", cmd.Process.Pid))
	}
	started := func(args ...string) (cmd *exec.Cmd, said string, over chan error) {
		cmd, said, over = r.cmd(args...), filepath.Join(t.TempDir(), "said"), make(chan error, 1)
		cmd.Stdout = createFile(t, said)
		cmd.Stderr = cmd.Stdout
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { over <- cmd.Wait() }()
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		return cmd, said, over
	}
	claim, refusal, refused := started("run", "--no-wait", "--device", "0", "--", "sleep", "60")
	waitUntil(t, "the claim has read the machine", func() bool { return waits(claim) })
	drain, named, drained := started("drain", "0", "--reason", "smoke")
	waitUntil(t, "it is drained", func() bool {
		found, _ := filepath.Glob(filepath.Join(r.state, "drained", "*.json"))
		return len(found) == 1 && (waits(drain) || len(drained) == 1)
	})
	_ = lock.Close()
	if err := <-drained; err != nil {
		t.Fatalf("%v\n%s", err, readText(t, named))
	}
	var held bool
	waitUntil(t, "the claim is decided", func() bool {
		s, _ := r.readStatus()
		held = len(s.Devices[0].Leases) == 1
		return held || len(refused) == 1
	})
	if held {
		checkContains(t, readText(t, named), "keeps it until it ends")
		return
	}
	if err := <-refused; err == nil {
		t.Error("the claim was refused and ended with 0")
	}
	checkEqual(t, "exit", claim.ProcessState.ExitCode(), 120)
	checkContains(t, readText(t, refusal), "drained: smoke")
}

// TestOthersCannotDrain: in a folder of root an ordinary user is told what to type.
func TestOthersCannotDrain(t *testing.T) {
	t.Parallel()
	r := newSharedDemoMachine(t, "demo:2xL4")
	if got := runCommand(t, r.jobCommand("true")); got.code != 0 { // makes the folder
		t.Fatal(got.err)
	}
	for _, verb := range []string{"drain", "undrain"} {
		got := runCommand(t, asUser(aliceUID, gpuardCommand(t, r.state, nil, verb, "--machine", r.machine, "1")))
		checkEqual(t, verb, got, runResult{1, "", fmt.Sprintf("gpuard: cannot %s GPU 1: only root may; type: sudo \"$(command -v gpuard)\" %[1]s 1\n", verb)})
	}
	if got := runCommand(t, gpuardCommand(t, r.state, nil, "drain", "--machine", r.machine, "1", "--reason", "\x1b[31mnew\x07 board")); got.code != 0 {
		t.Fatal(got.err)
	}
	got := runCommand(t, asUser(aliceUID, gpuardCommand(t, r.state, nil, "run", "--no-wait", "--machine", r.machine, "--device", "1", "--", "true")))
	checkEqual(t, "exit", got.code, 120)
	checkContains(t, got.err, "drained: [31mnew board (root, since ")
}

// TestXIDWhileACommandRuns: a supervising gpuard receives the driver's errors without delay, shows them, and records
// them for other processes; a command that failed with one is started again on another GPU, once.
func TestXIDWhileACommandRuns(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"nvml", "kernel log", "nothing can be noted"} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			w := newKernelLogMachine(t, 3)
			failed := filepath.Join(t.TempDir(), "failed")
			cmd := w.kernelLogCommand("run", "--retry", "1", "--device", "1", "--", "true") // makes the folder; nothing is wrong yet
			checkEqual(t, "exit", runCommand(t, cmd).code, 0)
			if source == "nothing can be noted" { // any user can create the file first in a folder where all may write
				if err := os.Mkdir(filepath.Join(w.state, fmt.Sprintf("xids-%d", os.Geteuid())), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			out, errs := filepath.Join(w.root, "out"), filepath.Join(w.root, "err")
			cmd = w.kernelLogCommand("run", "--retry", "1", "--", "sh", "-c",
				`echo "$GPUARD_GPUS $GPUARD_RESTART"; [ -n "$GPUARD_RESTART" ] || { while [ ! -e `+failed+` ]; do sleep 0.1; done; exit 9; }`)
			cmd.Stdout, cmd.Stderr = createFile(t, out), createFile(t, errs)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			waitUntil(t, "it runs", func() bool { return strings.Contains(readText(t, out), "\n") })
			first := strings.Fields(readText(t, out))[0]
			device := 0
			for i := range 3 {
				if fakeUUID(i) == first {
					device = i
				}
			}
			waitUntil(t, "the error is heard", func() bool {
				if source != "kernel log" { // the start of listening is not visible
					w.XID(device, 79)
				} else if !strings.Contains(readText(t, filepath.Join(w.root, "dev/kmsg")), "79") {
					w.logXID(device, 79, "GPU has fallen off the bus.")
				}
				return strings.Contains(readText(t, errs), fmt.Sprintf("GPU %d reported XID 79: the GPU has fallen off the bus", device))
			})
			if source == "nothing can be noted" {
				checkContains(t, strings.Join(w.readStatus().Problems, "\n"), "what was noted about devices is not all known: cannot use "+filepath.Join(w.state, "xids-"))
			} else {
				d := w.readStatus().Devices[device]
				checkEqual(t, "for others", []any{d.Health, d.XIDs[0].Code, d.XIDs[0].Source}, []any{health.Unhealthy, 79, source})
			}
			_ = createFile(t, failed)
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v\n%s", err, readText(t, errs))
			}
			lines := strings.Split(strings.TrimSpace(readText(t, out)), "\n")
			if len(lines) != 2 || strings.HasPrefix(lines[1], first) || !strings.HasSuffix(lines[1], " 1") {
				t.Errorf("it ran on %q", lines)
			}
			checkContains(t, readText(t, errs), "XID 79", "starting it again elsewhere")
		})
	}
}

// TestXIDMovesAJob: XID 79 on one of four cards, reported only by the driver: a job that may be moved continues
// elsewhere, once, and gets the reason; the card is not given again.
func TestXIDMovesAJob(t *testing.T) {
	t.Parallel()
	w := newKernelLogMachine(t, 4)
	out, errs := filepath.Join(w.root, "out"), filepath.Join(w.root, "err")
	cmd := w.kernelLogCommand("run", "--drift=sick", "--", "sh", "-c", `echo "$GPUARD_GPUS $GPUARD_RESTART $GPUARD_DRIFT_REASON"; exec sleep 60`)
	cmd.Stdout, cmd.Stderr = createFile(t, out), createFile(t, errs)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Signal(unix.SIGTERM), cmd.Wait() }() // a cleanup would come after the kill at the end of the test, which leaves the command behind
	waitUntil(t, "it runs", func() bool { return strings.Contains(readText(t, out), "\n") })
	sick := 0
	for i := range 4 {
		if strings.HasPrefix(readText(t, out), fakeUUID(i)) {
			sick = i
		}
	}
	heard := fmt.Sprintf("GPU %d reported XID 79", sick)
	waitUntil(t, "the error is heard", func() bool {
		w.XID(sick, 79)
		return strings.Contains(readText(t, errs), heard)
	})
	waitUntil(t, "it runs again", func() bool { return strings.Count(readText(t, out), "\n") > 1 })
	lines := strings.Split(readText(t, out), "\n")
	if strings.HasPrefix(lines[1], fakeUUID(sick)) || !strings.Contains(lines[1], " 1 sick: GPU "+fmt.Sprint(sick)) {
		t.Errorf("it runs again on %q", lines[1])
	}
	free := w.givenDevices("--gpus", "2")
	if strings.Contains(free, fakeUUID(sick)) || strings.Contains(free, strings.Fields(lines[1])[0]) {
		t.Errorf("given %s", free)
	}
	checkEqual(t, "starts", strings.Count(readText(t, out), "\n"), 2)
	checkEqual(t, "said", strings.Count(readText(t, errs), heard), 1)
}

func createFile(t testing.TB, name string) *os.File {
	t.Helper()
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func readText(t testing.TB, name string) string {
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
	w := newKernelLogMachine(t, 3)
	errs := filepath.Join(w.root, "err")
	cmd := w.kernelLogCommand("run", "--timeout", "1h", "--device", "0,1", "--", "sleep", "60")
	cmd.Stderr = createFile(t, errs)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Signal(unix.SIGTERM), cmd.Wait() }() // a cleanup would come after the kill at the end of the test, which leaves the command behind
	waitUntil(t, "it listens", func() bool {
		w.XID(1, 43)
		return strings.Contains(readText(t, errs), "GPU 1 reported XID 43")
	})
	w.Delay("*", 1, 60_000)
	soon := false
	for _, code := range []int{31, 13, 45, 68, 69} { // that the machine was busy once says nothing
		began := time.Now()
		waitUntil(t, "the error of the other GPU is heard", func() bool {
			w.XID(0, code)
			return strings.Contains(readText(t, errs), fmt.Sprint("GPU 0 reported XID ", code))
		})
		if soon = time.Since(began) < time.Second; soon {
			break
		}
	}
	checkEqual(t, "heard within a second", soon, true)
	checkEqual(t, "given meanwhile", w.givenDevices(), fakeUUID(2))
	s := w.readStatus()
	checkEqual(t, "health", []any{s.Devices[0].Health, s.Devices[1].Health, s.Devices[2].Health}, []any{health.OK, health.Unknown, health.OK})
}

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/job"
	"gpuard/internal/core/queue"
	"gpuard/test/fakegpu"
)

// startWideRequest starts a waiter for all devices and returns its ticket.
func (r *demoMachine) startWideRequest(gpus string) (*exec.Cmd, job.Ticket) {
	r.t.Helper()
	cmd := r.waitingCommand("true")
	cmd.Args = append([]string{cmd.Args[0], "run", "--gpus", gpus}, cmd.Args[2:]...)
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = cmd.Process.Kill() })
	var ticket job.Ticket
	waitUntil(r.t, "the wide request waits", func() bool {
		all := r.waitingTickets()
		if len(all) > 0 {
			ticket = all[0]
		}
		return len(all) == 1
	})
	return cmd, ticket
}

// TestWaitConvoy: a request for all devices, which waits for a job without a known end, does not keep the others from
// the devices that are free.
func TestWaitConvoy(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:4xL4")
	holder := r.startJob("exec sleep 600")
	t.Cleanup(func() { _, _ = holder.Process.Kill(), holder.Wait() })
	wide, _ := r.startWideRequest("4")
	var small sync.WaitGroup
	for range 8 {
		small.Go(func() {
			if got := runCommand(t, r.waitingCommand("sleep", "0.3")); got.code != 0 {
				t.Errorf("exit %d: %s", got.code, got.err)
			}
		})
	}
	done := make(chan struct{})
	go func() { small.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("eight small jobs wait behind a request that cannot start")
		_, _ = holder.Process.Kill(), holder.Wait()
		<-done
	}
	_, _ = holder.Process.Kill(), holder.Wait()
	if err := wide.Wait(); err != nil {
		t.Error(err)
	}
	r.checkNoTickets()
}

// TestWaitWideInAStream: a request for all devices starts although there are always more requests for one than devices.
func TestWaitWideInAStream(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:2xL4")
	wide, stop := make(chan runResult), make(chan struct{})
	var stream sync.WaitGroup
	for range 4 {
		stream.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got := runCommand(t, r.waitingCommand("sleep", "0.2")); got.code != 0 {
					t.Errorf("exit %d: %s", got.code, got.err)
					return
				}
			}
		})
	}
	waitUntil(t, "the stream has begun", func() bool { return len(r.waitingTickets()) > 0 })
	cmd := r.waitingCommand("true")
	cmd.Args = append([]string{cmd.Args[0], "run", "--gpus", "2"}, cmd.Args[2:]...)
	go func() { wide <- runCommand(t, cmd) }()
	select {
	case got := <-wide:
		checkEqual(t, "exit", got.code, 0)
		close(stop)
	case <-time.After(2 * time.Minute):
		t.Error("the request for two devices did not start while others ask for one")
		close(stop)
		<-wide
	}
	stream.Wait()
	r.checkNoTickets()
}

// writeReservation writes into the record in the lock file that the devices are reserved for the ticket: for less than the
// minute by which clocks may differ, because the ticket is young.
func (r *demoMachine) writeReservation(ticket job.Ticket) {
	r.t.Helper()
	r.writeTurnRecord(func(now int64) queue.Turn {
		return queue.Turn{Reserved: map[string]queue.Reservation{ticket.Key(): {
			Devices: ticket.Devices, Since: now, Seen: now, Until: now + int64(50*time.Second), Price: 1}}}
	})
}

// writeTurnRecord writes a record of turns into the lock file, as any user can.
func (r *demoMachine) writeTurnRecord(turn func(now int64) queue.Turn) {
	r.t.Helper()
	var now unix.Timespec
	file, err := os.OpenFile(r.leaseFolder()+"/lock", os.O_RDWR, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	// Under the lock, or what a waiting request writes meanwhile would replace it.
	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK})
	var data []byte
	if err == nil {
		data, err = os.ReadFile(file.Name())
	}
	if err == nil {
		err = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
	}
	var record map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(bytes.TrimRight(data, "\x00"), &record)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	record["turn"], _ = json.Marshal(turn(now.Nano()))
	data, _ = json.Marshal(record)
	if err := os.WriteFile(file.Name(), data, 0o666); err != nil {
		r.t.Fatal(err)
	}
}

// TestWaitReserved: a reserved device is not given to a later request, whose refusal names the other one, and is given
// when the reservation's ticket is gone.
func TestWaitReserved(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:2xL4")
	holder := r.startJob("exec sleep 600")
	t.Cleanup(func() { _, _ = holder.Process.Kill(), holder.Wait() })
	wide, ticket := r.startWideRequest("2")
	r.writeReservation(ticket)
	if got := runCommand(t, r.jobCommand("true")); got.code != 120 || !strings.Contains(got.err, "kept for true of ") {
		t.Errorf("exit %d: %s", got.code, got.err)
	}
	behind := startBackgroundRun(t, gpuardCommand(t, r.state, nil, "run", "--machine", r.machine, "--", "true"))
	behind.waitForText(": behind true of ", "(PID ")
	_, _ = wide.Process.Kill(), wide.Wait()
	got := <-behind.over
	checkEqual(t, "exit", got.code, 0)
}

// TestWaitPromise: a ticket promises the end that its lease will have: a command that does not end in time keeps its
// device until it is killed. One whose lease outlives it promises nothing.
func TestWaitPromise(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:1xL4")
	for flags, want := range map[string]time.Duration{
		"--timeout 90s --grace 5s": 90*time.Second + 5*time.Second + job.KillGrace,
		"":                         0,
		"--keep-while " + filepath.Join(r.devices, "k"): 0,
	} {
		holder := r.startJob("exec sleep 600")
		cmd := r.waitingCommand("sleep", "600")
		cmd.Args = slices.Concat([]string{cmd.Args[0], "run"}, strings.Fields(flags), cmd.Args[2:])
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitUntil(t, "it waits", func() bool { return len(r.waitingTickets()) == 1 })
		checkEqual(t, flags, r.waitingTickets()[0].Timeout, want)
		_, _ = holder.Process.Kill(), holder.Wait()
		var lease job.Lease
		waitUntil(t, "it has a lease", func() bool {
			for _, lease = range r.liveLeases() {
				return want == 0 || lease.Until != 0
			}
			return false
		})
		if lasts := time.Duration(lease.Until - lease.SinceBoot); want != 0 && (lasts < want || lasts > want+50*time.Second) || want == 0 && lease.Until != 0 {
			t.Errorf("%s: the lease lasts %s, the ticket promised %s", flags, lasts, want)
		}
		_, _ = cmd.Process.Signal(unix.SIGTERM), cmd.Wait()
		waitUntil(t, "the device is free", func() bool { return len(r.liveLeases()) == 0 })
	}
}

// TestWaitWideBesideAStranger: a request for all devices keeps none of them for a device whose lease has ended and on
// which a process without a lease stays, also while shares end there again and again. Eight jobs on three devices are over
// long before the 10 s are, for which memory of a job that has ended may be in use.
func TestWaitWideBesideAStranger(t *testing.T) {
	for name, shares := range map[string]bool{"one end": false, "shares end": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkBesideStranger(t, shares)
		})
	}
}

func checkBesideStranger(t *testing.T, shares bool) {
	r := newFakeDriverMachine(t, makeA100s(4)...)
	end := r.holdDevice("0")
	r.startFakeJob(0, "30G", fakegpu.Compute)
	wide := r.startRun("run", "-q", "--gpus", "4", "--", "true")
	r.waitForQueueLength(1)
	end()
	waitUntil(t, "its lease has ended", func() bool {
		s, _ := r.readStatus()
		return len(s.Devices[0].Leases) == 0
	})

	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for shares && !isClosed(over) {
			if got := runCommand(t, r.cmd("run", "-q", "--device", "0", "--share", "4G", "--", "true")); got.code != 0 {
				t.Errorf("a share: exit %d: %s", got.code, got.err)
				return
			}
		}
	}()
	began := time.Now()
	var small sync.WaitGroup
	for range 8 {
		small.Go(func() {
			if got := runCommand(t, r.cmd("run", "-q", "--wait=30s", "--", "true")); got.code != 0 {
				t.Errorf("exit %d: %s", got.code, got.err)
			}
		})
	}
	small.Wait()
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("eight short jobs took %s beside a request that cannot start", took)
	}
	close(over)
	<-ended
	wide.endRun()
}

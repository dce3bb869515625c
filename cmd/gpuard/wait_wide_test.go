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

// wide starts a waiter for all devices and returns its ticket.
func (r *rig) wide(gpus string) (*exec.Cmd, job.Ticket) {
	r.t.Helper()
	cmd := r.waiter("true")
	cmd.Args = append([]string{cmd.Args[0], "run", "--gpus", gpus}, cmd.Args[2:]...)
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = cmd.Process.Kill() })
	var ticket job.Ticket
	eventually(r.t, "the wide request waits", func() bool {
		all := r.tickets()
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
	r := newRig(t, "demo:4xL4")
	holder := r.start("exec sleep 600")
	t.Cleanup(func() { _, _ = holder.Process.Kill(), holder.Wait() })
	wide, _ := r.wide("4")
	var small sync.WaitGroup
	for range 8 {
		small.Go(func() {
			if got := run(t, r.waiter("sleep", "0.3")); got.code != 0 {
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
	r.noTickets()
}

// TestWaitWideInAStream: a request for all devices starts although there are always more requests for one than devices.
func TestWaitWideInAStream(t *testing.T) {
	t.Parallel()
	r := newRig(t, "demo:2xL4")
	wide, stop := make(chan result), make(chan struct{})
	var stream sync.WaitGroup
	for range 4 {
		stream.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got := run(t, r.waiter("sleep", "0.2")); got.code != 0 {
					t.Errorf("exit %d: %s", got.code, got.err)
					return
				}
			}
		})
	}
	eventually(t, "the stream has begun", func() bool { return len(r.tickets()) > 0 })
	cmd := r.waiter("true")
	cmd.Args = append([]string{cmd.Args[0], "run", "--gpus", "2"}, cmd.Args[2:]...)
	go func() { wide <- run(t, cmd) }()
	select {
	case got := <-wide:
		same(t, "exit", got.code, 0)
		close(stop)
	case <-time.After(2 * time.Minute):
		t.Error("the request for two devices did not start while others ask for one")
		close(stop)
		<-wide
	}
	stream.Wait()
	r.noTickets()
}

// reserve writes into the record in the lock file that the devices are reserved for the ticket: for less than the
// minute by which clocks may differ, because the ticket is young.
func (r *rig) reserve(ticket job.Ticket) {
	r.t.Helper()
	r.forge(func(now int64) queue.Turn {
		return queue.Turn{Reserved: map[string]queue.Reservation{ticket.Key(): {
			Devices: ticket.Devices, Since: now, Seen: now, Until: now + int64(50*time.Second), Price: 1}}}
	})
}

// forge writes a record of turns into the lock file, as any user can.
func (r *rig) forge(turn func(now int64) queue.Turn) {
	r.t.Helper()
	var now unix.Timespec
	file, err := os.OpenFile(r.folder()+"/lock", os.O_RDWR, 0)
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
	r := newRig(t, "demo:2xL4")
	holder := r.start("exec sleep 600")
	t.Cleanup(func() { _, _ = holder.Process.Kill(), holder.Wait() })
	wide, ticket := r.wide("2")
	r.reserve(ticket)
	if got := run(t, r.job("true")); got.code != 120 || !strings.Contains(got.err, "kept for true of ") {
		t.Errorf("exit %d: %s", got.code, got.err)
	}
	behind := asks(t, program(t, r.state, nil, "run", "--machine", r.machine, "--", "true"))
	behind.until(": behind true of ", "(PID ")
	_, _ = wide.Process.Kill(), wide.Wait()
	got := <-behind.over
	same(t, "exit", got.code, 0)
}

// TestWaitPromise: a ticket promises the end that its lease will have: a command that does not end in time keeps its
// device until it is killed. One whose lease outlives it promises nothing.
func TestWaitPromise(t *testing.T) {
	t.Parallel()
	r := newRig(t, "demo:1xL4")
	for flags, want := range map[string]time.Duration{
		"--timeout 90s --grace 5s": 90*time.Second + 5*time.Second + job.Dying,
		"":                         0,
		"--keep-while " + filepath.Join(r.devices, "k"): 0,
	} {
		holder := r.start("exec sleep 600")
		cmd := r.waiter("sleep", "600")
		cmd.Args = slices.Concat([]string{cmd.Args[0], "run"}, strings.Fields(flags), cmd.Args[2:])
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it waits", func() bool { return len(r.tickets()) == 1 })
		same(t, flags, r.tickets()[0].Timeout, want)
		_, _ = holder.Process.Kill(), holder.Wait()
		var lease job.Lease
		eventually(t, "it has a lease", func() bool {
			for _, lease = range r.living() {
				return want == 0 || lease.Until != 0
			}
			return false
		})
		if lasts := time.Duration(lease.Until - lease.SinceBoot); want != 0 && (lasts < want || lasts > want+50*time.Second) || want == 0 && lease.Until != 0 {
			t.Errorf("%s: the lease lasts %s, the ticket promised %s", flags, lasts, want)
		}
		_, _ = cmd.Process.Signal(unix.SIGTERM), cmd.Wait()
		eventually(t, "the device is free", func() bool { return len(r.living()) == 0 })
	}
}

// TestWaitWideBesideAStranger: a request for all devices keeps none of them for a device whose lease has ended and on
// which a process without a lease stays, also while shares end there again and again. Eight jobs on three devices are over
// long before the 10 s are, for which memory of a job that has ended may be in use.
func TestWaitWideBesideAStranger(t *testing.T) {
	for name, shares := range map[string]bool{"one end": false, "shares end": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			besideAStranger(t, shares)
		})
	}
}

func besideAStranger(t *testing.T, shares bool) {
	r := newRack(t, a100s(4)...)
	end := r.holds("0")
	r.occupyGPU(0, "30G", fakegpu.Compute)
	wide := r.asks("run", "-q", "--gpus", "4", "--", "true")
	r.inLine(1)
	end()
	eventually(t, "its lease has ended", func() bool {
		s, _ := r.status()
		return len(s.Devices[0].Leases) == 0
	})

	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for shares && !done(over) {
			if got := run(t, r.cmd("run", "-q", "--device", "0", "--share", "4G", "--", "true")); got.code != 0 {
				t.Errorf("a share: exit %d: %s", got.code, got.err)
				return
			}
		}
	}()
	began := time.Now()
	var small sync.WaitGroup
	for range 8 {
		small.Go(func() {
			if got := run(t, r.cmd("run", "-q", "--wait=30s", "--", "true")); got.code != 0 {
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
	wide.withdraw()
}

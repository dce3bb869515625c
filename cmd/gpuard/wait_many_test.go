package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/queue"
	"gpuard/internal/gate"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/store"
)

// waitingCommand is a job that waits for a device.
func (r *demoMachine) waitingCommand(command ...string) *exec.Cmd {
	cmd := r.jobCommand(command...)
	cmd.Args = slices.DeleteFunc(cmd.Args, func(word string) bool { return word == "--no-wait" })
	return cmd
}

// runPatientWithLock is the program where hundreds share two processors with other tests: the process with the folder lock may not
// run for seconds.
func runPatientWithLock() {
	launch.DefaultSignals()
	var w machine.Times
	w.Lock = time.Minute
	os.Exit(start("/", w))
}

// waitingTickets lists the waiting requests.
func (r *demoMachine) waitingTickets() []job.Ticket {
	r.t.Helper()
	folder, err := store.Open(r.leaseFolder(), nil, time.Second)
	if err != nil {
		r.t.Fatal(err)
	}
	defer folder.Close() //nolint:errcheck // read only
	all, _ := folder.Tickets()
	return all
}

// liveLeases are the leases that count.
func (r *demoMachine) liveLeases() []job.Lease {
	r.t.Helper()
	folder, err := store.Open(r.leaseFolder(), nil, time.Second)
	if err != nil {
		r.t.Fatal(err)
	}
	defer folder.Close() //nolint:errcheck // read only
	all, _ := folder.Leases()
	return all
}

// isWaiting reports whether that process is in the queue.
func (r *demoMachine) isWaiting(pid int) bool {
	r.t.Helper()
	return slices.ContainsFunc(r.waitingTickets(), func(w job.Ticket) bool { return w.PID == pid })
}

// countWaiting is how many of these processes are in the queue.
func (r *demoMachine) countWaiting(pids *sync.Map) (n int) {
	r.t.Helper()
	for _, w := range r.waitingTickets() {
		if _, ours := pids.Load(w.PID); ours {
			n++
		}
	}
	return n
}

// checkNoTickets fails unless the queue is empty, and one more claim removes every file.
func (r *demoMachine) checkNoTickets() {
	r.t.Helper()
	if left := r.waitingTickets(); len(left) > 0 {
		r.t.Errorf("%d tickets live on: %+v", len(left), left)
	}
	_ = runCommand(r.t, r.jobCommand("true"))
	if files, _ := filepath.Glob(filepath.Join(r.leaseFolder(), "tickets", "*", "*.ticket")); len(files) > 0 {
		r.t.Errorf("%d files are left in tickets: %v", len(files), files)
	}
}

// TestWaitMany: many processes wait for 8 devices while a third of them is killed with -9, while waiting and as
// commands, and holders are killed too. No device is used twice, no lease is lost, nothing is left, and each device was
// given to the request that was next.
func TestWaitMany(t *testing.T) {
	const devices = 8
	processes, linger := gate.SoakCount(500, 60), "LINGER=300ms"
	if raceEnabled {
		linger = "LINGER=1s"
	}
	r := newDemoMachine(t, fmt.Sprintf("demo:%dxA100-80GB", devices))
	trace := filepath.Join(t.TempDir(), "trace")
	stop := make(chan struct{})
	var holders, killed, waiters, served atomic.Int64
	var reaper, wg sync.WaitGroup
	reaper.Go(func() { holders.Store(killHolders(stop, r.leaseFolder())) })
	// Many of them have to wait, however slowly they start: all devices are taken until the queue has that many.
	var patient sync.Map // PIDs of those that are not killed
	first := r.jobCommand("sh", "-c", `echo; while ! test -e "$DEVICES/go"; do sleep 0.1; done`)
	first.Args = slices.Insert(first.Args, 2, "--gpus", fmt.Sprint(devices))
	startToFirstLine(t, first)
	wg.Go(func() {
		for end := time.Now().Add(2 * time.Minute); r.countWaiting(&patient) < processes/3 && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		}
		if err := os.WriteFile(filepath.Join(r.devices, "go"), nil, 0o644); err != nil {
			t.Error(err)
		}
	})
	room := make(chan struct{}, 300) // as many at a time
	for i := range processes {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			cmd := withEnv(r.waitingCommand("occupy"), linger, "GPUARD_TRACE="+trace)
			cmd.Args[0] = "crowded"
			var errs strings.Builder
			cmd.Stderr = &errs
			if err := cmd.Start(); err != nil {
				t.Error(err)
				return
			}
			if i%3 != 0 {
				patient.Store(cmd.Process.Pid, true)
			} else {
				time.Sleep(rand.N(3 * time.Second))
				waits := r.isWaiting(cmd.Process.Pid)
				for i%30 == 0 && !waits && processState(cmd.Process.Pid) != "Z" { // on a busy machine none may wait so soon
					time.Sleep(50 * time.Millisecond)
					waits = r.isWaiting(cmd.Process.Pid)
				}
				if unix.Kill(cmd.Process.Pid, unix.SIGKILL) == nil {
					killed.Add(1)
				}
				if waits {
					waiters.Add(1)
				}
			}
			_ = cmd.Wait()
			switch code := cmd.ProcessState.ExitCode(); {
			case code == 0:
				served.Add(1)
			case i%3 != 0:
				t.Errorf("a run ended with %v: %s", cmd.ProcessState, errs.String())
			}
		})
	}
	wg.Wait()
	close(stop)
	reaper.Wait()
	r.checkViolations()
	r.checkNoTickets()
	r.claimAll(devices)
	given, waited := replayDecisions(t, trace)
	t.Logf("%d processes: %d served, %d killed (%d while they waited), %d holders killed; %d decisions gave a device, %d of them to somebody who had waited",
		processes, served.Load(), killed.Load(), waiters.Load(), holders.Load(), given, waited)
	if int(served.Load()) > given || waited < processes/4 || waiters.Load() == 0 || holders.Load() == 0 {
		t.Error("this test has shown nothing")
	}
}

// replayDecisions repeats the queue's decisions of the program in their order: the request that it names got the devices, and no
// other did.
func replayDecisions(t *testing.T, path string) (given, waited int) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // read only
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var d struct {
			Now, Boot int64
			Me, Next  string
			Free      bool
			Given     []gpu.UUID
			Line      []struct {
				job.Ticket
				UID     uint32
				Arrival int64
			}
			Held []struct {
				job.Lease
				UID uint32
			}
			Rooms  map[gpu.UUID]pick.Room
			Passed map[string]bool

			Reserved map[string]queue.Reservation
			Rest     map[gpu.UUID]int64
		}
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
			t.Fatal(err)
		}
		q := queue.Input{Now: d.Now, Boot: d.Boot, Rooms: d.Rooms, Passed: d.Passed, Reserved: d.Reserved, Rest: d.Rest}
		for _, w := range d.Line {
			w.Ticket.UID, w.Ticket.Arrival = w.UID, w.Arrival
			q.Tickets = append(q.Tickets, w.Ticket)
		}
		for _, l := range d.Held {
			l.Lease.UID = l.UID
			q.Held = append(q.Held, l.Lease)
		}
		rand.Shuffle(len(q.Tickets), func(i, j int) { q.Tickets[i], q.Tickets[j] = q.Tickets[j], q.Tickets[i] })
		next, free := queue.NextTicket(q)
		if free != d.Free || next.ID != d.Next {
			t.Errorf("the queue names %q (%t), and named %q (%t)", next.ID, free, d.Next, d.Free)
		}
		if len(d.Given) == 0 {
			continue
		}
		given++
		if d.Me != "" {
			waited++
		}
		if !free || next.ID != d.Me {
			t.Errorf("%q was given %v while %q was next", d.Me, d.Given, next.ID)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return given, waited
}

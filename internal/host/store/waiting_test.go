package store

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/queue"
)

// queueTicket adds a ticket for one of the devices.
func queueTicket(t *testing.T, f *Folder, devices ...gpu.UUID) *Waiting {
	t.Helper()
	w, err := f.QueueTicket(job.Ticket{Devices: devices, Count: 1, PID: os.Getpid(), Command: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Withdraw() })
	return w
}

func ticketIDs(tickets []job.Ticket) []string {
	all := make([]string, len(tickets))
	for i := range tickets {
		all[i] = tickets[i].ID
	}
	return all
}

func TestQueueAndWithdraw(t *testing.T) {
	f := newStateFolder(t)
	before := time.Now().Add(-time.Second).UnixNano()
	first, second := queueTicket(t, f, "GPU-a"), queueTicket(t, f, "GPU-a", "GPU-b")
	seen := readView(t, f, testBoot).Tickets
	if got := ticketIDs(seen); !slices.Equal(got, []string{first.Ticket.ID, second.Ticket.ID}) {
		t.Fatalf("tickets %v, want %s and %s", got, first.Ticket.ID, second.Ticket.ID)
	}
	if s := seen[1]; s.UID != ownUID() || s.Arrival < before || s.Arrival != second.Ticket.Arrival || !slices.Equal(s.Devices, second.Ticket.Devices) || s.PID != os.Getpid() {
		t.Errorf("seen %+v, written %+v", s, second.Ticket)
	}
	if all, problems := f.Tickets(); len(all) != 2 || len(problems) > 0 {
		t.Errorf("listed: %v, %v", all, problems)
	}
	if err := errors.Join(first.Withdraw(), first.Withdraw()); err != nil {
		t.Error(err)
	}
	if got := ticketIDs(readView(t, f, testBoot).Tickets); !slices.Equal(got, []string{second.Ticket.ID}) {
		t.Errorf("after the withdrawal: %v", got)
	}
	h, err := f.Claim(testBoot, second, func(v View) (job.Lease, error) { return job.Lease{Devices: v.Tickets[0].Devices}, nil })
	if err != nil {
		t.Fatal(err)
	}
	defer h.Lock.Close() //nolint:errcheck // held until here
	if left := entryFiles(t, f.ticketFolder(ownUID())); len(left) != 0 || len(readView(t, f, testBoot).Tickets) != 0 {
		t.Errorf("after the claim: %v", left)
	}
}

func TestRefusalKeepsTheTicket(t *testing.T) {
	f := newStateFolder(t)
	w := queueTicket(t, f, "GPU-a")
	if _, err := f.Claim(testBoot, w, func(View) (job.Lease, error) { return job.Lease{}, errBusy }); !errors.Is(err, errBusy) {
		t.Fatal(err)
	}
	if got := ticketIDs(readView(t, f, testBoot).Tickets); !slices.Equal(got, []string{w.Ticket.ID}) {
		t.Errorf("tickets %v, want %s", got, w.Ticket.ID)
	}
}

func TestFirstTicketsCompete(t *testing.T) {
	f := newStateFolder(t)
	all := queueMany(t, f, 40)
	for _, w := range all[:5] {
		_, _ = w.lock.Close(), w.pipe.Close() // as if killed
	}
	var want []string
	for _, w := range all[5 : 5+queue.MaxCompeting] {
		want = append(want, w.Ticket.ID)
	}
	if got := ticketIDs(readView(t, f, testBoot).Tickets); !slices.Equal(got, want) {
		t.Errorf("tickets %v, want %v", got, want)
	}
	if listed, _ := f.Tickets(); len(listed) != 35 {
		t.Errorf("%d are listed, want 35", len(listed))
	}
}

// changeTurn changes the turn in a decision that refuses, and returns what it was.
func changeTurn(t *testing.T, f *Folder, change func(*queue.Turn)) (was queue.Turn) {
	t.Helper()
	_, err := f.Claim(testBoot, nil, func(v View) (job.Lease, error) {
		was = *v.Turn
		if change != nil {
			change(v.Turn)
		}
		return job.Lease{}, errBusy
	})
	if !errors.Is(err, errBusy) {
		t.Fatal(err)
	}
	return was
}

func TestTurnIsRecordedByARefusal(t *testing.T) {
	f := newStateFolder(t)
	a, b := queueTicket(t, f, "GPU-a"), queueTicket(t, f, "GPU-a")
	want := queue.Turn{Next: map[string]int64{b.Ticket.Key(): 7}, Passed: map[string]int64{a.Ticket.Key(): 9}}
	changeTurn(t, f, func(turn *queue.Turn) {
		*turn = queue.Turn{Next: maps.Clone(want.Next), Passed: maps.Clone(want.Passed)}
		turn.Next["none"], turn.Passed["none"] = 1, 2
	})
	if got := changeTurn(t, f, nil); !reflect.DeepEqual(got, want) {
		t.Errorf("the turn is %+v, want %+v", got, want)
	}
	mustClaim(t, f, "GPU-z")
	if got := changeTurn(t, f, nil); !reflect.DeepEqual(got, want) {
		t.Errorf("after a claim the turn is %+v, want %+v", got, want)
	}
	if err := errors.Join(a.Withdraw(), b.Withdraw()); err != nil {
		t.Fatal(err)
	}
	if got := changeTurn(t, f, nil); len(got.Next)+len(got.Passed) != 0 {
		t.Errorf("tickets that are gone are remembered: %+v", got)
	}
}

// waitBehind runs Behind and sends its result.
func waitBehind(t *testing.T, w *Waiting, n int) <-chan error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.WaitBehind(ctx, n) }()
	t.Cleanup(cancel)
	return done
}

func checkReturned(t *testing.T, done <-chan error, what string) {
	t.Helper()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("%s still waits", what)
	}
}

func TestBehind(t *testing.T) {
	f := newStateFolder(t)
	all := queueMany(t, f, 6)
	for i, w := range all[:2] {
		if err := w.WaitBehind(t.Context(), 2); err != nil {
			t.Errorf("ticket %d: %v", i, err)
		}
	}
	var done []<-chan error
	for _, w := range all {
		done = append(done, waitBehind(t, w, 2))
	}
	_ = all[0].Withdraw()
	checkReturned(t, done[2], "the third after the first left")
	_ = all[4].Withdraw() // from the middle
	_ = all[1].Withdraw()
	checkReturned(t, done[3], "the fourth after two left")
	select {
	case err := <-done[5]:
		t.Error(err, "the sixth has two before it")
	case <-time.After(20 * time.Millisecond):
	}
	_ = all[3].Withdraw()
	checkReturned(t, done[5], "the sixth after the fourth left")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	extra := queueTicket(t, f, "GPU-a")
	if err := extra.WaitBehind(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("called off: %v", err)
	}
}

// TestBehindAStoppedOne: the first waiter is stopped, and those between it and the last are served. A waiter that
// watched only the ticket n places ahead would not notice.
func TestBehindAStoppedOne(t *testing.T) {
	f := newStateFolder(t)
	all := queueMany(t, f, 4)
	done := waitBehind(t, all[3], 3)
	select {
	case err := <-done:
		t.Fatal("three are before it", err)
	case <-time.After(20 * time.Millisecond):
	}
	_ = all[1].Withdraw()
	checkReturned(t, done, "the last")
}

// TestBehindWakesExactlyTheRightOnes: tickets leave in any order, and after each one those and only those go on that
// have fewer than n before them.
func TestBehindWakesExactlyTheRightOnes(t *testing.T) {
	for n := 1; n <= 7; n += 3 {
		f := newStateFolder(t)
		all := queueMany(t, f, 30)
		done, awake, left := make([]<-chan error, len(all)), make([]bool, len(all)), make([]bool, len(all))
		for i, w := range all {
			done[i] = waitBehind(t, w, n)
		}
		for _, leaving := range append(rand.Perm(len(all)), -1) {
			ahead := 0
			for i := range all {
				switch ready := ahead < n; {
				case left[i]:
					continue
				case ready && !awake[i]:
					checkReturned(t, done[i], all[i].name)
					awake[i] = true
				case !ready:
					select {
					case err := <-done[i]:
						t.Fatalf("n %d: number %d goes on (%v) with %d before it", n, i, err, ahead)
					default:
					}
				}
				ahead++
			}
			if leaving >= 0 {
				left[leaving] = true
				_ = all[leaving].Withdraw()
			}
		}
	}
}

// roleWait PATH DEVICE: waits until it is ended.
func roleWait(args []string) error {
	f, err := Open(args[0], nil, 20*time.Second)
	if err != nil {
		return err
	}
	w, err := f.QueueTicket(job.Ticket{Devices: toUUIDs(args[1:]), Count: 1, PID: os.Getpid(), Command: "wait"})
	if err != nil {
		return err
	}
	defer w.Withdraw() //nolint:errcheck // it ends
	ctx, cancel := context.WithCancel(context.Background())
	go func() { waitForEOF(); cancel() }()
	_ = w.WaitBehind(ctx, 1)
	if ctx.Err() == nil {
		<-ctx.Done()
	}
	return nil
}

// TestKilledWaitersLeaveNothing: real waiters, most of them asleep in Behind, are killed in any order.
func TestKilledWaitersLeaveNothing(t *testing.T) {
	f := newStateFolder(t)
	var all []*roleProcess
	for range soakCount(24, 300) {
		all = append(all, startRole(t, ownUID(), "wait", f.Path, "GPU-a"))
	}
	waitUntil(t, "everybody waits", func() bool { return len(entryFiles(t, f.ticketFolder(ownUID()))) == len(all) })
	mine := queueTicket(t, f, "GPU-a")
	done := waitBehind(t, mine, 1)
	for _, i := range rand.Perm(len(all)) {
		all[i].kill()
	}
	checkReturned(t, done, "the last one after everybody was killed")
	if got := ticketIDs(readView(t, f, testBoot).Tickets); !slices.Equal(got, []string{mine.Ticket.ID}) {
		t.Errorf("tickets %v, want %s", got, mine.Ticket.ID)
	}
	if left := entryFiles(t, f.ticketFolder(ownUID())); len(left) != 1 || !strings.HasPrefix(left[0], mine.name) {
		t.Errorf("left behind %v", left)
	}
}

func waitUntil(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not so", what)
		}
	}
}

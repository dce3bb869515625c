package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/job"
	"gpuard/internal/core/queue"
	"gpuard/internal/gate"
)

// chosenTicketName is the name of a ticket with a chosen place in the line.
func chosenTicketName(n int, id string) string { return fmt.Sprintf("%0*x-%s", stampDigits, n, id) }

// startWaiter makes alice wait in a folder of root.
func startWaiter(t *testing.T, f *Folder) (a *roleProcess, ticket job.Ticket, file string) {
	t.Helper()
	a = startRole(t, aliceUID, "wait", f.Path, "GPU-a")
	waitUntil(t, "alice waits", func() bool { all, _ := f.Tickets(); return len(all) == 1 })
	all, _ := f.Tickets()
	return a, all[0], filepath.Join(f.ticketFolder(aliceUID), entryFiles(t, f.ticketFolder(aliceUID))[0])
}

func TestStrangerCannotTouchATicket(t *testing.T) {
	gate.Need(t, "root")
	f := newStateFolder(t)
	a, ticket, file := startWaiter(t, f)
	folder := f.ticketFolder(aliceUID)
	pipe := filepath.Join(folder, goneFolder, strings.TrimSuffix(filepath.Base(file), ticketSuffix))
	for _, act := range [][]string{
		{"remove", file},
		{"rename", file, file + "2"},
		{"overwrite", file},
		{"truncate", file},
		{"chmod", file},
		{"read-lock", file},
		{"write-lock", file},
		{"write-lock-read", file},
		{"link", file, filepath.Join(f.Path, "linked")},
		{"remove", pipe},
		{"overwrite", pipe},
		{"read-lock", pipe},
		{"link", pipe, filepath.Join(f.Path, "linked")},
		{"create", filepath.Join(folder, chosenTicketName(1, "aaaa")+ticketSuffix)},
		{"create", filepath.Join(folder, goneFolder, chosenTicketName(1, "aaaa"))},
		{"rename", folder, filepath.Join(f.Path, "tickets", "moved")},
		{"rename", filepath.Join(f.Path, "tickets"), filepath.Join(f.Path, "tickets2")},
	} {
		startRole(t, bobUID, "do", act...).expectLine("failed:")
	}
	seen := readView(t, f, testBoot).Tickets
	if len(seen) != 1 || seen[0].ID != ticket.ID || seen[0].UID != aliceUID || seen[0].Arrival != ticket.Arrival {
		t.Errorf("after all that: %+v, before: %+v", seen, ticket)
	}
	a.kill()
	startDeed(t, bobUID, "read-lock", file)
	if seen := readView(t, f, testBoot).Tickets; len(seen) != 0 {
		t.Errorf("a reader's lock makes a dead ticket look alive: %+v", seen)
	}
}

// roleHostileTickets PATH ALICE'S-TICKET: everything that bob can put into his own folder of tickets.
func roleHostileTickets(args []string) error {
	top := filepath.Join(args[0], "tickets")
	dir := filepath.Join(top, strconv.Itoa(os.Geteuid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	stolen, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	at := func(n int, id string) string { return filepath.Join(dir, chosenTicketName(n, id)+ticketSuffix) }
	live := func(path, content string) error {
		lock, err := newLock(path, []byte(content))
		if err == nil {
			_, err = unix.FcntlInt(lock.Fd(), unix.F_DUPFD_CLOEXEC, 100) // stays open
		}
		return err
	}
	leased := func(path string) error {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
		if err == nil {
			_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK)
		}
		return err
	}
	ticket := func(id, rest string) string {
		return `{"id":"` + id + `","devices":["GPU-a"],"count":1` + rest + `}`
	}
	if err := errors.Join(
		unix.Mkfifo(at(1, "fifo"), 0o666),
		os.Symlink("/dev/zero", at(2, "link")),
		os.Mkdir(at(3, "dirs"), 0o755),
		os.WriteFile(at(4, "none"), nil, 0),
		leased(at(5, "held")),
		live(at(6, "huge"), ticket("huge", "")), os.Truncate(at(6, "huge"), 10<<30),
		live(at(7, "copy"), string(stolen)),
		live(at(8, "text"), "hello"),
		live(at(9, "void"), ""),
		live(at(10, "many"), ticket("many", `,"count":7`)),
		live(at(11, "zero"), ticket("zero", `,"count":0`)),
		live(at(12, "less"), ticket("less", `,"memory":-5`)),
		live(at(13, "past"), ticket("past", `,"timeout_ns":-5`)),
		live(at(14, "long"), ticket("long", `,"devices":["`+strings.Repeat("x", 200)+`"]`)),
		live(at(15, "fine"), ticket("fine", `,"arrival":1,"Arrival":1,"UID":0,"User":"root"`)),
		os.WriteFile(filepath.Join(dir, "two\nlines\x1b[2J.ticket"), nil, 0o600),
		os.WriteFile(filepath.Join(dir, goneFolder), nil, 0o600),
		os.Symlink(filepath.Join(top, strconv.Itoa(aliceUID)), filepath.Join(top, "77")),
		os.WriteFile(filepath.Join(top, "file"), nil, 0o600),
		os.Mkdir(filepath.Join(top, "78"), 0o755),
	); err != nil {
		return err
	}
	fmt.Println("ready")
	waitForEOF()
	return nil
}

func TestHostileTickets(t *testing.T) {
	gate.Need(t, "root")
	f := newStateFolder(t)
	_, ticket, file := startWaiter(t, f)
	began := time.Now().UnixNano()
	startRole(t, bobUID, "hostile-tickets", f.Path, file).expectLine("ready")
	var tickets []job.Ticket
	var problems []Problem
	checkWithinSecond(t, "reading", func() { tickets, problems = f.Tickets() })
	if got := ticketIDs(tickets); !slices.Equal(got, []string{ticket.ID, "fine"}) {
		t.Fatalf("tickets %v, want alice's and one of bob's", got)
	}
	if fine := tickets[1]; fine.UID != bobUID || fine.User != "" || fine.Arrival < began-int64(time.Second) {
		t.Errorf("bob says who he is and when he came: %+v", fine)
	}
	folder := f.ticketFolder(bobUID)
	for path, text := range map[string]string{
		"fifo": "not a regular file", "link": "", "dirs": "not a regular file", "huge": "larger", "copy": "differ", "text": "invalid",
		"void": "unexpected end", "many": "7 of 1", "zero": "0 of 1", "less": "negative", "past": "negative", "long": "characters", "../77": "", "../file": "", "../78": "",
		"two\nlines": "is not a ticket",
	} {
		if !slices.ContainsFunc(problems, func(p Problem) bool {
			named := strings.Contains(p.Path, "-"+path+ticketSuffix) || p.Path == filepath.Join(folder, path) || strings.HasPrefix(p.Path, filepath.Join(folder, path+"\x1b"))
			return p.UID == bobUID && named && strings.Contains(p.Text, text)
		}) {
			t.Errorf("%q is not reported against bob with %q: %v", path, text, problems)
		}
	}
	// Neither alice nor root is stopped or delayed.
	start := time.Now()
	startRole(t, aliceUID, "claim", f.Path, "1s", "GPU-a").expectLine("claimed ")
	mustClaim(t, f, "GPU-c")
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("two claims took %s", took)
	}
	if said := startRole(t, bobUID, "wait", f.Path, "GPU-a").readLine(); !strings.Contains(said, goneFolder) {
		t.Errorf("bob, whose own folder is spoilt, is told %q", said)
	}
}

// A second name of the folder lock among tickets must not cost the claimant the lock.
func TestSecondNameOfTheFolderLockAmongTickets(t *testing.T) {
	gate.Need(t, "root")
	f := newStateFolder(t)
	startDeed(t, bobUID, "mkdir", f.ticketFolder(bobUID))
	startDeed(t, bobUID, "link", filepath.Join(f.Path, "lock"), filepath.Join(f.ticketFolder(bobUID), chosenTicketName(1, "link")+ticketSuffix))
	var seen []Problem
	_, err := f.Claim(testBoot, nil, func(v View) (job.Lease, error) {
		seen = v.Problems
		f.Tickets()
		if holder := lockHolder(t, f.Path); holder != strconv.Itoa(os.Getpid()) {
			t.Errorf("during the claim the folder lock is held by %s, want us", holder)
		}
		return job.Lease{}, errBusy
	})
	if !errors.Is(err, errBusy) || len(seen) != 1 || seen[0].UID != bobUID || !strings.Contains(seen[0].Text, "folder lock") {
		t.Errorf("%v, problems %v", err, seen)
	}
	waitUntil(t, "the lock is given back", func() bool { return lockHolder(t, f.Path) == "0" })
}

// TestSecondNameOfTheFolderLockAsFormat: the owner of another state folder, which is read during a claim, must not cost
// the claimant the lock either.
func TestSecondNameOfTheFolderLockAsFormat(t *testing.T) {
	gate.Need(t, "root")
	a, b := newStateFolder(t), newStateFolder(t)
	format := filepath.Join(b.Path, "format")
	if err := errors.Join(os.Chown(b.Path, bobUID, bobUID), os.Remove(format)); err != nil {
		t.Fatal(err)
	}
	startDeed(t, bobUID, "link", filepath.Join(a.Path, "lock"), format)
	f := mustOpen(t, a.Path, b.Path)
	var seen []Problem
	_, err := f.Claim(testBoot, nil, func(v View) (job.Lease, error) {
		seen = v.Problems
		if holder := lockHolder(t, a.Path); holder != strconv.Itoa(os.Getpid()) {
			t.Errorf("during the claim the folder lock is held by %s, want us", holder)
		}
		return job.Lease{}, errBusy
	})
	if !errors.Is(err, errBusy) || len(seen) != 1 || !strings.Contains(seen[0].Text, "folder lock") {
		t.Errorf("%v, problems %v", err, seen)
	}
	waitUntil(t, "the lock is given back", func() bool { return lockHolder(t, a.Path) == "0" })
}

// TestForeignTickets: a ticket in a user's folder counts only if it belongs to that user or to root.
func TestForeignTickets(t *testing.T) {
	gate.Need(t, "root")
	for owner, want := range map[int]int{aliceUID: 1, 0: 1, bobUID: 0} {
		f := newStateFolder(t)
		dir := f.ticketFolder(aliceUID)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, aliceUID, aliceUID)); err != nil {
			t.Fatal(err)
		}
		lock, err := newLock(filepath.Join(dir, chosenTicketName(1, "aaaa")+ticketSuffix), []byte(`{"id":"aaaa","devices":["GPU-a"],"count":1}`))
		if err != nil || lock.Chown(owner, owner) != nil {
			t.Fatal(err)
		}
		tickets, problems := f.Tickets()
		if len(tickets) != want || len(problems) != 1-want || want == 1 && tickets[0].UID != aliceUID {
			t.Errorf("of uid %d: %+v, %v", owner, tickets, problems)
		}
		_ = lock.Close()
	}
}

// TestTenThousandTickets: live or dead, they cost other users little time and do not hide their tickets.
func TestTenThousandTickets(t *testing.T) {
	gate.Need(t, "root")
	for _, kind := range []string{"dead", "alive", "alike"} {
		f := newStateFolder(t)
		_, ticket, _ := startWaiter(t, f)
		dir := f.ticketFolder(bobUID)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, bobUID, bobUID)); err != nil {
			t.Fatal(err)
		}
		first := filepath.Join(dir, chosenTicketName(0, "aaaa")+ticketSuffix)
		lock, err := newLock(first, []byte(`{"id":"aaaa","devices":["GPU-a"],"count":1}`))
		if err != nil || lock.Chown(bobUID, bobUID) != nil {
			t.Fatal(err)
		}
		for i := range 10_000 {
			id := "bbbb"
			if kind == "alike" {
				id = "aaaa" // and so as good as the first
			}
			if err := os.Link(first, filepath.Join(dir, chosenTicketName(i+1, id)+ticketSuffix)); err != nil {
				t.Fatal(err)
			}
		}
		if kind == "dead" {
			_ = lock.Close()
		} else {
			t.Cleanup(func() { _ = lock.Close() })
		}
		said := checkRoleWithinSecond(t, aliceUID, "tickets", f.Path)
		if !strings.Contains(said, "ticket "+ticket.ID) || strings.Count("\n"+said, "\nticket ") > 1+queue.MaxCompeting || !strings.Contains(said, "more than") {
			t.Errorf("%s: alice sees %s", kind, said)
		}
	}
}

// roleTickets PATH: reads as a claim does, and prints the tickets and the problems.
func roleTickets(args []string) error {
	f, err := Open(args[0], nil, time.Second)
	if err != nil {
		return err
	}
	began := time.Now()
	_, err = f.Claim(testBoot, nil, func(v View) (job.Lease, error) {
		for _, t := range v.Tickets {
			fmt.Println("ticket", t.ID, t.UID)
		}
		for _, p := range v.Problems {
			fmt.Printf("problem %d %q %s\n", p.UID, p.Path, p.Text)
		}
		return job.Lease{}, errBusy
	})
	fmt.Println("took", time.Since(began))
	if errors.Is(err, errBusy) {
		return nil
	}
	return err
}

// TestTicketsOfTwoUsers: each user sweeps their own tickets, root sweeps all, and each user reads those of both.
func TestTicketsOfTwoUsers(t *testing.T) {
	gate.Need(t, "root")
	f := newStateFolder(t)
	a, _, _ := startWaiter(t, f)
	b := startRole(t, bobUID, "wait", f.Path, "GPU-a")
	waitUntil(t, "both wait", func() bool { all, _ := f.Tickets(); return len(all) == 2 })
	for _, uid := range []uint32{aliceUID, bobUID} {
		if said := startRole(t, uid, "tickets", f.Path).endAndRead(); strings.Count(said, "ticket ") != 2 || strings.Contains(said, "problem") {
			t.Errorf("uid %d sees %s", uid, said)
		}
	}
	a.kill()
	b.kill()
	if said := startRole(t, aliceUID, "tickets", f.Path).endAndRead(); strings.Contains(said, "ticket ") {
		t.Errorf("alice sees dead tickets: %s", said)
	}
	if len(entryFiles(t, f.ticketFolder(aliceUID))) != 0 || len(entryFiles(t, f.ticketFolder(bobUID))) != 1 {
		t.Errorf("alice's sweep left %v and %v", entryFiles(t, f.ticketFolder(aliceUID)), entryFiles(t, f.ticketFolder(bobUID)))
	}
	readView(t, f, testBoot)
	if left := entryFiles(t, f.ticketFolder(bobUID)); len(left) != 0 {
		t.Errorf("root's sweep left %v", left)
	}
}

// TestTicketFolderWithSomebodysName: the user who took alice's name is reported, and her files elsewhere do not change.
func TestTicketFolderWithSomebodysName(t *testing.T) {
	gate.Need(t, "root")
	for _, how := range []string{"mkdir", "symlink"} {
		f := newStateFolder(t)
		args := []string{how, f.ticketFolder(aliceUID)}
		if how == "symlink" {
			args = []string{how, makeSharedFolder(t), f.ticketFolder(aliceUID)}
		}
		startDeed(t, bobUID, args...)
		if said := startRole(t, aliceUID, "wait", f.Path, "GPU-a").readLine(); !strings.Contains(said, "belongs to uid 4002") || !strings.Contains(said, "sudo rm -r") {
			t.Errorf("%s: alice is told %s", how, said)
		}
		startRole(t, aliceUID, "claim", f.Path, "5s", "GPU-a").expectLine("claimed ")
	}
}

func TestTicketInAFullFolder(t *testing.T) {
	gate.Need(t, "privileged")
	dir := makeSharedFolder(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	path := filepath.Join(dir, "state")
	if err := CreateFolder(path); err != nil {
		t.Fatal(err)
	}
	f := mustOpen(t, path)
	kept := queueTicket(t, f, "GPU-a")
	_ = os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 1<<20), 0o600)
	if _, err := f.QueueTicket(job.Ticket{Devices: kept.Ticket.Devices, Count: 1}); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), path) {
		t.Errorf("a ticket in a full folder: %v", err)
	}
	if left := append(entryFiles(t, f.ticketFolder(0)), entryFiles(t, filepath.Join(f.ticketFolder(0), goneFolder))...); len(left) != 2 {
		t.Errorf("left behind: %v, want the one that was kept", left)
	}
	if err := kept.Withdraw(); err != nil {
		t.Error(err)
	}
}

// TestLimitOfTickets: dead ones do not count against it.
func TestLimitOfTickets(t *testing.T) {
	f := newStateFolder(t)
	one := queueTicket(t, f, "GPU-a")
	file := filepath.Join(f.ticketFolder(ownUID()), one.name+ticketSuffix)
	for i := range maxTicketsPerUser {
		if err := os.Link(file, filepath.Join(f.ticketFolder(ownUID()), chosenTicketName(i, "a"+strconv.Itoa(1000+i))+ticketSuffix)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.QueueTicket(job.Ticket{Devices: one.Ticket.Devices, Count: 1}); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("one ticket above the limit: %v", err)
	}
	_, _ = one.lock.Close(), one.pipe.Close()
	queueTicket(t, f, "GPU-a")
	if left := entryFiles(t, f.ticketFolder(ownUID())); len(left) != 1 {
		t.Errorf("%d files, want the one ticket", len(left))
	}
}

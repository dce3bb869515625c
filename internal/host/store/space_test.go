package store

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/gate"
)

// roleWithin MAP UID ROLE ARGUMENTS…: runs a role in a new user namespace. MAP is "inside:outside:count" for each
// range, or "-" for none; UID is the uid of the role in there, or "-" to keep it.
func roleWithin(args []string) error {
	runtime.LockOSThread() // Pdeathsig is sent when the thread that forked ends
	cmd := exec.Command("/proc/self/exe", args[3:]...)
	cmd.Env = append(os.Environ(), roleVar+"="+args[2])
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, Pdeathsig: syscall.SIGKILL}
	if args[0] != "-" {
		for part := range strings.SplitSeq(args[0], ",") {
			var m syscall.SysProcIDMap
			if _, err := fmt.Sscanf(part, "%d:%d:%d", &m.ContainerID, &m.HostID, &m.Size); err != nil {
				return err
			}
			cmd.SysProcAttr.UidMappings = append(cmd.SysProcAttr.UidMappings, m)
		}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}} // without one there is no namespace inside of it
	}
	if uid, err := strconv.Atoi(args[1]); err == nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), NoSetGroups: true}
		cmd.SysProcAttr.GidMappings, cmd.SysProcAttr.GidMappingsEnableSetgroups = cmd.SysProcAttr.UidMappings, true
	}
	return cmd.Run()
}

// roleOwn PATH ID: prints whether the caller has such a lease.
func roleOwn(args []string) error {
	f, err := Open(args[0], nil, time.Second)
	if err != nil {
		return err
	}
	_, own := f.Own(args[1])
	fmt.Println("own", own)
	return nil
}

// namespaceUser is a user in a user namespace.
type namespaceUser struct {
	name   string
	uid    uint32 // outside
	start  uint32 // the uid that starts it
	within []string
}

func (r namespaceUser) startRole(t *testing.T, role string, args ...string) *roleProcess {
	t.Helper()
	words := append(append(append([]string{}, r.within...), role), args...)
	return startRole(t, r.start, words[0], words[1:]...)
}

// namespaceUsers are the kinds of user namespaces in which the user has a uid.
func namespaceUsers() []namespaceUser {
	u := uint32(aliceUID)
	if os.Geteuid() != 0 {
		u = ownUID()
	}
	own := fmt.Sprintf(":%d:1", u)
	all := []namespaceUser{
		{"unshare -c", u, u, []string{"within", fmt.Sprint(u) + own, "-"}},
		{"unshare -r", u, u, []string{"within", "0" + own, "-"}},
		{"a number of another", u, u, []string{"within", fmt.Sprint(bobUID) + own, "-"}},
		{"nested", u, u, []string{"within", "0" + own, "-", "within", "7:0:1", "-"}},
		{"nested, with the number outside", u, u, []string{"within", "0" + own, "-", "within", fmt.Sprintf("%d:0:1", u), "-"}},
	}
	if os.Geteuid() == 0 {
		ranges := "0" + own + ",1:100000:1000"
		all = append(all,
			namespaceUser{"rootless container", u, 0, []string{"within", ranges, "0"}},
			namespaceUser{"a user in a rootless container", 100004, 0, []string{"within", ranges, "5"}},
			namespaceUser{"root of the machine", 0, 0, []string{"within", "0:0:1", "-"}})
	}
	return all
}

// TestUserNamespaces: a lease that was taken inside or outside of a user namespace counts on both sides.
func TestUserNamespaces(t *testing.T) {
	gate.Need(t, "userns")
	for _, r := range namespaceUsers() {
		t.Run(r.name, func(t *testing.T) {
			f := newStateFolder(t)
			outside := mustClaim(t, f, "GPU-a")
			both := startRole(t, r.uid, "claim", f.Path, "20s", "GPU-b")
			known, _, _ := strings.Cut(both.expectLine("claimed "), " ")
			if said := r.startRole(t, "claim", f.Path, "20s", "GPU-a", "GPU-b").readLine(); said != "error: busy" {
				t.Errorf("inside, devices that are leased outside: %s", said)
			}
			inside := r.startRole(t, "claim", f.Path, "20s", "GPU-a", "GPU-b", "GPU-c")
			id, device, _ := strings.Cut(inside.expectLine("claimed "), " ")
			if device != "GPU-c" {
				t.Errorf("inside was given %s", device)
			}
			leases, problems := f.Leases()
			var seen *job.Lease
			for i := range leases {
				if leases[i].ID == id {
					seen = &leases[i]
				}
			}
			if len(leases) != 3 || len(problems) > 0 || seen == nil || seen.UID != r.uid || seen.Unreadable || !seen.Holds("GPU-c") {
				t.Fatalf("outside: leases %+v, problems %v", leases, problems)
			}
			for _, uid := range []uint32{ownUID(), r.uid, bobUID} {
				if said := startRole(t, uid, "claim", f.Path, "20s", "GPU-a", "GPU-b", "GPU-c").readLine(); said != "error: busy" {
					t.Errorf("outside, uid %d was given a device that is leased inside: %s", uid, said)
				}
			}
			for lease, want := range map[string]bool{id: true, known: true, outside.Lease.ID: r.uid == ownUID()} {
				r.startRole(t, "own", f.Path, lease).expectLine(fmt.Sprint("own ", want))
			}
			if v := readView(t, f, testBoot); v.Changes["GPU-a"].Ended != 0 || v.Changes["GPU-b"].Ended != 0 || v.Changes["GPU-c"].Ended != 0 {
				t.Errorf("inside and outside take each other's leases for ended: %+v", v.Changes)
			}
			if err := f.Release(*seen, testBoot); err != nil || len(readView(t, f, testBoot).Held) != 2 { // root, or the same user
				t.Errorf("released outside: %v, %d leases are left", err, len(readView(t, f, testBoot).Held))
			}
			inside.kill()
			r.startRole(t, "claim", f.Path, "20s", "GPU-d").expectLine("claimed ")
			if made, _ := filepath.Glob(filepath.Join(f.Path, "leases", spacePrefix+"*")); len(made) != 1 {
				t.Errorf("claims inside have made %v", made)
			}
		})
	}
}

// TestTicketsInUserNamespaces: a ticket from inside counts outside, and the other way round.
func TestTicketsInUserNamespaces(t *testing.T) {
	gate.Need(t, "userns")
	for _, r := range namespaceUsers() {
		t.Run(r.name, func(t *testing.T) {
			f := newStateFolder(t)
			mine := queueTicket(t, f, "GPU-a")
			r.startRole(t, "wait", f.Path, "GPU-a")
			var line []job.Ticket
			waitUntil(t, "the other waits", func() bool { line, _ = f.Tickets(); return len(line) == 2 })
			for _, ticket := range line {
				if ticket.ID != mine.Ticket.ID && ticket.UID != r.uid {
					t.Errorf("outside, the ticket is of uid %d, not %d", ticket.UID, r.uid)
				}
			}
			seen := r.startRole(t, "tickets", f.Path).endAndRead()
			if strings.Count(seen, "ticket ") != 2 || strings.Contains(seen, "problem") || r.uid != ownUID() && strings.Count(seen, " 0\n") > 1 {
				t.Errorf("inside: %s", seen)
			}
		})
	}
}

// TestWatchFromUserNamespace: the end of a lease outside wakes a waiter inside.
func TestWatchFromUserNamespace(t *testing.T) {
	gate.Need(t, "userns")
	for _, r := range namespaceUsers() {
		t.Run(r.name, func(t *testing.T) {
			f := newStateFolder(t)
			held := mustClaim(t, f, "GPU-a")
			w := r.startRole(t, "watch", f.Path)
			w.expectLine("watching")
			_ = held.Lock.Close()
			defer time.AfterFunc(30*time.Second, func() { _ = w.cmd.Process.Kill() }).Stop()
			w.expectLine("leases 0")
		})
	}
}

// TestWithoutAnID: where the caller's id is not mapped, it cannot lease, and can still read all leases.
func TestWithoutAnID(t *testing.T) {
	gate.Need(t, "userns")
	f := newStateFolder(t)
	held := mustClaim(t, f, "GPU-a")
	before := entryFiles(t, filepath.Join(f.Path, "leases"))
	for _, words := range [][]string{{"claim", f.Path, "20s", "GPU-b"}, {"wait", f.Path, "GPU-a"}} {
		a := startRole(t, ownUID(), "within", append([]string{"-", "-"}, words...)...)
		defer time.AfterFunc(30*time.Second, func() { _ = a.cmd.Process.Kill() }).Stop()
		if said := a.readLine(); !strings.HasPrefix(said, "error: cannot lease a GPU here: this user namespace has no place for your user id") || !strings.Contains(said, "unshare --map-current-user") {
			t.Errorf("%s: %s", words[0], said)
		}
	}
	startRole(t, ownUID(), "within", "-", "-", "list", f.Path).expectLine("lease " + held.Lease.ID)
	if after := entryFiles(t, filepath.Join(f.Path, "leases")); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("folders %v, before %v", after, before)
	}
	if overflow := 65534; os.Geteuid() == 0 { // an id that is every other one's too
		if said := startRole(t, uint32(overflow), "within", "65534:65534:1", "-", "claim", f.Path, "20s", "GPU-b").readLine(); !strings.Contains(said, "has no place for your user id") {
			t.Errorf("with the overflow id: %s", said)
		}
	}
}

// TestKilledInUserNamespace: files that a killed claim inside left are removed by the next claim of the same user,
// inside or outside, or of root.
func TestKilledInUserNamespace(t *testing.T) {
	gate.Need(t, "userns")
	for _, r := range namespaceUsers() {
		f := newStateFolder(t)
		left := func() []string {
			found, _ := filepath.Glob(filepath.Join(f.Path, "leases", spacePrefix+"*", "*.*"))
			return found
		}
		next := map[string]func() *roleProcess{
			"inside":  func() *roleProcess { return r.startRole(t, "claim", f.Path, "20s", "GPU-b") },
			"outside": func() *roleProcess { return startRole(t, r.uid, "claim", f.Path, "20s", "GPU-b") },
		}
		for where, claims := range next {
			a := r.startRole(t, "claim", f.Path, "20s", "GPU-a")
			a.expectLine("claimed ")
			a.kill()
			waitUntil(t, "the lease is dead", func() bool { return len(readLeases(f)) == 0 })
			pairs := left()
			if len(pairs) != 2 {
				t.Fatalf("%s: left %v", r.name, pairs)
			}
			started := filepath.Join(filepath.Dir(pairs[0]), newPrefix+"aaaa"+jsonSuffix) // as of one that was killed earlier
			if err := errors.Join(os.WriteFile(started, nil, 0o600), os.Chown(started, int(r.uid), -1)); err != nil {
				t.Fatal(err)
			}
			b := claims()
			b.expectLine("claimed ")
			b.kill()
			waitUntil(t, "the lease is dead", func() bool { return len(readLeases(f)) == 0 })
			for _, path := range left() {
				if strings.HasPrefix(path, strings.TrimSuffix(pairs[0], jsonSuffix)) || path == started {
					t.Errorf("%s: the claim %s has left %s", r.name, where, path)
				}
			}
		}
	}
}

// readLeases returns the live leases, without a claim.
func readLeases(f *Folder) []job.Lease {
	leases, _ := f.Leases()
	return leases
}

// TestHiddenOwner: inside, a live lock in a folder with a hidden owner keeps its device busy. Outside, where the owner
// is known, the usual rules apply. Dead locks do not count.
func TestHiddenOwner(t *testing.T) {
	gate.Need(t, "root", "userns")
	f := newStateFolder(t)
	startDeed(t, bobUID, "mkdir", f.userFolder(4003)) // the name of another
	plant := func(name string, ids ...string) {
		for _, id := range ids {
			startDeed(t, bobUID, "create", filepath.Join(filepath.Join(f.Path, "leases", name), entryNameOf(&job.Lease{ID: id, Devices: []gpu.UUID{gpu.UUID("GPU-" + id)}})+lockSuffix))
		}
	}
	plant("4003", "live", "dead")
	startDeed(t, bobUID, "write-lock", filepath.Join(f.userFolder(4003), entryNameOf(&job.Lease{ID: "live", Devices: []gpu.UUID{"GPU-live"}})+lockSuffix))
	for _, r := range namespaceUsers()[:5] {
		if said := r.startRole(t, "claim", f.Path, "20s", "GPU-live").readLine(); said != "error: busy" {
			t.Errorf("%s: a device that may be leased: %s", r.name, said)
		}
		a := r.startRole(t, "claim", f.Path, "20s", "GPU-dead")
		a.expectLine("claimed ")
		a.kill()
	}
	startRole(t, aliceUID, "claim", f.Path, "20s", "GPU-live").expectLine("claimed ")
}

// TestManyFolders: a user can make many folders with names of user namespaces, and only a few of them are read.
func TestManyFolders(t *testing.T) {
	gate.Need(t, "root", "userns")
	f := newStateFolder(t)
	name := entryNameOf(&job.Lease{ID: "aaaa", Devices: []gpu.UUID{"GPU-x"}}) + lockSuffix
	for i := range maxFoldersPerOwner + 2 {
		dir := filepath.Join(f.Path, "leases", fmt.Sprintf("%s%08x", spacePrefix, i))
		startDeed(t, bobUID, "mkdir", dir)
		startDeed(t, bobUID, "create", filepath.Join(dir, name))
		startDeed(t, bobUID, "write-lock", filepath.Join(dir, name))
	}
	namespaceUsers()[0].startRole(t, "claim", f.Path, "20s", "GPU-a").expectLine("claimed ")
	leases, problems := f.Leases()
	of := map[uint32]int{}
	for _, l := range leases {
		of[l.UID]++
	}
	if of[bobUID] != maxFoldersPerOwner || of[aliceUID] != 1 {
		t.Errorf("leases by uid: %v", of)
	}
	n := 0
	for _, p := range problems {
		if p.UID == bobUID && strings.Contains(p.Text, "more than 4 folders") {
			n++
		}
	}
	if n != 2 {
		t.Errorf("problems: %v", problems)
	}
}

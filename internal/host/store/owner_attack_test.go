package store

import (
	"bufio"
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

	"gpuard/internal/gate"
)

const (
	malloryUID   = 4003
	victimRounds = 20 // of a victim in each attack
)

// roleExchange NAME OTHER …: exchanges each NAME with its OTHER and back, all the time.
func roleExchange(args []string) error {
	fmt.Println("ready")
	ended := make(chan struct{})
	go func() { waitForEOF(); close(ended) }()
	for n := 0; ; n++ {
		select {
		case <-ended:
			return nil
		default:
		}
		for pair := range slices.Chunk(args, 2) {
			for range 2 {
				// A name may be missing while its owner makes it.
				_ = unix.Renameat2(unix.AT_FDCWD, pair[0], unix.AT_FDCWD, pair[1], unix.RENAME_EXCHANGE)
				for until := time.Now().Add(time.Duration(n%7) * 20 * time.Microsecond); time.Now().Before(until); {
				}
			}
		}
	}
}

// roleRemake NAME LINK AWAY: moves the folder NAME away, so that its owner makes it anew, and then exchanges the new
// one for LINK, all the time.
func roleRemake(args []string) error {
	fmt.Println("ready")
	ended := make(chan struct{})
	go func() { waitForEOF(); close(ended) }()
	for n := 0; ; {
		select {
		case <-ended:
			return nil
		default:
		}
		var st unix.Stat_t
		if unix.Lstat(args[0], &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		for range 2 {
			_ = unix.Renameat2(unix.AT_FDCWD, args[0], unix.AT_FDCWD, args[1], unix.RENAME_EXCHANGE)
			for until := time.Now().Add(time.Duration(n%7) * 20 * time.Microsecond); time.Now().Before(until); {
			}
		}
		if n++; n < 100 {
			_ = os.Rename(args[0], args[2]+strconv.Itoa(n))
		}
	}
}

// roleVictim PATH: for each line that it reads it claims, waits, marks, touches and ends for some time, and says how
// often that went well.
func roleVictim(args []string) error {
	devices := toUUIDs([]string{"GPU-a", "GPU-b", "GPU-c"})
	unix.Umask(0o077) // so that the mode of what it makes has to be changed
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		done := 0
		for range victimRounds {
			f, err := Open(args[0], nil, 20*time.Second)
			if err != nil {
				continue // the folder itself is exchanged
			}
			_, lerr := claimMarkTouchAndEnd(f, devices)
			_, qerr := queueClaimAndEnd(f, devices)
			if lerr == nil && qerr == nil {
				done++
			}
			_ = f.Close()
		}
		fmt.Println("done", done)
	}
	return nil
}

// TestOwnerOfTheFolderAttacks: mallory owns the state folder and replaces its folders by links and by folders of her
// own in a tight loop, while alice and root work in it. None of their files elsewhere changes, and none appears
// elsewhere.
func TestOwnerOfTheFolderAttacks(t *testing.T) {
	gate.Need(t, "root")
	top := makeSharedFolder(t)
	state := filepath.Join(top, "state")
	if err := errors.Join(CreateFolder(state), os.Chown(top, malloryUID, malloryUID)); err != nil {
		t.Fatal(err)
	}
	for _, part := range append(partNames(), "") {
		if err := os.Chown(filepath.Join(state, part), malloryUID, malloryUID); err != nil {
			t.Fatal(err)
		}
	}
	victims := []uint32{aliceUID, 0}
	for _, uid := range victims {
		holds := startRole(t, uid, "claim", state, "20s", "GPU-a")
		holds.expectLine("claimed ")
		waits := startRole(t, uid, "wait", state, "GPU-a")
		waitUntil(t, "the folder of tickets is there", func() bool {
			_, err := os.Lstat(filepath.Join(state, "tickets", formatUID(uid), goneFolder))
			return err == nil
		})
		holds.kill()
		waits.kill()
	}
	watched := map[string]string{}
	watch := func(dir string) string { watched[dir] = ""; return dir }
	theirs := func(of string, uid uint32) string { return watch(makeDecoy(t, of, uid, uid)) } // a victim's
	put := func(name string, how func(string) error) string {
		path := filepath.Join(state, name)
		if err := how(path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := func(to string) func(string) error {
		return func(path string) error {
			return errors.Join(os.Symlink(to, path), os.Lchown(path, malloryUID, malloryUID))
		}
	}
	folder := func(path string) error {
		return errors.Join(os.Mkdir(path, 0o777), os.Chmod(path, 0o777), os.Chown(path, malloryUID, malloryUID))
	}
	var attacks [][]string
	for _, uid := range victims {
		for _, sub := range []string{"leases", "tickets"} {
			own := filepath.Join(state, sub, formatUID(uid))
			home := theirs(sub+"/"+formatUID(uid), uid)
			attacks = append(attacks,
				[]string{"exchange", own, put(sub+"/a-folder-"+formatUID(uid), link(home))},
				[]string{"exchange", own, watch(put(sub+"/hers-"+formatUID(uid), folder))},
				[]string{"remake", own, put(sub+"/a-file-"+formatUID(uid), link(filepath.Join(home, "secret"))), own + "-away-"},
				[]string{"exchange", filepath.Join(state, sub), put("a-link-"+sub+"-"+formatUID(uid), link(theirs(sub, uid)))})
		}
		attacks = append(attacks, []string{"exchange", state, put("../a-link-"+formatUID(uid), link(theirs("", uid)))})
	}
	for dir := range watched {
		watched[dir] = listAttributes(t, dir)
	}
	var all []*roleProcess
	done := 0
	for _, uid := range victims {
		all = append(all, startRole(t, uid, "victim", state))
	}
	for _, attack := range attacks {
		a := startRole(t, malloryUID, attack[0], attack[1:]...)
		a.expectLine("ready")
		done += letVictimsWork(t, all)
		if rest := a.endAndRead(); rest != "" {
			t.Errorf("mallory says %q", rest)
		}
		for dir, before := range watched {
			if after := listAttributes(t, dir); after != before {
				t.Errorf("%v: led to change in %s\n%s", attack, dir, strings.Join(changedLines(before, after), "\n"))
				watched[dir] = after
			}
		}
	}
	if t.Logf("%d lives went well under attack", done); done == 0 {
		t.Error("nobody ever got a lease: they were shut out, and nothing is shown")
	}
	if after := letVictimsWork(t, all); after != len(all)*victimRounds {
		t.Errorf("after the attacks %d of %d lives went well", after, len(all)*victimRounds)
	}
}

// letVictimsWork lets the victims work once, all at the same time, and returns how often that went well.
func letVictimsWork(t *testing.T, all []*roleProcess) (done int) {
	t.Helper()
	for _, v := range all {
		if _, err := fmt.Fprintln(v.in); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range all {
		n, err := strconv.Atoi(v.expectLine("done "))
		if err != nil {
			t.Fatal(err)
		}
		done += n
	}
	return done
}

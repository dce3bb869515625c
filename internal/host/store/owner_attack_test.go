package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
)

const mallory = 4003

// roleExchange NAME OTHER …: exchanges each NAME with its OTHER and back, all the time.
func roleExchange(args []string) error {
	fmt.Println("ready")
	ended := make(chan struct{})
	go func() { untilEOF(); close(ended) }()
	for n := 0; ; n++ {
		select {
		case <-ended:
			return nil
		default:
		}
		for pair := range slices.Chunk(args, 2) {
			for range 2 {
				// A name may be missing for now: what it is for is being made.
				_ = unix.Renameat2(unix.AT_FDCWD, pair[0], unix.AT_FDCWD, pair[1], unix.RENAME_EXCHANGE)
				for until := time.Now().Add(time.Duration(n%7) * 20 * time.Microsecond); time.Now().Before(until); {
				}
			}
		}
	}
}

// roleVictim PATH: claims, waits, marks, touches and ends, again and again, and says so after each 50 times.
func roleVictim(args []string) error {
	ended := make(chan struct{})
	go func() { untilEOF(); close(ended) }()
	done := 0
	for n := 1; ; n++ {
		if f, err := Open(args[0], nil, 20*time.Second); err == nil { // the folder itself is exchanged too
			_, lerr := claimMarkTouchAndEnd(f, uuids([]string{"GPU-a", "GPU-b", "GPU-c"}))
			_, qerr := queueClaimAndEnd(f, uuids([]string{"GPU-a", "GPU-b", "GPU-c"}))
			if lerr == nil && qerr == nil {
				done++
			}
			_ = f.Close()
		}
		if n%50 == 0 {
			fmt.Println("again", done)
		}
		select {
		case <-ended:
			return nil
		default:
		}
	}
}

// TestOwnerOfTheFolderAttacks: mallory, who owns the state folder, exchanges its folders for links and for folders of her own in a
// tight loop, while alice and root work in it. Nothing of theirs changes elsewhere, and nothing of theirs appears elsewhere.
func TestOwnerOfTheFolderAttacks(t *testing.T) {
	gate.Need(t, "root")
	top := place(t)
	state := filepath.Join(top, "state")
	if err := errors.Join(Create(state), os.Chown(top, mallory, mallory)); err != nil {
		t.Fatal(err)
	}
	for _, part := range append(inside(), "") {
		if err := os.Chown(filepath.Join(state, part), mallory, mallory); err != nil {
			t.Fatal(err)
		}
	}
	victims := []uint32{alice, 0}
	for _, uid := range victims {
		holds := play(t, uid, "claim", state, "20s", "GPU-a")
		holds.expect("claimed ")
		waits := play(t, uid, "wait", state, "GPU-a")
		eventually(t, "the folder of tickets is there", func() bool {
			_, err := os.Lstat(filepath.Join(state, "tickets", decimal(uid), goneFolder))
			return err == nil
		})
		holds.kill()
		waits.kill()
	}
	watched := map[string]string{}
	watch := func(dir string) string { watched[dir] = ""; return dir }
	theirs := func(of string, uid uint32) string { return watch(decoy(t, of, uid, uid)) } // a victim's
	put := func(name string, how func(string) error) string {
		path := filepath.Join(state, name)
		if err := how(path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := func(to string) func(string) error {
		return func(path string) error { return errors.Join(os.Symlink(to, path), os.Lchown(path, mallory, mallory)) }
	}
	folder := func(path string) error {
		return errors.Join(os.Mkdir(path, 0o777), os.Chmod(path, 0o777), os.Chown(path, mallory, mallory))
	}
	var attacks [][]string
	for _, uid := range victims {
		for _, sub := range []string{"leases", "tickets"} {
			own := filepath.Join(state, sub, decimal(uid))
			home := theirs(sub+"/"+decimal(uid), uid)
			attacks = append(attacks,
				[]string{own, put(sub+"/a-folder-"+decimal(uid), link(home))},
				[]string{own, put(sub+"/a-file-"+decimal(uid), link(filepath.Join(home, "secret")))},
				[]string{own, watch(put(sub+"/hers-"+decimal(uid), folder))})
			attacks = append(attacks, []string{filepath.Join(state, sub), put("a-link-"+sub+"-"+decimal(uid), link(theirs(sub, uid)))})
		}
		attacks = append(attacks, []string{state, put("../a-link-"+decimal(uid), link(theirs("", uid)))})
	}
	for dir := range watched {
		watched[dir] = inventory(t, dir)
	}
	var all []*actor
	for _, uid := range victims {
		all = append(all, play(t, uid, "victim", state))
	}
	for _, attack := range attacks {
		a := play(t, mallory, "exchange", attack...)
		a.expect("ready")
		for _, v := range all {
			v.expect("again")
			v.expect("again")
		}
		if rest := a.end(); rest != "" {
			t.Errorf("mallory says %q", rest)
		}
		for dir, before := range watched {
			if after := inventory(t, dir); after != before {
				t.Errorf("%v: led to change in %s\n%s", attack, dir, strings.Join(changed(before, after), "\n"))
				watched[dir] = after
			}
		}
	}
	for _, v := range all {
		said := v.expect("again")
		if said == "0" {
			t.Error("a victim never got a lease: was it attacked, or only shut out?")
		}
		t.Logf("done %s times", said)
		v.end()
	}
}

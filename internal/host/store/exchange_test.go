package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// isNamingCall reports whether a system call makes, changes or opens a file by name.
func isNamingCall(nr uint64) bool {
	return slices.Contains([]uint64{unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_FCHMODAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UNLINKAT,
		unix.SYS_MKDIRAT, unix.SYS_MKNODAT, unix.SYS_UTIMENSAT}, nr)
}

// folderExchange is an attack by the owner of a state folder: at some moment, the name of one of its folders leads elsewhere.
type folderExchange struct {
	path  string // of the folder, in the state folder
	away  string // where it is meanwhile
	decoy string // a folder of the victim's that has nothing to do with gpuard
	link  bool   // to the decoy; else the decoy itself

	set     bool
	missing bool // there was no folder yet
}

// fillDecoy makes a file in the decoy for each name that is in the folder now, so that an operation on the name would hit
// it.
func (p *folderExchange) fillDecoy(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(p.path, func(path string, d fs.DirEntry, err error) error {
		inside, _ := filepath.Rel(p.path, path)
		at := filepath.Join(p.decoy, inside)
		switch _, known := os.Lstat(at); {
		case errors.Is(err, os.ErrNotExist):
			return nil
		case err != nil || known == nil:
			return err
		case d.IsDir():
			return os.Mkdir(at, 0o700)
		}
		return os.WriteFile(at, []byte("mine"), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (p *folderExchange) exchangeFolder(t *testing.T) {
	t.Helper()
	err := os.Rename(p.path, p.away)
	if p.missing = errors.Is(err, os.ErrNotExist); p.missing {
		err = nil
	}
	if err == nil && p.link {
		err = os.Symlink(p.decoy, p.path)
	} else if err == nil {
		err = os.Rename(p.decoy, p.path)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.set = true
}

func (p *folderExchange) undoExchange(t *testing.T) {
	t.Helper()
	if !p.set {
		return
	}
	var err error
	if p.link {
		err = os.Remove(p.path)
	} else {
		err = os.Rename(p.path, p.decoy)
	}
	if err == nil && !p.missing {
		err = os.Rename(p.away, p.path)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.set = false
}

// listAttributes lists everything below a folder with all attributes that can be changed.
func listAttributes(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		inside, _ := filepath.Rel(dir, path)
		if path == dir { // the trap renames it
			st.Mtim, st.Ctim = syscall.Timespec{}, syscall.Timespec{}
		}
		text := []byte(nil)
		if info.Mode().IsRegular() {
			text, err = os.ReadFile(path)
		}
		fmt.Fprintf(&all, "%s %v uid %d, written %v, changed %v: %q\n", inside, info.Mode(), st.Uid, st.Mtim, st.Ctim, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// changedLines returns the lines that are in only one of two inventories.
func changedLines(before, after string) (lines []string) {
	old, now := strings.Split(before, "\n"), strings.Split(after, "\n")
	for _, l := range old {
		if !slices.Contains(now, l) {
			lines = append(lines, "- "+l)
		}
	}
	for _, l := range now {
		if !slices.Contains(old, l) {
			lines = append(lines, "+ "+l)
		}
	}
	if more := len(lines) - 12; more > 0 {
		lines = append(lines[:12], fmt.Sprintf("and %d more", more))
	}
	return lines
}

// makeDecoy makes a folder of owner with every name that gpuard might open in the state folder's place.
func makeDecoy(t *testing.T, of string, uid, owner uint32) string {
	t.Helper()
	dir := filepath.Join(makeSharedFolder(t), "private")
	own := formatUID(uid)
	folders := map[string][]string{
		"leases":         {own},
		"tickets":        {own, own + "/" + goneFolder},
		"leases/" + own:  nil,
		"tickets/" + own: {goneFolder},
		"":               {"leases", "tickets", "leases/" + own, "tickets/" + own, "tickets/" + own + "/" + goneFolder},
	}[of]
	for _, folder := range append([]string{""}, folders...) {
		at := filepath.Join(dir, folder)
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"secret", newPrefix + "last", newPrefix + "aaaa" + jsonSuffix, "aaaa-00000000" + jsonSuffix, chosenTicketName(1, "aaaa"), chosenTicketName(1, "aaaa") + ticketSuffix} {
			if err := os.WriteFile(filepath.Join(at, name), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if owner != ownUID() {
		if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error { return os.Lchown(path, int(owner), int(owner)) }); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// How a folder is exchanged.
const (
	linkOnce         = "a link for one call"
	linkFromThenOn   = "a link from then on"
	linkWhereMissing = "a link for one call, where the folder is missing at first"
	otherFolder      = "a folder of another user"
)

// TestExchangedAtEveryStep: the owner of the state folder replaces any of its folders at any system call of a claim, a
// wait and their ends. Nothing changes in the place to which the name leads then.
func TestExchangedAtEveryStep(t *testing.T) {
	t.Parallel()
	own := formatUID(ownUID())
	for deed, targets := range map[string][]string{
		"lives": {"", "leases", "leases/" + own},
		"waits": {"", "tickets", "tickets/" + own},
	} {
		for _, target := range targets {
			ways := []string{linkOnce}
			if target == "" || strings.HasSuffix(target, own) {
				ways = append(ways, linkFromThenOn)
			}
			if strings.HasSuffix(target, own) {
				ways = append(ways, linkWhereMissing)
			}
			for _, how := range ways {
				exchangeAtEveryStep(t, deed, target, how, ownUID(), nil)
			}
			if ownUID() == 0 {
				exchangeAtEveryStep(t, deed, target, otherFolder, bobUID, nil)
			}
		}
	}
}

// exchangeAtEveryStep repeats a deed, with the exchange one call later each time. also is called for every system
// call.
func exchangeAtEveryStep(t *testing.T, deed, target, how string, owner uint32, also func(c systemCall)) {
	t.Helper()
	f := newStateFolder(t)
	checkUsable(t, f, "at first")
	leaveDeadTicket(t, f)
	p := &folderExchange{path: filepath.Join(f.Path, target), away: filepath.Join(makeSharedFolder(t), "away"), decoy: makeDecoy(t, target, ownUID(), owner), link: how != otherFolder}
	round, calls, before, led := 0, 0, "", false
	done := false
	said := traceDeed(t, f.Path, deed, func(c systemCall) bool {
		if also != nil {
			also(c)
		}
		switch {
		case c.entry && c.nr == unix.SYS_GETPGID:
			if round++; round%2 == 1 { // one more begins
				calls = 0
				if how == linkWhereMissing {
					_ = os.RemoveAll(p.path)
				}
				break
			}
			p.undoExchange(t)
			if after := listAttributes(t, p.decoy); before != "" && after != before {
				led = true
				t.Errorf("%s: %s in place of %q at call %d leads it to change\n%s", deed, how, target, round/2, strings.Join(changedLines(before, after), "\n"))
			}
			done = before == "" // it has no such call any more
			before = ""
		case c.step == 0 || !isNamingCall(c.nr):
		case c.entry:
			if calls++; calls == round/2+1 {
				p.fillDecoy(t)
				before = listAttributes(t, p.decoy)
				p.exchangeFolder(t)
			}
		case calls == round/2+1 && (how == linkOnce || how == linkWhereMissing):
			p.undoExchange(t)
		}
		return led || done
	})
	p.undoExchange(t)
	if said != "" {
		t.Errorf("%s: it says %s", deed, said)
	}
	checkUsable(t, f, "after all exchanges")
	if t.Logf("%s, %s, %q: %d calls", deed, how, target, round/2-1); !led && round/2-1 < 12 {
		t.Errorf("%s has only %d calls: is it being followed?", deed, round/2-1)
	}
}

// TestCreateExchanged: at any system call of Create, the unfinished folder is replaced by a link or by another folder
// of the caller. Nothing changes in that other folder.
func TestCreateExchanged(t *testing.T) {
	for _, link := range []bool{true, false} {
		made := 0
		for number, met := 1, true; met; number++ {
			f := newStateFolder(t)
			home := makeDecoy(t, "", ownUID(), ownUID())
			p := &folderExchange{away: filepath.Join(makeSharedFolder(t), "away"), decoy: filepath.Join(filepath.Dir(f.Path), "data"), link: link}
			if err := os.Rename(home, p.decoy); err != nil {
				t.Fatal(err)
			}
			before, calls := listAttributes(t, p.decoy), 0
			met = false
			said := traceDeed(t, f.Path, "create", func(c systemCall) bool {
				if c.step > 0 && c.entry && isNamingCall(c.nr) {
					calls++
				}
				if unfinished, _ := filepath.Glob(filepath.Join(filepath.Dir(f.Path), ".gpuard.*")); calls == number && !met {
					if met = true; len(unfinished) == 1 {
						made++
						p.path = unfinished[0]
						p.exchangeFolder(t)
					}
				}
				return false
			})
			where := p.decoy
			for _, at := range []string{p.path, filepath.Join(filepath.Dir(f.Path), "beside")} { // it may have been moved in place of the folder
				if _, err := os.Lstat(filepath.Join(at, "secret")); !link && p.set && err == nil {
					where = at
				}
			}
			if _, err := os.Lstat(where); err != nil {
				t.Errorf("link %t: exchanged at call %d, create says %q and removed it: %v", link, number, said, err)
			} else if after := listAttributes(t, where); after != before {
				t.Errorf("link %t: exchanged at call %d, create says %q and was led to change\n%s", link, number, said, strings.Join(changedLines(before, after), "\n"))
			}
		}
		if made < 8 {
			t.Errorf("link %t: the unfinished folder was there at %d calls only", link, made)
		}
	}
}

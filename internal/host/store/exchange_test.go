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

// names reports whether a system call makes, changes or opens a file by name.
func names(nr uint64) bool {
	return slices.Contains([]uint64{unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_FCHMODAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UNLINKAT,
		unix.SYS_MKDIRAT, unix.SYS_MKNODAT, unix.SYS_UTIMENSAT}, nr)
}

// trap is an attack by the owner of a state folder: at some moment, the name of one of its folders leads elsewhere.
type trap struct {
	path  string // of the folder, in the state folder
	away  string // where it is meanwhile
	decoy string // a folder of the victim's that has nothing to do with gpuard
	link  bool   // to the decoy; else the decoy itself

	set     bool
	missing bool // there was no folder yet
}

// bait makes a file in the decoy for each name that is in the folder now, so that an operation on the name would hit
// it.
func (p *trap) bait(t *testing.T) {
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

func (p *trap) spring(t *testing.T) {
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

func (p *trap) relax(t *testing.T) {
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

// inventory lists everything below a folder with all attributes that can be changed.
func inventory(t *testing.T, dir string) string {
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

// changed returns the lines that are in only one of two inventories.
func changed(before, after string) (lines []string) {
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

// decoy makes a folder of owner with every name that gpuard might open in the state folder's place.
func decoy(t *testing.T, of string, uid, owner uint32) string {
	t.Helper()
	dir := filepath.Join(place(t), "private")
	own := decimal(uid)
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
		for _, name := range []string{"secret", newPrefix + "last", newPrefix + "aaaa" + jsonSuffix, "aaaa-00000000" + jsonSuffix, stamp(1, "aaaa"), stamp(1, "aaaa") + ticketSuffix} {
			if err := os.WriteFile(filepath.Join(at, name), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if owner != me() {
		if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error { return os.Lchown(path, int(owner), int(owner)) }); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// How a folder is exchanged.
const (
	linkOnce    = "a link for one call"
	linkOn      = "a link from then on"
	linkNew     = "a link for one call, where the folder is missing at first"
	otherFolder = "a folder of another user"
)

// TestExchangedAtEveryStep: the owner of the state folder replaces any of its folders at any system call of a claim, a
// wait and their ends. Nothing changes in the place to which the name leads then.
func TestExchangedAtEveryStep(t *testing.T) {
	t.Parallel()
	own := decimal(me())
	for deed, targets := range map[string][]string{
		"lives": {"", "leases", "leases/" + own},
		"waits": {"", "tickets", "tickets/" + own},
	} {
		for _, target := range targets {
			ways := []string{linkOnce}
			if target == "" || strings.HasSuffix(target, own) {
				ways = append(ways, linkOn)
			}
			if strings.HasSuffix(target, own) {
				ways = append(ways, linkNew)
			}
			for _, how := range ways {
				exchangedAtEveryStep(t, deed, target, how, me(), nil)
			}
			if me() == 0 {
				exchangedAtEveryStep(t, deed, target, otherFolder, bob, nil)
			}
		}
	}
}

// exchangedAtEveryStep repeats a deed, with the exchange one call later each time. also is called for every system
// call.
func exchangedAtEveryStep(t *testing.T, deed, target, how string, owner uint32, also func(c call)) {
	t.Helper()
	f := fresh(t)
	usable(t, f, "at first")
	leaveDead(t, f)
	p := &trap{path: filepath.Join(f.Path, target), away: filepath.Join(place(t), "away"), decoy: decoy(t, target, me(), owner), link: how != otherFolder}
	round, calls, before, led := 0, 0, "", false
	done := false
	said := traced(t, f.Path, deed, func(c call) bool {
		if also != nil {
			also(c)
		}
		switch {
		case c.entry && c.nr == unix.SYS_GETPGID:
			if round++; round%2 == 1 { // one more begins
				calls = 0
				if how == linkNew {
					_ = os.RemoveAll(p.path)
				}
				break
			}
			p.relax(t)
			if after := inventory(t, p.decoy); before != "" && after != before {
				led = true
				t.Errorf("%s: %s in place of %q at call %d leads it to change\n%s", deed, how, target, round/2, strings.Join(changed(before, after), "\n"))
			}
			done = before == "" // it has no such call any more
			before = ""
		case c.step == 0 || !names(c.nr):
		case c.entry:
			if calls++; calls == round/2+1 {
				p.bait(t)
				before = inventory(t, p.decoy)
				p.spring(t)
			}
		case calls == round/2+1 && (how == linkOnce || how == linkNew):
			p.relax(t)
		}
		return led || done
	})
	p.relax(t)
	if said != "" {
		t.Errorf("%s: it says %s", deed, said)
	}
	usable(t, f, "after all exchanges")
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
			f := fresh(t)
			home := decoy(t, "", me(), me())
			p := &trap{away: filepath.Join(place(t), "away"), decoy: filepath.Join(filepath.Dir(f.Path), "data"), link: link}
			if err := os.Rename(home, p.decoy); err != nil {
				t.Fatal(err)
			}
			before, calls := inventory(t, p.decoy), 0
			met = false
			said := traced(t, f.Path, "create", func(c call) bool {
				if c.step > 0 && c.entry && names(c.nr) {
					calls++
				}
				if unfinished, _ := filepath.Glob(filepath.Join(filepath.Dir(f.Path), ".gpuard.*")); calls == number && !met {
					if met = true; len(unfinished) == 1 {
						made++
						p.path = unfinished[0]
						p.spring(t)
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
			} else if after := inventory(t, where); after != before {
				t.Errorf("link %t: exchanged at call %d, create says %q and was led to change\n%s", link, number, said, strings.Join(changed(before, after), "\n"))
			}
		}
		if made < 8 {
			t.Errorf("link %t: the unfinished folder was there at %d calls only", link, made)
		}
	}
}

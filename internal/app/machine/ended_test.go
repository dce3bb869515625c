package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/gate"
	"gpuard/internal/host/proc"
)

// lines is a machine in a folder, with files of leases that have ended.
type lines struct {
	t    *testing.T
	root string
	host *Host
}

func newLines(t *testing.T) *lines {
	t.Helper()
	root := t.TempDir()
	return &lines{t, root, &Host{Root: root, Run: root, Tmp: root, Proc: proc.New("/proc"), Env: []string{"HOME=" + root}}}
}

// history is where the lines of the caller lie.
func (l *lines) history() string {
	l.t.Helper()
	path, err := l.host.DurablePath(historyFolder)
	if err != nil {
		l.t.Fatal(err)
	}
	return strings.TrimPrefix(path, l.root)
}

// write makes a user's file in a folder of that user.
func (l *lines) write(folder string, uid int, text string) {
	l.t.Helper()
	path := filepath.Join(l.root, folder)
	file := filepath.Join(path, "leases-ended")
	err := os.MkdirAll(path, 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err == nil && os.Geteuid() == 0 {
		err = errors.Join(os.Chown(path, uid, uid), os.Chown(file, uid, uid))
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// want compares the leases that are there, and whose they are.
func (l *lines) want(want ...string) {
	l.t.Helper()
	list, err := l.host.EndedLeases(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	got := []string{}
	for _, e := range list {
		got = append(got, fmt.Sprintf("%s of %d", e.Lease, *e.UID))
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		l.t.Errorf("%v, want %v", got, want)
	}
}

// TestEndedLeases: a user has the own lines; what is no line is left out.
func TestEndedLeases(t *testing.T) {
	l := newLines(t)
	l.want()
	l.write(l.history(), os.Geteuid(), "{\"lease\":\"home\"}\n\nnoise\n{\"lease\":\"cu")
	l.want(fmt.Sprintf("home of %d", os.Geteuid()))
}

// TestEndedLeasesOfAll: root has those of all users, where the owner of a file says whose they are. No link of another
// user is followed.
func TestEndedLeasesOfAll(t *testing.T) {
	gate.Need(t, "root")
	l := newLines(t)
	l.write(l.history(), 0, "{\"lease\":\"home\"}\n")
	l.write("var/lib/gpuard/users/0", 0, "{\"lease\":\"root\",\"uid\":0}\n{\"lease\":\"swept\",\"uid\":4321}\n")
	l.write("var/lib/gpuard/users/1234", 1234, "{\"lease\":\"ann\",\"uid\":0,\"user\":\"root\"}\n")
	l.write("var/lib/gpuard/users/1236", 1234, "{\"lease\":\"taken\"}\n")
	users := filepath.Join(l.root, UsersFolder)
	behind := filepath.Join(users, "1238")
	err := errors.Join(os.Symlink(filepath.Join(users, "0"), filepath.Join(users, "1235")), os.Symlink("1234", filepath.Join(users, "1237")),
		os.Mkdir(behind, 0o755), os.Chown(behind, 1238, 1238), os.Symlink(filepath.Join(users, "0", "leases-ended"), filepath.Join(behind, "leases-ended")))
	if err != nil {
		t.Fatal(err)
	}
	l.want("ann of 1234", "home of 0", "root of 0", "swept of 4321")
	if err := os.Chown(users, 1234, 1234); err != nil { // not root's: nothing in it counts
		t.Fatal(err)
	}
	l.want("home of 0")
}

// TestContainersLeaveNothing: a container that is run with a home leaves no folder there for its ended leases, unless it
// keeps something else. The machine itself does.
func TestContainersLeaveNothing(t *testing.T) {
	for space, kept := range map[string]bool{"pid:[4026531836]": true, "pid:[4026532441]": false} {
		l := newLines(t)
		self := filepath.Join(l.root, "proc/self/ns")
		if err := errors.Join(os.MkdirAll(self, 0o755), os.Symlink(space, filepath.Join(self, "pid"))); err != nil {
			t.Fatal(err)
		}
		l.host.Proc = proc.New(filepath.Join(l.root, "proc"))
		l.host.Env = []string{"HOME=" + l.root}
		if path := l.host.endedFolder(); (path != "") != kept {
			t.Errorf("%s: lines in %q", space, path)
		}
		if note := l.host.EndedNote(); (note == "") != kept {
			t.Errorf("%s: %q", space, note)
		}
		if _, err := l.host.MakeDurable("queue"); err != nil {
			t.Fatal(err)
		}
		if path := l.host.endedFolder(); path == "" {
			t.Errorf("%s: none beside a queue", space)
		}
	}
}

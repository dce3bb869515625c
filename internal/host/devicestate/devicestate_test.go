package devicestate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/host/sys"
	"gpuard/test/apart"
)

func TestMain(m *testing.M) {
	apart.UseMemoryFolder()
	os.Exit(m.Run())
}

const boot = "11111111-2222-3333-4444-555555555555"

func booted() string { return boot }

func self() uint32 { return uint32(os.Geteuid()) }

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestMarks(t *testing.T) {
	dir := t.TempDir()
	defer unix.Umask(unix.Umask(0o077)) // a narrow umask: other users must be able to read the marks all the same
	if found, seen, err := ReadState(dir, self(), booted); len(found) != 0 || len(seen) != 0 || err != nil {
		t.Fatalf("nothing was written: %v, %v, %v", found, seen, err)
	}
	a := DrainMark{Device: "GPU-a", Drained: true, Reason: "fan", By: "alice", Since: noon, Boot: boot}
	b := DrainMark{Device: "GPU-b", Cleared: noon, Boot: boot}
	for _, m := range []DrainMark{{Device: "GPU-a", Reason: "before"}, a, b} {
		if err := WriteMark(dir, self(), m); err != nil {
			t.Fatal(err)
		}
	}
	found, _, err := ReadState(dir, self(), booted)
	if want := map[gpu.UUID]DrainMark{"GPU-a": a, "GPU-b": b}; err != nil || !reflect.DeepEqual(found, want) {
		t.Errorf("%+v, %v, want %+v", found, err, want)
	}
	for name, want := range map[string]os.FileMode{"": 0o755, markFileOf("GPU-a"): 0o644} {
		info, err := os.Stat(filepath.Join(dir, markFolder, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s/%s is %v, %v", markFolder, name, info.Mode(), err)
		}
	}
	if err := WriteMark(dir, self(), DrainMark{Device: "GPU-b", Reason: strings.Repeat("x", maxFileSize)}); err == nil {
		t.Error("a mark that nobody would read was written")
	}
	if err := os.WriteFile(filepath.Join(dir, markFolder, ".new-123"), nil, 0o600); err != nil { // of a writer that was killed
		t.Fatal(err)
	}
	if found, _, err := ReadState(dir, self(), booted); err != nil || len(found) != 2 {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestRecord(t *testing.T) {
	dir := t.TempDir()
	event := func(code int) gpu.Event {
		return gpu.Event{Device: "GPU-a", XID: gpu.XID{Code: code, At: noon, PID: 7, Source: "nvml"}}
	}
	var all sync.WaitGroup
	for range 20 { // of which one makes the file
		all.Go(func() {
			if err := RecordErrors(dir, boot, event(79), event(31)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := RecordErrors(dir, "another boot", event(48)); err != nil {
		t.Fatal(err)
	}
	_, seen, err := ReadState(dir, 0, booted)
	if err != nil || len(seen) != 40 || slices.ContainsFunc(seen, func(e gpu.Event) bool { return e.XID.Code == 48 }) {
		t.Errorf("%d events, %v", len(seen), err)
	}
	for range 600 { // it does not grow without limit, the newest stay, and repeated errors displace no others
		if err := RecordErrors(dir, boot, event(94)); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, errorFileOf(self())))
	_, seen, _ = ReadState(dir, 0, booted)
	if err != nil || len(data) > 2*shortenAbove || seen[len(seen)-1].XID.Code != 94 || !slices.Contains(seen, event(79)) {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	for code := range 600 { // not even when they are all different
		if err := RecordErrors(dir, boot, event(1000+code)); err != nil {
			t.Fatal(err)
		}
	}
	data, err = os.ReadFile(filepath.Join(dir, errorFileOf(self())))
	if _, seen, _ = ReadState(dir, 0, booted); err != nil || len(data) > 2*shortenAbove || seen[len(seen)-1] != event(1599) {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

// TestFirstRecords: several processes make the file at the same time, and no record is lost.
func TestFirstRecords(t *testing.T) {
	const writers = 8
	for range 100 {
		dir, begin := t.TempDir(), make(chan struct{})
		var all sync.WaitGroup
		for code := range writers {
			all.Go(func() {
				<-begin
				if err := RecordErrors(dir, boot, gpu.Event{Device: "GPU-a", XID: gpu.XID{Code: 1 + code, At: noon}}); err != nil {
					t.Error(err)
				}
			})
		}
		close(begin)
		all.Wait()
		if _, seen, err := ReadState(dir, self(), booted); err != nil || len(seen) != writers {
			t.Fatalf("%d of %d, %v", len(seen), writers, err)
		}
	}
}

// TestStrangers: files of other users are reported and ignored, and never opened.
func TestStrangers(t *testing.T) {
	mark := `{"device":"GPU-a","drained":true}`
	for name, put := range map[string]func(dir string) error{
		"a folder that others can write": func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, markFolder), 0o700), os.Chmod(filepath.Join(dir, markFolder), 0o777),
				os.WriteFile(filepath.Join(dir, markFolder, markFileOf("GPU-a")), []byte(mark), 0o644))
		},
		"a link": func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, markFolder), 0o755), os.WriteFile(filepath.Join(dir, "x"), []byte(mark), 0o644),
				os.Symlink("../x", filepath.Join(dir, markFolder, markFileOf("GPU-a"))))
		},
		"a link to a folder": func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "x"), 0o755), os.WriteFile(filepath.Join(dir, "x", markFileOf("GPU-a")), []byte(mark), 0o644),
				os.Symlink("x", filepath.Join(dir, markFolder)))
		},
		"a second name": func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, markFolder), 0o755), os.WriteFile(filepath.Join(dir, "x"), []byte(mark), 0o644),
				os.Link(filepath.Join(dir, "x"), filepath.Join(dir, markFolder, markFileOf("GPU-a"))))
		},
		"a pipe": func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, markFolder), 0o755), unix.Mkfifo(filepath.Join(dir, markFolder, markFileOf("GPU-a")), 0o644))
		},
		"the wrong name": func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, markFolder), 0o755), os.WriteFile(filepath.Join(dir, markFolder, markFileOf("GPU-b")), []byte(mark), 0o644))
		},
		"rubbish": func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, markFolder), 0o755), os.WriteFile(filepath.Join(dir, markFolder, markFileOf("GPU-a")), []byte("{"), 0o644))
		},
		"too much": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, errorFileOf(self())), []byte(strings.Repeat("x", maxFileSize+1)), 0o644)
		},
		"a pipe of errors": func(dir string) error { return unix.Mkfifo(filepath.Join(dir, errorFileOf(self())), 0o644) },
	} {
		dir := t.TempDir()
		if err := put(dir); err != nil {
			t.Fatal(err)
		}
		found, seen, err := ReadState(dir, self(), booted)
		if len(found) != 0 || len(seen) != 0 || err == nil || !strings.Contains(err.Error(), "cannot use") {
			t.Errorf("%s: %v, %v, %v", name, found, seen, err)
		}
	}
}

// TestStrangeLines: lines that are not an error of a device are skipped, and the other lines count.
func TestStrangeLines(t *testing.T) {
	dir := t.TempDir()
	var text string
	for _, l := range []string{`"code":0`, `"code":-7`, `"code":79,"pid":-1`, `"code":"79"`, `"code":79,"source":"\u001b[31mnvml"`} {
		text += `{"boot":"` + boot + `","device":"GPU-a",` + l + "}\n"
	}
	if err := os.WriteFile(filepath.Join(dir, errorFileOf(self())), []byte(text+"{\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, seen, err := ReadState(dir, self(), booted)
	if want := []gpu.Event{{Device: "GPU-a", XID: gpu.XID{Code: 79, Source: "[31mnvml"}}}; err != nil || !reflect.DeepEqual(seen, want) {
		t.Errorf("%+v, %v, want %+v", seen, err, want)
	}
}

func TestWhoMay(t *testing.T) {
	dir := t.TempDir()
	if self() == 0 {
		if err := os.Chown(dir, 4242, -1); err != nil {
			t.Fatal(err)
		}
		if err := WriteMark(dir, 4242, DrainMark{Device: "GPU-a"}); err != nil {
			t.Errorf("root may: %v", err)
		}
		if err := os.Chown(filepath.Join(dir, markFolder), 777, -1); err != nil {
			t.Fatal(err)
		}
		if err := WriteMark(dir, 4242, DrainMark{Device: "GPU-a"}); err == nil || !strings.Contains(err.Error(), "uid 777") {
			t.Errorf("in a folder of somebody: %v", err)
		}
		strangers := t.TempDir()
		if err := RecordErrors(strangers, boot, gpu.Event{Device: "GPU-a", XID: gpu.XID{Code: 79}}); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(strangers, errorFileOf(0)), 4242, -1); err != nil {
			t.Fatal(err)
		}
		if _, seen, err := ReadState(strangers, 0, booted); len(seen) != 0 || err == nil {
			t.Errorf("errors that another user put in root's place: %v, %v", seen, err)
		}
		if err := os.Rename(filepath.Join(strangers, errorFileOf(0)), filepath.Join(strangers, errorFileOf(4242))); err != nil {
			t.Fatal(err)
		}
		if _, seen, err := ReadState(strangers, 0, booted); len(seen) != 0 || err != nil {
			t.Errorf("errors that another user saw: %v, %v", seen, err)
		}
		if _, seen, err := ReadState(strangers, 4242, booted); len(seen) != 1 || err != nil {
			t.Errorf("errors that the folder's owner saw: %v, %v", seen, err)
		}
	} else if err := WriteMark(dir, self()+1, DrainMark{Device: "GPU-a"}); !errors.Is(err, os.ErrPermission) {
		t.Errorf("another user may: %v", err)
	}
}

// TestNotLedAway: if the owner of the state folder replaced it by a link, nothing is made or changed in the link's
// target.
func TestNotLedAway(t *testing.T) {
	top := t.TempDir()
	home, state := filepath.Join(top, "home"), filepath.Join(top, "state")
	mine := filepath.Join(home, errorFileOf(self()))
	if err := errors.Join(os.Mkdir(home, 0o700), os.WriteFile(mine, []byte("mine"), 0o600), os.Symlink(home, state)); err != nil {
		t.Fatal(err)
	}
	write := func() error { return WriteMark(state, self(), DrainMark{Device: "GPU-a"}) }
	record := func() error { return RecordErrors(state, boot, gpu.Event{Device: "GPU-a", XID: gpu.XID{Code: 79}}) }
	for name, act := range map[string]func() error{"a mark": write, "an error": record} {
		if err := act(); err == nil {
			t.Errorf("%s was written through a link", name)
		}
	}
	names, err := os.ReadDir(home)
	text, rerr := os.ReadFile(mine)
	if info, serr := os.Stat(mine); errors.Join(err, rerr, serr) != nil || len(names) != 1 || string(text) != "mine" || info.Mode().Perm() != 0o600 {
		t.Errorf("there is %v now, with %q", names, text)
	}
	if err := errors.Join(os.Remove(state), os.Mkdir(state, 0o755), os.Link(mine, filepath.Join(state, errorFileOf(self())))); err != nil {
		t.Fatal(err)
	}
	if err := record(); err == nil || !strings.Contains(err.Error(), "not a file of its own") {
		t.Errorf("a second name of another file: %v", err)
	}
	if text, _ := os.ReadFile(mine); string(text) != "mine" {
		t.Errorf("it was added to: %q", text)
	}
}

// TestExchangedMeanwhile: the owner of the state folder replaces it, and the folder of the marks, by links to other
// folders of the caller in a tight loop, while the caller writes marks and errors.
func TestExchangedMeanwhile(t *testing.T) {
	top := t.TempDir()
	home, state := filepath.Join(top, "home"), filepath.Join(top, "state")
	private := filepath.Join(home, "private")
	err := errors.Join(os.MkdirAll(private, 0o700), os.MkdirAll(filepath.Join(state, markFolder), 0o755), os.WriteFile(filepath.Join(private, markFileOf("GPU-a")), []byte("mine"), 0o600),
		os.WriteFile(filepath.Join(home, errorFileOf(self())), []byte("mine"), 0o600), os.Symlink(home, state+"2"), os.Symlink(private, filepath.Join(state, "link")))
	if err != nil {
		t.Fatal(err)
	}
	before := listing(t, home)
	ended := make(chan struct{})
	var attack sync.WaitGroup
	attack.Go(func() {
		for marks := filepath.Join(state, markFolder); ; {
			select {
			case <-ended:
				return
			default:
			}
			for range 2 { // there and back
				_ = unix.Renameat2(unix.AT_FDCWD, state, unix.AT_FDCWD, state+"2", unix.RENAME_EXCHANGE)
			}
			for range 2 {
				_ = unix.Renameat2(unix.AT_FDCWD, marks, unix.AT_FDCWD, filepath.Join(state, "link"), unix.RENAME_EXCHANGE)
			}
		}
	})
	written := 0
	for range 3000 {
		if WriteMark(state, self(), DrainMark{Device: "GPU-a", Drained: true}) == nil {
			written++
		}
		_ = RecordErrors(state, boot, gpu.Event{Device: "GPU-a", XID: gpu.XID{Code: 79}})
	}
	close(ended)
	attack.Wait()
	if after := listing(t, home); after != before || written == 0 {
		t.Errorf("%d times a mark was written, and beside it\n%swas\n%s", written, after, before)
	}
}

// listing lists everything below a folder.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		text := []byte(nil)
		if err == nil && info.Mode().IsRegular() {
			text, err = os.ReadFile(path)
		}
		fmt.Fprintf(&all, "%s %v %.40q\n", path, info.Mode(), text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// TestFolderOfMarks: the mode of a folder that a narrow umask hid is widened, and that of any other folder is not.
func TestFolderOfMarks(t *testing.T) {
	for name, want := range map[string]os.FileMode{markFileOf("GPU-b"): 0o755, sys.NewPrefix + "x": 0o755, "thesis": 0o700} {
		dir := t.TempDir()
		if err := errors.Join(os.Mkdir(filepath.Join(dir, markFolder), 0o700), os.WriteFile(filepath.Join(dir, markFolder, name), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := WriteMark(dir, self(), DrainMark{Device: "GPU-a"}); err != nil {
			t.Error(err)
		}
		if info, err := os.Stat(filepath.Join(dir, markFolder)); err != nil || info.Mode().Perm() != want {
			t.Errorf("beside %s: %v, %v", name, info.Mode(), err)
		}
	}
}

// BenchmarkReadNothing is the cost for every claim on a machine without any note.
func BenchmarkReadNothing(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		_, _, _ = ReadState(dir, self(), booted)
	}
}

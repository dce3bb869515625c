package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/status"
	"gpuard/internal/core/trend"
	"gpuard/internal/host/proc"
	"gpuard/test/apart"
)

// TestMain lets this program be started as a reader, which prints nothing and ends, or prints its only reading late.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Flag {
		if len(os.Args) > 2 && os.Args[2] == slowMachine {
			time.Sleep(300 * time.Millisecond)
			fmt.Println("{}")
			time.Sleep(time.Minute)
		}
		return
	}
	apart.SetParallelTests(8)
	os.Exit(m.Run())
}

// slowMachine is the name of a machine that is read slowly.
const slowMachine = "demo:1xSLOW"

// watching is an observer without files.
func watching(t *testing.T) *Observer {
	t.Helper()
	o, err := New(&machine.Host{Machine: "demo", Messages: machine.Messages{Say: func(string) {}}}, "")
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// soon fails unless f returns.
func soon(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%s hangs", what)
	}
}

// TestHangingFiles: a file system that does not answer keeps neither readings nor those who look waiting, nor the end.
func TestHangingFiles(t *testing.T) {
	t.Parallel()
	o := watching(t)
	full, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if _, err := unix.FcntlInt(out.Fd(), unix.F_SETFL, 0); err != nil { // Write blocks now, in the kernel
		t.Fatal(err)
	}
	size, err := unix.FcntlInt(out.Fd(), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Write(int(out.Fd()), make([]byte, size)); n != size || err != nil {
		t.Fatal(n, err)
	}
	o.file = &dayFile{path: "day", file: out}
	end := o.startWriter()
	began := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	var said []string
	soon(t, "a report", func() {
		for i := range 2 * mostWrites {
			say, _ := o.showReport(&status.Report{Taken: began.Add(time.Duration(i) * time.Minute)}, policy.Watch{})
			said = append(said, say...)
		}
	})
	if got := o.Now(); len(got.Minutes) != 2*mostWrites-1 {
		t.Errorf("%d minutes", len(got.Minutes))
	}
	if len(said) != 1 || !strings.Contains(said[0], "does not answer") {
		t.Errorf("said %q", said)
	}
	soon(t, "the end", end)
}

// TestStuckReaders: no more readers are started than may be stuck, until one of them has ended.
func TestStuckReaders(t *testing.T) {
	o := watching(t)
	for range mostStuck {
		o.readers <- struct{}{}
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	over := make(chan struct{})
	go func() { defer close(over); o.Run(ctx) }()
	wait := func(what string, is func(Snapshot) bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !is(o.Now()); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("not %s: %+v", what, o.Now())
			}
		}
	}
	wait("told", func(s Snapshot) bool { return strings.Contains(s.Trouble, "hold 3 killed processes") })
	time.Sleep(50 * time.Millisecond)
	if n := o.Now().Children; n != 0 {
		t.Errorf("%d readers were started", n)
	}
	<-o.readers
	wait("started", func(s Snapshot) bool { return s.Children > 0 })
	end()
	soon(t, "the end", func() { <-over })
}

// TestSlowReader: a reader that needs longer for its first reading than one may be silent later comes to it in the end.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	o := watching(t)
	o.Host.Machine, o.Host.Times.Late = slowMachine, 100*time.Millisecond
	ctx, end := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); o.Run(ctx) }()
	soon(t, "the first reading", func() {
		for came := false; !came; time.Sleep(5 * time.Millisecond) {
			o.mu.Lock()
			came = !o.came.IsZero()
			o.mu.Unlock()
		}
	})
	if n := o.Now().Children; n < 2 {
		t.Errorf("%d readers, want some that were replaced", n)
	}
	end()
	soon(t, "the end", func() { <-over })
}

// TestPaced: power, processes and health are read now and then, and keep their values meanwhile.
func TestPaced(t *testing.T) {
	invented, err := gpu.InventMachine("demo:1xL4")
	if err != nil {
		t.Fatal(err)
	}
	var asked []gpu.What
	read := paceReader(func(_ context.Context, query gpu.Query) (gpu.Machine, error) {
		asked = append(asked, query.What)
		m := invented
		m.Source, m.Devices = "nvml", slices.Clone(m.Devices)
		m.Devices[0].Power, m.Devices[0].PowerLimit = nil, nil
		if query.What&gpu.Power != 0 {
			m.Devices[0].Power = new(float64(len(asked)))
		}
		return m, nil
	}, proc.New(t.TempDir()), 200*time.Millisecond, time.Minute)
	for range 3 {
		if m, err := read(t.Context(), gpu.Query{What: gpu.Shown}); err != nil || *m.Devices[0].Power != 1 {
			t.Errorf("%v, %v", m.Devices[0].Power, err)
		}
	}
	time.Sleep(250 * time.Millisecond)
	if m, _ := read(t.Context(), gpu.Query{What: gpu.Shown}); *m.Devices[0].Power != 4 {
		t.Errorf("later %v", *m.Devices[0].Power)
	}
	quick := gpu.Identity | gpu.Quick | gpu.Clocks
	if want := []gpu.What{gpu.Shown, quick, quick, gpu.Shown}; !reflect.DeepEqual(asked, want) {
		t.Errorf("asked for %b, want %b", asked, want)
	}
}

// TestLongLine: a line that is too long is left out, and not what follows.
func TestLongLine(t *testing.T) {
	long := strings.Repeat("x", 3*maxLineLength)
	for _, test := range []struct{ text, want string }{
		{"a\n" + long + "\nb\n", "a\n|b\n|"}, {long + "\nb", "b|"}, {"a\n" + long, "a\n|"}, {"", ""}, {"\n", "\n|"},
	} {
		got := ""
		if err := eachLine(strings.NewReader(test.text), func(line []byte) { got += string(line) + "|" }); err != nil || got != test.want {
			t.Errorf("%.20q: %.50q, %v", test.text, got, err)
		}
	}
	folder := t.TempDir()
	line := `{"lease": "k3f9", "since": "2026-03-01T00:00:00Z"}` + "\n"
	if err := os.WriteFile(filepath.Join(folder, endedFile), []byte(line+long+"\n"+strings.Replace(line, "k3f9", "k3fa", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if list, err := readEnded(folder); err != nil || len(list) != 2 {
		t.Errorf("%d leases, %v", len(list), err)
	}
	minute := `{"at": "2026-03-01T00:0%d:00Z"}` + "\n"
	if err := os.WriteFile(filepath.Join(folder, "day"), []byte(fmt.Sprintf(minute, 1)+long+"\n"+fmt.Sprintf(minute, 2)), 0o600); err != nil {
		t.Fatal(err)
	}
	d, minutes, err := openDay(folder)
	if err != nil || len(minutes) != 2 {
		t.Fatalf("%d minutes, %v", len(minutes), err)
	}
	d.close()
}

// TestLeasesOfBoth: what root's gpuard serve saw long ago hides nothing that the user's own has seen; of a lease that both
// saw there is one line.
func TestLeasesOfBoth(t *testing.T) {
	root, home := t.TempDir(), t.TempDir()
	host := &machine.Host{Root: root, Env: []string{"XDG_STATE_HOME=" + home}}
	at := func(hour int) time.Time { return time.Date(2026, 3, 1, hour, 0, 0, 0, time.UTC) }
	write := func(folder string, list ...trend.EndedLease) {
		var text []byte
		for _, e := range list {
			line, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			text = append(append(text, line...), '\n')
		}
		if err := errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, endedFile), text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(root, "var/lib/gpuard/serve"), trend.EndedLease{Lease: "old", Since: at(1), Until: at(2)}, trend.EndedLease{Lease: "both", Since: at(3), Until: at(4)})
	write(ServeFolder(host), trend.EndedLease{Lease: "both", Since: at(3), Until: at(5)}, trend.EndedLease{Lease: "new", Since: at(6), Until: at(7)})
	list, err := readServeLeases(host)
	var got []string
	for _, e := range list {
		got = append(got, fmt.Sprint(e.Lease, e.Until.Hour()))
	}
	if err != nil || strings.Join(got, " ") != "old2 both5 new7" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestJobs: files for dcgm-exporter are made without following links, in a folder that nobody else can change; those of a
// killed process are removed, and no others.
func TestJobs(t *testing.T) {
	folder := t.TempDir()
	victim := filepath.Join(t.TempDir(), "victim")
	files := map[string]string{"1": "train k3f9 (ann)\nother k3fa (bob)\n", "2.0": "4711\n", "3": "", "readme": "train k3f9 (ann)\n", ".new-X": "half"}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(victim, []byte("train k3f9 (ann)\n"), 0o600), os.Symlink(victim, filepath.Join(folder, "4")), os.Symlink(victim, filepath.Join(folder, "0.new")), os.Symlink(victim, filepath.Join(folder, "0"))); err != nil {
		t.Fatal(err)
	}
	j, err := openJobs(folder)
	if err != nil {
		t.Fatal(err)
	}
	names := func() string {
		entries, _ := os.ReadDir(folder)
		var all []string
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return strings.Join(all, " ")
	}
	if got := names(); got != "0 0.new 2.0 3 4 readme" {
		t.Errorf("after the start: %s", got)
	}
	s := status.Report{Devices: []status.Device{{Vendor: gpu.NVIDIA, Leases: []status.Lease{{ID: "k3fb", User: "zoe", Command: "eval.py"}}}}}
	if err := j.writeFiles(&s); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(filepath.Join(folder, "0")); string(text) != "eval.py k3fb (zoe)\n" {
		t.Errorf("%q", text)
	}
	if text, _ := os.ReadFile(victim); string(text) != "train k3f9 (ann)\n" {
		t.Errorf("a link was followed: %q", text)
	}
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	modes := []os.FileMode{0o777, 0o777 | os.ModeSticky}
	if err := os.Chmod(filepath.Dir(folder), 0o755); err != nil { // others can come to it
		t.Fatal(err)
	}
	if err := os.Chown(folder, -1, 4077); err == nil { // the group that it had may be the caller's own
		modes = append(modes, 0o775)
	}
	for _, mode := range modes {
		if err := os.Chmod(folder, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := openJobs(folder); err == nil {
			t.Errorf("a folder with mode %v is taken", mode)
		}
	}
}

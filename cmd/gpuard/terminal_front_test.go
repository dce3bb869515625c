package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/store"
)

// front is the prefix of a command: nothing, or gpuard.
type front struct {
	testing.TB
	words []string
	state string
	dir   string // working folder of everything that is started, empty at first
}

// bothWays makes the same observations without and with gpuard in front of the command; they must be equal.
func bothWays(t *testing.T, observe func(f *front) []string) {
	t.Helper()
	bothWaysAs(t, strings.Fields("gpuard run -q --machine demo --"), observe)
}

// bothWaysAs is bothWays with these words in front of the command.
func bothWaysAs(t *testing.T, words []string, observe func(f *front) []string) {
	t.Helper()
	plain := observe(&front{TB: t, state: stateFolder(t), dir: quietDir(t)})
	f := &front{TB: t, words: words, state: stateFolder(t), dir: quietDir(t)}
	leased := observe(f)
	for i := range max(len(plain), len(leased)) {
		without, with := "nothing", "nothing"
		if i < len(plain) {
			without = plain[i]
		}
		if i < len(leased) {
			with = leased[i]
		}
		if with != without {
			t.Errorf("observation %d: without gpuard\n  %s\nwith gpuard\n  %s", i, without, with)
		}
	}
	if len(plain) == 0 {
		t.Error("nothing was observed")
	}
	f.over()
}

// leasing reports whether gpuard is in front.
func (f *front) leasing() bool { return len(f.words) > 0 }

// with puts the front before a command.
func (f *front) with(command ...string) []string { return slices.Concat(f.words, command) }

// cmd prepares exactly these words; in shell scripts $FRONT means the front.
func (f *front) cmd(args ...string) *exec.Cmd {
	f.Helper()
	path, err := exec.LookPath(args[0])
	if err != nil {
		f.Fatal(err)
	}
	cmd := program(f, f.state, []string{
		"FRONT=" + strings.Join(f.words, " "), "PS1=" + prompt, "TERM=xterm", "LC_ALL=C",
		"HOME=" + f.dir, "XDG_STATE_HOME=", "HISTFILE=" + f.dir + "/history", "LESS=",
	}, args[1:]...)
	cmd.Path, cmd.Args[0], cmd.Dir = path, args[0], f.dir
	return cmd
}

// run runs exactly these words to their end.
func (f *front) run(args ...string) result {
	f.Helper()
	return run(f, f.cmd(args...))
}

// folder is where the leases are; none were made while it is missing.
func (f *front) folder() string {
	found, _ := filepath.Glob(filepath.Join(f.state, "machines", "[^.]*")) // .* is still being built
	if len(found) == 0 {
		return ""
	}
	return found[0]
}

// leases counts live leases.
func (f *front) leases() int {
	f.Helper()
	if f.folder() == "" {
		return 0
	}
	folder, err := store.Open(f.folder(), nil, 10*time.Second)
	if err != nil {
		f.Fatal(err)
	}
	defer folder.Close() //nolint:errcheck // only read
	held, _ := folder.Leases()
	return len(held)
}

// over waits until nothing lives on: no lease and no holder.
func (f *front) over() {
	f.Helper()
	if f.folder() == "" {
		return
	}
	eventually(f, "leases and holders are gone", func() bool { return f.leases() == 0 && len(holdersOf(f.folder())) == 0 })
}

// shown makes what a shell says comparable: numbers of processes vanish, and lines are sorted, since their order is the
// shell's own business (a notice before or after an answer).
func (f *front) shown(text string) string {
	text = strings.ReplaceAll(text, prompt, "\n")
	text = regexp.MustCompile(`(on |\[[0-9]\] )[0-9]+`).ReplaceAllString(text, "${1}PID")
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

// listen is a job that says which of the signals in its arguments it gets, and at SIGUSR2 how often it got each.
func listen() {
	time.AfterFunc(90*time.Second, func() { os.Exit(97) }) // its parent is gone
	names := make(map[os.Signal]string)
	got := make(map[string]int)
	heard := make(chan os.Signal, 64)
	for _, name := range append(os.Args[1:], "USR2") {
		sig := unix.SignalNum("SIG" + name)
		names[sig] = name
		signal.Notify(heard, sig)
	}
	fmt.Println("on", os.Getpid())
	for sig := range heard {
		name := names[sig]
		got[name]++
		if name == "USR2" {
			break
		}
		fmt.Println("got", name)
	}
	fmt.Println("totals", got) // maps print in the order of their keys
	os.Exit(7)
}

// reap starts its arguments, or a shell that leaves an orphan, and waits for every child there is, as an init does.
func reap() {
	args := os.Args[1:]
	if len(args) == 0 {
		args = []string{"sh", "-c", "sleep 0.1 & exit 3"}
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	var waited []string
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if err == unix.EINTR { //nolint:errorlint // a plain errno from the call itself
			continue
		}
		if err != nil {
			break
		}
		waited = append(waited, fmt.Sprintf("%t %d", pid == cmd.Process.Pid, status.ExitStatus()))
	}
	fmt.Printf("init %t, reaped %q\n", os.Getpid() == 1, waited)
	os.Exit(len(waited))
}

// adopter becomes its arguments, as a subreaper of orphans below it (prctl(2), PR_SET_CHILD_SUBREAPER).
func adopter() {
	err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	if err == nil {
		var path string
		if path, err = exec.LookPath(os.Args[1]); err == nil {
			err = unix.Exec(path, os.Args[1:], os.Environ())
		}
	}
	fmt.Println(err)
	os.Exit(1)
}

// thread prints what the kernel keeps for this one thread and an exec from another thread would lose.
func thread() {
	var sig int32
	err := unix.Prctl(unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&sig)), 0, 0, 0)
	fmt.Println("main thread", unix.Gettid() == os.Getpid(), "signal at the parent's death", unix.Signal(sig), err)
}

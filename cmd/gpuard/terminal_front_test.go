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

// commandPrefix is the prefix of a command: nothing, or gpuard.
type commandPrefix struct {
	testing.TB
	words []string
	state string
	dir   string // working folder of everything that is started, empty at first
}

// compareBothWays makes the same observations without and with gpuard in front of the command; they must be equal.
func compareBothWays(t *testing.T, observe func(f *commandPrefix) []string) {
	t.Helper()
	compareWithPrefix(t, strings.Fields("gpuard run -q --machine demo --"), observe)
}

// compareWithPrefix is compareBothWays with these words in front of the command.
func compareWithPrefix(t *testing.T, words []string, observe func(f *commandPrefix) []string) {
	t.Helper()
	plain := observe(&commandPrefix{TB: t, state: stateFolder(t), dir: quietDir(t)})
	f := &commandPrefix{TB: t, words: words, state: stateFolder(t), dir: quietDir(t)}
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
	f.waitUntilFreed()
}

// isLeasing reports whether gpuard is in front.
func (f *commandPrefix) isLeasing() bool { return len(f.words) > 0 }

// prefixCommand puts the front before a command.
func (f *commandPrefix) prefixCommand(command ...string) []string {
	return slices.Concat(f.words, command)
}

// cmd prepares exactly these words; in shell scripts $FRONT means the front.
func (f *commandPrefix) cmd(args ...string) *exec.Cmd {
	f.Helper()
	path, err := exec.LookPath(args[0])
	if err != nil {
		f.Fatal(err)
	}
	cmd := gpuardCommand(f, f.state, []string{
		"FRONT=" + strings.Join(f.words, " "), "PS1=" + shellPrompt, "TERM=xterm", "LC_ALL=C",
		"HOME=" + f.dir, "XDG_STATE_HOME=", "HISTFILE=" + f.dir + "/history", "LESS=",
	}, args[1:]...)
	cmd.Path, cmd.Args[0], cmd.Dir = path, args[0], f.dir
	return cmd
}

// run runs exactly these words to their end.
func (f *commandPrefix) run(args ...string) runResult {
	f.Helper()
	return runCommand(f, f.cmd(args...))
}

// leaseFolder is where the leases are; none were made while it is missing.
func (f *commandPrefix) leaseFolder() string {
	found, _ := filepath.Glob(filepath.Join(f.state, "machines", "[^.]*")) // .* is still being built
	if len(found) == 0 {
		return ""
	}
	return found[0]
}

// countLeases counts live leases.
func (f *commandPrefix) countLeases() int {
	f.Helper()
	if f.leaseFolder() == "" {
		return 0
	}
	folder, err := store.Open(f.leaseFolder(), nil, 10*time.Second)
	if err != nil {
		f.Fatal(err)
	}
	defer folder.Close() //nolint:errcheck // only read
	held, _ := folder.Leases()
	return len(held)
}

// waitUntilFreed waits until nothing lives on: no lease and no holder.
func (f *commandPrefix) waitUntilFreed() {
	f.Helper()
	if f.leaseFolder() == "" {
		return
	}
	waitUntil(f, "leases and holders are gone", func() bool { return f.countLeases() == 0 && len(holdersOf(f.leaseFolder())) == 0 })
}

// comparableText makes what a shell says comparable: numbers of processes vanish, and lines are sorted, since their order is the
// shell's own business (a notice before or after an answer).
func (f *commandPrefix) comparableText(text string) string {
	text = strings.ReplaceAll(text, shellPrompt, "\n")
	text = regexp.MustCompile(`(on |\[[0-9]\] )[0-9]+`).ReplaceAllString(text, "${1}PID")
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

// reportSignals is a job that says which of the signals in its arguments it gets, and at SIGUSR2 how often it got each.
func reportSignals() {
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

// reapChildren starts its arguments, or a shell that leaves an orphan, and waits for every child there is, as an init does.
func reapChildren() {
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

// becomeSubreaper becomes its arguments, as a subreaper of orphans below it (prctl(2), PR_SET_CHILD_SUBREAPER).
func becomeSubreaper() {
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

// printThreadState prints what the kernel keeps for this one thread and an exec from another thread would lose.
func printThreadState() {
	var sig int32
	err := unix.Prctl(unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&sig)), 0, 0, 0)
	fmt.Println("main thread", unix.Gettid() == os.Getpid(), "signal at the parent's death", unix.Signal(sig), err)
}

package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
)

// startAndReadOn starts cmd, waits for its first line and returns the rest of what it prints.
func startAndReadOn(t testing.TB, cmd *exec.Cmd) *bufio.Reader {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return lines
}

// TestSignalsOnce: every signal to the PID arrives, and once. (Not SIGURG: the Go runtime of the listener sends it to
// itself.)
func TestSignalsOnce(t *testing.T) {
	t.Parallel()
	compareBothWays(t, func(f *commandPrefix) (seen []string) {
		sent := strings.Fields("TERM HUP USR1 INT QUIT WINCH CONT ALRM PIPE CHLD IO TSTP TTIN TTOU")
		cmd := f.cmd(f.prefixCommand(append([]string{"listen"}, sent...)...)...)
		lines := startAndReadOn(f, cmd)
		for _, name := range append(sent, "USR2") {
			if err := cmd.Process.Signal(unix.SignalNum("SIG" + name)); err != nil {
				f.Fatal(err)
			}
			line, err := lines.ReadString('\n')
			if err != nil {
				f.Fatal(err)
			}
			seen = append(seen, line)
		}
		_ = cmd.Wait()
		for _, name := range sent {
			if !strings.Contains(seen[len(seen)-1], name+":1") {
				f.Errorf("SIG%s did not arrive once", name)
			}
		}
		return append(seen, fmt.Sprint(cmd.ProcessState))
	})
}

// TestDeaths: a death by signal is seen by the parent as that signal, with a core dump where one is made.
func TestDeaths(t *testing.T) {
	t.Parallel()
	compareBothWays(t, func(f *commandPrefix) (seen []string) {
		for _, limit := range []string{"0", "unlimited"} {
			for _, name := range strings.Fields("TERM HUP INT QUIT USR1 USR2 KILL SEGV ABRT PIPE ALRM") {
				cmd := f.cmd("sh", "-c", "ulimit -c "+limit+"; exec $FRONT sh -c 'echo on; exec sleep 60'")
				startAndReadOn(f, cmd)
				if err := cmd.Process.Signal(unix.SignalNum("SIG" + name)); err != nil {
					f.Fatal(err)
				}
				_ = cmd.Wait()
				status := cmd.ProcessState.Sys().(syscall.WaitStatus)
				if !status.Signaled() || "SIG"+name != unix.SignalName(status.Signal()) {
					f.Errorf("SIG%s: the parent sees %v", name, status)
				}
				seen = append(seen, fmt.Sprintf("%s core %t", name, status.CoreDump()))
			}
		}
		return seen
	})
}

// describeEnd runs the words and notes how they ended.
func (f *commandPrefix) describeEnd(args ...string) string {
	f.Helper()
	cmd := f.cmd(args...)
	out, _ := cmd.Output() // how it ended is what is asked
	return fmt.Sprintf("%s: %s%s", args[0], out, cmd.ProcessState)
}

// TestTimeout: timeout(1) ends the command, not something in front of it.
func TestTimeout(t *testing.T) {
	t.Parallel()
	compareBothWays(t, func(f *commandPrefix) []string {
		after := "4" // enough for a busy machine to start the command
		if !f.isLeasing() {
			after = "2" // sh needs less
		}
		fronts := []string{"timeout", "timeout --foreground", "timeout -s KILL", "timeout -s INT -k 20"}
		seen := make([]string, len(fronts))
		var ends sync.WaitGroup
		for i, words := range fronts {
			cmd := f.cmd(append(append(strings.Fields(words), after), f.prefixCommand("sh", "-c", `echo $$; exec sleep 60`)...)...)
			ends.Go(func() {
				out, _ := cmd.Output() // how it ended is what is asked
				if pid := strings.TrimSpace(string(out)); pid == "" || !pollUntil(time.Minute, func() bool { return isProcessGone(pid) }) {
					f.Errorf("%s: process %q lives", words, pid)
				}
				seen[i] = fmt.Sprint(words, ": ", cmd.ProcessState)
			})
		}
		ends.Wait()
		waitUntil(f, "no lease is left", func() bool { return f.countLeases() == 0 })
		return seen
	})
}

// isProcessGone reports whether a process has ended; its new parent may reap it later.
func isProcessGone(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// TestNohup: what nohup protects stays protected.
func TestNohup(t *testing.T) {
	t.Parallel()
	compareBothWays(t, func(f *commandPrefix) (seen []string) {
		cmd := f.cmd(append([]string{"nohup"}, f.prefixCommand("sh", "-c", "trap 'echo got TERM; exit 5' TERM; echo on; while :; do sleep 0.1; done")...)...)
		lines := startAndReadOn(f, cmd)
		for _, sig := range []os.Signal{unix.SIGHUP, unix.SIGTERM} {
			if err := cmd.Process.Signal(sig); err != nil {
				f.Fatal(err)
			}
		}
		line, _ := lines.ReadString('\n')
		_ = cmd.Wait()
		return []string{line, fmt.Sprint(cmd.ProcessState)}
	})
}

// TestIgnored: signals that were ignored or blocked before are so in the command: these, since the Go runtime forgets
// others (docs/explanation/leases.md says which).
func TestIgnored(t *testing.T) {
	t.Parallel()
	compareBothWays(t, func(f *commandPrefix) (seen []string) {
		const sets = "$FRONT grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status"
		for _, script := range []string{
			sets,
			"exec nohup " + sets,
			sets + " & wait",
			"trap '' HUP; " + sets,
			"trap '' INT; " + sets,
			"trap '' INT QUIT; " + sets,
			"trap '' TSTP TTIN TTOU; " + sets,
			"trap 'echo' INT TERM; " + sets,
			"exec timeout 20 " + sets,
			"trap '' PIPE; SYSTEMD_EXEC_PID=$$ exec " + sets, // as systemd starts the main process of a service
			"export SYSTEMD_EXEC_PID=$$; " + sets,
		} {
			seen = append(seen, script+"\n"+f.run("sh", "-c", script).out)
		}
		return seen
	})
}

// TestParentsDeath: a command that is to be told of its parent's death still is (the kernel keeps that per thread).
func TestParentsDeath(t *testing.T) {
	t.Parallel()
	compareBothWays(t, func(f *commandPrefix) (seen []string) {
		for range 5 {
			cmd := f.cmd(f.prefixCommand("thread")...)
			cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGURG} // harmless when our own thread ends
			seen = append(seen, runCommand(f, cmd).out)
		}
		return seen
	})
}

// TestSignalWhileClaiming: a signal at any moment between gpuard and the command leaves nothing behind, and is a death
// by that signal whichever process got it.
func TestSignalWhileClaiming(t *testing.T) {
	t.Parallel()
	f := &commandPrefix{TB: t, words: strings.Fields("gpuard run -q --machine demo:1xL4 --"), state: stateFolder(t), dir: t.TempDir()}
	if got := f.run(f.prefixCommand("true")...); got.code != 0 {
		t.Fatalf("exit %d: %s", got.code, got.err)
	}
	all := []unix.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGKILL, unix.SIGQUIT, unix.SIGUSR1, unix.SIGALRM}
	for i := range 8 * len(all) {
		sig := all[i%len(all)]
		var errs strings.Builder
		cmd := f.cmd(f.prefixCommand("sleep", "60")...)
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if i%len(all) > 3 { // what the Go runtime makes of these before gpuard's own code runs, docs/explanation/leases.md says
			for !isPastRuntimeStart(t, cmd.Process.Pid) { // without a pause, since the claim is short
				time.Sleep(50 * time.Microsecond)
			}
		}
		part := rand.Float64()
		time.Sleep(time.Duration(part * part * float64(20*time.Millisecond))) // most of them while gpuard is on its way
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != sig || errs.Len() > 0 {
			t.Errorf("%v: ended as %v and said %q", sig, cmd.ProcessState, errs.String())
		}
	}
	f.waitUntilFreed()
	if got := f.run(f.prefixCommand("true")...); got.code != 0 {
		t.Errorf("the device cannot be claimed: exit %d: %s", got.code, got.err)
	}
	f.waitUntilFreed()
	left, err := filepath.Glob(filepath.Join(f.leaseFolder(), "leases", "*", "*.*")) // entries, and .new-* that became none
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// isPastRuntimeStart reports that a process is past the Go runtime's start, which catches all signals in their order, and that
// gpuard's own code has begun by giving some their default again, SIGPWR the last; or that it is a command already.
func isPastRuntimeStart(t *testing.T, pid int) bool {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, mask, found := strings.Cut(string(status), "\nSigCgt:\t")
	var caught uint64
	if _, scan := fmt.Sscanf(mask, "%x", &caught); err != nil || !found || scan != nil {
		t.Fatalf("%v, %v: %s", err, scan, status)
	}
	has := func(sig unix.Signal) bool { return caught>>(sig-1)&1 != 0 }
	return has(unix.SIGSYS) && !has(unix.SIGPWR) || strings.HasPrefix(string(status), "Name:\tsleep\n")
}

// TestInit: as the first process of a PID namespace, and where orphans are adopted, the command waits for its own
// children only, and ends.
func TestInit(t *testing.T) {
	t.Parallel()
	t.Run("adopter", func(t *testing.T) {
		compareBothWays(t, func(f *commandPrefix) []string {
			return []string{
				f.describeEnd(append([]string{"adopter"}, f.prefixCommand("reap")...)...),
				f.describeEnd(append([]string{"reap"}, f.prefixCommand("sleep", "0.1")...)...), // as a parent that waits for all children
			}
		})
	})
	t.Run("pidns", func(t *testing.T) {
		gate.Need(t, "pidns")
		compareBothWays(t, func(f *commandPrefix) []string {
			before := strings.Fields("unshare --pid --fork --mount-proc")
			return []string{
				f.describeEnd(append(before, f.prefixCommand("reap")...)...),
				f.describeEnd(append(before, f.prefixCommand("sh", "-c", "echo $$; exit 9")...)...),
				f.describeEnd(append(before, "sh", "-c", "$FRONT sh -c 'exit 8'; echo $?; wait; sleep 0.1 & wait $!; exit 4")...),
			}
		})
	})
}

// TestWaitingShell: gpuard adds no child to the shell that starts it.
func TestWaitingShell(t *testing.T) {
	t.Parallel()
	compareBothWays(t, func(f *commandPrefix) []string {
		// bash forgets a child that has ended before wait -n: it lasts for a moment.
		got := f.run("bash", "-c", `$FRONT sh -c 'sleep 0.5; exit 3' & wait -n; echo first $?; wait -n; echo none left $?
$FRONT sleep 0.1 & $FRONT sh -c 'exit 4' & wait; echo all $?; jobs -rp | wc -l; x=$($FRONT echo substituted); echo "$x $?"`)
		seen := regexp.MustCompile(`[^\n]+`).FindAllString(got.out, -1)
		if !slices.Contains(seen, "none left 127") {
			f.Errorf("the shell has another child: %q", seen)
		}
		return append(seen, got.err)
	})
}

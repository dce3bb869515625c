package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
)

// supervisorWords is gpuard as a supervisor.
func supervisorWords() []string {
	return strings.Fields("gpuard run -q --machine demo --timeout 1h --")
}

// eachSupervisedShell makes the same observations in every shell, on a terminal, without gpuard and with one that stays.
func eachSupervisedShell(t *testing.T, observe func(f *commandPrefix, s *terminal) []string) {
	for name, words := range jobControlShells() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needShell(t, name)
			compareWithPrefix(t, supervisorWords(), func(f *commandPrefix) []string {
				s := startOnTerminal(f, f.cmd(words...))
				s.waitForScreen(shellPrompt + "$")
				s.typeLine("ulimit -c 0; PS1='" + shellPrompt + "'")
				return observe(f, s)
			})
		})
	}
}

// TestBesideKeys: Ctrl-C and Ctrl-\ reach the command once although gpuard is in the same process group and gets them
// too.
func TestBesideKeys(t *testing.T) {
	t.Parallel()
	eachSupervisedShell(t, func(f *commandPrefix, s *terminal) (seen []string) {
		s.typeKeys("$FRONT listen INT QUIT TERM\n")
		pid := s.waitForListener()
		s.waitForForeground(s.cmd.Process.Pid)
		for range 5 {
			s.typeKeys("\x03")
			seen = append(seen, s.waitForScreen("got INT\n"))
			s.typeKeys("\x1c")
			seen = append(seen, s.waitForScreen("got QUIT\n"))
		}
		f.checkOneLease("a job")
		f.sendSignal(pid, unix.SIGUSR2)
		return append(seen, s.waitForScreen(`totals.*\n`), s.waitForScreen(shellPrompt+"$"), s.typeLine("echo code $?"))
	})
}

// TestBesideGroup: what a shell sends to a job goes to gpuard and to the command; the command gets it once.
func TestBesideGroup(t *testing.T) {
	t.Parallel()
	eachSupervisedShell(t, func(f *commandPrefix, s *terminal) (seen []string) {
		s.typeKeys("$FRONT listen INT TERM HUP USR1 &\n")
		var pid int
		text := s.waitForScreen(`on [0-9]+\n`, shellPrompt)
		if _, err := fmt.Sscanf(text[strings.Index(text, "on "):], "on %d", &pid); err != nil {
			f.Fatal(err)
		}
		for _, name := range strings.Fields("TERM HUP USR1 INT TERM USR1") {
			s.typeKeys("kill -s " + name + " %1\n")
			seen = append(seen, f.comparableText(s.waitForScreen("got "+name+"\n", shellPrompt)))
		}
		f.sendSignal(pid, unix.SIGUSR2)
		return append(seen, s.waitForScreen(`totals.*\n`))
	})
}

// TestBesideAlone: what is sent to gpuard alone is passed on, once, in front of the terminal and in the background.
func TestBesideAlone(t *testing.T) {
	t.Parallel()
	eachSupervisedShell(t, func(f *commandPrefix, s *terminal) (seen []string) {
		for _, end := range []string{"\n", " &\n"} {
			s.typeKeys("$FRONT listen INT QUIT TERM HUP USR1" + end)
			pid := s.waitForListener()
			gpuard := pid
			if f.isLeasing() {
				gpuard = parentOf(f, pid)
			}
			for _, name := range strings.Fields("INT QUIT TERM HUP USR1 INT") {
				f.sendSignal(gpuard, unix.SignalNum("SIG"+name))
				s.waitForScreen("got " + name + "\n")
			}
			f.sendSignal(pid, unix.SIGUSR2)
			seen = append(seen, f.comparableText(s.waitForScreen(`totals.*\n`)))
			s.typeLine("wait")
		}
		return seen
	})
}

// TestBesideByName: signals by gpuard's name or command line are meant for gpuard, not for its group: it passes them
// on.
func TestBesideByName(t *testing.T) {
	t.Parallel()
	gate.Need(t, "procps")
	limit := fmt.Sprintf("%d.5s", 10000+os.Getpid()) // on no other command line
	cmd := gpuardCommand(t, stateFolder(t), nil, "run", "-q", "--machine", "demo", "--timeout", limit, "--", "sh", "-c",
		"trap 'exit 5' TERM; echo on; while :; do sleep 0.1; done")
	startToFirstLine(t, cmd)
	if out, err := exec.Command("pkill", "-TERM", "-f", "[-]-timeout "+limit).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_ = cmd.Wait()
	checkEqual(t, "exit", cmd.ProcessState.ExitCode(), 5)
	names := runCommand(t, gpuardCommand(t, stateFolder(t), nil, "run", "-q", "--machine", "demo", "--timeout", "1h", "--", "sh", "-c", "for i in $(seq 1000); do ps -o comm= --ppid $PPID | grep -x gpu-witness && break; sleep 0.01; done")).out // it names itself when it runs
	checkEqual(t, "its name", names, "gpu-witness\n")
}

// TestBesideStop: Ctrl-Z stops gpuard as the command stops, and fg, bg and a kill of the stopped job work as ever.
func TestBesideStop(t *testing.T) { // not parallel: keys are pressed at moments that depend on timing
	eachSupervisedShell(t, func(f *commandPrefix, s *terminal) (seen []string) {
		note := func(text string) { seen = append(seen, f.comparableText(text)) }
		s.typeKeys("$FRONT listen INT TERM USR1\n")
		pid := s.waitForListener()
		s.typeKeys("\x1a")
		note(s.waitForScreen(shellPrompt + "$"))
		note(s.typeLine("echo code $?"))
		note(s.typeLine("jobs"))
		f.checkOneLease("a stopped job")
		s.typeKeys("bg\n")
		note(s.waitForScreen(shellPrompt + "$"))
		f.sendSignal(pid, unix.SIGUSR1)
		note(s.waitForScreen("got USR1\n"))
		s.typeKeys("fg\n")
		s.waitForScreen("listen INT TERM USR1\n") // Ctrl-C throws away what the terminal has not shown yet
		s.waitForForeground(s.cmd.Process.Pid)
		s.typeKeys("\x03")
		note(s.waitForScreen("got INT\n"))
		s.typeKeys("\x1a")
		note(s.waitForScreen(shellPrompt + "$"))
		s.typeKeys("fg\n")
		s.waitForForeground(s.cmd.Process.Pid)
		f.sendSignal(pid, unix.SIGUSR2)
		note(s.waitForScreen(`totals.*\n`, shellPrompt))
		note(s.typeLine("echo code $?"))

		// A command that is stopped by another signal, and again as soon as it is continued, or not at all by Ctrl-Z.
		s.typeKeys("$FRONT sh -c 'kill -STOP $$; kill -STOP $$; echo on again; exit 6'\n")
		note(s.waitForScreen(shellPrompt + "$"))
		note(s.typeLine("echo code $?"))
		s.typeKeys("fg\n")
		note(s.waitForScreen(shellPrompt + "$"))
		note(s.typeLine("echo code $?"))
		s.typeKeys("fg\n")
		note(s.waitForScreen("on again\n", shellPrompt))
		note(s.typeLine("echo code $?"))
		s.typeKeys("$FRONT listen TSTP INT\n")
		pid = s.waitForListener()
		s.waitForForeground(s.cmd.Process.Pid)
		s.typeKeys("\x1a")
		note(s.waitForScreen("got TSTP\n"))
		f.sendSignal(pid, unix.SIGUSR2)
		note(s.waitForScreen(`totals.*\n`, shellPrompt))
		note(s.typeLine("echo code $?"))
		return seen
	})
}

// TestBesideOwnGroup: a command that left the process group stops gpuard too, and is continued with it.
func TestBesideOwnGroup(t *testing.T) {
	t.Parallel()
	gate.Need(t, "python3")
	eachSupervisedShell(t, func(f *commandPrefix, s *terminal) (seen []string) {
		s.typeKeys(`$FRONT python3 -c 'import os, signal; os.setpgid(0, 0); os.kill(os.getpid(), signal.SIGSTOP); os._exit(6)'` + "\n")
		seen = append(seen, f.comparableText(s.waitForScreen(shellPrompt+"$")), s.typeLine("echo code $?"))
		s.typeKeys("fg\n")
		return append(seen, f.comparableText(s.waitForScreen(shellPrompt+"$")), s.typeLine("echo code $?"))
	})
}

// TestBesideTimeout: the end of a command that does not want to end, for which it is stopped, does not stop gpuard.
func TestBesideTimeout(t *testing.T) {
	t.Parallel()
	f := &commandPrefix{TB: t, words: strings.Fields("gpuard run -q --machine demo --timeout 300ms --grace 50ms --"), state: stateFolder(t), dir: t.TempDir()}
	s := startOnTerminal(f, f.cmd("sh"))
	s.waitForScreen(shellPrompt + "$")
	for range 5 {
		s.typeLine(`$FRONT sh -c 'trap "" TERM; sleep 1000 & sleep 1001 & while :; do sleep 0.1; done'`)
		checkContains(t, s.typeLine("echo code $?"), "code 124\n")
	}
	f.waitUntilFreed()
}

// TestBesideStopAlone: without a terminal, stopping and continuing the command alone does not leave a stopped gpuard
// behind.
func TestBesideStopAlone(t *testing.T) {
	t.Parallel()
	cmd := gpuardCommand(t, stateFolder(t), nil, "run", "-q", "--machine", "demo", "--timeout", "1h", "--", "sh", "-c",
		"echo $$; for i in 1 2 3 4 5 6 7 8 9 10; do kill -STOP $$; done; exit 6")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pid, err := strconv.Atoi(startToFirstLine(t, cmd))
	if err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the command has ended", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if strings.Contains(string(stat), ") T ") {
			_ = unix.Kill(pid, unix.SIGCONT)
		}
		return err != nil
	})
	_ = cmd.Wait()
	checkEqual(t, "exit", cmd.ProcessState.ExitCode(), 6)
}

// TestBesideDeaths: the parent sees the command's death by a signal as that signal, and one core file is enough.
func TestBesideDeaths(t *testing.T) {
	t.Parallel()
	compareWithPrefix(t, supervisorWords(), func(f *commandPrefix) (seen []string) {
		for _, name := range strings.Fields("TERM HUP INT QUIT USR1 USR2 KILL SEGV ABRT PIPE ALRM") {
			cmd := f.cmd("sh", "-c", "ulimit -c unlimited; exec $FRONT sh -c 'echo on; kill -s "+name+" $$; exec sleep 60'")
			startAndReadOn(f, cmd)
			_ = cmd.Wait()
			status := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if f.isLeasing() && status.CoreDump() {
				f.Errorf("SIG%s: gpuard dumped core", name)
			}
			seen = append(seen, fmt.Sprint(status.Signaled(), status.Signal()))
		}
		return append(seen, f.describeEnd("sh", "-c", "$FRONT sh -c 'exit 9'; echo $?"))
	})
}

// TestBesideIgnored: what nohup, a trap or a shell without job control ignores is ignored in the command.
func TestBesideIgnored(t *testing.T) {
	t.Parallel()
	compareWithPrefix(t, supervisorWords(), func(f *commandPrefix) (seen []string) {
		const sets = "$FRONT grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status"
		for _, script := range []string{sets, "exec nohup " + sets, sets + " & wait", "trap '' HUP; " + sets, "trap '' INT QUIT; " + sets, "trap '' TSTP TTIN; " + sets} {
			seen = append(seen, script+"\n"+f.run("sh", "-c", script).out)
		}
		cmd := f.cmd(append([]string{"nohup"}, f.prefixCommand("sh", "-c", "trap 'echo got TERM; exit 5' TERM; echo on; while :; do sleep 0.1; done")...)...)
		lines := startAndReadOn(f, cmd)
		for _, sig := range []os.Signal{unix.SIGHUP, unix.SIGTERM} {
			if err := cmd.Process.Signal(sig); err != nil {
				f.Fatal(err)
			}
		}
		line, _ := lines.ReadString('\n')
		_ = cmd.Wait()
		return append(seen, line, fmt.Sprint(cmd.ProcessState))
	})
}

// TestBesideHangup: a terminal that goes away ends gpuard and its command.
func TestBesideHangup(t *testing.T) {
	t.Parallel()
	eachSupervisedShell(t, func(f *commandPrefix, s *terminal) []string {
		s.typeKeys("$FRONT listen TERM\n")
		end := watchProcessEnd(f, s.waitForListener())
		s.hangUp()
		end()
		f.waitUntilFreed()
		return []string{"gone"}
	})
}

// sendSignal sends a signal.
func (f *commandPrefix) sendSignal(pid int, sig unix.Signal) {
	f.Helper()
	if err := unix.Kill(pid, sig); err != nil {
		f.Error(err)
	}
}

// parentOf reads the parent of a process.
func parentOf(t testing.TB, pid int) (parent int) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil {
		_, err = fmt.Sscanf(string(stat[strings.LastIndexByte(string(stat), ')')+4:]), "%d", &parent)
	}
	if err != nil {
		t.Fatal(err)
	}
	return parent
}

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

// beside is gpuard as a supervisor.
func beside() []string { return strings.Fields("gpuard run -q --machine demo --timeout 1h --") }

// eachBeside makes the same observations in every shell, on a terminal, without gpuard and with one that stays.
func eachBeside(t *testing.T, observe func(f *front, s *terminal) []string) {
	for name, words := range shells() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needShell(t, name)
			bothWaysAs(t, beside(), func(f *front) []string {
				s := onTerminal(f, f.cmd(words...))
				s.until(prompt + "$")
				s.line("ulimit -c 0; PS1='" + prompt + "'")
				return observe(f, s)
			})
		})
	}
}

// TestBesideKeys: Ctrl-C and Ctrl-\ reach the command once although gpuard is in the same process group and gets them
// too.
func TestBesideKeys(t *testing.T) {
	t.Parallel()
	eachBeside(t, func(f *front, s *terminal) (seen []string) {
		s.press("$FRONT listen INT QUIT TERM\n")
		pid := s.started()
		s.foreground(s.cmd.Process.Pid)
		for range 5 {
			s.press("\x03")
			seen = append(seen, s.until("got INT\n"))
			s.press("\x1c")
			seen = append(seen, s.until("got QUIT\n"))
		}
		f.keeps("a job")
		f.tell(pid, unix.SIGUSR2)
		return append(seen, s.until(`totals.*\n`), s.until(prompt+"$"), s.line("echo code $?"))
	})
}

// TestBesideGroup: what a shell sends to a job goes to gpuard and to the command; the command gets it once.
func TestBesideGroup(t *testing.T) {
	t.Parallel()
	eachBeside(t, func(f *front, s *terminal) (seen []string) {
		s.press("$FRONT listen INT TERM HUP USR1 &\n")
		var pid int
		text := s.until(`on [0-9]+\n`, prompt)
		if _, err := fmt.Sscanf(text[strings.Index(text, "on "):], "on %d", &pid); err != nil {
			f.Fatal(err)
		}
		for _, name := range strings.Fields("TERM HUP USR1 INT TERM USR1") {
			s.press("kill -s " + name + " %1\n")
			seen = append(seen, f.shown(s.until("got "+name+"\n", prompt)))
		}
		f.tell(pid, unix.SIGUSR2)
		return append(seen, s.until(`totals.*\n`))
	})
}

// TestBesideAlone: what is sent to gpuard alone is passed on, once, in front of the terminal and in the background.
func TestBesideAlone(t *testing.T) {
	t.Parallel()
	eachBeside(t, func(f *front, s *terminal) (seen []string) {
		for _, end := range []string{"\n", " &\n"} {
			s.press("$FRONT listen INT QUIT TERM HUP USR1" + end)
			pid := s.started()
			gpuard := pid
			if f.leasing() {
				gpuard = parentOf(f, pid)
			}
			for _, name := range strings.Fields("INT QUIT TERM HUP USR1 INT") {
				f.tell(gpuard, unix.SignalNum("SIG"+name))
				s.until("got " + name + "\n")
			}
			f.tell(pid, unix.SIGUSR2)
			seen = append(seen, f.shown(s.until(`totals.*\n`)))
			s.line("wait")
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
	cmd := program(t, stateFolder(t), nil, "run", "-q", "--machine", "demo", "--timeout", limit, "--", "sh", "-c",
		"trap 'exit 5' TERM; echo on; while :; do sleep 0.1; done")
	begin(t, cmd)
	if out, err := exec.Command("pkill", "-TERM", "-f", "[-]-timeout "+limit).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_ = cmd.Wait()
	same(t, "exit", cmd.ProcessState.ExitCode(), 5)
	names := run(t, program(t, stateFolder(t), nil, "run", "-q", "--machine", "demo", "--timeout", "1h", "--", "sh", "-c", "for i in $(seq 1000); do ps -o comm= --ppid $PPID | grep -x gpu-witness && break; sleep 0.01; done")).out // it names itself when it runs
	same(t, "its name", names, "gpu-witness\n")
}

// TestBesideStop: Ctrl-Z stops gpuard as the command stops, and fg, bg and a kill of the stopped job work as ever.
func TestBesideStop(t *testing.T) { // not parallel: keys are pressed at moments that depend on timing
	eachBeside(t, func(f *front, s *terminal) (seen []string) {
		note := func(text string) { seen = append(seen, f.shown(text)) }
		s.press("$FRONT listen INT TERM USR1\n")
		pid := s.started()
		s.press("\x1a")
		note(s.until(prompt + "$"))
		note(s.line("echo code $?"))
		note(s.line("jobs"))
		f.keeps("a stopped job")
		s.press("bg\n")
		note(s.until(prompt + "$"))
		f.tell(pid, unix.SIGUSR1)
		note(s.until("got USR1\n"))
		s.press("fg\n")
		s.until("listen INT TERM USR1\n") // Ctrl-C throws away what the terminal has not shown yet
		s.foreground(s.cmd.Process.Pid)
		s.press("\x03")
		note(s.until("got INT\n"))
		s.press("\x1a")
		note(s.until(prompt + "$"))
		s.press("fg\n")
		s.foreground(s.cmd.Process.Pid)
		f.tell(pid, unix.SIGUSR2)
		note(s.until(`totals.*\n`, prompt))
		note(s.line("echo code $?"))

		// A command that is stopped by another signal, and again as soon as it is continued, or not at all by Ctrl-Z.
		s.press("$FRONT sh -c 'kill -STOP $$; kill -STOP $$; echo on again; exit 6'\n")
		note(s.until(prompt + "$"))
		note(s.line("echo code $?"))
		s.press("fg\n")
		note(s.until(prompt + "$"))
		note(s.line("echo code $?"))
		s.press("fg\n")
		note(s.until("on again\n", prompt))
		note(s.line("echo code $?"))
		s.press("$FRONT listen TSTP INT\n")
		pid = s.started()
		s.foreground(s.cmd.Process.Pid)
		s.press("\x1a")
		note(s.until("got TSTP\n"))
		f.tell(pid, unix.SIGUSR2)
		note(s.until(`totals.*\n`, prompt))
		note(s.line("echo code $?"))
		return seen
	})
}

// TestBesideOwnGroup: a command that left the process group stops gpuard too, and is continued with it.
func TestBesideOwnGroup(t *testing.T) {
	t.Parallel()
	gate.Need(t, "python3")
	eachBeside(t, func(f *front, s *terminal) (seen []string) {
		s.press(`$FRONT python3 -c 'import os, signal; os.setpgid(0, 0); os.kill(os.getpid(), signal.SIGSTOP); os._exit(6)'` + "\n")
		seen = append(seen, f.shown(s.until(prompt+"$")), s.line("echo code $?"))
		s.press("fg\n")
		return append(seen, f.shown(s.until(prompt+"$")), s.line("echo code $?"))
	})
}

// TestBesideTimeout: the end of a command that does not want to end, for which it is stopped, does not stop gpuard.
func TestBesideTimeout(t *testing.T) {
	t.Parallel()
	f := &front{TB: t, words: strings.Fields("gpuard run -q --machine demo --timeout 300ms --grace 50ms --"), state: stateFolder(t), dir: t.TempDir()}
	s := onTerminal(f, f.cmd("sh"))
	s.until(prompt + "$")
	for range 5 {
		s.line(`$FRONT sh -c 'trap "" TERM; sleep 1000 & sleep 1001 & while :; do sleep 0.1; done'`)
		contains(t, s.line("echo code $?"), "code 124\n")
	}
	f.over()
}

// TestBesideStopAlone: without a terminal, stopping and continuing the command alone does not leave a stopped gpuard
// behind.
func TestBesideStopAlone(t *testing.T) {
	t.Parallel()
	cmd := program(t, stateFolder(t), nil, "run", "-q", "--machine", "demo", "--timeout", "1h", "--", "sh", "-c",
		"echo $$; for i in 1 2 3 4 5 6 7 8 9 10; do kill -STOP $$; done; exit 6")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pid, err := strconv.Atoi(begin(t, cmd))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command has ended", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if strings.Contains(string(stat), ") T ") {
			_ = unix.Kill(pid, unix.SIGCONT)
		}
		return err != nil
	})
	_ = cmd.Wait()
	same(t, "exit", cmd.ProcessState.ExitCode(), 6)
}

// TestBesideDeaths: the parent sees the command's death by a signal as that signal, and one core file is enough.
func TestBesideDeaths(t *testing.T) {
	t.Parallel()
	bothWaysAs(t, beside(), func(f *front) (seen []string) {
		for _, name := range strings.Fields("TERM HUP INT QUIT USR1 USR2 KILL SEGV ABRT PIPE ALRM") {
			cmd := f.cmd("sh", "-c", "ulimit -c unlimited; exec $FRONT sh -c 'echo on; kill -s "+name+" $$; exec sleep 60'")
			begun(f, cmd)
			_ = cmd.Wait()
			status := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if f.leasing() && status.CoreDump() {
				f.Errorf("SIG%s: gpuard dumped core", name)
			}
			seen = append(seen, fmt.Sprint(status.Signaled(), status.Signal()))
		}
		return append(seen, f.ending("sh", "-c", "$FRONT sh -c 'exit 9'; echo $?"))
	})
}

// TestBesideIgnored: what nohup, a trap or a shell without job control ignores is ignored in the command.
func TestBesideIgnored(t *testing.T) {
	t.Parallel()
	bothWaysAs(t, beside(), func(f *front) (seen []string) {
		const sets = "$FRONT grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status"
		for _, script := range []string{sets, "exec nohup " + sets, sets + " & wait", "trap '' HUP; " + sets, "trap '' INT QUIT; " + sets, "trap '' TSTP TTIN; " + sets} {
			seen = append(seen, script+"\n"+f.run("sh", "-c", script).out)
		}
		cmd := f.cmd(append([]string{"nohup"}, f.with("sh", "-c", "trap 'echo got TERM; exit 5' TERM; echo on; while :; do sleep 0.1; done")...)...)
		lines := begun(f, cmd)
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
	eachBeside(t, func(f *front, s *terminal) []string {
		s.press("$FRONT listen TERM\n")
		end := watch(f, s.started())
		s.hangup()
		end()
		f.over()
		return []string{"gone"}
	})
}

// tell sends a signal.
func (f *front) tell(pid int, sig unix.Signal) {
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

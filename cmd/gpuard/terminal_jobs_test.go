package main

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
)

// needShell skips t where this shell is not installed. sh and bash are everywhere.
func needShell(t *testing.T, shell string) {
	t.Helper()
	if shell != "sh" && shell != "bash" {
		gate.Need(t, shell)
	}
}

// shells are the interactive shells of the job control tests, by their name.
func shells() map[string][]string {
	return map[string][]string{
		"bash": {"bash", "--norc", "--noprofile", "--noediting", "-i"},
		"dash": {"dash", "-i"},
	}
}

// eachShell makes the same observations in every shell, on a terminal, with and without the front.
func eachShell(t *testing.T, observe func(f *front, s *terminal) []string) {
	for name, words := range shells() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needShell(t, name)
			bothWays(t, func(f *front) []string {
				s := onTerminal(f, f.cmd(words...))
				s.until(prompt + "$")
				return observe(f, s)
			})
		})
	}
}

// TestKeys: Ctrl-C, Ctrl-Z and Ctrl-\ reach the job once, and jobs, bg, fg and $? know it as ever.
func TestKeys(t *testing.T) {
	t.Parallel()
	eachShell(t, func(f *front, s *terminal) (seen []string) {
		note := func(text string) { seen = append(seen, f.shown(text)) }
		note(s.line("ulimit -c 0; PS1='" + prompt + "'"))

		s.press("$FRONT listen INT WINCH USR1 QUIT TERM\n")
		pid := s.started()
		if group := s.foreground(s.cmd.Process.Pid); group != pid {
			f.Errorf("the process group %d has the terminal, not that of the command %d", group, pid)
		}
		s.press("\x03")
		note(s.until("got INT\n"))
		s.resize(30, 100)
		note(s.until("got WINCH\n"))
		s.press("\x1a")
		note(s.until(prompt + "$"))
		note(s.line("echo code $?"))
		note(s.line("jobs"))
		f.keeps("a stopped job")

		note(s.line("kill -s USR1 %1"))
		s.press("bg\n")
		note(s.until("got USR1\n", prompt))
		note(s.line("jobs"))
		s.press("fg\n")
		s.foreground(s.cmd.Process.Pid)
		note(s.until("QUIT TERM\n")) // what fg says, which the key would make the terminal forget (termios(3), NOFLSH)
		s.press("\x1c")
		note(s.until("got QUIT\n"))
		if err := unix.Kill(pid, unix.SIGUSR2); err != nil {
			f.Error(err)
		}
		note(s.until(prompt + "$"))
		note(s.line("echo code $?"))
		return seen
	})
}

// TestKilledJobs: deaths by keys and by kill, seen by the shell as those signals, also of a stopped job.
func TestKilledJobs(t *testing.T) {
	t.Parallel()
	eachShell(t, func(f *front, s *terminal) (seen []string) {
		note := func(text string) { seen = append(seen, f.shown(text)) }
		note(s.line("ulimit -c 0"))
		// A signal between fork and exec meets the shell's own handling and may be lost: the job has to be there first.
		const job = `$FRONT sh -c 'echo on $$; exec sleep 60'`
		for _, key := range []string{"\x03", "\x1c"} {
			s.press(job + "\n")
			s.started()
			s.press(key)
			note(s.until(prompt + "$"))
			note(s.line("echo code $?"))
		}
		s.press(job + " &\n")
		note(s.until(`on [0-9]+\n`, prompt))
		// dash writes a word of its own when the job dies before it waits, and none when it dies while it waits.
		seen = append(seen, strings.TrimPrefix(f.shown(s.line("kill %1; wait %1; echo code $?")), "Terminated; "))
		s.line("") // a notice that was late

		s.press(job + "\n")
		pid := s.started()
		s.press("\x1a")
		note(s.until(prompt + "$"))
		f.keeps("a stopped job")
		end := watch(f, pid)
		// Not by the shell's own kill: bash may miss a stopped job that it has killed itself.
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			f.Error(err)
		}
		end()
		told := ""
		eventually(f, "the shell knows that its stopped job was killed", func() bool {
			told += s.line("jobs") // forgets a job that it reported
			return strings.Contains(told, "Killed")
		})
		note(s.line("jobs"))
		f.over()
		return seen
	})
}

// TestHangup: a terminal that goes away ends the job with SIGHUP, and the lease with it.
func TestHangup(t *testing.T) {
	t.Parallel()
	eachShell(t, func(f *front, s *terminal) []string {
		s.press("$FRONT listen TERM\n")
		pid := s.started()
		end := watch(f, pid)
		s.hangup()
		end()
		f.over()
		return []string{"gone"}
	})
}

// TestPager: less reads its keys from the terminal and its text from a pipe, and a writer into a pipe without a reader
// dies by SIGPIPE.
func TestPager(t *testing.T) {
	t.Parallel()
	gate.Need(t, "less")
	bothWays(t, func(f *front) (seen []string) {
		s := onTerminal(f, f.cmd(shells()["bash"]...))
		s.until(prompt + "$")
		for _, line := range []string{
			"seq 100000 | $FRONT less; echo codes ${PIPESTATUS[@]}",
			"$FRONT seq 100000 | less; echo codes ${PIPESTATUS[@]}",
		} {
			s.press(line + "\n")
			s.until(`(?s)\b1\b.*\b20\b.*:`) // the first page, and less asks
			s.press("q")
			seen = append(seen, regexp.MustCompile(`codes [0-9 ]+`).FindString(s.until(`codes [0-9 ]+\n`)))
			s.until(prompt + "$")
		}
		return append(seen, s.line("$FRONT yes | head -1; echo codes ${PIPESTATUS[@]}"))
	})
}

// TestPlace: the command's place among the processes: its PID is the one the shell knows, its parent is the shell, and
// group, session and terminal are the job's.
func TestPlace(t *testing.T) {
	t.Parallel()
	const place = `read pid name state parent group session tty foreground rest </proc/$$/stat
test -t 0 && echo stdin
echo leads $((pid == group)) child $((parent == SHELL_PID)) session $((session == SHELL_PID)) tty $((tty != 0)) foreground $((group == foreground))
echo $$ >self`
	eachShell(t, func(f *front, s *terminal) (seen []string) {
		note := func(text string) { seen = append(seen, f.shown(text)) }
		s.line("export SHELL_PID=$$ PLACE='" + place + "'")
		note(s.line(`$FRONT sh -c "$PLACE"`))
		note(s.line(`$FRONT sh -c "$PLACE" | cat`))
		note(s.line(`true | $FRONT sh -c "$PLACE" | cat`))
		note(s.line(`exec 3>&1; x=$($FRONT sh -c "$PLACE" >&3)`))
		note(s.line(`( $FRONT sh -c "$PLACE" )`))
		s.line(`$FRONT sh -c "$PLACE" >out & wait $!`)
		note(s.line(`cat out; test $! = $(cat self) && echo the same PID`))
		return seen
	})
}

// started waits for a listening job and returns its PID.
func (s *terminal) started() int {
	s.t.Helper()
	text := s.until(`on [0-9]+\n`)
	pid, err := strconv.Atoi(regexp.MustCompile(`on ([0-9]+)`).FindStringSubmatch(text)[1])
	if err != nil {
		s.t.Fatal(err)
	}
	return pid
}

// watch returns a function that waits until the process is gone, or a zombie at least.
func watch(t testing.TB, pid int) func() {
	t.Helper()
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(pidfd) })
	return func() {
		t.Helper()
		eventually(t, "the process has ended", func() bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
			return err == nil && n == 1
		})
	}
}

// keeps fails unless the job has its lease; those of jobs before it may take a moment to end.
func (f *front) keeps(who string) {
	f.Helper()
	if f.leasing() {
		eventually(f, who+" has the one lease", func() bool { return f.leases() == 1 })
	}
}

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

// jobControlShells are the interactive shells of the job control tests, by their name.
func jobControlShells() map[string][]string {
	return map[string][]string{
		"bash": {"bash", "--norc", "--noprofile", "--noediting", "-i"},
		"dash": {"dash", "-i"},
	}
}

// eachShell makes the same observations in every shell, on a terminal, with and without the front.
func eachShell(t *testing.T, observe func(f *commandPrefix, s *terminal) []string) {
	for name, words := range jobControlShells() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needShell(t, name)
			compareBothWays(t, func(f *commandPrefix) []string {
				s := startOnTerminal(f, f.cmd(words...))
				s.waitForScreen(shellPrompt + "$")
				return observe(f, s)
			})
		})
	}
}

// TestKeys: Ctrl-C, Ctrl-Z and Ctrl-\ reach the job once, and jobs, bg, fg and $? know it as ever.
func TestKeys(t *testing.T) {
	t.Parallel()
	eachShell(t, func(f *commandPrefix, s *terminal) (seen []string) {
		note := func(text string) { seen = append(seen, f.comparableText(text)) }
		note(s.typeLine("ulimit -c 0; PS1='" + shellPrompt + "'"))

		s.typeKeys("$FRONT listen INT WINCH USR1 QUIT TERM\n")
		pid := s.waitForListener()
		if group := s.waitForForeground(s.cmd.Process.Pid); group != pid {
			f.Errorf("the process group %d has the terminal, not that of the command %d", group, pid)
		}
		s.typeKeys("\x03")
		note(s.waitForScreen("got INT\n"))
		s.setSize(30, 100)
		note(s.waitForScreen("got WINCH\n"))
		s.typeKeys("\x1a")
		note(s.waitForScreen(shellPrompt + "$"))
		note(s.typeLine("echo code $?"))
		note(s.typeLine("jobs"))
		f.checkOneLease("a stopped job")

		note(s.typeLine("kill -s USR1 %1"))
		s.typeKeys("bg\n")
		note(s.waitForScreen("got USR1\n", shellPrompt))
		note(s.typeLine("jobs"))
		s.typeKeys("fg\n")
		s.waitForForeground(s.cmd.Process.Pid)
		note(s.waitForScreen("QUIT TERM\n")) // what fg says, which the key would make the terminal forget (termios(3), NOFLSH)
		s.typeKeys("\x1c")
		note(s.waitForScreen("got QUIT\n"))
		if err := unix.Kill(pid, unix.SIGUSR2); err != nil {
			f.Error(err)
		}
		note(s.waitForScreen(shellPrompt + "$"))
		note(s.typeLine("echo code $?"))
		return seen
	})
}

// TestKilledJobs: deaths by keys and by kill, seen by the shell as those signals, also of a stopped job.
func TestKilledJobs(t *testing.T) {
	t.Parallel()
	eachShell(t, func(f *commandPrefix, s *terminal) (seen []string) {
		note := func(text string) { seen = append(seen, f.comparableText(text)) }
		note(s.typeLine("ulimit -c 0"))
		// A signal between fork and exec meets the shell's own handling and may be lost: the job has to be there first.
		const job = `$FRONT sh -c 'echo on $$; exec sleep 60'`
		for _, key := range []string{"\x03", "\x1c"} {
			s.typeKeys(job + "\n")
			s.waitForListener()
			s.typeKeys(key)
			note(s.waitForScreen(shellPrompt + "$"))
			note(s.typeLine("echo code $?"))
		}
		s.typeKeys(job + " &\n")
		note(s.waitForScreen(`on [0-9]+\n`, shellPrompt))
		// dash writes a word of its own when the job dies before it waits, and none when it dies while it waits.
		seen = append(seen, strings.TrimPrefix(f.comparableText(s.typeLine("kill %1; wait %1; echo code $?")), "Terminated; "))
		s.typeLine("") // a notice that was late

		s.typeKeys(job + "\n")
		pid := s.waitForListener()
		s.typeKeys("\x1a")
		note(s.waitForScreen(shellPrompt + "$"))
		f.checkOneLease("a stopped job")
		end := watchProcessEnd(f, pid)
		// Not by the shell's own kill: bash may miss a stopped job that it has killed itself.
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			f.Error(err)
		}
		end()
		told := ""
		waitUntil(f, "the shell knows that its stopped job was killed", func() bool {
			told += s.typeLine("jobs") // forgets a job that it reported
			return strings.Contains(told, "Killed")
		})
		note(s.typeLine("jobs"))
		f.waitUntilFreed()
		return seen
	})
}

// TestHangup: a terminal that goes away ends the job with SIGHUP, and the lease with it.
func TestHangup(t *testing.T) {
	t.Parallel()
	eachShell(t, func(f *commandPrefix, s *terminal) []string {
		s.typeKeys("$FRONT listen TERM\n")
		pid := s.waitForListener()
		end := watchProcessEnd(f, pid)
		s.hangUp()
		end()
		f.waitUntilFreed()
		return []string{"gone"}
	})
}

// TestPager: less reads its keys from the terminal and its text from a pipe, and a writer into a pipe without a reader
// dies by SIGPIPE.
func TestPager(t *testing.T) {
	t.Parallel()
	gate.Need(t, "less")
	compareBothWays(t, func(f *commandPrefix) (seen []string) {
		s := startOnTerminal(f, f.cmd(jobControlShells()["bash"]...))
		s.waitForScreen(shellPrompt + "$")
		for _, line := range []string{
			"seq 100000 | $FRONT less; echo codes ${PIPESTATUS[@]}",
			"$FRONT seq 100000 | less; echo codes ${PIPESTATUS[@]}",
		} {
			s.typeKeys(line + "\n")
			s.waitForScreen(`(?s)\b1\b.*\b20\b.*:`) // the first page, and less asks
			s.typeKeys("q")
			seen = append(seen, regexp.MustCompile(`codes [0-9 ]+`).FindString(s.waitForScreen(`codes [0-9 ]+\n`)))
			s.waitForScreen(shellPrompt + "$")
		}
		return append(seen, s.typeLine("$FRONT yes | head -1; echo codes ${PIPESTATUS[@]}"))
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
	eachShell(t, func(f *commandPrefix, s *terminal) (seen []string) {
		note := func(text string) { seen = append(seen, f.comparableText(text)) }
		s.typeLine("export SHELL_PID=$$ PLACE='" + place + "'")
		note(s.typeLine(`$FRONT sh -c "$PLACE"`))
		note(s.typeLine(`$FRONT sh -c "$PLACE" | cat`))
		note(s.typeLine(`true | $FRONT sh -c "$PLACE" | cat`))
		note(s.typeLine(`exec 3>&1; x=$($FRONT sh -c "$PLACE" >&3)`))
		note(s.typeLine(`( $FRONT sh -c "$PLACE" )`))
		s.typeLine(`$FRONT sh -c "$PLACE" >out & wait $!`)
		note(s.typeLine(`cat out; test $! = $(cat self) && echo the same PID`))
		return seen
	})
}

// waitForListener waits for a listening job and returns its PID.
func (s *terminal) waitForListener() int {
	s.t.Helper()
	text := s.waitForScreen(`on [0-9]+\n`)
	pid, err := strconv.Atoi(regexp.MustCompile(`on ([0-9]+)`).FindStringSubmatch(text)[1])
	if err != nil {
		s.t.Fatal(err)
	}
	return pid
}

// watchProcessEnd returns a function that waits until the process is gone, or a zombie at least.
func watchProcessEnd(t testing.TB, pid int) func() {
	t.Helper()
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(pidfd) })
	return func() {
		t.Helper()
		waitUntil(t, "the process has ended", func() bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
			return err == nil && n == 1
		})
	}
}

// checkOneLease fails unless the job has its lease; those of jobs before it may take a moment to end.
func (f *commandPrefix) checkOneLease(who string) {
	f.Helper()
	if f.isLeasing() {
		waitUntil(f, who+" has the one lease", func() bool { return f.countLeases() == 1 })
	}
}

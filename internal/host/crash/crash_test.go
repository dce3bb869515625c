package crash

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// role, in the environment, makes this test program a process that crashes.
const role = "CRASH_TEST"

func TestMain(m *testing.M) {
	if what := os.Getenv(role); what != "" {
		os.Exit(crashAs(what))
	}
	os.Exit(m.Run())
}

// crashAs catches crashes, and has one.
func crashAs(what string) int {
	if last := LastCrash(); last != nil && what == "limits" {
		limit, _ := exec.Command("sh", "-c", "ulimit -Sn").CombinedOutput()
		_, _ = os.Stdout.Write(limit)
		return 3
	} else if last != nil {
		_, _ = os.Stdout.WriteString(last.Text() + ", " + strings.Join(os.Args[1:], " ") + os.Getenv(crashVariable) + "\n")
		return 3
	}
	c, err := CatchCrashes("no more\n", "left alone\n", true)
	if err != nil {
		_, _ = os.Stdout.WriteString(err.Error())
		return 1
	}
	switch what {
	case "Go": // a mistake of this program, between others
		slot := c.EnterCall("busy")
		defer c.LeaveCall(slot)
		_, _ = os.Stdout.WriteString(recovered())
		return 0
	case "sent":
		_ = unix.Kill(os.Getpid(), unix.SIGABRT)
		time.Sleep(time.Minute) // a select without cases is a deadlock where the signal takes a moment
	case "full":
		for range fields {
			_ = c.EnterCall("a call")
		}
		if c.EnterCall("one more") != -1 {
			return 1
		}
		return 0
	}
	if what == "one hangs" || what == "hung before" {
		c.NoteHang()
		_ = c.EnterCall("a call")
		if what == "one hangs" {
			_ = c.EnterCall("another")
		}
	}
	if what == "parked" {
		c.ParkOnCrash()
		abortOutside()
	}
	jumpOutside()
	return 1
}

// jumpOutside crashes outside the code of this program, as a library does.
func jumpOutside() {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		panic(err)
	}
	code := new(unsafe.Pointer(&page[0]))
	(*(*func())(unsafe.Pointer(&code)))()
}

// abortOutside sends SIGABRT to its own thread from code outside of this program, as abort(3) does.
func abortOutside() {
	code := map[string][]byte{
		"amd64": {0xb8, 186, 0, 0, 0, 0x0f, 5, 0x89, 0xc7, 0xbe, 6, 0, 0, 0, 0xb8, 200, 0, 0, 0, 0x0f, 5, 0xc3}, // gettid, tkill, ret
		"arm64": {0x48, 0x16, 0x80, 0xd2, 1, 0, 0, 0xd4, 0xc1, 0, 0x80, 0xd2, 0x48, 0x10, 0x80, 0xd2, 1, 0, 0, 0xd4, 0xc0, 3, 0x5f, 0xd6},
	}[runtime.GOARCH]
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		panic(err)
	}
	copy(page, code)
	if err := unix.Mprotect(page, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		panic(err)
	}
	at := new(unsafe.Pointer(&page[0]))
	(*(*func())(unsafe.Pointer(&at)))()
}

func recovered() (text string) {
	defer func() { text = recover().(error).Error() }()
	var nothing *frame
	return string(rune(nothing.busy))
}

func asRole(what string, args ...string) (out string, how *os.ProcessState) {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), role+"="+what)
	text, _ := cmd.CombinedOutput()
	return string(text), cmd.ProcessState
}

// TestGoOn: what is no crash of a library goes on as if nothing were caught.
func TestGoOn(t *testing.T) {
	t.Parallel()
	out, how := asRole("Go")
	if how.ExitCode() != 0 || out != "runtime error: invalid memory address or nil pointer dereference" {
		t.Errorf("a nil pointer in Go ended with %v: %s", how, out)
	}
	if out, how := asRole("sent"); how.String() != "signal: aborted" && !strings.HasPrefix(how.String(), "signal: aborted (core dumped)") || out != "" {
		t.Errorf("SIGABRT from another process ended with %v: %s", how, out)
	}
	if out, how := asRole("full"); how.ExitCode() != 0 {
		t.Errorf("a seventeenth call ended with %v: %s", how, out)
	}
}

// TestLimit: what runs after a crash has the limit of open files that this program was started with.
func TestLimit(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", "ulimit -Sn 500; exec /proc/$0/exe", strconv.Itoa(os.Getpid()))
	cmd.Env = append(os.Environ(), role+"=limits")
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 3 || string(out) != "500\n" {
		t.Errorf("%v: %s", cmd.ProcessState, out)
	}
}

// TestEnterKeepsThread: a call crashes in the thread that was noted.
func TestEnterKeepsThread(t *testing.T) {
	t.Parallel()
	c := &Catcher{new(frame)}
	var busy sync.WaitGroup
	for range 8 {
		busy.Go(func() {
			for range 200 {
				slot := c.EnterCall("a call")
				before := unix.Gettid()
				time.Sleep(time.Microsecond)
				if now := unix.Gettid(); now != before {
					t.Errorf("a call that began in thread %d is in thread %d", before, now)
					return
				}
				c.LeaveCall(slot)
			}
		})
	}
	busy.Wait()
}

// TestHangs: it says why the program that begins again may never come.
func TestHangs(t *testing.T) {
	t.Parallel()
	for what, says := range map[string]string{"one hangs": stuckText + "it crashed (SIGSEGV) in another", "hung before": "it crashed (SIGSEGV) in a call"} {
		if out, how := asRole(what); how.ExitCode() != 3 || out != says+", \n" {
			t.Errorf("%s: %v: %s", what, how, out)
		}
	}
}

// TestParked: where a command runs, a thread that is missing is not told with the code for "no command runs".
func TestParked(t *testing.T) {
	t.Parallel()
	out, how := asRole("parked")
	if status, _ := how.Sys().(syscall.WaitStatus); status.Signal() != unix.SIGABRT || out != "left alone\n" {
		t.Errorf("%v: %s", how, out)
	}
}

// TestLast: what the process that begins again is told.
func TestLast(t *testing.T) {
	t.Parallel()
	field := func(call string) string { return call + strings.Repeat(" ", fieldSize-len(call)) }
	for value, want := range map[string]string{
		"":                                     "it crashed (SIGSEGV)",
		"K":                                    "it crashed (SIGSEGV)",
		"FA" + field("a") + field("b"):         "it crashed (SIGABRT) in b",
		"G@" + field("loading x"):              "it crashed (SIGBUS) in loading x",
		"KP" + field("a"):                      "it crashed (SIGSEGV)", // of no field
		"K" + string(rune('@'+2)) + field("a"): "it crashed (SIGSEGV)", // cut off
		"\x7f\x7f":                             "it crashed (SIGSEGV)",
	} {
		if got := parseReport(value).Text(); got != want {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
	t.Run("hidden", func(t *testing.T) {
		cmd := exec.Command("/proc/self/exe", "an argument")
		cmd.Env = append(os.Environ(), role+"=begun again", crashVariable+"=K@"+field("a"))
		out, err := cmd.Output()
		var ended *exec.ExitError
		if !errors.As(err, &ended) || ended.ExitCode() != 3 || string(out) != "it crashed (SIGSEGV) in a, an argument\n" {
			t.Errorf("%v: %s", err, out)
		}
	})
}

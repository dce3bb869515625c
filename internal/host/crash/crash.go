// Package crash catches the crash of a C library in this process, which ends the Go runtime with a dump of all its
// goroutines. Instead this program executes itself again: the same process, arguments and environment, and a variable
// that says which call crashed. It decides nothing: the program that starts again asks LastCrash what it must do
// without.
//
//	last := crash.LastCrash()       // nil: nothing has crashed
//	catcher := crash.CatchCrashes(refusal, alone, last == nil)
//	slot := catcher.Enter("nvmlInit_v2")
//	…                          // a call into the library
//	catcher.Leave(slot)
package crash

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Calls that run at the same time have a field each in the variable.
const (
	fields = 16
	// More than the longest name.
	fieldSize = 48
)

// stuckText is said before a process begins again while another call hangs.
const stuckText = "gpuard: the driver's library has crashed while another call of it hangs: if nothing follows, the driver holds this process, " +
	"and only a reset of the GPU or a reboot ends it\n"

// crashVariable has the signal and the field of the call that crashed, as '@' + a number each, then the fields, filled
// up with spaces. A call of no field is not known.
const crashVariable = "GPUARD_CRASHED"

// Report is a crash of this process before it executed itself again.
type Report struct {
	Signal unix.Signal
	// "" if it was in none, or that is not known.
	Call string
}

// Text says how the library crashed.
func (r *Report) Text() string {
	text := "it crashed (" + unix.SignalName(r.Signal) + ")"
	if r.Call != "" {
		text += " in " + r.Call
	}
	return text
}

// LastCrash returns the crash that this process had, nil for none, and hides it from every program that this one
// starts. The files of the driver that the library has left open are closed: they are not what the caller has passed
// on.
func LastCrash() *Report {
	value, set := os.LookupEnv(crashVariable)
	if !set {
		return nil
	}

	_ = os.Unsetenv(crashVariable)
	closeDriver()

	return parseReport(value)
}

func parseReport(value string) *Report {
	r := &Report{Signal: unix.SIGSEGV}
	if len(value) < 2 {
		return r
	}

	if number := int(value[0]) - '@'; number > 0 && number < 32 {
		r.Signal = unix.Signal(number)
	}

	at, all := int(value[1])-'@', value[2:]
	if at >= 0 && at < fields && len(all) >= (at+1)*fieldSize {
		r.Call = strings.TrimSpace(all[at*fieldSize:][:fieldSize])
	}

	return r
}

// closeDriver closes what leads to a node of NVIDIA's driver, in WSL to that of the host's.
func closeDriver() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}

	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || !strings.HasPrefix(target, "/dev/nvidia") && target != "/dev/dxg" {
			continue
		}

		var fd int
		_, err = fmt.Sscan(e.Name(), &fd)
		if err != nil {
			continue
		}

		_ = unix.Close(fd)
	}
}

package driverchild

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
)

// TestMain makes this test program the child, whose folder says what becomes of it.
func TestMain(m *testing.M) {
	if len(os.Args) < 4 || os.Args[1] != ChildFlag {
		os.Exit(m.Run())
	}
	var err error
	if os.Args[3] == "crashed" {
		err = ReportCrash(os.Stdout, &gpu.Unavailable{Cause: gpu.LibraryCrashed, Text: "it crashed"})
	} else {
		own, _ = os.Open("/dev/null") // as the Go runtime opens files of the cgroup
		err = ServeRequests(os.Stdin, os.Stdout, pretend, errorsOf)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

var own *os.File // that the child has opened itself

func pretend(ctx context.Context, query gpu.Query) (gpu.Machine, error) {
	_, hurried := ctx.Deadline()
	switch {
	case os.Args[3] == "ends":
		os.Exit(3)
	case os.Args[3] == "files":
		_, kept := own.Stat()
		inherited := unix.Fstat(inheritedFD, new(unix.Stat_t))
		return gpu.Machine{Source: fmt.Sprint(kept, ", ", inherited)}, nil
	case os.Args[3] == "works":
		for ownTime() < 20*time.Millisecond {
		}
	case os.Args[3] == "hangs":
		select {}
	case query.What == gpu.Power:
		return gpu.Machine{}, &gpu.Unavailable{Cause: gpu.NoDevice, Text: "none"}
	case query.What == gpu.Health:
		return gpu.Machine{}, errors.New("a mistake")
	}
	return gpu.Machine{Source: fmt.Sprint(os.Getpid(), " ", hurried), Devices: []gpu.Device{{UUID: "GPU-a", Temperature: new(30)}}}, nil
}

func errorsOf(ctx context.Context, ids []gpu.UUID) <-chan gpu.Event {
	out := make(chan gpu.Event)
	go func() {
		defer close(out)
		for i, id := range ids {
			out <- gpu.Event{Device: id, XID: gpu.XID{Code: i}}
		}
		<-ctx.Done()
	}()
	return out
}

// TestRead: one child answers all requests, in any order, with values and with reasons.
func TestRead(t *testing.T) {
	t.Parallel()
	c := New(time.Minute, "fine", nil)
	first, err := c.Read(t.Context(), gpu.Query{What: gpu.Identity})
	if err != nil || *first.Devices[0].Temperature != 30 {
		t.Fatalf("%+v, %v", first, err)
	}
	hurried, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	second, err := c.Read(hurried, gpu.Query{What: gpu.Identity})
	if want := fmt.Sprint(pidOf(first), " true"); err != nil || second.Source != want {
		t.Errorf("%q, want %q: %v", second.Source, want, err)
	}
	var why *gpu.Unavailable
	if _, err := c.Read(t.Context(), gpu.Query{What: gpu.Power}); !errors.As(err, &why) || why.Cause != gpu.NoDevice {
		t.Error(err)
	}
	if _, err := c.Read(t.Context(), gpu.Query{What: gpu.Health}); err == nil || err.Error() != "a mistake" {
		t.Error(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(time.Minute, "hangs", nil).Read(cancelled, gpu.Query{What: gpu.Identity}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func pidOf(m gpu.Machine) (pid int) {
	_, _ = fmt.Sscan(m.Source, &pid)
	return pid
}

// ownTime is the processor time of this process.
func ownTime() time.Duration {
	var used unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &used)
	return time.Duration(used.Nano())
}

// TestSpent: the time of a child that lives is known.
func TestSpent(t *testing.T) {
	t.Parallel()
	c := New(time.Minute, "works", nil)
	if spent := c.CPUTime(); spent != 0 {
		t.Errorf("no child has cost %s", spent)
	}
	_, err := c.Read(t.Context(), gpu.Query{What: gpu.Identity})
	if spent := c.CPUTime(); err != nil || spent < 20*time.Millisecond || spent > time.Minute {
		t.Errorf("a child that worked for 20ms has cost %s: %v", spent, err)
	}
}

const inheritedFD = 333

// TestFiles: the child closes what its parent has passed on, and nothing else.
func TestFiles(t *testing.T) {
	t.Parallel()
	if err := unix.Dup3(0, inheritedFD, 0); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(inheritedFD)
	m, err := New(time.Minute, "files", nil).Read(t.Context(), gpu.Query{What: gpu.Identity})
	if want := fmt.Sprint(nil, ", ", unix.EBADF); err != nil || m.Source != want {
		t.Errorf("its own file and the parent's: %q, want %q: %v", m.Source, want, err)
	}
}

// TestEnds: a child that has ended is replaced, a library that crashed is left alone for a while, and one that hangs is
// given up.
func TestEnds(t *testing.T) {
	t.Parallel()
	var why *gpu.Unavailable
	c := New(time.Minute, "ends", nil)
	for range 2 {
		if _, err := c.Read(t.Context(), gpu.Query{What: gpu.Identity}); !errors.As(err, &why) || why.Cause != gpu.DriverError {
			t.Error(err)
		}
	}
	c = New(time.Minute, "crashed", nil)
	for range 2 {
		if _, err := c.Read(t.Context(), gpu.Query{What: gpu.Identity}); !errors.As(err, &why) || why.Cause != gpu.LibraryCrashed || why.Text != "it crashed" {
			t.Error(err)
		}
	}
	if p, err := c.runningProcess(); p != nil || err == nil {
		t.Errorf("another child was started: %v", err)
	}
	known := New(time.Minute, "fine", &gpu.Unavailable{Cause: gpu.LibraryCrashed})
	if _, err := known.Read(t.Context(), gpu.Query{What: gpu.Identity}); !errors.As(err, &why) || why.Cause != gpu.LibraryCrashed {
		t.Error(err)
	}
	c = New(0, "hangs", nil)
	hurried, end := context.WithTimeout(t.Context(), time.Millisecond)
	defer end()
	if _, err := c.Read(hurried, gpu.Query{What: gpu.Identity}); !errors.As(err, &why) || why.Cause != gpu.NoAnswer {
		t.Error(err)
	}
}

// TestEvents: the errors of devices come from the child until nobody wants them.
func TestEvents(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	c := New(time.Minute, "fine", nil)
	heard := c.Events(ctx, []gpu.UUID{"GPU-a", "GPU-b"})
	if a, b := <-heard, <-heard; a.Device != "GPU-a" || b.Device != "GPU-b" || b.XID.Code != 1 {
		t.Errorf("%+v, %+v", a, b)
	}
	end()
	if e, more := <-heard; more {
		t.Errorf("%+v came after the end", e)
	}
}

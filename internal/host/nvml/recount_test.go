package nvml

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/test/fakegpu"
)

// beCounter reads the machine for each line of its input, which says how, and prints the number of devices.
func beCounter(kernel string) {
	ctx := context.Background()
	l, err := Open(ctx, WithDeadline(patience), WithKernelFolder(kernel))
	if err != nil {
		fmt.Println(err)
		return
	}
	listening, end := context.WithCancel(ctx)
	defer end()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		what := gpu.Identity
		switch id, listens := strings.CutPrefix(lines.Text(), "listen "); {
		case listens:
			l.Events(listening, []gpu.UUID{gpu.UUID(id)})
		case lines.Text() == "end":
			end()
			for l.listening.Load() > 0 {
				time.Sleep(time.Millisecond)
			}
		case lines.Text() == "anew":
			what |= gpu.RecountDevices
		}
		m, err := l.Read(ctx, gpu.Query{What: what})
		fmt.Println(len(m.Devices), err)
	}
}

// counter is a process that keeps the library open on a machine with one device.
type counter struct {
	*fakegpu.Driver
	t       *testing.T
	kernel  string // folder with an entry for each device that the kernel driver lists
	in      io.Writer
	answers *bufio.Reader
}

func newCounter(t *testing.T) *counter {
	d := fakegpu.New(t, fakegpu.A100(0))
	c := &counter{Driver: d, t: t, kernel: t.TempDir()}
	c.list(0)
	cmd := childCommand(t, append(d.Env(), childCounts+"="+c.kernel), 0, 0)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	c.in, c.answers = in, bufio.NewReader(out)
	c.ask("", "at first", "1 <nil>")
	return c
}

func (c *counter) list(i int) {
	if err := os.Mkdir(filepath.Join(c.kernel, fmt.Sprintf("0000:%02x:00.0", 0x10+i)), 0o755); err != nil {
		c.t.Fatal(err)
	}
}

func (c *counter) ask(line, what, want string) {
	c.t.Helper()
	_, err := io.WriteString(c.in, line+"\n")
	got := ""
	if err == nil {
		got, err = c.answers.ReadString('\n')
	}
	if err != nil || !strings.HasPrefix(got, want) {
		c.t.Fatalf("%s: %q, %v; want %q", what, got, err, want)
	}
}

// recovers asks until all devices are read again.
func (c *counter) recovers(line, want string) {
	c.t.Helper()
	eventually(c.t, "it answers again", func() bool {
		_, err := io.WriteString(c.in, line+"\n")
		return err == nil && next(c.answers) == want
	})
}

// TestRecount: a device that appears while the library is open is found once the kernel driver lists it, or if asked
// for. It is not found while a listener waits or a call hangs: to initialise the library again then would crash the
// process.
func TestRecount(t *testing.T) {
	t.Parallel()
	t.Run("while a listener waits", func(t *testing.T) {
		t.Parallel()
		c := newCounter(t)
		c.Add(fakegpu.A100(1))
		c.ask("", "a device that was added, but not announced", "1 <nil>")
		c.ask("anew", "counted anew", "2 <nil>")
		c.Add(fakegpu.A100(2))
		c.list(1)
		c.ask("", "a device that the kernel lists", "3 <nil>")
		id := "GPU-fa4e0000-0000-4000-8000-000000000000"
		c.Add(fakegpu.A100(3))
		c.ask("listen "+id, "the first answer of one that listens", "3 <nil>")
		c.ask("anew", "while a listener waits", "3 <nil>")
		c.ask("end", "when the listener has ended", "3 <nil>")
		c.ask("anew", "afterwards", "4 <nil>")
	})
	t.Run("while a device hangs", func(t *testing.T) {
		t.Parallel()
		c := newCounter(t)
		c.Add(fakegpu.A100(1))
		c.Hang("nvmlDeviceGetUUID", 0)
		c.ask("", "a device hangs", "1 <nil>")
		c.ask("anew", "while a device hangs", "1 <nil>")
		c.Answer()
		c.recovers("anew", "2 <nil>")
	})
	t.Run("while the library hangs", func(t *testing.T) {
		t.Parallel()
		c := newCounter(t)
		c.Hang("nvmlInit_v2", fakegpu.AnyGPU)
		c.ask("anew", "the library hangs while it is initialised", "0 ")
		c.ask("", "and nothing is read meanwhile", "0 ")
		c.Answer()
		c.recovers("", "1 <nil>")
		c.FailInit(int(driverNotLoaded))
		c.ask("anew", "the driver is gone", "0 ")
		c.FailInit(0)
		c.ask("", "the driver is back", "1 <nil>")
	})
}

func next(r *bufio.Reader) string {
	line, _ := r.ReadString('\n')
	return strings.TrimSpace(line)
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after 30 s still not: %s", what)
		}
	}
}

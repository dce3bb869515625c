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
	l, err := Open(ctx, Deadline(patience), Kernel(kernel))
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
			what |= gpu.Anew
		}
		m, err := l.Read(ctx, gpu.Query{What: what})
		fmt.Println(len(m.Devices), err)
	}
}

// TestRecount: a device that appears while the library is open is found once the kernel driver lists it, or if asked
// for. It is not found while a listener waits or a call hangs: to initialise the library again then would crash the
// process.
func TestRecount(t *testing.T) {
	t.Parallel()
	d, kernel := fakegpu.New(t, fakegpu.A100(0)), t.TempDir()
	list := func(i int) {
		if err := os.Mkdir(filepath.Join(kernel, fmt.Sprintf("0000:%02x:00.0", 0x10+i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	list(0)
	cmd := childCommand(t, append(d.Env(), childCounts+"="+kernel), 0, 0)
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
	answers := bufio.NewReader(out)
	ask := func(line, what, want string) {
		t.Helper()
		_, err := io.WriteString(in, line+"\n")
		got := ""
		if err == nil {
			got, err = answers.ReadString('\n')
		}
		if err != nil || !strings.HasPrefix(got, want) {
			t.Fatalf("%s: %q, %v; want %q", what, got, err, want)
		}
	}
	ask("", "at first", "1 <nil>")
	d.Add(fakegpu.A100(1))
	ask("", "a device that nobody told of", "1 <nil>")
	ask("anew", "counted anew", "2 <nil>")
	d.Add(fakegpu.A100(2))
	list(1)
	ask("", "a device that the kernel lists", "3 <nil>")
	id := "GPU-fa4e0000-0000-4000-8000-000000000000"
	d.Add(fakegpu.A100(3))
	ask("listen "+id, "the first answer of one that listens", "3 <nil>")
	ask("anew", "while somebody listens", "3 <nil>")
	ask("end", "when nobody listens any more", "3 <nil>")
	ask("anew", "afterwards", "4 <nil>")
	d.Add(fakegpu.A100(4))
	d.Hang("nvmlDeviceGetUUID", 0)
	ask("", "a device hangs", "4 <nil>")
	ask("anew", "while a device hangs", "4 <nil>")
	d.Answer()
	eventually(t, "it answers again", func() bool { _, err := io.WriteString(in, "anew\n"); return err == nil && next(answers) == "5 <nil>" })
	d.Hang("nvmlInit_v2", fakegpu.Any)
	ask("anew", "the library hangs while it is initialised", "0 ")
	ask("", "and nothing is read meanwhile", "0 ")
	d.Answer()
	eventually(t, "it answers again", func() bool { _, err := io.WriteString(in, "\n"); return err == nil && next(answers) == "5 <nil>" })
	d.FailInit(int(driverNotLoaded))
	ask("anew", "the driver is gone", "0 ")
	d.FailInit(0)
	ask("", "the driver is back", "5 <nil>")
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

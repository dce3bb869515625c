package kmsg

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestParse(t *testing.T) {
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * 1e9)) }
	one := func(pci string, code int, seconds float64, pid int) Error {
		return Error{PCI: pci, XID: gpu.XID{Code: code, At: at(seconds), PID: pid, Source: "kernel log"}}
	}
	anew := Error{XID: gpu.XID{At: at(2), Source: "kernel log"}, After: true}
	tests := []struct {
		name, text string
		want       []Error
	}{
		{"nothing", "", nil},
		{"other lines", "<6>[    1.000000] usb 1-1: new device\n<4>[    2.000000] NVRM: GPU 0000:05:00.0: RmInitAdapter failed\n", nil},
		{"with a process", "<4>[   12.500000] NVRM: Xid (PCI:0000:05:00): 31, pid=4242, name=python, Ch 00000008\n", []Error{one("0000:05:00", 31, 12.5, 4242)}},
		{"quoted process", "<4>[   12.500000] NVRM: Xid (PCI:0000:C1:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n", []Error{one("0000:c1:00", 79, 12.5, 0)}},
		{"quoted number", "<4>[   12.500000] NVRM: Xid (PCI:0000:C1:00): 13, pid='77', name=x\n", []Error{one("0000:c1:00", 13, 12.5, 77)}},
		{"with the task", "<4>[   12.500000][  T933] NVRM: Xid (PCI:0000:05:00): 48\n", []Error{one("0000:05:00", 48, 12.5, 0)}},
		{"of a slice", "<4>[   12.500000] NVRM: Xid (PCI:0000:05:00 GPU-I:02 GPU-CI:00): 62, pid=4242, name=python\n<4>[   13.500000] NVRM: Xid (PCI:0000:05:00 GPU-I:02): 95, pid='<unknown>', name=<unknown>\n",
			[]Error{one("0000:05:00", 62, 12.5, 4242), one("0000:05:00", 95, 13.5, 0)}},
		{"a long domain", "<4>[   12.500000] NVRM: Xid (PCI:10000:E1:00): 79, x\n", []Error{one("10000:e1:00", 79, 12.5, 0)}},
		{"no line break at the end", "<4>[   12.500000] NVRM: Xid (PCI:0000:05:00): 48, x", []Error{one("0000:05:00", 48, 12.5, 0)}},
		{"cut at the beginning", "00): 79\n<4>[   12.500000] NVRM: Xid (PCI:0000:05:00): 48\n", []Error{one("0000:05:00", 48, 12.5, 0)}},
		{"the driver was loaded anew", "<4>[    1.000000] NVRM: Xid (PCI:0000:05:00): 79\n<5>[    2.000000] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05\n<4>[    3.000000] NVRM: Xid (PCI:0000:05:00): 13\n",
			[]Error{anew, one("0000:05:00", 13, 3, 0)}},
		{"two of one moment", "<4>[    1.000000] NVRM: Xid (PCI:0000:05:00): 79\n<4>[    1.000000] NVRM: Xid (PCI:0000:06:00): 79\n",
			[]Error{one("0000:05:00", 79, 1, 0), one("0000:06:00", 79, 1, 0)}},
		{"a program wrote it", "<12>[    1.000000] NVRM: Xid (PCI:0000:05:00): 79\n<8>[    2.000000] NVRM: Xid (PCI:0000:05:00): 79\n", nil},
		{"another clock", "<4>[    1.000] NVRM: Xid (PCI:0000:05:00): 79\n", nil},
		{"no time", "<4>NVRM: Xid (PCI:0000:05:00): 79\nNVRM: Xid (PCI:0000:05:00): 79\n", nil},
		{"in the middle of a line", "<4>[    1.000000] process '/tmp/NVRM: Xid (PCI:0000:05:00): 79' started with executable stack\n", nil},
		{"a file name with line breaks", "<4>[    1.000000] process '/tmp/\n<4>[    1.000000] NVRM: Xid (PCI:0000:05:00): 79\n<4>[    1.000000] NVRM: Xid (PCI:0000:06:00): 79\n<4>[    1.000000] ' started\n", nil},
		{"a file name that loads the driver", "<4>[    1.000000] NVRM: Xid (PCI:0000:05:00): 79\n<4>[    2.000000] process '/tmp/\n<4>[    2.000000] NVRM: loading NVIDIA x\n", []Error{one("0000:05:00", 79, 1, 0)}},
		{"not an address", "<4>[    1.000000] NVRM: Xid (PCI:05:00): 79\n<4>[    2.000000] NVRM: Xid (PCI:0000:0x:00): 79\n<4>[    3.000000] NVRM: Xid (0000:05:00): 79\n<4>[    4.000000] NVRM: Xid (PCI:000000000:05:00): 79\n<4>[    5.000000] NVRM: Xid (PCI:0000:05:00 x): 79\n", nil},
		{"not a number", "<4>[    1.000000] NVRM: Xid (PCI:0000:05:00): , x\n<4>[    2.000000] NVRM: Xid (PCI:0000:05:00): 99999999999\n<4>[    3.000000] NVRM: Xid (PCI:0000:05:00): -79\n", nil},
	}
	for _, test := range tests {
		if got := Parse([]byte(test.text), start); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s:\n%+v\nwant\n%+v", test.name, got, test.want)
		}
	}
}

// TestUnknownStart: if the clock cannot be read, an error counts without a time.
func TestUnknownStart(t *testing.T) {
	got := Parse([]byte("<4>[   12.500000] NVRM: Xid (PCI:0000:05:00): 79\n"), time.Time{})
	if len(got) != 1 || !got[0].XID.At.IsZero() {
		t.Errorf("%+v", got)
	}
}

// TestRecovered: the driver reports when a device has recovered.
func TestRecovered(t *testing.T) {
	log := `<4>[   10.000000] NVRM: Xid (PCI:0000:05:00): 119, pid=7, name=x, Timeout after 6s of waiting for RPC response
<4>[   10.000001] NVRM: Xid (PCI:0000:06:00): 119, pid=7, name=x, Timeout
<4>[   11.000000] NVRM: Xid (PCI:0000:05:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)
<4>[   99.000000] NVRM: Xid (PCI:0000:05:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)
<4>[  100.000000] NVRM: Xid (PCI:0000:05:00): 31, pid=9, name=y
<4>[  101.000000] NVRM: Xid (PCI:0000:05:00): 31, pid=9, name=y, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)
<4>[  102.000000] NVRM: Xid (PCI:0000:05:00): 154, something else, to 0x0 (None)
`
	var got []string
	for _, e := range Parse([]byte(log), start) {
		got = append(got, fmt.Sprint(e.PCI, " ", e.XID.Code, " ", e.After))
	}
	if want := []string{"0000:06:00 119 false", "0000:05:00 154 true", "0000:05:00 31 false", "0000:05:00 31 false", "0000:05:00 154 false"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestManyErrors: repeated errors do not displace one that happened once.
func TestManyErrors(t *testing.T) {
	var log strings.Builder
	log.WriteString("<4>[    1.000000] NVRM: Xid (PCI:0000:05:00): 62, x\n")
	for i := range 1000 {
		fmt.Fprintf(&log, "<4>[ %4d.000000] NVRM: Xid (PCI:0000:05:00): 13, pid=%d, name=x\n", i+2, i+2)
	}
	got := Parse([]byte(log.String()), start)
	if len(got) != 1+maxPerCode || got[0].XID.Code != 62 || got[maxPerCode].XID.PID != 1001 {
		t.Errorf("%+v", got)
	}
}

func TestReadFile(t *testing.T) {
	root := t.TempDir()
	if _, err := ReadErrors(root); err == nil {
		t.Error("a machine without a log has one")
	}
	if err := os.Mkdir(filepath.Join(root, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("<6>[    1.000000] something else that fills the log\n", 10_000) + "<4>[    2.000000] NVRM: Xid (PCI:0000:05:00): 79, x\n"
	if err := os.WriteFile(filepath.Join(root, "dev/kmsg"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := ReadErrors(root)
	if err != nil || len(got) != 1 || got[0].XID.Code != 79 || got[0].XID.At.IsZero() || got[0].XID.At.After(time.Now()) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestReadKernel: the kernel's log can be read or is refused, both quickly.
func TestReadKernel(t *testing.T) {
	began := time.Now()
	got, err := ReadErrors("/")
	if took := time.Since(began); took > 10*time.Second { // a read that waits for the next message takes long
		t.Errorf("it took %v", took)
	}
	t.Log(len(got), "errors,", err)
}

// TestReadFiltered: Read does not make a system call that may end the process.
func TestReadFiltered(t *testing.T) {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with its filter
		code := []unix.SockFilter{
			{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the call
			{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_SYSLOG},
			{Code: unix.BPF_RET | unix.BPF_K, K: 0x80000000}, // SECCOMP_RET_KILL_PROCESS
			{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fff0000}, // SECCOMP_RET_ALLOW
		}
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			filter := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
			err = unix.Prctl(unix.PR_SET_SECCOMP, 2, uintptr(unsafe.Pointer(&filter)), 0, 0) // SECCOMP_MODE_FILTER
		}
		if err == nil {
			_, err = ReadErrors("/")
		}
		done <- err
	}()
	if err := <-done; !errors.Is(err, unix.EPERM) {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("<4>[   12.500000] NVRM: Xid (PCI:0000:05:00): 31, pid='4242', name=python, Ch 00000008\n"))
	f.Add([]byte("<4>[   12.500000][  T933] NVRM: Xid (PCI:0000:05:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)\n"))
	f.Add([]byte("<5>[    2.000000] NVRM: loading NVIDIA UNIX\n<4>[    2.000000] NVRM: Xid (PCI:ffff:ff:ff): 1048575,pid=-1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		count := map[string]int{}
		for _, e := range Parse(text, start) {
			if !isAddress(e.PCI) && !e.After || e.PCI != strings.ToLower(e.PCI) || e.XID.Code < 0 || e.XID.PID < 0 || e.XID.At.Before(start) {
				t.Errorf("%+v", e)
			}
			if k := fmt.Sprint(e.PCI, e.XID.Code); count[k] == maxPerCode {
				t.Errorf("more than %d of %s", maxPerCode, k)
			} else {
				count[k]++
			}
		}
	})
}

func BenchmarkRead(b *testing.B) {
	for b.Loop() {
		_, _ = ReadErrors("/")
	}
}

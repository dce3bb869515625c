//go:build amd64 || arm64

package filelimit_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/filelimit"
)

// TestMain makes this test program one that says its limits.
func TestMain(m *testing.M) {
	if len(os.Args) != 2 || os.Args[1] != "limits" {
		os.Exit(m.Run())
	}
	var now unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &now)
	soft, hard := filelimit.OriginalLimits()
	fmt.Println(soft, hard, now.Cur, now.Max)
}

// TestBefore: Go has raised the limit, and the one before is known.
func TestBefore(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", "ulimit -Sn 500; ulimit -Hn 600; exec /proc/$0/exe limits", fmt.Sprint(os.Getpid()))
	out, err := cmd.Output()
	if err != nil || string(out) != "500 600 599 600\n" {
		t.Errorf("%v: %s", err, out)
	}
}

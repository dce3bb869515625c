package launch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// roleExec LIBRARY COMMAND…: what gpuard does between start and command. LIBRARY is a file that a driver library opens.
func roleExec(args []string) error {
	before := OpenDescriptors()
	for range 3 {
		if _, err := unix.Open(args[0], unix.O_RDONLY, 0); err != nil { // no O_CLOEXEC, as libraries do
			return err
		}
	}
	lock, err := os.Open(args[0])
	if err != nil {
		return err
	}
	keep, err := DupInheritable(lock)
	if err != nil {
		return err
	}
	path, err := FindCommand(args[1])
	if err != nil {
		return err
	}
	return Exec(path, args[1:], []string{"ONE=1", "TWO=a b\nc", "ONE=again"}, before, keep, nil)
}

// launched runs a command through Exec below a shell that first runs prepare, and returns what it prints.
func launched(t *testing.T, prepare string, extra []*os.File, command ...string) string {
	t.Helper()
	library := filepath.Join(t.TempDir(), "library")
	if err := os.WriteFile(library, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", append([]string{"-c", prepare + "\nexec \"$0\" \"$@\"", self(t), library}, command...)...)
	cmd.Env = append(os.Environ(), roleVar+"=exec")
	cmd.ExtraFiles = extra
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v: %s", command, err, out)
	}
	return string(out)
}

func TestExecEnvironment(t *testing.T) {
	if got := launched(t, "", nil, "env", "-0"); got != "ONE=1\x00TWO=a b\nc\x00ONE=again\x00" {
		t.Errorf("the command sees %q", got)
	}
	if got := launched(t, "", nil, "sh", "-c", `echo "$0,$#,$1,$2"`, "name", "", "x y"); got != "name,2,,x y\n" {
		t.Errorf("the command's arguments are %q", got)
	}
}

// signals returns one of the signal sets of /proc/PID/status.
func signals(t *testing.T, status, set string) (names []string) {
	t.Helper()
	_, rest, found := strings.Cut(status, set+":\t")
	mask, err := strconv.ParseUint(strings.Fields(rest + " x")[0], 16, 64)
	if !found || err != nil {
		t.Fatalf("no %s in %q", set, status)
	}
	for sig := 1; sig <= 64; sig++ {
		if mask>>(sig-1)&1 != 0 {
			names = append(names, unix.SignalName(unix.Signal(sig)))
		}
	}
	return names
}

func TestExecSignals(t *testing.T) {
	here, err := exec.Command("cat", "/proc/self/status").Output()
	if err != nil {
		t.Fatal(err)
	}
	usual := signals(t, string(here), "SigBlk") // what the caller of the tests blocks stays so
	for _, tt := range []struct {
		prepare string
		want    []string
	}{
		{"", nil},
		{"trap '' HUP", []string{"SIGHUP"}},
		{"trap '' INT QUIT", []string{"SIGINT", "SIGQUIT"}}, // a background job of a shell without job control
		{"trap '' HUP INT QUIT", []string{"SIGHUP", "SIGINT", "SIGQUIT"}},
	} {
		status := launched(t, tt.prepare, nil, "cat", "/proc/self/status")
		if got := signals(t, status, "SigIgn"); !slices.Equal(got, tt.want) {
			t.Errorf("after %q the command ignores %v, want %v", tt.prepare, got, tt.want)
		}
		if got := signals(t, status, "SigBlk"); !slices.Equal(got, usual) {
			t.Errorf("after %q the command blocks %v, want %v", tt.prepare, got, usual)
		}
	}
}

func TestExecDescriptors(t *testing.T) {
	caller := filepath.Join(t.TempDir(), "caller")
	file, err := os.Create(caller)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // empty
	listing := launched(t, "exec 9<&3", []*os.File{file}, "sh", "-c", `for f in /proc/$$/fd/*; do echo "${f##*/} $(readlink $f)"; done`)
	var numbers []string
	for _, line := range strings.Split(strings.TrimSpace(listing), "\n") {
		number, target, _ := strings.Cut(line, " ")
		n, _ := strconv.Atoi(number)
		switch {
		case filepath.Base(target) != "library" && filepath.Base(target) != "caller": // of the program that runs this test
		case filepath.Base(target) == "library" && n < lowestFD:
			t.Errorf("the library's descriptor %d is passed on", n)
		default:
			numbers = append(numbers, number+" "+filepath.Base(target))
		}
	}
	slices.Sort(numbers)
	if want := []string{"200 library", "3 caller", "9 caller"}; !slices.Equal(numbers, want) {
		t.Errorf("the command has %q, want %q (the lease, and what the caller passed on)", numbers, want)
	}
}

func TestExecLimit(t *testing.T) {
	limits := launched(t, "ulimit -Sn 300", nil, "cat", "/proc/self/limits")
	i := strings.Index(limits, "Max open files")
	if i < 0 || strings.Fields(limits[i:])[3] != "300" {
		t.Errorf("the soft limit of open files was 300: %s", limits)
	}
}

// A script without "#!" is the shell's, as with execvp; a broken file is an error that names it.
func TestExecScript(t *testing.T) {
	dir := t.TempDir()
	script, broken := filepath.Join(dir, "script"), filepath.Join(dir, "broken")
	for path, content := range map[string]string{script: `echo "$0|$1|$#"`, broken: "#!/no/such/interpreter\n"} {
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil { //nolint:gosec // a command
			t.Fatal(err)
		}
	}
	if got := launched(t, "", nil, script, "a b"); got != script+"|a b|1\n" {
		t.Errorf("the script prints %q", got)
	}
	err := Exec(broken, []string{broken}, nil, nil, -1, nil)
	if _, ok := err.(*NotExecutableError); !ok || !strings.Contains(err.Error(), broken) { //nolint:errorlint // the type itself
		t.Errorf("%v", fmt.Sprint(err))
	}
}

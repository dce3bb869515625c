package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func question(script string, env ...string) Question {
	return Question{Path: "/bin/sh", Args: []string{"the name", "-c", script}, Env: append([]string{"PATH=/usr/bin:/bin"}, env...), Dir: "/"}
}

func TestAsk(t *testing.T) {
	q := question(`echo "$0 $X $(pwd)"; cat; echo unheard >&2`, "X=first", "X=last")
	q.Dir = t.TempDir()
	out, err := AskQuestion(t.Context(), q)
	if want := fmt.Sprintf("the name first %s\n", q.Dir); err != nil || string(out) != want {
		t.Errorf("%q %v, want %q", out, err, want)
	}
	out, err = AskQuestion(t.Context(), question("echo part; echo why >&2; echo really why >&2; exit 3"))
	if string(out) != "part\n" || err == nil || err.Error() != "exit status 3: really why" {
		t.Errorf("%q %v", out, err)
	}
	if _, err := AskQuestion(t.Context(), Question{Path: "/no/such/file", Args: []string{"x"}}); err == nil {
		t.Error("a missing program was started")
	}
	out, err = AskQuestion(t.Context(), question("head -c 3000000 /dev/zero | tr '\\0' x"))
	if len(out) != maxAnswerSize || err != nil {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

// TestAskLate: at the deadline the whole group is gone.
func TestAskLate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for {
			if said, _ := os.ReadFile(file); strings.Count(string(said), "\n") == 2 {
				cancel()
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	_, err := AskQuestion(ctx, question(fmt.Sprintf("sleep 600 & echo $! >> %s; echo $$ >> %[1]s; wait", file)))
	if err == nil || err.Error() != "no answer in time" {
		t.Fatal(err)
	}
	said, _ := os.ReadFile(file)
	for word := range strings.FieldsSeq(string(said)) {
		var pid int
		_, _ = fmt.Sscan(word, &pid)
		for end := time.Now().Add(10 * time.Second); unix.Kill(pid, 0) == nil && !zombie(pid); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("process %d lives on", pid)
			}
		}
	}
}

func zombie(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return strings.Contains(string(stat), ") Z ")
}

// TestAskOf: the program and the folder of a process, and of no other that gets its number.
func TestAskOf(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "read line")
	cmd.Dir = t.TempDir()
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	var stat string
	same := func(procfs string, number int) bool {
		text, err := os.ReadFile(fmt.Sprintf("%s/%d/stat", procfs, number))
		stat = string(text)
		return err == nil
	}
	q := question("pwd; ls -l /proc/$$/exe /proc/$$/fd")
	q.Path = ""
	open, err := q.UseProgramOf(pid, same)
	if err != nil || !strings.HasPrefix(stat, fmt.Sprintf("%d (", pid)) {
		t.Fatalf("%v, %q", err, stat)
	}
	out, err := AskQuestion(t.Context(), q)
	program, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil || !strings.HasPrefix(string(out), cmd.Dir+"\n") || !strings.Contains(string(out), "-> "+program+"\n") {
		t.Errorf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), fmt.Sprintf("/proc/%d\n", pid)) {
		t.Errorf("the one that was asked has our descriptors:\n%s", out)
	}
	if _, err := q.UseProgramOf(pid, func(string, int) bool { return false }); err == nil || !strings.Contains(err.Error(), "not the same process") {
		t.Errorf("another process was taken: %v", err)
	}
	_, _ = in.Close(), cmd.Wait()
	if _, err := AskQuestion(t.Context(), q); err == nil {
		t.Error("the folder of a process that is gone was found")
	}
	_ = open.Close()
	if _, err := q.UseProgramOf(pid, same); err == nil {
		t.Error("a process that is gone was found")
	}
}

package proctree

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/test/apart"
)

const roleVar = "GPUARD_TREE_ROLE"

// The tests need a process that adopts its descendants: this binary again, in a role.
func TestMain(m *testing.M) {
	apart.RunIfWatcher()
	if os.Getenv(roleVar) == "" {
		os.Exit(apart.Run(m))
	}
	if err := adopter(os.Args[1:]); err != nil {
		fmt.Println("error:", err)
		os.Exit(3)
	}
}

// adopter SPARED SCRIPT…: starts the script, obeys the lines of its standard input, and ends with it.
func adopter(args []string) error {
	var command int
	called := func(name string) func(pid int) bool {
		return func(pid int) bool {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			return strings.HasSuffix(string(line), "\x00"+name+"\x00")
		}
	}
	t := AdoptOrphans(func(pid int) bool { return pid == command }, called(args[0]), called("keeper"))
	leave := sync.OnceFunc(t.StopReaping)
	defer leave()
	cmd := exec.Command("sh", "-c", strings.Join(args[1:], " "))
	cmd.Stderr = os.Stderr
	cmd.Env = slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, roleVar) })
	if group := t.NewGroup(); group != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	command = cmd.Process.Pid
	go cmd.Wait() //nolint:errcheck // how it ended does not matter
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "members":
			fmt.Println(len(t.Members()))
		case "term":
			fmt.Println(t.SignalAll("SIGTERM"))
		case "kill":
			fmt.Println(t.Kill(10 * time.Second))
		case "end", "end at once":
			ctx, over := context.WithCancel(context.Background())
			if in.Text() == "end at once" {
				over()
			}
			go func() { // kills when the file is there
				for _, err := os.Stat(args[0]); err != nil && ctx.Err() == nil; _, err = os.Stat(args[0]) {
					time.Sleep(time.Millisecond)
				}
				over()
			}()
			fmt.Println(t.End(ctx, "SIGTERM", 10*time.Second))
			over()
		case "kill while starting":
			fmt.Println(killWhileStarting(t))
		case "leave":
			leave()
			fmt.Println()
		case "true":
			fmt.Println(exec.Command("sh", "-c", "exit 4").Run())
		}
	}
	return nil
}

// killWhileStarting kills the members again and again, while this process starts others and collects garbage all the time.
func killWhileStarting(t *Tree) error {
	over := make(chan struct{})
	var work sync.WaitGroup
	repeat := func(do func()) {
		work.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					do()
				}
			}
		})
	}

	for range 4 {
		repeat(func() {
			cmd := exec.Command("true")
			// Of root, a start that takes long.
			cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET}
			_ = cmd.Run()
		})
	}
	repeat(func() {
		runtime.GC()
		time.Sleep(30 * time.Millisecond)
	})

	var err error
	for end := time.Now().Add(3 * time.Second); err == nil && time.Now().Before(end); {
		err = t.Kill(0)
		if err != nil && strings.Contains(err.Error(), "they do not die") {
			// New ones are started all the time.
			err = nil
		}
	}

	close(over)
	work.Wait()

	return err
}

// ask starts the role and returns a function that sends it a line and returns its answer.
func ask(t *testing.T, spared, script string) func(line string) string {
	t.Helper()
	return askAs(t, exec.Command("/proc/self/exe", spared, script))
}

// askAs is ask for a command that is, or becomes, this binary.
func askAs(t *testing.T, cmd *exec.Cmd) func(line string) string {
	t.Helper()
	cmd.Env = append(os.Environ(), roleVar+"=1")
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := cmd.Start(); err1 != nil || err2 != nil || err != nil {
		t.Fatal(err1, err2, err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	lines := bufio.NewReader(out)
	return func(line string) string {
		t.Helper()
		fmt.Fprintln(in, line)
		answer, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(answer)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still not so after 20 s: %s", what)
		}
	}
}

// TestKill: all descendants end, whatever they did to get away; spared ones live on, with their descendants.
func TestKill(t *testing.T) {
	file := t.TempDir() + "/spared"
	tell := ask(t, "spared-one", `trap "" TERM
(setsid sleep 1100 &)
setsid sh -c 'trap "" TERM; (sleep 1101 &); sleep 1102' &
(sh -c 'sleep 1103 & echo $! >`+file+`; wait' spared-one &)
wait; sleep 1104`)
	// sh, sleep 1100, setsid's sh, 1101, 1102
	eventually(t, "all are there", func() bool {
		b, _ := os.ReadFile(file)
		return tell("members") == "5" && len(b) > 0
	})
	b, _ := os.ReadFile(file)
	spared, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(spared, unix.SIGKILL) })
	if got := tell("term"); got != "true" {
		t.Errorf("nobody was told: %s", got)
	}
	if got := tell("kill"); got != "<nil>" {
		t.Error(got)
	}
	if got := tell("members"); got != "0" {
		t.Errorf("%s live", got)
	}
	if err := unix.Kill(spared, 0); err != nil {
		t.Error("what is spared was ended")
	}
	if got := tell("term"); got != "false" {
		t.Error("there is somebody to tell")
	}
}

// TestEnd: all are asked to end, have time for that until the context ends, and are killed then.
func TestEnd(t *testing.T) {
	for name, c := range map[string]struct {
		order string
		trap  string // what a process does that is asked; FILE has it killed
		wrote string
	}{
		"obeys":        {"end", "echo tidied up >WROTE; exit", "tidied up\n"},
		"is deaf":      {"end", "echo deaf >WROTE; touch FILE", "deaf\n"},
		"is not asked": {"end at once", "echo asked >WROTE", ""},
	} {
		file, wrote := t.TempDir()+"/kill", t.TempDir()+"/wrote"
		trap := strings.NewReplacer("FILE", file, "WROTE", wrote).Replace(c.trap)
		tell := ask(t, file, "setsid sh -c 'trap \""+trap+"\" TERM; touch "+wrote+".on; while :; do sleep 0.01; done' & wait; exit 0")
		eventually(t, "it listens", func() bool { _, err := os.Stat(wrote + ".on"); return err == nil })
		if got := tell(c.order); got != "<nil>" {
			t.Errorf("%s: %s", name, got)
		}
		text, _ := os.ReadFile(wrote)
		if got := tell("members"); got != "0" || string(text) != c.wrote {
			t.Errorf("%s: %s live, and it wrote %q", name, got, text)
		}
	}
}

// TestKept: what is below a keeper is left to it, and killed with it.
func TestKept(t *testing.T) {
	tell := ask(t, "nobody", `exec sh -c 'trap : TERM; sleep 1400 & while kill -0 $!; do wait; done' keeper`)
	eventually(t, "both are there", func() bool { return tell("members") == "2" })
	if got := tell("term"); got != "true" {
		t.Errorf("nobody was told: %s", got)
	}
	for range 20 {
		if got := tell("members"); got != "2" {
			t.Fatalf("%s live of the keeper and what it keeps", got)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if got := tell("kill"); got != "<nil>" {
		t.Error(got)
	}
	if got := tell("members"); got != "0" {
		t.Errorf("%s live", got)
	}
}

// TestBefore: children from before Adopt are not part of the tree: a script started them and then became this program.
func TestBefore(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := t.TempDir() + "/mine"
	tell := askAs(t, exec.Command("sh", "-c", `sleep 60 & echo $! >"$0"; exec "$@"`, file, self, "nobody", "sleep 61; sleep 62"))
	eventually(t, "the command and its sleep are there", func() bool { return tell("members") == "2" })
	if got := tell("kill"); got != "<nil>" {
		t.Error(got)
	}
	b, err := os.ReadFile(file)
	mine, bad := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || bad != nil {
		t.Fatal(err, bad)
	}
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", mine)); err != nil || strings.Contains(string(stat), ") Z") || strings.Contains(string(stat), ") T") {
		t.Errorf("what was there before was ended or stopped: %s, %v", stat, err)
	}
	_ = unix.Kill(mine, unix.SIGKILL)
}

// TestKillForks: processes that fork all the time are ended too.
func TestKillForks(t *testing.T) {
	tell := ask(t, "nobody", `f() { (sleep 0.01; f) & (sleep 0.01; sleep 1200) & }; for i in 1 2 3 4; do f; done; wait`)
	eventually(t, "there are many", func() bool { n, _ := strconv.Atoi(tell("members")); return n > 20 })
	if got := tell("kill"); got != "<nil>" {
		t.Error(got)
	}
	if got := tell("members"); got != "0" {
		t.Errorf("%s live", got)
	}
}

// TestKillWhileStarting: a child that this process is just starting has its memory until it is another program. If it were stopped, the
// thread that starts it would stand still, and with the next collection of garbage the whole process.
func TestKillWhileStarting(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "nobody", "sleep 1200")
	tell := askAs(t, cmd)
	answer := make(chan string, 1)
	go func() { answer <- tell("kill while starting") }()
	select {
	case got := <-answer:
		if got != "<nil>" {
			t.Error(got)
		}
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill()
		t.Fatal("it stands still")
	}
}

// TestChildren: a caller that starts a child with os/exec still gets its exit status.
func TestChildren(t *testing.T) {
	tell := ask(t, "nobody", "for i in 1 2 3 4 5 6 7 8 9; do (sleep 0.1 &); done; sleep 1300")
	for range 50 {
		if got := tell("true"); got != "exit status 4" {
			t.Fatal(got)
		}
	}
	tell("kill")
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/affinity"
)

// rankReport is what a rank says of itself.
type rankReport struct {
	PID, Parent int
	Env         map[string]string
	CPUs        []int
	Input       string
	Lease       bool // it has the lease's descriptor
	Sockets     int
}

// runRank is the program of these tests. It writes what it sees into the folder of its first argument, and waits there for
// a file "go" unless another argument says what this rank does: "2:exit:3", "1:kill", "0:deaf", "0:input". It ends when
// the folder is gone, or when every test has lost its patience: ranks live on without their leader.
func runRank() {
	time.AfterFunc(90*time.Second, func() { os.Exit(97) })
	dir, number := os.Args[1], os.Getenv("RANK")
	does := "wait"
	for _, arg := range os.Args[2:] {
		if rest, mine := strings.CutPrefix(arg, number+":"); mine {
			does = rest
		}
	}
	got := make(chan os.Signal, 64)
	signal.Notify(got, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGUSR1)
	me := rankReport{PID: os.Getpid(), Parent: os.Getppid(), Env: map[string]string{}}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		me.Env[name] = value
	}
	me.CPUs, _ = affinity.AllowedCPUs()
	if does == "input" || number != "0" { // of rank 0 it may be a terminal
		text, _ := io.ReadAll(os.Stdin)
		me.Input = string(text)
	}
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		target, _ := os.Readlink("/proc/self/fd/" + e.Name())
		me.Lease = me.Lease || strings.HasSuffix(target, ".lock")
		if strings.HasPrefix(target, "socket:") {
			me.Sockets++
		}
	}
	note := func(name string, text []byte) {
		part := filepath.Join(dir, "."+name+number)
		if err := os.WriteFile(part, text, 0o600); err != nil || os.Rename(part, filepath.Join(dir, name+number)) != nil {
			os.Exit(99)
		}
	}
	if does == "lost" {
		loseOutput(filepath.Join(dir, "output"+number))
	}
	text, _ := json.Marshal(me)
	note("on", text)
	if code, exits := strings.CutPrefix(does, "exit:"); exits {
		waitForRankFiles(dir, "on", me.Env["WORLD_SIZE"])
		n, _ := strconv.Atoi(code)
		os.Exit(n)
	}
	if does == "kill" {
		waitForRankFiles(dir, "on", me.Env["WORLD_SIZE"])
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	switch does {
	case "meet":
		waitForRankFiles(dir, "on", me.Env["WORLD_SIZE"]) // who does not connect has said its last line by then
		joinRankPort(number == "0")
	case "come":
		joinRankPort(false)
	}
	heard := ""
	tick := time.NewTicker(10 * time.Millisecond)
	for {
		select {
		case sig := <-got:
			heard += unix.SignalName(sig.(syscall.Signal)) + " "
			note("got", []byte(heard))
			if sig == unix.SIGTERM && does != "deaf" {
				os.Exit(143)
			}
		case <-tick.C:
			if _, err := os.Stat(filepath.Join(dir, "go")); err == nil {
				os.Exit(0)
			}
			if _, err := os.Stat(dir); err != nil {
				os.Exit(98)
			}
		}
	}
}

// joinRankPort listens at the port of the ranks, or connects to it and stays connected.
func joinRankPort(host bool) {
	address := net.JoinHostPort(os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT"))
	if host {
		l, err := listenReusingPort(address)
		if err != nil {
			os.Exit(96)
		}
		go func() {
			for {
				if _, err := l.Accept(); err != nil {
					return
				}
			}
		}()
		return
	}
	for {
		if c, err := net.Dial("tcp", address); err == nil {
			go func() { _, _ = io.ReadAll(c) }()
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// listenReusingPort listens on the port that gpuard keeps, as libraries do.
func listenReusingPort(address string) (net.Listener, error) {
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
	}}
	return c.Listen(context.Background(), "tcp", address)
}

// loseOutput writes into a file of its own and does not connect.
func loseOutput(path string) {
	file, err := os.Create(path)
	if err != nil || unix.Dup3(int(file.Fd()), 1, 0) != nil {
		os.Exit(95)
	}
	fmt.Print("import torch\nreading /data/shard-7\n\n")
}

// TestRanksMissing: a rank that does not connect while the others do is named with its last line, as text and as JSON;
// ranks that have all connected, and those that meet in no such way, are not.
func TestRanksMissing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		flags string
		does  []string
		want  []string
	}{
		"lost":      {"--gpus 3 --ranks --machine demo", []string{"0:meet", "1:meet", "2:lost"}, []string{"gpuard: rank 2 (PID ", " has not joined the others for 1.5s: it has no connection to port ", ", where rank 0 waits; it ", "; its last line: \"reading /data/shard-7\"\n"}},
		"silent":    {"--gpus 3 --ranks --machine demo", []string{"0:meet", "1:wait", "2:meet"}, []string{"gpuard: rank 1 (PID ", "see where: py-spy dump --pid "}},
		"JSON":      {"--gpus 2 --ranks --machine demo --json", []string{"0:meet", "1:lost"}, []string{`{"schema":"gpuard.run-missing/1","rank":1,"pid":`, `"last":"reading /data/shard-7"}`}},
		"all":       {"--gpus 2 --ranks --machine demo", []string{"0:meet", "1:meet"}, nil},
		"elsewhere": {"--gpus 2 --ranks --machine demo", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, _ := strconv.Atoi(strings.Fields(test.flags)[1])
			c := startRanks(t, stateFolder(t), n, test.flags, []string{"HASTE=1"}, test.does...)
			c.waitForReports()
			if test.want == nil {
				time.Sleep(3 * time.Second)
				if said := c.errorText(); strings.Contains(said, "joined") {
					t.Errorf("said %s", said)
				}
				return
			}
			waitUntil(t, "the missing rank is named", func() bool { return strings.Contains(c.errorText(), test.want[len(test.want)-1]) })
			checkContains(t, c.errorText(), test.want...)
		})
	}
}

// TestRanksExplained: a rank with its own device is no job that leaves a device of its lease unused.
func TestRanksExplained(t *testing.T) {
	t.Parallel()
	state := stateFolder(t)
	c := startRanks(t, state, 2, "-q --machine demo --gpus 2 --ranks=own", nil)
	for i, rank := range c.waitForReports() {
		got := runCommand(t, gpuardCommand(t, state, nil, "explain", "--machine", "demo", strconv.Itoa(rank.PID)))
		checkContains(t, got.out, fmt.Sprintf("for another rank (--ranks=own): this process is rank %d", i))
		if strings.Contains(got.out, "unused") || strings.Contains(got.out, "is not what the lease holds") {
			t.Errorf("rank %d: %s", i, got.out)
		}
	}
}

// waitForRankFiles waits until every rank of that many has written its file.
func waitForRankFiles(dir, name, size string) {
	n, _ := strconv.Atoi(size)
	for i := range n {
		for {
			if _, err := os.Stat(filepath.Join(dir, name+strconv.Itoa(i))); err == nil {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// rankRun is a run with ranks.
type rankRun struct {
	t   *testing.T
	cmd *exec.Cmd
	dir string
	n   int
}

// errorText is what gpuard and the ranks wrote as errors. It goes into a file: ranks that outlive their leader keep a pipe
// open.
func (c *rankRun) errorText() string {
	text, _ := os.ReadFile(filepath.Join(c.dir, "errors"))
	return string(text)
}

// startRanks starts n ranks; flags come before the command and does after it.
func startRanks(t *testing.T, state string, n int, flags string, env []string, does ...string) *rankRun {
	t.Helper()
	c := &rankRun{t: t, dir: t.TempDir(), n: n}
	args := append([]string{"run"}, strings.Fields(flags)...)
	c.cmd = gpuardCommand(t, state, env, append(append(args, "--", "rank", c.dir), does...)...)
	if slices.Contains(env, "HASTE=1") {
		c.cmd.Args[0] = "hasty"
	}
	return c.startCommand()
}

// startCommand starts its command.
func (c *rankRun) startCommand() *rankRun {
	t, n := c.t, c.n
	t.Helper()
	errs, err := os.Create(filepath.Join(c.dir, "errors"))
	if err != nil {
		t.Fatal(err)
	}
	defer errs.Close() //nolint:errcheck // the program has it
	c.cmd.Stderr = errs
	c.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = os.WriteFile(filepath.Join(c.dir, "go"), nil, 0o600)
		_, _ = c.cmd.Process.Kill(), c.cmd.Wait()
		for i := range n {
			text, _ := os.ReadFile(filepath.Join(c.dir, fmt.Sprint("on", i)))
			if s := (rankReport{}); json.Unmarshal(text, &s) == nil {
				waitUntil(t, fmt.Sprintf("rank %d is gone", i), func() bool { return isProcessGone(strconv.Itoa(s.PID)) })
			}
		}
	})
	return c
}

// waitForReports waits until all have begun.
func (c *rankRun) waitForReports() (out []rankReport) {
	c.t.Helper()
	for i := range c.n {
		waitUntil(c.t, fmt.Sprintf("rank %d runs; said: %s", i, c.errorText()), func() bool {
			_, err := os.Stat(filepath.Join(c.dir, fmt.Sprint("on", i)))
			return err == nil
		})
		var s rankReport
		text, err := os.ReadFile(filepath.Join(c.dir, fmt.Sprint("on", i)))
		if err == nil {
			err = json.Unmarshal(text, &s)
		}
		if err != nil {
			c.t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

// signalsOf is what a rank got so far: "SIGTERM SIGINT ".
func (c *rankRun) signalsOf(rank int) string {
	text, _ := os.ReadFile(filepath.Join(c.dir, fmt.Sprint("got", rank)))
	return string(text)
}

// endRanks lets all ranks end, and returns how the run did.
func (c *rankRun) endRanks() *os.ProcessState {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, "go"), nil, 0o600); err != nil {
		c.t.Fatal(err)
	}
	_ = c.cmd.Wait()
	return c.cmd.ProcessState
}

// TestRanks: four processes with their ranks, with all devices or each with its own; gpuard's process leads them.
func TestRanks(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{false, true} {
		t.Run(fmt.Sprint("own ", own), func(t *testing.T) {
			t.Parallel()
			state, flags := stateFolder(t), "--machine demo:8xA100-80GB --gpus 4 --json --ranks"
			if own {
				flags += "=own"
			}
			c := startRanks(t, state, 4, flags, []string{"TORCHELASTIC_USE_AGENT_STORE=True", "RANK=9", "MASTER_PORT=1", "OMP_NUM_THREADS="})
			port, devices := "", map[string]bool{}
			for i, s := range c.waitForReports() {
				checkEqual(t, "parent", s.Parent, c.cmd.Process.Pid)
				checkEqual(t, "has the lease", s.Lease, true)
				checkEqual(t, "sockets", s.Sockets, 0)
				for name, want := range map[string]string{
					"RANK": fmt.Sprint(i), "LOCAL_RANK": fmt.Sprint(i), "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "0",
					"NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "", "GPUARD_RANKS": "", "TORCHELASTIC_USE_AGENT_STORE": "",
				} {
					checkEqual(t, name, s.Env[name], want)
				}
				if port == "" {
					port = s.Env["MASTER_PORT"]
				}
				checkEqual(t, "port", s.Env["MASTER_PORT"], port)
				devices[s.Env["CUDA_VISIBLE_DEVICES"]+" "+s.Env["GPUARD_GPUS"]] = true
				count := 4
				if own {
					count = 1
				}
				for _, name := range []string{"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "GPUARD_GPUS"} {
					checkEqual(t, name, len(strings.Split(s.Env[name], ",")), count)
				}
			}
			want := 1
			if own {
				want = 4
			}
			checkEqual(t, "different sets of devices", len(devices), want)
			n, _ := strconv.Atoi(port)
			checkEqual(t, "the port is taken", isPortTaken(t, n), true)
			checkEqual(t, "exit", c.endRanks().ExitCode(), 0)
			checkContains(t, c.errorText(), `"ranks":{"by":"gpuard","count":4,`, `"port":`+port+`,`, fmt.Sprintf(`"pid":%d,`, c.cmd.Process.Pid))
			waitUntil(t, "the port is free", func() bool { return !isPortTaken(t, n) }) // the holder may be there a moment longer
		})
	}
}

// isPortTaken reports whether a program that shares no port can have this one.
func isPortTaken(t *testing.T, number int) bool {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd) //nolint:errcheck // a test's
	return unix.Bind(fd, &unix.SockaddrInet4{Port: number, Addr: [4]byte{127, 0, 0, 1}}) != nil
}

// TestRankFails: when one fails the others are told to end, and killed when they do not; the run ends as that one did.
func TestRankFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		flags, does string
		code        int
		heard, said string
	}{
		"exit":   {"--ranks", "2:exit:3", 3, "SIGTERM ", ") ended with exit code 3; ending the other 3\n"},
		"killed": {"--ranks", "2:kill", -1, "SIGTERM ", ") ended by SIGKILL; ending the other 3\n"},
		"deaf":   {"--ranks --grace 4s", "2:exit:4 0:deaf", 4, "SIGTERM ", ") ended with exit code 4; ending the other 3\n"},
		"quiet":  {"-q --ranks", "2:exit:5", 5, "SIGTERM ", ") ended with exit code 5; ending the other 3\n"},
		"json":   {"--json --ranks", "2:exit:6", 6, "SIGTERM ", `,"exit":6,"signal":"","others":3}` + "\n"},
		"beside": {"--ranks --timeout 1h", "2:exit:7", 7, "SIGTERM ", ") ended with exit code 7; ending the other 3\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := stateFolder(t)
			c := startRanks(t, state, 4, "--machine demo:8xA100-80GB --gpus 4 "+test.flags, nil, strings.Fields(test.does)...)
			ranks := c.waitForReports()
			_ = c.cmd.Wait()
			checkEqual(t, "exit", c.cmd.ProcessState.ExitCode(), test.code)
			if status, _ := c.cmd.ProcessState.Sys().(syscall.WaitStatus); test.code < 0 {
				checkEqual(t, "signal", status.Signal(), syscall.SIGKILL)
			}
			for _, i := range []int{0, 1, 3} {
				checkEqual(t, fmt.Sprintf("rank %d got", i), c.signalsOf(i), test.heard)
				checkEqual(t, "gone", isProcessGone(strconv.Itoa(ranks[i].PID)), true)
			}
			checkContains(t, c.errorText(), fmt.Sprint(ranks[2].PID)+test.said[:1], test.said)
			checkEqual(t, "lines about ranks", strings.Count(c.errorText(), "ending the other")+strings.Count(c.errorText(), `"others":`), 1)
		})
	}
}

// TestRankLeaves: processes that an ended rank leaves behind are ended too: a shell does not pass SIGTERM on to its
// program. Processes that the script around it has started before are not part of a rank.
func TestRankLeaves(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo")
	dir := t.TempDir()
	cmd := exec.Command("sh", "-c", `sleep 60 >/dev/null 2>&1 & echo $! >before; exec gpuard run -q --machine demo --gpus 2 --grace 300ms --ranks -- sh -c '
if [ $RANK = 1 ]; then while ! test -s left; do sleep 0.1; done; exit 9; fi
(trap "" TERM; exec sleep 60) & echo $! >deaf; sleep 60 & echo $! >left; wait; sleep 1'`)
	cmd.Env, cmd.Dir = gpuardCommand(t, r.state, nil).Env, dir
	got := runCommand(t, cmd)
	checkEqual(t, "exit", got.code, 9)
	for _, name := range []string{"left", "deaf"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		checkEqual(t, name+" is gone", isProcessGone(strings.TrimSpace(string(text))), true)
	}
	text, err := os.ReadFile(filepath.Join(dir, "before"))
	before, bad := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || bad != nil {
		t.Fatal(err, bad)
	}
	checkEqual(t, "what was there before is gone", isProcessGone(strconv.Itoa(before)), false)
	_ = unix.Kill(before, unix.SIGKILL)
	r.waitUntilFreed()
}

// TestRankSignals: each rank gets a signal once, whether it was sent to gpuard or to the whole group, and takes the
// time it wants for it; the run then ends as they do.
func TestRankSignals(t *testing.T) {
	t.Parallel()
	for _, flags := range []string{"", "--timeout 1h "} {
		for _, group := range []bool{false, true} {
			t.Run(fmt.Sprint(flags, "group ", group), func(t *testing.T) {
				t.Parallel()
				c := startRanks(t, stateFolder(t), 3, flags+"-q --machine demo --gpus 3 --ranks", nil)
				ranks := c.waitForReports()
				target := c.cmd.Process.Pid // which has a process group of its own
				if group {
					target = -target
				}
				want := ""
				for _, sig := range []unix.Signal{unix.SIGUSR1, unix.SIGINT, unix.SIGUSR1, unix.SIGHUP, unix.SIGTERM} {
					if err := unix.Kill(target, sig); err != nil {
						t.Fatal(err)
					}
					want += unix.SignalName(sig) + " "
					for i := range ranks {
						waitUntil(t, fmt.Sprintf("rank %d got %s", i, want), func() bool { return len(c.signalsOf(i)) >= len(want) })
					}
				}
				_ = c.cmd.Wait()
				checkEqual(t, "exit", c.cmd.ProcessState.ExitCode(), 143)
				for i := range ranks {
					checkEqual(t, fmt.Sprintf("rank %d", i), c.signalsOf(i), want)
				}
				checkEqual(t, "said", c.errorText() == "" || flags != "", true)
			})
		}
	}
}

// TestRankInput: the first rank has the input, the others none.
func TestRankInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := gpuardCommand(t, stateFolder(t), nil, "run", "-q", "--cpu", "--nproc", "3", "--ranks", "--", "rank", dir, "0:input")
	cmd.Stdin = strings.NewReader("hello")
	got := runCommand(t, cmd)
	checkEqual(t, "exit", got, runResult{0, "", ""})
	for i, want := range []string{"hello", "", ""} {
		var s rankReport
		text, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("on", i)))
		if err != nil || json.Unmarshal(text, &s) != nil {
			t.Fatal(err)
		}
		checkEqual(t, "input", s.Input, want)
		checkEqual(t, "devices", s.Env["CUDA_VISIBLE_DEVICES"], "-1")
	}
}

// TestRanksKilled: a leader that dies does not take its ranks with it, and the lease lives as long as one of them.
func TestRanksKilled(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo")
	c := startRanks(t, r.state, 2, "-q --machine demo --gpus 4 --ranks --nproc 2", nil)
	ranks := c.waitForReports()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.cmd.Wait()
	if got := runCommand(t, r.jobCommand("true")); got.code != 120 {
		t.Errorf("the devices of ranks that run were given away: exit %d", got.code)
	}
	for _, s := range ranks {
		checkEqual(t, "alive", isProcessGone(strconv.Itoa(s.PID)), false)
	}
	c.endRanks()
	r.waitUntilFreed()
}

// TestTwoCrews: jobs at the same time have different ports and devices, also many that start together.
func TestTwoCrews(t *testing.T) {
	t.Parallel()
	state := stateFolder(t)
	var mu sync.Mutex
	ports, devices := map[string]int{}, map[string]int{}
	var jobs []*rankRun
	for range 4 {
		jobs = append(jobs, startRanks(t, state, 2, "-q --machine demo:8xA100-80GB --gpus 2 --ranks=own", nil))
	}
	var wg sync.WaitGroup
	for _, c := range jobs {
		wg.Go(func() {
			for _, s := range c.waitForReports() {
				mu.Lock()
				ports[s.Env["MASTER_PORT"]]++
				devices[s.Env["GPUARD_GPUS"]]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	checkEqual(t, "ports", len(ports), 4)
	checkEqual(t, "devices", len(devices), 8)
	for _, c := range jobs {
		checkEqual(t, "exit", c.endRanks().ExitCode(), 0)
	}
}

// TestRankBinding: a rank runs on the processors of its device's node, as far as the caller may use them.
func TestRankBinding(t *testing.T) {
	t.Parallel()
	allowed, err := affinity.AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	node, err := affinity.NodeCPUs("/", 0)
	if err != nil {
		t.Skip(err)
	}
	last := allowed[len(allowed)-1:]
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := gpuardCommand(t, stateFolder(t), nil, "run", "--json", "--machine", "demo:2xL4", "--gpus", "2", "--ranks", "--", "rank", dir)
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := affinity.CallBound(last, -1, cmd.Start); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err, errs.String())
	}
	for i := range 2 {
		var s rankReport
		text, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("on", i)))
		if err != nil || json.Unmarshal(text, &s) != nil {
			t.Fatal(err)
		}
		checkEqual(t, "processors", s.CPUs, last)
		checkEqual(t, "threads", s.Env["OMP_NUM_THREADS"], "1")
	}
	t.Logf("node 0 is %s", strings.TrimSpace(node))
	if isCPUInList(node, last[0]) { // the first device of the demo machine is on node 0
		checkContains(t, errs.String(), fmt.Sprintf(`"cpus":["%d",`, last[0]))
	}
}

func isCPUInList(list string, cpu int) bool {
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		var from, to int
		if n, _ := fmt.Sscanf(part, "%d-%d", &from, &to); n == 1 {
			to = from
		}
		if from <= cpu && cpu <= to {
			return true
		}
	}
	return false
}

// TestRanksAgain: a crew that failed is started again as a whole, at the same port, and the log has all of it.
func TestRanksAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := gpuardCommand(t, stateFolder(t), nil, "run", "--machine", "demo", "--gpus", "2", "--ranks", "--retry", "1:any", "--log", filepath.Join(dir, "log"), "--",
		"sh", "-c", `echo "$GPUARD_RESTART rank $RANK at $MASTER_PORT"; [ -n "$GPUARD_RESTART" ] || [ $RANK = 0 ] || exit 3`)
	cmd.Args[0] = "hasty"
	got := runCommand(t, cmd)
	checkEqual(t, "exit", got.code, 0)
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.DeleteFunc(strings.Split(string(log), "\n"), func(l string) bool { return !strings.Contains(l, " at ") || strings.HasPrefix(l, "#") })
	checkContains(t, string(log), ": sh -c ", "rank 1 (PID ", "ended with exit code 3", " rank 0 at ", "1 rank 1 at ")
	_, port, _ := strings.Cut(lines[0], " at ")
	for _, line := range lines {
		if !strings.HasSuffix(line, " at "+port) {
			t.Errorf("%q is not at port %s", line, port)
		}
	}
}

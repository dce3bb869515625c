package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/userqueue"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/trend"
	"gpuard/internal/host/batch"
	"gpuard/internal/host/proc"
)

// jobOutcome is what is left of a job when it is over.
type jobOutcome struct {
	log    string // file of its output; "" none
	said   string // what else was said
	code   int    // its exit code; -1 when a signal ended it
	signal string // that ended it: "SIGKILL"; "" none
	name   string // by which it is shown
}

// allOutput is its output, and what gpuard said beside it. What verifies a job may say so a moment after the end of that.
func (o jobOutcome) allOutput() string {
	text, _ := os.ReadFile(o.log)
	return string(text) + o.said
}

// keeperCommand is a command of the program that keeps the jobs of the test.
func (l *queueFixture) keeperCommand(args ...string) *exec.Cmd {
	l.t.Helper()
	cmd := l.cmd(args...)
	cmd.Args[0] = l.program
	return cmd
}

// jobStarter has a script run by a command of gpuard, with these flags, until it is over.
type jobStarter struct {
	name  string
	start func(l *queueFixture, flags []string, script string) jobOutcome
}

// jobStarters are the commands that start a job, each of which makes the same promises.
func jobStarters() []jobStarter {
	return []jobStarter{
		{"run", func(l *queueFixture, flags []string, script string) jobOutcome {
			return runForOutcome(l.t, l.keeperCommand(append(append([]string{"run"}, withLogFile(l, flags)...), "--", "sh", "-c", script)...))
		}},
		{"submit", func(l *queueFixture, flags []string, script string) jobOutcome {
			got := runCommand(l.t, l.keeperCommand(append(append([]string{"submit", "-q"}, flags...), "--", "sh", "-c", script)...))
			number, err := strconv.Atoi(strings.TrimSpace(got.out))
			if err != nil {
				l.t.Errorf("submit: %+v", got)
				return jobOutcome{}
			}
			l.waitUntilAllEnded()
			job := l.endedJobs()[number-1]
			out := newJobOutcome(job.Log, job.Exit, job.Signal)
			out.name = " " + job.Name + " "
			return out
		}},
		{"sweep", func(l *queueFixture, flags []string, script string) jobOutcome {
			dir := filepath.Join(quietDir(l.t), "sweep")
			if i := slices.Index(flags, "--name"); i >= 0 { // its runs have the name of their program
				flags = slices.Delete(flags, i, i+2)
			}
			got := runCommand(l.t, l.keeperCommand(append(append([]string{"sweep", "-q", "--over", "a=1", "--dir", dir}, flags...), "--", "sh", "-c", ": {{.a}}; "+script)...))
			var results struct {
				Runs []struct {
					Exit        *int
					Signal, Log string
				}
			}
			text, err := os.ReadFile(filepath.Join(dir, "results.json"))
			if err == nil {
				err = json.Unmarshal(text, &results)
			}
			if err != nil || len(results.Runs) != 1 {
				l.t.Errorf("sweep: %v, %s, %+v", err, text, got)
				return jobOutcome{}
			}
			one := results.Runs[0]
			out := newJobOutcome(filepath.Join(dir, one.Log), one.Exit, one.Signal)
			out.said += got.err
			out.name = " sh "
			return out
		}},
		{"up", runAsService},
		{"docker", func(l *queueFixture, flags []string, script string) jobOutcome {
			bin := l.t.TempDir()
			installStubDocker(l.t, bin, "stubengine")
			cmd := l.keeperCommand(slices.Concat([]string{"docker"}, withLogFile(l, flags), []string{"--", "run", "--rm", "image", "sh", "-c", script})...)
			cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"), "DOCKER_HOST=unix:///none")
			out := runForOutcome(l.t, cmd)
			if out.code > 128 { // as an engine says it
				out.code, out.signal = -1, unix.SignalName(syscall.Signal(out.code-128))
			}
			return out
		}},
		{"a nested run", func(l *queueFixture, flags []string, script string) jobOutcome {
			return runForOutcome(l.t, l.keeperCommand(slices.Concat([]string{"run", "-q", "--gpus", "2", "--", "sh", "-c", "exec " + l.program + ` run $PRIVATE "$@"`, "sh"}, withLogFile(l, flags), []string{"--", "sh", "-c", script})...))
		}},
	}
}

// runForOutcome runs a command that ends as the job does.
func runForOutcome(t testing.TB, cmd *exec.Cmd) jobOutcome {
	t.Helper()
	got := runCommand(t, cmd)
	out := jobOutcome{said: got.out + got.err, code: got.code}
	if i := slices.Index(cmd.Args, "--log"); i > 0 {
		out.log = cmd.Args[i+1]
	}
	out.name = " special "
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		out.signal = unix.SignalName(status.Signal())
	}
	return out
}

// withLogFile names the log where flags limit one, for a command that writes none without that.
func withLogFile(l *queueFixture, flags []string) []string {
	if slices.Contains(flags, "--log-limit") {
		return append(slices.Clone(flags), "--log", filepath.Join(l.marks, "log"))
	}
	return flags
}

// runAsService starts a service, whose keys are the flags.
func runAsService(l *queueFixture, flags []string, script string) jobOutcome {
	words, _ := json.Marshal([]string{"sh", "-c", script})
	file := fmt.Sprintf("services:\n  job:\n    command: %s\n", words)
	for i := 0; i < len(flags); i++ {
		key, value, given := strings.Cut(strings.TrimPrefix(flags[i], "--"), "=")
		if key == "retry" { // services have their own word for it
			i, key, value, given = i+1, "restart", "on-failure:"+strings.TrimSuffix(flags[i+1], ":any"), true
		}
		if !given && i+1 < len(flags) && !strings.HasPrefix(flags[i+1], "--") {
			i, value, given = i+1, flags[i+1], true
		}
		if key == "name" { // a service has the name of its key
			continue
		}
		if !given {
			value = "true"
		}
		file += fmt.Sprintf("    %s: %s\n", strings.ReplaceAll(key, "-", "_"), value)
	}
	path := filepath.Join(l.t.TempDir(), "gpuard.yaml")
	writeFile(l.t, path, file, 0o600)
	got := runCommand(l.t, l.keeperCommand("up", "-d", "--file", path))
	var answer struct {
		Instances []struct {
			State, Why, Signal, Log string
			Exit                    *int
		}
	}
	waitUntil(l.t, "it is over: "+got.out+got.err, func() bool {
		answer.Instances = nil
		_ = json.Unmarshal([]byte(runCommand(l.t, l.cmd("ps", "--file", path, "--json")).out), &answer)
		return len(answer.Instances) == 1 && slices.Contains([]string{"done", "failed", "refused"}, answer.Instances[0].State)
	})
	one := answer.Instances[0]
	out := newJobOutcome(one.Log, one.Exit, one.Signal)
	out.name = "/job"
	if out.said += got.err; strings.HasPrefix(one.Why, "its time was over") {
		out.code = 124
	}
	return out
}

func newJobOutcome(log string, exit *int, signal string) jobOutcome {
	out := jobOutcome{log, "", -1, signal, ""}
	if exit != nil {
		out.code = *exit
	}
	return out
}

// jobPromise is what is done for a job while it runs, and how that is seen.
type jobPromise struct {
	name, flags string
	script      string // in which @DIR@ is a folder of this job, and @LASTS@ 2 s, or 60 where those were not enough
	code        int
	signal      string
	says        []string // and what begins with ! it does not
	prepare     func(t *testing.T, dir string)
	check       func(t *testing.T, l *queueFixture, dir string, got jobOutcome)
	program     string            // that keeps it, if it is not hasty
	refused     map[string]string // the commands that refuse it, and what they say
	instead     map[string]string // what a command has in its place
	unasked     bool              // its flags are only such that it has a keeper, or the right device
}

func jobPromises() []jobPromise {
	return []jobPromise{
		{name: "time limit, stop signal and grace", flags: "--timeout 1s --stop-signal INT --grace 1s", code: 124, says: []string{"was asked\n", "!\nwrong"},
			script: `trap 'echo was asked; exit 3' INT; trap 'echo wrong' TERM HUP
				sh -c 'trap "" INT TERM; echo $$ >@DIR@/child; while :; do sleep 0.1; done' & while :; do sleep 0.05; done`,
			check: func(t *testing.T, _ *queueFixture, dir string, _ jobOutcome) {
				text, _ := os.ReadFile(filepath.Join(dir, "child"))
				pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
				if err != nil || syscall.Kill(pid, 0) == nil {
					t.Errorf("its child %d lives (%v)", pid, err)
				}
			}},
		{name: "verified", refused: map[string]string{"docker": "cannot use --verify with a container"}, flags: "--verify --device 0", script: "fakegpu-job --gpu 0 --mem 2G --seconds @LASTS@; exit 5", code: 5, says: []string{"gpuard: proven: fakegpu-job (process ", " is on GPU 0 ("}},
		{name: "verified and ended", refused: map[string]string{"docker": "cannot use --verify with a container"}, flags: "--anyway --verify=20s,stop --device 0", script: `trap 'kill $!; exit 9' TERM; CUDA_VISIBLE_DEVICES=1 fakegpu-job --gpu 1 --seconds 50 & wait; exit 0`, code: 9,
			says: []string{"outside the lease: ", "is on GPU 1", "told it to end (SIGTERM)"}},
		{name: "moved from a sick GPU", refused: map[string]string{"docker": "cannot use --drift with a container"}, flags: "--drift=sick", code: 0, says: []string{"on " + fakeUUID(0), "on " + fakeUUID(1), "starting it again elsewhere", "count 1"},
			script: `echo "on $GPUARD_GPUS"; test "$GPUARD_RESTART" && echo "count $GPUARD_RESTART" && exit 0; echo 1 >$FAKEGPU_DIR/gpus/$((0x${GPUARD_GPUS##*-}))/recovery; exit 9`},
		{name: "several processes", refused: map[string]string{"docker": "cannot use --ranks or --torchrun with a container"}, flags: "--gpus 2 --ranks=own", script: `echo "rank $RANK of $WORLD_SIZE on $GPUARD_GPUS"`, code: 0, says: []string{"rank 0 of 2 on " + fakeUUID(0), "rank 1 of 2 on " + fakeUUID(1)}},
		{name: "share, also after a restart", refused: map[string]string{"docker": "cannot give a share of a GPU to a container"}, flags: "--share 8G --require-quota watch --grace 1s --retry 1:any",
			script: `test "$GPUARD_RESTART" || exit 3; exec fakegpu-job --gpu 0 --mem 16G`, code: -1, signal: "SIGTERM", says: []string{"Next time ask for --share 18G"}},
		{name: "on the CPU where no GPU is free", flags: "--fallback cpu --device 7", script: "echo sees=$CUDA_VISIBLE_DEVICES.", says: []string{"FALLING BACK TO THE CPU", "sees=", "!sees=0", "!sees=7"}},
		{name: "started again after a pause, which is said", instead: map[string]string{"up": "`restart: on-failure:2`"}, flags: "--retry 2:any", script: `test "$GPUARD_RESTART" = 2 && exit 0; exit 3`, code: 0, says: []string{"gpuard: ", "the command ended (exit 3): starting it again"}},
		{name: "log and its limit", instead: map[string]string{"submit": "its log always, or `--log FILE`", "sweep": "its log always", "up": "its log always, or `log: FILE`"}, flags: "--log-limit 4K", script: "seq 1200; echo the end", check: func(t *testing.T, _ *queueFixture, _ string, got jobOutcome) {
			last, err := os.ReadFile(got.log)
			before, err1 := os.ReadFile(got.log + ".1")
			if err != nil || err1 != nil || !strings.Contains(string(last), "the end") || len(last) > 4<<10 || !strings.Contains(string(before), "\n700\n") {
				t.Errorf("%s: %v, %v, %d and %d bytes", got.log, err, err1, len(last), len(before))
			}
		}},
		{name: "told of its end", instead: map[string]string{"sweep": "when all runs are over", "up": "when it is over for good"}, flags: "--notify @DIR@/tell", script: "exit 0", code: 0, prepare: func(t *testing.T, dir string) {
			writeFile(t, dir+"/tell", fmt.Sprintf("#!/bin/sh\necho \"$GPUARD_JOB_STATE $GPUARD_JOB_EXIT $GPUARD_JOB_TEXT\" >%[1]s/part; mv %[1]s/part %[1]s/told\n", dir), 0o700)
		}, check: func(t *testing.T, _ *queueFixture, dir string, _ jobOutcome) {
			waitUntil(t, "it is told", func() bool {
				text, _ := os.ReadFile(dir + "/told")
				return strings.HasPrefix(string(text), "done 0 ") && len(text) > 10
			})
		}},
		{name: "its name in status", instead: map[string]string{"sweep": "that of its program", "up": "that of the service"}, flags: "--name special", script: "gpuard status >@DIR@/status", check: func(t *testing.T, _ *queueFixture, dir string, got jobOutcome) {
			text, err := os.ReadFile(dir + "/status")
			if err != nil || !strings.Contains(string(text), got.name) {
				t.Errorf("%v: no %q in\n%s", err, got.name, text)
			}
		}},
		{name: "its memory and load in the history, if it lasts 10 s", unasked: true, program: "sampling", flags: "--device 0", script: `echo 6442450944 >$FAKEGPU_DIR/gpus/0/memory_used; until grep -qs 6442450944 @STATE@/leases/*/measure; do sleep 0.2; done`,
			check: func(t *testing.T, l *queueFixture, _ string, _ jobOutcome) {
				waitUntil(t, "it has a line", func() bool {
					var a struct{ Use []trend.Use }
					got := l.run("history", "--by", "command", "--json")
					_ = json.Unmarshal([]byte(got.out), &a)
					return slices.ContainsFunc(a.Use, func(u trend.Use) bool { return u.Peak == 6*gpu.GiB && u.Used+u.Idle > 0.9*u.Granted })
				})
			}},
		{name: "exit code", unasked: true, flags: "--grace 1s --timeout 1h", script: "exit 7", code: 7},
		{name: "death by a signal", unasked: true, flags: "--timeout 1h", script: "kill -KILL $$", code: -1, signal: "SIGKILL"},
	}
}

// TestPromises: what is promised about a job holds whichever command has started it.
func TestPromises(t *testing.T) {
	t.Parallel()
	for _, p := range jobPromises() {
		for _, s := range jobStarters() {
			t.Run(p.name+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				l, dir := newQueueFixture(t, 2), t.TempDir()
				if p.prepare != nil {
					p.prepare(t, dir)
				}
				if p.program != "" {
					l.program = p.program
				}
				start := func(lasts string) jobOutcome {
					return s.start(l, strings.Fields(strings.ReplaceAll(p.flags, "@DIR@", dir)), strings.NewReplacer("@DIR@", dir, "@STATE@", l.state, "@LASTS@", lasts).Replace(p.script))
				}
				got := start("2")
				if strings.Contains(p.script, "@LASTS@") && p.refused[s.name] == "" && !pollUntil(20*time.Second, func() bool { return strings.Contains(got.allOutput(), p.says[0]) }) {
					got = start("60") // the job was over before what looks at it had a processor
				}
				if why := p.refused[s.name]; why != "" {
					checkEqual(t, "its end", got.code, 125)
					checkContains(t, got.said, why)
					return
				}
				checkEqual(t, "its end", fmt.Sprint(got.code, got.signal), fmt.Sprint(p.code, p.signal))
				for _, text := range p.says {
					if wrong, not := strings.CutPrefix(text, "!"); not && strings.Contains(got.allOutput(), wrong) {
						t.Errorf("it says %q:\n%s", wrong, got.allOutput())
					} else if !not {
						waitUntil(t, fmt.Sprintf("it says %q:\n%s", text, got.allOutput()), func() bool { return strings.Contains(got.allOutput(), text) })
					}
				}
				if p.check != nil {
					p.check(t, l, dir, got)
				}
				l.waitForNoLeases()
			})
		}
	}
}

// renderPromisesPage is the table for people: docs/reference/promises.md.
func renderPromisesPage() string {
	b := &strings.Builder{}
	b.WriteString("# What is done for a job\n\nThe same is done for a job whichever command has started it. What cannot be done there is refused before anything starts. " +
		"A test starts a job for each cell of this table.\n\n| what | asked by |")
	for _, s := range jobStarters() {
		fmt.Fprintf(b, " %s |", s.name)
	}
	b.WriteString("\n| --- | --- |" + strings.Repeat(" --- |", len(jobStarters())) + "\n")
	notes := []string{}
	for _, p := range jobPromises() {
		asked := "always"
		if p.flags != "" && !p.unasked {
			asked = "`" + strings.ReplaceAll(p.flags, "@DIR@/", "./") + "`"
		}
		fmt.Fprintf(b, "| %s | %s |", p.name, asked)
		for _, s := range jobStarters() {
			cell := "yes"
			if how := p.instead[s.name]; how != "" {
				cell = how
			}
			if why := p.refused[s.name]; why != "" {
				if !slices.Contains(notes, why) {
					notes = append(notes, why)
				}
				cell = fmt.Sprintf("no (%d)", slices.Index(notes, why)+1)
			}
			fmt.Fprintf(b, " %s |", cell)
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	for i, why := range notes {
		fmt.Fprintf(b, "%d. `%s`\n", i+1, why)
	}
	b.WriteString("\nContainers are looked after in the foreground (`run` without `-d`). A plain `gpuard run`, of which nothing is asked, becomes its command and stays beside nothing.\n" +
		"How each is asked for: [supervise](../how-to/supervise.md), [verify](../how-to/verify.md), [sharing](../how-to/sharing.md), [several processes](../how-to/distributed.md), [queue](../how-to/queue.md).\n")
	return b.String()
}

var updatePages = flag.Bool("update", false, "write the page again")

// TestPromisesPage: the page has the table of this test.
func TestPromisesPage(t *testing.T) {
	const path = "../../docs/reference/promises.md"
	if *updatePages {
		writeFile(t, path, renderPromisesPage(), 0o644)
	}
	text, err := os.ReadFile(path)
	if err != nil || string(text) != renderPromisesPage() {
		t.Errorf("%s is not up to date (%v): make docs", path, err)
	}
	refused := 0
	for _, p := range jobPromises() {
		refused += len(p.refused)
	}
	if refused > 5 {
		t.Errorf("%d cells are refused, at most 5 may be", refused)
	}
}

// TestKeptJobIsEndedByItsSignal: an owner who cancels a job ends it as its flags say.
func TestKeptJobIsEndedByItsSignal(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 1)
	script := fmt.Sprintf(`trap 'echo was asked; exit 3' INT; trap 'echo wrong' TERM; touch %s/on; while :; do sleep 0.05; done`, l.marks)
	checkEqual(t, "submit", runCommand(t, l.submitCommand("--stop-signal", "INT", "--", "sh", "-c", script)).code, 0)
	waitUntil(t, "it runs", func() bool { _, err := os.Stat(l.marks + "/on"); return err == nil })
	checkEqual(t, "cancel", runCommand(t, l.cmd("cancel", "1")).code, 0)
	l.waitUntilAllEnded()
	job := l.endedJobs()[0]
	text, _ := os.ReadFile(job.Log)
	checkEqual(t, "its state and what it says", fmt.Sprint(job.State, " ", string(text)), fmt.Sprint(userqueue.Cancelled, " was asked\n"))
}

// TestAllKilled: a job goes on when its keeper is killed with both processes of the queue, and the next ones wait for it.
func TestAllKilled(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 1)
	script := fmt.Sprintf(`echo $$ >>%[1]s/on; while test ! -e %[1]s/end; do sleep 0.05; done; exit 7`, l.marks)
	checkEqual(t, "submit", runCommand(t, l.submitCommand("--timeout", "1h", "--", "sh", "-c", script)).code, 0)
	waitUntil(t, "it runs", func() bool { _, err := os.Stat(l.marks + "/on"); return err == nil })
	for _, flag := range []string{userqueue.Flag, userqueue.RunnerFlag, machine.KeeperFlag} {
		for _, pid := range l.queueProcesses(flag) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	text, _ := os.ReadFile(l.marks + "/on")
	waitUntil(t, "the queue shows it again", func() bool {
		jobs := l.queuedJobs()
		return len(jobs) == 1 && fmt.Sprintln(jobs[0].PID) == string(text)
	})
	writeFile(t, filepath.Join(l.marks, "end"), "", 0o600)
	l.waitUntilAllEnded()
	job := l.endedJobs()[0]
	starts, _ := os.ReadFile(filepath.Join(l.marks, "on"))
	checkEqual(t, "starts", strings.Count(string(starts), "\n"), 1)
	if job.State != userqueue.Lost { // kernels before Linux 6.15 do not report the exit code
		checkEqual(t, "exit", *job.Exit, 7)
	}
	l.waitForNoLeases()
}

// keepersOf are the keepers of the runs of a folder. A process that one of them is just making has its words, too, but leads no
// session.
func keepersOf(dir string) (pids []int) {
	for _, p := range batch.ListProcesses() {
		if words := proc.New("/proc").Arguments(p.PID); len(words) > 2 && words[1] == machine.KeeperFlag && strings.HasPrefix(words[2], dir) && p.Session == p.PID {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// TestKilledKeeper: a job whose keeper is killed runs on, once, and its end is known.
func TestKilledKeeper(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 1)
	script := fmt.Sprintf(`echo $$ >>%[1]s/on; while test ! -e %[1]s/end; do sleep 0.05; done; exit 7`, l.marks)
	checkEqual(t, "submit", runCommand(t, l.submitCommand("--timeout", "1h", "--retry", "2", "--", "sh", "-c", script)).code, 0)
	waitUntil(t, "it runs", func() bool { _, err := os.Stat(l.marks + "/on"); return err == nil })
	keepers := keepersOf(l.queueFolder())
	if len(keepers) != 1 {
		t.Fatalf("keepers: %v", keepers)
	}
	text, _ := os.ReadFile(l.marks + "/on")
	waitUntil(t, "the queue shows the process of the command", func() bool { return fmt.Sprintln(l.queuedJobs()[0].PID) == string(text) })
	if err := syscall.Kill(keepers[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(l.marks, "end"), "", 0o600)
	l.waitUntilAllEnded()
	job := l.endedJobs()[0]
	starts, _ := os.ReadFile(filepath.Join(l.marks, "on"))
	checkEqual(t, "exit, starts", []any{*job.Exit, strings.Count(string(starts), "\n")}, []any{7, 1})
	l.waitForNoLeases()
}

// TestStoppedJobIsEnded: the time of a job that has stopped itself is over all the same.
func TestStoppedJobIsEnded(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 1)
	checkEqual(t, "submit", runCommand(t, l.submitCommand("--timeout", "1s", "--grace", "300ms", "--", "sh", "-c", "kill -STOP $$; sleep 600")).code, 0)
	l.waitUntilAllEnded()
	checkEqual(t, "exit", *l.endedJobs()[0].Exit, 124)
	l.waitForNoLeases()
}

// TestContainerIsEnded: a container whose time is over and that does not obey is killed, one without a GPU too, and no other one is.
func TestContainerIsEnded(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 2)
	bin := t.TempDir()
	folder := installStubDocker(t, bin, "stubengine")
	docker := func(flags ...string) *exec.Cmd {
		cmd := l.hastyCommand(append([]string{"docker", "-q"}, flags...)...)
		cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"), "DOCKER_HOST=unix:///none")
		return cmd
	}
	other := docker("--", "run", "--rm", "image", "sh", "-c", "echo on; exec sleep 600")
	startToFirstLine(t, other)
	living := liveContainers(folder, "")
	checkEqual(t, "containers", len(living), 1)
	for _, flag := range []string{"--cpu", "--device=1"} {
		got := runCommand(t, docker(flag, "--timeout", "1s", "--grace", "300ms", "--", "run", "--rm", "image", "sh", "-c", `trap "" TERM; while :; do sleep 0.1; done`))
		checkEqual(t, flag, got.code, 124)
		checkEqual(t, "containers that live after "+flag, fmt.Sprint(liveContainers(folder, "")), fmt.Sprint(living))
	}
	pulls := docker("--timeout", "1s", "--grace", "1m", "--", "run", "--rm", "image", "sh", "-c", "true")
	pulls.Env = append(pulls.Env, "STUB_PULLS=1")
	began := time.Now()
	checkEqual(t, "while the engine has no container yet", runCommand(t, pulls).code, 124)
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it was not asked to end: %v", took)
	}
	checkEqual(t, "a second start", runCommand(t, docker("--retry", "1", "--", "run", "--name", "x", "image")).code, 125)
	checkEqual(t, "in another container", runCommand(t, docker("--timeout", "1h", "--", "exec", "x", "true")).code, 125)
	_ = unix.Kill(-living[0].State.PID, unix.SIGKILL)
}

package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/machine"
	apprun "gpuard/internal/app/run"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/job"
	"gpuard/internal/host/journal"
	"gpuard/internal/host/proc"
)

// A trial is a folder with commands that need no device. Its conductor, its runner and its keepers are processes of this test program,
// so that each of them can be killed.
const (
	conductFlag = "__conduct"
	runnerFlag  = "__trial"
	trialMark   = "TRIAL_RUN"
)

func TestMain(m *testing.M) {
	if len(os.Args) < 2 || !strings.HasPrefix(os.Args[1], "__") {
		os.Exit(m.Run())
	}
	ctx, args := context.Background(), os.Args[2:]
	say := func(text string) { fmt.Fprintln(os.Stderr, text) }
	host := &machine.Host{Name: "gpuard", Proc: proc.New("/proc"), Env: os.Environ(), Root: "/", Run: "/run", Tmp: "/var/tmp", Messages: machine.Messages{Say: say}, Times: machine.Times{Pause: 20 * time.Millisecond}}
	var err error
	switch os.Args[1] {
	case conductFlag:
		err = conductTrial(ctx, host, args[0])
	case runnerFlag:
		RunFolder(ctx, host, args[0], trialWork)
	case machine.KeeperFlag:
		var o KeeperOrders
		err = errors.Join(json.NewDecoder(os.Stdin).Decode(&o), KeepJob(ctx, host, args, o))
	}
	if err != nil {
		say(err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}

// trial is what is to be done. In a command $T is the folder, and $N the number of the run.
type trial struct {
	Commands []string
	AtOnce   int
	Retry    batchlog.Retry
	Timeout  time.Duration // of those that sleep
	Grace    time.Duration
	Kept     bool // each run has a keeper

	t   *testing.T
	dir string
}

func readTrial(dir string) (*trial, error) {
	text, err := os.ReadFile(filepath.Join(dir, "trial"))
	tr := &trial{dir: dir}
	if err == nil {
		err = json.Unmarshal(text, tr)
	}
	return tr, err
}

// readState opens the journal and reads what was done.
func (tr *trial) readState() (*journal.Journal, *batchlog.State, error) {
	state := batchlog.NewState(len(tr.Commands), tr.Retry)
	j, err := journal.Open(filepath.Join(tr.dir, "journal"))
	if err == nil {
		err = errors.Join(j.TruncatePartial(), j.EachNewLine(func(line []byte) error { return state.ReadLine(line, j.Offset()) }))
	}
	return j, state, err
}

// conductTrial is the life of a conductor. It ends with 1 when a signal has ended it.
func conductTrial(ctx context.Context, host *machine.Host, dir string) error {
	tr, err := readTrial(dir)
	if err != nil {
		return err
	}
	f := tr.folder(host)
	defer f.Close()
	if f.Lock, err = journal.Lock(filepath.Join(dir, "lock"), func() {}); err != nil {
		return err
	}
	if err := errors.Join(WriteLockOwner(host, f.Lock, KeeperPlace), os.MkdirAll(filepath.Join(dir, "runs"), 0o700)); err != nil {
		return err
	}
	if f.Journal, f.State, err = tr.readState(); err != nil {
		return err
	}
	heard, err := f.Conduct(ctx, func(Progress) {})
	if err == nil && heard != nil {
		err = fmt.Errorf("ended by %v", heard)
	}
	return err
}

func (tr *trial) folder(host *machine.Host) *Folder {
	return &Folder{Dir: tr.dir, Host: host, Flag: runnerFlag, Mark: trialMark, Work: tr.dir, Grace: tr.Grace}
}

// trialWork is what the runner of a trial does.
func trialWork(ctx context.Context, host *machine.Host, dir string) (*FolderWork, error) {
	tr, err := readTrial(dir)
	if err != nil {
		return nil, err
	}
	w := &FolderWork{Folder: tr.folder(host), AtOnce: tr.AtOnce}
	if w.Journal, w.State, err = tr.readState(); err != nil {
		return nil, err
	}
	desk, err := claim.OpenAllocator(ctx, host, job.Spec{CPU: true, Grace: tr.Grace})
	if err != nil {
		return nil, err
	}
	w.Prepare = func(run int) (StartOptions, error) {
		log := filepath.Join(dir, w.State.Folder(run), "log")
		timeout := tr.Timeout
		if !strings.Contains(tr.Commands[run], "sleep 60") {
			timeout = 0 // on a busy machine others may take as long
		}
		s := StartOptions{Desk: func(context.Context) (*claim.Allocator, error) { return desk, nil }, Path: "/bin/sh", Argv: []string{"sh", "-c", tr.Commands[run]}, Folder: dir,
			Env: []string{w.Tag(run), "T=" + dir, "N=" + strconv.Itoa(run)}, Log: log, Timeout: timeout}
		if tr.Commands[run] == "" {
			return s, errors.New("there is no such program")
		}
		if tr.Kept {
			spec := desk.Spec()
			spec.Timeout = timeout
			s.Task = apprun.TaskOf(spec, &job.Care{Stop: "SIGTERM"}, nil, log)
		}
		return s, nil
	}
	return w, nil
}

func newTrial(t *testing.T, tr trial) *trial {
	t.Helper()
	tr.t, tr.dir = t, t.TempDir()
	text, err := json.Marshal(tr)
	if err == nil {
		err = os.WriteFile(filepath.Join(tr.dir, "trial"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the folder goes next
		tr.write("go")
		journal.WaitUntilFree(filepath.Join(tr.dir, "lock"))
	})
	return &tr
}

// begin starts a conductor. What it says is in the file said.
func (tr *trial) begin() *exec.Cmd {
	tr.t.Helper()
	self, err := os.Executable()
	if err != nil {
		tr.t.Fatal(err)
	}
	said, err := os.OpenFile(filepath.Join(tr.dir, "said"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		tr.t.Fatal(err)
	}
	defer said.Close() //nolint:errcheck // the conductor has it
	cmd := exec.Command(self, conductFlag, tr.dir)
	cmd.Args[0], cmd.Stderr, cmd.SysProcAttr = "gpuard", said, &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		tr.t.Fatal(err)
	}
	tr.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// conduct runs a conductor to its end.
func (tr *trial) conduct() {
	tr.t.Helper()
	if err := tr.begin().Wait(); err != nil {
		tr.t.Fatalf("%v: %q", err, tr.lines("said"))
	}
}

// state is what the journal says.
func (tr *trial) state() *batchlog.State {
	tr.t.Helper()
	j, state, err := tr.readState()
	if err != nil {
		tr.t.Fatal(err)
	}
	_ = j.Close()
	return state
}

// lines are those of a file of the trial; none if it is not there.
func (tr *trial) lines(name string) []string {
	text, _ := os.ReadFile(filepath.Join(tr.dir, name))
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}

// write makes a file of the trial, which commands wait for.
func (tr *trial) write(name string) {
	tr.t.Helper()
	if err := os.WriteFile(filepath.Join(tr.dir, name), nil, 0o600); err != nil {
		tr.t.Fatal(err)
	}
}

// await waits until it is so.
func (tr *trial) await(what string, so func() bool) {
	tr.t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			tr.t.Fatalf("still not so after a minute: %s", what)
		}
	}
}

// runner is the process that starts the runs.
func (tr *trial) runner() int {
	tr.t.Helper()
	pid := 0
	tr.await("there is a runner", func() bool {
		pid = 0
		for _, owner := range journal.LockOwners(filepath.Join(tr.dir, "lock")) {
			if words := proc.New("/proc").Arguments(owner.PID); len(words) > 1 && words[1] == runnerFlag {
				pid = owner.PID
			}
		}
		return pid > 0
	})
	return pid
}

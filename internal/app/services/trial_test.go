package services

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/run"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/service"
	"gpuard/internal/core/status"
	"gpuard/internal/host/batch"
	"gpuard/internal/host/logfile"
	"gpuard/internal/host/proc"
)

// TestMain makes this test program the supervisor and the keepers of a trial, each a process that can be killed.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || !slices.Contains([]string{"project-supervise", "project-keep", logfile.CopyFlag}, os.Args[1]) {
		os.Exit(m.Run())
	}
	host := trialHost(os.Environ())
	var err error
	switch os.Args[1] {
	case "project-supervise":
		err = SuperviseProject(context.Background(), host, os.Args[2])
	case "project-keep":
		var o KeeperOrders
		err = errors.Join(json.Unmarshal([]byte(os.Args[3]), &o),
			KeepInstance(context.Background(), host, os.Args[2], o, Words{taskOf, func(status.Standing) string { return "" }}))
	case logfile.CopyFlag:
		var o logfile.CopyOrders
		err = errors.Join(json.Unmarshal([]byte(os.Args[2]), &o), logfile.CopyOutput(o))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// trialHost is a machine without a GPU.
func trialHost(env []string) *machine.Host {
	none := func(context.Context, gpu.Query) (gpu.Machine, error) {
		return gpu.Machine{}, &gpu.Unavailable{Text: "cannot find a GPU"}
	}
	return &machine.Host{Name: "gpuard", Proc: proc.New("/proc"), Env: env, Root: "/", Run: "/run", Tmp: "/var/tmp", Readers: machine.Readers{Reader: none},
		Messages: machine.Messages{Say: func(string) {}}, Times: machine.Times{Pause: 20 * time.Millisecond}}
}

// taskOf reads what an instance asks for, of whose flags a trial uses few.
// Where the file "unreadable" is there it cannot, and it takes as long as the file "hangs" is there.
func taskOf(_ context.Context, _ *machine.Host, i service.Instance) (t run.Task, err error) {
	isThere := func(name string) bool {
		_, err := os.Stat(filepath.Join(os.Getenv("T"), name))
		return err == nil
	}
	for isThere("hangs") {
		time.Sleep(5 * time.Millisecond)
	}
	if isThere("unreadable") {
		return t, errors.New("cannot read the GPUs")
	}

	t = run.Task{Spec: job.Spec{CPU: true, Command: i.Command, Grace: 300 * time.Millisecond}, Care: job.Care{Stop: "SIGTERM"}}
	for _, flag := range i.Flags {
		name, value, _ := strings.Cut(flag, "=")
		switch name {
		case "--log":
			t.Care.Log = value
		case "--timeout":
			t.Spec.Timeout, err = time.ParseDuration(value)
		case "--grace":
			t.Spec.Grace, err = time.ParseDuration(value)
		}
	}
	return t, err
}

// trial is a project of services that need no device.
type trial struct {
	t        *testing.T
	dir      string // of the project, and $T
	projects *Projects
}

func newTrial(t *testing.T) *trial {
	t.Helper()
	dir, state := t.TempDir(), t.TempDir()
	env := slices.DeleteFunc(os.Environ(), func(pair string) bool {
		return strings.HasPrefix(pair, "GPUARD_") || strings.HasPrefix(pair, "XDG_") || strings.HasPrefix(pair, "HOME=")
	})
	env = append(env, "HOME="+state, "XDG_STATE_HOME="+state, "GPUARD_STATE="+filepath.Join(state, "leases"), "T="+dir)
	tr := &trial{t: t, dir: dir, projects: &Projects{Host: trialHost(env)}}
	t.Cleanup(func() {
		tr.down(true)
		// The folders go next, and a keeper that has only just begun may still make its lock in one, or the writer of a log
		// its last line.
		tr.await("no keeper and no file is left open", func() bool { return tr.keeperPID() == 0 && !isInUse(state) })
	})

	return tr
}

// script is a service that runs a script of sh.
func script(name, text string, flags ...service.Flag) service.Service {
	return service.Service{Name: name, Command: []string{"sh", "-c", text}, Flags: append([]service.Flag{{Name: "cpu"}}, flags...), Replicas: 1, Restart: service.Never}
}

// untilFile is the condition that a file of the trial is there.
func untilFile(name string) service.Probe {
	return service.Probe{Command: []string{"sh", "-c", "test -e $T/" + name}}
}

// folder is that of the project.
func (tr *trial) folder() *Folder {
	tr.t.Helper()
	f, err := tr.projects.Open(&service.Project{File: filepath.Join(tr.dir, "gpuard.yaml")})
	if err != nil {
		tr.t.Fatal(err)
	}
	return f
}

// up wants these services, and no others.
func (tr *trial) up(list ...service.Service) *Change {
	tr.t.Helper()
	for i := range list {
		list[i].WorkDir = tr.dir
	}
	change, err := tr.folder().Up(tr.t.Context(), &service.Project{Name: "lab", File: filepath.Join(tr.dir, "gpuard.yaml"), Services: list}, nil)
	if err != nil {
		tr.t.Fatal(err)
	}
	return change
}

// down ends all services, and waits until nothing of them is there.
func (tr *trial) down(now bool) {
	tr.t.Helper()
	if err := tr.folder().Down(context.Background(), nil, now); err != nil {
		tr.t.Error(err)
	}
	tr.await("nothing is up", func() bool { v := tr.look(); return len(v.Rows) == 0 && !v.Supervised })
}

// look is the project as it is now.
func (tr *trial) look() *View {
	tr.t.Helper()
	f := tr.folder()
	v, err := f.ReadView(context.Background())
	if err = errors.Join(err, f.EnsureSupervisor(context.Background())); err != nil {
		tr.t.Fatal(err)
	}
	return v
}

// row is one instance as it is now.
func (tr *trial) row(name string) Row {
	tr.t.Helper()
	for _, r := range tr.look().Rows {
		if r.Name == name {
			return r
		}
	}
	return Row{}
}

// await waits until it is so.
func (tr *trial) await(what string, so func() bool) {
	tr.t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			text := fmt.Sprintf("still not so after a minute: %s", what)
			if f, err := tr.folder().openFolder(); err == nil && f != nil {
				wanted, _ := f.ReadWanted()
				text += fmt.Sprintf("; %+v", newStateReader(tr.projects.Host, f).readAll(&wanted))
			}
			tr.t.Fatal(text)
		}
	}
}

// awaitState waits until an instance is in a state.
func (tr *trial) awaitState(name string, state service.State) Row {
	tr.t.Helper()
	var r Row
	tr.await(fmt.Sprintf("%s is %s", name, state), func() bool {
		r = tr.row(name)
		return r.State == state && r.Fresh
	})
	return r
}

// awaitBegan waits until the commands have written their first lines, n in all: a command is running before that.
func (tr *trial) awaitBegan(n int) {
	tr.t.Helper()
	tr.await(fmt.Sprintf("%d commands have begun", n), func() bool { return len(tr.lines("began")) >= n })
}

// keeperPID is a process that keeps an instance of the trial; 0 where there is none.
func (tr *trial) keeperPID() int {
	f, err := tr.folder().openFolder()
	if err != nil || f == nil {
		return 0
	}
	for _, p := range batch.ListProcesses() {
		words := tr.projects.Host.Proc.Arguments(p.PID)
		if len(words) > 2 && words[1] == KeeperFlag && words[2] == f.Path {
			return p.PID
		}
	}
	return 0
}

// lines are those of a file of the trial; none if it is not there.
func (tr *trial) lines(name string) []string {
	text, _ := os.ReadFile(filepath.Join(tr.dir, name))
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}

// write makes a file of the trial.
func (tr *trial) write(name string) {
	tr.t.Helper()
	if err := os.WriteFile(filepath.Join(tr.dir, name), nil, 0o600); err != nil {
		tr.t.Fatal(err)
	}
}

// kill ends a process at once.
func (tr *trial) kill(pid int) {
	tr.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		tr.t.Fatal(pid, err)
	}
}

// isInUse reports whether another process has a file of a folder open.
func isInUse(folder string) bool {
	open, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	own := fmt.Sprintf("/proc/%d/", os.Getpid())
	return slices.ContainsFunc(open, func(fd string) bool {
		file, err := os.Readlink(fd)
		return err == nil && !strings.HasPrefix(fd, own) && strings.HasPrefix(file, folder+"/")
	})
}

package userqueue

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/machine"
	apprun "gpuard/internal/app/run"
	"gpuard/internal/app/runner"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/host/daemonize"
	"gpuard/internal/host/journal"
	"gpuard/internal/host/sys"
)

// The first arguments of a keeper and of its runner; the folder of the queue follows.
const (
	Flag       = "__queue"
	RunnerFlag = "__jobs"
)

// jobFolderVar is the variable in which a job has its folder.
const jobFolderVar = "GPUARD_JOB_DIR"

// cancelGrace is between SIGTERM and SIGKILL of a job that is cancelled.
const cancelGrace = 10 * time.Second

// KeepQueue is the life of a keeper: it ends when there is nothing to do, or another one is there.
func KeepQueue(ctx context.Context, host *machine.Host, dir string) error {
	if err := daemonize.BeginBackground("gpuard"); err != nil {
		return err
	}
	if err := checkOwn(dir); err != nil {
		return err
	}

	lock, err := journal.TryLock(filepath.Join(dir, lockFile))
	if err != nil || lock == nil {
		return err
	}
	if err := runner.WriteLockOwner(host, lock, runner.KeeperPlace); err != nil {
		return err
	}

	f := folderOf(dir, host)
	f.Lock = lock
	defer f.Close()
	if err := sys.MkdirAll(filepath.Join(dir, "jobs"), 0o700); err != nil {
		return fmt.Errorf("cannot keep the queue: %w", err)
	}

	err = f.Open()
	if err != nil {
		return err
	}

	for {
		heard, err := f.Conduct(ctx, func(runner.Progress) {})
		if err != nil || heard != nil {
			return err
		}

		over := false
		err = f.Journal.WithLock(func() error {
			// Who submits now finds no keeper, or this one has seen the job.
			if err := f.CatchUp(); err != nil || f.State.HasStartable() {
				return err
			}
			over = true
			markSettled(dir, f.State, f.Journal.Offset())

			return f.Lock.Close()
		})

		if err != nil || over {
			return err
		}
	}
}

// folderOf is the folder of a queue for its keeper and its runner.
func folderOf(dir string, host *machine.Host) *runner.Folder {
	f := &runner.Folder{Dir: dir, Host: host, State: batchlog.NewQueue(), Flag: RunnerFlag, Mark: jobFolderVar, Work: dir, Grace: cancelGrace, Queue: true}
	f.Ended = func(run int) error { return notifyEnd(f, run) }
	return f
}

// checkOwn is an error unless the folder is this user's alone. Much may have happened since the queue was opened.
func checkOwn(dir string) error {
	own, err := sys.OpenOwnFolder(dir, 0)
	if err != nil {
		return fmt.Errorf("cannot run the jobs of %s: %w", dir, err)
	}
	return own.Close()
}

// RunnerWork is what the runner of a queue does.
func RunnerWork(ctx context.Context, host *machine.Host, dir string) (*runner.FolderWork, error) {
	if err := checkOwn(dir); err != nil {
		return nil, err
	}

	w := &runner.FolderWork{Folder: folderOf(dir, host)}
	err := w.Open()
	if err != nil {
		return nil, err
	}

	d := &jobAllocators{host: host, dir: dir, first: map[string]*claim.Allocator{}}
	w.Prepare = func(run int) (runner.StartOptions, error) { return prepareJob(d, w, run) }
	w.Keep = func() error { return (&Queue{Dir: dir, host: host}).StartKeeper() }

	return w, nil
}

// prepareJob is how a job is started, or why it cannot be.
func prepareJob(d *jobAllocators, w *runner.FolderWork, run int) (start runner.StartOptions, err error) {
	dir := d.dir
	if before := w.State.FailedDependency(run); before >= 0 {
		return start, fmt.Errorf("job %d, after which it was to run, did not end well", before+1)
	}

	j, err := jobAt(w.Journal, w.State, run)
	if err != nil {
		return start, err
	}
	if info, err := os.Stat(j.Folder); err != nil || !info.IsDir() {
		return start, fmt.Errorf("its folder %s is gone", j.Folder)
	}
	if _, err := os.Stat(j.Path); err != nil && !j.Spec.StartsTorchrun() {
		return start, fmt.Errorf("its program %s is gone", j.Path)
	}

	folder := w.Path(run)
	env := []string{"GPUARD_JOB=" + fmt.Sprint(run+1), w.Tag(run)}
	if j.Log != "" {
		// Else who makes the log makes it.
		if err := sys.MkdirAll(folder, 0o700); err != nil {
			return start, fmt.Errorf("cannot make the folder of the job: %w", err)
		}
	}

	if j.Task != nil {
		task := fmt.Sprint(*j.Task)

		// Scripts for Slurm read the second.
		env = append(env, "GPUARD_ARRAY_TASK="+task, "SLURM_ARRAY_TASK_ID="+task)
	}

	limits, err := readStored(filepath.Join(dir, envFolder), j.Limits)
	if err != nil {
		return start, err
	}

	j.Spec.Time, j.Spec.Nice, j.Spec.Asked = w.State.Estimate(run), w.State.Runs[run].Nice, w.State.Runs[run].Submitted
	if j.Spec.Grace == 0 && j.Care == nil {
		j.Spec.Grace = cancelGrace
	}

	log := (&Queue{Dir: dir}).logPath(run, j)

	return runner.StartOptions{Desk: func(ctx context.Context) (*claim.Allocator, error) { return d.deskFor(ctx, j) }, Path: j.Path, Argv: j.Command, Name: w.State.Runs[run].Name,
		Folder: j.Folder, Env: env, Task: apprun.TaskOf(j.Spec, j.Care, j.Oversight, log),
		Limits: limits, Log: log, Timeout: j.Spec.Timeout, CPU: j.Spec.CPU, Umask: j.Umask}, nil
}

// jobAllocators are where the jobs of a runner get their leases. The lock of a folder of leases is that of the whole
// process (fcntl(2)): two open folders of one place would not keep each other out, so all its desks share the first
// one's.
type jobAllocators struct {
	host *machine.Host
	dir  string
	// The first allocator of each folder of leases.
	first map[string]*claim.Allocator
}

// deskFor is where a job gets its lease: in the environment that it was handed in with. Only one goroutine may call it.
func (d *jobAllocators) deskFor(ctx context.Context, j Job) (*claim.Allocator, error) {
	own := *d.host
	var err error
	own.Env, err = readEnvironment(filepath.Join(d.dir, envFolder), j.Env)
	if err != nil {
		return nil, err
	}

	own.PrivateState, own.Machine, j.Spec.Waiting.Fallback = j.Private, j.Machine, j.Fallback
	var m gpu.Machine
	if j.Machine != "" {
		m, err = own.Read(ctx, gpu.Identity)
		if err != nil {
			return nil, err
		}
	}

	at, _, err := own.StateFolder(m)
	if err != nil {
		return nil, err
	}

	if d.first[at] == nil {
		d.first[at], err = claim.OpenAllocator(ctx, &own, job.Spec{CPU: true})
		if err != nil {
			return nil, err
		}
	}

	return d.first[at].For(ctx, &own, j.Spec)
}

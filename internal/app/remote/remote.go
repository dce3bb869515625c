// Package remote hands jobs to another scheduler, and asks it about them. What is handed in, and what was said, is kept
// by the queue; this package keeps nothing.
//
//	s, err := remote.Open(host, "slurm")
//	out, err := s.Write(ctx, work)
package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/handoff"
)

// Scheduler is another scheduler, as this user may use it.
type Scheduler struct {
	// "slurm", "kubernetes".
	Name  string
	Title string // for people
	// Its jobs run in images of containers, in which folders of this machine are not.
	Image bool
	// Cancel deletes jobs, an array as a whole; then Look knows nothing of them.
	Ends bool
	// Write writes a job, after it has looked whether the cluster has what the job names.
	Write func(ctx context.Context, w handoff.Work) (handoff.Output, error)
	// Test has the scheduler judge what Write wrote, which is in this file, and changes nothing.
	Test func(ctx context.Context, path string) (string, error)
	// Submit hands that in.
	Submit func(ctx context.Context, path string) (id, place string, err error)
	// Look says where these jobs are, one answer for each in their order.
	Look func(ctx context.Context, jobs []AskedJob) ([]ReportedJob, error)
	// Cancel ends jobs.
	Cancel func(ctx context.Context, jobs []batchlog.Away) error
	// Hold keeps a job from starting, or no more.
	Hold func(ctx context.Context, job batchlog.Away, on bool) error
	// Logs copies what a job has printed; with follow, until its end. nil: the scheduler writes it into the log of the
	// job.
	Logs func(ctx context.Context, job batchlog.Away, follow bool, open Opener) error
}

// Opener gives the place for what a source, such as a pod, has printed. It is called once, when there is something.
type Opener func(source string) (io.WriteCloser, error)

// AskedJob is a job that is asked about.
type AskedJob struct {
	batchlog.Away
	Submitted time.Time
}

// ReportedJob is what a scheduler says of one. Exit and Signal count where it is over.
type ReportedJob struct {
	batchlog.Away
	Exit   int
	Signal string // "SIGTERM"; "" none
	Ended  *time.Time

	code, pod string // of Kubernetes
}

// EngineNames lists the schedulers.
func EngineNames() []string { return []string{"slurm", "kubernetes"} }

// Open finds a scheduler.
func Open(host *machine.Host, name string) (*Scheduler, error) {
	if _, pods := kubernetesForms()[name]; pods {
		return openKubernetes(host, name), nil
	}
	if !slices.Contains(EngineNames(), name) {
		return nil, exit.Usagef("cannot use --engine %s: there is no such engine; there are %s, and without --engine this machine", name, strings.Join(EngineNames(), ", "))
	}
	return openSlurm(host), nil
}

// ErrUnsure is in the error of a Submit whose answer did not come: the scheduler may have the job.
var ErrUnsure = errors.New("no answer to the hand-in")

// maxTimeWithoutID is how long a job may be without an ID: another process may be handing it in.
const maxTimeWithoutID = 2 * time.Minute

// lostJob is a job of which the scheduler knows nothing, and why that says nothing of how it ended.
func lostJob(a batchlog.Away, format string, args ...any) ReportedJob {
	a.State, a.Why = batchlog.Unknown, fmt.Sprintf(format, args...)
	return ReportedJob{Away: a}
}

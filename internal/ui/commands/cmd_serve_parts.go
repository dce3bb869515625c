package commands

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"gpuard/internal/app/doctor"
	"gpuard/internal/app/leases"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/observe"
	"gpuard/internal/app/services"
	"gpuard/internal/app/userqueue"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/trend"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/cli/admincmd"
	"gpuard/internal/ui/cli/batchcmd"
	"gpuard/internal/ui/cli/checkcmd"
	"gpuard/internal/ui/cli/projectcmd"
)

// servicesAnswer is the JSON answer of /api/services.
type servicesAnswer struct {
	// "gpuard.services/1".
	Schema string `json:"schema"`
	// The projects of the user who runs gpuard serve.
	Projects []projectUp `json:"projects"`
}

type projectUp struct {
	Project string `json:"project"` // its name
	File    string `json:"file"`    // its gpuard.yaml
	// A supervisor starts and ends instances.
	Supervised bool `json:"supervised"`
	// Dependencies first, else in the order of the file.
	Instances []projectcmd.PsInstance `json:"instances"`
}

// queuePart is what the page shows of the queue: more jobs wait than are in the answer.
type queuePart struct {
	batchcmd.QueueAnswer
	more int
}

// Line is what the page shows of it.
func (q queuePart) Line() userqueue.Line {
	return userqueue.Line{Jobs: q.Jobs, Others: q.Others, More: q.more, Paused: q.Paused, Problem: q.Problem}
}

// queueGauges count the jobs, and say how long those in the answer waited, or have waited until now.
func queueGauges(answer any) (all []observe.Gauge) {
	a, ok := answer.(queuePart)
	if !ok {
		return nil
	}

	n := map[string]int{"running": 0, "pending": a.more}
	for i := range a.Jobs {
		e, state := &a.Jobs[i], "pending"
		if e.State == userqueue.Running {
			state = "running"
		}
		n[state]++
		all = append(all, observe.Gauge{Name: "gpuard_job_wait_seconds", Help: "How long a job of the queue waited from submit to its start, or has waited until now.", Value: e.Waited,
			Labels: []string{"job", strconv.Itoa(e.Number), "state", state}})
	}

	for _, state := range []string{"running", "pending"} {
		all = append(all, observe.Gauge{Name: "gpuard_jobs", Help: "Jobs of the queue of the user who runs gpuard serve that have not ended.", Value: float64(n[state]), Labels: []string{"state", state}})
	}

	return all
}

// askInterval is the time between two questions of serve to other schedulers.
const askInterval = 30 * time.Second

// pageSources are the parts of the page besides the devices.
func pageSources(p *cli.Program) []observe.Source {
	// When other schedulers were asked last: what looks all the time asks them less often than a person.
	var asked atomic.Int64
	return []observe.Source{
		{Name: "queue", Title: "Waiting", Every: 2 * time.Second, Public: publicOf(publicQueue), Gauges: queueGauges, Read: withTimeout(10*time.Second, func(ctx context.Context) (queuePart, error) {
			last, now := asked.Load(), time.Now().UnixNano()
			ask := now-last > int64(askInterval) && asked.CompareAndSwap(last, now)
			apart := copyProgram(p)
			q, err := userqueue.Open(apart.Host, false)
			if err != nil {
				return queuePart{}, err
			}

			if q != nil {
				defer q.Close()
			}

			a, more, err := batchcmd.ReadQueue(ctx, apart, q, batchcmd.ShownJobs, ask)

			return queuePart{a, more}, err
		})},
		{Name: "services", Title: "Services", Every: 2 * time.Second, Read: withTimeout(10*time.Second, func(ctx context.Context) (servicesAnswer, error) {
			a := servicesAnswer{"gpuard.services/1", []projectUp{}}
			for _, view := range services.ProjectViews(ctx, copyProgram(p).Host) {
				found := projectcmd.MakePsAnswer("", view, func(*services.Row) bool { return true })
				a.Projects = append(a.Projects, projectUp{found.Project, found.File, found.Supervised, found.Instances})
			}
			return a, nil
		}), Public: publicOf(publicServices)},
		{Name: "findings", Title: "Findings", Every: time.Minute, Read: withTimeout(time.Minute, func(ctx context.Context) (checkcmd.DoctorAnswer, error) {
			d, err := doctor.Diagnose(ctx, copyProgram(p).Host, "", false)
			return checkcmd.DoctorAnswer{Schema: "gpuard.doctor/1", Diagnosis: d}, err
		})},
		{Name: "history", Title: "History", Every: 30 * time.Second, Read: withTimeout(10*time.Second, func(ctx context.Context) (trend.UseReport, error) {
			a := trend.UseReport{Schema: "gpuard.use/1", Tables: []trend.UseTable{}}
			list, err := observe.EndedLeases(ctx, copyProgram(p).Host)
			a.Leases = list

			for _, by := range []string{"user", "gpu", "command"} {
				if use := trend.SumUse(list, by, time.Local); len(use) > 0 {
					a.Tables = append(a.Tables, trend.UseTable{By: by, Use: use})
				}
			}

			return a, err
		})},
	}
}

// copyProgram is the program for one of several requests at the same time: a host remembers what it has read.
func copyProgram(p *cli.Program) *cli.Program {
	q, host := *p, *p.Host
	q.Host = &host
	return &q
}

// reviveQueue is ReviveQueue for a page: gpuard itself starts the queue, which else would be a process of gpuard-view.
func reviveQueue(ctx context.Context, p *cli.Program, q *userqueue.Queue) error {
	program, err := cli.FindBeside("gpuard")
	if err != nil {
		return batchcmd.ReviveQueue(p, q)
	}

	out, err := exec.CommandContext(ctx, program, "queue", "--mine").CombinedOutput()
	if err != nil {
		return fmt.Errorf("cannot start the queue: %w: %s", err, strings.TrimSpace(string(out)))
	}

	return nil
}

// cancelByName ends jobs of the queue by their numbers, and runs by their leases, as gpuard cancel does.
func cancelByName(ctx context.Context, p *cli.Program, words []string) error {
	var jobs []string
	for _, word := range words {
		if areJobs([]string{word}) {
			jobs = append(jobs, word)
			continue
		}

		number, err := cancelLease(ctx, p, word)
		if err != nil {
			return err
		}

		if number > 0 {
			jobs = append(jobs, strconv.Itoa(number))
		}
	}

	if len(jobs) == 0 {
		return nil
	}

	numbers, err := batchcmd.JobNumbers(jobs)
	if err != nil {
		return err
	}

	q, err := batchcmd.OpenQueue(p)
	if err != nil {
		return err
	}

	defer q.Close()
	if err := q.Ask(ctx, batchlog.Cancel, numbers...); err != nil {
		return err
	}

	return reviveQueue(ctx, p, q)
}

// cancelLease ends what has a lease. A job of the queue it does not end: it returns its number, which is 0 for others.
func cancelLease(ctx context.Context, p *cli.Program, word string) (number int, err error) {
	l, found, err := leases.FindToCancel(ctx, p.Host, word)
	if err != nil {
		return 0, err
	}
	if !found {
		return 0, fmt.Errorf("cannot cancel %s: there is no such lease any more", word)
	}

	number, err = jobOfLease(p, l)
	if err != nil || number > 0 {
		return number, err
	}

	return 0, leases.Cancel(ctx, p.Host, l, false, cancelPatience)
}

// mayDrain reports whether the caller may take devices of this machine out of use: who owns its folder of leases.
func mayDrain(host *machine.Host) bool {
	m, err := host.Read(context.Background(), gpu.Identity)
	if host.Proc.IsRoot() || err != nil {
		return err == nil
	}

	folder, err := host.Folder(m, false)
	if err != nil || folder == nil {
		// It would be the caller's own.
		return err == nil
	}

	defer folder.Close() //nolint:errcheck // nothing was written

	return folder.Owner == uint32(os.Geteuid()) //nolint:gosec // a uid
}

// pageActions are what may be asked for with the token: each does what the command of its name does.
func pageActions(p *cli.Program) []observe.Action {
	return []observe.Action{
		{Name: "cancel", Do: func(ctx context.Context, words []string) error { return cancelByName(ctx, copyProgram(p), words) }},
		{Name: "release", Do: func(ctx context.Context, words []string) error {
			for _, id := range words {
				if _, err := leases.Release(ctx, copyProgram(p).Host, id); err != nil {
					return err
				}
			}
			return nil
		}},
		{Name: "drain", Can: func() bool { return mayDrain(copyProgram(p).Host) }, Do: func(ctx context.Context, words []string) error {
			_, err := leases.Drain(ctx, copyProgram(p).Host, words, "by gpuard serve")
			return err
		}},
		{Name: "undrain", Do: func(ctx context.Context, words []string) error {
			_, err := leases.Undrain(ctx, copyProgram(p).Host, words)
			return err
		}},
		{Name: "evict", Do: func(ctx context.Context, words []string) error {
			pids, err := admincmd.ProcessIDs(words)
			if err != nil {
				return err
			}

			ended, err := leases.Evict(ctx, copyProgram(p).Host, pids, 0, 10*time.Second, false)
			var stay []string
			for _, e := range ended {
				if !e.Gone {
					stay = append(stay, fmt.Sprint(e.PID))
				}
			}

			if err == nil && len(stay) > 0 {
				err = fmt.Errorf("cannot evict %s: it has not ended within 10 s; gpuard evict --force kills it", strings.Join(stay, ", "))
			}

			return err
		}},
	}
}

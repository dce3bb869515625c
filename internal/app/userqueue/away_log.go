package userqueue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"gpuard/internal/app/remote"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/host/logfile"
)

// Copier returns what copies the output of these jobs into their logs, where their scheduler does not write these
// itself; with follow it goes on until they have ended. It may run beside everything else. A job whose output is gone
// keeps what was copied before.
func (q *Queue) Copier(list []Entry) (func(ctx context.Context, follow bool) error, error) {
	state, err := q.Read()
	if err != nil {
		return nil, err
	}

	type source struct {
		*remote.Scheduler
		job batchlog.Away
		e   Entry
	}

	var sources []source
	for _, e := range list {
		if e.Engine == "" || e.ID == "" {
			continue
		}
		s, err := remote.Open(q.host, e.Engine)
		if err != nil {
			return nil, err
		}
		if s.Logs != nil {
			sources = append(sources, source{s, *state.Runs[e.Number-1].Away, e})
		}
	}

	return func(ctx context.Context, follow bool) error {
		problems := make([]error, len(sources))
		var all sync.WaitGroup
		for i, s := range sources {
			all.Go(func() {
				err := s.Logs(ctx, s.job, follow, func(name string) (io.WriteCloser, error) { return logfile.ResumeCopy(s.e.Log, name) })
				if err == nil || ctx.Err() != nil || s.e.State.Over() && hasOutput(s.e.Log) {
					return
				}
				problems[i] = fmt.Errorf("cannot copy the output of job %d: %w", s.e.Number, err)
			})
		}

		all.Wait()

		return errors.Join(problems...)
	}, nil
}

func hasOutput(log string) bool {
	info, err := os.Stat(log)
	return err == nil && info.Size() > 0
}

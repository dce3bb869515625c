package engine

import (
	"context"
	"slices"
	"time"

	"gpuard/internal/host/proc"
)

// Watch is what a holder needs to keep a lease as long as a container lives.
type Watch struct {
	Engine
	Lease string `json:"lease"`
	// The containers that a start names; else those with the lease's label.
	Names []string `json:"names"`
	// The value of JobLabel of a container without a lease.
	Mark string `json:"mark,omitempty"`
}

// These times decide when a container has ended.
const (
	// A restart starts it again within that, and within the time of several questions (settle).
	restartWindow = 600 * time.Millisecond
	// Two questions meanwhile.
	questionInterval = 50 * time.Millisecond
	// An engine that does not answer for that long, and has no process left, has ended it.
	silenceLimit = 30 * time.Second
)

// AwaitEnd returns when no container of the lease lives any more. born is called with the first process of each start.
// While a container runs it waits for the end of its first process (pidfd_open(2)), and asks nothing.
func (w Watch) AwaitEnd(ctx context.Context, born func(pid int)) {
	alive, answered := time.Now(), time.Now()
	for {
		began := time.Now()
		found, err := w.findContainers(ctx)
		now := time.Now()
		settle := w.settleTime(now.Sub(began))
		if err == nil {
			answered = now
		}

		lives, pause := false, questionInterval
		for _, c := range found {
			if c.IsAlive() {
				// The engine waits before it starts the container again.
				lives, pause = true, 10*questionInterval
			}
			if c.State.PID > 0 && proc.New("/proc").AwaitEnd(c.State.PID, func() { born(c.State.PID) }) {
				pause = questionInterval
			}
		}

		if lives {
			alive = time.Now()
		}

		switch {
		case err != nil && now.Sub(answered) > silenceLimit, err == nil && !lives && now.Sub(alive) > settle, ctx.Err() != nil:
			return
		}

		if err != nil {
			pause = 10 * questionInterval
		}

		time.Sleep(pause)
	}
}

// settleTime is how long after its end a container may start again, where a question takes that long: on a machine with
// much to do a restart takes longer too. Podman answers no question about a container while it restarts it.
func (w Watch) settleTime(question time.Duration) time.Duration {
	if w.Name == "podman" {
		return max(restartWindow, 6*question)
	}
	return max(restartWindow, 12*question)
}

// SignalContainers sends a signal to the containers that live: "SIGTERM"; "" kills them. sent is false where none
// lives, as before the engine has its image.
func (w Watch) SignalContainers(ctx context.Context, signal string) (sent bool, err error) {
	found, err := w.findContainers(ctx)
	var ids []string
	for _, c := range found {
		if c.IsAlive() {
			ids = append(ids, c.ID)
		}
	}

	if err != nil || len(ids) == 0 {
		return false, err
	}

	words := []string{"kill"}
	if signal != "" {
		words = append(words, "--signal", signal)
	}

	_, err = w.askEngine(ctx, append(words, ids...)...)
	if err != nil {
		// It may have ended by itself.
		if found, again := w.findContainers(ctx); again == nil && !slices.ContainsFunc(found, Container.IsAlive) {
			return true, nil
		}
	}

	return err == nil, err
}

func (w Watch) findContainers(ctx context.Context) ([]Container, error) {
	if len(w.Names) > 0 {
		return w.Inspect(ctx, w.Names...)
	}
	switch {
	// podman takes an empty value for any.
	case w.Lease != "":
		return w.WithLabel(ctx, LeaseLabel, w.Lease)
	case w.Mark != "":
		return w.WithLabel(ctx, JobLabel, w.Mark)
	}
	return nil, nil
}

package setup

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"gpuard/internal/core/edit"
	"gpuard/internal/host/atomicfile"
	"gpuard/internal/host/manifest"
)

// planSteps is every step to what w wants.
func planSteps(r *edit.Record, w ChangePlan) ([]edit.Step, error) {
	adoptMoved(r, w.Key)
	var steps []edit.Step
	for _, c := range w.Changes {
		now, err := readFound(&c, r.KnownSums(c))
		if err != nil {
			return nil, err
		}

		for _, e := range r.Entries {
			if e.Path == c.Path && e.Block == c.Block && e.Setup != w.Key {
				return nil, &edit.Conflict{Path: c.Path, Why: "it belongs to another setup, " + e.Setup, Remedy: "take that one away first, with --remove"}
			}
		}

		step, err := edit.PlanWrite(c, now)
		if err != nil {
			return nil, err
		}

		steps = append(steps, step)
	}

	stale, err := planRemoval(r, w.Key, steps)

	return append(steps, stale...), err
}

// planRemoval is every step that takes away what was set up under key, but for what the steps of a new wish are about.
func planRemoval(r *edit.Record, key string, kept []edit.Step) ([]edit.Step, error) {
	followMoves(r)
	var steps []edit.Step
	for _, e := range r.EntriesOf(key) {
		if slices.ContainsFunc(kept, func(s edit.Step) bool { return s.Path == e.Path && s.Block == e.Block }) {
			continue
		}

		c := e.RemovalChange()
		now, err := readFound(&c, e.Sums)
		if errors.Is(err, syscall.ENOTDIR) {
			// Its folder is a file by now.
			now, err = edit.Found{}, nil
		}

		step := edit.Step{Change: c, Action: edit.Left}
		if err == nil {
			step, err = edit.PlanRemoval(c, now, e.Made)
		}

		var conflict *edit.Conflict
		if errors.As(err, &conflict) {
			// A changed file stays, and the others are removed all the same.
			step, err = edit.Step{Change: c, Action: edit.Left}, nil
		}

		if err != nil {
			return nil, err
		}

		steps = append(steps, step)
	}

	return steps, nil
}

// checkSteps is an error where a step could not be done, before any is.
func checkSteps(steps []edit.Step) error {
	for _, step := range steps {
		var err error
		switch step.Action {
		case edit.Create, edit.Delete:
			err = atomicfile.CheckWritable(step.Path)
		case edit.Update, edit.Insert, edit.Cut:
			err = atomicfile.CheckReplaceable(step.Path)
		case edit.Same, edit.Gone, edit.Left:
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// applySteps does the steps. The record knows of each before it is done. Where one fails, those before it are taken
// back.
func applySteps(m *manifest.Manifest, key string, steps []edit.Step) error {
	known := slices.Clone(m.Entries)
	var paths []string
	for _, step := range steps {
		switch step.Action {
		case edit.Create:
			paths = append(paths, step.Path)
			m.RecordIntent(key, step)
		case edit.Update, edit.Insert:
			m.RecordIntent(key, step)
		case edit.Same:
			// A block tells by itself that it is gpuard's, also where the record of it was lost.
			if step.Block != "" {
				m.RecordIntent(key, step)
			}
		case edit.Delete, edit.Cut, edit.Gone, edit.Left:
		}
	}

	if err := m.PrepareFolders(paths); err != nil {
		m.Entries = known
		return err
	}

	for i, step := range steps {
		// Of a gpuard that was killed.
		err := atomicfile.RemoveTemporary(step.Path)
		if err != nil {
			err = fmt.Errorf("cannot change %s: %w", step.Path, err)
		} else {
			err = applyStep(step)
		}
		if err != nil {
			if undoSteps(steps[:i]) {
				m.Entries = known
			}
			return err
		}

		switch step.Action {
		case edit.Delete, edit.Cut, edit.Gone:
			m.DropEntry(step.Path, step.Block)
		case edit.Create, edit.Update, edit.Insert:
			m.RecordDone(step)
		case edit.Same, edit.Left:
		}
	}

	return nil
}

// undoSteps undoes steps that were done, the last first, and reports whether all is as before. What was taken away
// stays away: that comes after everything else, and is a matter of trying again.
func undoSteps(steps []edit.Step) bool {
	for _, step := range slices.Backward(steps) {
		var err error
		switch step.Action {
		case edit.Create:
			err = atomicfile.Remove(step.Path, []byte(step.After))
		case edit.Update, edit.Insert:
			err = atomicfile.ReplaceText(step.Path, []byte(step.After), []byte(step.Before))
		case edit.Delete, edit.Cut, edit.Gone:
			return false
		case edit.Same, edit.Left:
		}
		if err != nil {
			return false
		}
	}
	return true
}

func applyStep(step edit.Step) error {
	switch step.Action {
	case edit.Create:
		return atomicfile.Create(step.Path, []byte(step.After), os.FileMode(step.Permissions()))
	case edit.Update, edit.Insert, edit.Cut:
		return atomicfile.ReplaceText(step.Path, []byte(step.Before), []byte(step.After))
	case edit.Delete:
		return atomicfile.Remove(step.Path, []byte(step.Before))
	case edit.Same, edit.Gone, edit.Left:
	}
	return nil
}

package userqueue

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/host/files"
)

// countJobs is how many jobs a journal of this size has. A file says how many it had at some size; what follows is
// read, so that it does not matter whether that file could be written.
func (q *Queue) countJobs(size int64) (int, error) {
	path, at := filepath.Join(q.Dir, countFile), int64(0)
	var t batchlog.Tally
	text, err := files.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("cannot read %s: %w", path, err)
	}

	_, err = fmt.Sscanf(string(text.Content), "%d %d %d %d\n", &at, &t.Runs, &t.Lines, &t.Lost)
	if most := int(at); err != nil || at < 0 || at > size || min(t.Runs, t.Lines, t.Lost) < 0 || max(t.Runs, t.Lines, t.Lost) > most {
		at, t = 0, batchlog.Tally{}
	}

	for at < size {
		line, err := q.journal.Line(at)
		if err != nil {
			return 0, err
		}
		if odd := t.ReadLine(bytes.TrimSuffix(line, []byte("\n"))); odd != nil {
			q.odd = append(q.odd, *odd)
		}
		at += int64(len(line))
	}

	return t.Runs, machine.WriteFile(path, fmt.Appendf(nil, "%d %d %d %d\n", size, t.Runs, t.Lines, t.Lost), 0o600)
}

// OddLines names the lines of the journal that Submit found left out since a job was handed in last; of many the first
// ones.
func (q *Queue) OddLines() []string { return q.oddLineTexts(q.odd, len(q.odd)) }

// OddIn names those that a state has left out.
func (q *Queue) OddIn(state *batchlog.State) []string {
	return q.oddLineTexts(state.OddLines, state.Odd)
}

func (q *Queue) oddLineTexts(list []batchlog.OddLine, all int) (texts []string) {
	const most = 3
	for _, odd := range list[:min(len(list), most)] {
		texts = append(texts, odd.DescribeIn(filepath.Join(q.Dir, journalFile)))
	}
	if more := all - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and so are %d further lines", more))
	}

	return texts
}

// Package trace reads records of jobs that have run on GPUs: the columns of Philly and of Alibaba's openb, what Slurm's
// sacct -P prints, and gpuard's own history. It opens no files, and replays nothing.
//
//	t, err := trace.ReadJobs(file)
package trace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/core/sim"
)

// Trace is the jobs of a record, in the order of their arrival.
type Trace struct {
	Format    string    // in words
	Jobs      []sim.Job //
	Users     []string  // by sim.Job.User
	Estimates bool      // some jobs have one
	// Some jobs have a part of a GPU.
	Shares bool
	// What was left out or changed, with counts.
	Remarks []string
}

// MaxJobs is how many jobs a trace can have. A job takes 32 bytes.
const MaxJobs = 10_000_000

// maxLineBytes is the limit of a line, in bytes.
const maxLineBytes = 1 << 16

// ReadJobs reads a trace of any of the formats, which its beginning tells. Lines that say nothing of a job on a GPU are
// counted in the remarks; what cannot be read is an error with its line.
func ReadJobs(r io.Reader) (Trace, error) { return readAtMost(r, MaxJobs) }

func readAtMost(r io.Reader, most int) (Trace, error) {
	in := bufio.NewReaderSize(r, maxLineBytes)
	start, err := in.Peek(512)
	if len(start) == 0 {
		if err != nil && !errors.Is(err, io.EOF) {
			return Trace{}, fmt.Errorf("cannot read the trace: %w", err)
		}
		return Trace{}, fmt.Errorf("cannot read the trace: it is empty")
	}

	k := &jobCollector{most: most, users: map[string]uint32{}}
	switch start = bytes.TrimSpace(start); {
	case bytes.HasPrefix(start, []byte(`{"lease"`)):
		err = k.readLeases(in)
	case bytes.HasPrefix(start, []byte("{")):
		err = k.readHistory(in)
	default:
		err = k.readTable(in)
	}

	if err != nil {
		return Trace{}, fmt.Errorf("cannot read the trace: %w", err)
	}
	if len(k.Jobs) == 0 {
		return Trace{}, fmt.Errorf("cannot read the trace: it has no job on a GPU%s", k.whyEmpty())
	}

	k.sortJobs()

	return k.Trace, nil
}

// jobCollector collects the jobs.
type jobCollector struct {
	Trace
	users map[string]uint32
	left  struct{ noGPU, unfinished, backwards, steps int } // out of the trace
	// Counted as whole GPUs.
	shares int
	// The jobs that arrived before the one in the line above them.
	early int
	last  int64
	most  int // jobs
}

// addJob adds a job, or counts why it is none.
func (k *jobCollector) addJob(j sim.Job, gpus int, user string) error {
	switch {
	case gpus == 0:
		k.left.noGPU++
		return nil
	case gpus < 0 || gpus > 1<<14:
		return fmt.Errorf("%d GPUs are outside 0 to %d", gpus, 1<<14)
	case j.Lasts < 0:
		k.left.backwards++
		return nil
	case len(k.Jobs) == k.most:
		return fmt.Errorf("there are more than %d jobs: split the trace", k.most)
	}

	if j.Arrival < k.last {
		k.early++
	}

	k.last = j.Arrival
	n, known := k.users[user]
	if !known {
		n = uint32(len(k.Users)) //nolint:gosec // at most Most
		k.users[strings.Clone(user)] = n
		k.Users = append(k.Users, strings.Clone(user))
	}

	j.GPUs, j.User = int16(gpus), n
	k.Estimates, k.Shares = k.Estimates || j.Estimate > 0, k.Shares || j.Share > 0
	k.Jobs = append(k.Jobs, j)

	return nil
}

// sortJobs sorts the jobs, and says in words what was counted.
func (k *jobCollector) sortJobs() {
	if k.early > 0 {
		slices.SortStableFunc(k.Jobs, func(a, b sim.Job) int {
			switch {
			case a.Arrival < b.Arrival:
				return -1
			case a.Arrival > b.Arrival:
				return 1
			}
			return 0
		})
	}
	for _, c := range k.remarkCounts() {
		if c.n > 0 {
			k.Remarks = append(k.Remarks, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
}

type remarkCount struct {
	n    int
	what string
}

func (k *jobCollector) remarkCounts() []remarkCount {
	return []remarkCount{
		{k.left.noGPU, "jobs without a GPU are left out"},
		{k.left.unfinished, "jobs without a start or an end are left out"},
		{k.left.backwards, "jobs that end before they start are left out"},
		{k.left.steps, "lines of steps of jobs are left out"},
		{k.shares, "leases of a part of a GPU count as whole GPUs"},
		{k.early, "jobs came earlier than the line before them: the jobs were sorted"},
	}
}

// whyEmpty is what was left out of a trace that has no job.
func (k *jobCollector) whyEmpty() string {
	var parts []string
	for _, c := range k.remarkCounts() {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	if len(parts) == 0 {
		return ""
	}

	return ": " + strings.Join(parts, ", ")
}

// readTable reads lines of columns, of which the first line has the names.
func (k *jobCollector) readTable(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, maxLineBytes), maxLineBytes)
	var f *format
	var at columns

	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}

		if f == nil {
			var err error
			f, at, err = formatOf(strings.TrimPrefix(text, "\ufeff"))
			if err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}

			k.Format = f.name
			continue
		}

		err := k.readRow(f, &at, text)
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}

	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("a line is longer than %d bytes", maxLineBytes)
	} else if err != nil {
		return err
	}

	return nil
}

func (k *jobCollector) readRow(f *format, at *columns, text string) error {
	err := at.splitLine(text)
	if err != nil {
		return err
	}

	return f.read(k, at)
}

// columns are the values of a line by the names of its columns.
type columns struct {
	sep    string
	places map[string]int
	width  int
	values []string
}

func (c *columns) splitLine(text string) error {
	c.values = c.values[:0]
	for part := range strings.SplitSeq(text, c.sep) {
		c.values = append(c.values, strings.TrimSpace(part))
	}
	if len(c.values) < c.width {
		return fmt.Errorf("it has %d columns, the first line has %d", len(c.values), c.width)
	}

	return nil
}

// columnValue is "" where there is no such column.
func (c *columns) columnValue(name string) string {
	i, there := c.places[name]
	if !there {
		return ""
	}
	return c.values[i]
}

// formatOf finds the format whose columns the first line names.
func formatOf(head string) (*format, columns, error) {
	sep := ","
	if strings.Contains(head, "|") {
		sep = "|"
	}

	c := columns{sep: sep, places: map[string]int{}}
	for i, name := range strings.Split(head, sep) {
		name = strings.ToLower(strings.Trim(strings.TrimSpace(name), `"`))
		if name != "" {
			c.places[name], c.width = i, i+1
		}
	}

	for _, f := range traceFormats() {
		if _, there := c.places[f.mark]; !there {
			continue
		}

		var missing []string

		for _, choice := range f.needs {
			if !slices.ContainsFunc(strings.Split(choice, "/"), func(name string) bool { _, there := c.places[name]; return there }) {
				missing = append(missing, strings.ReplaceAll(choice, "/", " or "))
			}
		}

		if len(missing) > 0 {
			return nil, c, fmt.Errorf("the column %s is missing, which %s has", strings.Join(missing, ", "), f.name)
		}

		return &f, c, nil
	}

	return nil, c, fmt.Errorf("the format is not known: the first line names columns, such as timestamp,duration,num_gpus; or those of sacct -P; or it is the answer of gpuard history --json")
}

// parseSeconds reads a number of seconds.
func parseSeconds(name, text string) (time.Duration, error) {
	value, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || value != value || value > 1e9 || value < -1e9 {
		return 0, fmt.Errorf("%s %q is not a number of seconds", name, cutBrief(text))
	}
	return time.Duration(value * float64(time.Second)), nil
}

// cutBrief cuts a text that goes into an error.
func cutBrief(text string) string {
	if len(text) > 40 {
		return text[:40] + "…"
	}
	return text
}

package commands

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"gpuard/internal/app/leases"
	"gpuard/internal/app/observe"
	"gpuard/internal/app/services"
	"gpuard/internal/core/prose"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/cli/batchcmd"
)

// logReader reads what a job of the queue or a service has written. What a plain gpuard run writes goes where its
// caller wants it.
func logReader(p *cli.Program) observe.LogReader {
	return func(ctx context.Context, name string, last int) (title string, lines []string, err error) {
		own := copyProgram(p)
		if areJobs([]string{name}) {
			return jobLog(own, name, last)
		}

		for _, view := range services.ProjectViews(ctx, own.Host) {
			for i := range view.Rows {
				if row := &view.Rows[i]; row.Lease == name && row.Log != "" {
					return row.Name, lastLines(row.Log, last), nil
				}
			}
		}

		l, found, err := leases.FindToCancel(ctx, own.Host, name)
		if err != nil || !found {
			return "", nil, fmt.Errorf("cannot open the log of %s: only a job of your own queue, or a service of yours, has one", name)
		}

		number, err := jobOfLease(own, l)
		if err != nil {
			return "", nil, err
		}
		if number == 0 {
			return "", nil, fmt.Errorf("cannot open the log of %s: it was started by gpuard run, and writes to the terminal of its caller", name)
		}

		return jobLog(own, strconv.Itoa(number), last)
	}
}

func jobLog(p *cli.Program, name string, last int) (title string, lines []string, err error) {
	numbers, err := batchcmd.JobNumbers([]string{name})
	if err != nil {
		return "", nil, err
	}

	q, err := batchcmd.OpenQueue(p)
	if err != nil {
		return "", nil, err
	}

	defer q.Close()
	list, err := q.Jobs(numbers)
	if err != nil {
		return "", nil, err
	}
	if len(list) == 0 {
		return "", nil, errors.New("cannot find job " + name)
	}

	return fmt.Sprintf("job %d  %s", list[0].Number, prose.Clean(list[0].Name)), lastLines(list[0].Log, last), nil
}

// lastLines are those of a log, without what would move the cursor.
func lastLines(path string, last int) (lines []string) {
	logs := services.NewLogs()
	defer logs.Close()
	row := services.Row{Log: path}
	row.Name = "log"
	logs.Add(row, last)

	// A terminal shows the next line in place of the one before, as a progress bar wants it.
	redrawn := false
	for _, next := range []func() (services.LogLine, bool){logs.Now, logs.UnendedLine} {
		for line, ok := next(); ok; line, ok = next() {
			text := prose.Clean(string(line.Text))
			if redrawn {
				lines[len(lines)-1] = text
			} else {
				lines = append(lines, text)
			}
			redrawn = line.Over
		}
	}

	return lines[max(0, len(lines)-last):]
}

package batchcmd

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// mostTasks is the size of an array.
const mostTasks = 10_000

// arrayTasks reads --array: "1-20", "1,5,9", "0-99%4".
func arrayTasks(text, log string) (tasks []int, most int, err error) {
	if text == "" {
		return nil, 0, nil
	}

	wrong := fmt.Errorf("cannot read --array %q: write numbers from 0, such as --array 1-20, --array 1,5,9, or --array 1-20%%4 for 4 at a time", text)
	list, limit, limited := strings.Cut(text, "%")
	if limited {
		most, err = strconv.Atoi(limit)
		if err != nil || most < 1 {
			return nil, 0, wrong
		}
	}

	tasks, err = parseNumbers(list, mostTasks)
	if err != nil || len(tasks) == 0 {
		return nil, 0, wrong
	}
	if len(tasks) == mostTasks+1 {
		return nil, 0, fmt.Errorf("cannot queue --array %s: at most %d jobs at once; hand in several arrays", text, mostTasks)
	}
	if log != "" && !strings.Contains(log, "%a") {
		return nil, 0, fmt.Errorf("cannot use --log %s with --array: all jobs would write to one file; write %%a where the number of each is to stand, such as --log run-%%a.log", log)
	}

	return tasks, most, nil
}

// parseNumbers reads "1-3,7". Of more than most it returns one more.
func parseNumbers(text string, most int) (list []int, err error) {
	for word := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(word, "-")
		first, err := strconv.ParseUint(from, 10, 31)
		last := first
		if err == nil && ranged {
			last, err = strconv.ParseUint(to, 10, 31)
		}

		if err != nil || last < first {
			return nil, errors.New("no numbers")
		}

		for n := first; n <= last && len(list) <= most; n++ {
			list = append(list, int(n))
		}
	}
	return list, nil
}

package launchers

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Behind is what is left of a doubt where the program can open only the GPUs that it is given, so many, and counts them
// from 0; nothing where it then uses all of them. named are those that the request names.
func (d Doubt) Behind(gpus int, named []string) (left Doubt, doubtful bool) {
	switch {
	case d.Effect == Drops:
		// It sees what it can open.
		return d, false
	case d.Effect != Rewrites && d.Effect != Ignores:
		return d, true
	case d.Devices == "" && d.Count == "":
		return d, !given(d.List, named)
	}
	used, highest := countOf(d)
	switch {
	case highest >= gpus:
		d.Seen += ", and can open " + numbers(gpus)
		return d, true
	case used < gpus:
		return Doubt{Seen: fmt.Sprintf("%s, and so uses no more than %d of the GPUs that it is given", d.Seen, used), Do: d.Do}, true
	}

	return d, false
}

// given reports whether a list of identifiers has only devices that the request names, by at least a part.
func given(list string, named []string) bool {
	return !slices.ContainsFunc(strings.Split(list, ","), func(id string) bool {
		return !slices.ContainsFunc(named, func(name string) bool {
			_, err := strconv.Atoi(name)
			return name != "" && err != nil && strings.HasPrefix(strings.TrimSpace(id), name)
		})
	})
}

// countOf is how many devices a command uses, and the highest number.
func countOf(d Doubt) (used, highest int) {
	if d.Devices == "" {
		n, _ := strconv.Atoi(d.Count)
		return n, n - 1
	}
	var all []int
	for _, word := range strings.Split(d.Devices, ",") {
		n, err := strconv.Atoi(word)
		if err == nil && !slices.Contains(all, n) {
			all = append(all, n)
		}
	}

	return len(all), slices.Max(append(all, -1))
}

// numbers are those that a program with so many GPUs can use.
func numbers(gpus int) string {
	switch gpus {
	case 0:
		return "no GPU"
	case 1:
		return "one GPU, number 0"
	}
	return fmt.Sprintf("%d GPUs, numbers 0 to %d", gpus, gpus-1)
}

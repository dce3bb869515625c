package ranks

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// CPUs are processor numbers, ascending.
type CPUs []int

// maxCPUs is more than any kernel supports (CONFIG_NR_CPUS).
const maxCPUs = 1 << 13

// ParseCPUs reads the kernel's form of a list, "0-3,8" (cpuset(7), "List format").
func ParseCPUs(text string) (CPUs, error) {
	var out CPUs
	for part := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		if part == "" {
			continue
		}

		from, to, ranged := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		last := first
		if err == nil && ranged {
			last, err = strconv.Atoi(to)
		}

		if err != nil || first < 0 || last < first || last >= maxCPUs {
			return nil, fmt.Errorf("cannot read the list of processors %q", text)
		}

		for n := first; n <= last; n++ {
			out = append(out, n)
		}
	}
	slices.Sort(out)

	return slices.Compact(out), nil
}

// String is the same form.
func (c CPUs) String() string {
	var parts []string
	for i := 0; i < len(c); {
		j := i
		for j+1 < len(c) && c[j+1] == c[j]+1 {
			j++
		}
		if j == i {
			parts = append(parts, strconv.Itoa(c[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", c[i], c[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// Intersect returns those that are in other too.
func (c CPUs) Intersect(other CPUs) CPUs {
	return slices.DeleteFunc(slices.Clone(c), func(n int) bool { return !slices.Contains(other, n) })
}

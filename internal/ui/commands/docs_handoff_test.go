package commands

import (
	"fmt"
	"strings"

	"gpuard/internal/core/handoff"
)

// handoffPage is the table by which jobs are written for other engines.
func handoffPage() string {
	var b strings.Builder
	b.WriteString("# What other engines can be told\n\n" + made + `What [` + "`gpuard export`" + `](commands.md#gpuard-export) makes of each thing that a job can ask for. **exact**: the engine is told the same.
**approximate**: it is told something like it, or needs nothing; a line on standard error says so. **refused**: nothing is written, the exit code is 122,
and what is in brackets is the way out. The code, this page and a test are made from one table (` + "`internal/core/handoff`" + `). How to use it:
[Slurm](../how-to/slurm.md), [Kubernetes](../how-to/kubernetes.md), [Docker Compose](../how-to/containers.md#a-project-of-docker-compose).
`)
	for _, f := range handoff.Fields() {
		fmt.Fprintf(&b, "\n## %s\n\n", f.Flag)
		for i, says := range f.Says {
			if i > 0 && says == f.Says[i-1] {
				continue
			}
			var titles []string
			for n := i; n < len(f.Says) && f.Says[n] == says; n++ {
				titles = append(titles, handoff.Targets()[n].Title())
			}
			name := strings.Join(titles, ", ")
			if len(titles) == len(f.Says) {
				name = "All"
			}
			fmt.Fprintf(&b, "- %s: %s\n", name, strings.NewReplacer("|", "\\|", "<", "\\<").Replace(says))
		}
	}
	return b.String()
}

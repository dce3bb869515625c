package entry

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the page again")

// TestDocs: the page about the processes says what the table says.
func TestDocs(t *testing.T) {
	const page = "../../docs/reference/processes.md"
	var rows strings.Builder
	for _, h := range helpers() {
		fmt.Fprintf(&rows, "| `gpuard %s` | %s | %s |\n", h.name, h.is, h.lost)
	}
	want := fmt.Sprintf(processes, rows.String())
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil { //nolint:gosec // a page for all
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != want {
		t.Errorf("%s is stale: make docs", page)
	}
}

const processes = `# The processes of gpuard

What ` + "`gpuard run`" + ` starts is the command itself, in gpuard's place. Beside it gpuard starts processes of its own, each for one thing;
` + "`ps`" + ` shows them by the first argument. None of them runs for longer than what it is for, and a job never depends on a process that it
shares with jobs of others.

| process | what it does | what is lost when it is killed |
| --- | --- | --- |
%s
The function that each of them runs is in internal/entry/helpers.go; the way of a job through them: [architecture](../explanation/architecture.md). What a lease survives: [leases](../explanation/leases.md).
`

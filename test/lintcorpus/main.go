// Command lintcorpus runs gpuard lint over unpacked repositories, to show what a new rule costs before it lands: findings
// by code and repository, files per second, memory, and what is new and gone since the last run over the same folder.
// The repositories are others' work and are never committed. `make lint-corpus DIR=FOLDER` runs it.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: lintcorpus GPUARD FOLDER STATE: FOLDER has a repository in each folder, STATE is the file of the last run")
		os.Exit(2)
	}
	err := lintAll(os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, "lintcorpus: "+err.Error())
		os.Exit(1)
	}
}

// finding is what is compared between two runs: where, and which code.
type finding struct {
	Repository string `json:"repository"`
	Path       string `json:"path"`
	Line       int    `json:"line"`
	Code       string `json:"code"`
	Severity   string `json:"severity"`
	Seen       string `json:"seen"`
	Fixable    bool   `json:"fixable"`
}

// lintRun is a run over one repository.
type lintRun struct {
	files, skipped, problems int
	findings                 []finding
	took                     time.Duration
	peakKiB                  int64
}

func lintAll(gpuard, folder, state string) error {
	gpuard, err := filepath.Abs(gpuard) // it runs in other folders
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	var all []finding
	var total lintRun
	out := bufio.NewWriter(os.Stdout)
	fmt.Fprintf(out, "%-44s %7s %8s %8s %7s %7s %6s\n", "repository", "files", "not read", "findings", "errors", "s", "MB")
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		one, err := lintRepository(gpuard, folder, e.Name())
		if err != nil {
			return err
		}
		printRow(out, e.Name(), one)
		total.files, total.skipped, total.took = total.files+one.files, total.skipped+one.skipped+one.problems, total.took+one.took
		total.peakKiB = max(total.peakKiB, one.peakKiB)
		all = append(all, one.findings...)
	}
	total.findings = all
	printRow(out, "all", total)
	fmt.Fprintf(out, "%.0f files per second\n", float64(total.files)/total.took.Seconds())
	printByCode(out, all)
	last, err := readState(state)
	if err != nil {
		return err
	}
	printDifference(out, "gone", last, all)
	printDifference(out, "new", all, last)
	err = out.Flush()
	if err != nil {
		return err
	}
	return writeState(state, all)
}

// lintRepository runs gpuard over one repository, and times it.
func lintRepository(gpuard, folder, name string) (lintRun, error) {
	cmd := exec.Command(gpuard, "lint", "--json", "--preview", ".")
	cmd.Dir = filepath.Join(folder, name)
	began := time.Now()
	answer, err := cmd.Output()
	var failed *exec.ExitError
	if err != nil && (!errors.As(err, &failed) || failed.ExitCode() > 2) {
		return lintRun{}, fmt.Errorf("cannot lint %s: %w", name, err)
	}
	one := lintRun{took: time.Since(began), peakKiB: cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss}
	var report struct {
		Files             int
		Findings          []finding
		Skipped, Problems []json.RawMessage
	}
	err = json.Unmarshal(answer, &report)
	if err != nil {
		return lintRun{}, fmt.Errorf("cannot read the answer about %s: %w", name, err)
	}
	one.files, one.skipped, one.problems, one.findings = report.Files, len(report.Skipped), len(report.Problems), report.Findings
	for i := range one.findings {
		one.findings[i].Repository = name
	}
	return one, nil
}

func printRow(out io.Writer, name string, one lintRun) {
	wrong := 0
	for _, f := range one.findings {
		if f.Severity == "error" {
			wrong++
		}
	}
	fmt.Fprintf(out, "%-44s %7d %8d %8d %7d %7.1f %6d\n", name, one.files, one.skipped+one.problems, len(one.findings), wrong, one.took.Seconds(), one.peakKiB>>10)
}

// printByCode counts the findings of each code, and the repositories that have them.
func printByCode(out io.Writer, all []finding) {
	count := map[string]int{}
	where := map[string]map[string]bool{}
	for _, f := range all {
		key := f.Code + " " + f.Severity
		count[key]++
		if where[key] == nil {
			where[key] = map[string]bool{}
		}
		where[key][f.Repository] = true
	}
	keys := make([]string, 0, len(count))
	for key := range count {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(count[b]-count[a], strings.Compare(a, b)) })
	fmt.Fprintf(out, "\n%-36s %-8s %8s %12s\n", "code", "severity", "findings", "repositories")
	for _, key := range keys {
		code, severity, _ := strings.Cut(key, " ")
		fmt.Fprintf(out, "%-36s %-8s %8d %12d\n", code, severity, count[key], len(where[key]))
	}
}

// printDifference lists the findings that are in one run and not in the other.
func printDifference(out io.Writer, what string, of, other []finding) {
	known := map[finding]bool{}
	for _, f := range other {
		known[f] = true
	}
	n := 0
	for _, f := range of {
		if known[f] {
			continue
		}
		if n == 0 {
			fmt.Fprintf(out, "\n%s since the last run\n", what)
		}
		n++
		fmt.Fprintf(out, "  %s/%s:%d: %s: %s (%s)\n", f.Repository, f.Path, f.Line, f.Severity, f.Seen, f.Code)
	}
}

func readState(path string) (all []finding, err error) {
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(data, &all)
}

func writeState(path string, all []finding) error {
	data, err := json.Marshal(all)
	if err != nil {
		return err
	}
	err = os.MkdirAll(filepath.Dir(path), 0o755)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// Command shape prints how the code is built: for each package its size and the uses between its files, then the
// structs that most files share, the unexported names that are declared most often, and how often the words occur that
// this project avoids, and how the code reads from outside. Tests are left out. It judges nothing. `make shape` runs it;
// `make shape BEFORE=FOLDER` compares with another version, such as a worktree of an earlier commit, or from outside with
// a checkout of any other project.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	out := bufio.NewWriter(os.Stdout)
	err := printShape(out, os.Args[1:])
	if err == nil {
		err = out.Flush()
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, "shape: "+err.Error())
		os.Exit(1)
	}
}

// printShape prints this tree, or compares it with another version of itself; other projects are only measured from
// outside.
func printShape(out io.Writer, others []string) error {
	packages, err := loadPackages(".")
	if err != nil {
		return err
	}
	if len(others) == 0 {
		printReport(out, packages)
		return printOutside(out, []string{"."})
	}

	before, err := loadPackages(others[0])
	if err == nil && len(before) > 0 && before[0].module == packages[0].module {
		printComparison(out, before, packages)
	}

	return printOutside(out, append([]string{"."}, others...))
}

// How many rows the lists have.
const (
	maxStructRows = 15
	maxNameRows   = 25
)

func printReport(out io.Writer, packages []*pkg) {
	slices.SortFunc(packages, func(a, b *pkg) int { return strings.Compare(a.path, b.path) })
	fmt.Fprintf(out, "%-28s %5s %6s  %6s %9s %5s  %6s %9s %5s\n", "package", "files", "lines",
		"uses", "backwards", "", "arrows", "backwards", "")
	var files, lines int
	var uses, arrows useCount
	for _, p := range packages {
		graph := p.countFileUses()
		u, a := countUses(graph), countUses(capAtOne(graph))
		fmt.Fprintf(out, "%-28s %5d %6d  %s  %s\n", p.pathInModule(), len(p.files), p.countLines(), u, a)
		files, lines = files+len(p.files), lines+p.countLines()
		uses, arrows = uses.addCount(u), arrows.addCount(a)
	}
	fmt.Fprintf(out, "%-28s %5d %6d  %s  %s\n", "all", files, lines, uses, arrows)
	fmt.Fprintln(out, "A use is one definition that a file has from another of its package; "+
		"an arrow is all uses from one file to another.")

	fmt.Fprintf(out, "\n%-40s %6s %7s %6s %8s\n", "struct", "fields", "methods", "files", "packages")
	for _, s := range firstRows(structShapes(packages), maxStructRows) {
		fmt.Fprintf(out, "%-40s %6d %7d %6d %8d\n", s.name, s.fields, s.methods, s.files, s.packages)
	}

	fmt.Fprintf(out, "\n%-20s %6s  where\n", "unexported name", "times")
	for _, n := range firstRows(sharedNames(packages), maxNameRows) {
		fmt.Fprintf(out, "%-20s %6d  %s\n", n.name, n.times, strings.Join(n.where, ", "))
	}

	comments, literals := collectText(packages)
	fmt.Fprintf(out, "\n%-34s %10s %10s\n", "per 100,000 words", "comments", "literals")
	for _, w := range watchedWords() {
		fmt.Fprintf(out, "%-34s %10.0f %10.0f\n", w.name, w.ratePer100000(comments), w.ratePer100000(literals))
	}
	fmt.Fprintf(out, "%-34s %10d %10d\n", "words in all", comments.countWords(), literals.countWords())
}

// printComparison prints the sums of two versions side by side.
func printComparison(out io.Writer, before, now []*pkg) {
	fmt.Fprintf(out, "%-36s %9s %9s\n", "", "before", "now")
	row := func(name string, of func([]*pkg) string) {
		fmt.Fprintf(out, "%-36s %9s %9s\n", name, of(before), of(now))
	}
	sum := func(of func(*pkg) int) func([]*pkg) string {
		return func(all []*pkg) string {
			n := 0
			for _, p := range all {
				n += of(p)
			}
			return fmt.Sprint(n)
		}
	}
	row("packages", func(all []*pkg) string { return fmt.Sprint(len(all)) })
	row("product files", sum(func(p *pkg) int { return len(p.files) }))
	row("product lines", sum((*pkg).countLines))
	row("uses between files of a package", sum(func(p *pkg) int { return countUses(p.countFileUses()).all }))
	row("uses that run backwards", sum(func(p *pkg) int { return countUses(p.countFileUses()).backwards }))
	row("fields of the largest shared struct", func(all []*pkg) string {
		most := 0
		for _, s := range structShapes(all) {
			most = max(most, s.fields)
		}
		return fmt.Sprint(most)
	})
	for _, w := range watchedWords() {
		row(w.name+", comments", func(all []*pkg) string {
			comments, _ := collectText(all)
			return fmt.Sprintf("%.0f", w.ratePer100000(comments))
		})
	}
}

func firstRows[T any](list []T, most int) []T { return list[:min(most, len(list))] }

// useCount is how many uses there are, and how many of them run backwards.
type useCount struct{ all, backwards int }

func countUses(graph [][]int) useCount {
	_, backwards := orderFiles(graph)
	return useCount{sumUses(graph), backwards}
}

func (c useCount) addCount(d useCount) useCount {
	return useCount{c.all + d.all, c.backwards + d.backwards}
}

// String is three columns of the table.
func (c useCount) String() string {
	if c.all == 0 {
		return fmt.Sprintf("%6d %9d %5s", 0, 0, "")
	}
	return fmt.Sprintf("%6d %9d %3.0f %%", c.all, c.backwards, 100*float64(c.backwards)/float64(c.all))
}

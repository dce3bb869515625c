// Command shape prints how the code is built: for each package its size and the uses between its files, then the
// structs that most files share, the unexported names that are declared most often, and how often the words occur that
// this project avoids. Tests are left out. It judges nothing. `make shape` runs it.
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
	packages, err := load(".")
	if err == nil {
		report(out, packages)
		err = out.Flush()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "shape: "+err.Error())
		os.Exit(1)
	}
}

// How many rows the lists have.
const (
	mostStructs = 15
	mostNames   = 25
)

func report(out io.Writer, packages []*pkg) {
	slices.SortFunc(packages, func(a, b *pkg) int { return strings.Compare(a.path, b.path) })
	fmt.Fprintf(out, "%-28s %5s %6s  %6s %9s %5s  %6s %9s %5s\n", "package", "files", "lines",
		"uses", "backwards", "", "arrows", "backwards", "")
	var files, lines int
	var uses, arrows count
	for _, p := range packages {
		graph := p.uses()
		u, a := counted(graph), counted(single(graph))
		fmt.Fprintf(out, "%-28s %5d %6d  %s  %s\n", p.name(), len(p.files), p.lines(), u, a)
		files, lines = files+len(p.files), lines+p.lines()
		uses, arrows = uses.plus(u), arrows.plus(a)
	}
	fmt.Fprintf(out, "%-28s %5d %6d  %s  %s\n", "all", files, lines, uses, arrows)
	fmt.Fprintln(out, "A use is one definition that a file has from another of its package; "+
		"an arrow is all uses from one file to another.")

	fmt.Fprintf(out, "\n%-40s %6s %7s %6s %8s\n", "struct", "fields", "methods", "files", "packages")
	for _, s := range first(structs(packages), mostStructs) {
		fmt.Fprintf(out, "%-40s %6d %7d %6d %8d\n", s.name, s.fields, s.methods, s.files, s.packages)
	}

	fmt.Fprintf(out, "\n%-20s %6s  where\n", "unexported name", "times")
	for _, n := range first(names(packages), mostNames) {
		fmt.Fprintf(out, "%-20s %6d  %s\n", n.name, n.times, strings.Join(n.where, ", "))
	}

	comments, literals := text(packages)
	fmt.Fprintf(out, "\n%-34s %10s %10s\n", "per 100,000 words", "comments", "literals")
	for _, w := range watched() {
		fmt.Fprintf(out, "%-34s %10.0f %10.0f\n", w.name, w.rate(comments), w.rate(literals))
	}
	fmt.Fprintf(out, "%-34s %10d %10d\n", "words in all", comments.words(), literals.words())
}

func first[T any](list []T, most int) []T { return list[:min(most, len(list))] }

// count is how many uses there are, and how many of them run backwards.
type count struct{ all, backwards int }

func counted(graph [][]int) count {
	_, backwards := order(graph)
	return count{total(graph), backwards}
}

func (c count) plus(d count) count { return count{c.all + d.all, c.backwards + d.backwards} }

// String is three columns of the table.
func (c count) String() string {
	if c.all == 0 {
		return fmt.Sprintf("%6d %9d %5s", 0, 0, "")
	}
	return fmt.Sprintf("%6d %9d %3.0f %%", c.all, c.backwards, 100*float64(c.backwards)/float64(c.all))
}

package shell

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"gpuard/internal/core/lint"
)

// scope is what holds at one place of a script.
type scope struct {
	in      string // the function
	process string // as in lint.Step
	// The number of processes within each other.
	depth int
	// The scope is inside a branch or loop.
	maybe bool
	// The scope is inside what runs in the background.
	beside bool
	// The variables that were found to be empty: what they are given here is a default.
	empty []string
	// The variables that the conditions around ask about.
	asked     []string
	exportAll bool // set -a
	exported  map[string]bool
	// Variables without export: the steps that set them, which a later export makes visible to children.
	plain map[string][]int
}

func (s *scope) clone() *scope {
	c := *s
	c.exported = maps.Clone(s.exported)
	c.plain = maps.Clone(s.plain)

	for name, steps := range c.plain {
		c.plain[name] = slices.Clip(steps)
	}

	return &c
}

// readBranch reads statements that may not happen. What they export counts from there on.
func (r *reader) readBranch(s *scope, lists ...[]*syntax.Stmt) {
	was := s.maybe
	s.maybe = true

	for _, l := range lists {
		r.readList(s, l)
	}
	s.maybe = was
}

// readInProcess reads code that runs in a process of its own, and marks the variables that are set there without effect.
func (r *reader) readInProcess(s *scope, lost string, read func(*scope)) {
	if s.depth == maxDepth {
		return
	}

	first := len(r.steps)
	loops := r.loops
	inside := s.clone()
	r.processes++
	inside.process += strconv.Itoa(r.processes) + "/"
	inside.depth++
	read(inside)
	region := r.steps[first:]

	// In a loop, code before may run after.
	used := r.loops > loops && slices.ContainsFunc(region, canUseVariable)
	for i, step := range slices.Backward(region) {
		if !used && (step.Do == lint.Set || step.Do == lint.Unset) && step.Lost == "" {
			region[i].Lost = lost
		}
		used = used || canUseVariable(step)
	}
}

// maxDepth bounds how many processes within each other are read; no script has so many.
const maxDepth = 50

// canUseVariable reports whether a step can make use of a variable: it starts a program, or it reads more of the script.
func canUseVariable(s lint.Step) bool {
	if s.Do == lint.Set {
		return !s.Value.Known && s.Value.From == "" && !slices.Contains([]string{"read", "mapfile", "readarray", "for"}, s.How)
	}
	if s.Do != lint.Command || len(s.Words) == 0 {
		return false
	}
	if slices.ContainsFunc(s.Words, func(w lint.Word) bool { return !w.Known }) {
		return true
	}

	return !slices.Contains(muteBuiltins(), s.Words[0].Text)
}

// muteBuiltins lists the shell's builtin commands that only use their own words, or change the shell itself.
func muteBuiltins() []string {
	return strings.Fields(": true false echo printf test [ cd pushd popd pwd set shopt shift return exit break continue " +
		"wait trap umask ulimit alias unalias hash type unset export local readonly declare typeset read getopts kill jobs times sleep")
}

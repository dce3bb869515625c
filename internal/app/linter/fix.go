package linter

import (
	"context"
	"unicode/utf8"

	"gpuard/internal/core/lint"
	"gpuard/internal/host/atomicfile"
	"gpuard/internal/host/interpreter"
)

// maxRounds is how often a file is mended and read again: each round mends what the one before made way for, or tries one
// finding alone.
const maxRounds = 32

// fixAttempt is a file on its way to a new text.
type fixAttempt struct {
	// The reading of the newest text that is known to be good.
	read *fileReading
	// What the file holds.
	before fileReading
	// Fixing several findings together has failed.
	alone bool
	// The finding that is tried alone.
	next int
	// Findings of read that the text under trial mends.
	chosen  []bool
	fixed   []LocatedFinding
	trial   []byte
	settled bool
}

// fixFiles mends the files, and writes those that have changed. Some of read may be nil.
func (o Options) fixFiles(ctx context.Context, read []*fileReading) {
	for _, a := range o.findNewTexts(ctx, read) {
		a.read.tried = ctx.Err() == nil
		a.writeFile(ctx)
	}
}

// findNewTexts finds the new texts. One counts only when the same reader reads it, finds the mended findings gone and no
// finding that was not there before.
func (o Options) findNewTexts(ctx context.Context, read []*fileReading) (all []*fixAttempt) {
	for _, one := range read {
		if one != nil && one.skipped == "" && !one.unread && one.isMendable() {
			all = append(all, &fixAttempt{read: one, before: *one})
		}
	}
	for range maxRounds {
		var open []*fixAttempt
		var sources []sourceFile

		for _, a := range all {
			if a.proposeText() {
				open = append(open, a)
				trial := a.read.sourceFile
				trial.text = a.trial
				sources = append(sources, trial)
			}
		}

		if len(open) == 0 || ctx.Err() != nil {
			break
		}

		for i, again := range o.parseAll(ctx, sources) {
			open[i].judgeText(&again, o.bashAccepts(ctx, open[i], &again))
		}
	}
	return all
}

// isMendable reports whether places in the file are places in its text. They are not in a notebook, nor in a text that is
// no UTF-8 or begins with a byte order mark. It also compares the text at each place with what the reader says, in case
// the reader is wrong. (Values over several lines are not compared: a reader drops their indentation.)
func (one *fileReading) isMendable() bool {
	text := string(one.text)
	if one.kind == lint.Notebook || one.path == stdinPath || !utf8.ValidString(text) || len(text) > 2 && text[:3] == "\ufeff" {
		return false
	}

	exact, at := true, lint.TextAt(text)
	eachValue(one.file.Steps, func(v lint.Value) {
		if v.Raw != "" && v.At.Column > 0 && v.At.Line == v.At.EndLine {
			there, ok := at(v.At)
			exact = exact && ok && there == v.Raw
		}
	})

	return exact
}

// eachValue calls f with everything that the steps hold with its place.
func eachValue(steps []lint.Step, f func(lint.Value)) {
	for _, s := range steps {
		f(s.Value)
		for _, a := range s.Args {
			f(a.Value)
		}
		for _, w := range s.Words {
			f(w)
		}
		eachValue(s.With, f)
	}
}

// proposeText makes the next text to try; false when there is none.
func (a *fixAttempt) proposeText() bool {
	if a.settled {
		return false
	}

	found, _ := a.read.applyRules()
	text := string(a.read.text)
	if !a.alone {
		mended, done := lint.ApplyEdits(text, found)
		a.trial, a.chosen = []byte(mended), done
		a.settled = mended == text

		return !a.settled
	}

	for ; a.next < len(found); a.next++ {
		if len(found[a.next].Edits) == 0 {
			continue
		}
		mended, done := lint.ApplyEdits(text, found[a.next:a.next+1])
		if done[0] && mended != text {
			a.chosen = make([]bool, len(found))
			a.chosen[a.next] = true
			a.trial = []byte(mended)

			return true
		}
	}

	a.settled = true

	return false
}

// bashAccepts reports whether bash itself reads a new script, where it is there and reads the old one: it is asked
// beside our own parser, because the two do not agree on everything.
func (o Options) bashAccepts(ctx context.Context, a *fixAttempt, again *fileReading) bool {
	if again.kind != lint.Shell {
		return true
	}
	bash := interpreter.FindBash(func(name string) string { v, _ := o.Env.Lookup(name); return v })
	return bash == "" || interpreter.AcceptsScript(ctx, bash, again.text) || !interpreter.AcceptsScript(ctx, bash, a.read.text)
}

// judgeText takes the text under trial, or leaves it. accepted says whether the shell reads it.
func (a *fixAttempt) judgeText(again *fileReading, accepted bool) {
	found, _ := a.read.applyRules()
	if !accepted || !a.isBetter(found, again) {
		if a.alone {
			a.next++
		}
		a.alone = true
		return
	}

	for i, m := range a.read.describeFindings(found) {
		if a.chosen[i] {
			m.Fixed, m.Fixable = true, true
			a.fixed = append(a.fixed, m)
		}
	}

	a.read.text, a.read.file = again.text, again.file
	a.next, a.alone = 0, false
}

// isBetter reports whether the new text is as readable as the old, has as many findings less as were mended, and no more
// of any kind but remarks, such as on a list that could not be read before.
func (a *fixAttempt) isBetter(found []lint.Finding, again *fileReading) bool {
	if again.skipped != "" || again.unread || !again.isMendable() {
		return false
	}

	left, mended := map[string]int{}, map[string]bool{}
	for i, f := range found {
		left[f.Code]++
		if a.chosen[i] {
			left[f.Code]--
			mended[f.Code] = true
		}
	}

	now, _ := again.applyRules()
	for _, f := range now {
		left[f.Code]--
		if left[f.Code] < 0 && (f.Severity.Bad() || mended[f.Code]) {
			return false
		}
	}

	return true
}

// writeFile puts the new text into the file. Where it cannot, the findings are those of the text that is still there.
func (a *fixAttempt) writeFile(ctx context.Context) {
	if len(a.fixed) == 0 {
		return
	}

	err := ctx.Err()
	if err == nil {
		err = atomicfile.ReplaceText(a.read.path, a.before.text, a.read.text)
	}

	if err != nil {
		*a.read = a.before
		a.read.problem = err.Error()
		return
	}

	a.read.fixed = a.fixed
}

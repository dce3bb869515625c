package edit

import (
	"fmt"
	"strings"
)

// A block is between two marks with its name. The first mark has the sum of the lines between, which reveals a change.
// It also records whether the block added an end to the line before it, which is removed with the block:
//
//	# >>> gpuard setup shell 1f2e3d4c5b6a7988 >>>
//	…
//	# <<< gpuard setup shell <<<
const (
	beginMark   = ">>> gpuard setup "
	endMark     = "<<< gpuard setup "
	lineEndNote = " line-end-added"
)

// block is a block that was found in a text.
type block struct {
	// Bytes, with both marks and the last line's end.
	from, to int
	lines    string // between the marks
	sum      string // in the first mark
	// The line before got its end from gpuard.
	added bool
}

func (c Change) commentMark() string {
	if c.Comment == "" {
		return "#"
	}
	return c.Comment
}

// renderBlock is the block as the file has it.
func (c Change) renderBlock(added bool) string {
	note := ""
	if added {
		note = lineEndNote
	}
	mark := c.Indent + c.commentMark() + " "

	return fmt.Sprintf("%s%s%s %s%s >>>\n%s%s%s%s <<<\n", mark, beginMark, c.Block, TextSum(c.Content), note, c.Content, mark, endMark, c.Block)
}

// findBlock finds the block of c; nil and no error: there is none.
func (c Change) findBlock(text string) (*block, error) {
	var found *block
	open, at := false, 0
	for n, line := range numberedLines(text) {
		here := at
		at += len(line)
		bare := strings.TrimSpace(line)
		name, isBegin := strings.CutPrefix(bare, c.commentMark()+" "+beginMark+c.Block+" ")
		isEnd := bare == c.commentMark()+" "+endMark+c.Block+" <<<"
		switch {
		case !isBegin && !isEnd:
			if open {
				found.lines += line
			}
		case isBegin && found != nil, isEnd && !open:
			return nil, c.marksConflict(n)
		case isBegin:
			rest, ok := strings.CutSuffix(name, " >>>")
			if !ok {
				return nil, c.marksConflict(n)
			}
			found, open = &block{from: here}, true
			found.sum, found.added = strings.CutSuffix(rest, lineEndNote)
		default:
			found.to, open = at, false
		}
	}

	if open {
		return nil, c.marksConflict(strings.Count(text, "\n") + 1)
	}

	return found, nil
}

// numberedLines yields the lines with their ends, and their numbers from 1.
func numberedLines(text string) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		n := 0
		for line := range strings.Lines(text) {
			n++
			if !yield(n, line) {
				return
			}
		}
	}
}

func (c Change) marksConflict(line int) *Conflict {
	return &Conflict{c.Path, fmt.Sprintf("the marks of gpuard's block %q do not match at line %d", c.Block, line), "take the lines of that block away by hand, and try again"}
}

func (c Change) editedConflict() *Conflict {
	return &Conflict{c.Path, fmt.Sprintf("the lines of gpuard's block %q were changed", c.Block), "move what is yours out of it, take the block away, and try again"}
}

func planBlock(c Change, now Found) (Step, error) {
	s := Step{Change: c, Before: now.Content}
	if !now.Exists {
		s.Action, s.After = Create, c.renderBlock(false)
		return s, nil
	}

	b, err := c.findBlock(now.Content)
	switch {
	case err != nil:
		return s, err
	case b == nil:
		s.Action = Insert
		s.After = c.insertBlock(now.Content)
	case TextSum(b.lines) != b.sum:
		return s, c.editedConflict()
	case b.lines == c.Content:
		s.Action, s.After = Same, now.Content
	default:
		s.Action = Update
		s.After = now.Content[:b.from] + c.renderBlock(b.added) + now.Content[b.to:]
	}

	return s, nil
}

func (c Change) insertBlock(text string) string {
	if c.Line > 0 {
		at := 0
		for n, line := range numberedLines(text) {
			if n == c.Line {
				return text[:at] + c.renderBlock(false) + text[at:]
			}
			at += len(line)
		}
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		return text + "\n" + c.renderBlock(true)
	}
	return text + c.renderBlock(false)
}

func cutBlock(s Step, now Found, made bool) (Step, error) {
	b, err := s.findBlock(now.Content)
	switch {
	case err != nil:
		return s, err
	case b == nil:
		s.Action, s.After = Gone, now.Content
		return s, nil
	case TextSum(b.lines) != b.sum:
		s.Action, s.After = Left, now.Content
		return s, nil
	}

	before, after := now.Content[:b.from], now.Content[b.to:]
	if b.added && after == "" {
		before = strings.TrimSuffix(before, "\n")
	}

	s.Action, s.After = Cut, before+after
	if made && s.After == "" {
		s.Action = Delete
	}

	return s, nil
}

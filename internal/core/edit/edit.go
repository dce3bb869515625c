// Package edit decides how gpuard setup changes files, given what they contain:
//
//	step, err := edit.PlanWrite(change, edit.Found{Content: text, Exists: true})
//	undo, err := edit.PlanRemoval(change, found, made)
//
// A whole file can be gpuard's own; in a user's file only a block between two marks is. It must not change a user's own
// text: removing everything restores every byte. It does not read or write files.
package edit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// Change is what a setup wants for one file.
type Change struct {
	Path string // absolute
	// The text of the whole file; with Block of the lines between its marks, the last one ended.
	Content string
	// The mode of a whole file; 0 means 0644.
	Mode uint32
	// A copy of another file, such as a picture, whose content need not be shown.
	Copy bool
	// Name of the block, such as "shell"; "" where the whole file is gpuard's.
	Block string
	// What begins a comment in a file with a block; "" means "#".
	Comment string
	// What stands before the marks of the block.
	Indent string
	// Number of the line, from 1, before which a new block is inserted; 0 means at the end.
	Line int
}

// Found is the present state of the file.
type Found struct {
	Exists  bool
	Content string
	// Recorded sums of what gpuard wrote there or was about to write; nil: no record.
	Known []string
}

// Action is the change of one file.
type Action string

// Actions. Same, Left and Gone change nothing.
const (
	// A file that is not there.
	Create Action = "create"
	// Gpuard's own file or block, unchanged since, gets a new text.
	Update Action = "update"
	// A block into a user's file.
	Insert Action = "insert"
	Delete Action = "delete" // gpuard's own file
	// A block out of a user's file.
	Cut Action = "cut"
	// It is already as wanted.
	Same Action = "same"
	// There is nothing to remove.
	Gone Action = "gone"
	// It was changed since gpuard wrote it, so it is kept.
	Left Action = "left"
)

// Step is the change of one file, with its content before and after.
type Step struct {
	Change
	Action Action
	// Content that the decision is based on.
	Before string
	// Content afterwards; empty for Delete.
	After string
}

// HasEffect reports whether the step changes anything.
func (s Step) HasEffect() bool { return s.Action != Same && s.Action != Left && s.Action != Gone }

// Conflict is why a setup cannot be done. None of its steps is done then.
type Conflict struct{ Path, Why, Remedy string }

// Error begins with "cannot write".
func (c *Conflict) Error() string {
	return fmt.Sprintf("cannot write %s: %s; %s", c.Path, c.Why, c.Remedy)
}

// TextSum identifies a text: the first 16 hex digits of the SHA-256.
func TextSum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// PlanWrite decides how to apply c to the present state now. The error is a *Conflict.
func PlanWrite(c Change, now Found) (Step, error) {
	if c.Block != "" {
		return planBlock(c, now)
	}
	s := Step{Change: c, Before: now.Content, After: c.Content}
	switch {
	case !now.Exists:
		s.Action = Create
	case now.Content == c.Content:
		s.Action = Same
	case now.hasSumOf(now.Content):
		s.Action = Update
	case now.Known != nil:
		return s, &Conflict{c.Path, "it was changed since gpuard wrote it", "move it away, or delete it, and try again"}
	default:
		return s, &Conflict{c.Path, "it is there already, and gpuard has no record of writing it for you", "move it away, or delete it, and try again"}
	}

	return s, nil
}

// PlanRemoval decides how to remove what a setup wrote. made: the file of a block was created for it.
func PlanRemoval(c Change, now Found, made bool) (Step, error) {
	s := Step{Change: c, Before: now.Content}
	switch {
	case !now.Exists:
		s.Action = Gone
	case c.Block != "":
		return cutBlock(s, now, made)
	case now.hasSumOf(now.Content):
		s.Action = Delete
	default:
		s.Action, s.After = Left, now.Content
	}
	return s, nil
}

func (f Found) hasSumOf(text string) bool {
	sum := TextSum(text)
	return slices.Contains(f.Known, sum)
}

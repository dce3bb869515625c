// Package edit decides what becomes of the files that gpuard setup writes, and of what stands there already. A whole file
// can be gpuard's own; in a file of a person only a block between two marks is. What a person wrote is never touched, and
// taking everything away again leaves every byte as it was. It reads and writes no file.
package edit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Change is what a setup wants of one file.
type Change struct {
	Path    string // absolute
	Content string // of the whole file; with Block of the lines between its marks, the last one ended
	Mode    uint32 // of a whole file; 0 means 0644
	Copy    bool   // it is a copy of another file, such as a picture: nobody needs to be shown its content
	Block   string // name of the block, such as "shell"; "" where the whole file is gpuard's
	Comment string // what begins a comment in a file with a block; "" means "#"
	Indent  string // before the marks of the block
	Line    int    // number of the line, from 1, before which a new block goes; 0 means behind the last
}

// Found is what is there now.
type Found struct {
	Exists  bool
	Content string
	Known   []string // sums of what gpuard wrote there or was about to write, by its record; nil: it has no record of that
}

// Action is what is done with one file.
type Action string

// Actions. Same, Left and Gone change nothing.
const (
	Create Action = "create" // a file that is not there
	Update Action = "update" // gpuard's own file or block, unchanged since, gets a new text
	Insert Action = "insert" // a block into a person's file
	Delete Action = "delete" // gpuard's own file
	Cut    Action = "cut"    // a block out of a person's file
	Same   Action = "same"   // it is there as it should be
	Gone   Action = "gone"   // there is nothing to take away
	Left   Action = "left"   // somebody changed it since gpuard wrote it, so it stays
)

// Step is what is done with one file, and what the file says then.
type Step struct {
	Change
	Action Action
	Before string // content that the decision is about
	After  string // content afterwards; of Delete nothing
}

// Does reports whether the step changes anything.
func (s Step) Does() bool { return s.Action != Same && s.Action != Left && s.Action != Gone }

// Conflict is why a setup cannot have what it wants. Nothing of it is done then.
type Conflict struct{ Path, Why, Remedy string }

// Error begins with "cannot write".
func (c *Conflict) Error() string {
	return fmt.Sprintf("cannot write %s: %s; %s", c.Path, c.Why, c.Remedy)
}

// Sum tells texts apart: the first 16 hex digits of the SHA-256.
func Sum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// Want decides how c comes about where now is what there is. The error is a *Conflict.
func Want(c Change, now Found) (Step, error) {
	if c.Block != "" {
		return wantBlock(c, now)
	}
	s := Step{Change: c, Before: now.Content, After: c.Content}
	switch {
	case !now.Exists:
		s.Action = Create
	case now.Content == c.Content:
		s.Action = Same
	case now.wrote(now.Content):
		s.Action = Update
	case now.Known != nil:
		return s, &Conflict{c.Path, "somebody changed it since gpuard wrote it", "move it away, or delete it, and try again"}
	default:
		return s, &Conflict{c.Path, "it is there already, and gpuard has no record of writing it for you", "move it away, or delete it, and try again"}
	}
	return s, nil
}

// TakeAway decides how what a setup wrote goes away again. made: the file of a block was made for it.
func TakeAway(c Change, now Found, made bool) (Step, error) {
	s := Step{Change: c, Before: now.Content}
	switch {
	case !now.Exists:
		s.Action = Gone
	case c.Block != "":
		return cutBlock(s, now, made)
	case now.wrote(now.Content):
		s.Action = Delete
	default:
		s.Action, s.After = Left, now.Content
	}
	return s, nil
}

func (f Found) wrote(text string) bool {
	sum := Sum(text)
	for _, known := range f.Known {
		if known == sum {
			return true
		}
	}
	return false
}

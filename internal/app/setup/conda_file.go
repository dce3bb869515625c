package setup

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/edit"
	"gpuard/internal/host/files"
	"gpuard/internal/text/condaenv"
)

// makeChange is the block, where the file has room for it and is read as before with it.
func (c CondaFile) makeChange(path string) (edit.Change, error) {
	for _, word := range c.Words {
		if strings.ContainsFunc(word, func(r rune) bool { return r == ' ' || r == '\t' || r == '\n' }) {
			return edit.Change{}, &exit.Usage{Text: fmt.Sprintf("cannot write %q into %s: words there end at a blank; in --model write ? for it", word, c.Path)}
		}
	}

	value, _ := json.Marshal(strings.Join(c.Words, " "))
	line := CondaChoice + ": " + string(value)
	refuse := func(err error) error {
		return &exit.Usage{Text: fmt.Sprintf("cannot add to %s: %v; write it there yourself, below variables: %s", c.Path, err, line)}
	}

	text, err := files.ReadFile(path)
	if err != nil {
		return edit.Change{}, &exit.Usage{Text: fmt.Sprintf("cannot add to %s: %v", c.Path, err)}
	}

	change := edit.Change{Path: path, Block: "conda"}
	now := edit.Found{Exists: true, Content: string(text.Content)}
	without, err := edit.PlanRemoval(change, now, false)
	if err != nil {
		return change, err
	}
	if without.Action == edit.Left {
		// For plan to refuse.
		return change, nil
	}

	room, err := condaenv.FindRoom([]byte(without.After), CondaChoice)
	if err != nil {
		return change, refuse(err)
	}

	change.Line, change.Content = room.Line, room.Indent+line+"\n"
	change.Indent = room.Indent
	if room.Alone {
		// In braces: further variables belong inside, where --remove sees them.
		change.Indent, change.Content = "", "variables: {"+line+"}\n"
	}

	step, err := edit.PlanWrite(change, now)
	if err != nil {
		return change, err
	}

	before, err := condaenv.ReadSteps(path, []byte(without.After))
	if err != nil {
		return change, refuse(err)
	}

	after, err := condaenv.ReadSteps(path, []byte(step.After))
	if err != nil || len(after.Steps) != len(before.Steps)+1 {
		return change, refuse(errors.New("the file would not be read as before"))
	}

	return change, nil
}

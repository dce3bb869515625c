package handoff

import (
	"fmt"

	"gpuard/internal/core/option"
)

// Field is a row of the table, for the reference page.
type Field struct {
	Name string // of Work
	// How its owner says it.
	Flag string
	// What is said for each of Targets: the level and how, and for which values it is another one.
	Says []string
}

// Fields are all rows.
func Fields() (list []Field) {
	for _, r := range fieldTable() {
		f := Field{Name: r.field, Flag: option.Expand(r.flag)}
		for _, c := range r.cells {
			text := c.String()
			for _, u := range c.unless {
				text += fmt.Sprintf("\n  - %s: %s", option.Expand(u.when), u.then)
			}
			f.Says = append(f.Says, text)
		}
		list = append(list, f)
	}
	return list
}

// String is the level, how, and the way out.
func (c cell) String() string {
	text := fmt.Sprintf("**%s**: %s", c.level, option.Expand(c.how))
	if c.do != "" {
		text += " (" + option.Expand(c.do) + ")"
	}
	return text
}

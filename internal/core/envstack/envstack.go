// Package envstack remembers, in a variable of the shell itself, what variables were before a choice of devices, so that the
// shell can have them back exactly. The variable is data that anybody may have written: nothing of it is ever run.
package envstack

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"gpuard/internal/core/visible"
)

// Variable holds the stack of a shell, and of everything started from it.
const Variable = "GPUARD_SAVED"

// Entry is one choice and what was before it.
type Entry struct {
	ID     string           `json:"id"` // such as "conda:/home/ann/envs/train"
	Before map[string]value `json:"before"`
	Lease  string           `json:"lease,omitempty"` // that was taken with it
	PID    int              `json:"pid,omitempty"`   // of the shell that took it
	Start  uint64           `json:"start,omitempty"` // of that process, in ticks since boot
	By     int              `json:"by,omitempty"`    // process that evaluated the choice: that shell, or a copy of it in parentheses
}

// value is what a variable was; one that was unset is null, which is another thing than empty.
type value struct {
	set  bool
	text string
}

// bytes is how a value is written that JSON could not carry as it is.
type bytes struct {
	Bytes []byte `json:"bytes"`
}

// MarshalJSON keeps every byte.
func (v value) MarshalJSON() ([]byte, error) {
	switch {
	case !v.set:
		return []byte("null"), nil
	case !utf8.ValidString(v.text):
		return json.Marshal(bytes{[]byte(v.text)})
	}
	return json.Marshal(v.text)
}

// UnmarshalJSON refuses what no environment can hold.
func (v *value) UnmarshalJSON(data []byte) error {
	*v = value{}
	if string(data) == "null" {
		return nil
	}
	v.set = true
	if data[0] == '{' {
		var b bytes
		if err := json.Unmarshal(data, &b); err != nil {
			return err
		}
		v.text = string(b.Bytes)
	} else if err := json.Unmarshal(data, &v.text); err != nil {
		return err
	}
	if strings.ContainsRune(v.text, 0) {
		return fmt.Errorf("a value has a zero byte")
	}
	return nil
}

// Stack has the latest choice last.
type Stack []Entry

// Read reads the stack of an environment. The error says what to do.
func Read(env visible.Env) (Stack, error) {
	text, _ := env.Lookup(Variable)
	if text == "" {
		return nil, nil
	}
	var s Stack
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, fmt.Errorf("cannot read %s, which says what this shell's variables were: %w; give it up with: unset %[1]s", Variable, err)
	}
	name := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	for _, e := range s {
		for n := range e.Before {
			if !name.MatchString(n) {
				return nil, fmt.Errorf("cannot read %s: it names a variable %q; give it up with: unset %[1]s", Variable, n)
			}
		}
	}
	return s, nil
}

// Push remembers what the variables that are about to change are in env.
func (s Stack) Push(e Entry, env visible.Env, change []visible.Var) Stack {
	e.ID = written(e.ID)
	e.Before = map[string]value{}
	for _, v := range change {
		text, set := env.Lookup(v.Name)
		e.Before[v.Name] = value{set, text}
	}
	return append(slices.Clone(s), e)
}

// written is an id as JSON carries it: a path may have bytes that it cannot.
func written(id string) string { return string([]rune(id)) }

// Pop takes the entry of an id out, and returns what puts its variables back. What a later entry has changed since stays as
// that one wants it, and goes back to before the two when that one is popped. The entry is nil where there is none.
func (s Stack) Pop(id string) (rest Stack, back []visible.Var, popped *Entry) {
	at := slices.IndexFunc(s, func(e Entry) bool { return e.ID == written(id) })
	if at < 0 {
		return s, nil, nil
	}
	for i, e := range s {
		if i != at {
			before := map[string]value{}
			for n, v := range e.Before {
				before[n] = v
			}
			e.Before = before
			rest = append(rest, e)
		}
	}
	popped = &s[at]
	var names []string
	for n := range popped.Before {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		later := slices.IndexFunc(rest[at:], func(e Entry) bool { _, ok := e.Before[n]; return ok })
		if v := popped.Before[n]; later >= 0 {
			rest[at+later].Before[n] = v
		} else {
			back = append(back, visible.Var{Name: n, Value: v.text, Unset: !v.set})
		}
	}
	return rest, back, popped
}

// Var sets the variable to the stack; an empty one unsets it.
func (s Stack) Var() visible.Var {
	if len(s) == 0 {
		return visible.Var{Name: Variable, Unset: true}
	}
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // maps and strings always can be
	return visible.Var{Name: Variable, Value: strings.TrimSpace(text.String())}
}

// Package envstack saves, in a variable of the shell itself, the values of variables before a choice of devices, so
// that the shell can restore them exactly:
//
//	stack, err := envstack.ReadStack(env)
//	stack = stack.Push(envstack.Entry{ID: id}, env, changes)
//	rest, restore, entry := stack.Pop(id)
//
// The variable may be forged: its content must never be executed.
package envstack

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"gpuard/internal/core/visible"
)

// Variable holds the stack of a shell and its children.
const Variable = "GPUARD_SAVED"

// Entry is one choice and the values before it.
type Entry struct {
	// Such as "conda:/home/ann/envs/train".
	ID     string                `json:"id"`
	Before map[string]savedValue `json:"before"`
	// Taken with the choice.
	Lease string `json:"lease,omitempty"`
	// The PID of the shell that took it.
	PID int `json:"pid,omitempty"`
	// The start of that process, in ticks since boot.
	Start uint64 `json:"start,omitempty"`
	// Process that evaluated the choice: that shell, or a subshell.
	By int `json:"by,omitempty"`
}

// savedValue is the value of a variable; null means unset, which differs from empty.
type savedValue struct {
	set  bool
	text string
}

// rawBytes is the form of a value that JSON cannot represent.
type rawBytes struct {
	Bytes []byte `json:"bytes"`
}

// MarshalJSON keeps every byte.
func (s savedValue) MarshalJSON() ([]byte, error) {
	switch {
	case !s.set:
		return []byte("null"), nil
	case !utf8.ValidString(s.text):
		return json.Marshal(rawBytes{[]byte(s.text)})
	}
	return json.Marshal(s.text)
}

// UnmarshalJSON rejects values that no environment can hold.
func (s *savedValue) UnmarshalJSON(data []byte) error {
	*s = savedValue{}
	if string(data) == "null" {
		return nil
	}

	s.set = true
	if data[0] == '{' {
		var b rawBytes
		if err := json.Unmarshal(data, &b); err != nil {
			return err
		}
		s.text = string(b.Bytes)
	} else if err := json.Unmarshal(data, &s.text); err != nil {
		return err
	}

	if strings.ContainsRune(s.text, 0) {
		return fmt.Errorf("a value has a zero byte")
	}

	return nil
}

// Stack has the latest choice last.
type Stack []Entry

// ReadStack reads the stack of an environment. The error says what to do.
func ReadStack(env visible.Env) (Stack, error) {
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

// Push saves the values in env of the variables that are about to change.
func (s Stack) Push(e Entry, env visible.Env, change []visible.Var) Stack {
	e.ID = validUTF8(e.ID)
	e.Before = map[string]savedValue{}

	for _, v := range change {
		text, set := env.Lookup(v.Name)
		e.Before[v.Name] = savedValue{set, text}
	}

	return append(slices.Clone(s), e)
}

// validUTF8 is an id in valid UTF-8 for JSON; a path may have other bytes.
func validUTF8(id string) string { return string([]rune(id)) }

// Pop removes the entry of an id, and returns the changes that restore its variables. A variable that a later entry has
// changed keeps that value, and gets the value from before both when the later entry is popped. The entry is nil where
// there is none.
func (s Stack) Pop(id string) (rest Stack, back []visible.Var, popped *Entry) {
	at := slices.IndexFunc(s, func(e Entry) bool { return e.ID == validUTF8(id) })
	if at < 0 {
		return s, nil, nil
	}

	for i, e := range s {
		if i != at {
			before := map[string]savedValue{}
			for n, v := range e.Before {
				before[n] = v
			}
			e.Before = before
			rest = append(rest, e)
		}
	}

	popped = &s[at]
	for _, n := range slices.Sorted(maps.Keys(popped.Before)) {
		later := slices.IndexFunc(rest[at:], func(e Entry) bool { _, ok := e.Before[n]; return ok })
		if v := popped.Before[n]; later >= 0 {
			rest[at+later].Before[n] = v
		} else {
			back = append(back, visible.Var{Name: n, Value: v.text, Unset: !v.set})
		}
	}

	return rest, back, popped
}

// AsVariable sets the variable to the stack; an empty one unsets it.
func (s Stack) AsVariable() visible.Var {
	if len(s) == 0 {
		return visible.Var{Name: Variable, Unset: true}
	}

	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)

	// Maps and strings can always be encoded.
	_ = enc.Encode(s)

	return visible.Var{Name: Variable, Value: strings.TrimSpace(text.String())}
}

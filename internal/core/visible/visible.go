// Package visible reads and writes the environment variables that choose devices: what a program would see through
// them, what they forbid to a caller, and how to write them. It must not decide about leases, and it never reads the
// environment itself.
//
//	hidden, notes := visible.HiddenDevices(visible.Env(os.Environ()), machine)
//	view := visible.CUDA(env, machine) // what a CUDA program sees
//	vars := visible.TargetVars(targets, job.AutoIDs, machine) // what to set for a job
//
// Every vendor's parser is different (duplicates, spaces, number bases, empty values), so each has its own reader here.
package visible

import (
	"fmt"
	"iter"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
)

// Env is an environment as "NAME=value" strings, the shape of os.Environ.
type Env []string

// Lookup returns the value of the variable; set is false when it is absent, which differs from empty. Of a name given
// twice the first value counts, as in getenv(3) of glibc and musl.
func (e Env) Lookup(name string) (value string, set bool) {
	for _, pair := range e {
		if k, v, ok := strings.Cut(pair, "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}

// FirstOfEach is the environment with the first value of each name alone, as getenv(3) finds it.
func (e Env) FirstOfEach() Env {
	known, out := map[string]bool{}, Env{}
	for _, pair := range e {
		name, _, _ := strings.Cut(pair, "=")
		if !known[name] {
			known[name] = true
			out = append(out, pair)
		}
	}
	return out
}

// All yields each variable once, with the value that Lookup gives.
func (e Env) All() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		seen := map[string]bool{}
		for _, pair := range e {
			name, value, ok := strings.Cut(pair, "=")
			if !ok || seen[name] {
				continue
			}
			seen[name] = true
			if !yield(name, value) {
				return
			}
		}
	}
}

// hasAny reports whether any of the names is present.
func (e Env) hasAny(names ...string) bool {
	for _, n := range names {
		if _, ok := e.Lookup(n); ok {
			return true
		}
	}
	return false
}

// View is what a program would see.
type View struct {
	// The visible devices in logical order; never nil.
	Visible []Entry `json:"visible"`
	// One per surprise; never nil.
	Notes []Note `json:"notes"`
}

// Entry is one visible device, or MIG device.
type Entry struct {
	// The number the program uses, from 0 without gaps.
	Logical int `json:"logical"`
	// The index of the whole device; of the parent for a MIG device.
	Index int `json:"index"`
	// The UUID of the device, or of the MIG device.
	UUID    gpu.UUID   `json:"uuid"`
	Parent  gpu.UUID   `json:"parent,omitempty"`  // of a MIG device
	Profile string     `json:"profile,omitempty"` // of a MIG device
	Vendor  gpu.Vendor `json:"vendor"`
	// "cuda", "hip", "rocr", "opencl", "level_zero", "sycl", "ascend", "tinygrad".
	Runtime string `json:"runtime"`
}

// Note is one surprise in how the variables are read. Codes are stable; Codes lists them.
type Note struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// choice is a device that a list selects; mig is nil for the whole device.
type choice struct {
	dev *gpu.Device
	mig *gpu.MIGDevice
}

func (c choice) uuid() gpu.UUID {
	if c.mig != nil {
		return c.mig.UUID
	}
	return c.dev.UUID
}

// newView numbers the choices.
func newView(runtime string, chosen []choice, notes []Note) View {
	v := View{Visible: make([]Entry, 0, len(chosen)), Notes: append([]Note{}, notes...)}
	for i, c := range chosen {
		e := Entry{Logical: i, Index: c.dev.Index, UUID: c.uuid(), Vendor: c.dev.Vendor, Runtime: runtime}
		if c.mig != nil {
			e.Parent, e.Profile = c.dev.UUID, c.mig.Profile
		}
		v.Visible = append(v.Visible, e)
	}
	return v
}

// wholeChoices turns devices into choices of the whole device.
func wholeChoices(devices []*gpu.Device) []choice {
	out := make([]choice, len(devices))
	for i, d := range devices {
		out[i] = choice{dev: d}
	}
	return out
}

// devicesOf returns the devices of one vendor in the machine's order.
func devicesOf(m gpu.Machine, vendor gpu.Vendor) []*gpu.Device {
	var out []*gpu.Device
	for i := range m.Devices {
		if m.Devices[i].Vendor == vendor {
			out = append(out, &m.Devices[i])
		}
	}
	return out
}

// variable is one name and value, for texts.
type variable struct{ name, value string }

// String writes NAME=value. Control characters are quoted, and very long values are cut.
func (v variable) String() string { return v.name + "=" + quoteIfNeeded(v.value) }

// newNote makes a note about this variable.
func (v variable) newNote(code, format string, args ...any) Note {
	return Note{Code: code, Text: v.String() + ": " + fmt.Sprintf(format, args...)}
}

// noter collects the notes while one variable is read.
type noter struct {
	variable
	notes []Note
}

func (n *noter) addNote(code, format string, args ...any) {
	n.notes = append(n.notes, n.newNote(code, format, args...))
}

// quoteEntry writes one entry of a list.
func quoteEntry(s string) string { return inQuotes(truncateText(s)) }

// inQuotes puts a value into the kind of quotation marks that it does not contain, as for a shell.
func inQuotes(s string) string {
	if q := strconv.Quote(s); !strings.Contains(s, "'") && q == `"`+strings.ReplaceAll(s, `"`, `\"`)+`"` && strings.Contains(s, `"`) {
		return "'" + s + "'"
	}
	return strconv.Quote(s)
}

func quoteIfNeeded(s string) string {
	s = truncateText(s)
	if q := inQuotes(s); q != `"`+s+`"` || strings.TrimSpace(s) != s || strings.Contains(s, "'") {
		return q
	}
	return s
}

// truncateText limits values of any length to the size of a message.
func truncateText(s string) string {
	const most = 80
	runes := []rune(s)
	if len(runes) <= most {
		return s
	}

	return string(runes[:most]) + "…"
}

// droppedEntries names the entries after position i, for "also dropped" texts.
func droppedEntries(tokens []string, i int) string {
	var names []string
	for _, t := range tokens[min(i+1, len(tokens)):] {
		t = strings.TrimSpace(t)
		if t != "" {
			names = append(names, quoteEntry(t))
		}
	}
	switch {
	case len(names) == 0:
		return ""
	case len(names) > 8:
		names = append(names[:8], "…")
	}

	return "; dropped with it: " + strings.Join(names, ", ")
}

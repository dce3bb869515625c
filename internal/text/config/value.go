package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/near"
	"gpuard/internal/core/policy"
	"gpuard/internal/text/yamltree"
)

func (r *reader) rules(n *yamltree.Node) {
	const most = 1000
	switch {
	case n.Kind != yamltree.List:
		r.wrong(n.At, "rules is not a list; begin each rule with a dash, such as - groups: [students]")
		return
	case len(n.Items) > most:
		r.wrong(n.At, "rules has %d of them, at most %d are possible", len(n.Items), most)
		return
	}
	for i, item := range n.Items {
		r.file.Rules = append(r.file.Rules, r.rule(item, i+1))
	}
	if len(n.Items) == 0 {
		r.wrong(n.At, "rules is an empty list; leave it out")
	}
	r.unreachable(r.file.Rules)
}

func (r *reader) rule(n *yamltree.Node, number int) policy.Rule {
	rule := policy.Rule{At: r.place(n.At)}
	of := fmt.Sprintf(" of rule %d", number)
	for _, e := range r.entries(n, r.keys.Rule, fmt.Sprintf("rule %d", number), of) {
		switch e.key.Name {
		case "name":
			rule.Name, _ = r.text(e, of)
		case "users":
			rule.Users = r.names(e, of)
		case "groups":
			rule.Groups = r.names(e, of)
		case "devices":
			rule.Devices = r.devices(e, of)
		case "models":
			rule.Models = r.models(e, of)
		case "gpus":
			if n, ok := r.number(e, of); ok {
				rule.GPUs = &n
			}
		case "mem":
			rule.Memory, _ = r.size(e, of, gpu.MiB)
		default:
			rule.Time, _ = r.time(e, of)
		}
	}
	return rule
}

func (r *reader) tolerate(n *yamltree.Node) {
	const of = " of tolerate"
	for _, e := range r.entries(n, r.keys.Tolerate, "tolerate", of) {
		switch e.key.Name {
		case "memory":
			if size, ok := r.size(e, of, 0); ok {
				r.file.Tolerate.Memory = &size
			}
		case "display":
			if size, ok := r.size(e, of, 0); ok {
				r.file.Tolerate.Display = &size
			}
		default:
			text, _ := r.text(e, of)
			part, err := strconv.ParseFloat(text, 64)
			if err != nil || math.IsNaN(part) || part < 0 || part > 1 {
				r.wrong(e.Value.At, "%s%s is %q; write a number from 0 to 1, such as %[1]s: %[4]s", e.key.Name, of, text, e.key.Sample)
				continue
			}
			r.file.Tolerate.Utilization = &part
		}
	}
}

func (r *reader) defaults(n *yamltree.Node) {
	const of = " of defaults"
	for _, e := range r.entries(n, r.keys.Defaults, "defaults", of) {
		d := policy.Default{Flag: e.key.Flag, At: r.place(e.Value.At)}
		yes := e.Value.Kind == yamltree.Scalar && e.Value.Plain && e.Value.Text == "true"
		no := e.Value.Kind == yamltree.Scalar && e.Value.Plain && e.Value.Text == "false"
		ok := true
		switch kind := e.key.Kind; {
		case kind == Switch && !yes && !no:
			r.wrong(e.Value.At, "%s%s is neither true nor false; write %[1]s: true", e.key.Name, of)
			ok = false
		case (kind == Switch || kind == Optional) && no:
			ok = false // that is so anyway
		case (kind == Switch || kind == Optional) && yes:
		case kind == List || kind == Optional:
			d.Value = strings.Join(r.list(e, of), ",")
			ok = d.Value != ""
		case kind == Number:
			_, ok = r.number(e, of)
			d.Value, _ = scalar(e.Value)
		case kind == Size:
			_, ok = r.size(e, of, gpu.MiB)
			d.Value, _ = scalar(e.Value)
		case kind == Time:
			_, ok = r.time(e, of)
			d.Value, _ = scalar(e.Value)
		default:
			d.Value, ok = r.word(e, of)
		}
		if ok {
			r.file.Defaults = append(r.file.Defaults, d)
		}
	}
}

// scalar is the text of a value that is one; "" of any other.
func scalar(n *yamltree.Node) (string, bool) {
	if n.Kind != yamltree.Scalar {
		return "", false
	}
	text := strings.TrimSpace(n.Text)
	return text, text != ""
}

// text reads a value that is one text.
func (r *reader) text(e entry, of string) (string, bool) {
	text, ok := scalar(e.Value)
	switch {
	case e.Value.Kind != yamltree.Scalar:
		r.wrong(e.Value.At, "%s%s is not one text%s", e.key.Name, of, sample(e.key))
	case !ok:
		r.wrong(e.Value.At, "%s%s is empty%s", e.key.Name, of, sample(e.key))
	case strings.ContainsAny(text, "\x00\n"):
		r.wrong(e.Value.At, "%s%s has more than one line", e.key.Name, of)
		ok = false
	}
	return text, ok
}

// word reads a text, one of those that the key takes where they are known.
func (r *reader) word(e entry, of string) (string, bool) {
	text, ok := r.text(e, of)
	if !ok || len(e.key.Words) == 0 || slices.Contains(e.key.Words, text) {
		return text, ok
	}
	if meant := near.Word(text, e.key.Words); meant != "" {
		r.wrong(e.Value.At, "%s%s is %q; did you mean %s?", e.key.Name, of, text, meant)
		return "", false
	}
	last := len(e.key.Words) - 1
	r.wrong(e.Value.At, "%s%s is %q; write %s or %s", e.key.Name, of, text, strings.Join(e.key.Words[:last], ", "), e.key.Words[last])
	return "", false
}

func (r *reader) number(e entry, of string) (int, bool) {
	text, ok := r.text(e, of)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		r.wrong(e.Value.At, "%s%s is %q; write a whole number, such as %[1]s: %[4]s", e.key.Name, of, text, e.key.Sample)
	}
	return int(n), err == nil
}

// size reads a size of at least so much. A small number without a unit is a forgotten unit.
func (r *reader) size(e entry, of string, least gpu.Bytes) (gpu.Bytes, bool) {
	text, ok := r.text(e, of)
	if !ok {
		return 0, false
	}
	size, err := gpu.ParseBytes(text)
	if err != nil || size < least || size > 0 && size < gpu.MiB {
		r.wrong(e.Value.At, "%s%s is %q; write a number and a unit, such as %[1]s: %[4]s", e.key.Name, of, text, e.key.Sample)
		return 0, false
	}
	return size, true
}

func (r *reader) time(e entry, of string) (time.Duration, bool) {
	text, ok := r.text(e, of)
	if !ok {
		return 0, false
	}
	d, err := job.ParseTime(text)
	if err != nil {
		r.wrong(e.Value.At, "%s%s is %q: %v", e.key.Name, of, text, err)
	}
	return d, err == nil
}

// list reads [a, b], the same in lines, and "a,b".
func (r *reader) list(e entry, of string) (out []string) {
	add := func(n *yamltree.Node) {
		text, ok := scalar(n)
		if n.Null || !ok {
			r.wrong(n.At, "%s%s has something in its list that is not one text", e.key.Name, of)
			return
		}
		for _, part := range strings.Split(text, ",") {
			if part = strings.TrimSpace(part); part == "" || strings.ContainsAny(part, "\x00\n") {
				r.wrong(n.At, "%s%s has an empty name in its list", e.key.Name, of)
				continue
			}
			out = append(out, part)
		}
	}
	switch e.Value.Kind {
	case yamltree.Scalar:
		add(e.Value)
	case yamltree.List:
		for _, item := range e.Value.Items {
			add(item)
		}
		if len(e.Value.Items) == 0 {
			r.wrong(e.Value.At, "%s%s is an empty list; leave it out", e.key.Name, of)
		}
	default:
		r.wrong(e.Value.At, "%s%s is not a list%s", e.key.Name, of, sample(e.key))
	}
	return out
}

// names reads names and numbers of users or groups.
func (r *reader) names(e entry, of string) []string {
	names := r.list(e, of)
	for _, name := range names {
		if _, err := strconv.ParseUint(name, 10, 32); number(name) && err != nil || strings.ContainsAny(name, ": \t/*") {
			r.wrong(e.Value.At, "%q in %s%s is neither a name nor a number", name, e.key.Name, of)
		}
	}
	return names
}

func number(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

func (r *reader) devices(e entry, of string) []string {
	names := r.list(e, of)
	for _, name := range names {
		if from, to, dash := strings.Cut(name, "-"); dash && number(from) && number(to) {
			r.wrong(e.Value.At, "%s%s: ranges such as %s are not understood; write every number", e.key.Name, of, name)
		}
	}
	return names
}

func (r *reader) models(e entry, of string) []string {
	patterns := r.list(e, of)
	for _, p := range patterns {
		if i := strings.IndexAny(p, `[]{}\`); i >= 0 {
			r.wrong(e.Value.At, "%s%s: only * and ? stand for other characters, %q does not", e.key.Name, of, p[i:i+1])
		}
	}
	return patterns
}

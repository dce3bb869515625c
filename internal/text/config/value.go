package config

import (
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/prose"
	"gpuard/internal/text/yamltree"
)

func (r *reader) readRules(n *yamltree.Node) {
	const most = 1000
	switch {
	case n.Kind != yamltree.List:
		r.Wrong(n.At, "rules is not a list; begin each rule with a dash, such as - groups: [students]")
		return
	case len(n.Items) > most:
		r.Wrong(n.At, "rules has %d of them, at most %d are possible", len(n.Items), most)
		return
	}

	for i, item := range n.Items {
		r.file.Rules = append(r.file.Rules, r.readRule(item, i+1))
	}

	if len(n.Items) == 0 {
		r.Wrong(n.At, "rules is an empty list; leave it out")
	}

	r.reportUnreachable(r.file.Rules)
}

func (r *reader) readRule(n *yamltree.Node, number int) policy.Rule {
	rule := policy.Rule{At: r.placeInFile(n.At)}
	of := fmt.Sprintf(" of rule %d", number)
	for _, e := range r.knownEntries(n, r.keys.Rule, fmt.Sprintf("rule %d", number), of) {
		switch e.Key.Name {
		case "name":
			rule.Name, _ = r.Text(e, of)
		case "users":
			rule.Users = r.readNames(e, of)
		case "groups":
			rule.Groups = r.readNames(e, of)
		case "devices":
			rule.Devices = r.readDevices(e, of)
		case "models":
			rule.Models = r.readModels(e, of)
		case "gpus":
			if n, ok := r.readNumber(e, of); ok {
				rule.GPUs = &n
			}
		case "mem":
			rule.Memory, _ = r.readSize(e, of, gpu.MiB)
		case "queue":
			if n, ok := r.readNumber(e, of); ok {
				rule.Queue = &n
			}
		case "outside":
			rule.Outside, _ = r.Word(e, of)
		case "require_isolation":
			word, _ := r.Word(e, of)
			rule.Isolate = job.Isolation(word)
		default:
			rule.Time, _ = r.Duration(e, of)
		}
	}

	return rule
}

func (r *reader) readTolerate(n *yamltree.Node) {
	const of = " of tolerate"
	for _, e := range r.knownEntries(n, r.keys.Tolerate, "tolerate", of) {
		switch e.Key.Name {
		case "memory":
			if size, ok := r.readSize(e, of, 0); ok {
				r.file.Tolerate.Memory = &size
			}
		case "display":
			if size, ok := r.readSize(e, of, 0); ok {
				r.file.Tolerate.Display = &size
			}
		default:
			text, _ := r.Text(e, of)
			part, err := strconv.ParseFloat(text, 64)
			if err != nil || math.IsNaN(part) || part < 0 || part > 1 {
				r.Wrong(e.Value.At, "%s%s is %q; write a number from 0 to 1, such as %[1]s: %[4]s", e.Key.Name, of, text, e.Key.Sample)
				continue
			}
			r.file.Tolerate.Utilization = &part
		}
	}
}

// readWatch reads what only the machine's file can say: gpuard serve of root acts on it.
func (r *reader) readWatch(p yamltree.Entry) {
	const of = " of watch"
	if !r.file.Machine {
		r.Wrong(p.At, "watch is only for the file of the machine, /etc/gpuard/config.yaml; leave it out")
		return
	}

	for _, e := range r.knownEntries(p.Value, r.keys.Watch, "watch", of) {
		switch e.Key.Name {
		case "webhook":
			text, ok := r.Text(e, of)
			address, err := url.Parse(text)
			if ok && (err != nil || address.Scheme != "http" && address.Scheme != "https" || address.Hostname() == "") {
				r.Wrong(e.Value.At, "webhook%s is no address of the web; write for instance webhook: %s", of, e.Key.Sample)
				continue
			}
			r.file.Watch.Webhook = text
		case "outsiders":
			text, _ := r.Word(e, of)
			r.file.Watch.Outsiders = policy.Level(text)
		case "grace":
			r.file.Watch.Grace, _ = r.Duration(e, of)
		default:
			r.file.Watch.Except = r.readTexts(e, of)
		}
	}
}

func (r *reader) readDefaults(n *yamltree.Node) {
	const of = " of defaults"
	for _, e := range r.knownEntries(n, r.keys.Defaults, "defaults", of) {
		before := len(r.Mistakes)
		value, set := r.ReadSetting(e, of)
		if !set {
			continue
		}

		switch e.Key.Takes {
		case yamltree.Number:
			r.readNumber(e, of)
		case yamltree.Size:
			r.readSize(e, of, gpu.MiB)
		case yamltree.Time:
			r.Duration(e, of)
		case yamltree.Text:
			r.CheckOneOf(e.Key, value, e.Value.At, of)
		}

		if len(r.Mistakes) == before {
			r.file.Defaults = append(r.file.Defaults, policy.Default{Flag: e.Key.Flag, Value: value, At: r.placeInFile(e.Value.At)})
		}
	}
}

func (r *reader) readNumber(e yamltree.Entry, of string) (int, bool) {
	text, ok := r.Text(e, of)
	if !ok {
		return 0, false
	}

	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		r.Wrong(e.Value.At, "%s%s is %q; write a whole number, such as %[1]s: %[4]s", e.Key.Name, of, text, e.Key.Sample)
	}

	return int(n), err == nil
}

// readSize reads a size of at least so much. A small number without a unit is a forgotten unit.
func (r *reader) readSize(e yamltree.Entry, of string, least gpu.Bytes) (gpu.Bytes, bool) {
	text, ok := r.Text(e, of)
	if !ok {
		return 0, false
	}

	size, err := gpu.ParseBytes(text)
	if err != nil || size < least || size > 0 && size < gpu.MiB {
		r.Wrong(e.Value.At, "%s%s is %q; write a number and a unit, such as %[1]s: %[4]s", e.Key.Name, of, text, e.Key.Sample)
		return 0, false
	}

	return size, true
}

// readTexts reads the texts of a list.
func (r *reader) readTexts(e yamltree.Entry, of string) []string {
	return prose.Texts(r.List(e, of), func(item yamltree.Item) string { return item.Text })
}

// readNames reads names and numbers of users or groups.
func (r *reader) readNames(e yamltree.Entry, of string) []string {
	names := r.readTexts(e, of)
	for _, name := range names {
		if _, err := strconv.ParseUint(name, 10, 32); isNumber(name) && err != nil || strings.ContainsAny(name, ": \t/*") {
			r.Wrong(e.Value.At, "%q in %s%s is neither a name nor a number", name, e.Key.Name, of)
		}
	}
	return names
}

func isNumber(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

func (r *reader) readDevices(e yamltree.Entry, of string) []string {
	names := r.readTexts(e, of)
	for _, name := range names {
		if from, to, dash := strings.Cut(name, "-"); dash && isNumber(from) && isNumber(to) {
			r.Wrong(e.Value.At, "%s%s: ranges such as %s are not understood; write every number", e.Key.Name, of, name)
		}
	}
	return names
}

func (r *reader) readModels(e yamltree.Entry, of string) []string {
	patterns := r.readTexts(e, of)
	for _, p := range patterns {
		if i := strings.IndexAny(p, `[]{}\`); i >= 0 {
			r.Wrong(e.Value.At, "%s%s: only * and ? are wildcards, %q does not", e.Key.Name, of, p[i:i+1])
		}
	}
	return patterns
}

// Package config reads config.yaml, the policy of a machine or of a user, and what a project's file has of it: what
// each key may hold, and what to write in place of what it may not. It opens no file, and what the values of the flags
// of gpuard run mean is not known here.
package config

import (
	_ "embed"
	"slices"
	"strings"

	"gpuard/internal/core/diagnostic"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/source"
	"gpuard/internal/core/suggest"
	"gpuard/internal/text/yamltree"
)

//go:embed example.yaml
var example string

// Example is a file with every key once, with comments on lines of their own.
func Example() string { return example }

// ReadPolicy returns what a file says, and the mistakes in it. Where there are any, the rest is not to be used. machine says
// that it is the machine's, which may have more keys than a user's.
func ReadPolicy(data []byte, path string, machine bool) (*policy.File, []diagnostic.One) {
	r := &reader{file: &policy.File{Machine: machine, Path: path}, keys: AllKeys()}
	if root := r.ReadRoot(data, sampleHint); root != nil {
		r.readTop(root)
	}
	return r.file, r.Mistakes
}

// ReadProject returns what the file of a project says of rules and defaults; nil when it says nothing of them. All else
// in it, and whether it is YAML at all, is for others to judge.
func ReadProject(data []byte, path string) (*policy.File, []diagnostic.One) {
	r := &reader{file: &policy.File{Path: path}, keys: AllKeys()}
	root := r.ReadRoot(data, sampleHint)
	if root == nil {
		return nil, nil
	}

	said := false
	for _, p := range root.Pairs {
		said = said || slices.Contains(ProjectKeys(), p.Key.Text)
		if p.Value.Null {
			// Which is a mistake of any key.
			continue
		}

		switch p.Key.Text {
		case "rules":
			r.readRules(p.Value)
		case "defaults":
			r.readDefaults(p.Value)
		}
	}

	if !said {
		return nil, nil
	}

	return r.file, r.Mistakes
}

type reader struct {
	yamltree.Form
	file *policy.File
	keys Keys
}

const sampleHint = "write rules:, and below it for instance - gpus: 2"

func (r *reader) readTop(root *yamltree.Node) {
	for _, p := range r.knownEntries(root, r.keys.File, "the file", "") {
		switch p.Key.Name {
		case "rules":
			r.readRules(p.Value)
		case "tolerate":
			r.readTolerate(p.Value)
		case "defaults":
			r.readDefaults(p.Value)
		case "slurm":
			r.readSlurm(p.Value)
		case "watch":
			r.readWatch(p)
		default:
			if text, ok := r.Word(p, ""); ok {
				r.file.Login = policy.Login(text)
			}
		}
	}
}

// knownEntries are the keys of a map, and fault is found with those that are unknown.
func (r *reader) knownEntries(n *yamltree.Node, table []yamltree.Key, where, of string) []yamltree.Entry {
	if n.Kind != yamltree.Map {
		r.Wrong(n.At, "%s is not a map; write keys with a colon behind each, indented below it", where)
		return nil
	}
	return r.KnownEntries(n, table, where, of, func(key *yamltree.Node) {
		names := prose.Texts(table, func(k yamltree.Key) string { return k.Name })

		if _, here := yamltree.FindKey(table, "expect"); here && key.Text == "time" {
			r.Wrong(key.At, "unknown key %q%s; write timeout for a limit, or expect for an estimate", key.Text, of)
			return
		}

		if meant := suggest.ClosestWord(key.Text, names); meant != "" {
			r.Wrong(key.At, "unknown key %q%s; did you mean %s?", key.Text, of, meant)
			return
		}

		r.Wrong(key.At, "unknown key %q%s; there are %s", key.Text, of, strings.Join(names, ", "))
	})
}

// placeInFile is the place of a key in this file.
func (r *reader) placeInFile(at source.Place) policy.Place {
	return policy.Place{File: r.file.Path, Line: at.Line, Column: at.Column}
}

// reportUnreachable finds rules after one for all users. Rules for root are reachable.
func (r *reader) reportUnreachable(rules []policy.Rule) {
	i := slices.IndexFunc(rules, func(one policy.Rule) bool { return len(one.Users)+len(one.Groups) == 0 })
	if i < 0 {
		return
	}

	for _, late := range rules[i+1:] {
		if !slices.ContainsFunc(append(slices.Clone(late.Users), late.Groups...), func(name string) bool { return name == "root" || name == "0" }) {
			r.Wrong(source.Place{Line: late.At.Line, Column: late.At.Column}, "this rule never counts: the one of line %d is for all users, and the first that names you counts; put that one last", rules[i].At.Line)
		}
	}
}

// Package project reads gpuard.yaml: what each key may hold, and what to write in place of what it may not. It opens no other
// file; what the values of the flags of gpuard run mean is not known here, and of rules and defaults only that there are some.
package project

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gpuard/internal/core/lint"
	"gpuard/internal/core/near"
	"gpuard/internal/core/service"
	"gpuard/internal/text/yamltree"
)

// largest is how long a file may be, in bytes: far above any that people write.
const largest = 256 << 10

// Read returns the project in a file, whose absolute path tells where its paths begin. With mistakes the project is what could
// be read in spite of them, so that what only others can check, the values of flags, can be told beside them.
func Read(data []byte, file string) (*service.Project, []service.Mistake) {
	r := &reader{folder: filepath.Dir(file), keys: AllKeys()}
	r.project = service.Project{File: file, Name: defaultName(filepath.Base(r.folder))}
	if root := r.root(data); root != nil {
		r.file(root)
		r.names()
		r.dependencies()
	}
	slices.SortStableFunc(r.mistakes, func(a, b service.Mistake) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return &r.project, r.mistakes
}

type reader struct {
	folder   string
	keys     Keys
	project  service.Project
	mistakes []service.Mistake
	needs    []need
}

// need is a dependency with its place.
type need struct {
	of, on string
	until  service.Condition
	at     lint.Place
}

func (r *reader) wrong(at lint.Place, format string, args ...any) {
	const most = 400 // of what may be quoted in it
	text := []rune(fmt.Sprintf(format, args...))
	if len(text) > most {
		text = append(text[:most-1], '…')
	}
	r.mistakes = append(r.mistakes, service.Mistake{Line: at.Line, Column: at.Column, Text: string(text)})
}

// root is the map that the file is; nil when it is none.
func (r *reader) root(data []byte) *yamltree.Node {
	top := lint.Place{Line: 1, Column: 1}
	if len(data) > largest {
		r.wrong(top, "the file is longer than %d KiB", largest>>10)
		return nil
	}
	docs, err := yamltree.Parse(data)
	var place *yamltree.Error
	switch {
	case errors.As(err, &place):
		r.wrong(lint.Place{Line: place.Line, Column: place.Column}, "this is not YAML: %s%s", place.Text, mend(data, place))
	case err != nil:
		r.wrong(top, "%s", strings.TrimPrefix(err.Error(), "cannot read the file as YAML: "))
	case len(docs) == 0 || docs[0].Null:
		r.wrong(top, "the file is empty; write services: with a name and a command below it")
	case docs[0].Kind != yamltree.Map:
		r.wrong(docs[0].At, "the file is not a map; write services: with a name and a command below it")
	case len(docs) > 1:
		r.wrong(docs[1].At, "a second document begins; a project is one")
	default:
		return docs[0]
	}
	return nil
}

// mend says what to write where a file is not YAML, by what stands there.
func mend(data []byte, e *yamltree.Error) string {
	lines := strings.Split(string(data), "\n")
	if e.Line < 1 || e.Line > len(lines) {
		return ""
	}
	line := strings.TrimRight(lines[e.Line-1], "\r")
	value := line[min(max(e.Column-1, 0), len(line)):]
	if e.Column > 1 && strings.HasPrefix(line[min(e.Column-2, len(line)):], "{{") {
		value = line[e.Column-2:]
	}
	switch {
	case strings.Contains(line[:len(line)-len(strings.TrimLeft(line, " \t"))], "\t"):
		return "; indent with blanks, YAML takes no tabs"
	case value != "" && (strings.HasPrefix(value, "{{") || strings.Contains("*@`%", value[:1])):
		return fmt.Sprintf("; a value that begins with %s needs quotes", value[:1])
	case strings.Contains(e.Text, "mapping value") && strings.Contains(value, ": "):
		return "; a value with a colon and a blank in it needs quotes"
	}
	return ""
}

func (r *reader) file(root *yamltree.Node) {
	named := false
	for _, p := range r.entries(root, "the file") {
		if strings.HasPrefix(p.Key.Text, "x-") {
			continue // for anchors, and for other programs
		}
		key, known := find(r.keys.File, p.Key.Text)
		switch {
		case !known:
			named = r.unknown(p.Key, r.keys.File, "") == "services" || named
		case p.Value.Null:
			r.wrong(p.Key.At, "%s has no value", key.Name)
		case key.Name == "name":
			if name, ok := r.text(p, ""); ok && r.wellNamed(name, p.Value.At, "project") {
				r.project.Name = name
			}
		case key.Name == "services":
			named = true
			r.services(p.Value)
		}
	}
	if !named && root.Find("services") == nil {
		r.wrong(root.At, "the file has no services; write services: with a name and a command below it")
	}
}

func (r *reader) services(n *yamltree.Node) {
	if n.Kind != yamltree.Map {
		r.wrong(n.At, "services is not a map; write each service's name, a colon, and its keys indented below it")
		return
	}
	const most = 1000 // each has processes and a folder of its own
	if len(n.Pairs) > most {
		r.wrong(n.At, "services has %d of them, at most %d are possible", len(n.Pairs), most)
		return
	}
	for _, p := range r.entries(n, "services") {
		if r.wellNamed(p.Key.Text, p.Key.At, "service") {
			r.project.Services = append(r.project.Services, r.service(p))
		}
	}
	if len(n.Pairs) == 0 {
		r.wrong(n.At, "services is empty; write a service's name, a colon, and its keys indented below it")
	}
}

// entries are the pairs of a map, once each.
func (r *reader) entries(n *yamltree.Node, of string) (out []yamltree.Pair) {
	first := map[string]int{}
	for _, p := range n.Pairs {
		line, twice := first[p.Key.Text]
		switch {
		case p.Key.Kind != yamltree.Scalar || p.Key.Null || p.Key.Text == "":
			r.wrong(p.Key.At, "a key of %s is not a name", of)
		case twice:
			r.wrong(p.Key.At, "%s stands twice in %s, first in line %d; leave one of them out", p.Key.Text, of, line)
		default:
			first[p.Key.Text] = p.Key.At.Line
			out = append(out, p)
		}
	}
	return out
}

// foreign is how other programs, Docker Compose above all, call what a key of ours does.
func foreign(word string) string {
	switch word {
	case "entrypoint":
		return "write command"
	case "environment":
		return "write env"
	case "working_dir":
		return "write workdir"
	case "healthcheck":
		return "write ready"
	case "scale":
		return "write replicas"
	case "retry":
		return "write restart: on-failure"
	case "image", "build", "container_name", "ports", "volumes", "networks", "deploy", "runtime":
		return "gpuard starts programs of this machine, not containers; docker run can be such a program"
	case "version":
		return "leave it out"
	}
	return ""
}

// unknown finds fault with a key, and returns the one that was probably meant, "" when none is near.
func (r *reader) unknown(key *yamltree.Node, table []Key, of string) string {
	text := fmt.Sprintf("unknown key %q%s", key.Text, of)
	var names, own []string
	for _, k := range table {
		names = append(names, k.Name)
		if k.Flag == "" {
			own = append(own, k.Name)
		}
	}
	meant := near.Word(key.Text, names)
	switch {
	case of != "" && foreign(key.Text) != "", of == "" && key.Text == "version":
		text += "; " + foreign(key.Text)
	case meant != "":
		text += "; did you mean " + meant + "?"
	case len(own) == len(names):
		text += "; there are " + strings.Join(names, ", ")
	default:
		text += "; there are " + strings.Join(own, ", ") + ", and flags of gpuard run with _ for -"
	}
	r.wrong(key.At, "%s", text)
	return meant
}

// goodName is what can be a file's name, a word of a command line and a part of a host's name alike.
func goodName(name string) bool {
	const first = "abcdefghijklmnopqrstuvwxyz0123456789"
	return name != "" && len(name) <= 63 && strings.Contains(first, name[:1]) && strings.Trim(name, first+"_.-") == ""
}

func (r *reader) wellNamed(name string, at lint.Place, what string) bool {
	if goodName(name) {
		return true
	}
	advice := "write lower case letters and digits, and - _ . behind the first, 63 at most"
	if better := defaultName(name); better != "project" {
		advice += ", such as " + better
	}
	r.wrong(at, "%q cannot be the name of a %s; %s", name, what, advice)
	return false
}

// defaultName makes a name of a folder's.
func defaultName(text string) string {
	text = regexp.MustCompile(`[^a-z0-9_.-]+`).ReplaceAllString(strings.ToLower(text), "-")
	text = strings.Trim(text, "-_.")
	if text == "" {
		return "project"
	}
	return strings.TrimRight(text[:min(len(text), 63)], "-_.")
}

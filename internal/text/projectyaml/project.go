// Package projectyaml reads gpuard.yaml: what each key may hold, and what to write in place of what it may not. It opens no
// other file; what the values of the flags of gpuard run mean is not known here, and of rules and defaults only which
// engine gets the services that name none.
package projectyaml

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"gpuard/internal/core/diagnostic"
	"gpuard/internal/core/service"
	"gpuard/internal/core/source"
	"gpuard/internal/core/suggest"
	"gpuard/internal/text/yamltree"
)

// Read returns the project in a file, which has an absolute path, the base of its paths. With mistakes the project is
// what could be read, so that mistakes that only others can find, in the values of flags, can be reported with them.
func Read(data []byte, file string) (*service.Project, []diagnostic.One) {
	r := &reader{folder: filepath.Dir(file), keys: AllKeys()}
	r.project = service.Project{File: file, Name: defaultName(filepath.Base(r.folder))}
	root := r.ReadRoot(data, sampleHint)
	switch {
	case root != nil:
		r.readFile(root)
		r.setEngines(root.Find("defaults", "engine"))
		r.checkNames()
		r.checkDependencies()
	case len(r.Mistakes) == 0:
		r.Wrong(source.Place{Line: 1, Column: 1}, "the file is empty; %s", sampleHint)
	}

	return &r.project, r.Mistakes
}

const sampleHint = "write services: with a name and a command below it"

type reader struct {
	yamltree.Form
	folder  string
	keys    Keys
	project service.Project
	needs   []need
}

// need is a dependency with its place.
type need struct {
	of, on string
	until  service.Condition
	at     source.Place
}

func (r *reader) readFile(root *yamltree.Node) {
	named := false
	for _, e := range r.KnownEntries(root, r.keys.File, "the file", "", func(key *yamltree.Node) {
		named = r.reportUnknown(key, r.keys.File, "") == "services" || named
	}) {
		switch e.Key.Name {
		case "name":
			if name, ok := r.Text(e, ""); ok && r.checkName(name, e.Value.At, "project") {
				r.project.Name = name
			}
		case "services":
			r.readServices(e.Value)
		}
	}
	if !named && root.Find("services") == nil {
		r.Wrong(root.At, "the file has no services; %s", sampleHint)
	}
}

// setEngines gives the services without an engine that of the file's defaults.
func (r *reader) setEngines(usual *yamltree.Node) {
	if usual == nil || usual.Kind != yamltree.Scalar {
		return
	}
	for i := range r.project.Services {
		if s := &r.project.Services[i]; s.Engine == "" {
			s.Engine = usual.Text
		}
	}
}

func (r *reader) readServices(n *yamltree.Node) {
	if n.Kind != yamltree.Map {
		r.Wrong(n.At, "services is not a map; write each service's name, a colon, and its keys indented below it")
		return
	}

	// Each has processes and a folder of its own.
	const most = 1000
	if len(n.Pairs) > most {
		r.Wrong(n.At, "services has %d of them, at most %d are possible", len(n.Pairs), most)
		return
	}

	for _, p := range r.UniqueEntries(n, "services") {
		if r.checkName(p.Key.Text, p.Key.At, "service") {
			r.project.Services = append(r.project.Services, r.readService(p))
		}
	}

	if len(n.Pairs) == 0 {
		r.Wrong(n.At, "services is empty; write a service's name, a colon, and its keys indented below it")
	}
}

// foreignKeyAdvice is how other programs, Docker Compose above all, call what a key of ours does.
func foreignKeyAdvice(word string) string {
	switch word {
	case "entrypoint":
		return "write command"
	case "environment":
		return "write env"
	case "working_dir":
		return "write workdir"
	case "healthcheck":
		return "write healthy"
	case "scale":
		return "write replicas"
	case "time":
		return "write timeout for a limit, or expect for your estimate"
	case "retries":
		return "write failures below healthy, or restart: on-failure:5"
	case "retry":
		return "write restart: on-failure"
	case "build", "container_name", "ports", "volumes", "networks", "deploy", "runtime":
		return "gpuard starts programs of this machine, not containers; docker run can be such a program"
	case "version":
		return "leave it out"
	}
	return ""
}

// reportUnknown finds fault with a key, and returns the one that was probably meant, "" when none is near.
func (r *reader) reportUnknown(key *yamltree.Node, table []yamltree.Key, of string) string {
	text := fmt.Sprintf("unknown key %q%s", key.Text, of)
	var names, own []string

	for _, k := range table {
		names = append(names, k.Name)
		if k.Flag == "" {
			own = append(own, k.Name)
		}
	}

	meant := suggest.ClosestWord(key.Text, names)
	switch {
	case of != "" && foreignKeyAdvice(key.Text) != "", of == "" && key.Text == "version":
		text += "; " + foreignKeyAdvice(key.Text)
	case meant != "":
		text += "; did you mean " + meant + "?"
	case len(own) == len(names):
		text += "; there are " + strings.Join(names, ", ")
	default:
		text += "; there are " + strings.Join(own, ", ") + ", and flags of gpuard run with _ for -"
	}

	r.Wrong(key.At, "%s", text)

	return meant
}

// isGoodName is what can be a file's name, a word of a command line and a part of a host's name alike.
func isGoodName(name string) bool {
	const first = "abcdefghijklmnopqrstuvwxyz0123456789"
	return name != "" && len(name) <= 63 && strings.Contains(first, name[:1]) && strings.Trim(name, first+"_.-") == ""
}

func (r *reader) checkName(name string, at source.Place, what string) bool {
	if isGoodName(name) {
		return true
	}

	advice := "write lower case letters and digits, and - _ . after the first, 63 at most"
	if better := defaultName(name); better != "project" {
		advice += ", such as " + better
	}

	r.Wrong(at, "%q cannot be the name of a %s; %s", name, what, advice)

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

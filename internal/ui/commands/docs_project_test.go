package commands

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"gpuard/internal/text/config"
	"gpuard/internal/text/projectyaml"
	"gpuard/internal/text/yamltree"
)

// projectPage is the reference of gpuard.yaml.
func projectPage() string {
	keys := projectyaml.AllKeys()
	var b strings.Builder
	b.WriteString("# gpuard.yaml\n\n" + made + `The file of a project: programs that run for long, what each needs, and in which order they start. How to use it:
[services](../how-to/services.md). A key that is not here is an error, with its line and column. ` + "`gpuard.schema.json`" + ` is the same for editors:
with this first line most of them complete keys and mark mistakes as you type.

    # yaml-language-server: $schema=…/docs/reference/gpuard.schema.json

Keys at the top that begin with ` + "`x-`" + ` are ignored: a place for anchors, which work everywhere, as does ` + "`<<`" + `. Sizes are written 20G, times 90s, 10m, 24h or 7d.
A list can also be one text with commas. Relative paths begin at the folder of the file.

`)
	table := func(title string, list []yamltree.Key) {
		fmt.Fprintf(&b, "## %s\n\n| key | takes | meaning | as in |\n| --- | --- | --- | --- |\n", title)
		for _, k := range list {
			takes := string(k.Takes)
			if len(k.Words) > 0 && k.Takes == yamltree.Text {
				takes = strings.Join(k.Words, ", ")
			}
			as := ""
			if k.Sample != "" {
				as = "`" + k.Name + ": " + k.Sample + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Name, takes, k.Text, as)
		}
		b.WriteString("\n")
	}
	own := slices.DeleteFunc(slices.Clone(keys.Service), func(k yamltree.Key) bool { return k.Flag != "" })
	flags := slices.DeleteFunc(slices.Clone(keys.Service), func(k yamltree.Key) bool { return k.Flag == "" })
	table("At the top", keys.File)
	table("Of a service", own)
	table("Of a service, as flags of gpuard run", flags)
	b.WriteString("Each means what the flag of that name does, with `-` for `_`: [commands](commands.md).\n\n")
	table("Of ready", keys.Ready)
	b.WriteString("One of `command`, `tcp`, `http` and `log`. In its command, `ready` has the variables and the folder of the service.\n\n")
	table("Of healthy", keys.Healthy)
	b.WriteString("One of `command`, `tcp` and `http`. Without `ready`, the first check that succeeds shows that the service is ready.\n\n" + templatePage)
	return b.String()
}

const templatePage = "## Templates\n\n" + `Every text of a service may have parts in braces, which are filled in for each instance. A value that begins with a brace needs quotes.

| part | is |
| --- | --- |
| ` + "`{{.Ordinal}}`" + ` | the number of the instance, from 0 |
| ` + "`{{.Replicas}}`" + ` | how many instances there are |
| ` + "`{{.Service}}` `{{.Project}}`" + ` | the names |
| ` + "`{{add 8001 .Ordinal}}`" + ` | a sum |
| ` + "`{{if eq .Ordinal 0}}--head{{end}}`" + ` | text for some of them |
| ` + "`{{printf \"%03d\" .Ordinal}}`" + ` | other forms, as in Go's text/template |

A command that is one text is filled in first and then cut into words at blanks; quotes and backslashes protect as in a shell. No shell is
started, so what only a shell does (` + "`$HOME`, `>`, `|`, `&&`, `~`" + `) is an error; for a shell write ` + "`command: [sh, -c, 'a | b']`" + `.
`

// projectSchema is gpuard.yaml as JSON Schema draft 7, which editors support best.
func projectSchema() string {
	keys := projectyaml.AllKeys()
	top := object(keys.File)
	top["$schema"], top["title"] = "http://json-schema.org/draft-07/schema#", "gpuard.yaml"
	top["patternProperties"] = schemaMap{"^x-": schemaMap{}}
	top["required"] = []string{"services"}
	one := object(keys.Service)
	one["required"] = []string{"command"}
	properties := one["properties"].(schemaMap)
	for name, keys := range map[string][]yamltree.Key{"ready": keys.Ready, "healthy": keys.Healthy} {
		check := object(keys)
		check["minProperties"], check["description"] = 1, properties[name].(schemaMap)["description"]
		properties[name] = check
	}
	restart := properties["restart"].(schemaMap)
	restart["anyOf"] = []schemaMap{{"enum": restart["enum"]}, {"type": "string", "pattern": "^(on-failure|always):[1-9][0-9]*$"}}
	delete(restart, "enum")
	services := top["properties"].(schemaMap)["services"].(schemaMap)
	for _, name := range config.ProjectKeys() { // the same as in config.yaml
		same := configTop()["properties"].(schemaMap)[name].(schemaMap)
		same["description"] = top["properties"].(schemaMap)[name].(schemaMap)["description"]
		top["properties"].(schemaMap)[name] = same
	}
	services["additionalProperties"], services["minProperties"] = one, 1
	services["propertyNames"] = schemaMap{"pattern": `^[a-z0-9][a-z0-9_.-]{0,62}$`}
	text, err := json.MarshalIndent(top, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(text) + "\n"
}

type schemaMap = map[string]any

// object is a map with these keys and no others.
func object(keys []yamltree.Key) schemaMap {
	properties := schemaMap{}
	for _, k := range keys {
		one := valueSchema(k)
		one["description"] = k.Text
		properties[k.Name] = one
	}
	return schemaMap{"type": "object", "properties": properties, "additionalProperties": false}
}

func valueSchema(k yamltree.Key) schemaMap {
	const template = `|\{\{`
	words := schemaMap{"type": "array", "minItems": 1, "items": schemaMap{"type": []string{"string", "number"}}}
	switch k.Takes {
	case yamltree.Number:
		return schemaMap{"anyOf": []schemaMap{{"type": "integer", "minimum": 1}, {"type": "string", "pattern": `\{\{`}}}
	case yamltree.Switch:
		return schemaMap{"type": "boolean"}
	case yamltree.Size:
		return schemaMap{"type": "string", "pattern": `^[0-9]+(\.[0-9]+)? ?[kKmMgGtT]?i?[bB]?$` + template}
	case yamltree.Time:
		return schemaMap{"type": "string", "pattern": `^([0-9]+d)?([0-9.]+(ms|s|m|h))*$` + template}
	case yamltree.Texts:
		return schemaMap{"anyOf": []schemaMap{{"type": []string{"string", "number"}}, words}}
	case yamltree.Optional:
		return schemaMap{"anyOf": []schemaMap{{"type": []string{"boolean", "string"}}, words}}
	case yamltree.Command:
		return schemaMap{"anyOf": []schemaMap{{"type": "string", "minLength": 1}, words}}
	case yamltree.Pairs:
		return schemaMap{"anyOf": []schemaMap{
			{"type": "object", "additionalProperties": schemaMap{"type": []string{"string", "number", "boolean"}}},
			{"type": "array", "items": schemaMap{"type": "string", "pattern": "^[^=]+="}},
		}}
	case yamltree.Needs:
		return schemaMap{"anyOf": []schemaMap{{"type": "string"}, words, {"type": "object", "additionalProperties": schemaMap{"enum": k.Words}}}}
	case yamltree.Keyed:
		return schemaMap{"type": "object"}
	case yamltree.Maps:
		return schemaMap{"type": "array"}
	}
	if len(k.Words) > 0 {
		return schemaMap{"enum": k.Words}
	}
	return schemaMap{"type": []string{"string", "number"}}
}

// TestProjectKeys: every key of a flag has that flag, with the same kind of value. Every flag of run has a key, except
// those that only make sense for one run.
func TestProjectKeys(t *testing.T) {
	for _, c := range shownCommands() {
		if c.Name() != "run" {
			continue
		}
		known := map[string]bool{}
		for _, k := range projectyaml.AllKeys().Service {
			if k.Flag == "" {
				continue
			}
			known[k.Flag] = true
			f := c.Flags().Lookup(k.Flag)
			if f == nil || strings.ReplaceAll(k.Flag, "-", "_") != k.Name {
				t.Errorf("%s: there is no flag --%s", k.Name, k.Flag)
				continue
			}
			_, list := f.Value.(pflag.SliceValue)
			if (f.Value.Type() == "bool") != (k.Takes == yamltree.Switch) || (f.Value.Type() == "int") != (k.Takes == yamltree.Number) ||
				list != (k.Takes == yamltree.Texts) || (f.NoOptDefVal != "") != (k.Takes == yamltree.Switch || k.Takes == yamltree.Optional) {
				t.Errorf("%s is a %s, and --%s is not", k.Name, k.Takes, k.Flag)
			}
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !known[f.Name] && !slices.Contains([]string{"dry-run", "json", "quiet", "retry", "keep-while", "help", "machine", "ask", "alert", "name"}, f.Name) {
				t.Errorf("--%s of gpuard run has no key in gpuard.yaml: add it to internal/text/projectyaml/keys.go", f.Name)
			}
		})
		return
	}
	t.Error("there is no run")
}

package commands

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpuard/internal/text/config"
	"gpuard/internal/text/yamltree"
)

// configPage is the reference of config.yaml.
func configPage() string {
	keys := config.AllKeys()
	var b strings.Builder
	b.WriteString("# config.yaml\n\n" + made + `Rules and defaults: ` + "`/etc/gpuard/config.yaml`" + ` for a machine, ` + "`~/.config/gpuard/config.yaml`" + ` (or below ` + "`$XDG_CONFIG_HOME`" + `) for a user. A [gpuard.yaml](gpuard-yaml.md) may have rules and defaults of its own. How to use it:
[rules for a team](../how-to/team-rules.md). A key that is not here is an error, with its line and column, and nothing is leased until it is mended.
` + "`config.schema.json`" + ` is the same for editors, by this first line:

    # yaml-language-server: $schema=…/docs/reference/config.schema.json

Keys at the top that begin with ` + "`x-`" + ` are ignored: a place for anchors. Sizes are written 20G, times 90s, 10m, 24h or 7d. A list can also be one text with commas.

`)
	table := func(title, text string, list []yamltree.Key) {
		fmt.Fprintf(&b, "## %s\n\n%s| key | takes | meaning | as in |\n| --- | --- | --- | --- |\n", title, text)
		for _, k := range list {
			takes, as := string(k.Takes), ""
			if len(k.Words) > 0 {
				takes = strings.Join(k.Words, ", ")
			}
			if k.Sample != "" {
				as = "`" + k.Name + ": " + k.Sample + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Name, takes, k.Text, as)
		}
		b.WriteString("\n")
	}
	table("At the top", "", keys.File)
	table("Of a rule", "What is left out is not limited. All files count together: one that forbids something is enough.\n\n", keys.Rule)
	table("Of tolerate", "The machine's file can set more than the default, a user's only less.\n\n", keys.Tolerate)
	table("Of defaults", "Each means what the flag of that name does, with `-` for `_`: [commands](commands.md). The project's file has precedence over the user's, and the user's over the machine's; a default that contradicts a flag which was given is left out.\n\n", keys.Defaults)
	table("Of slurm", "The files are read together; for the same model or feature the user's counts.\n\n", keys.Slurm)
	table("Of watch", "In the machine's file alone: [troubles, and processes without a lease](../how-to/watch-the-machine.md).\n\n", keys.Watch)
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// configSchema is config.yaml as JSON Schema.
func configSchema() string {
	top := configTop()
	top["$schema"], top["title"] = "http://json-schema.org/draft-07/schema#", "config.yaml of gpuard"
	top["patternProperties"] = schemaMap{"^x-": schemaMap{}}
	text, err := json.MarshalIndent(top, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(text) + "\n"
}

func configTop() schemaMap {
	keys := config.AllKeys()
	object := func(list []yamltree.Key) schemaMap {
		properties := schemaMap{}
		for _, k := range list {
			one := configValue(k)
			one["description"] = k.Text
			properties[k.Name] = one
		}
		return schemaMap{"type": "object", "properties": properties, "additionalProperties": false}
	}
	top := object(keys.File)
	properties := top["properties"].(schemaMap)
	properties["rules"].(schemaMap)["items"] = object(keys.Rule)
	for name, list := range map[string][]yamltree.Key{"tolerate": keys.Tolerate, "defaults": keys.Defaults, "slurm": keys.Slurm, "watch": keys.Watch} {
		of := object(list)
		of["description"] = properties[name].(schemaMap)["description"]
		properties[name] = of
	}
	return top
}

func configValue(k yamltree.Key) schemaMap {
	words := schemaMap{"type": "array", "minItems": 1, "items": schemaMap{"type": []string{"string", "number"}}}
	switch k.Takes {
	case yamltree.Number:
		return schemaMap{"type": "integer", "minimum": 0}
	case yamltree.Switch:
		return schemaMap{"type": "boolean"}
	case yamltree.Part:
		return schemaMap{"type": "number", "minimum": 0, "maximum": 1}
	case yamltree.Size:
		return schemaMap{"type": []string{"string", "number"}, "pattern": `^[0-9]+(\.[0-9]+)? ?[kKmMgGtT]?i?[bB]?$`}
	case yamltree.Time:
		return schemaMap{"type": "string", "pattern": `^([0-9]+d)?([0-9.]+(ms|s|m|h))*$`}
	case yamltree.Texts:
		return schemaMap{"anyOf": []schemaMap{{"type": []string{"string", "number"}}, words}}
	case yamltree.Optional:
		return schemaMap{"anyOf": []schemaMap{{"type": []string{"boolean", "string"}}, words}}
	case yamltree.Keyed:
		return schemaMap{"type": "object"}
	case yamltree.Pairs:
		return schemaMap{"type": "object", "additionalProperties": schemaMap{"type": []string{"string", "number"}}}
	case yamltree.Maps:
		return schemaMap{"type": "array", "minItems": 1}
	}
	if len(k.Words) > 0 {
		return schemaMap{"enum": k.Words}
	}
	return schemaMap{"type": []string{"string", "number"}}
}

// TestConfigKeys: every default is a flag of gpuard run, or of submit, and takes the same kind of value.
func TestConfigKeys(t *testing.T) {
	all := map[string]*cobra.Command{}
	for _, c := range shownCommands() {
		all[c.Name()] = c
	}
	if c := all["run"]; c != nil {
		for _, k := range config.AllKeys().Defaults {
			f := c.Flags().Lookup(k.Flag)
			if k.Flag == "engine" { // run is for this machine
				f = all["submit"].Flags().Lookup(k.Flag)
			}
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
		return
	}
	t.Error("there is no run")
}

package setup

import (
	"gpuard/internal/text/config"
	"gpuard/internal/text/projectyaml"
	"gpuard/internal/text/yamltree"
)

// Format is a file that people write, for its page of the manual.
type Format struct {
	Name, Short string
	// Where such a file lies.
	Places  string
	Text    string
	Example string
	Tables  []KeyTable
}

// KeyTable are the keys of one place in a file.
type KeyTable struct {
	Title string
	Keys  []FormatKey
}

// FormatKey is one of them: what it takes, and what it means.
type FormatKey struct{ Name, Takes, Text string }

// Formats are all that have a page.
func Formats() []Format {
	p, c := projectyaml.AllKeys(), config.AllKeys()
	return []Format{
		{
			Name: "gpuard.yaml", Short: "services of a project, and the GPUs that they need", Places: "gpuard.yaml in the current folder, or in one above it",
			Text:    "Programs that run for long, what each needs, and in which order they start. gpuard up starts them. A key that is not here is an error, with its line and column. Sizes are written 20G, times 90s, 10m, 24h or 7d.",
			Example: "services:\n  api:\n    command: python serve.py\n    share: 8G\n  train:\n    command: [python, train.py]\n    mem: 40G\n    depends_on: [api]\n",
			Tables:  []KeyTable{{"At the top", formatKeys(p.File)}, {"Of a service", formatKeys(p.Service)}, {"Of ready", formatKeys(p.Ready)}, {"Of healthy", formatKeys(p.Healthy)}},
		},
		{
			Name: "gpuard-config", Short: "policy of a machine, and defaults", Places: "/etc/gpuard/config.yaml, and ~/.config/gpuard/config.yaml of each user, which cannot widen it",
			Text:    "Who may have which GPUs, how many, how much of each and for how long, and what flags of gpuard run are when they are not given. A key that is not here is an error, with its line and column.",
			Example: config.Example(),
			Tables:  []KeyTable{{"At the top", formatKeys(c.File)}, {"Of a rule", formatKeys(c.Rule)}, {"Of tolerate", formatKeys(c.Tolerate)}, {"Of defaults", formatKeys(c.Defaults)}, {"Of watch", formatKeys(c.Watch)}},
		},
	}
}

func formatKeys(keys []yamltree.Key) (all []FormatKey) {
	for _, k := range keys {
		all = append(all, FormatKey{k.Name, string(k.Takes), k.Text})
	}
	return all
}

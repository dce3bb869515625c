package container

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/option"
)

// With returns the command line with the devices of a lease. What the person asks of GPUs beyond it is left out, with a
// note, where the rest means the same without it, and is an error where it does not. What gpuard adds comes after the
// person's options, so that it is what counts.
func (c Call) With(form Form, more ...string) (argv, notes []string, err error) {
	for _, o := range slices.Concat(c.globals, c.options) {
		if _, why := c.judgeOption(o, form); why != "" {
			return nil, nil, fmt.Errorf("cannot keep the container to its lease with %s: %s; leave it out, or start the container without gpuard", o.typedText(), why)
		}
	}

	argv = slices.Clone(c.Before)
	for _, o := range c.options {
		drop, _ := c.judgeOption(o, form)
		if o.name == "--restart" && (o.value == "always" || o.value == "unless-stopped") {
			notes = append(notes, option.Expand("after a boot of the machine the engine starts the container without gpuard, and without a lease; to have one then too: {gpuard up} -d at boot"))
		}

		switch {
		case drop == "":
			argv = append(argv, o.words...)
			continue
		case o.lead != "":
			argv = append(argv, o.lead)
		}
		notes = append(notes, fmt.Sprintf("%s is left out: %s", o.typedText(), drop))
	}

	argv = slices.Concat(argv, form.Words, more, c.inside)

	return argv, append(notes, form.Notes...), nil
}

// typedText is the option as it was typed, without the letters before it.
func (e engineOption) typedText() string {
	text := strings.Join(e.words, " ")
	if e.lead != "" {
		text = strings.TrimSpace("-" + strings.TrimPrefix(text, e.lead))
	}
	return text
}

// NeededLookups is what has to be looked up before the call is judged.
func (c Call) NeededLookups() (a Lookups) {
	for _, o := range c.options {
		sources, _ := c.sourcesOf(o)
		for _, s := range sources {
			a.addSource(s)
		}
	}
	return a
}

// WithFound is the call with what was looked up.
func (c Call) WithFound(found Found) Call {
	c.found = found
	return c
}

// CheckStart is why gpuard cannot start the call, whatever the lease: to be said before one is waited for.
func (c Call) CheckStart() error {
	if err := c.refuseCommand(); err != nil || c.need == startsNothing {
		return err
	}
	_, _, err := c.With(Form{any: true})
	return err
}

// Name is what a run or create calls its container: the name that it was given, else that of its image without
// registry and version. For a start it is the container.
func (c Call) Name() string {
	for _, o := range c.options {
		if o.name == "--name" && o.value != "" {
			return o.value
		}
	}
	for _, word := range c.inside {
		if word != "--" {
			name, _, _ := strings.Cut(word[strings.LastIndex(word, "/")+1:], "@")
			name, _, _ = strings.Cut(name, ":")
			return name
		}
	}
	return c.Engine
}

// Containers are the names or ids that a start is for.
func (c Call) Containers() []string { return c.inside }

// HasOption reports whether a run or create has one of these options.
func (c Call) HasOption(names ...string) bool {
	return slices.ContainsFunc(c.options, func(o engineOption) bool { return slices.Contains(names, o.name) })
}

// IsAttached reports whether the engine's command is there as long as the container that it starts: it passes signals
// on to that, and ends as that does.
func (c Call) IsAttached() bool {
	return c.Verb == "run" && !slices.ContainsFunc(c.options, func(o engineOption) bool {
		letters := o.lead
		if o.name == "" {
			letters = o.words[0]
		}
		return o.name == "--detach" && o.value != "false" || strings.Contains(letters, "d")
	})
}

// Endpoint is the engine that the options before a command name with --host, and whether they name a context.
func Endpoint(prefix []string) (host string, context bool) {
	options, _, _ := globalGrammar().readOptions(prefix[1:])
	for _, o := range options {
		switch o.name {
		case "--host":
			host = o.value
		case "--context":
			context = true
		}
	}
	return host, context
}

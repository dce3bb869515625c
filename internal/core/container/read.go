// Package container reads the command lines of container engines, judges what they would let a container open, and adds
// the devices of a lease to those that start a container:
//
//	call, err := container.ReadCall([]string{"docker", "run", "--rm", "-it", "pytorch/pytorch", "python", "train.py"})
//	call = call.On(found) // what was looked up of call.NeededLookups()
//	form, err := container.ChooseForm(engine, devices)
//	argv, notes, err := call.With(form)
//
// Everything that a person wrote reaches the engine unchanged and in order, except options that give a container GPUs
// that are not of the lease. What is known to be harmless passes; everything else about devices, mounts and namespaces
// is judged, or refused with the reason. It must not start a program or read a file.
package container

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Call is the command line of an engine.
type Call struct {
	Engine string // "docker", "podman"
	// "run", "create", "start", "exec", "restart", "compose up"; "" any other command.
	Verb string
	// Words up to and with the verb.
	Before []string
	// The words of Before that are compose with its options.
	Compose []string

	// "run", "pod create"; "" the engine alone.
	command string
	need    need           // of that command
	globals []engineOption // before the command
	// All words after the verb.
	after []string
	// The options of a verb, in order.
	options []engineOption
	// The image and what follows; of start the containers, of compose the services.
	inside []string
	// What was looked up of NeededLookups.
	found Found
}

// engineOption is one option as it was typed.
type engineOption struct {
	// "--env"; short forms have the name of the long one; "" a word of letters without values, as -it.
	name string
	// "" for an option without one.
	value string
	words []string // as typed
	// Letters before it in the same word: "-it" of -ite NAME=value; "" none.
	lead string
}

// EngineOf is the engine that a program is: "docker" or "podman"; "" for any other.
func EngineOf(program string) string {
	switch name := program[strings.LastIndex(program, "/")+1:]; name {
	case "docker", "podman":
		return name
	case "podman-remote":
		return "podman"
	}
	return ""
}

// ReadCall reads a command line. argv[0] is the program of the engine. It fails where the options of a verb have no
// end, as without an image, or one of them is not known: it may take a value or not.
func ReadCall(argv []string) (Call, error) {
	c := Call{Engine: EngineOf(argv[0])}
	if c.Engine == "" {
		return c, fmt.Errorf("%q is no container engine that gpuard knows: write docker or podman", argv[0])
	}

	var rest []string
	var err error
	c.globals, rest, err = globalGrammar().readOptions(argv[1:])
	if err != nil {
		return c, err
	}

	if len(rest) > 0 && rest[0] == "container" {
		rest = rest[1:]
	}

	if len(rest) == 0 {
		c.Before, c.need = argv, startsNothing
		return c, nil
	}

	c.command, c.after = rest[0], rest[1:]
	var between []engineOption
	if slices.Contains(commandGroups(), c.command) {
		between, rest, err = composeGrammar().readOptions(c.after)
		if err != nil {
			return c, err
		}
		if len(rest) > 0 {
			c.command += " " + rest[0]
			if c.command == "compose "+rest[0] {
				c.Compose = argv[len(argv)-len(c.after)-1 : len(argv)-len(rest)]
				c.globals = append(c.globals, between...)
			}
			c.after = rest[1:]
		}
	}

	c.Before, c.need = argv[:len(argv)-len(c.after)], needOf(c.command)
	if c.need == startsLeased || c.need == startsInside {
		c.Verb = c.command
		return c, c.readVerb()
	}

	return c, nil
}

// readVerb reads what follows the verb.
func (c *Call) readVerb() (err error) {
	switch c.Verb {
	case "run", "create", "compose run":
		c.options, c.inside, err = runGrammar().readOptions(c.after)
	case "exec", "compose exec":
		c.options, c.inside, err = execGrammar().readOptions(c.after)
	case "compose up":
		c.options, c.inside, err = upGrammar().readMixed(c.after)
	default:
		c.options, c.inside, err = startGrammar().readMixed(c.after)
	}
	if err != nil || c.HasOption("--help") || c.Verb != "run" && c.Verb != "create" && c.Verb != "compose run" {
		return err
	}
	if len(c.inside) == 0 || slices.Equal(c.inside, []string{"--"}) {
		return fmt.Errorf("there is no %s", map[bool]string{true: "service", false: "image"}[c.Compose != nil])
	}

	return nil
}

// readOptions reads options up to the first word that is none.
func (g grammar) readOptions(words []string) (options []engineOption, rest []string, err error) {
	for len(words) > 0 && words[0] != "--" && len(words[0]) > 1 && words[0][0] == '-' {
		o, n, err := g.readOne(words)
		if err != nil {
			return options, words, err
		}
		options, words = append(options, o), words[n:]
	}
	return options, words, nil
}

// readMixed reads options that may be among other words.
func (g grammar) readMixed(words []string) (options []engineOption, others []string, err error) {
	for len(words) > 0 {
		var more []engineOption
		more, words, err = g.readOptions(words)
		if err != nil {
			return nil, nil, err
		}

		options = append(options, more...)
		if len(words) > 0 && words[0] == "--" {
			return options, append(others, words[1:]...), nil
		}

		if len(words) > 0 {
			others, words = append(others, words[0]), words[1:]
		}
	}
	return options, others, nil
}

// readOne reads the first option of words, and says how many of them it takes.
func (g grammar) readOne(words []string) (o engineOption, n int, err error) {
	word := words[0]
	var needs, given bool
	if strings.HasPrefix(word, "--") {
		o.name, o.value, given = strings.Cut(word, "=")
		o.name = cmp.Or(optionAliases()[o.name], o.name)
		needs = !given && g.takesOne(o.name)
	} else {
		o, needs = g.readLetters(word)
	}

	if o.name != "" && !g.takesNone(o.name) && !g.takesOne(o.name) {
		return o, 0, fmt.Errorf("gpuard does not know the option %s, so not what it gives the container", o.name)
	}

	n = 1
	if needs {
		n = 2
	}

	if n > len(words) {
		return o, 0, fmt.Errorf("option %s has no value", word)
	}

	if needs {
		o.value = words[1]
	}

	o.words = words[:n]

	return o, n, nil
}

// readLetters reads a word of one-letter options, of which only the last one may have a value: -it, -eNAME=value,
// -it=false,
// -ite NAME. needs reports whether that value is in the next word.
func (g grammar) readLetters(word string) (o engineOption, needs bool) {
	// The only switch of one letter that is judged.
	judged := ""
	for i := 1; i < len(word); i++ {
		name := cmp.Or(g.longName(word[i]), "-"+word[i:i+1])

		rest := word[i+1:]
		if g.takesNone(name) && !strings.HasPrefix(rest, "=") {
			if name == "--watch" {
				judged = name
			}
			continue
		}

		if i > 1 {
			o.lead = word[:i]
		}

		o.name, o.value = name, strings.TrimPrefix(rest, "=")

		return o, rest == ""
	}
	return engineOption{name: judged}, false
}

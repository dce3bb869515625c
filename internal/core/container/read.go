// Package container reads the command lines of container engines, and adds the devices of a lease to those that start a
// container:
//
//	call, err := container.Read([]string{"docker", "run", "--rm", "-it", "pytorch/pytorch", "python", "train.py"})
//	form, err := container.Choose(engine, devices)
//	argv, notes, err := call.With(form)
//
// Everything that a person wrote reaches the engine unchanged and in order, except options that give a container GPUs
// that are not of the lease. It must not start a program.
package container

import (
	"fmt"
	"slices"
	"strings"
)

// Call is the command line of an engine.
type Call struct {
	Engine  string   // "docker", "podman"
	Verb    string   // "run", "create", "start", "exec", "restart", "compose up"; "" any other command
	Before  []string // words up to and with the verb
	Compose []string // of Before, compose with its options

	after   []string // all words after the verb
	options []option // of run and create, in order
	inside  []string // the image and what follows; of start the containers, of compose the services
}

// option is one option as it was typed.
type option struct {
	name  string   // "--env"; short forms have the name of the long one
	value string   // "" for an option without one
	words []string // as typed
	lead  string   // letters before it in the same word: "-it" of -ite NAME=value; "" none
}

// Plain reports whether an option of run or create takes no value. All others take one.
//
// docker/cli: docs/reference/commandline/container_run.md; containers/podman: docs/source/markdown/podman-run.1.md.in
func Plain(name string) bool {
	return slices.Contains(strings.Fields("--detach --disable-content-trust --help --init --interactive --no-healthcheck --oom-kill-disable --privileged --publish-all --quiet "+
		"--read-only --rm --sig-proxy --tty --use-api-socket --env-host --http-proxy --no-hostname --no-hosts --passwd --read-only-tmpfs --replace --rmi --rootfs --tls-verify --unsetenv-all "+
		"--build --no-TTY --no-deps --quiet-build --quiet-pull --remove-orphans --service-ports --use-aliases"), name) // the last are of compose run, name)
}

// PlainLetters are the short forms of options without a value, in one word with others: -it.
const PlainLetters = "ditPqT"

// GlobalValues are the options before a verb that take a value.
func GlobalValues() []string {
	return strings.Fields("-c -H -l -n --context --host --config --log-level --connection --namespace --address --root --runroot --url --tlscacert --tlscert --tlskey --storage-driver --storage-opt --cgroup-manager --conmon --events-backend --hooks-dir --identity --module --network-cmd-path --network-config-dir --out --runtime --runtime-flag --ssh --tmpdir --volumepath")
}

// ComposeValues are the options between compose and its own verb that take a value.
func ComposeValues() []string {
	return strings.Fields("-f -p --file --project-name --profile --env-file --project-directory --ansi --parallel --progress")
}

// Verbs are the commands by which a process starts in a container.
func Verbs() []string { return strings.Fields("run create start restart exec") }

// Engine is the engine that a program is: "docker" or "podman"; "" for any other.
func Engine(program string) string {
	switch name := program[strings.LastIndex(program, "/")+1:]; name {
	case "docker", "podman":
		return name
	case "podman-remote":
		return "podman"
	}
	return ""
}

// Read reads a command line. argv[0] is the program of the engine. It fails where the options of run or create have no
// end, as without an image.
func Read(argv []string) (Call, error) {
	c := Call{Engine: Engine(argv[0])}
	if c.Engine == "" {
		return c, fmt.Errorf("%q is no container engine that gpuard knows: write docker or podman", argv[0])
	}
	at := skip(argv, 1, GlobalValues())
	if at < len(argv) && argv[at] == "container" {
		at++
	}
	if at >= len(argv) {
		c.Before = argv
		return c, nil
	}
	c.Before, c.after = argv[:at+1], argv[at+1:]
	switch verb := argv[at]; {
	case verb == "compose":
		sub := skip(argv, at+1, ComposeValues())
		if sub < len(argv) && slices.Contains(append(Verbs(), "up"), argv[sub]) {
			c.Verb = "compose " + argv[sub]
			c.Before, c.Compose, c.after = argv[:sub+1], argv[at:sub], argv[sub+1:]
		}
	case slices.Contains(Verbs(), verb):
		c.Verb = verb
	}
	switch c.Verb {
	case "run", "create", "compose run":
		return c, c.readOptions()
	case "compose up":
		c.readUp()
	case "start":
		valued := strings.Fields("--checkpoint --checkpoint-dir --detach-keys --filter -f")
		for at := skip(c.after, 0, valued); at < len(c.after); at = skip(c.after, at+1, valued) {
			c.inside = append(c.inside, c.after[at])
		}
	}
	return c, nil
}

// readUp reads the options and the services of a compose up.
func (c *Call) readUp() {
	valued := strings.Fields("--attach --exit-code-from --no-attach --pull --scale -t --timeout --wait-timeout")
	for words := c.after; len(words) > 0; {
		name, value, given := strings.Cut(words[0], "=")
		n := 1
		switch {
		case !strings.HasPrefix(name, "-"):
			c.inside = append(c.inside, name)
		case !given && slices.Contains(valued, name) && len(words) > 1:
			n, value = 2, words[1]
			fallthrough
		default:
			c.options = append(c.options, option{name: name, value: value, words: words[:n]})
		}
		words = words[n:]
	}
}

// skip returns the position of the first word from at on that is no option.
func skip(argv []string, at int, valued []string) int {
	for at < len(argv) && strings.HasPrefix(argv[at], "-") {
		if slices.Contains(valued, argv[at]) {
			at++
		}
		at++
	}
	return at
}

// readOptions reads up to the image.
func (c *Call) readOptions() error {
	words := c.after
	for len(words) > 0 {
		word := words[0]
		if word == "--" || len(word) < 2 || word[0] != '-' {
			c.inside = words
			break
		}
		var o option
		n := 1
		if strings.HasPrefix(word, "--") {
			name, value, given := strings.Cut(word, "=")
			if o.name, o.value = name, value; !given && !Plain(name) {
				n = 2
			}
		} else {
			o, n = shorts(word)
		}
		if n > len(words) {
			return fmt.Errorf("option %s has no value", word)
		}
		if n == 2 {
			o.value = words[1]
		}
		o.words = words[:n]
		c.options, words = append(c.options, o), words[n:]
	}
	if len(c.inside) == 0 || slices.Equal(c.inside, []string{"--"}) {
		if slices.ContainsFunc(c.options, func(o option) bool { return o.name == "--help" }) {
			return nil
		}
		return fmt.Errorf("there is no %s", map[bool]string{true: "service", false: "image"}[c.Compose != nil])
	}
	return nil
}

// shorts reads a word of one-letter options, of which only the last one may have a value: -it, -eNAME=value, -ite NAME.
// n is how many words it takes with that value.
func shorts(word string) (o option, n int) {
	long := map[byte]string{'e': "--env", 'v': "--volume", 'l': "--label"}
	for i := 1; i < len(word); i++ {
		if strings.ContainsRune(PlainLetters, rune(word[i])) {
			continue
		}
		if i > 1 {
			o.lead = word[:i]
		}
		o.name, o.value = long[word[i]], strings.TrimPrefix(word[i+1:], "=")
		if o.name == "" {
			o.name = "-" + word[i:i+1]
		}
		if word[i+1:] == "" {
			return o, 2
		}
		return o, 1
	}
	return option{name: word}, 1
}

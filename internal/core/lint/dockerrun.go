package lint

import (
	"strconv"
	"strings"

	enginecli "gpuard/internal/core/container"
	"gpuard/internal/core/launchers"
)

// containerRun is what docker run, podman run or the like is asked for, as far as GPUs are concerned.
type containerRun struct {
	program
	// "docker", "podman", "nerdctl", "nvidia-docker".
	tool string
	gpus []Word // values of --gpus
	// Values of --device that name a GPU.
	cdi []Word
	// --device or --privileged lets in device files.
	nodes   bool
	runtime string
	// Set steps; a name without value is a Set whose value is computed.
	env   []Step
	image Word
	// The command for the container.
	inside []Word
}

// ContainerTool is the name of the program that command starts a process in a container with: docker, podman or nerdctl;
// "" for any other command.
func ContainerTool(command []string) string {
	s := Step{Do: Command}
	for _, word := range command {
		s.Words = append(s.Words, Word{Text: word, Raw: word, Known: true})
	}

	tool, words := containerCommand(programOf(s))
	if tool == "" || len(words) == 0 {
		return ""
	}

	argv := []string{"docker"}
	for _, w := range words {
		argv = append(argv, w.Text)
	}

	if call, err := enginecli.ReadCall(argv); err == nil && !call.StartsContainer() {
		return ""
	}

	return tool
}

// containerCommand is the tool that a program is, "" for none, and its words from the subcommand on.
func containerCommand(p program) (tool string, words []Word) {
	switch p.name {
	case "docker", "podman", "nerdctl", "nvidia-docker", "podman-remote":
	case "docker-compose", "podman-compose":
		return strings.TrimSuffix(p.name, "-compose"), append([]Word{{Text: "compose", Known: true}}, p.args...)
	default:
		return "", nil
	}
	words = p.args[launchers.SkipOptions(wordTexts(p.args), 0, enginecli.GlobalValues()):]
	if len(words) > 0 && words[0].Text == "container" {
		words = words[1:]
	}

	return strings.TrimSuffix(p.name, "-remote"), words
}

// readContainerRun reads a command that starts a container.
func readContainerRun(s Step) (containerRun, bool) {
	r := containerRun{program: programOf(s)}
	var words []Word
	r.tool, words = containerCommand(r.program)
	if len(words) == 0 || words[0].Text != "run" && words[0].Text != "create" {
		return r, false
	}

	return r, r.readOptions(words[1:])
}

// readOptions reads up to the image. It fails if a computed word may be an option: then their end is unknown.
func (r *containerRun) readOptions(words []Word) bool {
	for len(words) > 0 {
		w := words[0]
		words = words[1:]
		switch {
		case !w.Known && !strings.HasPrefix(w.Text, "-"):
			// "$IMAGE" and "${ARGS[@]}" cannot be told apart; the words before are known
			r.image, r.inside = w, words
			return true
		case w.Text == "--":
			continue
		case strings.HasPrefix(w.Text, "--"):
			name, value, given := strings.Cut(w.Text, "=")
			if !given && enginecli.TakesNoValue(name) {
				r.applyOption(name, w)
				continue
			}

			if !given {
				if len(words) == 0 {
					return false
				}
				r.applyOption(name, words[0])
				words = words[1:]
				continue
			}

			v := w
			v.Text = value
			if raw, ok := strings.CutPrefix(w.Raw, name+"="); ok && w.At.Line == w.At.EndLine {
				v.Raw = raw
				v.At.Column += len(name) + 1
			}

			r.applyOption(name, v)
		case len(w.Text) > 1 && w.Text[0] == '-':
			words = r.readShortOptions(w, words)
		default:
			r.image, r.inside = w, words
			return true
		}
	}
	return true
}

// innerCommand is the command that the container runs, with the program of a well-known image where the words are the
// options of that.
func (r containerRun) innerCommand() Step {
	s := Step{At: r.At, Do: Command, Words: r.inside}
	if len(r.inside) == 0 || !strings.HasPrefix(r.inside[0].Text, "-") {
		return s
	}

	s.Words = nil

	for _, word := range launchers.ProgramOfImage(r.image.Text) {
		s.Words = append(s.Words, Word{Text: word, Known: true, At: r.image.At})
	}

	s.Words = append(s.Words, r.inside...)

	return s
}

// readShortOptions reads a bundle of one-letter options: -it, -eNAME=value, -itde NAME=value.
func (r *containerRun) readShortOptions(w Word, words []Word) []Word {
	for i := 1; i < len(w.Text); i++ {
		if enginecli.TakesNoValue("-" + w.Text[i:i+1]) {
			continue
		}

		v := w
		v.Text = strings.TrimPrefix(w.Text[i+1:], "=")
		if v.Text == "" {
			if len(words) == 0 {
				return nil
			}
			v, words = words[0], words[1:]
		} else if raw, ok := strings.CutPrefix(w.Raw, w.Text[:len(w.Text)-len(v.Text)]); ok && w.At.Line == w.At.EndLine {
			v.At.Column += len(w.Raw) - len(raw)
			v.Raw = raw
		}

		if w.Text[i] == 'e' {
			r.applyOption("--env", v)
		}

		break
	}
	return words
}

func (r *containerRun) applyOption(name string, v Word) {
	switch name {
	case "--gpus":
		r.gpus = append(r.gpus, v)
	case "--device":
		if strings.HasPrefix(v.Text, "nvidia.com/gpu=") || strings.HasPrefix(v.Text, "amd.com/gpu=") {
			r.cdi = append(r.cdi, v)
		} else {
			r.nodes = true
		}
	case "--privileged", "--device-cgroup-rule", "--env-file", "--env-host":
		// Or variables that are not in the file.
		r.nodes = true
	case "--runtime":
		r.runtime = v.Text
	case "--env":
		if s, ok := parseAssignment(v, "-e"); ok {
			r.env = append(r.env, s)
		} else if isName(v.Text) {
			r.env = append(r.env, Step{At: v.At, Do: Set, Name: v.Text, How: "-e", Value: Value{Text: "$" + v.Text, From: v.Text, At: v.At, Raw: v.Raw}})
		}
	}
}

// containerVariable returns the value that -e gives a variable.
func (r containerRun) containerVariable(name string) (Step, bool) {
	for i := len(r.env) - 1; i >= 0; i-- {
		if r.env[i].Name == name {
			return r.env[i], true
		}
	}
	return Step{}, false
}

// countGPUs counts the GPUs that the container gets; ok is false when the command does not tell, or gives all.
func (r containerRun) countGPUs() (n int, ok bool) {
	switch {
	case len(r.gpus) == 1 && len(r.cdi) == 0 && r.gpus[0].Known:
		request := parseGPURequest(r.gpus[0].Text)
		if len(request.devices) > 0 && !request.loose {
			return len(request.devices), true
		}
		return request.count, request.count > 0 && len(request.devices) == 0
	case len(r.gpus) == 0 && len(r.cdi) > 0:
		for _, v := range r.cdi {
			if !v.Known || strings.HasSuffix(v.Text, "=all") {
				return 0, false
			}
		}
		return len(r.cdi), true
	case len(r.gpus) == 0 && (r.runtime == "nvidia" || r.tool == "nvidia-docker"):
		if s, given := r.containerVariable("NVIDIA_VISIBLE_DEVICES"); given && s.Value.Known && s.Value.Text != "all" && s.Value.Text != "none" && s.Value.Text != "void" {
			return countDevices(s.Value)
		}
	}
	return 0, false
}

// request is a value of --gpus, which docker reads as one line of CSV.
type request struct {
	count   int // -1 is all
	devices []string
	// A list without the inner quotes: its second entry is read as a count, and the last count counts.
	loose bool
}

// parseGPURequest reads a value of --gpus as docker does (docker/cli: opts/gpus.go).
func parseGPURequest(text string) request {
	var r request
	counted := false
	for _, field := range splitCSV(text) {
		key, value, given := strings.Cut(field, "=")
		switch {
		case !given && key == "all":
			r.count = -1
		case !given:
			n, err := strconv.Atoi(key)
			r.loose = r.loose || len(r.devices) > 0 || counted
			counted = true
			if err == nil {
				r.count = n
			}
		case key == "count" && value == "all":
			r.count = -1
		case key == "count":
			r.count, _ = strconv.Atoi(value)
		case key == "device":
			r.devices = append(r.devices, strings.Split(value, ",")...)
		}
	}

	return r
}

// splitCSV splits CSV of one line; a quote within a field is taken as it is.
func splitCSV(text string) []string {
	var all []string
	for text != "" {
		if rest, ok := strings.CutPrefix(text, `"`); ok {
			if value, after, closed := strings.Cut(rest, `"`); closed {
				all = append(all, value)
				text = strings.TrimPrefix(after, ",")
				continue
			}
		}
		value, after, _ := strings.Cut(text, ",")
		all = append(all, value)
		text = after
	}
	return all
}

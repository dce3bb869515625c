package lint

import (
	"path"
	"slices"
	"strings"
)

// program is the command that is really started, after env, sudo, nohup and the like.
type program struct {
	Step
	name string // of the program without its folder; "" when it is computed
	args []Word // its own
	set  []Step // Set and Unset steps: what this program alone gets, the last one of a name counts
	by   []string
	sudo *sudo // nil without
}

// sudo is what sudo lets through.
type sudo struct {
	all   bool
	names []string
	at    Word
}

// started skips programs that start another one. If their options cannot be told apart from the other program, it
// searches for a known name.
func started(s Step) program {
	p := program{Step: s, set: slices.Clone(s.With)}
	words := s.Words
	for len(words) > 0 {
		name := path.Base(words[0].Text)
		if !words[0].Known {
			return p
		}
		rest, through := p.peel(name, words)
		if !through {
			p.name, p.args = name, words[1:]
			return p
		}
		p.by = append(p.by, name)
		words = rest
	}
	return p
}

// wrapper says which options of a program that starts another one take the next word, and how many words are between
// its options and the program.
type wrapper struct{ takes, between string }

func wrapperOf(name string) (w wrapper, ok bool) {
	switch name {
	case "nohup", "setsid", "builtin", "command", "catchsegv", "unbuffer", "eatmydata", "winpty":
		return wrapper{}, true
	case "exec":
		return wrapper{takes: "-a"}, true
	case "time":
		return wrapper{takes: "-f -o --format --output"}, true
	case "nice":
		return wrapper{takes: "-n --adjustment"}, true
	case "ionice":
		return wrapper{takes: "-c -n -t --class --classdata"}, true
	case "stdbuf":
		return wrapper{takes: "-i -o -e --input --output --error"}, true
	case "timeout":
		return wrapper{takes: "-s -k --signal --kill-after", between: "1"}, true
	case "chrt", "taskset":
		return wrapper{between: "1"}, true
	case "numactl":
		return wrapper{takes: "-N -m -C -i -p --cpunodebind --membind --physcpubind --interleave --preferred --localalloc"}, true
	case "xvfb-run":
		return wrapper{takes: "-n -e -f -p -s -w --server-num --error-file --auth-file --xauth-protocol --server-args --wait"}, true
	case "pipenv", "poetry", "pdm", "rye", "hatch":
		return wrapper{between: "run"}, true
	case "strace":
		return wrapper{takes: "-o -e -p -s -u"}, true
	case "proxychains4":
		return wrapper{takes: "-f"}, true
	}
	return wrapper{}, false
}

// searched lists the programs that start another one after options that differ between versions.
func searched(name string) bool {
	return isOneOf(name, "srun", "mpirun", "mpiexec", "orterun", "mpiexec.hydra", "nsys", "ncu", "nvprof", "rocprof", "rocprofv3", "uv", "conda", "mamba", "micromamba", "pixi", "xargs", "compute-sanitizer", "cuda-gdb", "gdb", "tmux", "screen", "ccrun", "flock", "runuser", "su", "doas", "systemd-run", "apptainer", "singularity")
}

// peel takes one such program off. through is false when name starts nothing else.
func (p *program) peel(name string, words []Word) (rest []Word, through bool) {
	switch name {
	case "env":
		return p.env(words[1:])
	case "sudo":
		p.sudo = &sudo{at: words[0]}
		return p.elevate(words[1:])
	}
	if searched(name) {
		if slices.Contains([]string{"conda", "mamba", "micromamba", "uv", "pixi"}, name) && (len(words) < 2 || words[1].Text != "run") {
			return nil, false // installs it
		}
		i := slices.IndexFunc(words[1:], func(w Word) bool {
			return w.Known && (isLauncher(path.Base(w.Text)) || strings.HasSuffix(w.Text, ".py")) || w.Text == "env"
		})
		return words[1+max(0, i):], i >= 0
	}
	w, ok := wrapperOf(name)
	if !ok || len(words) == 1 {
		return nil, false
	}
	rest = skipOptions(words[1:], strings.Fields(w.takes))
	switch {
	case w.between == "1" && len(rest) > 0:
		if name == "taskset" && len(words) > 1 && strings.Contains(words[1].Text, "p") && strings.HasPrefix(words[1].Text, "-") {
			return nil, false // of a process that runs already
		}
		rest = rest[1:]
	case w.between != "" && w.between != "1":
		if len(rest) == 0 || rest[0].Text != w.between {
			return nil, false
		}
		rest = skipOptions(rest[1:], nil)
	}
	return rest, len(rest) > 0
}

// skipOptions drops options, with the next word for those that take it.
func skipOptions(words []Word, takes []string) []Word {
	for len(words) > 0 && words[0].Known && len(words[0].Text) > 1 && words[0].Text[0] == '-' {
		option := words[0].Text
		words = words[1:]
		if option == "--" {
			break
		}
		if slices.Contains(takes, option) && len(words) > 0 {
			words = words[1:]
		}
	}
	return words
}

// assignment reads a word NAME=value as a Set step.
func assignment(w Word, how string) (Step, bool) {
	name, value, ok := strings.Cut(w.Text, "=")
	if !ok || !isName(name) {
		return Step{}, false
	}
	at := w.At
	v := Value{Text: value, Known: w.Known, At: at, Raw: w.Raw, From: w.From}
	if raw, found := strings.CutPrefix(w.Raw, name+"="); found && at.Line == at.EndLine {
		v.Raw = raw
		v.At.Column += len(name) + 1
	}
	return Step{At: at, Do: Set, Name: name, Value: v, How: how, Exported: true}, true
}

var nameForm = pattern(`^[A-Za-z_][A-Za-z0-9_]*$`)

func isName(s string) bool { return nameForm().MatchString(s) }

func (p *program) env(words []Word) ([]Word, bool) {
	for len(words) > 0 {
		w := words[0]
		switch {
		case w.Text == "-" || w.Text == "-i" || w.Text == "--ignore-environment":
			p.set = []Step{{At: w.At, Do: Unset, Name: "*", How: "env -i"}}
		case (w.Text == "-u" || w.Text == "--unset") && len(words) > 1:
			p.set = append(p.set, Step{At: w.At, Do: Unset, Name: words[1].Text, How: "env -u"})
			words = words[1:]
		case strings.HasPrefix(w.Text, "--unset="):
			p.set = append(p.set, Step{At: w.At, Do: Unset, Name: strings.TrimPrefix(w.Text, "--unset="), How: "env -u"})
		case (w.Text == "-C" || w.Text == "--chdir") && len(words) > 1:
			words = words[1:]
		case strings.HasPrefix(w.Text, "-"):
		default:
			s, ok := assignment(w, "env")
			if !ok {
				return words, true
			}
			p.set = append(p.set, s)
		}
		words = words[1:]
	}
	return nil, false
}

func (p *program) elevate(words []Word) ([]Word, bool) {
	takes := strings.Fields("-C -c -D -g -h -p -R -r -t -T -U -u --close-from --chdir --group --host --prompt --chroot --role --type --command-timeout --other-user --user")
	for len(words) > 0 {
		w := words[0]
		switch {
		case strings.HasPrefix(w.Text, "--preserve-env="):
			p.sudo.names = append(p.sudo.names, strings.Split(strings.TrimPrefix(w.Text, "--preserve-env="), ",")...)
		case w.Text == "--preserve-env":
			p.sudo.all = true
		case slices.Contains(takes, w.Text) && len(words) > 1:
			words = words[1:]
		case strings.HasPrefix(w.Text, "-"):
			p.sudo.all = p.sudo.all || !strings.HasPrefix(w.Text, "--") && strings.Contains(w.Text, "E")
		default:
			s, ok := assignment(w, "sudo")
			if !ok {
				return words, true
			}
			p.sudo.names = append(p.sudo.names, s.Name)
			p.set = append(p.set, s)
		}
		words = words[1:]
	}
	return nil, false
}

// drops reports whether sudo keeps the variable from the program. What sudoers lets through is not in the file.
func (s *sudo) drops(name string) bool {
	return s != nil && !s.all && !slices.Contains(s.names, name)
}

// given is what this program alone gets for a variable: its last Set or Unset step.
func (p program) given(name string) (Step, bool) {
	for i := len(p.set) - 1; i >= 0; i-- {
		if p.set[i].Name == name || p.set[i].Name == "*" {
			return p.set[i], true
		}
	}
	return Step{}, false
}

// isPython reports whether a program is a Python interpreter.
func isPython(name string) bool { return pythonForm().MatchString(name) }

var pythonForm = pattern(`^(python|pypy)[0-9.]*$`)

// isLauncher reports whether a name is that of a program that uses GPUs, or starts what does.
func isLauncher(name string) bool {
	return isPython(name) || slices.Contains([]string{"torchrun", "torchx", "accelerate", "deepspeed", "ds", "horovodrun", "colossalai", "composer", "lightning", "fabric",
		"vllm", "sglang", "lmdeploy", "tritonserver", "trtexec", "trtllm-serve", "text-generation-launcher", "text-embeddings-router", "llama-server", "llama-cli", "ollama",
		"jupyter", "jupyter-lab", "jupyter-notebook", "ipython", "ray", "axolotl", "llamafactory-cli", "tune", "swift", "xtuner", "lm_eval", "lm-eval", "whisper", "comfy",
		"gmx", "gmx_mpi", "lmp", "namd3", "namd2", "dorado", "all_reduce_perf"}, name)
}

// usesGPUs reports whether a program is known to compute, so that a wrong device is a mistake: Python with a program of
// the user, or a well-known tool.
func (p program) usesGPUs() bool {
	if p.name == "" || slices.ContainsFunc(p.args, func(w Word) bool { return w.Text == "--help" || w.Text == "--version" }) {
		return false
	}
	first := ""
	if len(p.args) > 0 {
		first = p.args[0].Text
	}
	switch {
	case isPython(p.name):
		return p.runsPython()
	case p.name == "accelerate":
		return first == "launch" || first == "test"
	case p.name == "ray":
		return first == "start"
	case p.name == "ollama":
		return first == "serve"
	case strings.HasSuffix(p.name, ".py"):
		return true
	}
	return isLauncher(p.name)
}

// runsPython leaves out frequent uses of Python that do not compute.
func (p program) runsPython() bool {
	for i, w := range p.args {
		switch {
		case w.Text == "-m":
			if i+1 == len(p.args) {
				return false
			}
			module, _, _ := strings.Cut(p.args[i+1].Text, ".")
			return !slices.Contains([]string{"pip", "venv", "virtualenv", "json", "http", "zipfile", "compileall", "build", "ensurepip", "black", "ruff", "mypy", "flake8", "isort", "pdb", "site", "sysconfig", "this", "timeit", "py_compile", "conda", "ipykernel", "twine", "pylint", "coverage", "pre_commit", "grpc_tools", "nltk", "spacy", "huggingface_hub", "wandb", "mkdocs", "sphinx"}, module)
		case w.Text == "-c":
			return i+1 < len(p.args) && mentions(p.args[i+1].Text, "torch", "tensorflow", "jax", "cupy", "onnxruntime", "numba", "cuda")
		case w.Text == "-V":
			return false
		case !strings.HasPrefix(w.Text, "-"):
			return path.Base(w.Text) != "setup.py"
		}
	}
	return false
}

func isOneOf(word string, list ...string) bool { return slices.Contains(list, word) }

func mentions(text string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}

// option returns the value of an option of a program: "--nproc-per-node=4" and "--nproc_per_node 4" are the same, as
// the launchers take them.
func option(args []Word, names ...string) (Word, bool) {
	for i, w := range args {
		name, value, given := strings.Cut(w.Text, "=")
		if !strings.HasPrefix(name, "-") || !slices.Contains(names, strings.ReplaceAll(strings.TrimLeft(name, "-"), "_", "-")) {
			continue
		}
		if !given {
			if i+1 < len(args) {
				return args[i+1], true
			}
			return Word{}, false
		}
		v := w
		v.Text = value
		if raw, ok := strings.CutPrefix(w.Raw, name+"="); ok && w.At.Line == w.At.EndLine {
			v.Raw = raw
			v.At.Column += len(name) + 1
		}
		return v, true
	}
	return Word{}, false
}

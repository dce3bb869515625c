package launchers

import (
	"path"
	"slices"
	"strings"
)

// IsPython reports whether a program is a Python interpreter.
func IsPython(name string) bool {
	plain := strings.TrimRight(name, "0123456789.")
	return plain == "python" || plain == "pypy"
}

// IsShell reports whether a program reads POSIX or bash scripts.
func IsShell(program string) bool {
	return hasWord("sh bash dash ash ksh mksh zsh", path.Base(program))
}

// IsLauncher reports whether a name is that of a program that uses GPUs, or starts what does.
func IsLauncher(name string) bool {
	return slices.Contains([]string{"torchrun", "torchx", "accelerate", "accelerate-launch", "deepspeed", "ds", "horovodrun", "colossalai", "composer", "lightning", "fabric",
		"vllm", "sglang", "lmdeploy", "tritonserver", "trtexec", "trtllm-serve", "text-generation-launcher", "text-embeddings-router", "llama-server", "llama-cli", "ollama",
		"jupyter", "jupyter-lab", "jupyter-notebook", "ipython", "ray", "axolotl", "llamafactory-cli", "lmf", "tune", "swift", "megatron", "trl", "xtuner", "lm_eval", "lm-eval", "whisper", "comfy", "yolo",
		"fairseq-train", "fairseq-hydra-train", "fairseq-generate", "gmx", "gmx_mpi", "lmp", "namd3", "namd2", "dorado", "all_reduce_perf"}, name) || IsPython(name)
}

// Computes reports whether a program is known to use GPUs, so that a wrong device is a mistake: Python with a program
// of the user, or a well-known tool.
func Computes(name string, args []string) bool {
	if name == "" || slices.ContainsFunc(args, func(w string) bool { return w == "--help" || w == "--version" }) {
		return false
	}

	first := ""
	if len(args) > 0 {
		first = args[0]
	}

	switch {
	case IsPython(name):
		return runsPython(args)
	case name == "accelerate":
		return first == "launch" || first == "test"
	case name == "ray":
		return first == "start"
	case name == "ollama":
		return first == "serve"
	case strings.HasSuffix(name, ".py"):
		return true
	}

	return IsLauncher(name)
}

// runsPython leaves out frequent uses of Python that do not compute.
func runsPython(args []string) bool {
	for i, w := range args {
		switch {
		case w == "-m":
			if i+1 == len(args) {
				return false
			}
			module, _, _ := strings.Cut(args[i+1], ".")
			return !slices.Contains([]string{"pip", "venv", "virtualenv", "json", "http", "zipfile", "compileall", "build", "ensurepip", "black", "ruff", "mypy", "flake8", "isort", "pdb", "site", "sysconfig", "this", "timeit", "py_compile", "conda", "ipykernel", "twine", "pylint", "coverage", "pre_commit", "grpc_tools", "nltk", "spacy", "huggingface_hub", "wandb", "mkdocs", "sphinx"}, module)
		case w == "-c":
			return i+1 < len(args) && slices.ContainsFunc([]string{"torch", "tensorflow", "jax", "cupy", "onnxruntime", "numba", "cuda"}, func(library string) bool { return strings.Contains(args[i+1], library) })
		case w == "-V":
			return false
		case !strings.HasPrefix(w, "-"):
			return path.Base(w) != "setup.py"
		}
	}
	return false
}

// moduleOf is the word of the module in python -m MODULE; 0 without. words begins with the interpreter.
func moduleOf(words []string) int {
	i := slices.Index(words, "-m")
	if i < 1 || i+1 >= len(words) || !areOptions(words[1:i]) {
		return 0
	}
	return i + 1
}

// scriptOf is the word of the script that Python runs; 0 without.
func scriptOf(words []string) int {
	i := slices.IndexFunc(words[1:], func(w string) bool { return strings.HasSuffix(w, ".py") })
	if i < 0 || !areOptions(words[1:i+1]) {
		return 0
	}
	return i + 1
}

// areOptions reports whether words are options of Python alone, of which -W and -X take the next word.
func areOptions(words []string) bool {
	for i, w := range words {
		if !strings.HasPrefix(w, "-") && (i == 0 || words[i-1] != "-W" && words[i-1] != "-X") {
			return false
		}
	}
	return true
}

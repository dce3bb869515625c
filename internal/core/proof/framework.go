package proof

import (
	"bytes"
	// The program that asks.
	_ "embed"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
)

// Usable says whether a framework can use a GPU.
type Usable string

// Values of Usable: a framework's own answer.
const (
	Yes     Usable = "yes"
	No      Usable = "no"
	Unknown Usable = "unknown"
)

// Framework is what a framework of the job reports when it is run in a new process with the job's environment.
type Framework struct {
	Name    string `json:"name"`    // "PyTorch"
	Version string `json:"version"` // "" unknown
	// "CUDA 12.4", "ROCm 6.0", "CPU"; "" unknown.
	Built string `json:"built"`
	GPU   Usable `json:"gpu"`
	// That it sees, if it lists them; never nil.
	Devices []FrameworkDevice `json:"devices"`
	// Why it sees none, or why it could not be run.
	Error string `json:"error"`
	// Process of the job that has it loaded.
	PID int `json:"pid"`
	// Variables of that process, as NAME=VALUE, which show it no GPU; "" where they show one.
	Hides string `json:"hides"`
}

// FrameworkDevice is one GPU as a framework names it.
type FrameworkDevice struct {
	Name string `json:"name"`
	// "" where the framework does not report it.
	UUID gpu.UUID `json:"uuid"`
}

// cpuBuild is the build of a framework without GPU support.
const cpuBuild = "CPU"

// The known frameworks, by the names that witness.py uses.
const (
	pytorch    = "pytorch"
	tensorflow = "tensorflow"
	jax        = "jax"
	onnx       = "onnxruntime"
	cupy       = "cupy"
	llama      = "llama.cpp"
)

func frameworkName(word string) string {
	switch word {
	case pytorch:
		return "PyTorch"
	case tensorflow:
		return "TensorFlow"
	case jax:
		return "JAX"
	case onnx:
		return "ONNX Runtime"
	case cupy:
		return "CuPy"
	}
	return word
}

// RecognizeFrameworks lists the frameworks of a process, from the path of its program and of the files mapped into it.
// The names are those of the shared libraries that each framework's own packages install.
func RecognizeFrameworks(exe string, libraries []string) []string {
	var found []string
	add := func(word string, is bool) {
		if is && !slices.Contains(found, word) {
			found = append(found, word)
		}
	}

	add(llama, isLlama(exe))

	for _, l := range libraries {
		base := path.Base(l)
		starts := func(names ...string) bool {
			return slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(base, n) })
		}

		add(pytorch, starts("libtorch.", "libtorch_", "libtorch-"))
		add(tensorflow, starts("_pywrap_tensorflow", "libtensorflow"))
		add(jax, starts("xla_extension") || strings.Contains(l, "/jaxlib/"))
		add(onnx, starts("libonnxruntime", "onnxruntime_pybind11_state"))
		add(cupy, strings.Contains(l, "/cupy/") || strings.Contains(l, "/cupy_backends/"))
		add(llama, starts("libllama.", "libggml-cuda", "libggml-hip"))
	}

	return found
}

// isLlama recognizes llama.cpp's own programs that read the option below. Any other program would start its work if it
// were run again (ggml-org/llama.cpp common/arg.cpp and tools/).
func isLlama(exe string) bool {
	return slices.Contains([]string{
		"llama-server", "llama-cli", "llama-completion", "llama-bench", "llama-perplexity", "llama-embedding", "llama-parallel",
		"llama-speculative", "llama-mtmd-cli", "llama-batched-bench", "llama-imatrix", "llama-tts",
	}, path.Base(exe))
}

// gpuLibraries lists the mapped files through which a program reaches a GPU: the vendors' drivers and runtime
// libraries.
func gpuLibraries(libraries []string) []string {
	var found []string
	for _, l := range libraries {
		name, _, _ := strings.Cut(path.Base(l), ".so")
		if slices.Contains([]string{"libcuda", "libcudart", "libcublas", "libcudnn", "libamdhip64", "libhsa-runtime64", "libze_loader", "libascendcl"}, name) &&
			!slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	return found
}

//go:embed witness.py
var witness string

// answerMarker begins the line of the answer: importing a framework may print other lines first.
const answerMarker = "gpuard-witness "

// QuestionArgs returns the arguments with which the job's own program reports what its frameworks see; ok is false for
// a program that has no such arguments.
func QuestionArgs(exe string, frameworks []string) (args []string, ok bool) {
	base := path.Base(exe)
	switch {
	case isPython(base):
		return append([]string{"-c", witness}, frameworks...), true
	case slices.Contains(frameworks, llama) && isLlama(exe):
		return []string{"--list-devices"}, true
	}
	return nil, false
}

// isPython recognizes interpreters by their names: "python3", "python3.13t", "pypy3.10". Other programs with such a
// prefix ("python3-config") would start their work.
func isPython(base string) bool {
	for _, name := range []string{"python", "pypy"} {
		if version, ok := strings.CutPrefix(base, name); ok {
			return strings.Trim(strings.TrimSuffix(version, "t"), "0123456789.") == ""
		}
	}
	return false
}

// ReadAnswers reads what the program printed. A framework that is missing there is returned with an error.
func ReadAnswers(frameworks []string, out []byte) []Framework {
	said := map[string]Framework{}
	for line := range bytes.Lines(out) {
		if _, answer, ok := bytes.Cut(line, []byte(answerMarker)); ok {
			// Malformed: treated as missing.
			_ = json.Unmarshal(answer, &said)
		}
	}

	if _, list, ok := strings.Cut(string(out), "Available devices:\n"); ok && slices.Contains(frameworks, llama) {
		said[llama] = llamaDevices(list)
	}

	var all []Framework
	for _, word := range frameworks {
		w, ok := said[word]
		if !ok {
			w.Error = "it did not answer"
		}

		if w.GPU != Yes && w.GPU != No {
			w.GPU = Unknown
		}

		w.Name, w.Version, w.Built, w.Error = frameworkName(word), prose.Clean(w.Version), prose.Clean(w.Built), prose.LastLine(w.Error)
		if w.Devices == nil {
			w.Devices = []FrameworkDevice{}
		}

		for i := range w.Devices {
			w.Devices[i] = FrameworkDevice{prose.Clean(w.Devices[i].Name), gpu.UUID(prose.Clean(string(w.Devices[i].UUID)))}
		}

		all = append(all, w)
	}

	return all
}

// llamaDevices reads the list of `llama-cli --list-devices`: two blanks, the device's name, a colon, its description
// (ggml-org/llama.cpp common/arg.cpp). It also has accelerators that are no GPUs, such as BLAS.
func llamaDevices(list string) Framework {
	w := Framework{GPU: No}
	for line := range strings.Lines(list) {
		name, description, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok || !strings.HasPrefix(line, "  ") {
			break
		}
		if strings.HasPrefix(name, "BLAS") || strings.HasPrefix(name, "CPU") || strings.HasPrefix(name, "RPC") {
			continue
		}

		w.GPU = Yes
		w.Devices = append(w.Devices, FrameworkDevice{Name: description})
	}
	return w
}

// releaseText is name and version: "PyTorch 2.5.1 (CUDA 12.4)".
func (w *Framework) releaseText() string {
	text := strings.TrimSpace(w.Name + " " + w.Version)
	if w.Built != "" {
		text += " (" + w.Built + ")"
	}
	return text
}

// inabilityText says why a framework cannot use a GPU.
func (w *Framework) inabilityText() string {
	if w.Built == cpuBuild {
		return strings.TrimSpace(w.Name+" "+w.Version) + " is built for the CPU alone"
	}
	if w.Hides != "" {
		return fmt.Sprintf("%s finds no GPU: %s hides them all in process %d", w.releaseText(), w.Hides, w.PID)
	}
	if w.Error != "" {
		return fmt.Sprintf("%s finds no GPU with its environment: %s", w.releaseText(), w.Error)
	}

	return w.releaseText() + " finds no GPU with its environment"
}

// leaveVariableRemedy is what to do about a variable that hides from a program what its lease has.
const leaveVariableRemedy = "find what sets it between gpuard and the program, such as a script or a file of settings, and leave it to gpuard"

func (w *Framework) inabilityRemedy() string {
	if w.Built == cpuBuild {
		return fmt.Sprintf("install a %s that is built for this machine's GPUs", w.Name)
	}
	if w.Hides != "" {
		return leaveVariableRemedy
	}
	return option.Expand("{gpuard explain} {probe} shows what the driver answers; the framework may need a newer driver")
}

// Sentence is the framework's report in words.
func (w *Framework) Sentence() string {
	switch {
	case w.GPU == No:
		return w.inabilityText()
	case w.GPU == Unknown && w.Error != "":
		return fmt.Sprintf("%s was not heard: %s", w.releaseText(), w.Error)
	case w.GPU == Unknown:
		return w.releaseText() + " does not say which devices it uses"
	case len(w.Devices) == 0:
		return w.releaseText() + " says that it can use a GPU"
	}
	var names []string
	for _, d := range w.Devices {
		name := d.Name
		if d.UUID != "" {
			name += " (" + string(d.UUID) + ")"
		}
		names = append(names, name)
	}

	return fmt.Sprintf("%s sees %s", w.releaseText(), prose.JoinWords(names, "and"))
}

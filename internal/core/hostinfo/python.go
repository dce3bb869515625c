package hostinfo

// Python is one Python environment, read from its files without running it.
type Python struct {
	Prefix      string // its folder
	Interpreter string // path of python
	Version     string // "3.11"
	// "venv", "conda", "pyenv", "system".
	Kind string
	// The caller's PATH, VIRTUAL_ENV or CONDA_PREFIX selects it.
	Active bool
	// Installed, by name as PyPI normalises it.
	Packages []Package
	Torch    *Torch
	// CUDA that ONNX Runtime was built for: "12.8"; "" unknown.
	ONNX string
	// Libraries of llama-cpp-python and those that they load: "libggml-cuda.so", "libcudart.so.12"; nil unknown.
	Llama []string
	// What could not be read.
	Problem string
	// --run: the result of importing; nil when not requested.
	Ran []Probe
}

// Package is one installed distribution.
type Package struct {
	// Normalised: lower case, - for _ and .
	Name    string
	Version string // "2.9.0+cu128"
	// Its site-packages folder; for conda's records, that of the environment.
	Folder string
	// "dist-info", "conda".
	From string
	// Conda's: "cuda126_generic_py312h19b3ef4_8"; "" otherwise.
	Build string
}

// Torch is how PyTorch was built, from torch/version.py.
type Torch struct {
	// "12.8"; "" for a build without CUDA.
	CUDA string
	HIP  string // ROCm; "" for none
}

// Probe is the result of importing one library and listing its devices.
type Probe struct {
	Library string // "torch"
	// How many it can use.
	Devices int
	Text    string // what it printed
	// Why it failed; "" when it did not.
	Problem string
}

// Accelerate is the file from which accelerate launch takes its settings.
type Accelerate struct {
	Path string
	// Value of gpu_ids; "" where it does not say.
	GPUIDs string
	Line   int // of that key
}

package hostinfo

// Python is one Python environment, read from its files without running it.
type Python struct {
	Prefix      string    // its folder
	Interpreter string    // path of python
	Version     string    // "3.11"
	Kind        string    // "venv", "conda", "pyenv", "system"
	Active      bool      // the caller's PATH, VIRTUAL_ENV or CONDA_PREFIX selects it
	Packages    []Package // installed, by name as PyPI normalises it
	Torch       *Torch
	ONNX        string   // CUDA that ONNX Runtime was built for: "12.8"; "" unknown
	Llama       []string // libraries of llama-cpp-python and those that they load: "libggml-cuda.so", "libcudart.so.12"; nil unknown
	Problem     string   // what could not be read
	Ran         []Probe  // --run: the result of importing; nil when not requested
}

// Package is one installed distribution.
type Package struct {
	Name    string // normalised: lower case, - for _ and .
	Version string // "2.9.0+cu128"
	Folder  string // its site-packages folder; for conda's records, that of the environment
	From    string // "dist-info", "conda"
	Build   string // conda's: "cuda126_generic_py312h19b3ef4_8"; "" otherwise
}

// Torch is how PyTorch was built, from torch/version.py.
type Torch struct {
	CUDA string // "12.8"; "" for a build without CUDA
	HIP  string // ROCm; "" for none
}

// Probe is the result of importing one library and listing its devices.
type Probe struct {
	Library string // "torch"
	Devices int    // how many it can use
	Text    string // what it printed
	Problem string // why it failed; "" when it did not
}

// Accelerate is the file from which accelerate launch takes its settings.
type Accelerate struct {
	Path   string
	GPUIDs string // value of gpu_ids; "" where it does not say
	Line   int    // of that key
}

package hostinfo

// Python is one Python environment, read from its files without running it.
type Python struct {
	Prefix      string    // its folder
	Interpreter string    // path of python
	Version     string    // "3.11"
	Kind        string    // "venv", "conda", "pyenv", "system"
	Active      bool      // it is the one that the caller's PATH, VIRTUAL_ENV or CONDA_PREFIX selects
	Packages    []Package // installed, by name as PyPI normalises it
	Torch       *Torch
	ONNX        string  // CUDA that ONNX Runtime was built for: "12.8"; "" when it does not say
	Problem     string  // what of it could not be read
	Ran         []Probe // --run: what importing showed; nil when not asked
}

// Package is one installed distribution.
type Package struct {
	Name    string // normalised: lower case, - for _ and .
	Version string // "2.9.0+cu128"
	Folder  string // site-packages folder it lies in; of conda's records, the environment's
	From    string // "dist-info", "conda"
	Build   string // conda's: "cuda126_generic_py312h19b3ef4_8"; "" otherwise
}

// Torch is how PyTorch was built, from torch/version.py.
type Torch struct {
	CUDA string // "12.8"; "" for a build without CUDA
	HIP  string // ROCm; "" for none
}

// Probe is what one library said when it was imported and asked for its devices.
type Probe struct {
	Library string // "torch"
	Devices int    // how many it can use
	Text    string // its own words
	Problem string // why it failed; "" when it did not
}

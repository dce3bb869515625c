package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/visible"
	"gpuard/test/executable"
)

// plant makes folders and files (the text after "=") below a new root.
func plant(t *testing.T, things ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, thing := range things {
		name, text, isFile := strings.Cut(thing, "=")
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if isFile {
			executable.Write(t, path, []byte(text))
		} else {
			err = os.MkdirAll(path, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestPythonOfATree(t *testing.T) {
	const own, system, user = "home/a/v/lib/python3.11/site-packages/", "usr/lib/python3.11/site-packages/", "home/a/.local/lib/python3.11/site-packages/"
	tree := []string{
		"home/a/v/bin/python3=x", own + "torch-2.9.0+cu128.dist-info", own + "torch/version.py=cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n",
		own + "onnxruntime/capi/build_and_package_info.py=package_name = 'onnxruntime-gpu'\ncuda_version = '12.4'\n",
		own + "llama_cpp/lib/libggml-cuda.so=", own + "llama_cpp/lib/libllama.so=",
		system + "onnxruntime_gpu-1.20.1.dist-info", system + "torch-1.0.dist-info", system + "torch/version.py=cuda = '10.0'", user + "jax-0.7.0.dist-info",
		"usr/bin/python3.11=x",
		"opt/e/conda-meta/pytorch-2.5.1-cuda126_py312_8.json={}", "opt/e/bin/python=x", "opt/e/lib/python3.12/site-packages/torch-2.5.1.dist-info",
	}
	names := func(p hostinfo.Python) (n []string) {
		for _, k := range p.Packages {
			n = append(n, k.Name+" "+k.Version+" "+k.From)
		}
		return n
	}
	for name, c := range map[string]struct {
		config string
		of     string
		want   []string
		cuda   string
	}{
		"a venv alone":               {"home = /usr/bin\nversion = 3.11.7\n", "/home/a/v", []string{"torch 2.9.0+cu128 dist-info"}, "12.8"},
		"with the system's packages": {"home = /usr/bin\ninclude-system-site-packages = true\n", "/home/a/v", []string{"torch 2.9.0+cu128 dist-info", "jax 0.7.0 dist-info", "onnxruntime-gpu 1.20.1 dist-info", "torch 1.0 dist-info"}, "12.8"},
		"the system":                 {"", "/usr/bin/python3.11", []string{"jax 0.7.0 dist-info", "onnxruntime-gpu 1.20.1 dist-info", "torch 1.0 dist-info"}, "10.0"},
		"conda":                      {"", "/opt/e", []string{"torch 2.5.1 dist-info", "pytorch 2.5.1 conda"}, ""},
	} {
		host := &machine.Host{Root: plant(t, append(tree, "home/a/v/pyvenv.cfg="+c.config)...), Env: visible.Env{"HOME=/home/a"}}
		answer, err := sitePythons(t.Context(), host, c.of, false)
		if err != nil || answer.Problem != "" || len(answer.Found) != 1 {
			t.Errorf("%s: %+v, %v", name, answer, err)
			continue
		}
		p := answer.Found[0]
		cuda := ""
		if p.Torch != nil {
			cuda = p.Torch.CUDA
		}
		if onnx := map[string]string{"/home/a/v": "12.4"}[c.of]; p.ONNX != onnx {
			t.Errorf("%s: ONNX Runtime of CUDA %q, want %q", name, p.ONNX, onnx)
		}
		if has := slices.Contains(p.Llama, "libggml-cuda.so"); has != (c.of == "/home/a/v") {
			t.Errorf("%s: libraries of llama-cpp-python %q", name, p.Llama)
		}
		if !slices.Equal(names(p), c.want) || cuda != c.cuda || !p.Active || p.Ran != nil || p.Problem != "" {
			t.Errorf("%s: %q, PyTorch of CUDA %q, %+v; want %q, %q", name, names(p), cuda, p, c.want, c.cuda)
		}
	}
}

func TestPythonThatIsNotThere(t *testing.T) {
	host := &machine.Host{Root: plant(t, "home/a/"), Env: visible.Env{"HOME=/home/a"}}
	_, err := sitePythons(t.Context(), host, "train", false)
	var u *exit.Usage
	if !errors.As(err, &u) || !strings.HasPrefix(u.Text, `cannot find the Python environment "train": `) {
		t.Errorf("%v", err)
	}
	if answer, err := sitePythons(t.Context(), host, "", false); err != nil || answer.Problem != "" || len(answer.Found) != 0 {
		t.Errorf("a machine without Python: %+v, %v", answer, err)
	}
}

// A broken active environment does not keep --run from asking the next one.
func TestRunAsksOneThatStarts(t *testing.T) {
	host := &machine.Host{Root: plant(t, "broken/", "v/pyvenv.cfg=", "v/bin/python3=#!/bin/sh\nexit 3\n", "v/lib/python3.11/site-packages/jax-0.7.0.dist-info"),
		Env: visible.Env{"HOME=/", "VIRTUAL_ENV=/broken", "PATH=/v/bin"}}
	answer, err := sitePythons(t.Context(), host, "", true)
	if err != nil || len(answer.Found) != 2 || answer.Found[0].Ran != nil || len(answer.Found[1].Ran) != 1 || answer.Found[1].Ran[0].Problem == "" {
		t.Errorf("%+v, %v", answer, err)
	}
}

// A .venv in the current folder may be another user's: an environment that is not active is not run.
func TestRunAsksOnlyWhatIsActive(t *testing.T) {
	host := &machine.Host{Root: plant(t, "usr/bin/python3.11=#!/bin/sh\nexit 3\n", "usr/bin/python3=#!/bin/sh\nexit 3\n", "usr/lib/python3.11/site-packages/jax-0.7.0.dist-info"), Env: visible.Env{"HOME=/"}}
	answer, err := sitePythons(t.Context(), host, "", true)
	if err != nil || len(answer.Found) != 1 || answer.Found[0].Ran != nil {
		t.Errorf("%+v, %v", answer, err)
	}
}

func TestRunAsksOnlyWhatIsInstalled(t *testing.T) {
	const packages = "v/lib/python3.11/site-packages/"
	host := &machine.Host{Root: plant(t, "v/pyvenv.cfg=", "v/bin/python3=#!/bin/sh\necho '{\"version\": \"2.9.0\", \"devices\": 1, \"names\": [\"'$4'\"]}'\n",
		packages+"torch-2.9.0.dist-info", packages+"onnxruntime_gpu-1.22.0.dist-info", packages+"numpy-2.0.dist-info"), Env: visible.Env{"HOME=/", "PATH=" + os.Getenv("PATH")}}
	answer, err := sitePythons(t.Context(), host, "/v", true)
	want := []hostinfo.Probe{{Library: "torch", Devices: 1, Text: "2.9.0 torch"}, {Library: "onnxruntime", Devices: 1, Text: "2.9.0 onnxruntime"}}
	if err != nil || len(answer.Found) != 1 || !slices.Equal(answer.Found[0].Ran, want) {
		t.Errorf("%+v, %v; want %+v", answer, err, want)
	}
}

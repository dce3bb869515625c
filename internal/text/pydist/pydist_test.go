package pydist

import (
	"strings"
	"testing"

	"gpuard/internal/core/hostinfo"
)

func TestONNX(t *testing.T) {
	for text, want := range map[string]string{
		"package_name = 'onnxruntime-gpu'\n__version__ = '1.22.0'\ncuda_version = '12.8'\r\n": "12.8",
		"cuda_version = \"13.0\"":                  "13.0",
		"package_name = 'onnxruntime'\n":           "",
		"cuda_version = None\n":                    "",
		"def f():\n  cuda_version = '9.0'\n":       "",
		"cuda_version == '12.8'\nrocm_version = 6": "",
		"": "",
	} {
		if got := ParseONNX([]byte(text)); got != want {
			t.Errorf("ONNX(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestPackage(t *testing.T) {
	for _, c := range []struct {
		entry, name, version string
		ok                   bool
	}{
		{"torch-2.9.0+cu128.dist-info", "torch", "2.9.0+cu128", true},
		{"nvidia_cudnn_cu12-9.10.2.21.dist-info", "nvidia-cudnn-cu12", "9.10.2.21", true},
		{"onnxruntime_gpu-1.20.1.dist-info", "onnxruntime-gpu", "1.20.1", true},
		{"jax_cuda12_plugin-0.7.2.dist-info", "jax-cuda12-plugin", "0.7.2", true},
		{"PyYAML-6.0.dist-info", "pyyaml", "6.0", true},
		{"ruamel.yaml-0.18.6.dist-info", "ruamel-yaml", "0.18.6", true},
		{"foo_bar-1!2.0rc1.post3.dist-info", "foo-bar", "1!2.0rc1.post3", true},
		{"zope-interface-7.0.dist-info", "zope-interface", "7.0", true}, // an old tool that kept the dash
		{"PyJWT-2.6.0-py3.11.egg-info", "pyjwt", "2.6.0", true},
		{"PyGObject-3.42.2.egg-info", "pygobject", "3.42.2", true},
		{"my_project.egg-info", "my-project", "", true},
		{"~orch-2.9.0.dist-info", "", "", false},
		{"torch", "", "", false},
		{"torch.dist-info", "", "", false},
		{"-1.0.dist-info", "", "", false},
		{"torch-.dist-info", "", "", false},
		{"torch-2.9 0.dist-info", "", "", false},
		{".dist-info", "", "", false},
		{".egg-info", "", "", false},
		{"", "", "", false},
	} {
		name, version, ok := ParseFolderName(c.entry)
		if ok != c.ok || ok && (name != c.name || version != c.version) {
			t.Errorf("Package(%q) = %q, %q, %v; want %q, %q, %v", c.entry, name, version, ok, c.name, c.version, c.ok)
		}
	}
}

func TestConda(t *testing.T) {
	for file, want := range map[string][3]string{
		"pytorch-2.5.1-py3.12_cuda12.4_cudnn9.1.0_0.json":  {"pytorch", "2.5.1", "py3.12_cuda12.4_cudnn9.1.0_0"},
		"cuda-cudart-12.4.127-h99ab3db_0.json":             {"cuda-cudart", "12.4.127", "h99ab3db_0"},
		"_libgcc_mutex-0.1-main.json":                      {"libgcc-mutex", "0.1", "main"},
		"pytorch-mutex-1.0-cuda.json":                      {"pytorch-mutex", "1.0", "cuda"},
		"libtorch-2.5.1-cuda126_generic_hc4c8ff9_208.json": {"libtorch", "2.5.1", "cuda126_generic_hc4c8ff9_208"},
		"tzdata-2024a-h04d1e81_0.json":                     {"tzdata", "2024a", "h04d1e81_0"},
		"history":                                          {},
		"state":                                            {},
		"a-b.json":                                         {},
		"--.json":                                          {},
		".json":                                            {},
		"cudnn-9.1.1.17-cuda12_1.json":                     {"cudnn", "9.1.1.17", "cuda12_1"},
		"onnxruntime-1.20.1-gpu_cuda124py312h05d824c_0.json":    {"onnxruntime", "1.20.1", "gpu_cuda124py312h05d824c_0"},
		"onnxruntime-1.20.1-gpu_cuda124py312h05d824c_0.json.c~": {},
	} {
		name, version, build, ok := ParseCondaRecord(file)
		if got := [3]string{name, version, build}; got != want || ok != (want[0] != "") {
			t.Errorf("Conda(%q) = %q, %v; want %q", file, got, ok, want)
		}
	}
}

func TestVenv(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want Config
	}{
		"venv": {"home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.7\nexecutable = /usr/bin/python3.11\n",
			Config{Home: "/usr/bin", Version: "3.11.7"}},
		"with the system's packages": {"home = /usr/bin\ninclude-system-site-packages = true\nversion = 3.11.7", Config{"/usr/bin", "3.11.7", true}},
		"uv":                         {"home = /home/ann/.local/share/uv/python/cpython-3.12.4/bin\nimplementation = CPython\nuv = 0.4.1\nversion_info = 3.12.4\ninclude-system-site-packages = False\n", Config{Home: "/home/ann/.local/share/uv/python/cpython-3.12.4/bin", Version: "3.12.4"}},
		"virtualenv":                 {"home = /usr\nversion_info = 3.8.10.final.0\nHOME-x = 1\nInclude-System-Site-Packages = TRUE\n", Config{"/usr", "3.8.10.final.0", true}},
		"no spaces":                  {"home=/opt/py=3/bin\r\n", Config{Home: "/opt/py=3/bin"}},
		"empty":                      {"", Config{}},
		"no key":                     {"\x00\xff\nhome\n", Config{}},
	} {
		if got := ParseVenv([]byte(c.text)); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestTorch(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want hostinfo.Torch
		ok   bool
	}{
		"CUDA": {"from typing import Optional\n\n__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'rocm', 'xpu']\n__version__ = '2.9.0+cu128'\ndebug = False\ncuda: Optional[str] = '12.8'\ngit_version = '0fabc3ba'\nhip: Optional[str] = None\nxpu: Optional[str] = None\n",
			hostinfo.Torch{CUDA: "12.8"}, true},
		"an old one":     {"__version__ = '1.7.1'\ndebug = False\ncuda = '10.2'\ngit_version = '57bffc3a'\nhip = None\n", hostinfo.Torch{CUDA: "10.2"}, true},
		"CPU":            {"cuda: Optional[str] = None\nhip: Optional[str] = None\n", hostinfo.Torch{}, true},
		"ROCm":           {"cuda: Optional[str] = None\nhip: Optional[str] = '6.4.43482-0f2d60242'\n", hostinfo.Torch{HIP: "6.4.43482-0f2d60242"}, true},
		"double quotes":  {"cuda = \"11.8\"  # built here\r\n", hostinfo.Torch{CUDA: "11.8"}, true},
		"another file":   {"import os\nversion = '1'\n", hostinfo.Torch{}, false},
		"not at the top": {"if True:\n    cuda = '12.8'\n", hostinfo.Torch{}, false},
		"computed":       {"cuda = version()\n", hostinfo.Torch{}, false},
		"cut off":        {"cuda = '12.", hostinfo.Torch{}, false},
		"empty":          {"", hostinfo.Torch{}, false},
	} {
		if got, ok := ParseTorch([]byte(c.text)); got != c.want || ok != c.ok {
			t.Errorf("%s: %+v, %v; want %+v, %v", name, got, ok, c.want, c.ok)
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, s := range []string{"torch-2.9.0+cu128.dist-info", "PyJWT-2.6.0-py3.11.egg-info", "a-1-0.json", "~x-1.dist-info", ".-.dist-info", "-py.egg-info"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, entry string) {
		if name, version, ok := ParseFolderName(entry); ok {
			if name == "" || name != Normalise(name) || strings.Contains(version, "-") {
				t.Errorf("Package(%q) = %q, %q", entry, name, version)
			}
		}
		if name, version, build, ok := ParseCondaRecord(entry); ok && (version == "" || build == "" || name != Normalise(name)) {
			t.Errorf("Conda(%q) = %q, %q, %q", entry, name, version, build)
		}
	})
}

func FuzzFiles(f *testing.F) {
	for _, s := range []string{"home = /usr/bin\nversion = 3", "cuda: Optional[str] = '12.8'", "cuda = None\nhip = '6'", "=\n=="} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if c := ParseVenv(text); strings.ContainsAny(c.Home+c.Version, "\n") {
			t.Errorf("%q: %+v", text, c)
		}
		if got, ok := ParseTorch(text); !ok && got.CUDA != "" || strings.ContainsAny(got.CUDA+got.HIP, "\n'\"") && !strings.ContainsAny(string(text), "'\"") {
			t.Errorf("%q: %+v, %v", text, got, ok)
		}
	})
}

package check

import (
	"strings"
	"testing"

	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/visible"
)

func TestLibraries(t *testing.T) { see(t, libraryChecks(), librarySightings()) }

// toolkits is a box of one with toolkits and an environment.
func toolkits(env visible.Env, all ...hostinfo.Toolkit) hostinfo.Site {
	return change(box(1), func(s *hostinfo.Site) { s.Env, s.Toolkits = env, hostinfo.AnswerOf(all) })
}

// loaderFinds is a box of one with libraries, each "name path version".
func loaderFinds(all ...string) hostinfo.Site {
	return change(box(1), func(s *hostinfo.Site) {
		for _, l := range all {
			f := strings.Fields(l + " . .")
			s.Libraries.Found = append(s.Libraries.Found, hostinfo.Library{Name: f[0], Path: f[1], Version: strings.Trim(f[2], ".")})
		}
	})
}

func librarySightings() []sighting {
	at := func(version string, onPath bool, homes ...string) hostinfo.Toolkit {
		return hostinfo.Toolkit{Folder: "/usr/local/cuda-" + version, Version: version, OnPath: onPath, NVCC: true, Homes: homes}
	}
	module := func(s hostinfo.Site, version string) hostinfo.Site {
		s.Driver.Found.Module = version
		return s
	}
	home := visible.Env{"CUDA_HOME=/usr/local/cuda"}
	return []sighting{
		{"driver-age", "418", cards("418.226.00", "7.5"), Warning},
		{"driver-age", "440", cards("440.33.01", "7.5"), Warning},
		{"driver-age", "450 before CUDA 11 works on it", cards("450.80.01", "7.5"), Warning},
		{"driver-age", "470", cards("470.256.02", "8.0"), Warning},
		{"driver-age", "470 with a card that goes no further", cards("470.256.02", "3.5"), Warning},
		{"driver-age", "525", cards("525.60.13", "8.0"), OK},
		{"driver-age", "580", cards("580.159.04", "9.0"), OK},
		{"driver-age", "no GPU", none(), OK},
		{"cuda-driver", "too new a major version", toolkits(nil, at("13.0", true)), Warning},
		{"cuda-driver", "too new a library", loaderFinds("libcudart.so.13 /usr/lib/libcudart.so.13 13.0.48"), Warning},
		{"cuda-driver", "newer minor version", toolkits(nil, at("12.9", true)), OK},
		{"cuda-driver", "exactly the floor", module(toolkits(nil, at("12.9", true)), "525.60.13"), OK},
		{"cuda-driver", "below the floor", module(toolkits(nil, at("12.0", true)), "515.43.04"), Warning},
		{"cuda-driver", "of a version that is not known", toolkits(nil, hostinfo.Toolkit{Folder: "/usr", NVCC: true, OnPath: true}), OK},
		{"cuda-driver", "by the compatibility package", change(toolkits(nil, at("13.0", true)), func(s *hostinfo.Site) {
			s.Driver.Found.CUDAPath, s.Driver.Found.CUDALibrary = "/usr/local/cuda-13.0/compat/libcuda.so.1", "580.65.06"
		}), OK},
		{"cuda-driver", "no toolkit", box(1), OK},
		{"cuda-driver", "no GPU", change(none(), func(s *hostinfo.Site) { s.Toolkits = hostinfo.AnswerOf([]hostinfo.Toolkit{at("13.0", true)}) }), OK},
		{"cuda-driver", "no driver", change(bound(""), func(s *hostinfo.Site) { s.Toolkits = hostinfo.AnswerOf([]hostinfo.Toolkit{at("13.0", true)}) }), OK},
		{"cuda-driver", "cannot look", change(box(1), func(s *hostinfo.Site) { s.Toolkits = hostinfo.NoAnswer[[]hostinfo.Toolkit]("no") }), Unknown},
		{"nvcc", "home and path differ", toolkits(home, at("12.4", true), at("11.8", false, "/usr/local/cuda")), Warning},
		{"nvcc", "home does not exist", toolkits(home, at("12.4", true)), Warning},
		{"nvcc", "home does not exist, and no GPU either", change(none(), func(s *hostinfo.Site) { s.Env = home }), Info},
		{"nvcc", "home without a compiler", toolkits(home, hostinfo.Toolkit{Folder: "/usr/local/cuda-12.4", Version: "12.4", Homes: []string{"/usr/local/cuda"}}), Info},
		{"nvcc", "not on PATH", toolkits(nil, at("12.4", false)), Info},
		{"nvcc", "home goes before path", toolkits(visible.Env{"CUDA_PATH=/opt/gone", "CUDA_HOME=/usr/local/cuda"}, at("12.4", true, "/usr/local/cuda")), OK},
		{"nvcc", "empty home", toolkits(visible.Env{"CUDA_HOME="}, at("12.4", true)), OK},
		{"nvcc", "same version twice", toolkits(home, at("12.4", true), hostinfo.Toolkit{Folder: "/opt/cuda", Version: "12.4", NVCC: true, Homes: []string{"/usr/local/cuda"}}), OK},
		{"nvcc", "on PATH", toolkits(nil, at("12.4", true), at("11.8", false)), OK},
		{"nvcc", "none", box(1), OK},
		{"cuda-libraries", "parts of two versions", loaderFinds("libcudnn.so.9 /opt/a/libcudnn.so.9 9.1.0", "libcudnn_ops.so.9 /usr/lib/libcudnn_ops.so.9 9.5.1"), Warning},
		{"cuda-libraries", "the second copy is never loaded", loaderFinds("libcudnn.so.9 /opt/a/libcudnn.so.9 9.1.0", "libcudnn_ops.so.9 /opt/a/libcudnn_ops.so.9 9.1.0",
			"libcudnn.so.9 /usr/lib/libcudnn.so.9 9.5.1", "libcudnn_ops.so.9 /usr/lib/libcudnn_ops.so.9 9.5.1"), OK},
		{"cuda-libraries", "two major versions together", loaderFinds("libcudnn.so.8 /a/libcudnn.so.8 8.9.7", "libcudnn_ops.so.9 /b/libcudnn_ops.so.9 9.1.0"), OK},
		{"cuda-libraries", "none", box(1), OK},
		{"cuda-libraries", "cannot look", change(box(1), func(s *hostinfo.Site) { s.Libraries = hostinfo.NoAnswer[[]hostinfo.Library]("damaged") }), Unknown},
		{"cuda-libraries", "usual ones", loaderFinds("libcudart.so.12 /usr/local/cuda/lib64/libcudart.so.12 12.4.127", "libcublas.so.12 /usr/local/cuda/lib64/libcublas.so.12", "libnccl.so.2 /usr/lib/libnccl.so.2"), OK},
		{"cuda-libraries", "libcudart alone", loaderFinds("libcudart.so.12 /usr/local/cuda/lib64/libcudart.so.12 12.4.127"), Info},
		{"cuda-libraries", "libcublas of another version", loaderFinds("libcudart.so.12 /a/libcudart.so.12", "libcublas.so.11 /a/libcublas.so.11"), Info},
		{"cuda-libraries", "the names of CUDA 11", loaderFinds("libcudart.so.11.0 /a/libcudart.so.11.0", "libcublas.so.11 /a/libcublas.so.11"), OK},
	}
}

// One mistake gives one finding: a toolkit and its own library are not reported twice.
func TestToolkitIsReportedOnce(t *testing.T) {
	s := loaderFinds("libcudart.so.13 /usr/local/cuda-13.0/lib64/libcudart.so.13 13.0.48")
	s.Toolkits = hostinfo.AnswerOf([]hostinfo.Toolkit{{Folder: "/usr/local/cuda-13.0", Version: "13.0", NVCC: true, OnPath: true}})
	found := checkCUDA(s)
	if len(found) != 1 || !strings.Contains(found[0].Seen, "driver 550.54.15 is too old for CUDA 13.0") || !strings.Contains(found[0].Do, "580 or newer, or build and run with CUDA 12.4") {
		t.Errorf("%+v", found)
	}
}

// TestDriverAge: each old driver has a way out that works with it.
func TestDriverAge(t *testing.T) {
	for driver, want := range map[string]string{
		"418.226.00": "install NVIDIA driver 580 or newer",
		"440.33.01":  "install NVIDIA driver 580 or newer",
		"450.80.01":  "install NVIDIA driver 580 or newer",
		"450.80.02":  "install NVIDIA driver 580 or newer, or use builds for CUDA 11.8, such as: pip install 'torch==2.7.*' -i https://download.pytorch.org/whl/cu118",
		"470.256.02": "install NVIDIA driver 580 or newer, or use builds for CUDA 11.8, such as: pip install 'torch==2.7.*' -i https://download.pytorch.org/whl/cu118",
	} {
		if got := checkDriverAge(cards(driver, "8.0"))[0]; got.Do != want || !strings.Contains(got.Seen, "driver "+driver+" runs programs for CUDA ") {
			t.Errorf("%s: %q, %q", driver, got.Seen, got.Do)
		}
	}
	if got := checkDriverAge(cards("470.256.02", "3.7"))[0]; got.Do != "use builds for CUDA 11.8, such as: pip install 'torch==2.7.*' -i https://download.pytorch.org/whl/cu118" {
		t.Errorf("a K80, of which no newer driver knows: %q", got.Do)
	}
}

package check

import (
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/visible"
)

func TestPython(t *testing.T) { see(t, pythonChecks(), pythonSightings()) }

// cards is a machine with a driver and NVIDIA devices of these compute capabilities.
func cards(driver string, capabilities ...string) hostinfo.Site {
	m := gpu.Machine{Driver: driver}
	for i, text := range capabilities {
		c, err := gpu.ParseCapability(text)
		if err != nil {
			panic(err)
		}
		m.Devices = append(m.Devices, gpu.Device{Index: i, UUID: gpu.UUID("GPU-0000000" + string(rune('0'+i))), Name: "NVIDIA Card " + text, Vendor: gpu.NVIDIA, Compute: &c})
	}
	return hostinfo.Site{Machine: hostinfo.AnswerOf(m)}
}

// model gives the first device another name.
func model(s hostinfo.Site, name string) hostinfo.Site {
	s.Machine.Found.Devices[0].Name = name
	return s
}

// amdOnly is a machine with one AMD device.
func amdOnly() hostinfo.Site {
	return hostinfo.Site{Machine: hostinfo.AnswerOf(gpu.Machine{Devices: []gpu.Device{{UUID: "GPU-1234567812345678", Name: "AMD Instinct MI210", Vendor: gpu.AMD, MemoryTotal: new(64 * gpu.GiB)}}})}
}

// processorGraphics is a machine whose only device is part of its processor.
func processorGraphics() hostinfo.Site {
	s := amdOnly()
	s.Machine.Found.Devices[0].MemoryTotal = new(512 * gpu.MiB)
	return s
}

// venv is an environment that is active, with packages "name==version"; "conda:name==version=build" are conda's.
func venv(packages ...string) hostinfo.Python {
	p := hostinfo.Python{Prefix: "/home/ann/venv", Interpreter: "/home/ann/venv/bin/python3", Version: "3.11", Kind: "venv", Active: true}
	for _, text := range append(packages, "pip==24.0") {
		rest, conda := strings.CutPrefix(text, "conda:")
		name, version, _ := strings.Cut(rest, "==")
		k := hostinfo.Package{Name: name, Version: version, Folder: "/home/ann/venv/lib/python3.11/site-packages", From: "dist-info"}
		if conda {
			k.From, k.Folder = "conda", "/home/ann/venv"
			k.Version, k.Build, _ = strings.Cut(k.Version, "=")
		}
		p.Packages = append(p.Packages, k)
	}
	return p
}

func pythons(s hostinfo.Site, all ...hostinfo.Python) hostinfo.Site {
	s.Pythons = hostinfo.AnswerOf(all)
	return s
}

// built sets for what PyTorch is built.
func built(p hostinfo.Python, cuda, hip string) hostinfo.Python {
	p.Torch = &hostinfo.Torch{CUDA: cuda, HIP: hip}
	return p
}

// onnxFor is an environment with an ONNX Runtime that was built for this CUDA.
func onnxFor(cuda string, packages ...string) hostinfo.Python {
	p := venv(packages...)
	p.ONNX = cuda
	return p
}

// llama is an environment with these libraries of llama-cpp-python.
func llama(libraries []string, packages ...string) hostinfo.Python {
	p := venv(packages...)
	p.Llama = libraries
	return p
}

// accelerated is a site with these GPUs in the settings of accelerate launch.
func accelerated(s hostinfo.Site, ids string) hostinfo.Site {
	s.Accelerate = hostinfo.AnswerOf(hostinfo.Accelerate{Path: "/home/ann/.cache/huggingface/accelerate/default_config.yaml", GPUIDs: ids, Line: 7})
	return s
}

func inactive(p hostinfo.Python) hostinfo.Python {
	p.Active = false
	return p
}

func broken(p hostinfo.Python, problem string) hostinfo.Python {
	p.Problem = problem
	return p
}

func ran(p hostinfo.Python, probes ...hostinfo.Probe) hostinfo.Python {
	p.Ran = probes
	return p
}

func libraries(s hostinfo.Site, all ...hostinfo.Library) hostinfo.Site {
	s.Libraries = hostinfo.AnswerOf(all)
	return s
}

func blindLibraries(s hostinfo.Site) hostinfo.Site {
	s.Libraries = hostinfo.NoAnswer[[]hostinfo.Library]("no permission")
	return s
}

func masked(s hostinfo.Site, env ...string) hostinfo.Site {
	s.Env = append(visible.Env{}, env...)
	return s
}

// alongside has NVIDIA on the bus, and no driver that answers.
func alongside() hostinfo.Site {
	return hostinfo.Site{Machine: hostinfo.NoAnswer[gpu.Machine]("no driver"), Cards: hostinfo.AnswerOf([]hostinfo.Card{{PCI: "0000:01:00.0", Vendor: 0x10de}})}
}

func pythonSightings() []sighting {
	none := hostinfo.Site{Machine: hostinfo.AnswerOf(gpu.Machine{})}
	unread := cards("580.65.06", "8.0")
	unread.Pythons = hostinfo.NoAnswer[[]hostinfo.Python]("too slow")
	var all []sighting
	for _, c := range pythonChecks() {
		if c.Code != "tensor-cores" {
			all = append(all, sighting{c.Code, "environments were not read", unread, Unknown})
		}
		all = append(all, sighting{c.Code, "nothing here", none, OK})
	}
	ada := cards("580.65.06", "8.9")
	all = append(all, []sighting{
		{"python-environments", "interpreter is gone", pythons(ada, hostinfo.Python{Prefix: "/v", Kind: "venv", Active: true, Problem: "its /v/bin/python3 leads to /usr/bin/python3.9, which is not there"}), Warning},
		{"python-environments", "interpreter of another is gone", pythons(ada, hostinfo.Python{Prefix: "/v", Kind: "venv", Problem: "its /v/bin/python3 leads to /usr/bin/python3.9, which is not there"}), Info},
		{"python-environments", "a folder cannot be read", pythons(ada, broken(venv(), "cannot list /x: permission denied")), Unknown},
		{"python-environments", "two", pythons(ada, venv("torch==2.9.0"), inactive(venv())), OK},

		{"torch-build", "CPU build", pythons(ada, built(venv("torch==2.9.0+cpu"), "", "")), Warning},
		{"torch-build", "CPU build, by its version alone", pythons(ada, venv("torch==2.9.0+cpu")), Warning},
		{"torch-build", "CPU build, driver gone", pythons(alongside(), venv("torch==2.9.0+cpu")), Warning},
		{"torch-build", "CPU build of conda", pythons(ada, built(venv("torch==2.5.1", "conda:pytorch==2.5.1"), "", "")), Warning},
		{"torch-build", "CPU build elsewhere", pythons(ada, inactive(built(venv("torch==2.9.0+cpu"), "", ""))), Info},
		{"torch-build", "ROCm on NVIDIA", pythons(ada, built(venv("torch==2.9.0+rocm6.4"), "", "6.4")), Warning},
		{"torch-build", "CUDA on AMD", pythons(amdOnly(), built(venv("torch==2.9.0"), "12.8", "")), Warning},
		{"torch-build", "CUDA with a processor's graphics", pythons(processorGraphics(), built(venv("torch==2.9.0"), "12.8", "")), Info},
		{"torch-build", "Intel's build on NVIDIA", pythons(ada, built(venv("torch==2.9.0+xpu"), "", "")), Warning},
		{"torch-build", "ROCm on NVIDIA with a processor's graphics", func() hostinfo.Site {
			s := pythons(cards("580.65.06", "8.9"), built(venv("torch==2.9.0+rocm6.4"), "", "6.4"))
			s.Machine.Found.Devices = append(s.Machine.Found.Devices, processorGraphics().Machine.Found.Devices...)
			return s
		}(), Warning},
		{"torch-build", "ROCm on NVIDIA and AMD", func() hostinfo.Site {
			s := pythons(cards("580.65.06", "8.9"), built(venv("torch==2.9.0+rocm6.4"), "", "6.4"))
			s.Machine.Found.Devices = append(s.Machine.Found.Devices, amdOnly().Machine.Found.Devices...)
			return s
		}(), OK},
		{"torch-build", "half a version", pythons(ada, venv("torch==2.9.0+cu")), Unknown},
		{"torch-build", "a version of one digit", pythons(ada, venv("torch==2.9.0+cu1")), Unknown},
		{"torch-build", "ROCm on AMD", pythons(amdOnly(), built(venv("torch==2.9.0+rocm6.4"), "", "6.4")), OK},
		{"torch-build", "CUDA on NVIDIA", pythons(ada, built(venv("torch==2.9.0+cu128"), "12.8", "")), OK},
		{"torch-build", "CPU build on a machine without a GPU", pythons(none, built(venv("torch==2.9.0+cpu"), "", "")), OK},
		{"torch-build", "it does not say", pythons(ada, venv("torch==2.9.0")), Unknown},

		{"torch-driver", "CUDA 13 on driver 570", pythons(cards("570.124.06", "8.9"), built(venv("torch==2.9.0+cu130"), "13.0", "")), Error},
		{"torch-driver", "CUDA 12 on driver 470", pythons(cards("470.256.02", "8.0"), built(venv("torch==2.5.1"), "12.4", "")), Error},
		{"torch-driver", "by the version's name", pythons(cards("570.124.06", "8.9"), venv("torch==2.9.0+cu130")), Error},
		{"torch-driver", "12.8 on driver 535: the floor counts", pythons(cards("535.183.01", "8.9"), built(venv("torch==2.9.0+cu128"), "12.8", "")), OK},
		{"torch-driver", "the floor itself", pythons(cards("450.80.02", "8.0"), built(venv("torch==2.5.1+cu118"), "11.8", "")), OK},
		{"torch-driver", "forward compatibility", func() hostinfo.Site {
			s := pythons(cards("535.183.01", "8.0"), built(venv("torch==2.9.0+cu130"), "13.0", ""))
			s.Driver = hostinfo.AnswerOf(hostinfo.Driver{Module: "535.183.01", CUDALibrary: "580.65.06", CUDAPath: "/usr/local/cuda-13.0/compat/libcuda.so.1"})
			return s
		}(), OK},
		{"torch-driver", "CPU build", pythons(cards("470.256.02", "8.0"), built(venv("torch==2.9.0+cpu"), "", "")), OK},
		{"torch-driver", "no driver", pythons(alongside(), built(venv("torch==2.9.0"), "12.8", "")), Unknown},
		{"torch-driver", "no NVIDIA device", pythons(amdOnly(), built(venv("torch==2.9.0"), "12.8", "")), OK},

		{"torch-cards", "Pascal with CUDA 13", pythons(cards("580.65.06", "6.1"), built(venv("torch==2.9.0+cu130"), "13.0", "")), Error},
		{"torch-cards", "Pascal with CUDA 12.8", pythons(cards("580.65.06", "6.1"), built(venv("torch==2.9.0"), "12.8", "")), Error},
		{"torch-cards", "Volta with CUDA 13", pythons(cards("580.65.06", "7.0"), built(venv("torch==2.9.0+cu130"), "13.0", "")), Error},
		{"torch-cards", "Blackwell with CUDA 12.6", pythons(cards("580.65.06", "12.0"), built(venv("torch==2.9.0+cu126"), "12.6", "")), Error},
		{"torch-cards", "an old display card and a new one", pythons(cards("580.65.06", "8.9", "6.1"), built(venv("torch==2.9.0+cu130"), "13.0", "")), Warning},
		{"torch-cards", "the old card is hidden", masked(pythons(cards("580.65.06", "8.9", "6.1"), built(venv("torch==2.9.0+cu130"), "13.0", "")), "CUDA_VISIBLE_DEVICES=0", "CUDA_DEVICE_ORDER=PCI_BUS_ID"), OK},
		{"torch-cards", "only the old card is shown", masked(pythons(cards("580.65.06", "8.9", "6.1"), built(venv("torch==2.9.0+cu130"), "13.0", "")), "CUDA_VISIBLE_DEVICES=1", "CUDA_DEVICE_ORDER=PCI_BUS_ID"), Error},
		{"torch-cards", "a mask hides every card", masked(pythons(cards("580.65.06", "6.1"), built(venv("torch==2.9.0+cu130"), "13.0", "")), "CUDA_VISIBLE_DEVICES=-1"), Error},
		{"torch-cards", "Pascal with CUDA 12.6", pythons(cards("580.65.06", "6.1"), built(venv("torch==2.9.0+cu126"), "12.6", "")), OK},
		{"torch-cards", "Ada runs Ampere's code", pythons(ada, built(venv("torch==2.9.0+cu130"), "13.0", "")), OK},
		{"torch-cards", "conda builds for what it likes", pythons(cards("580.65.06", "12.0"), built(venv("torch==2.9.0", "conda:pytorch==2.9.0"), "12.6", "")), OK},
		{"torch-cards", "conda's of CUDA 12 on Pascal", pythons(cards("580.65.06", "6.1"), built(venv("torch==2.9.0", "conda:pytorch==2.9.0"), "12.6", "")), OK},
		{"torch-cards", "but CUDA 13 has no Pascal", pythons(cards("580.65.06", "6.1"), built(venv("torch==2.9.0", "conda:pytorch==2.9.0"), "13.0", "")), Error},
		{"torch-cards", "a build of one's own", pythons(cards("580.65.06", "12.0"), built(venv("torch==2.9.0a0+gitabc"), "12.6", "")), OK},

		{"torch-companions", "torchvision for CUDA 11", pythons(ada, built(venv("torch==2.5.1+cu124", "torchvision==0.20.1+cu118"), "12.4", "")), Warning},
		{"torch-companions", "torchaudio for the CPU", pythons(ada, built(venv("torch==2.5.1+cu124", "torchaudio==2.5.1+cpu"), "12.4", "")), Warning},
		{"torch-companions", "of the same major version", pythons(ada, built(venv("torch==2.5.1+cu124", "torchvision==0.20.1+cu121", "torchaudio==2.5.1"), "12.4", "")), OK},

		{"torch-mkl", "too new", pythons(ada, built(venv("torch==2.0.1", "conda:pytorch==2.0.1=py3.10_cuda11.8_cudnn8.7.0_0", "conda:mkl==2024.2.2=ha957f24_16"), "11.8", "")), Error},
		{"torch-mkl", "too new, on a machine without a GPU", pythons(none, built(venv("torch==2.4.1", "conda:pytorch==2.4.1=py3.12_cpu_0", "conda:mkl==2024.1.0=ha957f24_693"), "", "")), Error},
		{"torch-mkl", "too new, in an environment that is not in use", pythons(ada, inactive(venv("conda:pytorch==2.0.1=py3.10_cuda11.8_cudnn8.7.0_0", "conda:mkl==2025.0.0=hacee8c2_941"))), Info},
		{"torch-mkl", "old enough", pythons(ada, venv("conda:pytorch==2.0.1=py3.10_cuda11.8_cudnn8.7.0_0", "conda:mkl==2024.0.0=ha957f24_49657")), OK},
		{"torch-mkl", "a PyTorch that was made for it", pythons(ada, venv("conda:pytorch==2.5.1=py3.12_cuda12.4_cudnn9.1.0_0", "conda:mkl==2025.0.0=hacee8c2_941")), OK},
		{"torch-mkl", "conda-forge's, which asks for its own", pythons(ada, venv("conda:pytorch==2.4.1=cuda120_py311hf6aebf2_304", "conda:mkl==2024.2.2=ha957f24_16")), OK},
		{"torch-mkl", "a wheel beside it", pythons(ada, built(venv("torch==2.0.1", "conda:mkl==2024.2.2=ha957f24_16"), "11.7", "")), OK},

		{"onnxruntime-both", "CPU and GPU", pythons(ada, venv("onnxruntime==1.22.0", "onnxruntime-gpu==1.20.1")), Warning},
		{"onnxruntime-both", "CPU and GPU, elsewhere", pythons(ada, inactive(venv("onnxruntime==1.22.0", "onnxruntime-gpu==1.20.1"))), Info},
		{"onnxruntime-both", "one", pythons(ada, venv("onnxruntime-gpu==1.20.1", "onnx==1.16.0", "onnxruntime-extensions==0.13.0")), OK},
		{"onnxruntime-both", "in different folders", pythons(ada, func() hostinfo.Python {
			p := venv("onnxruntime==1.22.0", "onnxruntime-gpu==1.20.1")
			p.Packages[0].Folder = "/home/ann/.local/lib/python3.11/site-packages"
			return p
		}()), OK},

		{"onnxruntime-libraries", "a build for CUDA 12 from another index", libraries(pythons(ada, onnxFor("12.2", "onnxruntime-gpu==1.18.0")), hostinfo.Library{Name: "libcudart.so.12"}, hostinfo.Library{Name: "libcublas.so.12"}, hostinfo.Library{Name: "libcudnn.so.8"}), OK},
		{"onnxruntime-libraries", "a later build for CUDA 12 from another index", libraries(pythons(ada, onnxFor("12.2", "onnxruntime-gpu==1.18.1")), hostinfo.Library{Name: "libcudart.so.12"}, hostinfo.Library{Name: "libcublas.so.12"}, hostinfo.Library{Name: "libcudnn.so.9"}), OK},
		{"onnxruntime-libraries", "a build for CUDA 11 from another index", libraries(pythons(ada, onnxFor("11.8", "onnxruntime-gpu==1.20.1")), hostinfo.Library{Name: "libcudart.so.11.0"}, hostinfo.Library{Name: "libcublas.so.11"}, hostinfo.Library{Name: "libcudnn.so.8"}), OK},
		{"onnxruntime-libraries", "that build without them", pythons(ada, onnxFor("12.8", "onnxruntime-gpu==1.27.0")), Error},
		{"onnxruntime-driver", "a build for CUDA 12 of a release for CUDA 13", pythons(cards("570.124.06", "8.9"), onnxFor("12.8", "onnxruntime-gpu==1.27.0")), OK},
		{"onnxruntime-cards", "a build for CUDA 12 of a release for CUDA 13", pythons(cards("570.124.06", "6.1"), onnxFor("12.8", "onnxruntime-gpu==1.27.0")), OK},
		{"onnxruntime-libraries", "nothing", pythons(ada, venv("onnxruntime-gpu==1.20.1")), Error},
		{"onnxruntime-libraries", "cuDNN 8 only", libraries(pythons(ada, venv("onnxruntime-gpu==1.20.1")), hostinfo.Library{Name: "libcudart.so.12", Version: "12.4.127"}, hostinfo.Library{Name: "libcublas.so.12"}, hostinfo.Library{Name: "libcudnn.so.8", Version: "8.9.7"}), Error},
		{"onnxruntime-libraries", "CUDA 11 only", libraries(pythons(ada, venv("onnxruntime-gpu==1.20.1", "nvidia-cudnn-cu12==9.1.0.70")), hostinfo.Library{Name: "libcudart.so.11.0"}, hostinfo.Library{Name: "libcublas.so.11"}), Error},
		{"onnxruntime-libraries", "an old one with new libraries", libraries(pythons(ada, venv("onnxruntime-gpu==1.18.0")), hostinfo.Library{Name: "libcudart.so.12"}, hostinfo.Library{Name: "libcublas.so.12"}, hostinfo.Library{Name: "libcudnn.so.9"}), Error},
		{"onnxruntime-libraries", "of the system", libraries(pythons(ada, venv("onnxruntime-gpu==1.20.1")), hostinfo.Library{Name: "libcudart.so.12"}, hostinfo.Library{Name: "libcublas.so.12"}, hostinfo.Library{Name: "libcudnn.so.9"}), OK},
		{"onnxruntime-libraries", "wheels", pythons(ada, venv("onnxruntime-gpu==1.20.1", "nvidia-cudnn-cu12==9.1.0.70", "nvidia-cublas-cu12==12.4.5.8", "nvidia-cuda-runtime-cu12==12.4.127")), OK},
		{"onnxruntime-libraries", "through PyTorch", pythons(ada, built(venv("onnxruntime-gpu==1.20.1", "torch==2.5.1+cu124"), "12.4", "")), OK},
		{"onnxruntime-libraries", "through PyTorch with the other cuDNN", pythons(ada, built(venv("onnxruntime-gpu==1.20.1", "torch==2.3.1+cu121"), "12.1", "")), Error},
		{"onnxruntime-libraries", "by conda", pythons(ada, venv("onnxruntime-gpu==1.20.1", "conda:onnxruntime==1.20.1")), OK},
		{"onnxruntime-libraries", "no NVIDIA device", pythons(amdOnly(), venv("onnxruntime-gpu==1.20.1")), OK},
		{"onnxruntime-libraries", "newer than the table", pythons(ada, venv("onnxruntime-gpu==1.99.0")), OK},
		{"onnxruntime-libraries", "libraries were not read", blindLibraries(pythons(ada, venv("onnxruntime-gpu==1.20.1"))), Unknown},

		{"onnxruntime-libraries", "for CUDA 13 with libraries of CUDA 12", pythons(ada, venv("onnxruntime-gpu==1.27.0", "nvidia-cudnn-cu12==9.1.0.70", "nvidia-cublas-cu12==12.4.5.8", "nvidia-cuda-runtime-cu12==12.4.127")), Error},
		{"onnxruntime-libraries", "for CUDA 13 with its own", pythons(ada, venv("onnxruntime-gpu==1.27.0", "nvidia-cudnn-cu13==9.13.0.50", "nvidia-cublas==13.0.2.14", "nvidia-cuda-runtime==13.0.88")), OK},
		{"onnxruntime-cards", "Pascal with CUDA 13", pythons(cards("580.65.06", "6.1"), venv("onnxruntime-gpu==1.27.0")), Error},
		{"onnxruntime-cards", "Pascal with CUDA 12", pythons(cards("580.65.06", "6.1"), venv("onnxruntime-gpu==1.26.0")), OK},
		{"onnxruntime-cards", "Turing with CUDA 13", pythons(cards("580.65.06", "7.5"), venv("onnxruntime-gpu==1.27.0")), OK},

		{"onnxruntime-build", "alone", pythons(ada, venv("onnxruntime==1.20.1")), Warning},
		{"onnxruntime-build", "in an environment that is not in use", pythons(ada, inactive(venv("onnxruntime==1.20.1"))), Info},
		{"onnxruntime-build", "for NVIDIA", pythons(ada, venv("onnxruntime-gpu==1.20.1")), OK},
		{"onnxruntime-build", "both: another finding", pythons(ada, venv("onnxruntime==1.20.1", "onnxruntime-gpu==1.20.1")), OK},
		{"onnxruntime-build", "by conda", pythons(ada, venv("conda:onnxruntime==1.20.1")), OK},
		{"onnxruntime-build", "by conda, for the CPU", pythons(ada, venv("conda:onnxruntime==1.20.1=py312h5a6f016_0_cpu")), Warning},
		{"onnxruntime-build", "by conda, for CUDA", pythons(ada, venv("conda:onnxruntime==1.20.1=py312hd2e0c8f_0_cuda")), OK},
		{"onnxruntime-build", "by conda, for the CPU, with AMD's GPUs alone", pythons(amdOnly(), venv("conda:onnxruntime==1.20.1=py312h5a6f016_0_cpu")), OK},
		{"jax-build", "by conda, for the CPU", pythons(ada, venv("conda:jaxlib==0.10.2=cpu_py312he3fe717_0")), Warning},
		{"jax-build", "by conda, for CUDA", pythons(ada, venv("conda:jaxlib==0.10.2=cuda129_py312h00fd58a_200")), OK},
		{"tensorflow-build", "by conda, for the CPU", pythons(ada, venv("conda:tensorflow==2.18.0=cpu_py312h69ecde4_0", "conda:tensorflow-base==2.18.0=cpu_py312h69ecde4_0")), Warning},
		{"tensorflow-build", "by Anaconda, for the CPU", pythons(ada, venv("conda:tensorflow-base==2.12.0=mkl_py39h9d3c7d1_0")), Warning},
		{"tensorflow-build", "by conda, for CUDA", pythons(ada, venv("conda:tensorflow==2.18.0=cuda126py312h92f8ef8_200")), OK},
		{"llama-cpp-build", "for the CPU", pythons(ada, llama([]string{"libllama.so", "libggml-base.so", "libc.so.6", "libggml-cpu.so"}, "llama-cpp-python==0.3.9")), Warning},
		{"llama-cpp-build", "for the CPU, in an environment that is not in use", pythons(ada, inactive(llama([]string{"libllama.so"}, "llama-cpp-python==0.3.9"))), Info},
		{"llama-cpp-build", "for CUDA", pythons(ada, llama([]string{"libllama.so", "libggml-cuda.so"}, "llama-cpp-python==0.3.9")), OK},
		{"llama-cpp-build", "for CUDA, in one library", pythons(ada, llama([]string{"libllama.so", "libc.so.6", "libcublas.so.12"}, "llama-cpp-python==0.2.57")), OK},
		{"llama-cpp-build", "for Vulkan", pythons(ada, llama([]string{"libllama.so", "libggml-vulkan.so"}, "llama-cpp-python==0.3.9")), OK},
		{"llama-cpp-build", "its libraries are elsewhere", pythons(ada, venv("llama-cpp-python==0.3.9")), Unknown},
		{"llama-cpp-build", "by conda, for CUDA", pythons(ada, venv("llama-cpp-python==0.3.34", "conda:llama-cpp-python==0.3.34=py312h7bbf5b1_1", "conda:llama-cpp==9923=cuda129_h8a0e5f5_0")), OK},
		{"llama-cpp-build", "by conda, for the CPU", pythons(ada, venv("llama-cpp-python==0.3.34", "conda:llama-cpp-python==0.3.34=py312h7bbf5b1_1", "conda:llama-cpp==9923=cpu_mkl_h8a0e5f5_0")), Warning},
		{"llama-cpp-build", "on a machine without a GPU", pythons(none, llama([]string{"libllama.so"}, "llama-cpp-python==0.3.9")), OK},
		{"build-by-name", "Faiss for the CPU", pythons(ada, venv("faiss-cpu==1.11.0")), Info},
		{"build-by-name", "PaddlePaddle for the CPU", pythons(ada, venv("paddlepaddle==3.1.0")), Info},
		{"build-by-name", "Faiss in both builds", pythons(ada, venv("faiss-cpu==1.11.0", "faiss-gpu-cu12==1.11.0")), OK},
		{"build-by-name", "PaddlePaddle for GPUs", pythons(ada, venv("paddlepaddle-gpu==3.1.0")), OK},
		{"build-by-name", "on a machine without a GPU", pythons(none, venv("mxnet==1.9.1")), OK},
		{"onnxruntime-build", "for AMD", pythons(amdOnly(), venv("onnxruntime-migraphx==1.20.1")), OK},
		{"onnxruntime-build", "on a machine without a GPU", pythons(none, venv("onnxruntime==1.20.1")), OK},
		{"onnxruntime-build", "for Intel's devices on a machine with NVIDIA's", pythons(ada, venv("onnxruntime-openvino==1.20.0")), Warning},
		{"onnxruntime-build", "for AMD on a machine with NVIDIA's GPUs", pythons(ada, venv("onnxruntime-migraphx==1.20.1")), Warning},
		{"onnxruntime-build", "for NVIDIA on a machine with AMD's GPUs", pythons(amdOnly(), venv("onnxruntime-gpu==1.20.1")), Warning},
		{"tensorflow-build", "for the CPU by name", pythons(ada, venv("tensorflow-cpu==2.18.0")), Warning},
		{"tensorflow-build", "in an environment that is not in use", pythons(ada, inactive(venv("tensorflow-cpu==2.18.0"))), Info},
		{"tensorflow-build", "the usual one", pythons(ada, venv("tensorflow==2.18.0")), OK},

		{"tensorflow-libraries", "no CUDA", pythons(ada, venv("tensorflow==2.18.0")), Warning},
		{"tensorflow-libraries", "cuDNN too old", pythons(ada, venv("tensorflow==2.18.0", "nvidia-cudnn-cu12==9.1.0.70", "nvidia-cublas-cu12==12.5.3.2", "nvidia-cuda-runtime-cu12==12.5.82")), Warning},
		{"tensorflow-libraries", "with its own", pythons(ada, venv("tensorflow==2.18.0", "nvidia-cudnn-cu12==9.3.0.75", "nvidia-cublas-cu12==12.5.3.2", "nvidia-cuda-runtime-cu12==12.5.82")), OK},
		{"tensorflow-libraries", "for the CPU by name", pythons(ada, venv("tensorflow-cpu==2.18.0")), OK},

		{"jax-build", "no plugin", pythons(ada, venv("jax==0.7.0", "jaxlib==0.7.0")), Warning},
		{"jax-build", "plugin of another version", pythons(ada, venv("jax==0.7.1", "jaxlib==0.7.1", "jax-cuda12-plugin==0.7.2")), Error},
		{"jax-build", "plugin of the same version", pythons(ada, venv("jax==0.7.2", "jaxlib==0.7.2", "jax-cuda13-plugin==0.7.2")), OK},
		{"jax-build", "on a machine without a GPU", pythons(none, venv("jax==0.7.0", "jaxlib==0.7.0")), OK},
		{"jax-build", "an old one with CUDA inside", pythons(ada, venv("jax==0.4.20", "jaxlib==0.4.20+cuda12.cudnn89")), OK},

		{"jax-libraries", "cuDNN too old", pythons(ada, venv("jaxlib==0.7.2", "jax-cuda12-plugin==0.7.2", "nvidia-cudnn-cu12==9.5.1.17", "nvidia-cublas-cu12==12.8.4.1", "nvidia-cuda-runtime-cu12==12.8.90")), Error},
		{"jax-libraries", "wheels of CUDA 13", pythons(ada, venv("jaxlib==0.7.2", "jax-cuda13-plugin==0.7.2", "nvidia-cudnn-cu13==9.12.0.46", "nvidia-cublas==13.0.2.14", "nvidia-cuda-runtime==13.0.88")), OK},

		{"ctranslate2-libraries", "nothing", pythons(ada, venv("ctranslate2==4.5.0")), Error},
		{"ctranslate2-libraries", "in an environment that is not in use", pythons(ada, inactive(venv("ctranslate2==4.5.0"))), Info},
		{"ctranslate2-libraries", "cuDNN 8 where it needs 9", libraries(pythons(ada, venv("ctranslate2==4.5.0")), hostinfo.Library{Name: "libcublas.so.12"}, hostinfo.Library{Name: "libcudnn.so.8"}), Warning},
		{"ctranslate2-libraries", "cuDNN 9 where it needs 8", libraries(pythons(ada, venv("ctranslate2==4.4.0")), hostinfo.Library{Name: "libcublas.so.12"}, hostinfo.Library{Name: "libcudnn.so.9"}), Warning},
		{"ctranslate2-libraries", "of the system", libraries(pythons(ada, venv("ctranslate2==4.6.0")), hostinfo.Library{Name: "libcublas.so.12"}, hostinfo.Library{Name: "libcudnn.so.9"}), OK},
		{"ctranslate2-libraries", "without cuDNN from 4.6.3 on", libraries(pythons(ada, venv("ctranslate2==4.6.3")), hostinfo.Library{Name: "libcublas.so.12"}), OK},
		{"ctranslate2-libraries", "in wheels alone", pythons(ada, venv("ctranslate2==4.6.2", "nvidia-cublas-cu12==12.4.5.8", "nvidia-cudnn-cu12==9.1.0.70")), Warning},
		{"ctranslate2-libraries", "in wheels alone, beside PyTorch", pythons(ada, built(venv("ctranslate2==4.5.0", "torch==2.5.1+cu124", "nvidia-cublas-cu12==12.4.5.8", "nvidia-cudnn-cu12==9.1.0.70"), "12.4", "")), Warning},
		{"ctranslate2-libraries", "cuBLAS through PyTorch", pythons(ada, built(venv("ctranslate2==4.8.1", "torch==2.5.1+cu124", "nvidia-cublas-cu12==12.4.5.8"), "12.4", "")), OK},
		{"ctranslate2-libraries", "wheels of which LD_LIBRARY_PATH knows", libraries(pythons(ada, venv("ctranslate2==4.8.1", "nvidia-cublas-cu12==12.4.5.8")), hostinfo.Library{Name: "libcublas.so.12", From: "LD_LIBRARY_PATH"}), OK},
		{"ctranslate2-libraries", "with a driver that is too old for them", pythons(cards("470.256.02", "8.0"), venv("ctranslate2==4.5.0")), Info},
		{"ctranslate2-libraries", "by conda", pythons(ada, venv("ctranslate2==4.5.0", "conda:ctranslate2==4.5.0=cuda126py312h24c3ed5_0")), OK},
		{"ctranslate2-libraries", "no NVIDIA device", pythons(amdOnly(), venv("ctranslate2==4.5.0")), OK},
		{"ctranslate2-libraries", "libraries were not read", blindLibraries(pythons(ada, venv("ctranslate2==4.5.0"))), Unknown},
		{"ctranslate2-driver", "CUDA 12 on driver 470", pythons(cards("470.256.02", "8.0"), venv("ctranslate2==4.5.0")), Error},
		{"ctranslate2-driver", "CUDA 12 on driver 525", pythons(cards("525.60.13", "8.0"), venv("ctranslate2==4.5.0")), OK},

		{"jax-cards", "Pascal with CUDA 13", pythons(cards("580.65.06", "6.1"), venv("jaxlib==0.7.2", "jax-cuda13-plugin==0.7.2")), Error},
		{"jax-libraries", "an old JAX with the cuDNN of its time", pythons(ada, venv("jaxlib==0.5.0", "jax-cuda12-plugin==0.5.0", "nvidia-cudnn-cu12==9.1.0.70", "nvidia-cublas-cu12==12.4.5.8", "nvidia-cuda-runtime-cu12==12.4.127")), OK},
		{"jax-libraries", "an older one with cuDNN 8", pythons(ada, venv("jaxlib==0.4.28", "jax-cuda12-plugin==0.4.28", "nvidia-cudnn-cu12==8.9.7.29", "nvidia-cublas-cu12==12.4.5.8", "nvidia-cuda-runtime-cu12==12.4.127")), OK},
		{"jax-build", "before there were plugins", pythons(ada, venv("jax==0.4.20", "jaxlib==0.4.20")), OK},
		{"jax-build", "plugin and library in one", pythons(ada, venv("jax==0.4.29", "jaxlib==0.4.29+cuda12.cudnn91")), OK},
		{"tensorflow-libraries", "a cuDNN that does not say its minor version", libraries(pythons(ada, venv("tensorflow==2.18.0")), hostinfo.Library{Name: "libcudart.so.12"}, hostinfo.Library{Name: "libcublas.so.12"}, hostinfo.Library{Name: "libcudnn.so.9"}), OK},
		{"jax-cards", "Pascal with CUDA 12", pythons(cards("580.65.06", "6.1"), venv("jaxlib==0.7.2", "jax-cuda12-plugin==0.7.2")), OK},

		{"onnxruntime-driver", "driver 470", pythons(cards("470.256.02", "8.0"), venv("onnxruntime-gpu==1.20.1")), Error},
		{"onnxruntime-driver", "CUDA 13 on driver 570", pythons(cards("570.124.06", "8.0"), venv("onnxruntime-gpu==1.27.0")), Error},
		{"onnxruntime-driver", "driver 525", pythons(cards("525.60.13", "8.0"), venv("onnxruntime-gpu==1.20.1")), OK},
		{"tensorflow-driver", "driver 470", pythons(cards("470.256.02", "8.0"), venv("tensorflow==2.18.0")), Error},
		{"tensorflow-driver", "driver 535", pythons(cards("535.183.01", "8.0"), venv("tensorflow==2.18.0")), OK},
		{"jax-driver", "CUDA 13 on driver 570", pythons(cards("570.124.06", "8.0"), venv("jax-cuda13-plugin==0.7.2")), Error},
		{"jax-driver", "CUDA 12 on driver 570", pythons(cards("570.124.06", "8.0"), venv("jax-cuda12-plugin==0.7.2")), OK},
		{"cupy-driver", "CUDA 13 on driver 570", pythons(cards("570.124.06", "8.0"), venv("cupy-cuda13x==13.6.0")), Error},
		{"cupy-driver", "CUDA 12 on driver 570", pythons(cards("570.124.06", "8.0"), venv("cupy-cuda12x==13.6.0")), OK},

		{"nvidia-wheels-mixed", "cuDNN twice", pythons(ada, venv("nvidia-cudnn-cu11==8.9.5.29", "nvidia-cudnn-cu12==9.10.2.21")), Warning},
		{"nvidia-wheels-mixed", "cuDNN for 12 and 13", pythons(ada, venv("nvidia-cudnn-cu12==9.10.2.21", "nvidia-cudnn-cu13==9.13.0.50")), Warning},
		{"nvidia-wheels-mixed", "side by side", pythons(ada, venv("nvidia-cublas-cu12==12.8.4.1", "nvidia-cublas==13.0.2.14")), Info},
		{"nvidia-wheels-mixed", "one version", pythons(ada, venv("nvidia-cublas-cu12==12.8.4.1", "nvidia-cudnn-cu12==9.10.2.21", "nvidia-ml-py==13.580.65", "nvidia-cudnn-frontend==1.14.0", "nvidia-cublas==0.0.1")), OK},
		{"nvidia-wheels-mixed", "two names of one version", pythons(ada, venv("nvidia-cuda-nvrtc-cu13==13.0.88", "nvidia-cuda-nvrtc==13.0.88")), OK},
		{"nvidia-wheels-mixed", "two names of one version, and another version", pythons(ada, venv("nvidia-cuda-nvrtc-cu13==13.0.88", "nvidia-cuda-nvrtc==13.0.88", "nvidia-cublas-cu12==12.8.4.1")), Info},
		{"nvidia-wheels-mixed", "in different environments", pythons(ada, venv("nvidia-cudnn-cu12==9.10.2.21"), inactive(venv("nvidia-cudnn-cu11==8.9.5.29"))), OK},

		{"library-path-over-wheels", "the same version, with fewer numbers", masked(libraries(pythons(ada, venv("nvidia-cudnn-cu12==9.10.2.21")), hostinfo.Library{Name: "libcudnn.so.9", Path: "/opt/x/libcudnn.so.9", Version: "9.10.2", From: "LD_LIBRARY_PATH"}), "LD_LIBRARY_PATH=/opt/x"), OK},
		{"library-path-over-wheels", "in another environment", masked(libraries(pythons(ada, inactive(venv("nvidia-cudnn-cu12==9.10.2.21"))), hostinfo.Library{Name: "libcudnn.so.9", Path: "/opt/x/libcudnn.so.9", Version: "9.1.0", From: "LD_LIBRARY_PATH"}), "LD_LIBRARY_PATH=/opt/x"), OK},
		{"library-path-over-wheels", "wheels of another environment", masked(libraries(pythons(ada, venv("nvidia-cudnn-cu12==9.10.2.21")), hostinfo.Library{Name: "libcudnn.so.9", Path: "/e/lib/python3.11/site-packages/nvidia/cudnn/lib/libcudnn.so.9", Version: "9.1.0", From: "LD_LIBRARY_PATH"}), "LD_LIBRARY_PATH=/e"), OK},
		{"library-path-over-wheels", "a newer cuDNN", masked(libraries(pythons(ada, venv("nvidia-cudnn-cu12==9.10.2.21")), hostinfo.Library{Name: "libcudnn.so.9", Path: "/opt/x/libcudnn.so.9", Version: "9.13.0", From: "LD_LIBRARY_PATH"}), "LD_LIBRARY_PATH=/opt/x"), Warning},
		{"library-path-over-wheels", "a newer cuBLAS", masked(libraries(pythons(ada, venv("nvidia-cublas-cu12==12.4.5.8")), hostinfo.Library{Name: "libcublas.so.12", Path: "/opt/x/libcublas.so.12", Version: "12.8.4.1", From: "LD_LIBRARY_PATH"}), "LD_LIBRARY_PATH=/opt/x"), OK},
		{"library-path-over-wheels", "an older cuBLAS", masked(libraries(pythons(ada, venv("nvidia-cublas-cu12==12.8.4.1")), hostinfo.Library{Name: "libcublas.so.12", Path: "/opt/x/libcublas.so.12", Version: "12.4.5.8", From: "LD_LIBRARY_PATH"}), "LD_LIBRARY_PATH=/opt/x"), Warning},
		{"library-path-over-wheels", "an unknown version", masked(libraries(pythons(ada, venv("nvidia-cublas-cu12==12.8.4.1")), hostinfo.Library{Name: "libcublas.so.12", Path: "/opt/x/libcublas.so.12", Version: "", From: "LD_LIBRARY_PATH"}), "LD_LIBRARY_PATH=/opt/x"), OK},
		{"library-path-over-wheels", "an old cuDNN", masked(libraries(pythons(ada, venv("nvidia-cudnn-cu12==9.10.2.21")), hostinfo.Library{Name: "libcudnn.so.9", Path: "/opt/cudnn/lib/libcudnn.so.9", Version: "9.1.0", From: "LD_LIBRARY_PATH"}), "LD_LIBRARY_PATH=/opt/cudnn/lib"), Warning},
		{"library-path-over-wheels", "the same version", masked(libraries(pythons(ada, venv("nvidia-cuda-runtime-cu12==12.8.90")), hostinfo.Library{Name: "libcudart.so.12", Path: "/usr/local/cuda/lib64/libcudart.so.12", Version: "12.8.90", From: "LD_LIBRARY_PATH"}), "LD_LIBRARY_PATH=/usr/local/cuda/lib64"), OK},
		{"library-path-over-wheels", "another major version", masked(libraries(pythons(ada, venv("nvidia-cudnn-cu12==9.10.2.21")), hostinfo.Library{Name: "libcudnn.so.8", Path: "/opt/cudnn/lib/libcudnn.so.8", Version: "8.9.7", From: "LD_LIBRARY_PATH"}), "LD_LIBRARY_PATH=/opt/cudnn/lib"), OK},
		{"library-path-over-wheels", "the loader's cache", masked(libraries(pythons(ada, venv("nvidia-cudnn-cu12==9.10.2.21")), hostinfo.Library{Name: "libcudnn.so.9", Path: "/usr/lib/libcudnn.so.9", Version: "9.1.0", From: "ld.so.cache"}), "LD_LIBRARY_PATH=/opt/other"), OK},
		{"library-path-over-wheels", "the wheels themselves", masked(libraries(pythons(ada, venv("nvidia-cudnn-cu12==9.10.2.21")), hostinfo.Library{Name: "libcudnn.so.9", Path: "/home/ann/venv/lib/python3.11/site-packages/nvidia/cudnn/lib/libcudnn.so.9", From: "LD_LIBRARY_PATH"}), "LD_LIBRARY_PATH=/home/ann/venv/lib/python3.11/site-packages/nvidia/cudnn/lib"), OK},
		{"library-path-over-wheels", "libraries were not read", masked(blindLibraries(pythons(ada, venv("nvidia-cudnn-cu12==9.10.2.21"))), "LD_LIBRARY_PATH=/opt"), Unknown},

		{"accelerate-gpu-ids", "two GPUs", accelerated(pythons(ada, venv("accelerate==1.2.0")), "0,1"), Warning},
		{"accelerate-gpu-ids", "two GPUs of AMD", accelerated(pythons(amdOnly(), venv("accelerate==1.2.0")), "0,1"), Warning},
		{"accelerate-gpu-ids", "in an environment that is not in use", accelerated(pythons(ada, inactive(venv("accelerate==1.2.0"))), "0,1"), Info},
		{"accelerate-gpu-ids", "all", accelerated(pythons(ada, venv("accelerate==1.2.0")), "all"), OK},
		{"accelerate-gpu-ids", "it does not say", accelerated(pythons(ada, venv("accelerate==1.2.0")), ""), OK},
		{"accelerate-gpu-ids", "accelerate is not installed", accelerated(pythons(ada, venv("torch==2.9.0")), "0,1"), OK},
		{"accelerate-gpu-ids", "on a machine without a GPU", accelerated(pythons(none, venv("accelerate==1.2.0")), "0,1"), Info},
		{"accelerate-gpu-ids", "another user's file", func() hostinfo.Site {
			s := pythons(cards("580.65.06", "8.9"), venv("accelerate==1.2.0"))
			s.Accelerate = hostinfo.NoAnswer[hostinfo.Accelerate]("/c/default_config.yaml belongs to another user")
			return s
		}(), Unknown},

		{"python-runs", "an import fails", pythons(ada, ran(venv("torch==2.9.0"), hostinfo.Probe{Library: "torch", Problem: "ImportError: libcudnn.so.9"})), Error},
		{"python-runs", "no device", pythons(ada, ran(venv("torch==2.9.0"), hostinfo.Probe{Library: "torch", Text: "2.9.0"})), Error},
		{"python-runs", "a build for the CPU", pythons(ada, ran(venv("torch==2.9.0+cpu"), hostinfo.Probe{Library: "torch", Text: "2.9.0+cpu"})), Info},
		{"python-runs", "ONNX Runtime for the CPU", pythons(ada, ran(venv("onnxruntime==1.22.0"), hostinfo.Probe{Library: "onnxruntime", Text: "1.22.0 CPUExecutionProvider"})), Info},
		{"python-runs", "ONNX Runtime for GPUs", pythons(ada, ran(venv("onnxruntime==1.22.0", "onnxruntime-gpu==1.22.0"), hostinfo.Probe{Library: "onnxruntime", Text: "1.22.0 CPUExecutionProvider"})), Error},
		{"python-runs", "TensorFlow for the CPU", pythons(ada, ran(venv("tensorflow-cpu==2.18.0"), hostinfo.Probe{Library: "tensorflow", Text: "2.18.0"})), Info},
		{"python-runs", "TensorFlow", pythons(ada, ran(venv("tensorflow==2.18.0"), hostinfo.Probe{Library: "tensorflow", Text: "2.18.0"})), Error},
		{"python-runs", "JAX for the CPU", pythons(ada, ran(venv("jax==0.7.2", "jaxlib==0.7.2"), hostinfo.Probe{Library: "jax", Text: "0.7.2"})), Info},
		{"python-runs", "JAX with a plugin", pythons(ada, ran(venv("jax==0.7.2", "jaxlib==0.7.2", "jax-cuda12-plugin==0.7.2"), hostinfo.Probe{Library: "jax", Text: "0.7.2"})), Error},
		{"python-runs", "only a processor's graphics", pythons(processorGraphics(), ran(venv("torch==2.9.0"), hostinfo.Probe{Library: "torch", Text: "2.9.0"})), OK},
		{"python-runs", "no device of AMD", pythons(amdOnly(), ran(venv("torch==2.9.0"), hostinfo.Probe{Library: "torch", Text: "2.9.0"})), Error},
		{"python-runs", "no device on a machine without one", pythons(none, ran(venv("torch==2.9.0"), hostinfo.Probe{Library: "torch", Text: "2.9.0"})), OK},
		{"python-runs", "two devices", pythons(ada, ran(venv("torch==2.9.0"), hostinfo.Probe{Library: "torch", Devices: 2, Text: "2.9.0"})), OK},
		{"python-runs", "nothing to import", pythons(ada, ran(venv(), []hostinfo.Probe{}...)), OK},

		{"tensor-cores", "Ada", ada, Info},
		{"tensor-cores", "Pascal", cards("580.65.06", "6.1"), Info},
		{"tensor-cores", "a card of the future", cards("580.65.06", "99.0"), Unknown},
		{"tensor-cores", "no driver", alongside(), Unknown},
		{"tensor-cores", "AMD", amdOnly(), OK},
	}...)
	return all
}

// The texts must contain the numbers of this machine, and the command that fixes the problem.
func TestPythonSays(t *testing.T) {
	look := func(code string, s hostinfo.Site) Finding {
		for _, c := range pythonChecks() {
			if c.Code == code {
				return c.Look(s)[0]
			}
		}
		t.Fatalf("there is no check %s", code)
		return Finding{}
	}
	for _, c := range []struct {
		code, seen, do string
		site           hostinfo.Site
	}{
		{"torch-build", "in /home/ann/venv (Python 3.11), PyTorch 1.13.0a0+gitunknown is built for the CPU alone",
			"install a build for this machine: https://pytorch.org/get-started/locally/", pythons(cards("550.54.15", "8.0"), built(venv("torch==1.13.0a0+gitunknown"), "", ""))},
		{"torch-driver", "in /home/ann/venv (Python 3.11), PyTorch 2.9.0+cu130 is built for CUDA 13.0, which needs driver 580 or newer; this machine has 570.124.06",
			"install NVIDIA driver 580 or newer, or: /home/ann/venv/bin/python3 -m pip install --force-reinstall torch==2.9.0 -i https://download.pytorch.org/whl/cu128",
			pythons(cards("570.124.06", "8.9"), built(venv("torch==2.9.0+cu130"), "13.0", ""))},
		{"torch-cards", "in /home/ann/venv (Python 3.11), PyTorch 2.9.0+cu130 does not run on GPU 0 (Card 6.1, compute capability 6.1, Pascal): its wheel for CUDA 13.0 has code for 7.5 8.0 8.6 9.0 10.0 11.0 12.0+PTX",
			"/home/ann/venv/bin/python3 -m pip install --force-reinstall torch==2.9.0 -i https://download.pytorch.org/whl/cu126",
			pythons(cards("580.65.06", "6.1"), built(venv("torch==2.9.0+cu130"), "13.0", ""))},
		{"torch-cards", "in /home/ann/venv (Python 3.11), PyTorch 2.5.1+cu124 does not run on GPU 0 (Card 12.0, compute capability 12.0, Blackwell): its wheel for CUDA 12.4 has code for 5.0 6.0 7.0 7.5 8.0 8.6 9.0",
			"install a build of PyTorch for these cards: https://pytorch.org/get-started/previous-versions/", // no wheel of 2.5 has it
			pythons(cards("580.65.06", "12.0"), built(venv("torch==2.5.1+cu124"), "12.4", ""))},
		{"onnxruntime-libraries", "in /home/ann/venv (Python 3.11), onnxruntime-gpu 1.20.1 lacks cudart 12, cuBLAS 12, cuDNN 9 (there is 8.9.7), in the environment and where the loader looks",
			"/home/ann/venv/bin/python3 -m pip install nvidia-cuda-runtime-cu12 nvidia-cublas-cu12 nvidia-cufft-cu12 nvidia-curand-cu12 nvidia-cuda-nvrtc-cu12 'nvidia-cudnn-cu12==9.*'",
			libraries(pythons(cards("580.65.06", "8.9"), venv("onnxruntime-gpu==1.20.1")), hostinfo.Library{Name: "libcudnn.so.8", Version: "8.9.7"})},
		{"onnxruntime-libraries", "in /home/ann/venv (Python 3.11), onnxruntime-gpu 1.19.0 lacks cudart 12, cuBLAS 12, cuDNN 9, which does not matter yet: driver 470.256.02 cannot run its CUDA 12",
			"", pythons(cards("470.256.02", "8.0"), venv("onnxruntime-gpu==1.19.0"))},
		{"torch-driver", "in /home/ann/venv (Python 3.11), PyTorch 2.9.0+cu128 is built for CUDA 12.8, which needs driver 525 or newer; this machine has 470.256.02",
			"install NVIDIA driver 525 or newer, or: /home/ann/venv/bin/python3 -m pip install --force-reinstall 'torch==2.7.*' -i https://download.pytorch.org/whl/cu118",
			pythons(cards("470.256.02", "8.0"), built(venv("torch==2.9.0+cu128"), "12.8", ""))},
		{"onnxruntime-libraries", "in /home/ann/venv (Python 3.11), onnxruntime-gpu 1.27.0 lacks cudart 13, cuBLAS 13, cuDNN 9, in the environment and where the loader looks",
			"/home/ann/venv/bin/python3 -m pip install 'onnxruntime-gpu[cuda,cudnn]==1.27.0'", pythons(cards("580.65.06", "8.9"), venv("onnxruntime-gpu==1.27.0"))},
		{"onnxruntime-libraries", "in /home/ann/venv (Python 3.11), onnxruntime-gpu 1.27.0 lacks cudart 12, cuBLAS 12, cuDNN 9, in the environment and where the loader looks",
			"/home/ann/venv/bin/python3 -m pip install nvidia-cuda-runtime-cu12 nvidia-cublas-cu12 nvidia-cufft-cu12 nvidia-curand-cu12 nvidia-cuda-nvrtc-cu12 'nvidia-cudnn-cu12==9.*'", pythons(cards("580.65.06", "8.9"), onnxFor("12.8", "onnxruntime-gpu==1.27.0"))},
		{"onnxruntime-libraries", "in /home/ann/venv (Python 3.11), onnxruntime-gpu 1.26.0 lacks cudart 13, cuBLAS 13, cuDNN 9, in the environment and where the loader looks",
			"/home/ann/venv/bin/python3 -m pip install nvidia-cuda-runtime nvidia-cublas nvidia-cufft nvidia-curand nvidia-cuda-nvrtc 'nvidia-cudnn-cu13==9.*'", pythons(cards("580.65.06", "8.9"), onnxFor("13.0", "onnxruntime-gpu==1.26.0"))},
		{"onnxruntime-driver", "in /home/ann/venv (Python 3.11), onnxruntime-gpu 1.27.0 is built for CUDA 13, which needs driver 580 or newer; this machine has 570.124.06",
			"install NVIDIA driver 580 or newer, or: /home/ann/venv/bin/python3 -m pip install 'onnxruntime-gpu==1.26.*'", pythons(cards("570.124.06", "8.9"), venv("onnxruntime-gpu==1.27.0"))},
		{"onnxruntime-cards", "in /home/ann/venv (Python 3.11), onnxruntime-gpu 1.27.0 does not run on GPU 0 (Card 6.1, compute capability 6.1, Pascal): it begins at 7.5",
			"/home/ann/venv/bin/python3 -m pip install 'onnxruntime-gpu==1.26.*'", pythons(cards("580.65.06", "6.1"), venv("onnxruntime-gpu==1.27.0"))},
		{"onnxruntime-both", "in /home/ann/venv (Python 3.11), onnxruntime and onnxruntime-gpu are installed into the same folder (/home/ann/venv/lib/python3.11/site-packages)",
			"/home/ann/venv/bin/python3 -m pip uninstall onnxruntime onnxruntime-gpu && /home/ann/venv/bin/python3 -m pip install onnxruntime-gpu==1.20.1",
			pythons(cards("580.65.06", "8.9"), venv("onnxruntime-gpu==1.20.1", "onnxruntime==1.22.0"))},
		{"torch-driver", "in /home/ann/venv (Python 3.11), PyTorch 2.9.0+cu130 is built for CUDA 13.0, which needs driver 580 or newer; this machine has 570.124.06",
			"/home/ann/venv/bin/python3 -m pip install --force-reinstall torch==2.9.0 -i https://download.pytorch.org/whl/cu126", pythons(cards("570.124.06", "6.1"), built(venv("torch==2.9.0+cu130"), "13.0", ""))},
		{"torch-driver", "in /home/ann/venv (Python 3.11), PyTorch 2.5.1 is built for CUDA 12.4, which needs driver 525 or newer; this machine has 470.256.02",
			"install a release for an older CUDA: CUDA 12.4 has no code for the GPUs here, with any driver", pythons(cards("470.256.02", "3.5"), built(venv("torch==2.5.1", "conda:pytorch==2.5.1"), "12.4", ""))},
		{"nvidia-wheels-mixed", "in /home/ann/venv (Python 3.11), wheels of the same library overwrite each other: cudnn for CUDA 12 and 13",
			"give frameworks of different CUDA versions environments of their own, or keep those for CUDA 12 alone: /home/ann/venv/bin/python3 -m pip uninstall nvidia-cudnn-cu13 && /home/ann/venv/bin/python3 -m pip install --force-reinstall --no-deps nvidia-cudnn-cu12==9.10.2.21",
			pythons(cards("580.65.06", "8.9"), built(venv("torch==2.9.0", "nvidia-cudnn-cu12==9.10.2.21", "nvidia-cudnn-cu13==9.13.0.50"), "12.8", ""))},
		{"nvidia-wheels-mixed", "in /home/ann/venv (Python 3.11), wheels of the same library overwrite each other: cudnn for CUDA 12 and 13",
			"give frameworks of different CUDA versions environments of their own, or keep those for CUDA 13 alone: /home/ann/venv/bin/python3 -m pip uninstall nvidia-cudnn-cu12 && /home/ann/venv/bin/python3 -m pip install --force-reinstall --no-deps nvidia-cudnn-cu13==9.13.0.50",
			pythons(cards("580.65.06", "8.9"), venv("nvidia-cudnn-cu12==9.10.2.21", "nvidia-cudnn-cu13==9.13.0.50"))},
		{"onnxruntime-both", "in /home/ann/venv (Python 3.11), onnxruntime and onnxruntime-migraphx are installed into the same folder (/home/ann/venv/lib/python3.11/site-packages)",
			"/home/ann/venv/bin/python3 -m pip uninstall onnxruntime onnxruntime-migraphx && /home/ann/venv/bin/python3 -m pip install onnxruntime-migraphx==1.22.0",
			pythons(amdOnly(), venv("onnxruntime-migraphx==1.22.0", "onnxruntime==1.22.0"))},
		{"tensorflow-libraries", "in /home/ann/venv (Python 3.11), tensorflow 2.18.0 lacks cudart 12, cuBLAS 12, cuDNN 9.3 (there is 9.1.0.70), in the environment and where the loader looks",
			"/home/ann/venv/bin/python3 -m pip install 'tensorflow[and-cuda]==2.18.0'",
			pythons(cards("580.65.06", "8.9"), venv("tensorflow==2.18.0", "nvidia-cudnn-cu12==9.1.0.70"))},
		{"onnxruntime-build", "in /home/ann/venv (Python 3.11), onnxruntime 1.20.1 is the build for the CPU",
			"/home/ann/venv/bin/python3 -m pip uninstall onnxruntime && /home/ann/venv/bin/python3 -m pip install onnxruntime-gpu", pythons(cards("580.65.06", "8.9"), venv("onnxruntime==1.20.1"))},
		{"onnxruntime-build", "in /home/ann/venv (Python 3.11), onnxruntime 1.20.1 is the build for the CPU",
			"/home/ann/venv/bin/python3 -m pip uninstall onnxruntime && /home/ann/venv/bin/python3 -m pip install 'onnxruntime-gpu==1.26.*'", pythons(cards("535.183.01", "8.9"), venv("onnxruntime==1.20.1"))},
		{"onnxruntime-build", "in /home/ann/venv (Python 3.11), onnxruntime 1.20.1 is the build for the CPU",
			"/home/ann/venv/bin/python3 -m pip uninstall onnxruntime && /home/ann/venv/bin/python3 -m pip install 'onnxruntime-gpu==1.18.*'", pythons(cards("470.256.02", "8.6"), venv("onnxruntime==1.20.1"))},
		{"onnxruntime-build", "in /home/ann/venv (Python 3.11), onnxruntime 1.20.1 is the build for the CPU",
			"/home/ann/venv/bin/python3 -m pip uninstall onnxruntime && /home/ann/venv/bin/python3 -m pip install 'onnxruntime-gpu==1.26.*'", pythons(cards("580.65.06", "6.1"), venv("onnxruntime==1.20.1"))},
		{"onnxruntime-build", "in /home/ann/venv (Python 3.11), onnxruntime 1.20.1 is the build for the CPU",
			"update the NVIDIA driver first: no release of onnxruntime-gpu runs with this one and these GPUs", pythons(cards("440.118.02", "7.5"), venv("onnxruntime==1.20.1"))},
		{"llama-cpp-build", "in /home/ann/venv (Python 3.11), llama-cpp-python 0.3.9 is built for the CPU alone: none of its libraries uses CUDA",
			"where CUDA 12.4's libcudart and libcublas are on the system: /home/ann/venv/bin/python3 -m pip install --force-reinstall --no-deps --no-cache-dir llama-cpp-python -i https://abetlen.github.io/llama-cpp-python/whl/cu124; or with a CUDA toolkit: " +
				"/home/ann/venv/bin/python3 -m pip install --force-reinstall --no-deps --no-cache-dir --no-binary llama-cpp-python llama-cpp-python -C cmake.args=-DGGML_CUDA=on", pythons(cards("535.183.01", "8.9"), llama([]string{"libllama.so"}, "llama-cpp-python==0.3.9"))},
		{"llama-cpp-build", "in /home/ann/venv (Python 3.11), llama-cpp-python 0.3.9 is built for the CPU alone: none of its libraries uses CUDA",
			"where CUDA 11.8's libcudart and libcublas are on the system: /home/ann/venv/bin/python3 -m pip install --force-reinstall --no-deps --no-cache-dir llama-cpp-python -i https://abetlen.github.io/llama-cpp-python/whl/cu118; or with a CUDA toolkit: " +
				"/home/ann/venv/bin/python3 -m pip install --force-reinstall --no-deps --no-cache-dir --no-binary llama-cpp-python llama-cpp-python -C cmake.args=-DGGML_CUDA=on", pythons(cards("470.256.02", "8.0"), llama([]string{"libllama.so"}, "llama-cpp-python==0.3.9"))},
		{"llama-cpp-build", "in /home/ann/venv (Python 3.11), llama-cpp-python 0.3.9 is built for the CPU alone: none of its libraries uses CUDA",
			"with a CUDA toolkit: /home/ann/venv/bin/python3 -m pip install --force-reinstall --no-deps --no-cache-dir --no-binary llama-cpp-python llama-cpp-python -C cmake.args=-DGGML_CUDA=on",
			pythons(cards("535.183.01", "5.2"), llama([]string{"libllama.so"}, "llama-cpp-python==0.3.9"))},
		{"llama-cpp-build", "in /home/ann/venv (Python 3.11), llama.cpp 9923 is conda's build for the CPU (cpu_mkl_h8a0e5f5_0)",
			"conda install -p /home/ann/venv -c conda-forge 'llama.cpp=*=*cuda*'", pythons(cards("535.183.01", "8.9"), venv("conda:llama-cpp-python==0.3.34=py312h7bbf5b1_1", "conda:llama-cpp==9923=cpu_mkl_h8a0e5f5_0"))},
		{"ctranslate2-libraries", "in /home/ann/venv (Python 3.11), ctranslate2 4.5.0 lacks cuBLAS 12, cuDNN 9, in the environment and where the loader looks",
			"/home/ann/venv/bin/python3 -m pip install nvidia-cublas-cu12 'nvidia-cudnn-cu12==9.*', and before the program starts: export LD_LIBRARY_PATH=" +
				"/home/ann/venv/lib/python3.11/site-packages/nvidia/cublas/lib:/home/ann/venv/lib/python3.11/site-packages/nvidia/cudnn/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}", pythons(cards("535.183.01", "8.9"), venv("ctranslate2==4.5.0"))},
		{"ctranslate2-libraries", "in /home/ann/venv (Python 3.11), ctranslate2 4.8.1 needs cuBLAS 12, which only wheels have here, and it does not look there",
			"before the program starts: export LD_LIBRARY_PATH=/home/ann/venv/lib/python3.11/site-packages/nvidia/cublas/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}", pythons(cards("535.183.01", "8.9"), venv("ctranslate2==4.8.1", "nvidia-cublas-cu12==12.4.5.8"))},
		{"ctranslate2-driver", "in /home/ann/venv (Python 3.11), ctranslate2 4.5.0 is built for CUDA 12, which needs driver 525 or newer; this machine has 470.256.02",
			"install NVIDIA driver 525 or newer, or: /home/ann/venv/bin/python3 -m pip install 'ctranslate2==3.24.*'", pythons(cards("470.256.02", "8.0"), venv("ctranslate2==4.5.0"))},
		{"torch-mkl", "in /home/ann/venv (Python 3.11), mkl 2024.2.2 is installed with PyTorch 2.0.1, which was linked with one before 2024.1",
			"conda install -p /home/ann/venv 'mkl<2024.1'", pythons(cards("535.183.01", "8.9"), venv("conda:pytorch==2.0.1=py3.10_cuda11.8_cudnn8.7.0_0", "conda:mkl==2024.2.2=ha957f24_16"))},
		{"accelerate-gpu-ids", "in /home/ann/venv (Python 3.11), accelerate launch takes its GPUs from /home/ann/.cache/huggingface/accelerate/default_config.yaml, line 7: gpu_ids: 0,1",
			"remove that line, or set gpu_ids to all: gpuard already gives the job its GPUs; and give num_processes with the command, as many as GPUs: gpuard run --gpus 2 -- accelerate launch --num_processes 2", accelerated(pythons(cards("535.183.01", "8.9"), venv("accelerate==1.2.0")), "0,1")},
		{"tensorflow-build", "in /home/ann/venv (Python 3.11), tensorflow-cpu 2.18.0 uses the CPU alone, as its name says",
			"/home/ann/venv/bin/python3 -m pip uninstall tensorflow-cpu && /home/ann/venv/bin/python3 -m pip install 'tensorflow[and-cuda]'", pythons(cards("535.183.01", "8.6"), venv("tensorflow-cpu==2.18.0"))},
		{"tensorflow-build", "in /home/ann/venv (Python 3.11), tensorflow-cpu 2.18.0 uses the CPU alone, as its name says",
			"/home/ann/venv/bin/python3 -m pip uninstall tensorflow-cpu && /home/ann/venv/bin/python3 -m pip install 'tensorflow[and-cuda]==2.14.*'", pythons(cards("470.256.02", "8.6"), venv("tensorflow-cpu==2.18.0"))},
		{"jax-build", "in /home/ann/venv (Python 3.11), jaxlib 0.7.0 has no plugin for NVIDIA devices", "/home/ann/venv/bin/python3 -m pip install 'jax[cuda12]==0.7.0'",
			pythons(cards("570.124.06", "8.9"), venv("jax==0.7.0", "jaxlib==0.7.0"))},
		{"tensor-cores", "T400 4GB (7.5, Turing) has no tensor cores", "", model(cards("580.65.06", "7.5"), "NVIDIA T400 4GB")},
		{"tensor-cores", "Card 8.9 (8.9, Ada Lovelace) has tensor cores for fp16, bf16, tf32, fp8, int8, int4", "", cards("580.65.06", "8.9")},
		{"python-environments", "2 Python environments: /home/ann/venv (Python 3.11), with torch 2.9.0; /opt/e", "", pythons(cards("580.65.06", "8.9"), venv("torch==2.9.0"), hostinfo.Python{Prefix: "/opt/e"})},
	} {
		if f := look(c.code, c.site); f.Seen != c.seen || f.Do != c.do {
			t.Errorf("%s:\n%s\n%s\nwant\n%s\n%s", c.code, f.Seen, f.Do, c.seen, c.do)
		}
	}
}

// An environment that uv made has no pip, and one with spaces in its path needs quotes.
func TestPipIsWhatTheEnvironmentHas(t *testing.T) {
	p := hostinfo.Python{Kind: "venv", Interpreter: "/home/ann/my env/bin/python"}
	if got := pipInstall(p, "torch"); got != "uv pip install --python '/home/ann/my env/bin/python' torch" {
		t.Error(got)
	}
	p.Packages = []hostinfo.Package{{Name: "pip"}}
	if got := pipInstall(p, "torch"); got != "'/home/ann/my env/bin/python' -m pip install torch" {
		t.Error(got)
	}
	p.Prefix, p.Interpreter = "/usr", "/usr/bin/python3"
	for _, got := range []string{pipInstall(p, "torch"), pipSwap(p, "jax", "torch")} {
		if got != "/usr/bin/python3 -m venv .venv && .venv/bin/python -m pip install torch" {
			t.Error(got)
		}
	}
	if got := pipSwap(hostinfo.Python{Interpreter: "/a install b/python"}, "jax", "torch"); got != "'/a install b/python' -m pip uninstall jax && '/a install b/python' -m pip install torch" {
		t.Error(got)
	}
	if got := pipInstall(hostinfo.Python{Kind: "conda"}, "torch"); got != "python3 -m pip install torch" {
		t.Error(got)
	}
}

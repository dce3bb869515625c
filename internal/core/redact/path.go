package redact

import (
	"path"
	"slices"
	"strings"
)

// scrubPath keeps the parts of a path that are common to many machines, because they say what it is, and replaces the
// others.
func (s *Scrubber) scrubPath(p string) string {
	parts := strings.Split(p, "/")
	for i, part := range parts {
		switch {
		case i == 0 && len(part) > 1 && part[0] == '~':
			parts[i] = "~" + s.scrubOwner(part[1:])
		case i > 0 && (parts[i-1] == "home" || parts[i-1] == "Users") && part != "":
			parts[i] = s.scrubOwner(part)
		default:
			parts[i] = s.scrubPathPart(part)
		}
	}
	return strings.Join(parts, "/")
}

// scrubOwner is the name of a home folder.
func (s *Scrubber) scrubOwner(name string) string {
	if isCommonName(name) || s.replacements.MatchString(name) {
		return name
	}
	return s.replacementFor(User, strings.ToLower(name))
}

// scrubPathPart is one name of a path.
func (s *Scrubber) scrubPathPart(name string) string {
	bare := strings.TrimRight(name, ".")
	if len(bare) < 2 || s.isUsualName(bare) || s.replacements.MatchString(bare) {
		return name
	}

	end := name[len(bare):]
	if ext := path.Ext(bare); slices.Contains([]string{".py", ".so", ".sh", ".json", ".yaml", ".yml", ".toml", ".conf", ".ipynb", ".whl", ".log", ".gz"}, ext) {
		end, bare = ext+end, strings.TrimSuffix(bare, ext)
	}

	return s.replacementFor(Name, strings.ToLower(bare)) + end
}

// isUsualName reports names that say what a folder or file is, but not its owner.
func (s *Scrubber) isUsualName(name string) bool {
	return slices.Contains([]string{
		"bin", "sbin", "lib", "lib32", "lib64", "libexec", "include", "share", "etc", "usr", "opt", "var", "tmp", "run", "dev", "proc", "sys", "srv", "mnt", "media",
		"home", "root", "boot", "local", "src", "data", "scratch", "work", "user", "users", "Users", "self", "cache", "site-packages", "dist-packages", "conda-meta",
		"x86_64-linux-gnu", "aarch64-linux-gnu", "targets", "x86_64-linux", "sbsa-linux", "stubs", "compat", "envs", "pkgs", "versions", "env", "venv", ".venv", ".conda", ".pyenv",
		".cache", ".local", ".config", ".nccl.conf", "nccl.conf", "anaconda3", "miniconda3", "miniforge3", "mambaforge", "micromamba", "conda", "pyenv", "uv", "base", "shims", "plugins", "go", "pyenv-virtualenv", "pyvenv.cfg",
		"gpuard", "leases", "tickets", "lock", "format", "machines", "state", "docker", "daemon.json", "cdi", "nvidia-container-runtime", "config.toml", "nvidia.yaml", "nvidia.json",
		"systemd", "modprobe.d", "modules", "module", "driver", "drivers", "kernel", "devices", "class", "bus", "pci", "drm", "dri", "shm", "kmsg", "version", "status", "environ", "gpus", "nvidia-caps",
		"slurm", "nvcc", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "os-release", "Library", "snap", "flatpak", "activate.d", "deactivate.d", "hpc_sdk", "Linux_x86_64", "math_libs", "comm_libs",
	}, name) || s.known.MatchString(name)
}

// knownNamePattern matches names with a varying number or suffix.
const knownNamePattern = `^(?:[0-9]{1,4}(?:\.[0-9.]*)?|python[0-9.]*|cuda-?[0-9.]*|cudnn|nvidia[a-z0-9-]*|amdgpu|kfd|nouveau|renderD[0-9]+|card[0-9]+` +
	`|lib(?:nvidia|cuda|cudart|cudnn|cublas|cublasLt|cufft|curand|cusolver|cusparse|cupti|nvrtc|nvToolsExt|nvjitlink|nvJitLink|nccl|c10|torch|onnxruntime|tensorflow|OpenCL|amdhip|hsa-runtime|rocm)[a-z_A-Z0-9-]*\.so[0-9.]*` +
	`|(?:torch|torchvision|torchaudio|triton|tensorflow|tensorflow_cpu|tensorrt|jax|jaxlib|jax_cuda[0-9]+_[a-z]+|onnxruntime|onnxruntime_gpu|cupy|cupy_cuda[0-9a-z]+|numpy|vllm|nvidia_[a-z0-9_]+)(?:-[0-9][0-9a-z.+]*\.dist-info)?)$`

// scrubCommand keeps the program of a command line if it is a common one. Arguments are dropped: they may name private
// work.
func (s *Scrubber) scrubCommand(line string) string {
	first, rest, more := strings.Cut(strings.TrimSpace(line), " ")
	name := path.Base(first)
	if !s.everyday.MatchString(name) && !s.replacements.MatchString(name) {
		name = s.replacementFor(Command, strings.ToLower(name))
	}

	if more && rest != "" {
		name += " …"
	}

	return name
}

// isPlainCommand reports a program name without path or arguments.
func isPlainCommand(command string) bool { return !strings.ContainsAny(command, " /") }

// commandNames are the names in a command line that may occur alone in a text: those of its program and of scripts.
func commandNames(line string) (found []Secret) {
	for i, word := range strings.Fields(line) {
		name := path.Base(word)
		switch {
		case i == 0:
			found = append(found, Secret{Command, name})
		case slices.Contains([]string{".py", ".sh", ".ipynb"}, path.Ext(name)):
			found = append(found, Secret{Name, name})
		}
	}
	return found
}

// everydayPattern matches programs that use GPUs on many machines.
const everydayPattern = `^(?:python[0-9.]*|ipython3?|jupyter[a-z-]*|torchrun|accelerate|deepspeed|mpirun|mpiexec|srun|vllm|ray|ollama|tritonserver|trtexec|ffmpeg|blender|Xorg|Xwayland|X|gnome-shell|gnome-remote-desktop-daemon|kwin_[a-z0-9]+|plasmashell|sway|mutter|gdm[a-z0-9-]*|sddm|firefox|chrome|chromium|code|nvidia-[a-z-]+|nv-hostengine|dcgm[a-z-]*|gpuard|bash|sh|zsh|fish|docker|containerd-shim[a-z0-9-]*|systemd|node|java|julia|R|matlab|MATLAB)$`

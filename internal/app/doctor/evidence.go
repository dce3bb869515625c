package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/check"
	"gpuard/internal/core/compat"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/visible"
)

// collectEvidence collects the files as they are.
func collectEvidence(host *machine.Host, d check.Diagnosis, version string) (files []packedFile, err error) {
	add := func(name, about string, v any) {
		data, encoding := json.MarshalIndent(v, "", "  ")
		err = errors.Join(err, encoding)
		files = append(files, packedFile{name, about, append(data, '\n')})
	}

	add("doctor.json", "the verdict and every finding: gpuard doctor --json", struct {
		Schema string `json:"schema"`
		check.Diagnosis
	}{"gpuard.doctor/1", d})

	if m := withoutUnknownKeys(d.Site.Machine.Found); d.Site.Machine.Problem == "" {
		data, encoding := m.Encode()
		err = errors.Join(err, encoding)
		files = append(files, packedFile{"machine.json", "the devices and their processes: gpuard status --machine machine.json", data})
	}

	add("site.json", "what the findings were made from", otherReadings(d.Site))

	for _, f := range []struct {
		name, about string
		lines       []string
	}{
		{"environment.txt", "variables that change what programs see", tellingVariables(host.Env)},
		{"kernel-log.txt", "errors of NVIDIA's driver in the kernel's log", logLines(d.Site.Log)},
		{"state.txt", "files of gpuard's state folders: mode, owner, size, time, path", listState(d.Site.State)},
		{"system.txt", "gpuard, kernel and distribution", systemLines(host, version)},
	} {
		files = append(files, packedFile{f.name, f.about, []byte(strings.Join(f.lines, "\n") + "\n")})
	}

	return files, err
}

// withoutUnknownKeys is the machine without the keys of its machine file that this gpuard does not know, because they
// may contain anything.
func withoutUnknownKeys(m gpu.Machine) gpu.Machine {
	m.Extra = nil
	m.Devices, m.Processes = slices.Clone(m.Devices), slices.Clone(m.Processes)

	for i := range m.Devices {
		d := &m.Devices[i]
		d.Extra, d.MIG = nil, slices.Clone(d.MIG)

		for j := range d.MIG {
			d.MIG[j].Extra = nil
		}
	}

	for i := range m.Processes {
		m.Processes[i].Extra = nil
	}

	return m
}

// otherReadings is the site without what has a file of its own, and with those packages only that checks know.
func otherReadings(s hostinfo.Site) hostinfo.Site {
	s.Env, s.Machine.Found = nil, gpu.Machine{}
	s.Pythons.Found = slices.Clone(s.Pythons.Found)

	for i := range s.Pythons.Found {
		p := &s.Pythons.Found[i]
		p.Packages = slices.DeleteFunc(slices.Clone(p.Packages), func(p hostinfo.Package) bool { return !isAboutGPUs(p.Name) })
	}

	return s
}

// isAboutGPUs: a distribution that doctor has rules about, or that brings CUDA along.
func isAboutGPUs(name string) bool {
	return slices.ContainsFunc([]string{"nvidia-", "torch", "pytorch", "triton", "tensorflow", "jax", "onnxruntime", "cupy", "cuda-", "cudnn", "cudatoolkit", "nccl", "libcu",
		"rocm", "numba", "numpy", "vllm", "flash-attn", "xformers", "bitsandbytes", "deepspeed", "accelerate", "transformers", "lightning",
		"llama-cpp", "ctranslate2", "faster-whisper", "faiss", "paddlepaddle", "mxnet", "mkl"},
		func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// tellingVariables are the variables that decide what a program sees and loads, sorted. Of what may be a password, only
// the name.
func tellingVariables(env visible.Env) (lines []string) {
	for _, pair := range env {
		name, _, _ := strings.Cut(pair, "=")
		switch {
		case !isTelling(name):
		case slices.ContainsFunc([]string{"TOKEN", "SECRET", "PASS", "CREDENTIAL", "AUTH", "KEY", "PWD"}, func(w string) bool { return strings.Contains(name, w) }):
			lines = append(lines, name+"=(left out)")
		default:
			lines = append(lines, strings.ReplaceAll(pair, "\n", `\n`))
		}
	}
	slices.Sort(lines)
	return lines
}

func isTelling(name string) bool {
	exact := slices.Concat(visible.Variables(), []string{"PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LOCAL_RANK", "RANK", "WORLD_SIZE",
		"MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_LOCALID", "SLURM_PROCID", "SLURM_NTASKS", "LANG", "LC_ALL", "TERM", "KUBERNETES_SERVICE_PORT"})
	prefixes := []string{"CUDA_", "NVIDIA_", "NCCL_", "TORCH_", "PYTORCH_", "TF_", "XLA_", "JAX_", "ROCR_", "HIP_", "HSA_", "ROCM_", "ZE_", "SYCL_", "ONEAPI_", "OMP_", "MKL_",
		"OPENBLAS_", "ORT_", "CUPY_", "VLLM_", "GPUARD_"}
	_, known := compat.SuggestName(name)

	return known || slices.Contains(exact, name) || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

func logLines(log hostinfo.Answer[[]hostinfo.Error]) (lines []string) {
	if log.Problem != "" {
		return []string{"cannot be read: " + log.Problem}
	}
	for _, e := range log.Found {
		lines = append(lines, fmt.Sprintf("%s %s Xid %d", e.XID.At.Format(time.RFC3339), e.PCI, e.XID.Code))
	}
	if len(lines) == 0 {
		return []string{"none"}
	}

	return lines
}

// listState is what lies in the state folders, as ls -lR shows it.
func listState(state hostinfo.Answer[hostinfo.State]) (lines []string) {
	const most = 1000
	if state.Problem != "" {
		return []string{"not known: " + state.Problem}
	}

	for _, folder := range append([]string{state.Found.Folder}, state.Found.Others...) {
		if folder == "" {
			continue
		}
		_ = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				lines = append(lines, fmt.Sprintf("%s: %v", path, err))
				return nil //nolint:nilerr // it is told
			}
			if len(lines) >= most {
				lines = append(lines, "…")
				return fs.SkipAll
			}

			info, err := entry.Info()
			if err != nil {
				return nil //nolint:nilerr // it has gone since the folder was read
			}

			var uid uint32
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				uid = st.Uid
			}

			lines = append(lines, fmt.Sprintf("%s %d %d %s %s", info.Mode(), uid, info.Size(), info.ModTime().UTC().Format(time.RFC3339), path))

			return nil
		})
	}

	return lines
}

// systemLines says which program ran on what.
func systemLines(host *machine.Host, version string) []string {
	lines := []string{"gpuard " + version, "built with " + runtime.Version() + " for " + runtime.GOARCH}
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		lines = append(lines, "kernel "+strings.TrimSpace(string(kernel)))
	}

	release, err := os.ReadFile(filepath.Join("/", host.Root, "etc/os-release"))
	if err != nil {
		lines = append(lines, "distribution not known: "+err.Error())
	}

	for line := range strings.Lines(string(release)) {
		if name, _, _ := strings.Cut(line, "="); slices.Contains([]string{"ID", "VERSION_ID", "PRETTY_NAME"}, name) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}

	return lines
}

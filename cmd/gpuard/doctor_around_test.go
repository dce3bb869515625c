package main

import "testing"

// TestDoctorAround: what lies around a healthy machine's devices, seen by the whole program.
func TestDoctorAround(t *testing.T) {
	t.Parallel()
	spec := func(driver string) string {
		return "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ncontainerEdits:\n  mounts:\n  - hostPath: /usr/lib/libcuda.so." + driver + "\n    containerPath: /usr/lib/libcuda.so." + driver + "\ndevices:\n- name: \"0\"\n- name: \"1\"\n- name: all\n"
	}
	docker := func(w *doctorMachine, runtime, daemon string) {
		w.writeFile("usr/bin/nvidia-container-runtime-hook", "")
		w.writeFile("usr/bin/dockerd", "")
		w.writeFile("sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
		w.makeFolders("run/systemd/system")
		w.writeFile("etc/cdi/nvidia.yaml", spec("550.54.15"))
		w.writeFile("etc/nvidia-container-runtime/config.toml", runtime)
		w.writeFile("etc/docker/daemon.json", daemon)
	}
	const cgroupfs = `"exec-opts": ["native.cgroupdriver=cgroupfs"]`
	for _, test := range []struct {
		name    string
		prepare func(w *doctorMachine) (env []string)
		want    []string
		runs    string
		says    []string // in summary and next
	}{
		{"empty after conda deactivate", func(*doctorMachine) []string {
			return []string{"CUDA_VISIBLE_DEVICES=", "CONDA_EXE=/opt/conda/bin/conda"}
		}, []string{"error env-mask-empty"}, "false", []string{"unset CUDA_VISIBLE_DEVICES"}},
		{"one of two", func(*doctorMachine) []string { return []string{"CUDA_VISIBLE_DEVICES=1"} }, nil, "true", nil},
		{"a range", func(*doctorMachine) []string { return []string{"CUDA_VISIBLE_DEVICES=0-1"} }, []string{"warning env-mask-list"}, "true", nil},
		{"settings for finding errors", func(w *doctorMachine) []string {
			w.writeFile("etc/nccl.conf", "NCCL_SHM_DISABLE=1\n")
			return []string{"NCCL_P2P_DISABLE=1", "NCCL_DEBUG=INFO"}
		}, []string{"warning env-debug-left-on", "warning nccl-file"}, "true", nil},
		{"both fractions of JAX", func(*doctorMachine) []string {
			return []string{"XLA_CLIENT_MEM_FRACTION=.5", "XLA_PYTHON_CLIENT_MEM_FRACTION=.5"}
		}, []string{"error env-jax-fractions"}, "true", []string{"XLA_PYTHON_CLIENT_MEM_FRACTION"}},
		{"Docker as its packages and NVIDIA's install it", func(w *doctorMachine) []string {
			docker(w, "[nvidia-container-runtime]\nmode = \"auto\"\n", `{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}`)
			return nil
		}, nil, "true", nil},
		{"every container has every GPU", func(w *doctorMachine) []string {
			docker(w, "", `{"default-runtime": "nvidia", `+cgroupfs+`}`)
			return nil
		}, []string{"warning container-takes-all"}, "true", []string{"default-runtime", "restart docker"}},
		{"legacy hook beside systemd", func(w *doctorMachine) []string {
			docker(w, "[nvidia-container-runtime]\nmode = \"legacy\"\n", `{}`)
			return nil
		}, []string{"warning docker-cgroup-hook"}, "true", []string{"nvidia-ctk cdi list"}},
		{"CDI of the driver before", func(w *doctorMachine) []string {
			w.writeFile("etc/cdi/nvidia.yaml", spec("535.183.01"))
			return nil
		}, []string{"warning cdi-stale"}, "true", []string{"nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"}},
		{"a privileged container", func(w *doctorMachine) []string {
			w.writeFile(".dockerenv", "")
			return []string{"NVIDIA_VISIBLE_DEVICES=1"}
		}, []string{"warning container-gpus"}, "true", []string{"without --privileged"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newDoctorMachine(t, makeA100s(2)...)
			o := w.runDoctor(test.prepare(w))
			w.checkFindings(o, test.want...)
			if o.runsText() != test.runs {
				t.Errorf("runs: %s, want %s (%s)", o.runsText(), test.runs, o.Summary)
			}
			checkContains(t, o.Summary+"\n"+o.Next, test.says...)
		})
	}
}

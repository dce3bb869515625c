package main

import "testing"

// TestDoctorAround: what lies around a healthy machine's devices, seen by the whole program.
func TestDoctorAround(t *testing.T) {
	t.Parallel()
	spec := func(driver string) string {
		return "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ncontainerEdits:\n  mounts:\n  - hostPath: /usr/lib/libcuda.so." + driver + "\n    containerPath: /usr/lib/libcuda.so." + driver + "\ndevices:\n- name: \"0\"\n- name: \"1\"\n- name: all\n"
	}
	docker := func(w *patient, runtime, daemon string) {
		w.file("usr/bin/nvidia-container-runtime-hook", "")
		w.file("usr/bin/dockerd", "")
		w.file("sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
		w.folder("run/systemd/system")
		w.file("etc/cdi/nvidia.yaml", spec("550.54.15"))
		w.file("etc/nvidia-container-runtime/config.toml", runtime)
		w.file("etc/docker/daemon.json", daemon)
	}
	const cgroupfs = `"exec-opts": ["native.cgroupdriver=cgroupfs"]`
	for _, test := range []struct {
		name    string
		prepare func(w *patient) (env []string)
		want    []string
		runs    string
		says    []string // in summary and next
	}{
		{"empty after conda deactivate", func(*patient) []string {
			return []string{"CUDA_VISIBLE_DEVICES=", "CONDA_EXE=/opt/conda/bin/conda"}
		}, []string{"error env-mask-empty"}, "false", []string{"unset CUDA_VISIBLE_DEVICES"}},
		{"one of two", func(*patient) []string { return []string{"CUDA_VISIBLE_DEVICES=1"} }, nil, "true", nil},
		{"a range", func(*patient) []string { return []string{"CUDA_VISIBLE_DEVICES=0-1"} }, []string{"warning env-mask-list"}, "true", nil},
		{"settings for finding errors", func(w *patient) []string {
			w.file("etc/nccl.conf", "NCCL_SHM_DISABLE=1\n")
			return []string{"NCCL_P2P_DISABLE=1", "NCCL_DEBUG=INFO"}
		}, []string{"warning env-debug-left-on", "warning nccl-file"}, "true", nil},
		{"both fractions of JAX", func(*patient) []string {
			return []string{"XLA_CLIENT_MEM_FRACTION=.5", "XLA_PYTHON_CLIENT_MEM_FRACTION=.5"}
		}, []string{"error env-jax-fractions"}, "true", []string{"XLA_PYTHON_CLIENT_MEM_FRACTION"}},
		{"Docker as its packages and NVIDIA's install it", func(w *patient) []string {
			docker(w, "[nvidia-container-runtime]\nmode = \"auto\"\n", `{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}`)
			return nil
		}, nil, "true", nil},
		{"every container has every GPU", func(w *patient) []string {
			docker(w, "", `{"default-runtime": "nvidia", `+cgroupfs+`}`)
			return nil
		}, []string{"warning container-takes-all"}, "true", []string{"default-runtime", "restart docker"}},
		{"legacy hook beside systemd", func(w *patient) []string {
			docker(w, "[nvidia-container-runtime]\nmode = \"legacy\"\n", `{}`)
			return nil
		}, []string{"warning docker-cgroup-hook"}, "true", []string{"nvidia-ctk cdi list"}},
		{"CDI of the driver before", func(w *patient) []string {
			w.file("etc/cdi/nvidia.yaml", spec("535.183.01"))
			return nil
		}, []string{"warning cdi-stale"}, "true", []string{"nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"}},
		{"a privileged container", func(w *patient) []string {
			w.file(".dockerenv", "")
			return []string{"NVIDIA_VISIBLE_DEVICES=1"}
		}, []string{"warning container-gpus"}, "true", []string{"without --privileged"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newPatient(t, a100s(2)...)
			o := w.doctor(test.prepare(w))
			w.expect(o, test.want...)
			if o.runs() != test.runs {
				t.Errorf("runs: %s, want %s (%s)", o.runs(), test.runs, o.Summary)
			}
			contains(t, o.Summary+"\n"+o.Next, test.says...)
		})
	}
}

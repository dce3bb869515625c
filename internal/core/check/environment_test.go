package check

import (
	"strconv"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/job"
	"gpuard/internal/core/visible"
)

func TestEnvironment(t *testing.T) { see(t, environmentChecks(), environmentSightings()) }

// with is a machine with these NVIDIA models and an environment.
func with(env []string, models ...string) hostinfo.Site {
	var m gpu.Machine
	for i, name := range models {
		id := "GPU-" + strings.Repeat(strconv.Itoa(i), 8) + "-0000-0000-0000-000000000000"
		m.Devices = append(m.Devices, gpu.Device{Index: i, UUID: gpu.UUID(id), Name: name, Vendor: gpu.NVIDIA, PCI: "0000:0" + strconv.Itoa(i) + ":00.0", Compute: &gpu.Capability{Major: 8}})
	}
	return hostinfo.Site{Env: visible.Env(env), Machine: hostinfo.AnswerOf(m)}
}

// radeon is a machine with n GPUs of AMD.
func radeon(env []string, n int) hostinfo.Site {
	var m gpu.Machine
	for i := range n {
		m.Devices = append(m.Devices, gpu.Device{Index: i, UUID: gpu.UUID("GPU-123456781234567" + strconv.Itoa(i)), Name: "AMD Instinct MI210", Vendor: gpu.AMD, PCI: "0000:2" + strconv.Itoa(i) + ":00.0"})
	}
	return hostinfo.Site{Env: visible.Env(env), Machine: hostinfo.AnswerOf(m)}
}

// mixed is a machine with one GPU of NVIDIA and one of AMD.
func mixed(env []string) hostinfo.Site {
	s := with(env, "NVIDIA L4")
	s.Machine.Found.Devices = append(s.Machine.Found.Devices, radeon(nil, 1).Machine.Found.Devices...)
	return s
}

func limited(s hostinfo.Site, l hostinfo.Limits, container string) hostinfo.Site {
	s.Limits, s.Container = hostinfo.AnswerOf(l), container
	return s
}

func files(s hostinfo.Site, f ...hostinfo.NCCLFile) hostinfo.Site {
	s.NCCL = hostinfo.AnswerOf(f)
	return s
}

// without is a site where the drivers do not answer.
func without(env ...string) hostinfo.Site {
	return hostinfo.Site{Env: visible.Env(env), Machine: hostinfo.NoAnswer[gpu.Machine]("no driver")}
}

// bus is a site with these cards on the PCI bus.
func bus(s hostinfo.Site, vendors ...uint16) hostinfo.Site {
	var cards []hostinfo.Card
	for _, v := range vendors {
		cards = append(cards, hostinfo.Card{Vendor: v})
	}
	s.Cards = hostinfo.AnswerOf(cards)
	return s
}

func unbused(s hostinfo.Site) hostinfo.Site {
	s.Cards = hostinfo.NoAnswer[[]hostinfo.Card]("permission denied")
	return s
}

func environmentSightings() []sighting {
	const a100, rtx = "NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4090"
	two := []string{a100, a100}
	amd := hostinfo.Site{Env: visible.Env{"CUDA_VISIBLE_DEVICES=-1", "HIP_VISIBLE_DEVICES=0"}, Machine: hostinfo.AnswerOf(gpu.Machine{Devices: []gpu.Device{
		{UUID: "GPU-00000000-0000-0000-0000-000000000000", Name: a100, Vendor: gpu.NVIDIA}, {UUID: "GPU-1234567812345678", Name: "AMD Instinct MI210", Vendor: gpu.AMD},
	}})}
	return []sighting{
		{"env-mask-hides-all", "-1", with([]string{"CUDA_VISIBLE_DEVICES=-1"}, two...), Error},
		{"env-mask-hides-all", "number that is not there", with([]string{"CUDA_VISIBLE_DEVICES=2,0"}, two...), Error},
		{"env-mask-hides-all", "named twice", with([]string{"CUDA_VISIBLE_DEVICES=0,0"}, two...), Error},
		{"env-mask-hides-all", "the first counts", with([]string{"CUDA_VISIBLE_DEVICES=-1", "CUDA_VISIBLE_DEVICES=0"}, two...), Error},
		{"env-mask-hides-all", "inside gpuard run --cpu", with([]string{"CUDA_VISIBLE_DEVICES=-1", "GPUARD_LEASE=x1"}, two...), Error},
		{"env-mask-hides-all", "empty has a check of its own", with([]string{"CUDA_VISIBLE_DEVICES="}, two...), OK},
		{"env-mask-hides-all", "one left", with([]string{"CUDA_VISIBLE_DEVICES=1"}, two...), OK},
		{"env-mask-hides-all", "the other vendor left", amd, OK},
		{"env-mask-hides-all", "nothing set", with(nil, two...), OK},
		{"env-mask-hides-all", "no driver", without("CUDA_VISIBLE_DEVICES=-1"), Info},
		{"env-mask-hides-all", "driver without GPUs", with([]string{"CUDA_VISIBLE_DEVICES=-1"}), Info},
		{"env-mask-hides-all", "no driver, one device", without("CUDA_VISIBLE_DEVICES=0"), OK},
		{"env-mask-hides-all", "no driver, no mask", without(), OK},
		{"env-mask-empty", "after conda deactivate", with([]string{"CUDA_VISIBLE_DEVICES=", "CONDA_EXE=/opt/conda/bin/conda"}, two...), Error},
		{"env-mask-empty", "blank", with([]string{"CUDA_VISIBLE_DEVICES= "}, two...), Error},
		{"env-mask-empty", "of a vendor that is not here", with([]string{"ROCR_VISIBLE_DEVICES="}, two...), Info},
		{"env-mask-empty", "with a mask that hides", with([]string{"CUDA_VISIBLE_DEVICES=-1", "ROCR_VISIBLE_DEVICES="}, two...), Info},
		{"env-mask-empty", "of one vendor of two", mixed([]string{"ROCR_VISIBLE_DEVICES="}), Warning},
		{"env-mask-empty", "HIP's own", radeon([]string{"HIP_VISIBLE_DEVICES="}, 1), Error},
		{"env-mask-empty", "Ascend's", without("ASCEND_RT_VISIBLE_DEVICES="), Info},
		{"env-mask-empty", "HIP reads CUDA's", radeon([]string{"CUDA_VISIBLE_DEVICES="}, 2), Error},
		{"env-mask-empty", "no driver", without("CUDA_VISIBLE_DEVICES="), Info},
		{"env-mask-empty", "Intel's means all", with([]string{"ZE_AFFINITY_MASK="}, two...), OK},
		{"env-mask-empty", "not set", with([]string{"CONDA_EXE=/opt/conda/bin/conda"}, two...), OK},
		{"env-mask-list", "range", with([]string{"CUDA_VISIBLE_DEVICES=0-1"}, two...), Warning},
		{"env-mask-list", "quotes", with([]string{`CUDA_VISIBLE_DEVICES="0"`}, two...), Warning},
		{"env-mask-list", "too far", with([]string{"CUDA_VISIBLE_DEVICES=0,5"}, two...), Warning},
		{"env-mask-list", "word of containers", with([]string{"CUDA_VISIBLE_DEVICES=all"}, two...), Warning},
		{"env-mask-list", "so long that it counts as unset", with([]string{"CUDA_VISIBLE_DEVICES=" + strings.Repeat("0,", 2000)}, two...), Error},
		{"env-mask-list", "plain", with([]string{"CUDA_VISIBLE_DEVICES=1,0"}, two...), OK},
		{"env-mask-list", "-1", with([]string{"CUDA_VISIBLE_DEVICES=-1"}, two...), OK},
		{"env-mask-list", "identifier", with([]string{"CUDA_VISIBLE_DEVICES=GPU-00000000"}, two...), OK},
		{"env-mask-list", "no driver", bus(without("CUDA_VISIBLE_DEVICES=0"), 0x10de), Unknown},
		{"env-mask-list", "no GPU", bus(without("CUDA_VISIBLE_DEVICES=0")), OK},
		{"env-mask-list", "no driver, no mask", without(), OK},
		{"env-mask-misspelt", "no s", with([]string{"CUDA_VISIBLE_DEVICE=0"}, two...), Warning},
		{"env-mask-misspelt", "with the right one", with([]string{"CUDA_VISIBLE_DEVICE=0", "CUDA_VISIBLE_DEVICES=0"}, two...), Info},
		{"env-mask-misspelt", "right", with([]string{"CUDA_VISIBLE_DEVICES=0", "CUDA_HOME=/usr/local/cuda"}, two...), OK},
		{"env-device-order", "numbers on mixed models", with([]string{"CUDA_VISIBLE_DEVICES=0"}, a100, rtx), Warning},
		{"env-device-order", "unknown word", with([]string{"CUDA_DEVICE_ORDER=PCI"}, two...), Error},
		{"env-device-order", "left empty", with([]string{"CUDA_DEVICE_ORDER="}, two...), Error},
		{"env-device-order", "mixed models", with(nil, a100, rtx), Info},
		{"env-device-order", "mixed models by identifier", with([]string{"CUDA_VISIBLE_DEVICES=GPU-00000000"}, a100, rtx), Info},
		{"env-device-order", "mixed models, by address", with([]string{"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=0"}, a100, rtx), OK},
		{"env-device-order", "one model", with([]string{"CUDA_VISIBLE_DEVICES=0"}, two...), OK},
		{"env-device-order", "no driver, two cards", bus(without(), 0x10de, 0x10de), Unknown},
		{"env-device-order", "no driver, one card", bus(without(), 0x10de, 0x1a03), OK},
		{"env-device-order", "no driver, bus not read", unbused(without()), Unknown},
		{"env-device-order", "no GPU", bus(without()), OK},
		{"env-container-mask", "in place of CUDA's", with([]string{"NVIDIA_VISIBLE_DEVICES=0"}, two...), Warning},
		{"env-container-mask", "with CUDA's", with([]string{"NVIDIA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=0"}, two...), OK},
		{"env-container-mask", "of a lease", with([]string{"NVIDIA_VISIBLE_DEVICES=GPU-1", "GPUARD_LEASE=x1"}, two...), OK},
		{"env-container-mask", "inside", within(with([]string{"NVIDIA_VISIBLE_DEVICES=0"}, two...), "docker", hostinfo.Driver{}), OK},
		{"env-container-mask", "in a container that does not say so", with([]string{"NVIDIA_VISIBLE_DEVICES=2"}, a100), OK},
		{"env-container-mask", "no driver", bus(without("NVIDIA_VISIBLE_DEVICES=0"), 0x10de), Unknown},
		{"env-container-mask", "no GPU", bus(without("NVIDIA_VISIBLE_DEVICES=0")), OK},
		{"env-container-mask", "none", with([]string{"NVIDIA_VISIBLE_DEVICES=none"}, two...), Warning},
		{"env-container-mask", "all", with([]string{"NVIDIA_VISIBLE_DEVICES=all"}, two...), OK},
		{"env-jax-value", "no", with([]string{"XLA_PYTHON_CLIENT_PREALLOCATE=no"}), Warning},
		{"env-jax-value", "large letters", with([]string{"XLA_PYTHON_CLIENT_PREALLOCATE=FALSE"}), Warning},
		{"env-jax-value", "unknown allocator", with([]string{"XLA_PYTHON_CLIENT_ALLOCATOR=malloc"}), Error},
		{"env-jax-value", "known", with([]string{"XLA_PYTHON_CLIENT_PREALLOCATE=false", "XLA_PYTHON_CLIENT_ALLOCATOR=Platform"}), OK},
		{"env-jax-value", "as it is", with([]string{"XLA_PYTHON_CLIENT_PREALLOCATE=true"}), OK},
		{"env-old-name", "PyTorch's", with([]string{"NCCL_ASYNC_ERROR_HANDLING=1"}), Info},
		{"env-old-name", "both names", with([]string{"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "PYTORCH_ALLOC_CONF=expandable_segments:True"}), OK},
		{"env-old-name", "mask that no program reads", with([]string{"SYCL_DEVICE_FILTER=level_zero"}), Warning},
		{"env-old-name", "new names", with([]string{"TORCH_NCCL_ASYNC_ERROR_HANDLING=1", "PYTORCH_ALLOC_CONF=expandable_segments:True", "NCCL_SOCKET_IFNAME=eth0"}), OK},
		{"env-debug-left-on", "between GPUs", with([]string{"NCCL_P2P_DISABLE=1"}, two...), Warning},
		{"env-debug-left-on", "one GPU", with([]string{"NCCL_P2P_DISABLE=1"}, a100), Info},
		{"env-debug-left-on", "cards that cannot", with([]string{"NCCL_P2P_DISABLE=1"}, rtx, rtx), Info},
		{"env-debug-left-on", "cards that cannot, and need the way through memory", with([]string{"NCCL_SHM_DISABLE=1"}, rtx, rtx), Warning},
		{"env-debug-left-on", "one GPU left by the mask", with([]string{"NCCL_P2P_DISABLE=1", "CUDA_VISIBLE_DEVICES=1"}, two...), Info},
		{"env-debug-left-on", "between AMD's", radeon([]string{"NCCL_P2P_DISABLE=1"}, 2), Warning},
		{"env-debug-left-on", "one of AMD's", radeon([]string{"NCCL_P2P_DISABLE=1"}, 1), Info},
		{"env-debug-left-on", "unknown GPUs", bus(without("NCCL_P2P_DISABLE=1"), 0x10de), Warning},
		{"env-debug-left-on", "no GPU", bus(without("NCCL_P2P_DISABLE=1")), Info},
		{"env-debug-left-on", "blocking", with([]string{"CUDA_LAUNCH_BLOCKING=1"}, a100), Warning},
		{"env-debug-left-on", "log", with([]string{"NCCL_DEBUG=INFO"}, two...), Info},
		{"env-debug-left-on", "off", with([]string{"NCCL_P2P_DISABLE=0", "CUDA_LAUNCH_BLOCKING=0", "NCCL_DEBUG=WARN"}, two...), OK},
		{"env-jax-fractions", "both", with([]string{"XLA_CLIENT_MEM_FRACTION=.5", "XLA_PYTHON_CLIENT_MEM_FRACTION=.5"}), Error},
		{"env-jax-fractions", "new", with([]string{"XLA_CLIENT_MEM_FRACTION=.5"}), OK},
		{"env-jax-fractions", "none", with(nil), OK},
		{"nccl-file", "debugging left on", files(with(nil, two...), hostinfo.NCCLFile{Path: "/etc/nccl.conf", Settings: []string{"NCCL_P2P_DISABLE=1"}}), Warning},
		{"nccl-file", "the environment wins", files(with([]string{"NCCL_P2P_DISABLE=0"}, two...), hostinfo.NCCLFile{Path: "/etc/nccl.conf", Settings: []string{"NCCL_P2P_DISABLE=1"}}), Info},
		{"nccl-file", "old name", files(with(nil, two...), hostinfo.NCCLFile{Path: "/etc/nccl.conf", Settings: []string{"NCCL_TREE_THRESHOLD=0"}}), Info},
		{"nccl-file", "settings", files(with(nil, two...), hostinfo.NCCLFile{Path: "/etc/nccl.conf", Settings: []string{"NCCL_SOCKET_IFNAME=eth0"}}), Info},
		{"nccl-file", "missing", files(with(nil), hostinfo.NCCLFile{Path: "~/nccl.conf", Problem: "NCCL does not understand ~"}), Warning},
		{"nccl-file", "empty file", files(with(nil), hostinfo.NCCLFile{Path: "/etc/nccl.conf"}), OK},
		{"nccl-file", "none", files(with(nil)), OK},
		{"cpu-threads", "too many", limited(with([]string{"OMP_NUM_THREADS=64"}), hostinfo.Limits{CPUs: 8}, ""), Warning},
		{"cpu-threads", "no number", limited(with([]string{"MKL_NUM_THREADS=many"}), hostinfo.Limits{CPUs: 8}, ""), Warning},
		{"cpu-threads", "one of many", limited(with([]string{"OMP_NUM_THREADS=1"}), hostinfo.Limits{CPUs: 8}, ""), Info},
		{"cpu-threads", "fits", limited(with([]string{"OMP_NUM_THREADS=8,2", "MKL_NUM_THREADS=4"}), hostinfo.Limits{CPUs: 7.5}, ""), OK},
		{"cpu-threads", "not set", limited(with(nil), hostinfo.Limits{CPUs: 8}, ""), OK},
		{"cpu-threads", "processors not known", with([]string{"OMP_NUM_THREADS=64"}), Unknown},
		{"shared-memory", "Docker's own", limited(with(nil), hostinfo.Limits{Shm: new(64 * gpu.MiB), ShmFree: new(64 * gpu.MiB)}, "docker"), Warning},
		{"shared-memory", "full", limited(with(nil), hostinfo.Limits{Shm: new(32 * gpu.GiB), ShmFree: new(gpu.MiB)}, ""), Warning},
		{"shared-memory", "none", limited(with(nil), hostinfo.Limits{}, ""), Warning},
		{"shared-memory", "little in a container", limited(with(nil), hostinfo.Limits{Shm: new(512 * gpu.MiB), ShmFree: new(512 * gpu.MiB)}, "kubernetes"), Info},
		{"shared-memory", "little on a small machine", limited(with(nil), hostinfo.Limits{Shm: new(512 * gpu.MiB), ShmFree: new(512 * gpu.MiB)}, ""), OK},
		{"shared-memory", "no limit", limited(with(nil), hostinfo.Limits{Shm: new(gpu.Bytes(0)), ShmFree: new(gpu.Bytes(0))}, "podman"), OK},
		{"shared-memory", "Docker's own, without a GPU", limited(bus(without()), hostinfo.Limits{Shm: new(64 * gpu.MiB), ShmFree: new(64 * gpu.MiB)}, "docker"), Info},
		{"shared-memory", "Docker's own, with a GPU that does not answer", limited(bus(without(), 0x10de), hostinfo.Limits{Shm: new(64 * gpu.MiB), ShmFree: new(64 * gpu.MiB)}, "docker"), Warning},
		{"shared-memory", "enough", limited(with(nil), hostinfo.Limits{Shm: new(32 * gpu.GiB), ShmFree: new(31 * gpu.GiB)}, ""), OK},
		{"locked-memory", "InfiniBand", limited(with(nil), hostinfo.Limits{Memlock: new(8 * gpu.MiB), RDMA: []string{"mlx5_0"}}, ""), Info},
		{"locked-memory", "job of two machines", limited(with([]string{"SLURM_NNODES=2"}), hostinfo.Limits{Memlock: new(8 * gpu.MiB), RDMA: []string{"mlx5_0"}}, ""), Warning},
		{"locked-memory", "job of one machine", limited(with([]string{"SLURM_NNODES=1"}), hostinfo.Limits{Memlock: new(8 * gpu.MiB), RDMA: []string{"mlx5_0"}}, "docker"), Info},
		{"locked-memory", "a high limit", limited(with(nil), hostinfo.Limits{Memlock: new(64 * gpu.GiB), RDMA: []string{"mlx5_0"}}, ""), OK},
		{"locked-memory", "no such network", limited(with(nil), hostinfo.Limits{Memlock: new(64 * gpu.KiB)}, ""), OK},
		{"locked-memory", "no limit", limited(with(nil), hostinfo.Limits{RDMA: []string{"mlx5_0"}}, ""), OK},
	}
}

func TestMaskHidesAllSays(t *testing.T) {
	f := maskHidesAll().Look(with([]string{"CUDA_VISIBLE_DEVICES=-1"}, "NVIDIA L4"))[0]
	if f.Seen != "CUDA_VISIBLE_DEVICES=-1 hides the one GPU of this machine" || f.Do != "unset CUDA_VISIBLE_DEVICES" {
		t.Errorf("%+v", f)
	}
	if f = maskHidesAll().Look(with([]string{"CUDA_VISIBLE_DEVICES=-1"}, "NVIDIA L4", "NVIDIA L4"))[0]; !strings.Contains(f.Seen, "both GPUs") {
		t.Errorf("%+v", f)
	}
	if f = maskEmpty().Look(radeon([]string{"ROCR_VISIBLE_DEVICES=", "HIP_VISIBLE_DEVICES="}, 1))[0]; f.Seen != "ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES are set to the empty string" {
		t.Errorf("%+v", f)
	}
	for _, c := range []Check{maskHidesAll(), maskEmpty()} {
		if !c.Stops {
			t.Errorf("%s: programs run without a device", c.Code)
		}
	}
	f = maskHidesAll().Look(with([]string{"CUDA_VISIBLE_DEVICES=-1", "GPUARD_LEASE=x1"}, "NVIDIA L4"))[0]
	if !strings.Contains(f.Do, "--cpu") {
		t.Errorf("inside of a job without GPUs: %+v", f)
	}
	f = misspeltMask().Look(with([]string{"CUDA_VISIBLE_DEVICE=it's"}))[0]
	if f.Do != `unset CUDA_VISIBLE_DEVICE; export CUDA_VISIBLE_DEVICES='it'\''s'` {
		t.Errorf("%+v", f)
	}
}

func TestFirst(t *testing.T) {
	nine := strings.Split(strings.Repeat("A=1 ", 9), " ")[:9]
	if got := firstSettings(nine); got != strings.Repeat("A=1, ", 8)+"and 1 more" {
		t.Errorf("of nine: %q", got)
	}
	if got := firstSettings(nine[:8]); strings.Contains(got, "more") || len(firstSettings([]string{"B=" + strings.Repeat("x", 500)})) > 100 {
		t.Errorf("of eight: %q; or a long value is shown whole", got)
	}
}

// TestUnmask: a Slurm job that removes its mask would use devices that were given to others.
func TestUnmask(t *testing.T) {
	const a100 = "NVIDIA A100-SXM4-80GB"
	for name, c := range map[string]struct {
		env    []string
		models []string
		want   string
	}{
		"no job":           {[]string{"CUDA_VISIBLE_DEVICES=-1"}, []string{a100, a100}, "unset CUDA_VISIBLE_DEVICES"},
		"job without GPUs": {[]string{"CUDA_VISIBLE_DEVICES=NoDevFiles", "SLURM_JOB_ID=7"}, []string{a100, a100}, "ask Slurm for a GPU, as with sbatch --gpus=1"},
		"job with a GPU": {[]string{"CUDA_VISIBLE_DEVICES=3", "SLURM_JOB_ID=7", "SLURM_JOB_GPUS=3"}, []string{a100},
			"find what changes CUDA_VISIBLE_DEVICES after Slurm set it, as a profile or the job script, and take it out there"},
		"step with a GPU": {[]string{"CUDA_VISIBLE_DEVICES=3", "SLURM_JOB_ID=7", "SLURM_STEP_GPUS=3"}, []string{a100},
			"find what changes CUDA_VISIBLE_DEVICES after Slurm set it, as a profile or the job script, and take it out there"},
		"node that shows all": {[]string{"CUDA_VISIBLE_DEVICES=-1", "SLURM_JOB_ID=7", "SLURM_JOB_GPUS=1"}, []string{a100, a100},
			"find what changes CUDA_VISIBLE_DEVICES after Slurm set it, as a profile or the job script, and take it out there"},
	} {
		t.Run(name, func(t *testing.T) {
			if f := maskHidesAll().Look(with(c.env, c.models...))[0]; f.Severity != Error || f.Do != c.want {
				t.Errorf("%+v, want %q", f, c.want)
			}
		})
	}
}

// TestAdvice: the commands help and do no harm.
func TestAdvice(t *testing.T) {
	const a100 = "NVIDIA A100-SXM4-80GB"
	for name, c := range map[string]struct {
		check Check
		site  hostinfo.Site
		want  string
	}{
		"a slice by numbers, which CUDA does not know": {containerMask(), with([]string{"NVIDIA_VISIBLE_DEVICES=0:1"}, a100, a100),
			"where programs were meant, name the GPUs in CUDA_VISIBLE_DEVICES (nvidia-smi -L lists their identifiers)"},
		"a GPU by number": {containerMask(), with([]string{"NVIDIA_VISIBLE_DEVICES=1"}, a100, a100), "export CUDA_VISIBLE_DEVICES=1, where programs were meant"},
		"no GPU":          {containerMask(), with([]string{"NVIDIA_VISIBLE_DEVICES=none"}, a100, a100), "export CUDA_VISIBLE_DEVICES=-1, where programs were meant"},
		"older versions need the old name": {oldNames(), with([]string{"PYTORCH_CUDA_ALLOC_CONF=a:b"}, a100),
			"where no older version is in use: unset PYTORCH_CUDA_ALLOC_CONF; export PYTORCH_ALLOC_CONF=a:b"},
		"an empty mask in a job of Slurm": {maskEmpty(), with([]string{"CUDA_VISIBLE_DEVICES=", "SLURM_JOB_ID=7"}, a100), "ask Slurm for a GPU, as with sbatch --gpus=1"},
		"NCCL's file by ~":                {ncclFiles(), files(with([]string{"NCCL_CONF_FILE=~/n"}, a100), hostinfo.NCCLFile{Path: "~/n", Problem: "NCCL does not understand ~"}), "write the whole path into NCCL_CONF_FILE, without ~"},
		"a file that was not named":       {ncclFiles(), files(with(nil, a100), hostinfo.NCCLFile{Path: "/etc/nccl.conf", Problem: "permission denied"}), "mend or remove /etc/nccl.conf"},
		"processors not known":            {cpuThreads(), limited(with([]string{"OMP_NUM_THREADS=4"}), hostinfo.Limits{}, ""), ""},
		"the second counts":               {misspeltMask(), with([]string{"CUDA_VISIBLE_DEVICE=0", "CUDA_VISIBLE_DEVICES=1"}, a100, a100), "unset CUDA_VISIBLE_DEVICE"},
	} {
		t.Run(name, func(t *testing.T) {
			if f := c.check.Look(c.site)[0]; f.Do != c.want {
				t.Errorf("%q, want %q", f.Do, c.want)
			}
		})
	}
}

// TestEnvironmentOfAJob: the variables that gpuard itself gives a job are no finding.
func TestEnvironmentOfAJob(t *testing.T) {
	for _, kinds := range []string{"demo", "demo:2xL4+1xT4", "demo:2xA100-80GB+2xMI300X", "demo:2xMI250X"} {
		m, err := gpu.InventMachine(kinds)
		if err != nil {
			t.Fatal(err)
		}
		for i := range m.Devices {
			for _, form := range []job.IDs{job.AutoIDs, job.UUIDs, job.IndexIDs} {
				d := m.Devices[i]
				env := visible.Env{"GPUARD_LEASE=x1"}
				for _, v := range visible.TargetVars([]visible.Target{{Index: d.Index, UUID: d.UUID, Vendor: d.Vendor}}, form, m) {
					if !v.Unset {
						env = append(env, v.Name+"="+v.Value)
					}
				}
				for _, c := range environmentChecks() {
					for _, f := range c.Look(hostinfo.Site{Env: env, Machine: hostinfo.AnswerOf(m), Limits: hostinfo.AnswerOf(hostinfo.Limits{Shm: new(gpu.GiB), CPUs: 4})}) {
						if f.Severity.Bad() {
							t.Errorf("%s, GPU %d by %s: %+v in %q", kinds, i, form, f, env)
						}
					}
				}
			}
		}
	}
}

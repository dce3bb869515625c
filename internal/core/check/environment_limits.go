package check

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/shellquote"
)

const ncclTroubles = "NVIDIA/nccl: docs/userguide/source/troubleshooting/runtime_and_mpi_issues.rst"

func cpuThreads() Check {
	page := Page{
		Code: "cpu-threads", Title: "The number of threads for work on the CPU does not fit",
		Text: "`OMP_NUM_THREADS` and `MKL_NUM_THREADS` say how many threads numerical libraries start for what runs on the processor: data loading, and everything when a program falls back to it. More threads than processors make each wait for the other; one thread on a large machine makes the fallback very slow. `torchrun` sets `OMP_NUM_THREADS=1` for several processes on its own, which is meant.\n\n" +
			"Leave the variables out, or set them to the processors of one process.",
		From: []string{"https://gcc.gnu.org/onlinedocs/libgomp/OMP_005fNUM_005fTHREADS.html", "https://docs.pytorch.org/docs/stable/threading_environment_variables.html"},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		var found []Finding
		for _, name := range []string{"OMP_NUM_THREADS", "MKL_NUM_THREADS"} {
			value, _ := s.Env.Lookup(name)
			if value == "" {
				continue
			}

			// OpenMP: one number for each level of nesting.
			first, _, _ := strings.Cut(value, ",")
			n, err := strconv.Atoi(strings.TrimSpace(first))
			switch {
			case err != nil || n < 1:
				found = append(found, Finding{page.Code, Warning, name + "=" + shellquote.Sh(value) + " is no number of threads", "the library takes its own choice in place of it", "unset " + name})
			case s.Limits.Problem != "" || s.Limits.Found.CPUs <= 0:
				found = append(found, unknownFinding(page.Code, "how many processors "+name+" could use", cmp.Or(s.Limits.Problem, "the kernel does not say"), "")...)
			case float64(n) > math.Ceil(s.Limits.Found.CPUs):
				found = append(found, Finding{page.Code, Warning, fmt.Sprintf("%s=%d, with %s", name, n, processorsText(s.Limits.Found.CPUs)), "the threads wait for each other, which is slower than fewer of them", "unset " + name})
			case n == 1 && s.Limits.Found.CPUs >= 4:
				found = append(found, Finding{page.Code, Info, fmt.Sprintf("%s=1, with %s", name, processorsText(s.Limits.Found.CPUs)), "what runs on the processor uses one of them", "unset " + name + ", unless many processes share the machine"})
			}
		}
		if found == nil {
			return okFinding(page.Code, "the libraries choose the number of threads, or it fits")
		}

		return found
	}}
}

func processorsText(n float64) string {
	if n == 1 {
		return "1 processor"
	}
	return strconv.FormatFloat(n, 'g', 4, 64) + " processors"
}

// Sizes of shared memory that cause trouble: Docker gives 64 MiB by default (docker run --shm-size), and NVIDIA asks
// for 1 GiB for its own images.
const (
	shmOfDocker = 64 * gpu.MiB
	shmAdvised  = gpu.GiB
)

func sharedMemory() Check {
	page := Page{
		Code: "shared-memory", Title: "/dev/shm is too small or full",
		Text: "Processes of one job hand each other data in `/dev/shm`: PyTorch's data loader with several workers, NCCL between GPUs without a direct way. Docker and Podman give a container 64 MiB of it, Kubernetes too; then a program ends with a bus error (SIGBUS), or NCCL cannot make its buffers.\n\n" +
			"Start the container with more (`docker run --shm-size=8g`, or `--ipc=host`; in Kubernetes an `emptyDir` with `medium: Memory` at `/dev/shm`). On a machine itself, look for what fills it: `ls -l /dev/shm`.",
		From: []string{ncclTroubles, "https://docs.docker.com/reference/cli/docker/container/run/", "https://docs.pytorch.org/docs/stable/multiprocessing.html"},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		l := s.Limits.Found
		const why = "data loaders with several workers end with a bus error, and NCCL cannot make its buffers"
		do, severity := "see what fills it: ls -l /dev/shm", Warning
		if hasNoGPU(s) && s.Machine.Problem != "" {
			// Without a GPU, no job needs it.
			severity = Info
		}

		switch s.Container {
		case "":
		case "kubernetes":
			do = "mount an emptyDir with medium: Memory at /dev/shm"
		default:
			do = "start the container with --shm-size=8g, or with --ipc=host"
		}

		switch {
		case s.Limits.Problem != "":
			return unknownFinding(page.Code, "/dev/shm", s.Limits.Problem, "")
		case l.Shm == nil:
			return []Finding{{page.Code, severity, "there is no /dev/shm", why, "mount it: mount -t tmpfs shm /dev/shm"}}
		case *l.Shm == 0:
			return okFinding(page.Code, "/dev/shm has no limit of its own")
		case *l.Shm <= shmOfDocker:
			return []Finding{{page.Code, severity, "/dev/shm holds " + l.Shm.String(), why, do}}
		case l.ShmFree != nil && *l.ShmFree < shmOfDocker:
			return []Finding{{page.Code, severity, fmt.Sprintf("/dev/shm is full: %s of %s are free", l.ShmFree, l.Shm), why, "see what fills it: ls -l /dev/shm"}}
		case s.Container != "" && *l.Shm < shmAdvised:
			return []Finding{{page.Code, Info, "/dev/shm holds " + l.Shm.String(), "data loaders with many workers need more", do}}
		}

		return okFinding(page.Code, "/dev/shm holds "+l.Shm.String())
	}}
}

func lockedMemory() Check {
	page := Page{
		Code: "locked-memory", Title: "The limit of locked memory is too low for the network",
		Text: "InfiniBand and RoCE move data without the processor, from memory that a program must lock (`ulimit -l`). With a limit NCCL cannot register its buffers and falls back to TCP, or fails. On a machine without such a network the limit does not matter for GPUs.\n\n" +
			"Raise it: `--ulimit memlock=-1` for a container, `LimitMEMLOCK=infinity` in a systemd unit, `* - memlock unlimited` in `/etc/security/limits.d` for logins.",
		From: []string{ncclTroubles},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		l := s.Limits.Found
		do := "ulimit -l unlimited, or raise it in /etc/security/limits.d"
		if s.Container != "" {
			do = "start the container with --ulimit memlock=-1"
		}

		switch {
		case s.Limits.Problem != "":
			return unknownFinding(page.Code, "the limit of locked memory", s.Limits.Problem, "")
		case l.Memlock == nil:
			return okFinding(page.Code, "memory may be locked without limit")
		case len(l.RDMA) == 0:
			return okFinding(page.Code, "at most "+l.Memlock.String()+" of memory may be locked, and no network here needs more")
		case *l.Memlock < gpu.GiB:
			// Jobs on one machine do not use the network.
			severity := Info
			if severalMachines(s) {
				severity = Warning
			}
			return []Finding{{page.Code, severity, fmt.Sprintf("at most %s of memory may be locked, and %s needs it", l.Memlock, strings.Join(l.RDMA, ", ")), "a job over several machines cannot register its buffers with the network card: NCCL fails, or falls back to TCP", do}}
		}

		return okFinding(page.Code, "at most "+l.Memlock.String()+" of memory may be locked")
	}}
}

// severalMachines reports whether this shell belongs to a Slurm job on more than one machine.
func severalMachines(s hostinfo.Site) bool {
	for _, name := range []string{"SLURM_JOB_NUM_NODES", "SLURM_NNODES"} {
		value, _ := s.Env.Lookup(name)
		if n, err := strconv.Atoi(value); err == nil && n > 1 {
			return true
		}
	}
	return false
}

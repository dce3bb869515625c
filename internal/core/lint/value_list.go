package lint

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/check"
	"gpuard/internal/core/gpu"
)

const (
	cudaGuide   = "https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html"
	torchMasks  = "pytorch/pytorch: test/test_cuda_nvml_based_avail.py, written to match driver 525"
	hipSource   = "ROCm/clr: rocclr/device/rocm/rocdevice.cpp"
	rocrSource  = "ROCm/ROCR-Runtime: runtime/hsa-runtime/core/runtime/amd_filter_device.cpp"
	toolkitPage = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"
)

// maskRules are about the lists of devices in variables, one rule for each way in which a list goes wrong.
func maskRules() []Rule { return append(slices.Concat(shapeRules(), wordRules()), showsAllRule()) }

// shapeRules are about how entries are put together.
func shapeRules() []Rule {
	return []Rule{
		maskRule(Rule{
			Page: check.Page{
				Code: codeRange, Title: "A range in a list of devices",
				Text: "No variable that chooses GPUs knows ranges. The CUDA driver reads a number and ignores what follows it, so `0-3` is GPU 0 alone " +
					"and the other three stay idle; AMD's runtime stops at such an entry and shows nothing; a container with such a list does not start.\n\n" +
					"Write every number: `CUDA_VISIBLE_DEVICES=0,1,2,3`.",
				From: []string{torchMasks, hipSource, toolkitPage},
			},
			Bad:  []Example{{"train.sh", "export CUDA_VISIBLE_DEVICES=0-3\npython train.py\n"}, {"train.sh", "HIP_VISIBLE_DEVICES='0..3' python train.py\n"}},
			Good: []Example{{"train.sh", "export CUDA_VISIBLE_DEVICES=0,1,2,3\npython train.py\n"}, {"bind.sh", "export OMP_PLACES=0-3\nnumactl --physcpubind=0-3 python train.py\n"}},
		}, "no runtime knows ranges"),
		maskRule(Rule{
			Page: check.Page{
				Code: codeSeparators, Title: "Something else than single commas between devices",
				Text: "Only a comma separates devices. What follows a number is ignored, so `0 1`, `0;1` and `0，1`, with the wide comma of a Chinese input method, are GPU 0 alone, and the list ends at an empty entry: `0,,1` is GPU 0 alone.",
				From: []string{torchMasks, hipSource, toolkitPage},
			},
			Bad:  []Example{{"train.sh", "export CUDA_VISIBLE_DEVICES=\"0 1\"\npython train.py\n"}, {"train.sh", "export CUDA_VISIBLE_DEVICES='0;1'\npython train.py\n"}, {"train.sh", "export CUDA_VISIBLE_DEVICES=0,,1\npython train.py\n"}},
			Good: []Example{{"train.sh", "export CUDA_VISIBLE_DEVICES=\"0, 1\"\npython train.py\n"}, {"train.sh", "GPUS=\"0 1\"\nfor g in $GPUS; do CUDA_VISIBLE_DEVICES=$g python eval.py; done\n"}},
		}, "only single commas separate devices"),
		maskRule(Rule{
			Page: check.Page{
				Code: codeQuotes, Title: "Quotation marks inside a list of devices",
				Text: "Somewhere two sorts of quotation marks met, or a format was used that keeps them: in a list item of a Compose file, in an env file and in a systemd unit `NAME=\"0\"` " +
					"does not mean what it means in a shell. The marks become part of the value, no number begins with one, and no GPU is visible.",
				From: []string{"pytorch/pytorch: torch/cuda/__init__.py, _parse_visible_devices", toolkitPage},
			},
			Bad:  []Example{{"train.sh", "export CUDA_VISIBLE_DEVICES='\"0,1\"'\npython train.py\n"}},
			Good: []Example{{"train.sh", "export CUDA_VISIBLE_DEVICES=\"0,1\"\npython train.py\n"}},
		}, "the quotation marks are part of the value, and no device begins with one"),
	}
}

// wordRules are about what an entry is.
func wordRules() []Rule {
	return []Rule{
		maskRule(Rule{
			Page: check.Page{
				Code: codeDuplicate, Title: "A device twice in a list",
				Text: "When CUDA finds a device named twice, the whole list counts as empty: `0,0` hides every GPU, it does not show one twice. ROCm ends the list there.\n\n" +
					"To run several processes on one GPU, give each process the same list with one entry; a process sees a device once.",
				From: []string{torchMasks, rocrSource},
			},
			Bad:  []Example{{"train.sh", "export CUDA_VISIBLE_DEVICES=0,1,1\npython train.py\n"}},
			Good: []Example{{"train.sh", "CUDA_VISIBLE_DEVICES=0 python a.py &\nCUDA_VISIBLE_DEVICES=0 python b.py &\nwait\n"}},
		}, "a device named twice ends or empties the list"),
		maskRule(Rule{
			Page: check.Page{
				Code: codeMixed, Title: "Numbers and identifiers in one list",
				Text: "A list is either of numbers or of identifiers (`GPU-…`, `MIG-…`): the first entry decides, and the list ends at the first entry of the other kind.",
				From: []string{torchMasks},
			},
			Bad:  []Example{{"train.sh", "export CUDA_VISIBLE_DEVICES=0,GPU-9942190a\npython train.py\n"}},
			Good: []Example{{"train.sh", "export CUDA_VISIBLE_DEVICES=GPU-9942190a,GPU-9e8d35e3\npython train.py\n"}},
		}, "a list of numbers ends at the first identifier, and the other way round"),
		maskRule(Rule{
			Page: check.Page{
				Code: codeSpaces, Title: "A blank in a list that must have none",
				Text: "CUDA passes over blanks before numbers, and others do not: the list of `HIP_VISIBLE_DEVICES` ends at an entry with a blank, as does that of `ASCEND_RT_VISIBLE_DEVICES`, " +
					"and a blank before `GPU-` keeps PyTorch from reading an identifier.",
				From: []string{hipSource, "hiascend.com: CANN, ASCEND_RT_VISIBLE_DEVICES", "pytorch/pytorch: torch/cuda/__init__.py"},
			},
			Bad:  []Example{{"train.sh", "export HIP_VISIBLE_DEVICES=\"0, 1\"\npython train.py\n"}, {"train.sh", "export ASCEND_RT_VISIBLE_DEVICES='0, 1'\npython train.py\n"}},
			Good: []Example{{"train.sh", "export CUDA_VISIBLE_DEVICES=\"0, 1\"\npython train.py\n"}, {"train.sh", "export HIP_VISIBLE_DEVICES=0,1\npython train.py\n"}},
		}, "this runtime does not pass over blanks"),
		maskRule(Rule{
			Page: check.Page{
				Code: codeOrder, Title: "Numbers that must rise",
				Text: "The numbers of `ASCEND_RT_VISIBLE_DEVICES` must rise: CANN's list ends at a number that is not above the one before. Elsewhere the order is free, and it is the order in which a program counts its devices.",
				From: []string{"hiascend.com: CANN, ASCEND_RT_VISIBLE_DEVICES"},
			},
			Bad:  []Example{{"train.sh", "export ASCEND_RT_VISIBLE_DEVICES=1,0\npython train.py\n"}},
			Good: []Example{{"train.sh", "export ASCEND_RT_VISIBLE_DEVICES=0,1\npython train.py\n"}, {"train.sh", "export CUDA_VISIBLE_DEVICES=1,0\npython train.py\n"}},
		}, "CANN's list ends at a number that is not above the one before"),
		maskRule(Rule{
			Page: check.Page{
				Code: codeNoDevice, Title: "A word instead of a device",
				Text: "The list takes numbers, as in `0,1`, or identifiers as `nvidia-smi -L` prints them. A word such as `gpu0`, `cuda:0` or `all` is neither: the list ends there, and when it is the first word no GPU is visible. " +
					"`all`, `none` and `void` are words of `NVIDIA_VISIBLE_DEVICES`, which is read by container runtimes.\n\n" +
					"All GPUs: leave the variable out. No GPU: `-1`.",
				From: []string{cudaGuide, "pytorch/pytorch: torch/cuda/__init__.py, _parse_visible_devices", toolkitPage},
			},
			Bad: []Example{{"train.sh", "export CUDA_VISIBLE_DEVICES=all\npython train.py\n"}, {"train.sh", "export CUDA_VISIBLE_DEVICES=cuda:0,cuda:1\npython train.py\n"},
				{"train.sh", "export CUDA_VISIBLE_DEVICES=none\npython train.py\n"}, {"train.sh", "export HIP_VISIBLE_DEVICES=gpu0\npython train.py\n"}},
			Good: []Example{{"train.sh", "export CUDA_VISIBLE_DEVICES=\npython train.py\n"}, {"train.sh", "export CUDA_VISIBLE_DEVICES=-1\npython train.py\n"},
				{"train.sh", "export CUDA_VISIBLE_DEVICES=MIG-8932f937-d72c-4106-c12f-20bd9faed9f6\npython train.py\n"}, {"train.sh", "export NVIDIA_VISIBLE_DEVICES=all\nnvidia-container-cli info\n"}},
		}, "it is neither a number nor an identifier"),
	}
}

// showsAllRule is about values that the driver ignores.
func showsAllRule() Rule {
	return maskRule(Rule{
		Page: check.Page{
			Code: codeShowsAll, Title: "A value that shows every GPU",
			Text: "NVIDIA's driver ignores such a value, and the program uses the GPUs of others: one of 1,024 bytes and more counts as unset (since driver 550 one of 2,625), and before driver 550 a list that begins with `MIG-` and names no MIG device " +
				"shows every GPU that is not split. NVIDIA's guides do not say so: libcuda 470 to 555 were observed.\n\n" +
				"Write the identifier of a MIG device as `nvidia-smi -L` prints it, all of it and in small letters; or numbers, which are short.",
			From: []string{cudaGuide, "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/"},
		},
		Bad:  []Example{{"train.sh", "export CUDA_VISIBLE_DEVICES=MIG-8932f937\npython train.py\n"}, {"train.sh", "export CUDA_VISIBLE_DEVICES=MIG-8932F937-D72C-4106-C12F-20BD9FAED9F6\npython train.py\n"}},
		Good: []Example{{"train.sh", "export CUDA_VISIBLE_DEVICES=MIG-8932f937-d72c-4106-c12f-20bd9faed9f6\npython train.py\n"}, {"train.sh", "export CUDA_VISIBLE_DEVICES=GPU-9942190a\npython train.py\n"}},
	}, "the driver ignores what it cannot read so")
}

// maskRule makes the Look of a rule: the faults of its code.
func maskRule(r Rule, why string) Rule {
	r.Severity = check.Error
	r.Look = func(file File) (all []Finding) {
		eachSet(file, func(s Step) {
			m, known := listNamed(s.Name)
			if !known {
				return
			}
			f, wrong := m.fault(s.Value.Text)
			if !wrong || f.code != r.Code {
				return
			}
			shows, bad := m.shows(s.Value.Text)
			if bad {
				all = append(all, maskFinding(r, s, f, shows, why))
			}
		})
		return all
	}
	return r
}

func maskFinding(r Rule, s Step, f fault, shows, why string) Finding {
	severity := r.Severity
	var do string
	switch {
	case f.hides && s.Name == container:
		do = "to give the container no GPU, write " + container + "=none"
	case f.hides:
		severity, do = check.Warning, "to hide every GPU, write "+s.Name+"=-1"
	case f.better != "":
		do = "write " + s.Name + "=" + f.better
	case f.code == codeNoDevice && strings.EqualFold(strings.TrimSpace(s.Value.Text), "all"):
		do = "to use all GPUs, leave " + s.Name + " out"
	default:
		do = "write numbers with single commas between them, such as " + s.Name + "=0,1"
		if m, known := listNamed(s.Name); known && m.vendor == gpu.NVIDIA {
			do += ", or identifiers of nvidia-smi -L"
		}
	}
	if f.code == codeMixed {
		do = "write numbers only, or identifiers only (nvidia-smi -L shows both)"
	}
	if f.code == codeShowsAll {
		do = "write the identifier of a MIG device as nvidia-smi -L prints it, or numbers"
		if len(s.Value.Text) >= unsetFrom {
			why, do = fmt.Sprintf("from %d bytes on drivers take it for unset", unsetFrom), "write numbers, or fewer devices"
		}
	}
	if f.code == codeDuplicate {
		do = "name each device once"
	}
	return valued(r, severity, s, assigned(s)+" "+shows, why, do, f.better)
}

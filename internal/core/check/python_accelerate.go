package check

import (
	"fmt"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/option"
	"gpuard/internal/core/shellquote"
)

func accelerateGPUs() Check {
	page := Page{
		Code: "accelerate-gpu-ids", Title: "accelerate's settings choose GPUs themselves",
		Text: option.Expand("`accelerate config` asks for the GPUs of this machine and writes the answer as `gpu_ids` into `~/.cache/huggingface/accelerate/default_config.yaml` (`HF_HOME` and `XDG_CACHE_HOME` move it). With any other value than `all`, `accelerate launch` sets `CUDA_VISIBLE_DEVICES` to it and so replaces what gpuard has set for the job, which then runs on GPUs that others have leased.\n\n" +
			"Remove the line, or set it to `all`: gpuard gives the job its GPUs. `num_processes` of the same file is then for other GPUs, too: `{gpuard run} {gpus=2} -- accelerate launch --num_processes 2` gives it with the command. A file that `--config_file` names and the option `--gpu_ids` have the same effect."),
		From: []string{"huggingface/accelerate: src/accelerate/utils/launch.py", "huggingface/accelerate: src/accelerate/commands/launch.py", "huggingface/accelerate: src/accelerate/commands/config/config_args.py"},
	}
	return Check{Page: page, Look: inPythons(page.Code, "accelerate's settings choose no GPUs", []string{"accelerate"}, func(s hostinfo.Site, p hostinfo.Python) []Finding {
		_, found := findPackage(p, "accelerate")
		f := s.Accelerate.Found
		switch {
		case !found:
			return nil
		case s.Accelerate.Problem != "":
			return []Finding{{Severity: Unknown, Seen: "the settings of accelerate launch cannot be read: " + s.Accelerate.Problem}}
		case f.GPUIDs == "" || f.GPUIDs == "all":
			return nil
		}

		severity := Warning
		if !hasVendor(s, gpu.NVIDIA) && !hasVendor(s, gpu.AMD) {
			// It counts where the job runs.
			severity = Info
		}

		return []Finding{{Severity: severity, Seen: fmt.Sprintf("accelerate launch takes its GPUs from %s, line %d: gpu_ids: %s", shellquote.Sh(f.Path), f.Line, shellquote.Sh(f.GPUIDs)),
			Why: "it replaces the CUDA_VISIBLE_DEVICES of a lease, and the job runs on other GPUs than it was given", Do: option.Expand("remove that line, or set gpu_ids to all: gpuard already gives the job its GPUs; and give num_processes with the command, as many as GPUs: {gpuard run} {gpus=2} -- accelerate launch --num_processes 2")}}
	})}
}

package claim

import (
	"strings"
	"testing"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/job"
)

// TestListsInScript: a list that the text for a shell sets whatever happens, and what only looks like one.
func TestListsInScript(t *testing.T) {
	for script, want := range map[string]bool{
		"CUDA_VISIBLE_DEVICES=0 python x.py":                                  true,
		"cd /data && export CUDA_VISIBLE_DEVICES=0,1; python x.py":            true,
		"CUDA_VISIBLE_DEVICES= python tokenize.py && python x.py":             false,
		"CUDA_VISIBLE_DEVICES=$LOCAL_RANK python x.py":                        false,
		"CUDA_VISIBLE_DEVICES=GPU-$U python x.py":                             false,
		"echo CUDA_VISIBLE_DEVICES=0":                                         false,
		"grep CUDA_VISIBLE_DEVICES=0 run.log":                                 false,
		"# CUDA_VISIBLE_DEVICES=0 was wrong\npython x.py":                     false,
		"cat <<X\nCUDA_VISIBLE_DEVICES=0 python x.py\nX":                      false,
		"python x.py --env CUDA_VISIBLE_DEVICES=0":                            false,
		"docker run -e CUDA_VISIBLE_DEVICES=0 --gpus device=$GPUARD_GPUS img": false,
		"if test $1; then export CUDA_VISIBLE_DEVICES=0; fi; python x.py":     false,
		"if":                                     false,
		"env CUDA_VISIBLE_DEVICES=0 python t.py": true,
		"cd /data; accelerate launch --gpu_ids 0,1 t.py":             true,
		"ssh box nvidia-smi; python t.py":                            false,
		"for i in 0 1; do CUDA_VISIBLE_DEVICES=$i python t.py; done": false,
	} {
		found := doubtsInScript([]string{"nohup", "bash", "-lc", script}, 1)
		if (len(found) > 0) != want {
			t.Errorf("%s: %+v", script, found)
		}
	}
	for _, command := range [][]string{{"bash", "script.sh", "-c", "CUDA_VISIBLE_DEVICES=0 x"}, {"python", "-c", "CUDA_VISIBLE_DEVICES=0"}, {"bash"}, {}} {
		if found := doubtsInScript(command, 1); found != nil {
			t.Errorf("%q: %+v", command, found)
		}
	}
}

// TestInstead: what is said to type has the GPUs that the command named, unless others are named already.
func TestInstead(t *testing.T) {
	for _, c := range []struct {
		spec    job.Spec
		command string
		start   string
		want    string
	}{
		{job.Spec{GPUs: 1}, "env CUDA_VISIBLE_DEVICES=0 mtools", "gpuard run", "it sets CUDA_VISIBLE_DEVICES=0 itself; type: gpuard run --device 0 -- mtools (or start it so with --anyway)"},
		{job.Spec{Devices: []string{"1"}}, "env CUDA_VISIBLE_DEVICES=0 mtools", "gpuard run …", "type: gpuard run … -- mtools (or"},
		{job.Spec{GPUs: 1}, "accelerate launch --gpu_ids 0,1 t.py", "gpuard submit", "type: gpuard submit --device 0,1 -- accelerate launch t.py (or"},
		{job.Spec{GPUs: 1}, "deepspeed --num_gpus 4 t.py", "gpuard run", "type: gpuard run --gpus 4 -- deepspeed t.py (or"},
		{job.Spec{GPUs: 1}, "deepspeed --include localhost:2 t.py", "gpuard run", "type: gpuard run --device 2 -- deepspeed t.py (or"},
		{job.Spec{CPU: true}, "env CUDA_VISIBLE_DEVICES=0 python t.py", "gpuard run …", "cannot hide the GPUs from this command: it sets CUDA_VISIBLE_DEVICES=0 itself; type: gpuard run … -- python t.py"},
		{job.Spec{GPUs: 1}, "ssh box python t.py", "gpuard run", "start gpuard there: ssh … gpuard run -- program (or"},
		{job.Spec{GPUs: 1}, "env CUDA_VISIBLE_DEVICES=0 mtools", "", "itself; leave that out (or start it so with --anyway, in gpuard.yaml anyway: true)"},
	} {
		_, err := CheckCommand(&machine.Host{}, c.spec, strings.Fields(c.command), c.start)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, not %q", c.command, err, c.want)
		}
	}
	remarks, err := CheckCommand(&machine.Host{}, job.Spec{GPUs: 1, Anyway: true}, []string{"env", "CUDA_VISIBLE_DEVICES=0", "x"}, "gpuard run")
	if err != nil || len(remarks) != 1 || remarks[0] != "the command sets CUDA_VISIBLE_DEVICES=0 itself: what it is given may stay unused" {
		t.Errorf("%q, %v", remarks, err)
	}
}

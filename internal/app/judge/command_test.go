package judge

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
		_, err := Command(&machine.Host{}, c.spec, strings.Fields(c.command), Place{Typed: c.start})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, not %q", c.command, err, c.want)
		}
	}
	remarks, err := Command(&machine.Host{}, job.Spec{GPUs: 1, Anyway: true}, []string{"env", "CUDA_VISIBLE_DEVICES=0", "x"}, Place{Typed: "gpuard run"})
	if err != nil || len(remarks) != 1 || remarks[0] != "the command sets CUDA_VISIBLE_DEVICES=0 itself: what it is given may stay unused" {
		t.Errorf("%q, %v", remarks, err)
	}
}

// TestBehindAWall: what surely leaves a lease that only variables keep is right behind a wall, or says less than it could, or is refused for
// another reason. auto may find no wall.
func TestBehindAWall(t *testing.T) {
	for _, c := range []struct {
		spec    job.Spec
		command []string
		remark  string
		refused string
	}{
		{job.Spec{GPUs: 1, Isolate: job.Namespace}, []string{"sh", "-c", "CUDA_VISIBLE_DEVICES=0 python t.py"}, "", ""},
		{job.Spec{GPUs: 1, Isolated: job.Landlock}, []string{"env", "CUDA_VISIBLE_DEVICES=0", "x"}, "", ""},
		{job.Spec{GPUs: 2, Isolate: job.Landlock}, []string{"sh", "-c", "CUDA_VISIBLE_DEVICES=0 a; CUDA_VISIBLE_DEVICES=0 b"}, "the command sets CUDA_VISIBLE_DEVICES=0 itself, and so uses no more than 1 of the GPUs that it is given; leave that out of the script", ""},
		{job.Spec{GPUs: 2, Isolate: job.Namespace}, []string{"sh", "-c", "CUDA_VISIBLE_DEVICES=0 a; CUDA_VISIBLE_DEVICES=2 b"}, "", "it sets CUDA_VISIBLE_DEVICES=2 itself, and can open 2 GPUs, numbers 0 to 1; leave that out of the script"},
		{job.Spec{Devices: []string{"3"}, Isolate: job.Namespace}, []string{"env", "CUDA_VISIBLE_DEVICES=3", "x"}, "", "and can open one GPU, number 0; type: gpuard run … -- x (or"},
		{job.Spec{GPUs: 1, Isolate: job.AutoIsolation}, []string{"env", "CUDA_VISIBLE_DEVICES=0", "x"}, "", "it sets CUDA_VISIBLE_DEVICES=0 itself; type"},
		{job.Spec{GPUs: 1, Isolate: job.Off}, []string{"env", "CUDA_VISIBLE_DEVICES=0", "x"}, "", "it sets CUDA_VISIBLE_DEVICES=0 itself; type"},
		{job.Spec{GPUs: 1, Isolate: job.Namespace}, []string{"docker", "exec", "c", "x"}, "", "docker"},
	} {
		remarks, err := Command(&machine.Host{}, c.spec, c.command, Place{Typed: "gpuard run …"})
		if strings.Join(remarks, "\n") != c.remark || (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%+v: %q: %q, %v", c.spec, c.command, remarks, err)
		}
	}
	_, err := Later(job.Spec{GPUs: 1}, []string{"env", "CUDA_VISIBLE_DEVICES=0", "x"}, Place{Typed: "gpuard export kubernetes", Away: true, Alone: true})
	if err != nil {
		t.Errorf("in a container: %v", err)
	}
	_, err = Later(job.Spec{GPUs: 1, Isolate: job.Namespace}, []string{"env", "CUDA_VISIBLE_DEVICES=0", "x"}, Place{Typed: "gpuard export slurm", Away: true})
	if err == nil {
		t.Error("a wall of this machine counts for Slurm")
	}
}

// TestLater: what is started later is judged alike, with the place that it stands in.
func TestLater(t *testing.T) {
	for _, c := range []struct {
		command string
		at      Place
		want    string
	}{
		{"env CUDA_VISIBLE_DEVICES=0 mtools", Place{Typed: "gpuard setup systemd … x"}, "type: gpuard setup systemd … x --device 0 -- mtools (or start it so with --anyway)"},
		{"env CUDA_VISIBLE_DEVICES=0 mtools", Place{Typed: "gpuard setup systemd … x", File: "x.service"}, "it sets CUDA_VISIBLE_DEVICES=0 itself; in x.service: leave that out (or start it so with --anyway)"},
		{"accelerate launch --gpu_ids 0,1 t.py", Place{Typed: "gpuard export slurm", Away: true}, "type: gpuard export slurm --gpus 2 -- accelerate launch t.py (or"},
		{"env CUDA_VISIBLE_DEVICES=3 mtools", Place{Typed: "gpuard export slurm", Away: true}, "type: gpuard export slurm -- mtools (or"},
	} {
		_, err := Later(job.Spec{GPUs: 1}, strings.Fields(c.command), c.at)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, not %q", c.command, err, c.want)
		}
	}
}

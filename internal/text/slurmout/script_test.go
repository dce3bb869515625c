package slurmout

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestScript: what #SBATCH lines ask for, as flags of gpuard submit, what Slurm alone can follow (> …), and what has no
// effect (| …).
func TestScript(t *testing.T) {
	for text, want := range map[string]string{
		"--gres=gpu:2 --array=0-3":                           "--gpus=2 --array=0-3",
		"--gres gpu:a100:4":                                  "--gpus=4 --model=*a100*",
		"--gres=gpu":                                         "--gpus=1",
		"--gres=nvme:100G,gpu:h100:2":                        "--gpus=2 --model=*h100* > --gres=nvme:100G",
		"--gres=shard:4":                                     "> --gres=shard:4",
		"-G 2 -N1 -t 30 -J train":                            "--gpus=2 --timeout=30m --name=train",
		"-Gv100:2 --time=1-12:00:00":                         "--gpus=2 --model=*v100* --timeout=36h",
		"--gpus-per-node=4 --nodes=1 --ntasks=1":             "--gpus=4",
		"--partition=gpu --mem=40G -c 8 # as the admins say": "> --partition=gpu --mem=40G --cpus-per-task=8",
		"-p gpu -A physics --constraint=[a100|h100]":         "> --partition=gpu --account=physics --constraint=[a100|h100]",
		"--account='my lab' --mail-user \"a # b\"":           "| --account=my lab --mail-user a # b",
		"--output=%j.txt --wait --export=ALL":                "> --output=%j.txt | --wait --export=ALL",
		"--array=0-15:4%2":                                   "--array=0,4,8,12%2",
		"--job-name='two words' --ntasks=4":                  "--name=two words > --cpus-per-task=4 | --ntasks=4 (the job is one task)",
		"--gres=gpu:0":                                       "--cpu",
		"--ntasks=4 --gpus-per-task=1":                       "--gpus=4 > --cpus-per-task=4 | --ntasks=4 (the job is one task)",
		"--ntasks=4 --gpus-per-task=1 -c8":                   "--gpus=4 > --cpus-per-task=32 | --ntasks=4 (the job is one task)",
		"--gres=gpu:nvidia_a100-sxm4-80gb:1":                 "--gpus=1 --model=*nvidia*a100-sxm4-80gb*",
		"--hold -G1":                                         "--gpus=1 --hold",
		"--exclusive":                                        "| --exclusive",
		"--requeue --signal=B:USR1@60":                       "> --requeue --signal=B:USR1@60",
		"--part=gpu --gpus-per-t=2":                          "--gpus=2 > --partition=gpu",
		"--gpu-per-node=2 --outptu=x":                        "| --gpu-per-node=2 (not one of sbatch itself; did you mean --gpus-per-node?) --outptu=x (not one of sbatch itself; did you mean --output?)",
		"--of-our-site=x":                                    "| --of-our-site=x",
		"--exclusive=user":                                   "> --exclusive=user",
		"--account --mail-user= --mem":                       "| --account --mail-user= --mem",
		"--account=a\u00a0b --qos=a\x01b":                    "| --account=a\u00a0b --qos=a\x01b",
		"--time=30 --time=UNLIMITED":                         "> --time=UNLIMITED",
		"--time=UNLIMITED --time=30":                         "--timeout=30m",
		"--time=UNLIMITED":                                   "> --time=UNLIMITED",
	} {
		a, err := ReadScript("#!/bin/bash\n#SBATCH " + text + "\n\npython train.py\n#SBATCH --gpus=9\n")
		got := strings.Join(a.Flags, " ")
		if len(a.Cluster) > 0 {
			got = strings.TrimSpace(got + " > " + strings.Join(a.Cluster, " "))
		}
		if len(a.Without) > 0 {
			got = strings.TrimSpace(got + " | " + strings.Join(a.Without, " "))
		}
		if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"--nodes=2":               "line 2: cannot read --nodes=2: a job of gpuard is on one machine",
		"--gpus=many:2:":          "line 2: cannot read --gpus=many:2:: write a number of GPUs",
		"--time=soon":             "line 2: cannot read --time=soon: write a time",
		"--array=a-b:2":           "line 2: cannot read --array=a-b:2: write numbers",
		"--array=4-2:1":           "line 2: cannot read --array=4-2:1: write numbers",
		"--gpus=a100:2,v100:1":    "line 2: cannot read --gpus=a100:2,v100:1: a job of gpuard has GPUs of one type",
		"--dependency=afterok:47": "line 2: cannot read --dependency=afterok:47: gpuard knows other jobs only by its own numbers",
		"--begin now+1hour":       "line 2: cannot read --begin now+1hour: gpuard knows",
		"-J":                      "line 2: cannot read -J: its value is empty",
		"-J 'x":                   "line 2: ",
	} {
		if _, err := ReadScript("#!/bin/bash\n#SBATCH " + text + "\n"); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	two, err := ReadScript("#SBATCH --gres=gpu:1\n#SBATCH --gres=gpu:2\n#SBATCHES --gpus=3\n##SBATCH --gpus=4\n")
	if err != nil || !slices.Equal(two.Flags, []string{"--gpus=2"}) {
		t.Errorf("%q, %v", two.Flags, err)
	}
}

func TestLimit(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90": 90 * time.Minute, "5:30": 5*time.Minute + 30*time.Second, "12:00:00": 12 * time.Hour, "2-4": 52 * time.Hour,
		"1-2:30": 26*time.Hour + 30*time.Minute, "1-00:00:01": 24*time.Hour + time.Second, "infinite": 0,
	} {
		if got, err := ParseLimit(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "x", "1-", "1:2:3:4", "-5", "1-x"} {
		if got, err := ParseLimit(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

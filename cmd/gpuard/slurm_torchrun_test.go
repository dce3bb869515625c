package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"gpuard/internal/gate"
	"gpuard/test/slurm"
)

// TestSlurmTorchrun: a job that a flag makes one of two processes is taken by a real Slurm as it was exported, and a real
// torchrun starts both on the two GPUs that Slurm gives.
func TestSlurmTorchrun(t *testing.T) {
	t.Parallel()
	gate.Need(t, "slurm", "root", "torch")
	c := newSlurmFixture(t, slurm.Options{GresFlags: "nvidia_gpu_env"})
	worker := "import os, sys\nwith open('rank' + os.environ['RANK'], 'w') as f:\n    f.write(' '.join([os.environ['WORLD_SIZE'], os.environ['LOCAL_RANK'], os.environ['CUDA_VISIBLE_DEVICES']] + sys.argv[1:]))\n"
	writeFile(t, filepath.Join(c.work, "worker.py"), worker, 0)
	// Debian's PyTorch 1.13 cannot read its own defaults of these two under Python 3.11, which no longer lists a flag of value 0.
	cmd := c.hastyCommand("export", "slurm", "--gpus", "2", "--torchrun", "--env", "PET_REDIRECTS=1", "--env", "PET_TEE=1", "--", "worker.py", "--epochs", "3")
	cmd.Dir = c.work
	script := runCommand(t, cmd)
	checkEqual(t, "export", script.code, 0)
	path := filepath.Join(c.work, "job.sh")
	writeFile(t, path, script.out, 0o700)
	got := runCommand(t, c.slurmCommand("sbatch", "--wait", "--output=log", path))
	if got.code != 0 {
		log, _ := os.ReadFile(filepath.Join(c.work, "log"))
		t.Fatalf("%+v\n%s\n%s", got, script.out, log)
	}
	for rank := range 2 {
		text, err := os.ReadFile(filepath.Join(c.work, fmt.Sprint("rank", rank)))
		if err != nil {
			t.Fatal(err)
		}
		checkEqual(t, fmt.Sprint("rank ", rank), string(text), fmt.Sprintf("2 %d 0,1 --epochs 3", rank))
	}
}

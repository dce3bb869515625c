package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/gate"
	"gpuard/test/slurm"
)

// slurmFixture is a real Slurm whose node has the devices of a rack.
type slurmFixture struct {
	*fakeDriverMachine
	slurm.Cluster
	work        string // the folder that is submitted from
	constrained bool
}

// newSlurmFixture makes one with four GPUs. What a job may not open, the fake driver does not show it.
func newSlurmFixture(t *testing.T, o slurm.Options) *slurmFixture {
	t.Helper()
	if o.GPUs = 4; o.Constrain {
		gate.Need(t, "cgroup1")
	}
	c := &slurmFixture{fakeDriverMachine: newFakeDriverMachine(t, makeA100s(o.GPUs)...), Cluster: slurm.Start(t, o), work: t.TempDir(), constrained: o.Constrain}
	for i := range o.GPUs {
		c.SetValue(i, "node", c.Device(i))
	}
	c.env = c.Cluster.Env //nolint:staticcheck // the rack has an Env, too
	return c
}

// slurmCommand is one of Slurm's commands, with the environment in which gpuard sees the rack.
func (c *slurmFixture) slurmCommand(name string, args ...string) *exec.Cmd {
	c.t.Helper()
	cmd := c.cmd()
	path, err := exec.LookPath(name)
	if err != nil {
		c.t.Fatal(err)
	}
	cmd.Path, cmd.Args, cmd.Dir, cmd.Err = path, append([]string{name}, args...), c.work, nil
	return cmd
}

// runBatchScript runs a script as a job, until its end, and returns what it wrote.
func (c *slurmFixture) runBatchScript(script string, args ...string) (string, int) {
	c.t.Helper()
	path := filepath.Join(c.work, "script")
	if err := os.WriteFile(path, []byte("#!/bin/bash\n"+script), 0o700); err != nil {
		c.t.Fatal(err)
	}
	got := runCommand(c.t, c.slurmCommand("sbatch", append([]string{"--wait", "--parsable", "--output=out-%j", "--ntasks=1", "--cpus-per-task=1", "--time=4"}, append(args, path)...)...))
	text, _ := os.ReadFile(filepath.Join(c.work, "out-"+strings.TrimSpace(got.out)))
	if got.err != "" {
		c.t.Logf("sbatch: %s", got.err)
	}
	return string(text), got.code
}

// occupyFirstGPUs occupies the first GPUs of the node, so that the numbers of the next job do not begin at 0.
func (c *slurmFixture) occupyFirstGPUs(gpus int) (job string) {
	c.t.Helper()
	out, err := c.Command("sbatch", "--parsable", "--output=/dev/null", fmt.Sprint("--gpus-per-node=", gpus), "--wrap=sleep 600").Output()
	if err != nil {
		c.t.Fatal(err)
	}
	job = strings.TrimSpace(string(out))
	c.t.Cleanup(func() {
		_ = c.Command("scancel", job).Run()
		c.waitForJobState(job, "CANCELLED")
	})
	c.waitForJobState(job, "RUNNING")
	return job
}

// waitForJobState waits until Slurm says that of a job.
func (c *slurmFixture) waitForJobState(job, state string) {
	c.t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		out, _ := c.Command("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").CombinedOutput()
		if strings.TrimSpace(string(out)) == state {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("job %s is %s, not %s", job, out, state)
		}
	}
}

// eachNodeKind runs a test on a node where a device cgroup keeps a job to its GPUs, and on one where only variables do.
func eachNodeKind(t *testing.T, test func(t *testing.T, c *slurmFixture)) {
	for name, o := range map[string]slurm.Options{"constrained": {Constrain: true, GresFlags: "nvidia_gpu_env"}, "variables": {}} {
		t.Run(name, func(t *testing.T) {
			gate.Need(t, "slurm", "root")
			t.Parallel()
			test(t, newSlurmFixture(t, o))
		})
	}
}

// TestSlurmGiven: the devices of a job, of its steps and of its tasks, whatever the numbers of the variables count.
func TestSlurmGiven(t *testing.T) {
	t.Parallel()
	eachNodeKind(t, func(t *testing.T, c *slurmFixture) {
		c.occupyFirstGPUs(1)
		const script = `
say() { echo "$1 $(gpuard status --json | grep -c '"uuid"') $(gpuard run -q $PRIVATE --gpus "$2" -- sh -c 'echo $GPUARD_GPUS')"; }
export -f say
say job 3
srun --gpus-per-node=2 -n1 bash -c "say step 2"
srun --gpus-per-task=1 -n3 --cpus-per-task=1 bash -c 'say task-$SLURM_LOCALID 1'
gpuard run $PRIVATE --no-wait --gpus 4 -- true; echo "four $?"
gpuard run $PRIVATE --no-wait --any --gpus 1 -- true; echo "any $?"
`
		out, _ := c.runBatchScript(script, "--gpus-per-node=3", "--ntasks=3")
		seen := []int{4, 4, 4}
		if c.constrained {
			seen = []int{3, 2, 1}
		}
		checkContains(t, out, fmt.Sprintf("job %d %s,%s,%s\n", seen[0], fakeUUID(1), fakeUUID(2), fakeUUID(3)), fmt.Sprintf("step %d %s,%s\n", seen[1], fakeUUID(1), fakeUUID(2)),
			fmt.Sprintf("task-0 %d %s\n", seen[2], fakeUUID(1)), fmt.Sprintf("task-1 %d %s\n", seen[2], fakeUUID(2)), fmt.Sprintf("task-2 %d %s\n", seen[2], fakeUUID(3)), "four 122\n", "any 0\n")
	})
}

// exclusiveTaskScript is what a task runs that must be alone on its device: it writes "double" where another process is on it, and its
// number when it is done. The lock is the task's alone: what Slurm ends first of a job may leave a sleep to itself for a moment.
const exclusiveTaskScript = `exec 9>>"$WORK/gpu-$GPUARD_GPUS"; flock -n 9 || echo double >>"$WORK/log"; echo "$1 $GPUARD_GPUS" >>"$WORK/log"; sleep "$2" 9>&-; echo "done $1" >>"$WORK/log"`

// checkTasksDivided checks what tasks wrote: each was done, on a device of the allocation, alone; it returns how often one began.
func (c *slurmFixture) checkTasksDivided(tasks int, devices ...string) (began int) {
	c.t.Helper()
	text, _ := os.ReadFile(filepath.Join(c.work, "log"))
	done, used := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		switch f[0] {
		case "double":
			c.t.Error("two tasks were on one device")
		case "done":
			done[f[1]] = true
		default:
			began++
			used[f[1]] = true
		}
	}
	checkEqual(c.t, "done", len(done), tasks)
	checkEqual(c.t, "devices", slices.Sorted(maps.Keys(used)), devices)
	return began
}

// TestSlurmSweep: a sweep of 40 tasks in an allocation of 4 GPUs, of which the job is killed and requeued twice.
func TestSlurmSweep(t *testing.T) {
	t.Parallel()
	eachNodeKind(t, func(t *testing.T, c *slurmFixture) {
		const script = `
if [ -d sweep ]; then set -- --resume sweep; else set -- --dir sweep --over n=1..40 -- bash -c "$ALONE" task '{{.n}}' 0.3; fi
echo "start $SLURM_RESTART_COUNT"; exec gpuard sweep -q $PRIVATE "$@"
`
		c.env = append(c.env, "WORK="+c.work, "ALONE="+exclusiveTaskScript)
		over := make(chan int, 1)
		go func() {
			_, code := c.runBatchScript(script, "--gpus-per-node=4", "--requeue", "--open-mode=append")
			over <- code
		}()
		for n := 1; n <= 2; n++ {
			c.waitForLines("log", 8*n)
			waitUntil(t, "it is requeued", func() bool { return c.Command("scontrol", "requeue", "1").Run() == nil }) // not while it is pending
		}
		checkEqual(t, "exit", <-over, 0)
		began := c.checkTasksDivided(40, fakeUUID(0), fakeUUID(1), fakeUUID(2), fakeUUID(3))
		t.Logf("40 tasks began %d times", began)
		if out := c.readWorkFile("out-1"); strings.Count(out, "start") != 3 {
			t.Errorf("it was not requeued twice: %s", out)
		}
	})
}

// waitForLines waits until a file has so many lines.
func (c *slurmFixture) waitForLines(name string, lines int) {
	c.t.Helper()
	for end := time.Now().Add(60 * time.Second); strings.Count(c.readWorkFile(name), "\n") < lines; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("%s has not %d lines: %s", name, lines, c.readWorkFile(name))
		}
	}
}

func (c *slurmFixture) readWorkFile(name string) string {
	text, _ := os.ReadFile(filepath.Join(c.work, name))
	return string(text)
}

// TestSlurmSteps: two steps of one job that see the same GPUs, a step that was killed, and a shell that another lease
// is named to: no device is used twice.
func TestSlurmSteps(t *testing.T) {
	t.Parallel()
	eachNodeKind(t, func(t *testing.T, c *slurmFixture) {
		c.occupyFirstGPUs(2)
		c.env = append(c.env, "WORK="+c.work, "ALONE="+exclusiveTaskScript, "GPUARD_LEASE=zzzz")
		const script = `
task() { for n in 1 2 3; do gpuard run -q $PRIVATE -- bash -c "$ALONE" task "$1-$n" 0.3; done; }
export -f task
srun --overlap -n1 bash -c 'task a & task b & wait' &
srun --overlap -n1 bash -c 'task c & task d & wait' &
srun --overlap -n1 bash -c 'echo $SLURM_STEP_ID >"$WORK/step"; exec gpuard run -q $PRIVATE -- sleep 600' &
until test -s "$WORK/step"; do sleep 0.1; done; sleep 0.5
scancel --signal=KILL "$SLURM_JOB_ID.$(cat "$WORK/step")"
wait
`
		c.runBatchScript(script, "--gpus-per-node=2", "--ntasks=1")
		checkEqual(t, "began", c.checkTasksDivided(12, fakeUUID(2), fakeUUID(3)), 12)
	})
}

// TestSlurmQueue: jobs of gpuard submit and services of gpuard up in an allocation have its GPUs and not those of a
// queue outside, and end with it.
func TestSlurmQueue(t *testing.T) {
	t.Parallel()
	eachNodeKind(t, func(t *testing.T, c *slurmFixture) {
		c.occupyFirstGPUs(2)
		c.env = append(c.env, "WORK="+c.work, "ALONE="+exclusiveTaskScript)
		if c.constrained {
			c.env = append(c.env, "KEPT=yes")
		}
		project := "services:\n  web:\n    each: gpu\n    command: [bash, -c, 'echo \"up $GPUARD_GPUS\" >>\"$WORK/up\"; sleep 600']\n"
		if err := os.WriteFile(filepath.Join(c.work, "gpuard.yaml"), []byte(project), 0o644); err != nil {
			t.Fatal(err)
		}
		const script = `
for n in 1 2 3 4 5 6; do gpuard submit -q $PRIVATE -- bash -c "$ALONE" task "$n" 0.3; done
gpuard wait 1-6; echo "waited $?"
gpuard up -d $PRIVATE; gpuard submit -q $PRIVATE --cpu -- sleep 600
until [ "$(wc -l <"$WORK/up")" = 2 ]; do sleep 0.1; done
test -n "$KEPT" || { gpuard down; gpuard cancel 7; } # Slurm ends what has left its parent only where it tracks it by cgroups
`
		out, _ := c.runBatchScript(script, "--gpus-per-node=2")
		checkContains(t, out, "waited 0")
		c.checkTasksDivided(6, fakeUUID(2), fakeUUID(3))
		lines := strings.Split(strings.TrimSpace(c.readWorkFile("up")), "\n")
		slices.Sort(lines)
		checkEqual(t, "up", lines, []string{"up " + fakeUUID(2), "up " + fakeUUID(3)})
	})
}

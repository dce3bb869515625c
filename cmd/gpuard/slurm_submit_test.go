package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuard/internal/app/userqueue"
	"gpuard/internal/gate"
	"gpuard/test/executable"
	"gpuard/test/slurm"
)

// newSubmitFixture is a cluster with a configuration of what its words mean, and a shell that would change what Slurm's
// commands print.
func newSubmitFixture(t *testing.T, lines ...string) *slurmFixture {
	t.Helper()
	gate.Need(t, "slurm", "root")
	c := newSlurmFixture(t, slurm.Options{GresFlags: "nvidia_gpu_env", Lines: append([]string{"KillWait=2"}, lines...)})
	c.writeSlurmConfig("types: {NVIDIA A100-SXM4-80GB: a100, NVIDIA H100: h100}\n  memory_features: {gpumem80g: 81559, gpumem141g: 143771}")
	c.env = append(c.env, "XDG_CONFIG_HOME="+filepath.Join(c.work, "config"), "SQUEUE_FORMAT=%j", "SBATCH_PARTITION=nowhere", "SINFO_FORMAT=%N", "SLURM_TIME_FORMAT=relative", "SQUEUE_STATES=PD")
	return c
}

func (c *slurmFixture) writeSlurmConfig(slurm string) {
	c.t.Helper()
	path := filepath.Join(c.work, "config", "gpuard", "config.yaml")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("slurm:\n  "+slurm+"\n"), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// runGPUard calls the program in the folder of the cluster.
func (c *slurmFixture) runGPUard(args ...string) runResult {
	c.t.Helper()
	cmd := c.hastyCommand(args...)
	cmd.Dir = c.work
	return runCommand(c.t, cmd)
}

// readJobEntry is a job as gpuard queue or gpuard history shows it.
func (c *slurmFixture) readJobEntry(list, number string) (e userqueue.Entry) {
	c.t.Helper()
	got := c.runGPUard(list, "--json")
	var a struct {
		Jobs    []userqueue.Entry
		Engines []userqueue.Trouble
	}
	if err := json.Unmarshal([]byte(got.out), &a); err != nil {
		c.t.Fatalf("%v: %+v", err, got)
	}
	for _, e := range a.Jobs {
		if number == jobNumber(e) {
			return e
		}
	}
	c.t.Fatalf("%s has no job %s: %s", list, number, got.out)
	return e
}

func jobNumber(e userqueue.Entry) string {
	return strings.TrimSpace(strings.Split(encodeJSON(e.Number), ".")[0])
}

func encodeJSON(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

// TestSlurmSubmit: a person's path: dry run, submit, queue, logs -f, wait with the exit code, history; beside a job of
// this machine, which has numbers of the same counter.
func TestSlurmSubmit(t *testing.T) {
	t.Parallel()
	c := newSubmitFixture(t)
	dry := c.runGPUard("submit", "--engine", "slurm", "--dry-run", "--gpus", "2", "--model", "*A100*", "--mem", "60G", "--", "true")
	checkEqual(t, "dry run", dry.code, 0)
	checkContains(t, dry.out, "Slurm would take it: ", "to start at", c.Node)
	checkEqual(t, "jobs", c.runGPUard("queue").out, "no job of yours runs or waits; hand one in: gpuard submit -- COMMAND\n")

	local := c.runGPUard("submit", "-q", "--cpu", "--", "true")
	got := c.runGPUard("submit", "--engine", "slurm", "--gpus", "2", "--model", "*A100*", "--mem", "60G", "--", "bash", "-c", `echo "$CUDA_VISIBLE_DEVICES in $PWD"; echo bad >&2; sleep 1; exit 3`)
	checkEqual(t, "submit", []any{local.out, got.code}, []any{"1\n", 0})
	checkContains(t, got.out, "job 2 is handed to Slurm (", "; its output: ")
	e := c.readJobEntry("queue", "2")
	checkEqual(t, "engine", []string{e.Engine, e.Place}, []string{"slurm", "test"})
	follow := c.runGPUard("logs", "-f", "2")
	checkEqual(t, "log", []any{follow.code, follow.out}, []any{0, "0,1 in " + c.work + "\nbad\n"})
	waited := c.runGPUard("wait", "2")
	checkEqual(t, "wait", waited.code, 3)
	checkContains(t, waited.err, "job 2 (bash): exit 3 after ")
	if e = c.readJobEntry("history", "2"); e.State != userqueue.Failed || *e.Exit != 3 || e.Node != c.Node || e.Seconds < 1 || e.Seconds > 60 || time.Since(*e.Ended) > time.Minute {
		t.Errorf("history: %+v", e)
	}
	checkContains(t, c.runGPUard("history").out, "exit 3", "slurm node")
	checkEqual(t, "both", c.runGPUard("wait", "1", "2").code, 3)
}

// TestSlurmLines: what the #SBATCH lines of a script say about the cluster reaches Slurm, and said is said.
func TestSlurmLines(t *testing.T) {
	t.Parallel()
	c := newSubmitFixture(t)
	// What the lines name themselves needs no configuration.
	c.writeSlurmConfig("types: {}")
	script := filepath.Join(c.work, "job.sh")
	executable.Write(t, script, []byte("#!/bin/sh\n#SBATCH --gres=gpu:a100:2 -c 3\n#SBATCH --mem-per-cpu=10M --wait\necho \"$CUDA_VISIBLE_DEVICES, $SLURM_CPUS_PER_TASK, $SLURM_MEM_PER_CPU\"\n"))
	got := c.runGPUard("submit", "--engine", "slurm", script)
	checkEqual(t, "submit", got.code, 0)
	checkEqual(t, "said", strings.Count(got.err, "#SBATCH lines"), 1)
	checkContains(t, got.err, "count as --gpus=2 '--model=*a100*'; these are for Slurm: --mem-per-cpu=10M, --cpus-per-task=3; these have no effect: --wait\n")
	checkEqual(t, "wait", c.runGPUard("wait", "1").code, 0)
	checkEqual(t, "output", c.runGPUard("logs", "1").out, "0,1, 3, 10\n")

	got = c.runGPUard("submit", "-q", "--hold", "--machine", "demo", script)
	checkContains(t, got.err, "count as --gpus=2 '--model=*a100*'; these have no effect: --wait, --mem-per-cpu=10M, --cpus-per-task=3\n")
}

// TestSlurmSameCommands: a service of a gpuard.yaml is handed in, listed, followed and waited for by the same four commands
// on this machine, on Slurm and, in test/cluster, on Kubernetes.
func TestSlurmSameCommands(t *testing.T) {
	t.Parallel()
	c := newSubmitFixture(t)
	text, err := os.ReadFile("../../test/same/gpuard.yaml")
	if err == nil {
		text = append(text, "  cluster: {command: [echo, with its own engine], engine: slurm}\n"...)
		err = os.WriteFile(filepath.Join(c.work, "gpuard.yaml"), text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	up := c.runGPUard("up")
	checkContains(t, up.out+up.err, "hello $(you) there", "service cluster is for slurm and is left out; hand it in: gpuard submit -f "+filepath.Join(c.work, "gpuard.yaml")+" cluster")
	for i, args := range [][]string{{"train"}, {"--engine", "slurm", "train"}, {"cluster"}} {
		want, code := "hello $(you) there\n", 7
		if i == 2 {
			want, code = "with its own engine\n", 0
		}
		got := c.runGPUard(append([]string{"submit", "-q", "-f", "gpuard.yaml"}, args...)...)
		n := strings.TrimSpace(got.out)
		checkEqual(t, "submit", []any{got.code, n}, []any{0, encodeJSON(i + 1)})
		checkEqual(t, "queue", c.runGPUard("queue").code, 0)
		checkEqual(t, "logs -f", c.runGPUard("logs", "-f", n).out, want)
		checkEqual(t, "wait", c.runGPUard("wait", n).code, code)
	}
	checkContains(t, c.runGPUard("history").out, "exit 7", "slurm node")
}

// submitForNumber submits a job to Slurm and returns its number.
func (c *slurmFixture) submitForNumber(args ...string) string {
	c.t.Helper()
	got := c.runGPUard(append([]string{"submit", "-q", "--engine", "slurm"}, args...)...)
	if got.code != 0 {
		c.t.Fatalf("%q: %+v", args, got)
	}
	return strings.TrimSpace(got.out)
}

// TestSlurmEnds: cancelled before the start and after it, over its time, killed, held, after another, and as an array.
func TestSlurmEnds(t *testing.T) {
	t.Parallel()
	c := newSubmitFixture(t)
	runs := c.submitForNumber("--gpus", "4", "--", "sleep", "600")
	c.waitForEntry(runs, userqueue.Running, "")
	waits := c.submitForNumber("--gpus", "4", "--", "sleep", "600")
	c.waitForEntry(waits, userqueue.Waiting, "the nodes that it could run on are busy (Resources)")
	held := c.submitForNumber("--gpus", "1", "--hold", "--", "true")
	c.waitForEntry(held, userqueue.Held, "its owner holds it: gpuard queue unhold (JobHeldUser)")
	after := c.submitForNumber("--gpus", "1", "--after", held, "--", "true")
	text := c.runGPUard("queue").out
	checkContains(t, text, "running", "waiting", "held", "job "+waits+" waits: the nodes that it could run on are busy (Resources)")
	checkEqual(t, "cancel", c.runGPUard("cancel", waits, runs).code, 0)
	for _, n := range []string{waits, runs} {
		checkEqual(t, "code of a cancelled job", c.runGPUard("wait", n).code, 1)
		checkEqual(t, "its state", c.readJobEntry("history", n).State, userqueue.Cancelled)
	}
	checkContains(t, c.runGPUard("cancel", runs).err, "cannot cancel job "+runs+": it has ended")
	checkContains(t, c.runGPUard("queue", "requeue", runs).err, "slurm has it; hand it in again: gpuard submit --engine slurm")
	checkEqual(t, "unhold", c.runGPUard("queue", "unhold", held).code, 0)
	checkEqual(t, "after the one that was held", c.runGPUard("wait", held, after).code, 0)

	array := c.runGPUard("submit", "--engine", "slurm", "--array", "3-5%2", "--log", "run-%a.log", "--", "bash", "-c", `echo "$GPUARD_ARRAY_TASK"; exit $((GPUARD_ARRAY_TASK - 3))`)
	checkContains(t, array.out, "jobs 5-7 are handed to Slurm")
	codes := []int{c.runGPUard("wait", "5").code, c.runGPUard("wait", "6").code, c.runGPUard("wait", "7").code, c.runGPUard("wait", "5-7").code}
	checkEqual(t, "codes of an array", codes, []int{0, 1, 2, 1})
	checkEqual(t, "log of a task", c.runGPUard("logs", "6").out, "4\n")

	late := c.submitForNumber("--timeout", "1m", "--", "bash", "-c", "kill -KILL $$")
	if got := c.runGPUard("wait", late); got.code != 137 && got.code != 128+9 {
		t.Errorf("killed: %+v", got)
	}
}

// waitForEntry waits until gpuard queue shows the job so.
func (c *slurmFixture) waitForEntry(number string, state userqueue.State, why string) {
	c.t.Helper()
	var e userqueue.Entry
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if e = c.readJobEntry("queue", number); e.State == state && e.Why == why {
			return
		}
	}
	c.t.Errorf("job %s is %s (%s), not %s (%s)", number, e.State, e.Why, state, why)
}

// TestSlurmTimeOut: Slurm ends what runs for longer than --timeout.
func TestSlurmTimeOut(t *testing.T) {
	t.Parallel()
	c := newSubmitFixture(t, "OverTimeLimit=0")
	n := c.submitForNumber("--timeout", "30s", "--", "sleep", "600") // Slurm counts minutes
	got := c.runGPUard("wait", n)
	if got.code == 0 {
		t.Errorf("it ended well: %+v", got)
	}
	checkContains(t, got.err, "ended after its time was over (TIMEOUT)")
}

// TestSlurmRefused: what the cluster cannot give is refused before anything is handed in, and named.
func TestSlurmRefused(t *testing.T) {
	t.Parallel()
	c := newSubmitFixture(t)
	for want, args := range map[string][]string{
		"Requested node configuration is not available":                                         {"--gpus", "5"},
		"no node of cluster test has the feature gpumem141g, which slurm.memory_features names": {"--mem", "100G"},
		"no node of cluster test has a GPU of type h100, which slurm.types names":               {"--model", "*H100*"},
		"Invalid partition name specified":                                                      {"--queue", "nope"},
	} {
		for _, dry := range [][]string{{"--dry-run"}, nil} {
			got := c.runGPUard(append(append(append([]string{"submit", "--engine", "slurm"}, dry...), args...), "--", "true")...)
			if got.code != 122 || !strings.Contains(strings.Join(strings.Fields(got.err), " "), want) {
				t.Errorf("%q: %+v, want %q", args, got, want)
			}
		}
	}
	checkContains(t, c.runGPUard("submit", "--engine", "slurm", "--share", "8G", "--", "true").err, "--share")
	checkContains(t, c.runGPUard("submit", "--engine", "lsf", "--", "true").err, "there is no such engine; there are slurm")
	checkContains(t, c.runGPUard("submit", "--dry-run", "--", "true").err, "cannot use --dry-run without --engine")
	checkEqual(t, "jobs", c.runGPUard("queue").out, "no job of yours runs or waits; hand one in: gpuard submit -- COMMAND\n")
	checkEqual(t, "history", c.runGPUard("history").out, "no job of yours has ended; what runs or waits: gpuard queue\n")
}

// TestSlurmSilent: while the controller is down, jobs are shown where they were last, those of this machine go on, and
// waiting goes on; one that Slurm has forgotten is unknown and no success.
func TestSlurmSilent(t *testing.T) {
	t.Parallel()
	c := newSubmitFixture(t, "MinJobAge=20")
	n := c.submitForNumber("--", "sleep", "5")
	c.waitForEntry(n, userqueue.Running, "")
	c.StopController()
	local := strings.TrimSpace(c.runGPUard("submit", "-q", "--cpu", "--", "true").out)
	checkEqual(t, "a job of this machine", c.runGPUard("wait", local).code, 0)
	got := c.runGPUard("queue")
	checkContains(t, got.out, "running", "slurm does not answer, and its jobs are shown as they were last: ")
	refused := c.runGPUard("submit", "--engine", "slurm", "--", "true")
	checkEqual(t, "submit", refused.code, 125)
	checkContains(t, refused.err, "cannot hand the job to Slurm: ")
	waiting := c.hastyCommand("wait", n)
	errs, err := os.Create(filepath.Join(c.work, "errs"))
	if err != nil {
		t.Fatal(err)
	}
	defer errs.Close() //nolint:errcheck // the test reads it
	waiting.Stderr = errs
	if err := waiting.Start(); err != nil {
		t.Fatal(err)
	}
	c.waitForLines("errs", 1)
	c.StartController(t)
	_ = waiting.Wait()
	checkEqual(t, "wait", waiting.ProcessState.ExitCode(), 0)
	checkContains(t, c.readWorkFile("errs"), "slurm does not answer", "job "+n+" (sleep): done")

	forgotten := c.submitForNumber("--", "true")
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		if out, _ := c.Command("squeue", "-h", "-t", "all").CombinedOutput(); len(strings.TrimSpace(string(out))) == 0 {
			break
		}
	}
	ended := c.runGPUard("wait", forgotten)
	checkEqual(t, "forgotten", []any{ended.code, c.readJobEntry("history", forgotten).State}, []any{1, userqueue.Unknown})
	checkContains(t, ended.err, "how it ended is unknown")
}

// TestSlurmDoctor: one screen says whether the cluster can give GPUs, and the one thing to do next.
func TestSlurmDoctor(t *testing.T) {
	t.Parallel()
	c := newSubmitFixture(t)
	c.occupyFirstGPUs(3)
	c.writeSlurmConfig("types: {NVIDIA A100-SXM4-80GB: a100}\n  memory_features: {gpumem80g: 81559}")
	got := c.runGPUard("doctor", "--engine", "slurm", "--all")
	checkEqual(t, "exit", got.code, 0)
	checkContains(t, got.out, "cluster test has GPUs for you: 1 of 4 are free. Next: gpuard submit --engine slurm -- COMMAND", "all (up, 1 nodes, time limit infinite)", "1 of 4 a100 free on 1 nodes", "keeps no accounting")
	c.writeSlurmConfig("types: {NVIDIA H100: h100}\n  memory_features: {gpumem141g: 143771}")
	got = c.runGPUard("doctor", "--engine", "slurm")
	checkEqual(t, "exit", got.code, 1)
	checkContains(t, got.out, "no node has the type h100, which config.yaml names", "no node has the feature gpumem141g, which config.yaml names", "write one of those that there are into config.yaml: a100")
	if out, err := c.Command("scontrol", "update", "nodename="+c.Node, "state=drain", "reason=gres/gpu count reported lower than configured (3 < 4)").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got = c.runGPUard("doctor", "--engine", "slurm")
	checkContains(t, got.out, "this cluster cannot give you a GPU: no node with GPUs takes jobs: "+c.Node, "gres/gpu count reported lower than configured (3 < 4)")
	c.StopController()
	got = c.runGPUard("doctor", "--engine", "slurm", "--json")
	checkEqual(t, "exit", got.code, 1)
	c.StartController(t) // it ends what take has started
	checkContains(t, got.out, `"code": "slurm-controller"`, `"severity": "error"`)
	if !strings.Contains(got.out, "Unable to contact slurm controller") && !strings.Contains(got.out, "scontrol has not answered within 10s") { // it tries for some seconds itself
		t.Errorf("it does not say why:\n%s", got.out)
	}
	checkContains(t, c.runGPUard("doctor", "--why", "slurm-gres").out, "GresTypes=gpu")
}

// TestSlurmKilled: gpuard is killed while sbatch runs. What Slurm took is found by its mark, and handed in once.
func TestSlurmKilled(t *testing.T) {
	t.Parallel()
	c := newSubmitFixture(t)
	theirs, err := exec.LookPath("sbatch")
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(c.work, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	executable.Write(t, filepath.Join(bin, "sbatch"), []byte("#!/bin/sh\necho >>"+c.work+"/begun\nsleep 1\nexec "+theirs+" \"$@\"\n"))
	cmd := c.hastyCommand("submit", "-q", "--engine", "slurm", "--", "sh", "-c", "sleep 2; exit 5")
	cmd.Dir = c.work
	for i, pair := range cmd.Env {
		if strings.HasPrefix(pair, "PATH=") {
			cmd.Env[i] = "PATH=" + bin + ":" + strings.TrimPrefix(pair, "PATH=")
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.waitForLines("begun", 1)
	_, _ = cmd.Process.Kill(), cmd.Wait()
	if e := c.readJobEntry("queue", "1"); e.State != userqueue.Waiting || e.ID != "" || e.Why != "it is being handed in" {
		t.Errorf("just killed: %+v", e)
	}
	checkEqual(t, "wait", c.runGPUard("wait", "1").code, 5)
	if e := c.readJobEntry("history", "1"); e.ID == "" {
		t.Errorf("it has no ID: %+v", e)
	}
	out, err := c.Command("squeue", "-h", "-t", "all", "-o", "%i").CombinedOutput()
	checkEqual(t, "jobs of Slurm", []any{len(strings.Fields(string(out))), err}, []any{1, nil})
}

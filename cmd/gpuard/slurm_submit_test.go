package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuard/internal/app/queue"
	"gpuard/internal/gate"
	"gpuard/test/executable"
	"gpuard/test/slurm"
)

// newSubmitter is a cluster with a configuration of what its words mean, and a shell that would change what Slurm's
// commands print.
func newSubmitter(t *testing.T, lines ...string) *cluster {
	t.Helper()
	gate.Need(t, "slurm", "root")
	c := newCluster(t, slurm.Options{GresFlags: "nvidia_gpu_env", Lines: append([]string{"KillWait=2"}, lines...)})
	c.config("types: {NVIDIA A100-SXM4-80GB: a100, NVIDIA H100: h100}\n  memory_features: {gpumem80g: 81559, gpumem141g: 143771}")
	c.env = append(c.env, "XDG_CONFIG_HOME="+filepath.Join(c.work, "config"), "SQUEUE_FORMAT=%j", "SBATCH_PARTITION=nowhere", "SINFO_FORMAT=%N", "SLURM_TIME_FORMAT=relative", "SQUEUE_STATES=PD")
	return c
}

func (c *cluster) config(slurm string) {
	c.t.Helper()
	path := filepath.Join(c.work, "config", "gpuard", "config.yaml")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("slurm:\n  "+slurm+"\n"), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// gpuard calls the program in the folder of the cluster.
func (c *cluster) gpuard(args ...string) result {
	c.t.Helper()
	cmd := c.hasty(args...)
	cmd.Dir = c.work
	return run(c.t, cmd)
}

// entry is a job as gpuard queue or gpuard history shows it.
func (c *cluster) entry(list, number string) (e queue.Entry) {
	c.t.Helper()
	got := c.gpuard(list, "--json")
	var a struct {
		Jobs    []queue.Entry
		Engines []queue.Trouble
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

func jobNumber(e queue.Entry) string {
	return strings.TrimSpace(strings.Split(jsonOf(e.Number), ".")[0])
}

func jsonOf(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

// TestSlurmSubmit: a person's path: dry run, submit, queue, logs -f, wait with the exit code, history; beside a job of
// this machine, which has numbers of the same counter.
func TestSlurmSubmit(t *testing.T) {
	t.Parallel()
	c := newSubmitter(t)
	dry := c.gpuard("submit", "--engine", "slurm", "--dry-run", "--gpus", "2", "--model", "*A100*", "--mem", "60G", "--", "true")
	same(t, "dry run", dry.code, 0)
	contains(t, dry.out, "Slurm would take it: ", "to start at", c.Node)
	same(t, "jobs", c.gpuard("queue").out, "no job of yours runs or waits; hand one in: gpuard submit -- COMMAND\n")

	local := c.gpuard("submit", "-q", "--cpu", "--", "true")
	got := c.gpuard("submit", "--engine", "slurm", "--gpus", "2", "--model", "*A100*", "--mem", "60G", "--", "bash", "-c", `echo "$CUDA_VISIBLE_DEVICES in $PWD"; echo bad >&2; sleep 1; exit 3`)
	same(t, "submit", []any{local.out, got.code}, []any{"1\n", 0})
	contains(t, got.out, "job 2 is handed to Slurm (", "; its output: ")
	e := c.entry("queue", "2")
	same(t, "engine", []string{e.Engine, e.Place}, []string{"slurm", "test"})
	follow := c.gpuard("logs", "-f", "2")
	same(t, "log", []any{follow.code, follow.out}, []any{0, "0,1 in " + c.work + "\nbad\n"})
	waited := c.gpuard("wait", "2")
	same(t, "wait", waited.code, 3)
	contains(t, waited.err, "job 2 (bash): exit 3 after ")
	if e = c.entry("history", "2"); e.State != queue.Failed || *e.Exit != 3 || e.Node != c.Node || e.Seconds < 1 || e.Seconds > 60 || time.Since(*e.Ended) > time.Minute {
		t.Errorf("history: %+v", e)
	}
	contains(t, c.gpuard("history").out, "exit 3", "slurm node")
	same(t, "both", c.gpuard("wait", "1", "2").code, 3)
}

// TestSlurmSameCommands: a service of a gpuard.yaml is handed in, listed, followed and waited for by the same four commands
// on this machine, on Slurm and, in test/cluster, on Kubernetes.
func TestSlurmSameCommands(t *testing.T) {
	t.Parallel()
	c := newSubmitter(t)
	text, err := os.ReadFile("../../test/same/gpuard.yaml")
	if err == nil {
		text = append(text, "  cluster: {command: [echo, with its own engine], engine: slurm}\n"...)
		err = os.WriteFile(filepath.Join(c.work, "gpuard.yaml"), text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	up := c.gpuard("up")
	contains(t, up.out+up.err, "hello $(you) there", "service cluster is for slurm and is left out; hand it in: gpuard submit -f "+filepath.Join(c.work, "gpuard.yaml")+" cluster")
	for i, args := range [][]string{{"train"}, {"--engine", "slurm", "train"}, {"cluster"}} {
		want, code := "hello $(you) there\n", 7
		if i == 2 {
			want, code = "with its own engine\n", 0
		}
		got := c.gpuard(append([]string{"submit", "-q", "-f", "gpuard.yaml"}, args...)...)
		n := strings.TrimSpace(got.out)
		same(t, "submit", []any{got.code, n}, []any{0, jsonOf(i + 1)})
		same(t, "queue", c.gpuard("queue").code, 0)
		same(t, "logs -f", c.gpuard("logs", "-f", n).out, want)
		same(t, "wait", c.gpuard("wait", n).code, code)
	}
	contains(t, c.gpuard("history").out, "exit 7", "slurm node")
}

// number submits a job to Slurm and returns its number.
func (c *cluster) number(args ...string) string {
	c.t.Helper()
	got := c.gpuard(append([]string{"submit", "-q", "--engine", "slurm"}, args...)...)
	if got.code != 0 {
		c.t.Fatalf("%q: %+v", args, got)
	}
	return strings.TrimSpace(got.out)
}

// TestSlurmEnds: cancelled before the start and after it, over its time, killed, held, after another, and as an array.
func TestSlurmEnds(t *testing.T) {
	t.Parallel()
	c := newSubmitter(t)
	runs := c.number("--gpus", "4", "--", "sleep", "600")
	c.shows(runs, queue.Running, "")
	waits := c.number("--gpus", "4", "--", "sleep", "600")
	c.shows(waits, queue.Waiting, "the nodes that it could run on are busy (Resources)")
	held := c.number("--gpus", "1", "--hold", "--", "true")
	c.shows(held, queue.Held, "its owner holds it: gpuard queue unhold (JobHeldUser)")
	after := c.number("--gpus", "1", "--after", held, "--", "true")
	text := c.gpuard("queue").out
	contains(t, text, "running", "waiting", "held", "job "+waits+" waits: the nodes that it could run on are busy (Resources)")
	same(t, "cancel", c.gpuard("cancel", waits, runs).code, 0)
	for _, n := range []string{waits, runs} {
		same(t, "code of a cancelled job", c.gpuard("wait", n).code, 1)
		same(t, "its state", c.entry("history", n).State, queue.Cancelled)
	}
	contains(t, c.gpuard("cancel", runs).err, "cannot cancel job "+runs+": it has ended")
	contains(t, c.gpuard("queue", "requeue", runs).err, "slurm has it; hand it in again: gpuard submit --engine slurm")
	same(t, "unhold", c.gpuard("queue", "unhold", held).code, 0)
	same(t, "after the one that was held", c.gpuard("wait", held, after).code, 0)

	array := c.gpuard("submit", "--engine", "slurm", "--array", "3-5%2", "--log", "run-%a.log", "--", "bash", "-c", `echo "$GPUARD_ARRAY_TASK"; exit $((GPUARD_ARRAY_TASK - 3))`)
	contains(t, array.out, "jobs 5-7 are handed to Slurm")
	codes := []int{c.gpuard("wait", "5").code, c.gpuard("wait", "6").code, c.gpuard("wait", "7").code, c.gpuard("wait", "5-7").code}
	same(t, "codes of an array", codes, []int{0, 1, 2, 1})
	same(t, "log of a task", c.gpuard("logs", "6").out, "4\n")

	late := c.number("--timeout", "1m", "--", "bash", "-c", "kill -KILL $$")
	if got := c.gpuard("wait", late); got.code != 137 && got.code != 128+9 {
		t.Errorf("killed: %+v", got)
	}
}

// shows waits until gpuard queue shows the job so.
func (c *cluster) shows(number string, state queue.State, why string) {
	c.t.Helper()
	var e queue.Entry
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if e = c.entry("queue", number); e.State == state && e.Why == why {
			return
		}
	}
	c.t.Errorf("job %s is %s (%s), not %s (%s)", number, e.State, e.Why, state, why)
}

// TestSlurmTimeOut: Slurm ends what runs for longer than --timeout.
func TestSlurmTimeOut(t *testing.T) {
	t.Parallel()
	c := newSubmitter(t, "OverTimeLimit=0")
	n := c.number("--timeout", "30s", "--", "sleep", "600") // Slurm counts minutes
	got := c.gpuard("wait", n)
	if got.code == 0 {
		t.Errorf("it ended well: %+v", got)
	}
	contains(t, got.err, "ended after its time was over (TIMEOUT)")
}

// TestSlurmRefused: what the cluster cannot give is refused before anything is handed in, and named.
func TestSlurmRefused(t *testing.T) {
	t.Parallel()
	c := newSubmitter(t)
	for want, args := range map[string][]string{
		"Requested node configuration is not available":                                         {"--gpus", "5"},
		"no node of cluster test has the feature gpumem141g, which slurm.memory_features names": {"--mem", "100G"},
		"no node of cluster test has a GPU of type h100, which slurm.types names":               {"--model", "*H100*"},
		"Invalid partition name specified":                                                      {"--queue", "nope"},
	} {
		for _, dry := range [][]string{{"--dry-run"}, nil} {
			got := c.gpuard(append(append(append([]string{"submit", "--engine", "slurm"}, dry...), args...), "--", "true")...)
			if got.code != 122 || !strings.Contains(strings.Join(strings.Fields(got.err), " "), want) {
				t.Errorf("%q: %+v, want %q", args, got, want)
			}
		}
	}
	contains(t, c.gpuard("submit", "--engine", "slurm", "--share", "8G", "--", "true").err, "--share")
	contains(t, c.gpuard("submit", "--engine", "lsf", "--", "true").err, "there is no such engine; there are slurm")
	contains(t, c.gpuard("submit", "--dry-run", "--", "true").err, "cannot use --dry-run without --engine")
	same(t, "jobs", c.gpuard("queue").out, "no job of yours runs or waits; hand one in: gpuard submit -- COMMAND\n")
	same(t, "history", c.gpuard("history").out, "no job of yours has ended; what runs or waits: gpuard queue\n")
}

// TestSlurmSilent: while the controller is down, jobs are shown where they were last, those of this machine go on, and
// waiting goes on; one that Slurm has forgotten is unknown and no success.
func TestSlurmSilent(t *testing.T) {
	t.Parallel()
	c := newSubmitter(t, "MinJobAge=20")
	n := c.number("--", "sleep", "5")
	c.shows(n, queue.Running, "")
	c.Halt()
	local := strings.TrimSpace(c.gpuard("submit", "-q", "--cpu", "--", "true").out)
	same(t, "a job of this machine", c.gpuard("wait", local).code, 0)
	got := c.gpuard("queue")
	contains(t, got.out, "running", "slurm does not answer, and its jobs are shown as they were last: ")
	refused := c.gpuard("submit", "--engine", "slurm", "--", "true")
	same(t, "submit", refused.code, 125)
	contains(t, refused.err, "cannot hand the job to Slurm: ")
	waiting := c.hasty("wait", n)
	errs, err := os.Create(filepath.Join(c.work, "errs"))
	if err != nil {
		t.Fatal(err)
	}
	defer errs.Close() //nolint:errcheck // the test reads it
	waiting.Stderr = errs
	if err := waiting.Start(); err != nil {
		t.Fatal(err)
	}
	c.await("errs", 1)
	c.Controller(t)
	_ = waiting.Wait()
	same(t, "wait", waiting.ProcessState.ExitCode(), 0)
	contains(t, c.read("errs"), "slurm does not answer", "job "+n+" (sleep): done")

	forgotten := c.number("--", "true")
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		if out, _ := c.Command("squeue", "-h", "-t", "all").CombinedOutput(); len(strings.TrimSpace(string(out))) == 0 {
			break
		}
	}
	ended := c.gpuard("wait", forgotten)
	same(t, "forgotten", []any{ended.code, c.entry("history", forgotten).State}, []any{1, queue.Unknown})
	contains(t, ended.err, "how it ended is unknown")
}

// TestSlurmDoctor: one screen says whether the cluster can give GPUs, and the one thing to do next.
func TestSlurmDoctor(t *testing.T) {
	t.Parallel()
	c := newSubmitter(t)
	c.take(3)
	c.config("types: {NVIDIA A100-SXM4-80GB: a100}\n  memory_features: {gpumem80g: 81559}")
	got := c.gpuard("doctor", "--engine", "slurm", "--all")
	same(t, "exit", got.code, 0)
	contains(t, got.out, "cluster test has GPUs for you: 1 of 4 are free. Next: gpuard submit --engine slurm -- COMMAND", "all (up, 1 nodes, time limit infinite)", "1 of 4 a100 free on 1 nodes", "keeps no accounting")
	c.config("types: {NVIDIA H100: h100}\n  memory_features: {gpumem141g: 143771}")
	got = c.gpuard("doctor", "--engine", "slurm")
	same(t, "exit", got.code, 1)
	contains(t, got.out, "no node has the type h100, which config.yaml names", "no node has the feature gpumem141g, which config.yaml names", "write one of those that there are into config.yaml: a100")
	if out, err := c.Command("scontrol", "update", "nodename="+c.Node, "state=drain", "reason=gres/gpu count reported lower than configured (3 < 4)").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got = c.gpuard("doctor", "--engine", "slurm")
	contains(t, got.out, "this cluster cannot give you a GPU: no node with GPUs takes jobs: "+c.Node, "gres/gpu count reported lower than configured (3 < 4)")
	c.Halt()
	got = c.gpuard("doctor", "--engine", "slurm", "--json")
	same(t, "exit", got.code, 1)
	c.Controller(t) // it ends what take has started
	contains(t, got.out, `"code": "slurm-controller"`, `"severity": "error"`)
	if !strings.Contains(got.out, "Unable to contact slurm controller") && !strings.Contains(got.out, "scontrol has not answered within 10s") { // it tries for some seconds itself
		t.Errorf("it does not say why:\n%s", got.out)
	}
	contains(t, c.gpuard("doctor", "--why", "slurm-gres").out, "GresTypes=gpu")
}

// TestSlurmKilled: gpuard is killed while sbatch runs. What Slurm took is found by its mark, and handed in once.
func TestSlurmKilled(t *testing.T) {
	t.Parallel()
	c := newSubmitter(t)
	theirs, err := exec.LookPath("sbatch")
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(c.work, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	executable.Write(t, filepath.Join(bin, "sbatch"), []byte("#!/bin/sh\necho >>"+c.work+"/begun\nsleep 1\nexec "+theirs+" \"$@\"\n"))
	cmd := c.hasty("submit", "-q", "--engine", "slurm", "--", "sh", "-c", "sleep 2; exit 5")
	cmd.Dir = c.work
	for i, pair := range cmd.Env {
		if strings.HasPrefix(pair, "PATH=") {
			cmd.Env[i] = "PATH=" + bin + ":" + strings.TrimPrefix(pair, "PATH=")
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.await("begun", 1)
	_, _ = cmd.Process.Kill(), cmd.Wait()
	if e := c.entry("queue", "1"); e.State != queue.Waiting || e.ID != "" || e.Why != "it is being handed in" {
		t.Errorf("just killed: %+v", e)
	}
	same(t, "wait", c.gpuard("wait", "1").code, 5)
	if e := c.entry("history", "1"); e.ID == "" {
		t.Errorf("it has no ID: %+v", e)
	}
	out, err := c.Command("squeue", "-h", "-t", "all", "-o", "%i").CombinedOutput()
	same(t, "jobs of Slurm", []any{len(strings.Fields(string(out))), err}, []any{1, nil})
}

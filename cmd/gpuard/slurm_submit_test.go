package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuard/internal/app/queue"
	"gpuard/internal/gate"
	"gpuard/test/slurm"
)

// newSubmitter is a cluster with a configuration of what its words mean, and a shell that would change what Slurm's
// commands print.
func newSubmitter(t *testing.T, lines ...string) *cluster {
	t.Helper()
	gate.Need(t, "slurm", "root")
	c := newCluster(t, slurm.Options{GresFlags: "nvidia_gpu_env", Lines: append([]string{"KillWait=2"}, lines...)})
	c.config("types: {NVIDIA A100-SXM4-80GB: a100, NVIDIA H100: h100}\n  memory_features: {gpumem80g: 81559, gpumem141g: 143771}")
	c.rack.env = append(c.rack.env, "XDG_CONFIG_HOME="+filepath.Join(c.work, "config"), "SQUEUE_FORMAT=%j", "SBATCH_PARTITION=nowhere", "SINFO_FORMAT=%N", "SLURM_TIME_FORMAT=relative", "SQUEUE_STATES=PD")
	return c
}

func (c *cluster) config(slurm string) {
	c.rack.t.Helper()
	path := filepath.Join(c.work, "config", "gpuard", "config.yaml")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.rack.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("slurm:\n  "+slurm+"\n"), 0o644); err != nil {
		c.rack.t.Fatal(err)
	}
}

// gpuard calls the program in the folder of the cluster.
func (c *cluster) gpuard(args ...string) result {
	c.rack.t.Helper()
	cmd := c.hasty(args...)
	cmd.Dir = c.work
	return run(c.rack.t, cmd)
}

// entry is a job as gpuard queue or gpuard history shows it.
func (c *cluster) entry(list, number string) (e queue.Entry) {
	c.rack.t.Helper()
	got := c.gpuard(list, "--json")
	var a struct {
		Jobs    []queue.Entry
		Engines []queue.Trouble
	}
	if err := json.Unmarshal([]byte(got.out), &a); err != nil {
		c.rack.t.Fatalf("%v: %+v", err, got)
	}
	for _, e := range a.Jobs {
		if number == jobNumber(e) {
			return e
		}
	}
	c.rack.t.Fatalf("%s has no job %s: %s", list, number, got.out)
	return e
}

func jobNumber(e queue.Entry) string { return strings.TrimSpace(strings.Split(jsonOf(e.Number), ".")[0]) }

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

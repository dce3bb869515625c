package slurmcmd_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/handoff"
	"gpuard/internal/core/job"
	"gpuard/internal/core/policy"
	"gpuard/internal/gate"
	"gpuard/internal/host/slurmcmd"
	cluster "gpuard/test/slurm"
)

// site is what the words of the test's cluster mean.
func site() policy.Slurm {
	return policy.Slurm{Types: map[string]string{"NVIDIA A100-SXM4-80GB": "a100"}, Features: map[string]gpu.Bytes{"gpumem80g": 80 * gpu.GiB, "a100": 40 * gpu.GiB}}
}

func start(t *testing.T) (cluster.Cluster, slurmcmd.Commands) {
	t.Helper()
	c := cluster.Start(t, cluster.Options{GPUs: 4})
	return c, slurmcmd.Commands{Env: append(os.Environ(), c.Env...), Patience: 30 * time.Second}
}

// TestRandom: 200 random jobs are handed in held, and Slurm shows what each asks for.
func TestRandom(t *testing.T) {
	t.Parallel()
	gate.Need(t, "slurm", "root")
	c, commands := start(t)
	first := submit(t, commands, handoff.Work{Spec: job.Spec{Command: []string{"true"}, GPUs: 1}, Held: true})
	script := filepath.Join(t.TempDir(), "script")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for n := range 200 {
		w, wants := random(r, first)
		out, err := handoff.Write(handoff.Slurm, w, site())
		if err == nil {
			err = os.WriteFile(script, []byte(out.Text), 0o600)
		}
		if err != nil {
			t.Fatalf("%+v: %v", w, err)
		}
		if said, err := commands.TestSubmit(t.Context(), script); err != nil || !strings.Contains(said, "to start at") {
			t.Fatalf("job %d: sbatch --test-only: %q, %v\n%s", n, said, err, out.Text)
		}
		id, _, err := commands.Submit(t.Context(), script)
		if err != nil {
			t.Fatalf("job %d: %v\n%s", n, err, out.Text)
		}
		line, err := commands.ReadJob(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range append(wants, "Comment=gpuard-"+out.ID, "JobState=PENDING") {
			if !regexp.MustCompile(`(^| )` + want + `( |$)`).MatchString(strings.TrimSpace(line)) {
				t.Errorf("job %d: no %q in %s\n%s", n, want, line, out.Text)
			}
		}
		if kept, err := c.Command("scontrol", "write", "batch_script", id, "-").Output(); err != nil || strings.TrimRight(string(kept), "\n") != strings.TrimRight(out.Text, "\n") {
			t.Errorf("job %d: Slurm has another script: %v\n%s", n, err, kept)
		}
		if err := commands.CancelJobs(t.Context(), []string{id}); err != nil {
			t.Error(err)
		}
	}
}

func submit(t *testing.T, commands slurmcmd.Commands, w handoff.Work) string {
	t.Helper()
	out, err := handoff.Write(handoff.Slurm, w, site())
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte(out.Text), 0o600); err != nil {
		t.Fatal(err)
	}
	id, _, err := commands.Submit(t.Context(), script)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.Text)
	}
	return id
}

// random is a held job, and what scontrol has to show of it.
func random(r *rand.Rand, first string) (w handoff.Work, wants []string) {
	may := func() bool { return r.IntN(2) == 0 }
	w = handoff.Work{Spec: job.Spec{Command: []string{"true", odd(r)}, GPUs: 1 + r.IntN(4)}, Held: true, Folder: "/tmp", ID: fmt.Sprintf("%08x", r.Uint32())}
	kind := fmt.Sprintf("gres:gpu:%d", w.Spec.GPUs)
	if may() {
		w.Spec.Model = "*A100*"
		kind = fmt.Sprintf("gres:gpu:a100:%d", w.Spec.GPUs)
	}
	if w.Spec.CPU = r.IntN(5) == 0; w.Spec.CPU {
		w.Spec.GPUs, w.Spec.Model = 0, ""
	} else {
		wants = append(wants, "TresPerNode="+kind)
	}
	switch sizes := r.IntN(3); {
	case w.Spec.CPU:
	case sizes == 0:
		w.Spec.Memory, wants = 60*gpu.GiB, append(wants, "Features=gpumem80g")
	case sizes == 1:
		w.Spec.Memory, wants = 20*gpu.GiB, append(wants, `Features=(a100\|gpumem80g|gpumem80g\|a100)`)
	}
	if may() {
		minutes := 1 + r.IntN(4000)
		w.Spec.Timeout = time.Duration(minutes) * time.Minute
		wants = append(wants, fmt.Sprintf("TimeLimit=%s", maxOutputSize(minutes)))
	} else {
		wants = append(wants, "TimeLimit=UNLIMITED")
	}
	requeue := 0
	if may() {
		w.Care.Retries, requeue = 1+r.IntN(3), 1
	}
	wants = append(wants, "Requeue="+strconv.Itoa(requeue))
	if may() {
		w.Spec.Nice = 1 + r.IntN(1000)
		wants = append(wants, "Nice="+strconv.Itoa(w.Spec.Nice))
	}
	if may() {
		w.Care.Log = fmt.Sprintf("/tmp/log-%d", r.IntN(100))
		wants = append(wants, "StdOut="+w.Care.Log)
	}
	if may() {
		w.Queue = "all"
	}
	if may() {
		w.After = []handoff.After{{ID: first, Any: may()}}
		wants = append(wants, fmt.Sprintf(`Dependency=%s:%s\(unfulfilled\)`, map[bool]string{true: "afterany", false: "afterok"}[w.After[0].Any], first))
	}
	if r.IntN(4) == 0 {
		low := r.IntN(5)
		w.Array = handoff.Array{Tasks: []int{low, low + 1, low + 2}, Most: 2}
		wants = append(wants, fmt.Sprintf("ArrayTaskId=%d-%d(%%2)?", low, low+2), "ArrayTaskThrottle=2")
		if w.Care.Log != "" {
			wants = slices.DeleteFunc(wants, func(s string) bool { return strings.HasPrefix(s, "StdOut=") })
			w.Care.Log += "-%a"
		}
	}
	return w, append(wants, "Partition=all", "WorkDir=.*")
}

// maxOutputSize is a time as scontrol writes it.
func maxOutputSize(minutes int) string {
	text := fmt.Sprintf("%02d:%02d:00", minutes/60%24, minutes%60)
	if days := minutes / (24 * 60); days > 0 {
		text = fmt.Sprintf("%d-%s", days, text)
	}
	return text
}

// odd is a word that shells, Slurm or both might read as something else.
func odd(r *rand.Rand) string {
	parts := []string{"a", " ", "\n", "$(touch /tmp/evil)", "`id`", "'", `"`, `\`, "$HOME", "é", "漢", "\t", "#SBATCH --hold", "%j", "!", "*", "~", "--", "=", "\x01", ";", "&", "|"}
	text := ""
	for range 1 + r.IntN(8) {
		text += parts[r.IntN(len(parts))]
	}
	return text
}

// TestWords: the command that runs is the one that was meant, in a folder and with variables of odd names and values, and
// with 100 KiB of environment.
func TestWords(t *testing.T) {
	t.Parallel()
	gate.Need(t, "slurm", "root")
	_, commands := start(t)
	r := rand.New(rand.NewPCG(7, 7))
	dir := filepath.Join(t.TempDir(), "a folder 'with' $(odd) \"name\"\n")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{} // file of a job to what it has to hold
	for n := range 8 {
		out := fmt.Sprintf("out-%d", n)
		args := []string{odd(r), odd(r), "", odd(r)}
		vars := []handoff.Variable{{Name: "ODD", Value: odd(r)}, {Name: "EMPTY", Value: ""}}
		size := 0
		for i := 0; size < 100<<10; i++ {
			value := odd(r) + strings.Repeat("x", 1000)
			vars, size = append(vars, handoff.Variable{Name: fmt.Sprint("V", i), Value: value}), size+len(value)
		}
		command := append([]string{"bash", "-c", `printf '%s\0' "$@" "$ODD" "${EMPTY-unset}" "${SECRET-unset}" "$V50" >"$0.new" && mv "$0.new" "$0"`, out}, args...)
		submit(t, commands, handoff.Work{Spec: job.Spec{Command: command, GPUs: 1, Name: odd(r)}, Care: job.Care{Log: "/dev/null"}, Folder: dir, Env: vars, Note: odd(r)})
		got[filepath.Join(dir, out)] = strings.Join(append(args, vars[0].Value, "", "unset", vars[52].Value, ""), "\x00")
	}
	for path, want := range got {
		var text []byte
		err := errors.New("")
		for end := time.Now().Add(60 * time.Second); err != nil && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			text, err = os.ReadFile(path)
		}
		if string(text) != want {
			t.Errorf("%s: %v\n%q, want\n%q", path, err, text, want)
		}
	}
	if _, err := os.Stat("/tmp/evil"); err == nil {
		t.Error("a word was run by a shell")
	}
}

// TestErrors: what is said where a command is missing, hangs or has no controller.
func TestErrors(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	commands := slurmcmd.Commands{Env: []string{"PATH=" + dir}, Patience: 200 * time.Millisecond}
	var missing *slurmcmd.MissingError
	if _, err := commands.Settings(t.Context()); !errors.As(err, &missing) || missing.Command != "scontrol" {
		t.Errorf("without Slurm: %v", err)
	}
	for script, want := range map[string]string{
		"#!/bin/sh\nexec 3>&1; while :; do :; done": "scontrol has not answered within 200ms",
		"#!/bin/sh\necho 'slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)' >&2; exit 1": "scontrol says: slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)",
	} {
		if err := os.WriteFile(filepath.Join(dir, "scontrol"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		var silent *slurmcmd.SilentError
		if _, err := commands.Settings(t.Context()); !errors.As(err, &silent) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

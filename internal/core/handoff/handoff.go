// Package handoff writes a job for another engine: a script for sbatch, objects for kubectl, a file for docker compose.
// Write is the only entrance:
//
//	out, err := handoff.Write(handoff.Slurm, work, site)
//	os.WriteFile("job.sh", []byte(out.Text), 0o600) // then: sbatch job.sh
//
// Everything that the job asks for gets a verdict: said exactly, said approximately, or refused. One refusal is enough
// for no text at all; the error is then a *job.Refusal that names each refused field and the way out. The table of all
// fields and targets is table.go: a new field of Work needs a row there, and a test says so.
//
// What who drives the engines needs to know:
//   - Slurm: the script is one for sbatch on standard input; its last line becomes the command by exec, so that signals
//     and the exit code are the command's own. A time limit sends the command a signal first. --comment is "gpuard-ID".
//   - Kubernetes: Output.Name is the name of the Job and, with claims, of the ResourceClaimTemplate before it. Both have
//     the labels app.kubernetes.io/managed-by=gpuard and app.kubernetes.io/instance=NAME, as have the pods. The container
//     is "main". A pod that its time limit ended has the reason DeadlineExceeded.
//   - The same work has the same name again, so that handing it in twice is one job, unless Work.ID says otherwise.
//
// It must not talk to an engine, and it writes no variable that the engine sets itself.
package handoff

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/ranks"
)

// Target is what a job is written for.
type Target string

// Targets, in the order of the table.
const (
	Slurm Target = "slurm"
	// With the resource of NVIDIA's device plugin.
	Kubernetes Target = "kubernetes"
	// With a claim (resource.k8s.io/v1).
	KubernetesDRA Target = "kubernetes-dra"
	Compose       Target = "compose"
)

// Targets lists them.
func Targets() []Target { return []Target{Slurm, Kubernetes, KubernetesDRA, Compose} }

// Title is its name for users.
func (t Target) Title() string {
	return map[Target]string{Slurm: "Slurm", Kubernetes: "Kubernetes", KubernetesDRA: "Kubernetes with DRA", Compose: "Docker Compose"}[t]
}

// Work is a job for another engine: what it asks for, and what else its owner said about it.
type Work struct {
	Spec job.Spec
	// Stop, LogLimit and Spec.Grace only where they were asked for.
	Care job.Care
	// Makes its name unique: lower case letters and digits, at most 12; "" is a hash of the work.
	ID string
	// The folder in which it starts; "" that of the engine or the image.
	Folder string
	Env    []Variable
	Note   string
	// It is not to be started before somebody says so.
	Held      bool
	After     []After
	Array     Array
	Image     string // of its container
	Namespace string // of Kubernetes
	// Slurm's partition, or the local queue of Kueue.
	Queue string
	// The type of its GPUs in Slurm's own word, such as "a100"; "" where Spec.Model says what they are.
	Type string
	// Options of sbatch, as its owner wrote them in the #SBATCH lines of the script: "--account=physics".
	Directives []string
	Private    bool // --private-state
	// The value of --verify.
	Verify  string
	Service Service
}

// Variable is one of the environment that its owner named.
type Variable struct{ Name, Value string }

// After is a job of the same engine that comes first.
type After struct {
	// The ID that the engine calls it by.
	ID string
	// However it ends; else only if it ends with 0.
	Any bool
}

// Array is one job for each number; none is a single job.
type Array struct {
	// Each has its own as GPUARD_ARRAY_TASK.
	Tasks []int
	// So many at the same time; 0: no limit.
	Most int
}

// Service is what only a service of a gpuard.yaml has.
type Service struct {
	Each      bool
	Replicas  int // above 1
	DependsOn []string
	// Whose variables are in Env.
	EnvFiles []string
	Ready    bool // it has a check
	Healthy  bool // likewise
}

// Level says how well a target can be told something.
type Level string

// Levels, best first.
const (
	Exact       Level = "exact"
	Approximate Level = "approximate"
	Refused     Level = "refused"
)

// Verdict is what becomes of one field that was asked for.
type Verdict struct {
	// The field of Work: "Spec.Memory".
	Field string `json:"field"`
	// How its owner says it: "--mem".
	Flag string `json:"flag"`
	// How well the engine can be told.
	Level Level `json:"level"`
	// how it is said; of a refusal, why not.
	How string `json:"how"`
	// The way out of a refusal.
	Do string `json:"do,omitempty"`
	// The target cannot do without it.
	needs bool `json:"-"`
}

// String is one line for users.
func (v Verdict) String() string {
	line := fmt.Sprintf("%s (%s): %s", v.Flag, v.Level, v.How)
	if v.Do != "" {
		line += "; " + v.Do
	}
	return line
}

// Output is a job in the words of a target.
type Output struct {
	// The text for the engine's own command.
	Text string
	// The name of the job there; for Slurm it need not be unique.
	Name string
	ID   string
	// The verdicts in the order of the table.
	Verdicts []Verdict
}

// Write writes the work for a target. The site says what Slurm's types and features mean. The error is a *job.Refusal,
// and the output has the verdicts all the same.
func Write(t Target, w Work, site policy.Slurm) (Output, error) {
	verdicts := judgeFields(t, &w, site)
	if w.ID == "" {
		// Strings and numbers can always be encoded.
		text, _ := json.Marshal(w)
		sum := sha256.Sum256(text)
		w.ID = hex.EncodeToString(sum[:4])
	}

	out := Output{ID: w.ID, Verdicts: verdicts}
	if err := refusalError(t, out.Verdicts); err != nil {
		return out, err
	}

	switch t {
	case Slurm:
		out.Name, out.Text = slurmJobName(jobName(&w)), sbatchScript(&w, site)
	case Kubernetes, KubernetesDRA:
		out.Name, out.Text = objectName(&w), jobManifest(&w, t == KubernetesDRA)
	case Compose:
		out.Name, out.Text = objectName(&w), composeFile(&w)
	}

	return out, nil
}

// refusalError is the error for the verdicts that refuse.
func refusalError(t Target, verdicts []Verdict) error {
	var why, do []string
	for _, v := range verdicts {
		if v.Level != Refused {
			continue
		}
		what := " is refused: "
		if v.needs {
			what = " is missing: "
		}
		why, do = append(why, v.Flag+what+v.How), append(do, "for "+v.Flag+": "+v.Do)
	}
	if len(why) == 0 {
		return nil
	}

	return &job.Refusal{Never: true, Summary: fmt.Sprintf("cannot write the job for %s: %s", t.Title(), strings.Join(why, "; ")), Remedy: strings.Join(do, "; ")}
}

// jobName is what the job is called.
func jobName(w *Work) string {
	if w.Spec.Name != "" || len(w.Spec.Command) == 0 {
		return w.Spec.Name
	}
	return w.Spec.Command[0][strings.LastIndexByte(w.Spec.Command[0], '/')+1:]
}

// startCommand is what is started.
func startCommand(w *Work) []string {
	r := w.Spec.Ranks
	if r == nil || !r.Torchrun {
		return w.Spec.Command
	}

	count := cmp.Or(r.Count, max(1, w.Spec.GPUs, len(w.Spec.Devices)))

	return slices.Concat([]string{"torchrun", "--standalone", fmt.Sprintf("--nproc_per_node=%d", count)}, portableTorchrun(w.Spec.Command))
}

// portableTorchrun are options and script in the spelling of options that every version of torchrun accepts: 1.13,
// which Debian 12 has, knows none with hyphens.
func portableTorchrun(words []string) []string {
	t, err := ranks.ReadTorchrun(words)
	if err != nil {
		return words
	}

	options := t.Options
	if t.Module {
		options = append(options, "--module")
	}

	if t.Plain {
		options = append(options, "--no_python")
	}

	return slices.Concat(options, t.Script)
}

// sharesMemory reports whether the processes of a job exchange data through /dev/shm, of which a container has 64 MiB:
// NCCL between GPUs, and data loaders.
func sharesMemory(w *Work) bool {
	return max(w.Spec.GPUs, len(w.Spec.Devices)) > 1 || w.Spec.Ranks != nil
}

// jobVariables are those that the engine does not set: the order in which CUDA counts, or all that hide GPUs from a job
// that wants none; and those of the owner.
func jobVariables(w *Work) []Variable {
	const order = "CUDA_DEVICE_ORDER"
	var vars []Variable
	switch own := func(v Variable) bool { return v.Name == order }; {
	case w.Spec.CPU:
		vars = hidingVariables()
	case !slices.ContainsFunc(w.Env, own):
		vars = []Variable{{order, "PCI_BUS_ID"}}
	}

	return append(vars, w.Env...)
}

// ceilMebibytes is the size in whole MiB, rounded up.
func ceilMebibytes(size gpu.Bytes) int64 { return int64((size + gpu.MiB - 1) / gpu.MiB) }

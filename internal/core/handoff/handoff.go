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
	Slurm         Target = "slurm"
	Kubernetes    Target = "kubernetes"     // with the resource of NVIDIA's device plugin
	KubernetesDRA Target = "kubernetes-dra" // with a claim (resource.k8s.io/v1)
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
	Spec      job.Spec
	Care      job.Care // Stop, LogLimit and Spec.Grace only where they were asked for
	ID        string   // makes its name unique: lower case letters and digits, at most 12; "" is a hash of the work
	Folder    string   // in which it starts; "" that of the engine or the image
	Env       []Variable
	Note      string
	Held      bool // it is not to be started before somebody says so
	After     []After
	Array     Array
	Image     string // of its container
	Namespace string // of Kubernetes
	Queue     string // Slurm's partition, or the local queue of Kueue
	Private   bool   // --private-state
	Verify    string // --verify
	Service   Service
}

// Variable is one of the environment that its owner named.
type Variable struct{ Name, Value string }

// After is a job of the same engine that comes first.
type After struct {
	ID  string // as the engine calls it
	Any bool   // however it ends; else only if it ends with 0
}

// Array is one job for each number; none is a single job.
type Array struct {
	Tasks []int // each has its own as GPUARD_ARRAY_TASK
	Most  int   // so many at the same time; 0: no limit
}

// Service is what only a service of a gpuard.yaml has.
type Service struct {
	Each      bool
	Replicas  int // above 1
	DependsOn []string
	EnvFiles  []string // whose variables are in Env
	Ready     bool     // it has a check
	Healthy   bool     // likewise
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
	Field string `json:"field"`        // of Work: "Spec.Memory"
	Flag  string `json:"flag"`         // how its owner says it: "--mem"
	Level Level  `json:"level"`        // how well the engine can be told
	How   string `json:"how"`          // how it is said; of a refusal, why not
	Do    string `json:"do,omitempty"` // of a refusal: the way out
	needs bool   `json:"-"`            // the target cannot do without it
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
	Text     string // for the engine's own command
	Name     string // of the job there; for Slurm it need not be unique
	ID       string
	Verdicts []Verdict // in the order of the table
}

// Write writes the work for a target. The site says what Slurm's types and features mean. The error is a *job.Refusal,
// and the output has the verdicts all the same.
func Write(t Target, w Work, site policy.Slurm) (Output, error) {
	verdicts := judgeFields(t, &w, site)
	if w.ID == "" {
		text, _ := json.Marshal(w) // strings and numbers can always be encoded
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
	count := r.Count
	if count == 0 {
		count = max(1, w.Spec.GPUs, len(w.Spec.Devices))
	}
	return slices.Concat([]string{"torchrun", "--standalone", fmt.Sprintf("--nproc_per_node=%d", count)}, portableTorchrun(w.Spec.Command))
}

// portableTorchrun are options and script in the spelling of options that every version of torchrun accepts: 1.13, which Debian 12 has,
// knows none with hyphens.
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

// sharesMemory reports whether the processes of a job exchange data through /dev/shm, of which a container has 64 MiB: NCCL between GPUs,
// and data loaders.
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

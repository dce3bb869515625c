// Package works makes random jobs for other engines, with words that a shell, sbatch, YAML, Kubernetes or Compose could
// take for something else. It is imported by tests only.
package works

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/handoff"
	"gpuard/internal/core/job"
	"gpuard/internal/core/policy"
)

// Site is a cluster with two models, a slice and three sizes.
func Site() policy.Slurm {
	return policy.Slurm{
		Types:    map[string]string{"NVIDIA H100 80GB HBM3": "h100", "NVIDIA H100 PCIe": "h100", "NVIDIA A100-SXM4-80GB": "a100", "1g.10gb": "slice"},
		Features: map[string]gpu.Bytes{"gpumem40g": 40960 * gpu.MiB, "gpumem80g": 81559 * gpu.MiB, "gpumem24g": 24564 * gpu.MiB},
	}
}

// HostileWords are such words.
func HostileWords() []string {
	return []string{"", " ", "a b", "it's", `"`, `\`, "$HOME", "$(id)", "$$(id)", "$$", "$", "${X:-y}", "`id`", "a\nb", "\n", "\r\n", "\t", "a\r\nb", "#", " #x", "#SBATCH --gpus=9", "x\n#SBATCH --gpus=9\ny",
		"- a", "a: b", "a:", "{a}", "[a]", "&a", "*a", "!a", "|", ">", "%a", "@a", "~", "null", "yes", "on", "NO", "1", "1e3", "0x1f", "012", "1:30", ".inf", "2001-01-01", "=", "<<", "---", "...", "'", "''", "\\n", "\x01",
		"\x1b[31m", "\x7f", "\u0085", "\u00a0", "\u2028", "\ufeff", "ü", "训练", "🎉", "e\u0301", "-n", "--", "~/x", "a;b", "a&b", "!x", "?", "x*", "{{.A}}", "%", "a=b", strings.Repeat("long ", 400)}
}

// RandomWord joins up to three of them.
func RandomWord(random *rand.Rand) string {
	var b strings.Builder
	for range random.IntN(4) {
		b.WriteString(pickOne(random, HostileWords()...))
	}
	return b.String()
}

func pickOne[T any](random *rand.Rand, of ...T) T { return of[random.IntN(len(of))] }

// Named is a job that starts program, with such words as its arguments, variables, name and note.
func Named(random *rand.Rand, program string) handoff.Work {
	w := handoff.Work{Spec: job.Spec{Command: []string{program}, GPUs: 1, Name: RandomWord(random)}, Image: "registry.example.org/a/b:1", Note: RandomWord(random)}
	for range random.IntN(6) {
		w.Spec.Command = append(w.Spec.Command, RandomWord(random))
	}
	for i := range random.IntN(6) {
		w.Env = append(w.Env, handoff.Variable{Name: fmt.Sprintf("HOSTILE_%d", i), Value: RandomWord(random)})
	}
	return w
}

// Random is a job that asks for any of what at least one target can be told.
func Random(random *rand.Rand) handoff.Work {
	w := Named(random, "./run")
	maybe := func(f func()) {
		if random.IntN(3) == 0 {
			f()
		}
	}
	setDevices(random, &w)
	if !w.Spec.CPU && w.Spec.MIG == "" {
		maybe(func() {
			w.Spec.Model = pickOne(random, "NVIDIA H100 80GB HBM3", "*H100*", "nvidia a100*", "*A?00*", "NVIDIA A100-SXM4-80GB", "none'\"")
		})
		maybe(func() { w.Spec.Memory = gpu.Bytes(1 + random.Int64N(int64(90*gpu.GiB))) })
		maybe(func() { w.Spec.MinCompute = &gpu.Capability{Major: 6 + random.IntN(6), Minor: random.IntN(10)} })
		maybe(func() { w.Spec.Exclude = []string{UUID(random)} })
	}
	maybe(func() { w.Spec.Timeout = time.Duration(1 + random.Int64N(int64(72*time.Hour))) })
	maybe(func() { w.Spec.Grace = time.Duration(1+random.IntN(600)) * time.Second })
	maybe(func() { w.Care.Stop = pickOne(random, "SIGINT", "SIGUSR1", "SIGKILL") })
	maybe(func() { w.Care.Retries, w.Care.Any = 1+random.IntN(9), random.IntN(2) == 0 })
	maybe(func() { w.Care.Log = pickOne(random, "/tmp/a.log", "/tmp/50%.log", "/tmp/%a.log", "/tmp/ü.log") })
	maybe(func() { w.Spec.Nice = random.IntN(100) })
	maybe(func() { w.Spec.Time = time.Duration(random.IntN(9999)) * time.Second })
	maybe(func() { w.Held = true })
	maybe(func() { w.Folder = "/" + strings.ReplaceAll(RandomWord(random), "/", "") })
	maybe(func() { w.Queue = pickOne(random, "long", "gpu-short") })
	maybe(func() { w.Namespace = "team" })
	maybe(func() { w.After = []handoff.After{{ID: "17"}, {ID: "18", Any: true}} })
	maybe(func() {
		w.Array = handoff.Array{Tasks: pickOne(random, []int{0, 1, 2}, []int{3, 5, 6, 7}, []int{0}), Most: random.IntN(3)}
	})
	maybe(func() { w.Spec.Ranks = &job.Ranks{Torchrun: true, Count: random.IntN(3)} })
	return w
}

func setDevices(random *rand.Rand, w *handoff.Work) {
	w.Spec.GPUs = 1 + random.IntN(8)
	switch random.IntN(8) {
	case 0:
		w.Spec.GPUs, w.Spec.CPU = 0, true
	case 1:
		w.Spec.GPUs, w.Spec.MIG = 0, pickOne(random, "1g.10gb", "1g.10gb+me", "3g.40gb")
	case 2:
		w.Spec.GPUs, w.Spec.Devices = 0, []string{UUID(random), UUID(random)}
	}
}

// UUID is one of a whole GPU.
func UUID(random *rand.Rand) string {
	return fmt.Sprintf("GPU-%08x-%04x-%04x-%04x-%012x", random.Uint32(), random.IntN(1<<16), random.IntN(1<<16), random.IntN(1<<16), random.Int64N(1<<48))
}

package handoff

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/prose"
)

var update = flag.Bool("update", false, "write the golden files")

// site is a cluster with two models and a slice, that of test/works, which imports this package.
func site() policy.Slurm {
	return policy.Slurm{Types: map[string]string{"NVIDIA H100 80GB HBM3": "h100", "NVIDIA H100 PCIe": "h100", "NVIDIA A100-SXM4-80GB": "a100", "1g.10gb": "slice"},
		Features: map[string]gpu.Bytes{"gpumem40g": 40960 * gpu.MiB, "gpumem80g": 81559 * gpu.MiB, "gpumem24g": 24564 * gpu.MiB}}
}

// fields are the paths of all fields of Work, with those of its structs in place of the struct.
func fields(of reflect.Type, lead string) (paths []string) {
	for i := range of.NumField() {
		f := of.Field(i)
		kind := f.Type
		if kind.Kind() == reflect.Pointer && kind.Elem() != reflect.TypeFor[gpu.Capability]() {
			kind = kind.Elem()
		}
		if kind.Kind() == reflect.Struct && kind != reflect.TypeFor[time.Time]() {
			paths = append(paths, fields(kind, lead+f.Name+".")...)
			continue
		}
		paths = append(paths, lead+f.Name)
	}
	return paths
}

// set gives the field a value, and makes the structs on the way.
func set(w *Work, path string, value any) {
	at := reflect.ValueOf(w).Elem()
	for name := range strings.SplitSeq(path, ".") {
		if at.Kind() == reflect.Pointer {
			if at.IsNil() {
				at.Set(reflect.New(at.Type().Elem()))
			}
			at = at.Elem()
		}
		at = at.FieldByName(name)
	}
	at.Set(reflect.ValueOf(value).Convert(at.Type()))
}

const oneUUID = "GPU-0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"

// samples are a value for each field that every target which can be told it takes.
func samples() map[string]any {
	return map[string]any{
		"Spec.Command": []string{"./run", "x"}, "Spec.Name": "other", "Spec.GPUs": 3, "Spec.CPU": true, "Spec.Devices": []string{oneUUID}, "Spec.MIG": "1g.10gb",
		"Spec.Exclude": []string{oneUUID}, "Spec.Prefer": []gpu.UUID{oneUUID}, "Spec.Model": "NVIDIA A100-SXM4-80GB", "Spec.MinCompute": &gpu.Capability{Major: 8},
		"Spec.Memory": 30 * gpu.GiB, "Spec.Share": gpu.GiB, "Spec.Quota": job.Watch, "Spec.Require": job.MPS, "Spec.Threads": 50, "Spec.Time": time.Hour, "Spec.Nice": 3,
		"Spec.Timeout": time.Hour, "Spec.Grace": time.Minute, "Spec.Place": job.Packed, "Spec.IDs": job.UUIDs, "Spec.Any": true, "Spec.Anyway": true, "Spec.Isolate": job.AutoIsolation, "Spec.Isolated": job.Namespace, "Spec.KeepWhile": "/f", "Spec.Moving": "l1", "Spec.Avoid": []gpu.UUID{"GPU-1"}, "Spec.Asked": time.Unix(1e9, 0),
		"Spec.Ranks.Torchrun": true, "Spec.Ranks.Own": true, "Spec.Ranks.Count": 5, "Spec.Ranks.Grace": time.Second, "Spec.Ranks.JSON": true,
		"Spec.Waiting.No": true, "Spec.Waiting.Limit": time.Hour, "Spec.Waiting.Fallback": []string{"cpu"},
		"Care.Retries": 2, "Care.Any": true, "Care.Restart": job.OnFailure, "Care.Limit": 2, "Care.Streak": 1, "Care.Log": "/l/a.log", "Care.LogLimit": gpu.GiB, "Care.Drift": []string{"hot"}, "Care.Stop": "SIGINT",
		"ID": "a1", "Folder": "/f", "Env": []Variable{{"A", "b"}}, "Note": "n", "Held": true, "After": []After{{ID: "7"}}, "Array.Tasks": []int{0, 1, 2}, "Array.Most": 2,
		"Care.Notify": "desktop", "Image": "i", "Namespace": "team", "Queue": "long", "Type": "a100", "Directives": []string{"--account=physics"}, "Private": true, "Verify": "30s",
		"Service.Each": true, "Service.Replicas": 2, "Service.DependsOn": []string{"a"}, "Service.EnvFiles": []string{"/e"}, "Service.Ready": true, "Service.Healthy": true,
	}
}

// with is a work that everything can be told, with more: what a field needs beside it.
func with(path string) Work {
	w := Work{Spec: job.Spec{Command: []string{"python", "train.py"}, GPUs: 1}, Image: "image:1", ID: "1234"}
	switch path {
	case "Spec.CPU", "Spec.Devices", "Spec.MIG":
		w.Spec.GPUs = 0
	case "Spec.Grace", "Care.Stop":
		w.Spec.Timeout = time.Hour
	case "Care.Limit":
		w.Care.Restart = job.OnFailure
	case "Care.Any":
		w.Care.Retries = 1
	case "Array.Most":
		w.Array.Tasks = []int{0, 1, 2}
	case "Spec.Ranks.Count", "Spec.Ranks.Grace", "Spec.Ranks.JSON":
		w.Spec.Ranks = &job.Ranks{Torchrun: true}
	}
	return w
}

// TestEveryField: no field of Work is without a row, no row is without a field, and a job that asks for a field gets one
// verdict of it for each target. What is said, exactly or not, is in the text, unless the row says that nothing need be.
func TestEveryField(t *testing.T) {
	unwritten := []string{"Spec.Asked", "Spec.Any", "Spec.Anyway", "Spec.Isolate", "Spec.Place", "Spec.IDs", "Private", "Image slurm", "Service.Ready", "Service.EnvFiles", "Spec.Waiting.No compose", "Spec.Ranks.Grace", "Spec.Ranks.JSON"}
	rows := map[string]int{}
	for _, r := range fieldTable() {
		rows[r.field]++
	}
	paths := fields(reflect.TypeFor[Work](), "")
	for _, path := range paths {
		if rows[path] != 1 {
			t.Errorf("%s has %d rows in the table, want one: what becomes of it for each target?", path, rows[path])
			continue
		}
		delete(rows, path)
		value, known := samples()[path]
		if !known {
			t.Errorf("%s has no sample", path)
			continue
		}
		for _, target := range Targets() {
			bare, w := with(path), with(path)
			set(&w, path, value)
			before, err := Write(target, bare, site())
			if err != nil {
				if path != "Care.Limit" && path != "Care.Any" && path != "Care.Stop" && path != "Spec.Grace" && path != "Array.Most" {
					t.Errorf("%s for %s: without it: %v", path, target, err)
				}
			}
			out, err := Write(target, w, site())
			i := slices.IndexFunc(out.Verdicts, func(v Verdict) bool { return v.Field == path })
			if i < 0 {
				t.Errorf("%s for %s: no verdict", path, target)
				continue
			}
			v := out.Verdicts[i]
			var refusal *job.Refusal
			switch {
			case v.How == "" || v.Level == Refused && v.Do == "":
				t.Errorf("%s for %s: the verdict does not say how, or what to do: %+v", path, target, v)
			case (v.Level == Refused) && (!errors.As(err, &refusal) || !refusal.Never || !strings.Contains(refusal.Summary, v.Flag) || !strings.Contains(refusal.Remedy, v.Do) || out.Text != ""):
				t.Errorf("%s for %s is refused, and the error is %v", path, target, err)
			case err == nil && out.Text == before.Text && !slices.Contains(unwritten, path) && !slices.Contains(unwritten, path+" "+string(target)):
				t.Errorf("%s for %s is %s (%s), and the text is the same without it", path, target, v.Level, v.How)
			}
		}
	}
	for field := range rows {
		t.Errorf("the row %s is of no field", field)
	}
}

// works are jobs as people write them; their texts are golden files.
func works() map[string]Work {
	full := Work{
		Spec: job.Spec{Command: []string{"python", "train.py", "--lr", "1e-3", "a b", "$(HOME) $$"}, Name: "Träin 1", GPUs: 2, Model: "NVIDIA A100-SXM4-80GB", MinCompute: nil, Memory: 30 * gpu.GiB, Timeout: 24 * time.Hour, Time: time.Hour},
		ID:   "7f3a", Env: []Variable{{"DATA", "/data/it's here\n#SBATCH --gpus=8"}}, Note: "of\nAnn", Image: "registry.example.org/train:1", Folder: "/home/ann/my work",
	}
	array := Work{Spec: job.Spec{Command: []string{"./one.sh"}, GPUs: 1}, ID: "1", Array: Array{Tasks: []int{0, 1, 2, 3}, Most: 2}, Image: "one:1", Queue: "long", Care: job.Care{Retries: 2}, Note: "n"}
	cpu := Work{Spec: job.Spec{Command: []string{"pytest"}, CPU: true}, ID: "2", Image: "test:1"}
	torchrun := Work{Spec: job.Spec{Command: []string{"train.py", "--epochs", "3"}, GPUs: 4, Ranks: &job.Ranks{Torchrun: true}}, ID: "3", Image: "torch:2"}
	slice := Work{Spec: job.Spec{Command: []string{"./serve"}, MIG: "1g.10gb", Grace: 30 * time.Second, Timeout: 90 * time.Second}, ID: "4", Image: "serve:1"}
	return map[string]Work{"full": full, "array": array, "cpu": cpu, "torchrun": torchrun, "slice": slice}
}

// TestGolden: the texts, to be read. What is refused is in the file, too.
func TestGolden(t *testing.T) {
	for name, w := range works() {
		for _, target := range Targets() {
			out, err := Write(target, w, site())
			var text strings.Builder
			for _, v := range out.Verdicts {
				if v.Level != Exact {
					text.WriteString("# " + v.String() + "\n")
				}
			}
			if err != nil {
				text.WriteString("# " + err.Error() + "\n")
			}
			text.WriteString(out.Text)
			path := filepath.Join("testdata", name+"."+string(target)+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				continue
			}
			want, err := os.ReadFile(path)
			if err != nil || string(want) != text.String() {
				t.Errorf("%s: %v; go test -update writes it again\n%s", path, err, text.String())
			}
		}
	}
}

// TestName: the same work has the same name; another one, or one with an ID, has another.
func TestName(t *testing.T) {
	a, b := works()["full"], works()["full"]
	a.ID, b.ID = "", ""
	b.Env = append(b.Env, Variable{"X", "1"})
	name := func(w Work) string {
		out, err := Write(Kubernetes, w, site())
		if err != nil {
			t.Fatal(err)
		}
		return out.Name
	}
	if first := name(a); name(a) != first || first == name(b) || name(works()["full"]) != "tr-in-1-7f3a" {
		t.Error(name(a), name(b), name(works()["full"]))
	}
	for given, want := range map[string]string{"": "job", "..": "job", "A_b": "a-b", strings.Repeat("x", 99): strings.Repeat("x", 40), strings.Repeat("x", 39) + ".y": strings.Repeat("x", 39), "训练": "job"} {
		if got := hostLabel(given); got != want {
			t.Errorf("%q: %s, want %s", given, got, want)
		}
	}
}

// TestOrder: CUDA's order of devices is that of its owner, and there once.
func TestOrder(t *testing.T) {
	for _, target := range Targets() {
		w := with("")
		w.Env = []Variable{{"CUDA_DEVICE_ORDER", "FASTEST_FIRST"}}
		out, err := Write(target, w, site())
		if err != nil || strings.Count(out.Text, "CUDA_DEVICE_ORDER") != 1 || !strings.Contains(out.Text, "FASTEST_FIRST") {
			t.Errorf("%v\n%s", err, out.Text)
		}
	}
}

// TestLimits: what Slurm is told of a time limit. The command gets the signal after --timeout or up to a minute earlier,
// never later, and is killed when --grace has passed.
func TestLimits(t *testing.T) {
	const m = time.Minute
	for _, c := range []struct {
		timeout, grace time.Duration
		stop, want     string
	}{
		{time.Hour, 0, "", "time=0-01:00:00"},
		{25*time.Hour + 30*time.Second, 0, "", "time=1-01:01:00"},
		{time.Millisecond, 0, "", "time=0-00:01:00"},
		{time.Hour, 30 * time.Second, "", "time=0-01:01:00 signal=B:TERM@60"},
		{time.Hour - 30*time.Second, 30 * time.Second, "SIGINT", "time=0-01:00:00 signal=B:INT@30"},
		{time.Hour, 0, "SIGUSR1", "time=0-01:01:00 signal=B:USR1@60"},
		{time.Hour, 20 * time.Hour, "", "time=0-21:00:00 signal=B:TERM@65535"},
		{9 * m, m, "", "time=0-00:10:00 signal=B:TERM@60"},
	} {
		w := Work{Spec: job.Spec{Timeout: c.timeout, Grace: c.grace}, Care: job.Care{Stop: c.stop}}
		if got := strings.Join(timeDirectives(&w), " "); got != c.want {
			t.Errorf("%v %v %s: %s, want %s", c.timeout, c.grace, c.stop, got, c.want)
		}
	}
	for want, list := range map[string][]int{"0-3,8": {8, 3, 1, 0, 2}, "5": {5}, "1,3": {1, 3, 3}} {
		if got := prose.Ranges(list, ","); got != want {
			t.Errorf("%v: %s", list, got)
		}
	}
}

// TestMemoryByName: where no feature of the site is large enough, the smallest model whose name says that it is.
func TestMemoryByName(t *testing.T) {
	place := policy.Slurm{Types: map[string]string{"NVIDIA H100 80GB HBM3": "h100", "NVIDIA A100-SXM4-40GB": "a100", "NVIDIA H200 NVL 141GB": "h200", "Tesla T4": "t4", "1g.10gb": "slice",
		"NVIDIA A40 48GB": "mixed", "NVIDIA A16": "mixed", "NVIDIA GH200 480GB": "gh200"}}
	for size, want := range map[gpu.Bytes]string{30: "--gpus-per-node=a100:2\n", 60: "--gpus-per-node=h100:2\n", 79: "--gpus-per-node=h100:2\n", 80: "--gpus-per-node=h200:2\n", 200: ""} {
		w := Work{Spec: job.Spec{Command: []string{"true"}, GPUs: 2, Memory: size * gpu.GiB}, ID: "1"}
		out, err := Write(Slurm, w, place)
		refused := slices.ContainsFunc(out.Verdicts, func(v Verdict) bool { return v.Level == Refused && strings.Contains(v.Do, "Feature=gpumem80g") })
		if (want == "") != refused || want != "" && (err != nil || !strings.Contains(out.Text, want) || strings.Contains(out.Text, "constraint")) {
			t.Errorf("%d GiB: %v, %+v", size, err, out)
		}
	}
}

package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"image/png"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/experiment"
	"gpuard/internal/core/gpu"
	"gpuard/internal/gate"
)

// neighbourScript is a stand-in that takes 0.3 s and, when another one is on its device, 0.6 s. It notes its arm's lease and device.
const neighbourScript = `marks=$1/$CUDA_VISIBLE_DEVICES; mkdir -p "$marks"; : >"$marks/$$"
echo "$GPUARD_LEASE $CUDA_VISIBLE_DEVICES" >>"$1/seen$2"
for i in 1 2 3 4 5 6; do sleep 0.05; [ "$(ls "$marks" | wc -l)" -gt 1 ] && others=yes; done
if [ "$others" ]; then sleep 0.3; echo 'rate 50'; else echo 'rate 100'; fi
rm "$marks/$$"
`

// compareAnswer is what gpuard compare says with --json.
type compareAnswer struct {
	Complete   bool
	Conclusion []string
	Warnings   []string
	Quantities []experiment.Quantity
	Runs       []experiment.Run
	Outputs    string
}

func (c compareAnswer) quantityOf(t *testing.T, command, name string, arm experiment.Arm) experiment.Quantity {
	t.Helper()
	i := slices.IndexFunc(c.Quantities, func(q experiment.Quantity) bool { return q.Command == command && q.Name == name && q.Arm == arm })
	if i < 0 {
		t.Fatalf("there is no %s of %s in %s: %+v", name, command, arm, c.Quantities)
	}
	return c.Quantities[i]
}

// compareCommand is gpuard compare on an invented machine, with its own folder for temporary files.
func compareCommand(t *testing.T, machine string, args ...string) (cmd *exec.Cmd, temporary string) {
	t.Helper()
	temporary = t.TempDir()
	return gpuardCommand(t, stateFolder(t), []string{"GPUARD_MACHINE=" + machine, "TMPDIR=" + temporary}, append([]string{"compare"}, args...)...), temporary
}

func readCompareAnswer(t *testing.T, got runResult) (a compareAnswer) {
	t.Helper()
	if err := json.Unmarshal([]byte(got.out), &a); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	return a
}

// TestCompare: stand-ins that are slower together, really started. Each run has leases of its own: one for each command or,
// together, one for all.
func TestCompare(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	table := filepath.Join(dir, "runs.csv")
	cmd, temporary := compareCommand(t, "demo:4xL4", "--arms", "alone,together,together:shares,apart", "--repeat", "2", "--metric", "rate=rate ([0-9]+)", "--json", "--csv", table,
		"--", "sh", "-c", neighbourScript, "sh", dir, "A", "--and", "--", "sh", "-c", neighbourScript, "sh", dir, "B")
	got := runCommand(t, cmd)
	a := readCompareAnswer(t, got)
	checkEqual(t, "exit", got.code, 0)
	checkEqual(t, "complete", a.Complete, true)
	for _, c := range []string{"A", "B"} {
		for arm, want := range map[experiment.Arm]float64{experiment.Alone: 100, experiment.Together: 50, experiment.Shares: 50, experiment.Apart: 100} {
			checkEqual(t, fmt.Sprint(c, " ", arm), a.quantityOf(t, c, "rate", arm).Median, want)
		}
		one, two := a.quantityOf(t, c, "seconds", experiment.Alone), a.quantityOf(t, c, "seconds", experiment.Together) // how long a loaded machine takes above that is not known
		if r := two.Ratio; one.Lowest < 0.3 || two.Lowest < 0.6 || one.Ratio != nil || r.Low >= r.Ratio || r.Ratio >= r.High {
			t.Errorf("%s: alone %+v, together %+v, %+v", c, one, two, r)
		}
	}
	checkContains(t, strings.Join(a.Conclusion, "\n"), "rate of A in together is 0.50 times (0.47 to 0.53) that in alone", "for rate of B no difference could be shown between apart and alone")
	seen := func(c string) (lines []string) {
		return strings.Fields(string(must(os.ReadFile(filepath.Join(dir, "seen"+c)))))
	}
	inA, inB := seen("A"), seen("B")
	checkEqual(t, "runs", []int{len(a.Runs), len(inA) / 2, len(inB) / 2}, []int{12, 12, 12})
	leases := map[string]bool{}
	for i := range a.Runs { // both list them in the order they were made
		one, other := inA[2*i:2*i+2], inB[2*i:2*i+2]
		arm := a.Runs[i].Arm
		checkEqual(t, fmt.Sprint("one lease ", arm), one[0] == other[0], arm == experiment.Together)
		if arm != experiment.Alone { // where each command has its turn on some device
			checkEqual(t, fmt.Sprint("one device ", arm), one[1] == other[1], arm != experiment.Apart)
		}
		if leases[one[0]] || leases[other[0]] {
			t.Errorf("run %d has the lease of another one", i)
		}
		leases[one[0]], leases[other[0]] = true, true
	}
	rows := must(csv.NewReader(bytes.NewReader(must(os.ReadFile(table)))).ReadAll())
	checkEqual(t, "rows", []int{len(rows), len(rows[0])}, []int{1 + 2*12, 15})
	checkEqual(t, "left behind", len(must(os.ReadDir(temporary))), 0)
}

// TestCompareBoth: two experiments on the same GPUs, named in another order, both come to their end.
func TestCompareBoth(t *testing.T) {
	t.Parallel()
	state := stateFolder(t)
	var group sync.WaitGroup
	for _, devices := range []string{"0,1", "1,0"} {
		group.Go(func() {
			got := runCommand(t, gpuardCommand(t, state, []string{"GPUARD_MACHINE=demo:2xL4", "TMPDIR=" + t.TempDir()}, "compare", "--arms", "apart,together:shares", "--repeat", "6", "--warmup", "0", "--json", "--device", devices,
				"--", "sleep", "0.05", "--and", "sleep", "0.05"))
			if a := readCompareAnswer(t, got); !a.Complete || len(a.Runs) != 12 {
				t.Errorf("--device %s: %d runs: %+v", devices, len(a.Runs), got)
			}
		})
	}
	group.Wait()
}

// TestCompareFails: a run whose command fails does not count, the other command is ended, and its output is kept.
func TestCompareFails(t *testing.T) {
	t.Parallel()
	cmd, _ := compareCommand(t, "demo:1xL4", "--arms", "alone,together", "--repeat", "2", "--warmup", "0", "--json", "--", "sh", "-c", "echo out of memory; exit 3", "--and", "sleep", "2")
	got := runCommand(t, cmd)
	a := readCompareAnswer(t, got)
	checkEqual(t, "exit", got.code, 1)
	for i := range a.Runs {
		if one := &a.Runs[i]; one.Arm == experiment.Together {
			checkEqual(t, "the other one", one.Commands[1].Signal, "SIGTERM")
		}
	}
	checkEqual(t, "conclusion", a.Conclusion, []string{"nothing can be said about together against alone: none of 2 runs counted in together, and two are needed"})
	checkContains(t, strings.Join(a.Warnings, "\n"), "2 of 2 runs of together do not count: A ended with exit code 3; its output: "+a.Outputs)
	logs := must(filepath.Glob(filepath.Join(a.Outputs, "together-*-A.log")))
	checkEqual(t, "logs", len(logs), 2)
	checkEqual(t, "log", string(must(os.ReadFile(logs[0]))), "out of memory\n")
}

// TestCompareInterrupted: Ctrl-C ends the commands, and what is there is shown.
func TestCompareInterrupted(t *testing.T) {
	t.Parallel()
	mark := filepath.Join(t.TempDir(), "mark")
	cmd, temporary := compareCommand(t, "demo:1xL4", "--arms", "alone,together", "--warmup", "0", "--", "sh", "-c", `echo $$ >>"$0"; [ $(wc -l <"$0") -lt 3 ] || exec sleep 300`, mark, "--and", "--", "true")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the third run goes", func() bool { text, _ := os.ReadFile(mark); return bytes.Count(text, []byte("\n")) == 3 })
	_ = cmd.Process.Signal(syscall.SIGINT)
	_ = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGINT {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
	checkContains(t, out.String(), "interrupted: only the runs that were complete count", "A, time")
	pids := strings.Fields(string(must(os.ReadFile(mark))))
	if _, err := os.Stat("/proc/" + pids[2]); err == nil {
		t.Error("the command still runs")
	}
	checkEqual(t, "said", errs.String(), "")
	checkEqual(t, "left behind", len(must(os.ReadDir(temporary))), 0)
}

// TestCompareChart: gpuard-view runs the same and draws the result.
func TestCompareChart(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	for _, name := range []string{"c.svg", "c.png"} {
		path := filepath.Join(t.TempDir(), name)
		got := runCommand(t, r.viewCommand("compare", "--machine", "demo", "--repeat", "2", "--warmup", "0", "--chart", path, "--", "true", "--and", "true"))
		checkEqual(t, "exit", got.code, 0)
		picture := must(os.ReadFile(path))
		if strings.HasSuffix(name, "png") {
			if _, err := png.Decode(bytes.NewReader(picture)); err != nil {
				t.Error(err)
			}
			continue
		}
		if err := checkXML(picture); err != nil {
			t.Error(err)
		}
		checkContains(t, string(picture), "Median time in seconds", ">A alone<", ">all apart<", " s  ")
	}
}

// TestCompareDriver: on a machine with a driver the power gives the energy of a run, the processes their memory, and shares
// are enforced: by MPS, or by a process that measures.
func TestCompareDriver(t *testing.T) {
	t.Parallel()
	gpus := makeA100s(2)
	r := newFakeDriverMachine(t, gpus[0].With("power_mw", "100000"), gpus[1].With("power_mw", "100000")) // milliwatts
	seen := filepath.Join(t.TempDir(), "seen")
	args := []string{"compare", "--arms", "together:shares,together:mps,apart", "--repeat", "1", "--warmup", "0", "--json"}
	if isContained() {
		args = append(args, "--private-state")
	}
	job := `GPU=0; [ "$CUDA_VISIBLE_DEVICES" != 1 ] || GPU=1; echo "$CUDA_MPS_PIPE_DIRECTORY:$CUDA_VISIBLE_DEVICES" >>"$0"; exec fakegpu-job --gpu $GPU --mem 2G --seconds 1`
	cmd := r.cmd(append(args, "--", "sh", "-c", job, seen, "--and", "--", "sh", "-c", job, seen)...)
	cmd.Env = append(cmd.Env, "TMPDIR="+t.TempDir())
	got := runCommand(t, cmd)
	a := readCompareAnswer(t, got)
	checkEqual(t, "exit", got.code, 0)
	through := map[bool]int{}
	for _, line := range strings.Split(strings.TrimSpace(string(must(os.ReadFile(seen)))), "\n") {
		through[strings.Contains(line, "gpuard-mps-")]++
	}
	checkEqual(t, "commands through MPS", through, map[bool]int{true: 2, false: 4})
	for i := range a.Runs {
		one := &a.Runs[i]
		for c := range one.Commands {
			if m := one.Commands[c].Memory; m == nil || *m != 2*gpu.GiB {
				t.Errorf("%s: %s has %v of memory", one.Arm, one.Commands[c].Command, m)
			}
		}
		watts := map[bool]float64{true: 200, false: 100}[one.Arm == experiment.Apart]
		if p, e := one.Use.Power, one.Use.Energy; p == nil || e == nil || math.Abs(*p-watts) > 0.01 || math.Abs(*e-watts*one.Seconds) > 0.1*watts*one.Seconds {
			t.Errorf("%s: %s in %v s", one.Arm, must(json.Marshal(one.Use)), one.Seconds)
		}
	}
}

// TestCompareMIG: each command has a slice of the same GPU.
func TestCompareMIG(t *testing.T) {
	t.Parallel()
	cmd, _ := compareCommand(t, "demo:1xA100-80GB:1g.10gb*2,2g.20gb*2+2xA100-80GB", "--arms", "apart,mig,mig:1g.10gb", "--repeat", "1", "--warmup", "0", "--json", "--", "true", "--and", "true")
	got := runCommand(t, cmd)
	a := readCompareAnswer(t, got)
	checkEqual(t, "exit", got.code, 0)
	kinds := map[experiment.Arm][]string{}
	for i := range a.Runs {
		for _, id := range a.Runs[i].Devices {
			kinds[a.Runs[i].Arm] = append(kinds[a.Runs[i].Arm], id[:4])
		}
	}
	checkEqual(t, "devices", kinds, map[experiment.Arm][]string{experiment.Apart: {"GPU-", "GPU-"}, experiment.MIG: {"MIG-", "MIG-"}, "mig:1g.10gb": {"MIG-", "MIG-"}})
}

// torchLoadScript is a program of PyTorch, which says on which processor it runs.
const torchLoadScript = `
import json, os, time, torch
torch.set_num_threads(1)
x = torch.randn(200, 200)
began, used, products = time.perf_counter(), time.process_time(), 0
while time.perf_counter() - began < 0.7:
    x = torch.tanh(x @ x)
    products += 1
spent = time.perf_counter() - began
print(json.dumps({"speed": {"products/s": products / spent}, "processor": (time.process_time() - used) / spent, "cores": sorted(os.sched_getaffinity(0))}))
`

// TestCompareTorch is the whole path with a real program: the devices are processors, to which taskset ties it, so that
// two on one device share it. It is not parallel to other tests, which would take the processors away.
func TestCompareTorch(t *testing.T) {
	gate.Need(t, "torch")
	if raceEnabled {
		t.Skip("nearly all of its time is PyTorch's, of which the race detector sees nothing")
	}
	dir := t.TempDir()
	machine, script := filepath.Join(dir, "machine.json"), filepath.Join(dir, "work.py")
	recorded := runCommand(t, gpuardCommand(t, stateFolder(t), nil, "status", "--machine", "demo:2xL4", "--record"))
	writeFile(t, machine, recorded.out, 0)
	writeFile(t, script, torchLoadScript, 0)
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil || allowed.Count() < 2 {
		t.Skipf("two processors are needed: %v", err)
	}
	train := []string{"sh", "-c", `shift "$CUDA_VISIBLE_DEVICES"; exec taskset -c "$1" /usr/bin/python3 "$0"`, script}
	for i := range 1024 {
		if allowed.IsSet(i) {
			train = append(train, fmt.Sprint(i))
		}
	}
	args := slices.Concat([]string{"--arms", "apart,together", "--repeat", "1", "--warmup", "0", "--metric", "products/s=json:speed.products/s", "--metric", "processor=json:processor", "--metric", `core="cores": \[([0-9]+)\]`, "--json", "--machine", machine, "--"}, train, []string{"--and", "--"}, train)
	cmd, _ := compareCommand(t, machine, args...)
	got := runCommand(t, cmd)
	a := readCompareAnswer(t, got)
	checkEqual(t, "exit", got.code, 0)
	for i := range a.Runs {
		on := map[float64]bool{}
		for c := range a.Runs[i].Commands {
			on[*a.Runs[i].Commands[c].Value("core")] = true
		}
		checkEqual(t, fmt.Sprint("processors ", a.Runs[i].Arm), len(on), map[experiment.Arm]int{experiment.Apart: 2, experiment.Together: 1}[a.Runs[i].Arm])
	}
	for _, c := range []string{"A", "B"} {
		// How fast it is depends on what else runs here; that two share one processor does not.
		if part := a.quantityOf(t, c, "processor", experiment.Together).Median; part > 0.8 {
			t.Errorf("%s has %.2f of a processor that it shares", c, part)
		}
		if a.quantityOf(t, c, "products/s", experiment.Apart).Median <= 0 {
			t.Errorf("%s has done nothing", c)
		}
	}
}

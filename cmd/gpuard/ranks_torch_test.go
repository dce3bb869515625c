package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gpuard/internal/gate"
	"gpuard/test/executable"
)

// rankMeetingScript is a program of PyTorch: its ranks add their numbers. It continues when the other job has met too.
const rankMeetingScript = `
import json, os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
here, job, other = sys.argv[1:4]
say = {name: os.environ.get(name) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "GPUARD_GPUS", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")}
say.update(total=total.item(), python=sys.executable, words=sys.argv[4:])
with open(os.path.join(here, job + say["RANK"] + ".part"), "w") as f:
    json.dump(say, f)
os.rename(f.name, os.path.join(here, job + say["RANK"]))
end = time.monotonic() + 150
while not os.path.exists(os.path.join(here, other + "0")):
    if time.monotonic() > end:
        sys.exit("the other job never met")
    time.sleep(0.02)
dist.barrier()
`

// TestTorch: PyTorch's own processes find each other, started by torchrun and by gpuard, as two jobs that run at the
// same time.
func TestTorch(t *testing.T) {
	gate.Need(t, "torch")
	if raceEnabled {
		t.Skip("nearly all of its time is PyTorch's, of which the race detector sees nothing")
	}
	t.Parallel()
	dir := t.TempDir()
	script := filepath.Join(dir, "meet.py")
	if err := os.WriteFile(script, []byte(rankMeetingScript), 0o600); err != nil {
		t.Fatal(err)
	}
	state := stateFolder(t)
	env := []string{"OMP_NUM_THREADS=1", "PATH=/usr/bin:" + os.Getenv("PATH"), "PET_STANDALONE=1", "TMPDIR=" + dir}
	jobs := map[string][]string{
		"torchrun": {"--torchrun", "--", script, dir, "torchrun", "ranks", "--epochs", "3"},
		"ranks":    {"--ranks=own", "--", "/usr/bin/python3", script, dir, "ranks", "torchrun", "--epochs", "3"},
	}
	var wg sync.WaitGroup
	for name, words := range jobs {
		wg.Go(func() {
			cmd := gpuardCommand(t, state, env, append([]string{"run", "--machine", "demo:8xA100-80GB", "--gpus", "4"}, words...)...)
			if got := runCommand(t, cmd); got.code != 0 || !strings.Contains(got.err, "4 ranks by ") {
				t.Errorf("%s: exit %d: %s", name, got.code, got.err)
			}
		})
	}
	wg.Wait()
	ports, devices := map[string]string{}, map[string]string{}
	for name := range jobs {
		for i := range 4 {
			var said struct {
				Rank    string   `json:"RANK"`
				Local   string   `json:"LOCAL_RANK"`
				Size    string   `json:"WORLD_SIZE"`
				Port    string   `json:"MASTER_PORT"`
				GPUs    string   `json:"GPUARD_GPUS"`
				Visible string   `json:"CUDA_VISIBLE_DEVICES"`
				Threads string   `json:"OMP_NUM_THREADS"`
				Total   float64  `json:"total"`
				Python  string   `json:"python"`
				Words   []string `json:"words"`
			}
			text, err := os.ReadFile(filepath.Join(dir, name+fmt.Sprint(i)))
			if err == nil {
				err = json.Unmarshal(text, &said)
			}
			if err != nil {
				t.Fatal(err)
			}
			checkEqual(t, "rank", []string{said.Rank, said.Local, said.Size, said.Threads}, []string{fmt.Sprint(i), fmt.Sprint(i), "4", "1"})
			checkEqual(t, "sum", said.Total, 1.0+2+3+4)
			checkEqual(t, "words", said.Words, []string{"--epochs", "3"})
			if !strings.HasPrefix(said.Python, "/usr/bin/python3") {
				t.Errorf("%s runs in %s", name, said.Python)
			}
			ports[said.Port] = name
			for _, id := range strings.Split(said.GPUs, ",") {
				if other := devices[id]; other != "" && other != name {
					t.Errorf("%s is of both jobs", id)
				}
				devices[id] = name
			}
			count := map[string]int{"torchrun": 4, "ranks": 1}[name]
			checkEqual(t, "visible to a rank by "+name, len(strings.Split(said.Visible, ",")), count)
		}
	}
	checkEqual(t, "ports", len(ports), 2)
	checkEqual(t, "jobs with a port", slices.Sorted(maps.Values(ports)), []string{"ranks", "torchrun"})
	checkEqual(t, "devices", len(devices), 8)
}

// torchrunScript replaces torchrun: it starts as many processes as its options say, as torchrun does, with the shell that
// it runs in as its "Python".
const torchrunScript = `#!/bin/sh
echo "$@" >"$SEEN/line"; env >"$SEEN/env"
n=0
while [ "$1" != --no_python ]; do [ "$1" = --nproc_per_node ] && n=$2; [ "$1" = --master_port ] && port=$2; shift; done
shift
while [ "${1#--}" != "$1" ]; do shift 2; done
i=0
while [ $i -lt $n ]; do RANK=$i LOCAL_RANK=$i MASTER_PORT=$port "$@" & i=$((i+1)); done
wait
`

// runTorchAgent is torchrun where the ranks meet at its own port, as those of PyTorch do since 1.9: it listens there, and starts as
// many processes as its options say.
func runTorchAgent() {
	value := func(option string) string { return os.Args[slices.Index(os.Args, option)+1] }
	words := os.Args[slices.Index(os.Args, "__rank")-1:]
	n, _ := strconv.Atoi(value("--nproc_per_node"))
	var ranks sync.WaitGroup
	for i := range n {
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Env = append(os.Environ(), fmt.Sprint("RANK=", i), fmt.Sprint("LOCAL_RANK=", i), fmt.Sprint("WORLD_SIZE=", n), "MASTER_ADDR="+value("--master_addr"), "MASTER_PORT="+value("--master_port"))
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		ranks.Go(func() { _ = cmd.Run() })
	}
	waitForRankFiles(words[slices.Index(words, "rank")+1], "on", strconv.Itoa(n)) // who does not connect has said its last line by then
	l, err := listenReusingPort(net.JoinHostPort(value("--master_addr"), value("--master_port")))
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			if _, err := l.Accept(); err != nil {
				return
			}
		}
	}()
	ranks.Wait()
}

// TestTorchrunMissing: a rank of torchrun that does not connect while others do is named, as one of gpuard's own is.
func TestTorchrunMissing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		does []string
		want []string
	}{
		"lost":  {[]string{"0:come", "1:come", "2:lost"}, []string{"gpuard: rank 2 (PID ", " has not joined the others for 1.5s: it has no connection to port ", ", where torchrun waits; it ", "; its last line: \"reading /data/shard-7\"\n"}},
		"first": {[]string{"0:wait", "1:come"}, []string{"gpuard: rank 0 (PID ", ", where torchrun waits; ", "see where: py-spy dump --pid "}},
		"all":   {[]string{"0:come", "1:come"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bin := t.TempDir()
			executable.Write(t, filepath.Join(bin, "torchrun"), []byte("#!/bin/sh\nexec torchagent \"$@\"\n"))
			c := &rankRun{t: t, dir: t.TempDir(), n: len(test.does)}
			args := append([]string{"run", "--gpus", fmt.Sprint(c.n), "--machine", "demo", "--torchrun", "--", "--no-python", "rank", c.dir}, test.does...)
			c.cmd = gpuardCommand(t, stateFolder(t), []string{"PATH=" + bin + ":" + os.Getenv("PATH")}, args...)
			c.cmd.Args[0] = "hasty"
			c.startCommand()
			c.waitForReports()
			if test.want == nil {
				time.Sleep(3 * time.Second)
				if said := c.errorText(); strings.Contains(said, "joined") {
					t.Errorf("said %s", said)
				}
				return
			}
			waitUntil(t, "the missing rank is named", func() bool { return strings.Contains(c.errorText(), test.want[len(test.want)-1]) })
			checkContains(t, c.errorText(), test.want...)
		})
	}
}

// TestTorchrunLine: what torchrun is told, and what its processes are when they begin, without PyTorch.
func TestTorchrunLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"torchrun": torchrunScript,
		"train.sh": `echo "rank $RANK/$LOCAL_RANK has $CUDA_VISIBLE_DEVICES as $GPUARD_GPUS, $# words: $2; $OMP_NUM_THREADS; ${GPUARD_RANKS-none}; $0"`,
	} {
		executable.Write(t, filepath.Join(dir, name), []byte(text))
	}
	cmd := gpuardCommand(t, stateFolder(t), []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "SEEN=" + dir, "PET_NPROC_PER_NODE=7", "PET_MAX_RESTARTS=2"},
		"run", "--machine", "demo", "--device", "2,0", "--torchrun", "--ranks=own", "--", "--max-restarts", "1", "train.sh", "a", "b c")
	cmd.Dir = dir
	got := runCommand(t, cmd)
	checkEqual(t, "exit", got.code, 0)
	line, _ := os.ReadFile(filepath.Join(dir, "line"))
	env, _ := os.ReadFile(filepath.Join(dir, "env"))
	checkContains(t, got.err, "; 2 ranks by torchrun at 127.0.0.1:", "PET_NPROC_PER_NODE is not passed on to torchrun", "LOCAL_RANK is its rank")
	checkContains(t, string(line), "--nnodes 1 --nproc_per_node 2 ", " --no_python --redirects 9:1 --tee 9:1 --max_restarts 1 /", " __rank python -u train.sh a b c\n")
	checkContains(t, string(env), "PET_MAX_RESTARTS=2\n", "CUDA_VISIBLE_DEVICES=2,0\n", "OMP_NUM_THREADS=")
	if strings.Contains(string(env), "PET_NPROC_PER_NODE") {
		t.Error("torchrun reads PET_NPROC_PER_NODE")
	}
	checkContains(t, got.out, "rank 0/0 has 2 as GPU-", "rank 1/1 has 0 as GPU-", ", 2 words: b c; ", "; none; train.sh\n")

	missing := gpuardCommand(t, stateFolder(t), []string{"PATH=" + t.TempDir()}, "run", "--machine", "demo", "--torchrun", "--", "train.py")
	got = runCommand(t, missing)
	checkEqual(t, "exit without torchrun", got.code, 127)
	checkContains(t, got.err, `gpuard: cannot run "torchrun": no such command in PATH`, "activate the environment that has PyTorch")
	byHand := runCommand(t, gpuardCommand(t, stateFolder(t), nil, "__ranks", "true"))
	checkEqual(t, "exit by hand", byHand.code, 125)
	checkContains(t, byHand.err, "cannot start a rank by hand")
}

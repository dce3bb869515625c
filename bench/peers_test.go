package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/test/fakegpu"
)

// peerJob is the job of all programs: it puts itself on the first GPU of CUDA_VISIBLE_DEVICES for $1 seconds. It writes
// the GPU into "ran", and into "twice" if another job has it at that moment, or a process that a job left behind.
const peerJob = `#!/bin/sh
gpu=${CUDA_VISIBLE_DEVICES%%,*}
case $gpu in GPU-*) gpu=$(dirname "$(grep -l "^uuid $gpu" "$FAKEGPU_DIR"/gpus/*/values)"); gpu=${gpu##*/} ;; esac
others=$FAKEGPU_DIR/gpus/$gpu/procs.d
for file in "$others"/*; do
  if grep -qs ') [^Z] ' "/proc/${file##*/}/stat"; then left=yes; fi # no zombie
done
exec 9>"$PEERS/lock-$gpu"
flock -n 9 || left=yes
echo "$gpu" >>"$PEERS/ran"
if [ "$left" ]; then echo "$gpu" >>"$PEERS/twice"; fi
echo "2147483648 C" >"$others/$$"
if [ "$2" ]; then # a child that has nothing of the job's, and stays on the GPU
  setsid -f sh -c 'echo "2147483648 C" >"$0/$$"; exec sleep "$1" 9>&-' "$others" "$2" </dev/null >/dev/null 2>&1
  while [ "$(ls "$others" | wc -l)" -lt 2 ]; do sleep 0.01; done
  exit 0
fi
exec sleep "$1"
`

// peer is a program that gives GPUs to jobs. script runs $N jobs "$JOB" for $S seconds on $GPUS devices, from one
// terminal, and ends when they have ended. keeper finds, while jobs run, the processes that watch over them.
type peer struct {
	name, script string
	keeper       func(p *peers) []int
}

// selects is a loop that takes the GPU that a command names.
func selects(command string) string {
	return `for i in $(seq $N); do CUDA_VISIBLE_DEVICES=$(` + command + `) "$JOB" $S $CHILD & done; wait`
}

func allPeers(b *testing.B, gpuard string) []peer {
	all := []peer{
		{"gpuard", `for i in $(seq $N); do ` + gpuard + ` run -q $FLAGS -- "$JOB" $S $CHILD & done; wait`, func(p *peers) []int { return p.found(gpuard, "__hold") }},
		{"nvidia-smi | sort", selects(`nvidia-smi --query-gpu=index,memory.used --format=csv,noheader,nounits | sort -t, -k2n | head -n1 | cut -d, -f1`), nil},
	}
	for _, other := range []peer{
		{"tsp", `for i in $(seq $N); do g=$(((i + $$) % GPUS)); CUDA_VISIBLE_DEVICES=$g TS_SOCKET=$PEERS/q$g tsp "$JOB" $S $CHILD >/dev/null; done
for g in $(seq 0 $((GPUS - 1))); do TS_SOCKET=$PEERS/q$g tsp -w >/dev/null 2>&1; done`, func(p *peers) []int { return p.found("/usr/bin/tsp") }},
		{"parallel", `seq $N | parallel -j $GPUS "CUDA_VISIBLE_DEVICES=\$(({%} - 1)) $JOB $S $CHILD"`, func(p *peers) []int { return p.found("/usr/bin/perl", "/parallel\x00") }},
		{"nvisel", selects(`nvisel -n 1`), nil},
	} {
		if _, err := exec.LookPath(other.name); err == nil {
			all = append(all, other)
			continue
		}
		fmt.Println(other.name + " is not installed")
	}
	return all
}

// peers is one scenario of one program.
type peers struct {
	b      *testing.B
	driver *fakegpu.Driver
	dir    string
	env    []string
	who    peer
}

func newPeers(b *testing.B, who peer, gpus int) *peers {
	p := &peers{b: b, dir: b.TempDir(), who: who}
	var devices []fakegpu.GPU
	for i := range gpus {
		devices = append(devices, fakegpu.A100(i))
	}
	p.driver = fakegpu.New(b, devices...)
	job := filepath.Join(p.dir, "job")
	if err := os.WriteFile(job, []byte(peerJob), 0o755); err != nil { //nolint:gosec // a program
		b.Fatal(err)
	}
	home := newPlace(b, p.driver.Env()...)
	p.env = append(home.env, "PEERS="+p.dir, "JOB="+job, "FLAGS="+strings.Join(overFake(b, 1).flags, " "), "GPUS="+strconv.Itoa(gpus), "HOME="+p.dir)
	b.Cleanup(func() {
		for g := range gpus {
			_ = command([]string{"tsp", "-K"}, append(p.env, "TS_SOCKET="+filepath.Join(p.dir, "q"+strconv.Itoa(g)))).Run()
		}
	})
	return p
}

// start runs n jobs from one terminal.
func (p *peers) start(ctx context.Context, n int, seconds string, more ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "bash", "-c", p.who.script)
	c.Env = append(append(os.Environ(), p.env...), append([]string{"N=" + strconv.Itoa(n), "S=" + seconds}, more...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = time.Second
	if err := c.Start(); err != nil {
		p.b.Fatal(err)
	}
	return c
}

// run runs jobs to their end, or for at most a minute.
func (p *peers) run(n int, seconds string) time.Duration {
	ctx, cancel := context.WithTimeout(p.b.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	_ = p.start(ctx, n, seconds).Wait()
	return time.Since(began)
}

// lines counts the lines of a file of the jobs: all, or those of one GPU.
func (p *peers) lines(name string, gpu ...int) (n int) {
	text, _ := os.ReadFile(filepath.Join(p.dir, name))
	for line := range strings.Lines(string(text)) {
		if len(gpu) == 0 || strings.TrimSpace(line) == strconv.Itoa(gpu[0]) {
			n++
		}
	}
	return n
}

func (p *peers) until(what string, so func() bool) bool {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if so() {
			return true
		}
	}
	p.b.Logf("%s: not within 20 s: %s", p.who.name, what)
	return false
}

// found lists the processes of this scenario that run a program, and have a text among their arguments.
func (p *peers) found(program string, text ...string) (pids []int) {
	names, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range names {
		dir := filepath.Dir(name)
		exe, _ := os.Readlink(filepath.Join(dir, "exe"))
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		env, _ := os.ReadFile(name)
		if exe == program && strings.Contains(string(env), "PEERS="+p.dir) && (len(text) == 0 || strings.Contains(string(args), text[0])) {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			pids = append(pids, pid)
		}
	}
	return pids
}

// scenario is one row of the table. right reports whether the answer is what users need.
type scenario struct {
	name string
	gpus int
	play func(p *peers) (answer string, right bool)
}

func scenarios() []scenario {
	return []scenario{
		{"64 jobs from two terminals, 4 GPUs", 4, crowdOfPeers},
		{"a stranger's process on GPU 0, 4 jobs", 4, stranger},
		{"kill -9 of what watches over a job", 1, killedKeeper},
		{"a child that outlives its job", 1, quietChild},
		{"a driver call hangs for GPU 1", 4, hangingCall},
		{"GPU 2 is lost, 4 jobs", 4, lostGPU},
		{"a fifth GPU while 24 jobs wait", 4, addedGPU},
	}
}

func crowdOfPeers(p *peers) (string, bool) {
	ctx, cancel := context.WithTimeout(p.b.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	first, second := p.start(ctx, 32, "0.1"), p.start(ctx, 32, "0.1")
	_, _ = first.Wait(), second.Wait()
	ran, twice := p.lines("ran"), p.lines("twice")
	return fmt.Sprintf("%d ran, %d on a GPU in use, %.1f s", ran, twice, time.Since(began).Seconds()), ran == 64 && twice == 0
}

func stranger(p *peers) (string, bool) {
	p.driver.AddProcess(0, os.Getpid(), 40<<30, fakegpu.Compute)
	p.run(4, "0.3")
	on := p.lines("ran", 0)
	return fmt.Sprintf("%d of %d ran on it", on, p.lines("ran")), on == 0 && p.lines("ran") == 4
}

func killedKeeper(p *peers) (string, bool) {
	ctx, cancel := context.WithTimeout(p.b.Context(), time.Minute)
	defer cancel()
	first := p.start(ctx, 1, "3")
	p.until("the first job runs", func() bool { return p.lines("ran") == 1 })
	if p.who.keeper == nil {
		_ = first.Cancel()
		return "nothing watches over it", false
	}
	for _, pid := range p.who.keeper(p) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	second := p.start(ctx, 1, "0.1")
	both := p.until("the second job runs", func() bool { return p.lines("ran") == 2 })
	_, _ = first.Wait(), second.Wait()
	if p.lines("twice") > 0 {
		return "the next job starts beside it", false
	}
	return map[bool]string{true: "the next job waits for its end", false: "the next job never starts"}[both], both
}

func quietChild(p *peers) (string, bool) {
	ctx, cancel := context.WithTimeout(p.b.Context(), time.Minute)
	defer cancel()
	_ = p.start(ctx, 1, "0", "CHILD=3").Wait()
	p.run(1, "0.1")
	if p.lines("twice") > 0 {
		return "the next job starts beside it", false
	}
	return "the next job waits for its end", p.lines("ran") == 2
}

func hangingCall(p *peers) (string, bool) {
	p.driver.Hang("nvmlDeviceGetMemoryInfo_v2", 1)
	ctx, cancel := context.WithTimeout(p.b.Context(), 30*time.Second)
	defer cancel()
	began := time.Now()
	_ = p.start(ctx, 1, "0.1").Wait()
	if p.lines("ran") == 0 {
		return "no job starts within 30 s", false
	}
	return fmt.Sprintf("a job runs on GPU %s, after %.1f s", p.first(), time.Since(began).Seconds()), p.lines("ran", 1) == 0
}

// first is the GPU of the first job.
func (p *peers) first() string {
	text, _ := os.ReadFile(filepath.Join(p.dir, "ran"))
	gpu, _, _ := strings.Cut(string(text), "\n")
	return gpu
}

func lostGPU(p *peers) (string, bool) {
	p.driver.LoseGPU(2)
	p.run(4, "0.3")
	on := p.lines("ran", 2)
	return fmt.Sprintf("%d of %d were sent to it", on, p.lines("ran")), on == 0 && p.lines("ran") == 4
}

func addedGPU(p *peers) (string, bool) {
	ctx, cancel := context.WithTimeout(p.b.Context(), time.Minute)
	defer cancel()
	jobs := p.start(ctx, 24, "0.5")
	p.until("a job runs", func() bool { return p.lines("ran") > 0 })
	p.driver.Add(fakegpu.A100(4))
	_ = jobs.Wait()
	waiting := p.lines("ran", 4)
	p.run(5, "0.3")
	later := p.lines("ran", 4) - waiting
	return fmt.Sprintf("%d of the waiting jobs use it, %d of 5 later ones", waiting, later), later > 0
}

// BenchmarkPeers plays each scenario with each program that is installed. That gpuard does not do what users need fails;
// the others' answers are printed.
func BenchmarkPeers(b *testing.B) {
	gpuard := buildProgram(b)
	for b.Loop() {
		all := allPeers(b, gpuard)
		for _, s := range scenarios() {
			fmt.Printf("\n%s\n", s.name)
			for _, who := range all {
				answer, right := s.play(newPeers(b, who, s.gpus))
				fmt.Printf("  %-20s %s\n", who.name, answer)
				if !right && who.name == "gpuard" {
					b.Errorf("%s: %s", s.name, answer)
				}
			}
		}
	}
}

package bench

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Goals of the line, on a machine that does nothing else.
const (
	goalCrowd = 5200 * time.Millisecond // for all starters
	goalWake  = 10 * time.Millisecond   // p50 from kill -9 of the holder to the first line of the waiter's command
)

const (
	starters    = 64
	slots       = 4
	jobTime     = "0.3" // seconds; starters/slots of them one after the other are 4.8 s
	crowdRounds = 3
	wakeRounds  = 60
)

// BenchmarkCrowd starts many jobs at the same moment on a few devices: with gpuard, with task-spooler with as many
// slots, and with a loop that only starts them.
func BenchmarkCrowd(b *testing.B) {
	gpuard := buildProgram(b)
	fake, demo := overFake(b, slots), overDemo(b)
	kinds := []*crowd{
		{name: "env X=1 sleep, 4 at a time", start: func() { atOnce(b, slots, nil, "env", "X=1", "sleep", jobTime) }},
		{name: "gpuard run", start: func() { atOnce(b, starters, fake.env, fake.waits(gpuard, nil, "sleep", jobTime)...) }, settle: fake.settle},
		{name: "gpuard run --machine demo", start: func() {
			atOnce(b, starters, demo.env, demo.waits(gpuard, []string{"--machine", "demo"}, "sleep", jobTime)...)
		}, settle: demo.settle},
	}
	if s := newSpooler(b, slots); s != nil {
		kinds = append(kinds, &crowd{name: "task-spooler", start: func() {
			atOnce(b, starters, s.env, s.path, "sleep", jobTime)
			s.wait()
		}})
	}
	for b.Loop() {
		for range crowdRounds {
			for _, k := range kinds {
				began := time.Now()
				k.start()
				k.spent = append(k.spent, time.Since(began))
				if k.settle != nil {
					k.settle()
				}
			}
		}
	}
	fmt.Printf("\n%-36s %9s %9s %9s\n", fmt.Sprintf("%d jobs of %s s on %d devices", starters, jobTime, slots), "least", "p50", "to env")
	for _, k := range kinds {
		ratio := float64(k.least()) / float64(kinds[0].least())
		fmt.Printf("%-36s %7.2f s %7.2f s %9.3f\n", k.name, k.least().Seconds(), quantile(k.spent, 0.5).Seconds(), ratio)
	}
	least := max(kinds[1].least(), kinds[2].least())
	fmt.Printf("goal: at most %.1f s: %.2f s, %s\n\n", goalCrowd.Seconds(), least.Seconds(), verdict(least <= goalCrowd))
	b.ReportMetric(least.Seconds(), "s-crowd")
}

// crowd is one way to start many jobs.
type crowd struct {
	name   string
	start  func()
	settle func()
	spent  []time.Duration
}

func (c *crowd) least() time.Duration { return slices.Min(c.spent) }

// waits is run for a command that waits for a device.
func (p place) waits(gpuard string, flags []string, command ...string) []string {
	return slices.Concat([]string{gpuard, "run", "--quiet"}, p.flags, flags, []string{"--"}, command)
}

// atOnce starts the same program for all starters, so many at a time, and waits for their ends.
func atOnce(b *testing.B, atATime int, env []string, argv ...string) {
	var all sync.WaitGroup
	room := make(chan struct{}, atATime)
	for range starters {
		all.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			if out, err := command(argv, env).CombinedOutput(); err != nil {
				b.Errorf("%q: %v\n%s", argv, err, out)
			}
		})
	}
	all.Wait()
}

// spooler is a server of task-spooler; nil where that is not installed.
type spooler struct {
	path string
	env  []string
}

func newSpooler(b *testing.B, slots int) *spooler {
	path, err := exec.LookPath("tsp")
	if err != nil {
		fmt.Println("task-spooler is not installed: apt-get install task-spooler")
		return nil
	}
	s := &spooler{path, []string{"TS_SOCKET=" + filepath.Join(memory(b), "tsp")}}
	b.Cleanup(func() { _ = command([]string{path, "-K"}, s.env).Run() })
	if err := command([]string{path, "-S", strconv.Itoa(slots)}, s.env).Run(); err != nil {
		b.Fatal(err)
	}
	return s
}

// wait waits until every job has ended.
func (s *spooler) wait() {
	out, _ := command([]string{s.path, "-l"}, s.env).Output()
	for line := range strings.Lines(string(out)) {
		if id, _, _ := strings.Cut(strings.TrimSpace(line), " "); id != "" && id != "ID" {
			_ = command([]string{s.path, "-w", id}, s.env).Run()
		}
	}
	_ = command([]string{s.path, "-C"}, s.env).Run()
}

// BenchmarkWake kills the command that has the only device, repeatedly, and measures how long it takes until the
// command of the next in the queue prints: with gpuard, with task-spooler with one slot, and with a shell that starts
// it.
func BenchmarkWake(b *testing.B) {
	gpuard := buildProgram(b)
	fake, demo := overFake(b, 1), overDemo(b)
	heard := newEar(b)
	says := []string{"sh", "-c", "echo $$ >" + heard.path + "; exec sleep 1000"}
	starting := func(env []string, argv ...string) func() {
		return func() { startAside(b, command(argv, env)) }
	}
	onFake, onDemo := fake.waits(gpuard, nil, says...), demo.waits(gpuard, []string{"--machine", "demo:1xL4"}, says...)
	chains := []*chain{
		{name: "sh, started by hand", next: starting(nil, says...), alone: true},
		{name: "gpuard run", next: starting(fake.env, onFake...), line: fake.leases},
		{name: "gpuard run --machine demo", next: starting(demo.env, onDemo...), line: demo.leases},
	}
	if s := newSpooler(b, 1); s != nil {
		chains = append(chains, &chain{name: "task-spooler", next: func() {
			if err := command(append([]string{s.path}, says...), s.env).Run(); err != nil {
				b.Fatal(err)
			}
		}})
	}
	for b.Loop() {
		for _, c := range chains {
			c.begin(heard)
		}
		for range wakeRounds {
			for _, c := range chains {
				c.hand(heard)
			}
		}
		for _, c := range chains {
			c.end(heard)
		}
	}
	fmt.Printf("\n%-36s %9s %9s %12s\n", fmt.Sprintf("kill -9 to the next start, %d rounds", wakeRounds), "p50", "p99", "over sh p50")
	base := quantile(chains[0].spent, 0.5)
	for _, c := range chains {
		fmt.Printf("%-36s %9s %9s %12s\n", c.name, ms(quantile(c.spent, 0.5)), ms(quantile(c.spent, 0.99)), ms(quantile(c.spent, 0.5)-base))
	}
	slowest := max(quantile(chains[1].spent, 0.5), quantile(chains[2].spent, 0.5))
	fmt.Printf("goal: at most %s, p50: %s, %s\n\n", ms(goalWake), ms(slowest), verdict(slowest <= goalWake))
	b.ReportMetric(float64(slowest.Microseconds())/1000, "ms-wake")
}

// startAside starts a command that ends with the benchmark.
func startAside(b *testing.B, c *exec.Cmd) {
	b.Helper()
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
	go func() { _ = c.Wait() }()
}

// chain is a queue for one device: the command that has it is killed, and the next one starts.
type chain struct {
	name  string
	next  func() // puts one more into the line
	line  string // folder below which tickets lie; "" where a new one stands in line as soon as next returns
	alone bool   // there is no line: the next one is started after the kill
	has   int    // PID of the command that has the place
	spent []time.Duration
}

// begin starts the first one and puts the second into the line.
func (c *chain) begin(heard *ear) {
	c.next()
	c.has = heard.pid()
	c.stand()
}

// stand adds one more to the queue and waits until it sleeps there.
func (c *chain) stand() {
	if c.alone {
		return
	}
	c.next()
	for end := time.Now().Add(10 * time.Second); c.line != "" && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if found, _ := filepath.Glob(filepath.Join(c.line, "tickets/*/*.ticket")); len(found) > 0 {
			break
		}
		if found, _ := filepath.Glob(filepath.Join(c.line, "machines/*/tickets/*/*.ticket")); len(found) > 0 {
			break
		}
	}
	time.Sleep(20 * time.Millisecond)
}

// hand kills the command that has the device, and measures until the next one has it.
func (c *chain) hand(heard *ear) {
	began := time.Now()
	_ = unix.Kill(c.has, unix.SIGKILL)
	if c.alone {
		began = time.Now()
		c.next()
	}
	c.has = heard.pid()
	c.spent = append(c.spent, time.Since(began))
	c.stand()
}

// end kills the rest.
func (c *chain) end(heard *ear) {
	_ = unix.Kill(c.has, unix.SIGKILL)
	if !c.alone {
		_ = unix.Kill(heard.pid(), unix.SIGKILL)
	}
}

// ear is a FIFO into which commands write their PIDs when they start.
type ear struct {
	path  string
	lines *bufio.Reader
}

func newEar(b *testing.B) *ear {
	path := filepath.Join(memory(b), "started")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		b.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = file.Close() })
	return &ear{path, bufio.NewReader(file)}
}

// pid is the next command that has started.
func (e *ear) pid() int {
	line, err := e.lines.ReadString('\n')
	pid, cerr := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || cerr != nil {
		return -1
	}
	return pid
}

package run

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/job"
	"gpuard/internal/host/logfile"
	"gpuard/internal/host/proc"
)

// TestMain makes the test program what copies the output of a job into its log.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == logfile.CopyFlag {
		var o logfile.CopyOrders
		if err := errors.Join(json.Unmarshal([]byte(os.Args[2]), &o), logfile.CopyOutput(o)); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// superviseFixture is a supervised script without a device, and what became of it.
type superviseFixture struct {
	t    *testing.T
	dir  string // its folder, as $DIR
	mu   sync.Mutex
	said []string
}

// superviseScript runs a script until it has ended for good. told is Supervise's; nil nothing.
func (r *superviseFixture) superviseScript(ctx context.Context, script string, spec job.Spec, care job.Care, told func(l *Launch, pid int) error) (*job.Result, error) {
	r.t.Helper()
	say := func(text string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.said = append(r.said, text)
	}
	host := &machine.Host{Env: append(os.Environ(), "DIR="+r.dir), Proc: proc.New("/proc"), Root: "/", Messages: machine.Messages{Say: say}, Times: machine.Times{Pause: time.Millisecond}}
	spec.CPU, spec.Command = true, []string{"sh", "-c", script}
	if spec.Grace == 0 {
		spec.Grace = 10 * time.Second
	}
	if care.Stop == "" {
		care.Stop = "SIGTERM"
	}
	if told == nil {
		told = func(*Launch, int) error { return nil }
	}
	l, err := Prepare(ctx, host, spec)
	if err != nil {
		r.t.Fatal(err)
	}
	done, _, err := l.Supervise(ctx, care, told)
	return done, err
}

// readFile returns what the script has written into a file.
func (r *superviseFixture) readFile(name string) string {
	text, _ := os.ReadFile(filepath.Join(r.dir, name))
	return string(text)
}

// isAlive reports whether a process lives whose number is in a file.
func (r *superviseFixture) isAlive(name string) bool {
	pid, err := strconv.Atoi(strings.TrimSpace(r.readFile(name)))
	if err != nil {
		r.t.Errorf("no process in %s: %v", name, err)
		return false
	}
	return syscall.Kill(pid, 0) == nil
}

// stubbornChildScript is a child in a session of its own that does not obey; its number is in the file child.
const stubbornChildScript = `setsid sh -c 'trap "" TERM INT; echo $$ >"$DIR/part"; mv "$DIR/part" "$DIR/child"; while :; do sleep 0.05; done' & while ! test -e "$DIR/child"; do sleep 0.01; done; `

// TestSupervise: how a job ends, and after how many starts.
func TestSupervise(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		spec   job.Spec
		care   job.Care
		want   job.Result // Starts 0: any number
		wrote  string     // into the file out
		says   string
	}{
		"exit code":       {"exit 7", job.Spec{}, job.Care{}, job.Result{Code: 7, Starts: 1}, "", ""},
		"death by signal": {"kill -KILL $$", job.Spec{}, job.Care{}, job.Result{Code: -1, Signal: "SIGKILL", Starts: 1}, "", ""},
		"started again": {`echo "start $GPUARD_RESTART" >>"$DIR/out"; test "$GPUARD_RESTART" = 2 || exit 3`, job.Spec{}, job.Care{Retries: 5, Any: true},
			job.Result{Starts: 3}, "start \nstart 1\nstart 2\n", "the command ended (exit 3): starting it again in 0.0 s, start 2 of 6"},
		"as often as was asked":    {"exit 3", job.Spec{}, job.Care{Retries: 2, Any: true}, job.Result{Code: 3, Starts: 3}, "", "start 3 of 3"},
		"by itself it has failed":  {"exit 3", job.Spec{}, job.Care{Retries: 2}, job.Result{Code: 3, Starts: 1}, "", "nothing says that it was the machine's fault"},
		"a user has ended it":      {"kill -TERM $$", job.Spec{}, job.Care{Retries: 2, Any: true}, job.Result{Code: -1, Signal: "SIGTERM", Starts: 1}, "", "SIGTERM and is not started again"},
		"its time is over":         {`trap 'echo asked >>"$DIR/out"; exit 4' USR1; while :; do sleep 0.01; done`, job.Spec{Timeout: 2 * time.Second}, job.Care{Stop: "SIGUSR1", Retries: 2, Any: true}, job.Result{Code: 4, Starts: 1, TimedOut: true}, "asked\n", "the time is over"},
		"over all its starts":      {`test "$GPUARD_RESTART" && exec sleep 60; sleep 0.2; exit 3`, job.Spec{Timeout: 500 * time.Millisecond}, job.Care{Retries: 100, Any: true}, job.Result{Code: -1, Signal: "SIGTERM", TimedOut: true}, "", "the time is over"},
		"the whole tree is killed": {stubbornChildScript + `trap "" TERM; while :; do sleep 0.01; done`, job.Spec{Timeout: 2 * time.Second, Grace: 50 * time.Millisecond}, job.Care{}, job.Result{Code: -1, Signal: "SIGKILL", Starts: 1, TimedOut: true}, "", "the time is over"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &superviseFixture{t: t, dir: t.TempDir()}
			got, err := r.superviseScript(t.Context(), c.script, c.spec, c.care, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got.Code != c.want.Code || got.Signal != c.want.Signal || got.TimedOut != c.want.TimedOut || c.want.Starts > 0 && got.Starts != c.want.Starts {
				t.Errorf("%+v, want %+v", *got, c.want)
			}
			if r.readFile("out") != c.wrote {
				t.Errorf("it wrote %q", r.readFile("out"))
			}
			if said := strings.Join(r.said, "\n"); !strings.Contains(said, c.says) {
				t.Errorf("gpuard said %q", said)
			}
			if strings.Contains(c.script, "/child") && r.isAlive("child") {
				t.Error("a process that it left lives")
			}
		})
	}
}

// TestSuperviseAsked: a job that is asked to end gets its signal, and is not started again.
func TestSuperviseAsked(t *testing.T) {
	r := &superviseFixture{t: t, dir: t.TempDir()}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for !t.Failed() && r.readFile("on") == "" {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	got, err := r.superviseScript(ctx, `trap 'exit 5' USR1; echo on >"$DIR/on"; while :; do sleep 0.01; done`, job.Spec{}, job.Care{Stop: "SIGUSR1", Retries: 3, Any: true}, nil)
	if err != nil || got.Code != 5 || !got.Asked || got.Starts != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestSuperviseLog: all that the job prints and all that gpuard says of it is in its log, over all its starts.
func TestSuperviseLog(t *testing.T) {
	r := &superviseFixture{t: t, dir: t.TempDir()}
	got, err := r.superviseScript(t.Context(), `echo "out $GPUARD_RESTART"; echo err >&2; test "$GPUARD_RESTART"`, job.Spec{}, job.Care{Retries: 1, Any: true, Log: filepath.Join(r.dir, "log"), LogLimit: 1 << 20}, nil)
	if err != nil || got.Code != 0 || got.Starts != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	log := r.readFile("log")
	lines := map[string]int{}
	for line := range strings.Lines(log) {
		for _, what := range []string{"# gpuard: ", ": sh -c ", "starting it again", "out \n", "out 1\n", "err\n"} {
			if strings.Contains(line, what) && (!strings.HasSuffix(what, "\n") || line == what) {
				lines[what]++
			}
		}
	}
	if want := map[string]int{"# gpuard: ": 3, ": sh -c ": 2, "starting it again": 1, "out \n": 1, "out 1\n": 1, "err\n": 2}; !maps.Equal(lines, want) {
		t.Errorf("%v lines, want %v:\n%s", lines, want, log)
	}
}

// TestSuperviseTold: who hears of a start may refuse it, and then nothing is started. It hears of each twice: before it, and with
// the PID.
func TestSuperviseTold(t *testing.T) {
	r := &superviseFixture{t: t, dir: t.TempDir()}
	no := errors.New("no")
	_, err := r.superviseScript(t.Context(), `touch "$DIR/out"`, job.Spec{}, job.Care{}, func(*Launch, int) error { return no })
	if _, there := os.Stat(filepath.Join(r.dir, "out")); !errors.Is(err, no) || there == nil {
		t.Errorf("%v, %v", err, there)
	}
	var pids []int
	_, err = r.superviseScript(t.Context(), `test "$GPUARD_RESTART"`, job.Spec{}, job.Care{Retries: 1, Any: true}, func(_ *Launch, pid int) error {
		pids = append(pids, pid)
		return nil
	})
	if err != nil || len(pids) != 4 || pids[0] != 0 || pids[1] == 0 || pids[2] != 0 || pids[3] == 0 || pids[1] == pids[3] {
		t.Errorf("%v, %v", pids, err)
	}
}

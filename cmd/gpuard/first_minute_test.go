package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpuard/internal/core/proof"
	"gpuard/internal/core/trend"
	"gpuard/test/fakegpu"
)

// firstMinuteJob is a job in its first minute, which lasts six seconds here.
type firstMinuteJob struct {
	*fakeDriverMachine
	cmd   *exec.Cmd
	heard *outputBuffer // standard error
}

func (r *fakeDriverMachine) startFirstMinuteJob(flags string, script string) *firstMinuteJob {
	r.t.Helper()
	words := append(append([]string{"run", "-q"}, strings.Fields(flags)...), "--", "sh", "-c", script)
	b := &firstMinuteJob{r, r.cmd(words...), &outputBuffer{}}
	b.cmd.Args[0] = "glancing"
	b.cmd.Env = append(b.cmd.Env, r.env...) // these count more than what the tests have for all
	b.cmd.Stderr = b.heard
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := b.cmd.Start()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL) })
	return b
}

// waitForVerdict waits until status says where the job works.
func (b *firstMinuteJob) waitForVerdict(want proof.Verdict) (text string) {
	b.t.Helper()
	waitUntil(b.t, "status says "+string(want), func() bool {
		report, _ := b.readStatus()
		for _, d := range report.Devices {
			for _, l := range d.Leases {
				if l.Seen == string(want) {
					text = l.SeenText
					return true
				}
			}
		}
		return false
	})
	return text
}

// endJob ends the job, and returns what it heard and the line of the history.
func (b *firstMinuteJob) endJob() (heard string, line trend.EndedLease) {
	b.t.Helper()
	_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGTERM)
	_ = b.cmd.Wait()
	path := filepath.Join(durablePath(b.state, os.Geteuid(), "history"), "leases-ended")
	waitUntil(b.t, "its line is written", func() bool {
		text, err := os.ReadFile(path)
		return err == nil && json.Unmarshal(bytes.TrimSpace(text), &line) == nil
	})
	return b.heard.String(), line
}

// TestFirstMinute: a job that is not where it should be is told so in its first minute, once, and so are status and the history;
// one that is right, or that loads its data first, hears nothing.
func TestFirstMinute(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, flags, script string
		verdict             proof.Verdict
		text                string // in status
		said, history       string // "" nothing
	}{
		{"right", "--device 1", "exec fakegpu-job --gpu 1 --mem 2G", proof.Proven, "fakegpu-job (process ", "", ""},
		{"on another one", "--device 1 --anyway", "CUDA_VISIBLE_DEVICES=0 exec fakegpu-job --gpu 0 --mem 2G", proof.OutsideLease, ", which root has: lease ",
			"gpuard: WARNING: outside the lease: fakegpu-job (process ", "outside-lease"},
		{"on one of two", "--gpus 2", "exec fakegpu-job --gpu 1 --mem 2G", proof.Partly, "uses GPU 1 ", "gpuard: WARNING: not on all of its GPUs: ", "partly-used"},
		// the shell ends last: what outlives the lease's process keeps the lease
		{"on both", "--gpus 2", "trap : TERM; fakegpu-job --gpu 1 & fakegpu-job --gpu 0 & wait; wait", proof.Proven, "", "", ""},
		{"on the CPU", "--device 1 --anyway", "CUDA_VISIBLE_DEVICES=-1 exec sh -c 'while :; do :; done'", proof.CPU, "its environment shows it no GPU (CUDA_VISIBLE_DEVICES=-1)",
			"gpuard: WARNING: not on any GPU (CPU fallback): sh (process ", "cpu"},
		{"loads its data", "--device 1", "exec sleep 600", proof.TooEarly, "is not on GPU 1 ", "", ""},
		{"loads its data, and computes", "--device 1", "while :; do :; done", proof.TooEarly, "is not on GPU 1 ", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newFakeDriverMachine(t, makeA100s(2)...)
			if c.verdict == proof.OutsideLease {
				r.startLeasedScript(0, "exec sleep 600")
			}
			b := r.startFirstMinuteJob(c.flags, c.script)
			checkContains(t, b.waitForVerdict(c.verdict), c.text)
			if c.said != "" {
				checkContains(t, b.run("status").out, "! ")
			}
			heard, line := b.endJob()
			if c.said == "" && heard != "" || !strings.Contains(heard, c.said) || strings.Count(heard, "WARNING") > 1 {
				t.Errorf("it heard %q", heard)
			}
			checkEqual(t, "in the history", line.Seen, c.history)
		})
	}
}

// TestFirstMinuteLater: a job that loads its data first is right when it has begun.
func TestFirstMinuteLater(t *testing.T) {
	t.Parallel()
	loaded := filepath.Join(t.TempDir(), "loaded")
	b := newFakeDriverMachine(t, makeA100s(1)...).startFirstMinuteJob("", `until test -e `+loaded+`; do sleep 0.1; done; exec fakegpu-job --gpu 0`)
	b.waitForVerdict(proof.TooEarly)
	checkContains(t, b.run("status").out, "is not on GPU 0 ")
	writeFile(t, loaded, "", 0o600)
	b.waitForVerdict(proof.Proven)
	heard, _ := b.endJob()
	checkEqual(t, "it heard", heard, "")
}

// TestFirstMinuteAfterWaiting: the time that a job has waited in line is no time in which it could have been on a device.
func TestFirstMinuteAfterWaiting(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	_, before := r.startLeasedScript(0, "exec sleep 600")
	b := r.startFirstMinuteJob("", "exec sleep 600")
	waitUntil(t, "it waits", func() bool { return r.countWaiting() == 1 })
	time.Sleep(6 * time.Second) // a minute, for that program
	_ = syscall.Kill(-before, syscall.SIGKILL)
	b.waitForVerdict(proof.TooEarly)
	report, _ := r.readStatus()
	lease := report.Devices[0].Leases[0]
	if held := time.Since(*lease.Since); held < 4*time.Second {
		t.Errorf("it was judged %s after it got its device", held)
	}
}

// TestFirstMinuteRule: where a rule says so, what a job has on a device outside its lease is ended, and nothing else.
func TestFirstMinuteRule(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	config := t.TempDir()
	writeFile(t, filepath.Join(config, "gpuard", "config.yaml"), fmt.Sprintf("rules:\n- name: lab\n  users: [%d]\n  outside: end\n", os.Geteuid()), 0)
	r.env = append(r.env, "XDG_CONFIG_HOME="+config)
	other := r.startFakeJob(0, "1G", fakegpu.Compute)
	b := r.startFirstMinuteJob("--device 1 --anyway", "CUDA_VISIBLE_DEVICES=0 fakegpu-job --gpu 0 --mem 2G; echo it ended with $? >&2; exec fakegpu-job --gpu 1")

	waitUntil(t, "it is ended", func() bool { return strings.Contains(b.heard.String(), "it ended with ") })
	b.waitForVerdict(proof.Proven)
	heard, line := b.endJob()
	checkContains(t, heard, "WARNING: outside the lease: fakegpu-job", "told process ", " to end, which is on a device outside lease ", `rule "lab"`, "it ended with 143")
	checkEqual(t, "in the history", line.Seen, "outside-lease")
	checkEqual(t, "what belongs to nobody's lease lives", syscall.Kill(other, 0), nil)
}

// TestFirstMinuteOfOthers: a job of the queue, a run of a sweep and a service are told in their logs, once, with a process of gpuard beside
// them and without.
func TestFirstMinuteOfOthers(t *testing.T) {
	t.Parallel()
	const script = "CUDA_VISIBLE_DEVICES=0 exec fakegpu-job --gpu 0 --mem 2G"
	glanced := func(l *queueFixture, words ...string) *exec.Cmd {
		cmd := l.cmd(words...)
		cmd.Args[0] = "glancing"
		cmd.Env = append(cmd.Env, l.env...)
		return cmd
	}
	begun := func(l *queueFixture, words ...string) {
		got := runCommand(l.t, glanced(l, words...))
		checkEqual(l.t, strings.Join(words, " ")+": "+got.err, got.code, 0)
	}
	job := []string{"--device", "1", "--anyway"}
	queued := func(l *queueFixture, flags ...string) (log string, end func()) {
		begun(l, slices.Concat([]string{"submit", "-q"}, flags, job, []string{"--", "sh", "-c", script})...)
		return l.queuedJobs()[0].Log, func() { begun(l, "cancel", "1") }
	}
	for name, start := range map[string]func(l *queueFixture, dir string) (log string, end func()){
		"submit":               func(l *queueFixture, _ string) (string, func()) { return queued(l) },
		"submit with a keeper": func(l *queueFixture, _ string) (string, func()) { return queued(l, "--timeout", "1h") },
		"sweep": func(l *queueFixture, dir string) (string, func()) {
			cmd := glanced(l, slices.Concat([]string{"sweep", "-q", "--over", "a=1", "--dir", dir}, job, []string{"--", "sh", "-c", ": {{.a}}; " + script})...)
			err := cmd.Start()
			if err != nil {
				l.t.Fatal(err)
			}
			return filepath.Join(dir, "runs", "0000", "log"), func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() }
		},
		"up": func(l *queueFixture, dir string) (string, func()) {
			file, log := filepath.Join(dir, "gpuard.yaml"), filepath.Join(dir, "log")
			writeFile(l.t, file, "services:\n  one:\n    device: 1\n    anyway: true\n    log: "+log+"\n    command: [sh, -c, '"+script+"']\n", 0o600)
			begun(l, "up", "-d", "--file", file)
			return log, func() { begun(l, "down", "--file", file) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newQueueFixture(t, 2)
			l.startLeasedScript(0, "exec sleep 600")
			log, end := start(l, filepath.Join(quietDir(t), "d"))
			heard := func() string { text, _ := os.ReadFile(log); return string(text) }
			waitUntil(t, "its log has it", func() bool {
				return strings.Contains(heard(), "gpuard: WARNING: outside the lease: fakegpu-job (process ")
			})
			time.Sleep(4 * time.Second) // until after the second look
			checkEqual(t, heard(), strings.Count(heard(), "WARNING"), 1)
			end()
		})
	}
}

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/app/userqueue"
	"gpuard/internal/gate"
)

// TestQueueOrder: short jobs go before long ones of the same user, by --expect and by what the same command took before;
// the queue says when each may start; paused, nothing starts.
func TestQueueOrder(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 1)
	l.program = "orderly"
	order := filepath.Join(l.marks, "order")
	note := func(name string) []string { return []string{"--", "sh", "-c", "echo " + name + " >>" + order} }
	stop := filepath.Join(l.marks, "stop")
	checkEqual(t, "submit", runCommand(t, l.submitCommand("--", "sh", "-c", "while ! test -e "+stop+"; do sleep 0.1; done")).code, 0)
	waitUntil(t, "the first runs", func() bool { q := l.queuedJobs(); return len(q) == 1 && q[0].State == userqueue.Running })
	checkEqual(t, "pause", l.run("queue", "pause").code, 0)
	for _, words := range [][]string{{"--expect", "30h", "long"}, {"--expect", "1m", "short"}, {"--expect", "1m", "--nice", "-1", "favourite"}} {
		checkEqual(t, "submit", runCommand(t, l.submitCommand(append(words[:len(words)-1], note(words[len(words)-1])...)...)).code, 0)
	}
	shown := l.run("queue")
	checkContains(t, shown.out, "the queue is paused", "2  waiting")
	writeFile(t, stop, "", 0)
	waitUntil(t, "only the paused ones are left", func() bool { return len(l.queuedJobs()) == 3 })
	for _, e := range l.queuedJobs() {
		if e.State != userqueue.Waiting || e.Expected != nil || e.HeldBack != "the queue is paused" || e.Estimate <= 0 {
			t.Errorf("%+v", e)
		}
	}
	if _, err := os.Stat(order); err == nil {
		t.Error("a paused queue started a job")
	}
	checkEqual(t, "resume", l.run("queue", "resume").code, 0)
	l.waitUntilAllEnded()
	text, _ := os.ReadFile(order)
	checkEqual(t, "order", string(text), "favourite\nshort\nlong\n")
}

// TestQueueBehindMany: a short job of a user starts before long ones that came first, however many of them wait. Those with
// a ticket give it back.
func TestQueueBehindMany(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 1)
	l.program = "orderly"
	order, stop := filepath.Join(l.marks, "order"), filepath.Join(l.marks, "stop")
	checkEqual(t, "submit", runCommand(t, l.submitCommand("--", "sh", "-c", "while ! test -e "+stop+"; do sleep 0.1; done")).code, 0)
	waitUntil(t, "the first runs", func() bool { q := l.queuedJobs(); return len(q) == 1 && q[0].State == userqueue.Running })
	checkEqual(t, "submit", runCommand(t, l.submitCommand("--array", "1-20", "--expect", "30h", "--", "sh", "-c", "echo long >>"+order)).code, 0)
	tickets := func(of string) (n int) {
		files, _ := filepath.Glob(filepath.Join(l.state, "tickets/*/*.ticket"))
		for _, name := range files {
			if text, _ := os.ReadFile(name); strings.Contains(string(text), `"time_ns":`+of+",") {
				n++
			}
		}
		return n
	}
	waitUntil(t, "all tickets are in use", func() bool { return tickets("108000000000000") == 16 })
	for range 3 {
		checkEqual(t, "submit", runCommand(t, l.submitCommand("--expect", "1m", "--", "sh", "-c", "echo short >>"+order)).code, 0)
	}
	waitUntil(t, "the short ones have tickets", func() bool { return tickets("60000000000") == 3 && tickets("108000000000000") == 13 })
	writeFile(t, stop, "", 0)
	l.waitUntilAllEnded()
	text, _ := os.ReadFile(order)
	checkEqual(t, "order", string(text), strings.Repeat("short\n", 3)+strings.Repeat("long\n", 20))
}

// TestQueueArray: one job for each number, so many at a time, each with its number, its log and its limits; and who is
// told of the end.
func TestQueueArray(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 4)
	l.program = "orderly"
	live := filepath.Join(l.marks, "live")
	most := filepath.Join(l.marks, "most")
	if err := os.Mkdir(live, 0o700); err != nil {
		t.Fatal(err)
	}
	script := `touch "$1/$GPUARD_ARRAY_TASK"; ls "$1" | wc -l >>"$2"; sleep 0.2; rm "$1/$GPUARD_ARRAY_TASK"; echo "task $GPUARD_ARRAY_TASK $(ulimit -n) $(test -d "$GPUARD_JOB_DIR" && echo folder)"`
	words := []string{"--array", "3-9%2", "--name", "part", "--log", filepath.Join(l.marks, "out-%a"), "--notify", "echo \"$GPUARD_JOB_TEXT\" >>" + filepath.Join(l.marks, "told"),
		"--", "sh", "-c", script, "sh", live, most}
	submit := l.submitCommand(words...)
	submit.Path, submit.Args = "/bin/sh", append([]string{"sh", "-c", `ulimit -n 333; exec gpuard "$@"`, "sh"}, submit.Args[1:]...)
	checkEqual(t, "submit", runCommand(t, submit).out, "1\n")
	checkEqual(t, "wait", l.run("wait", "1-7").code, 0)
	text, _ := os.ReadFile(most)
	if counts := strings.Fields(string(text)); len(counts) != 7 || strings.Trim(strings.Join(counts, ""), "12") != "" || !strings.Contains(string(text), "2") {
		t.Errorf("at the same time ran %q", counts)
	}
	out, _ := os.ReadFile(filepath.Join(l.marks, "out-7"))
	checkEqual(t, "its output", string(out), "task 7 333 folder\n")
	waitUntil(t, "all ends are told", func() bool {
		told, _ := os.ReadFile(filepath.Join(l.marks, "told"))
		return strings.Count(string(told), "\n") == 7 && strings.Contains(string(told), "job 5 (part[7]): done\n")
	})
	for _, bad := range [][]string{{"--array", "9-3"}, {"--array", "x"}, {"--array", "1-3%0"}, {"--array", "1-99999"}, {"--array", "1-3", "--log", "/tmp/x"}, {"--notify", "https://example.org"}} {
		got := runCommand(t, l.submitCommand(append(bad, "--", "true")...))
		if bad[0] == "--notify" {
			got.code = map[bool]int{true: 125, false: got.code}[got.code == 0] // where curl is installed
		}
		checkEqual(t, strings.Join(bad, " ")+": "+got.err, got.code, 125)
	}
	l.run("cancel", "8")
	l.waitUntilAllEnded()
}

// TestQueueRules: what a rule never allows is refused when it is handed in, with the place of the rule.
func TestQueueRules(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root")
	l := newQueueFixture(t, 2)
	l.program = "orderly"
	config := t.TempDir()
	writeFile(t, filepath.Join(config, "gpuard", "config.yaml"), "rules:\n  - name: all\n    users: [root]\n    gpus: 1\n    time: 1h\n    queue: 2\n", 0)
	l.env = append(l.env, "XDG_CONFIG_HOME="+config)
	for words, want := range map[string]string{"--gpus 2": "ask for 1 GPU (--gpus 1)", "--timeout 2h": "at most 1h"} {
		got := runCommand(t, l.submitCommand(append(strings.Fields(words), "--", "true")...))
		if got.code != 122 {
			t.Errorf("%s: %+v", words, got)
		}
		checkContains(t, got.err, want, `rule "all" (`, "config.yaml:2")
	}
	for range 2 {
		checkEqual(t, "submit", runCommand(t, l.submitCommand("--hold", "--", "true")).code, 0)
	}
	got := runCommand(t, l.submitCommand("--hold", "--", "true"))
	checkEqual(t, "one too many", got.code, 122)
	checkContains(t, strings.Join(strings.Fields(got.err), " "), "lets 2 of your", "config.yaml:2")
	var a struct{ Jobs []userqueue.Entry }
	if err := json.Unmarshal([]byte(l.run("queue", "--json").out), &a); err != nil || len(a.Jobs) != 2 {
		t.Error(err, a)
	}
	l.run("cancel", "1", "2")
}

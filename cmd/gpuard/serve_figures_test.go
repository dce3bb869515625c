package main

import (
	"encoding/json"
	"fmt"
	"html"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/status"
	"gpuard/test/fakegpu"
)

// TestServeFigures: in five situations the page, without a token, shows the figures of gpuard status --json at that moment: idle, a day of
// work, a crowd, trouble, and a computer with one GPU.
func TestServeFigures(t *testing.T) {
	t.Parallel()
	for name, situation := range map[string]struct {
		gpus int
		make func(r *fakeDriverMachine)
	}{
		"idle": {8, func(*fakeDriverMachine) {}},
		"day": {8, func(r *fakeDriverMachine) {
			r.startLastingJob("--device", "0,1", "--name", "finetune", "--expect", "3h")
			r.startLastingJob("--device", "5", "--name", "bert-large", "--expect", "2h")
			r.startLastingJob("--device", "7", "--name", "asr", "--share", "16G")
			r.startLastingJob("--device", "7", "--name", "tts", "--share", "8G")
			r.SetValue(0, "utilization", "97")
			r.SetValue(5, "utilization", "88")
			r.SetValue(5, "temperature", "71")
		}},
		"crowd": {2, func(r *fakeDriverMachine) {
			r.startLastingJob("--device", "0", "--name", "first", "--expect", "1h")
			r.startLastingJob("--device", "1", "--name", "second")
			for range 12 {
				cmd := r.cmd("run", "-q", "--name", "later", "--", "true")
				if err := cmd.Start(); err != nil {
					r.t.Fatal(err)
				}
				r.t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
			}
		}},
		"trouble": {4, func(r *fakeDriverMachine) {
			r.startLastingJob("--device", "0", "--name", "train")
			r.SetValue(0, "events", "0x40")
			r.SetValue(0, "temperature", "91")
			r.SetValue(1, "lost", "")
			r.AddProcess(2, unix.Getppid(), 30<<30, fakegpu.Compute)
			checkEqual(r.t, "drain", r.run("drain", "3", "--reason", "new fan").code, 0)
		}},
		"laptop": {1, func(r *fakeDriverMachine) { r.SetValue(0, "utilization", "3") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newFakeDriverMachine(t, makeA100s(situation.gpus)...)
			situation.make(r)
			p := r.startServe()
			var wrong []string
			t.Cleanup(func() {
				if t.Failed() {
					t.Log(wrong)
				}
			})
			waitUntil(t, "the page and status say the same", func() bool {
				wrong = pageDifferences(t, r, p)
				return len(wrong) == 0
			})
		})
	}
}

// startLastingJob starts a job that lasts.
func (r *fakeDriverMachine) startLastingJob(flags ...string) {
	r.t.Helper()
	startToFirstLine(r.t, r.cmd(append(append([]string{"run", "-q"}, flags...), "--", "sh", "-c", "echo begun; exec sleep 300")...))
}

// pageDifferences are the figures in which the page differs from gpuard status --json.
func pageDifferences(t *testing.T, r *fakeDriverMachine, p *website) (wrong []string) {
	t.Helper()
	var here status.Report
	if err := json.Unmarshal([]byte(r.run("status", "--json").out), &here); err != nil {
		t.Fatal(err)
	}
	page := p.get("/").body
	free := 0
	for i := range here.Devices {
		d := &here.Devices[i]
		if d.State() == "free" {
			free++
		}
		_, row, found := strings.Cut(page, fmt.Sprintf(`id="nvidia-%d"`, d.Index))
		row, _, _ = strings.Cut(row, `<div class="gpu`)
		want := map[string]string{"utilization": "", "memory": "", "temperature": ""}
		if d.Utilization != nil {
			want["utilization"] = strconv.FormatFloat(*d.Utilization, 'g', -1, 64)
		}
		if d.MemoryUsed != nil {
			want["memory"] = strconv.FormatInt(int64(*d.MemoryUsed), 10)
		}
		if d.Temperature != nil {
			want["temperature"] = strconv.Itoa(*d.Temperature)
		}
		for name, value := range want {
			got := regexp.MustCompile(`data-is="` + name + `" data-value="([^"]*)"`).FindStringSubmatch(row)
			if value != "" && (got == nil || got[1] != value) || value == "" && got != nil {
				wrong = append(wrong, fmt.Sprintf("GPU %d: %s %q, want %q", d.Index, name, got, value))
			}
		}
		if !found || !strings.Contains(row, `data-is="state">`+strings.Replace(d.State(), "draining", "drained", 1)+`<`) {
			wrong = append(wrong, fmt.Sprintf("GPU %d is not %s", d.Index, d.State()))
		}
		if len(d.Why) > 0 && !strings.Contains(row, html.EscapeString(d.Why[0])) {
			wrong = append(wrong, fmt.Sprintf("GPU %d: no %s", d.Index, d.Why[0]))
		}
		for k := range d.Leases {
			if l := &d.Leases[k]; !strings.Contains(page, `<tr data-key="r`+l.ID+`"`) || !strings.Contains(row, l.Command) {
				wrong = append(wrong, "no "+l.ID+" "+l.Command)
			}
		}
	}
	for _, w := range here.Waiting {
		short, _, _ := strings.Cut(w.Why, "; ")
		hers := strings.Replace(short, "that it can", "that "+w.Command+" can", 1)
		theirs := strings.Replace(short, "that it can", "that they can", 1)
		if !strings.Contains(page, html.EscapeString(hers)) && !strings.Contains(page, html.EscapeString(theirs)) {
			wrong = append(wrong, "no "+short)
		}
	}
	waits := regexp.MustCompile(`data-is="waiting">(?:(\d+) waits?|nothing waits)<`).FindStringSubmatch(page)
	if waits == nil || waits[1] != map[bool]string{false: strconv.Itoa(len(here.Waiting))}[len(here.Waiting) == 0] {
		wrong = append(wrong, fmt.Sprintf("%q, want %d", waits, len(here.Waiting)))
	}
	if text := fmt.Sprintf(`data-is="free">%d of %d free<`, free, len(here.Devices)); !strings.Contains(page, text) {
		wrong = append(wrong, "no "+text)
	}
	return wrong
}

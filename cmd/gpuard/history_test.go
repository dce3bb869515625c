package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/core/trend"
)

// checkXML is an error unless it is XML.
func checkXML(text []byte) error {
	d := xml.NewDecoder(bytes.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// TestHistoryChart: gpuard-view draws what gpuard history adds up, into a file that may be there, and what cannot be
// drawn is said.
func TestHistoryChart(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	dir := t.TempDir()
	for i := range 2 {
		checkEqual(t, "run", r.run("run", "-q", "--device", fmt.Sprint(i), "--", "sleep", "0.2").code, 0)
	}
	ended := filepath.Join(durablePath(r.state, os.Geteuid(), "history"), "leases-ended")
	waitUntil(t, "both have left a line", func() bool { text, _ := os.ReadFile(ended); return bytes.Count(text, []byte("\n")) == 2 })
	svg, picture := filepath.Join(dir, "use.svg"), filepath.Join(dir, "use.png")
	writeFile(t, svg, "old", 0)
	for _, path := range []string{svg, picture, svg} {
		if got := runCommand(t, r.viewCommand("history", "--by", "gpu", "--chart", path)); got.code != 0 || got.out+got.err != "" {
			t.Fatalf("%+v", got)
		}
	}
	text := must(os.ReadFile(svg))
	if err := checkXML(text); err != nil || !strings.HasPrefix(string(text), "<svg ") {
		t.Errorf("%v: %s", err, text)
	}
	checkContains(t, string(text), ">GPU 0 (GPU-fa4e0000-", ">GPU 1 (GPU-fa4e0000-", ">used", ">idle", ">not measured")
	if _, err := png.Decode(bytes.NewReader(must(os.ReadFile(picture)))); err != nil {
		t.Error(err)
	}
	checkEqual(t, "files", len(must(os.ReadDir(dir))), 2)

	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--chart", svg}, 2, "say what to add up by"},
		{[]string{"--by", "gpu", "--chart", filepath.Join(dir, "use.pdf")}, 2, "its name must end in .svg or .png"},
		{[]string{"--by", "gpu", "--chart", ""}, 2, "chart"},
		{[]string{"--by", "gpu", "--json", "--chart", svg}, 2, "--chart and --json"},
		{[]string{"--by", "moon"}, 2, "--by day"},
		{[]string{"--by", "gpu", "--chart", filepath.Join(dir, "none", "use.svg")}, 1, "cannot write"},
		{[]string{"--by", "gpu", "--chart", "/proc/use.svg"}, 1, "cannot write"},
	} {
		if got := runCommand(t, r.viewCommand(append([]string{"history"}, test.args...)...)); got.code != test.code || !strings.Contains(got.out+got.err, test.says) {
			t.Errorf("%v: %+v", test.args, got)
		}
	}
	for by, want := range map[string]int{"user": 1, "gpu": 2, "command": 1, "day": 1} {
		var a struct{ Use []trend.Use }
		got := r.run("history", "--by", by, "--json")
		if err := json.Unmarshal([]byte(got.out), &a); err != nil || len(a.Use) < want || len(a.Use) > want+1 || a.Use[0].Granted <= 0 {
			t.Errorf("by %s: %+v", by, got)
		}
	}
}

// TestServeHistory: a lease that gpuard serve has watched and that has left a line counts once, and the page has a picture
// with a name of it.
func TestServeHistory(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	r.env = append(r.env, "TIMES=10", "XDG_STATE_HOME="+quietDir(t))
	p := r.startServe()
	job := r.cmd("run", "-q", "--name", "train@night", "--", "sh", "-c", "echo $GPUARD_LEASE; exec sleep 60")
	lease := startToFirstLine(t, job)
	waitUntil(t, "it is measured", func() bool { return p.readMeasuredSeconds(lease) > 0 })
	_, _ = job.Process.Kill(), job.Wait()
	both := func() int {
		n := 0
		for _, path := range []string{durablePath(r.state, os.Geteuid(), "history"), homeStatePath(strings.TrimPrefix(r.env[len(r.env)-1], "XDG_STATE_HOME="), "serve")} {
			text, _ := os.ReadFile(filepath.Join(path, "leases-ended"))
			n += bytes.Count(text, []byte(`"`+lease+`"`))
		}
		return n
	}
	waitUntil(t, "both have written it", func() bool { return both() == 2 })
	for range 5 {
		checkEqual(t, "run", r.run("run", "-q", "--name", "short", "--", "true").code, 0)
	}
	var u trend.Use
	waitUntil(t, "the short ones are counted too", func() bool {
		var a struct{ Use []trend.Use }
		if err := json.Unmarshal([]byte(r.run("history", "--by", "command", "--json").out), &a); err != nil {
			t.Fatal(err)
		}
		named := map[string]trend.Use{} // which of them had the GPU longer depends on the machine
		for _, one := range a.Use {
			named[one.Name] = one
		}
		u = named["train@night"]
		return len(a.Use) == 2 && named["short"].Jobs == 5
	})
	if u.Jobs != 1 || u.Used+u.Idle <= 0 || u.Used+u.Idle > u.Granted*1.0001 {
		t.Errorf("%+v", u)
	}
	waitUntil(t, "it is on the page", func() bool { return strings.Contains(p.get("/api/history").body, "train") })
	p = r.startServe("--listen", "127.0.0.1:0") // whose page has no older answer
	page := p.get("/").body
	checkContains(t, page, `<th scope="row">train@night</th>`, `<th scope="row">GPU 0</th>`, "the last 24 hours", `aria-label="by command"`)
	checkContains(t, p.get("/?days=30").body, `<th scope="row">train@night</th>`, "the last 30 days")
}

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gpuard/internal/gate"
	"gpuard/test/fakegpu"
)

// prometheus is a real Prometheus that reads one page.
type prometheus struct {
	t    testing.TB
	base string
}

// startPrometheus starts one with these rules and a prometheus.yml of its own, to which the file of scrape configs is added as the
// note of setup prometheus says for one before 2.43: its lines from - job_name on.
func startPrometheus(t testing.TB, scrape, rules string) *prometheus {
	t.Helper()
	dir := t.TempDir()
	text := strings.ReplaceAll(string(must(os.ReadFile(scrape))), "5s", "500ms")
	_, added, _ := strings.Cut(text, "scrape_configs:\n")
	config := "global:\n  evaluation_interval: 500ms\nrule_files: [" + rules + "]\nscrape_configs:\n- job_name: other\n  static_configs:\n  - targets: []\n" + added
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	heard := &outputBuffer{}
	cmd := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Stderr = heard
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	p := &prometheus{t, "http://" + address}
	waitUntil(t, "Prometheus has read the page", func() bool { return strings.Contains(p.runQuery("gpuard_build_info"), "version") })
	return p
}

// runQuery is the answer to a PromQL query.
func (p *prometheus) runQuery(text string) string {
	response, err := http.Get(p.base + "/api/v1/query?query=" + url.QueryEscape(text))
	if err != nil {
		return fmt.Sprint(err)
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(response.Body)
	return string(answer)
}

// TestServePrometheus: promtool accepts names, rules and scrape config; a real Prometheus reads the page, every query of
// the dashboard has data, and each alert fires in its rule test.
func TestServePrometheus(t *testing.T) {
	gate.Need(t, "prometheus")
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(4)...)
	p := r.startServe()
	dir := t.TempDir()
	got := runCommand(t, r.cmd("setup", "prometheus", dir, "--target", strings.TrimPrefix(p.base, "http://")))
	checkEqual(t, "setup prometheus: "+got.err, got.code, 0)
	rules := filepath.Join(dir, "gpuard-alerts.yml")
	checkContains(t, got.out+got.err, "before 2.43 (Debian 12 has 2.42): rule_files as above", "from - job_name on")
	tool := func(stdin string, args ...string) {
		t.Helper()
		cmd := exec.Command("promtool", args...)
		cmd.Stdin = strings.NewReader(stdin)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	tool("", "check", "rules", rules)
	text := string(must(os.ReadFile("testdata/alerts-test.yml")))
	tests := filepath.Join(dir, "test.yml")
	if err := os.WriteFile(tests, []byte(strings.ReplaceAll(text, "RULES", rules)), 0o600); err != nil {
		t.Fatal(err)
	}
	tool("", "test", "rules", tests)
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(must(os.ReadFile(rules))), -1) {
		if !strings.Contains(text, "alertname: "+m[1]+"\n    exp_alerts:\n") {
			t.Errorf("no test shows that %s fires", m[1])
		}
	}

	// a machine on which everything that the dashboard shows has happened
	startToFirstLine(t, r.cmd("run", "-q", "--device", "1", "--share", "20G", "--", "sh", "-c", "echo on; exec "+r.Job+" --gpu 1 --mem 2G"))
	startToFirstLine(t, r.cmd("run", "-q", "--device", "2", "--", "sh", "-c", "echo on; exec sleep 60"))
	intruder := exec.Command("sleep", "60")
	if err := intruder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = intruder.Process.Kill(), intruder.Wait() })
	r.AddProcess(3, intruder.Process.Pid, 2<<30, fakegpu.Compute)
	r.SetValue(0, "events", "0x40") // hw_thermal_slowdown
	r.XID(3, 79)
	r.SetValue(0, "energy_mj", "5000000")
	waiting := r.cmd("run", "-q", "--gpus", "4", "--", "true")
	if err := waiting.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = waiting.Process.Kill(), waiting.Wait() })

	waitUntil(t, "the metrics have all of it", func() bool {
		text := p.get("/metrics").body
		return strings.Contains(text, "gpuard_gpu_throttle_seconds_total{") && strings.Contains(text, "gpuard_lease_memory_used_bytes{") && strings.Contains(text, `foreign="true"`)
	})
	tool(p.get("/metrics").body, "check", "metrics")
	var board struct {
		Templating struct {
			List []struct{ Name, Query string }
		}
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(must(os.ReadFile(filepath.Join(dir, "gpuard-dashboard.json"))), &board); err != nil || len(board.Panels) == 0 {
		t.Fatal(err)
	}
	prometheus := startPrometheus(t, filepath.Join(dir, "gpuard-scrape.yml"), rules)
	kinds := map[string]int{}
	for _, panel := range board.Panels {
		kinds[panel.Type]++
		for _, target := range panel.Targets {
			if strings.Count(target.Expr, "gpuard_") != strings.Count(target.Expr, `{instance=~"$machine"`) {
				t.Errorf("%s is not limited to the chosen machines: %s", panel.Title, target.Expr)
			}
			expr := strings.ReplaceAll(target.Expr, "$machine", ".*")
			waitUntil(t, panel.Title+" has data: "+expr, func() bool { return strings.Contains(prometheus.runQuery(expr), `"value":[`) })
			nowhere := strings.ReplaceAll(target.Expr, "$machine", "elsewhere")
			if answer := prometheus.runQuery(nowhere); strings.Contains(answer, `"value":[`) || !strings.Contains(answer, `"success"`) {
				t.Errorf("%s of another machine: %s", panel.Title, answer)
			}
		}
	}
	if kinds["table"] != 1 || kinds["state-timeline"] != 2 || kinds["timeseries"] < 18 || len(board.Templating.List) != 2 || board.Templating.List[1].Query != "label_values(gpuard_gpu_info, instance)" {
		t.Errorf("%v %v", kinds, board.Templating)
	}
	leased := prometheus.runQuery(`sum by (instance, uuid) (2 * gpuard_gpu_state{state="leased"} or 3 * gpuard_gpu_state{state="shared"}) == 2`)
	checkContains(t, leased, fakeUUID(2))
	checkEqual(t, "remove", runCommand(t, r.cmd("setup", "prometheus", dir, "--remove")).code, 0)
	for _, name := range []string{"gpuard-scrape.yml", "gpuard-alerts.yml", "gpuard-dashboard.json"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
}

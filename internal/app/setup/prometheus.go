package setup

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/edit"
)

//go:embed alerts.yml
var alerts string

// Prometheus are the files with which Prometheus reads gpuard serve at target and tells what is wrong, and with which
// Grafana shows it, in a folder.
func (s *Setup) Prometheus(folder, target string) (Wish, error) {
	dir, err := filepath.Abs(folder)
	if err != nil {
		return Wish{}, fmt.Errorf("cannot find the folder: %w", err)
	}
	if strings.ContainsAny(target, " \t\n\"'\\/") || !strings.Contains(target, ":") {
		return Wish{}, &exit.Usage{Text: fmt.Sprintf("cannot read metrics from %q: write the address and the port of gpuard serve, such as box:8470", target)}
	}
	board, err := json.MarshalIndent(dashboard(), "", "  ")
	if err != nil {
		return Wish{}, err
	}
	const note = "# Written by gpuard setup prometheus; taken away by gpuard setup prometheus --remove.\n"
	scrape, rules, shown := filepath.Join(dir, "gpuard-scrape.yml"), filepath.Join(dir, "gpuard-alerts.yml"), filepath.Join(dir, "gpuard-dashboard.json")
	return Wish{Key: "prometheus " + dir,
		Changes: []edit.Change{
			{Path: scrape, Content: note + fmt.Sprintf("scrape_configs:\n- job_name: gpuard\n  scrape_interval: 5s\n  static_configs:\n  - targets: [%q]\n", target)},
			{Path: rules, Content: note + alerts},
			{Path: shown, Content: string(board) + "\n"},
		},
		Try: []string{"promtool check rules " + rules, "gpuard serve"},
		Notes: []string{
			"in prometheus.yml, from Prometheus 2.43 on: scrape_config_files: [" + scrape + "] and rule_files: [" + rules + "]",
			"before 2.43 (Debian 12 has 2.42): rule_files as above, and below scrape_configs of prometheus.yml the lines of " + scrape + " from - job_name on",
			"in Grafana, import " + shown + " (Dashboards, New, Import)",
		}}, nil
}

// object is one of JSON.
type object = map[string]any

// dashboard is one for Grafana (grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model).
// Devices are named by their index and model, which gpuard_gpu_info adds to each metric.
func dashboard() object {
	named := func(expr string) string {
		return expr + " * on (instance, uuid) group_left (index, name) gpuard_gpu_info"
	}
	const device = "GPU {{index}} {{name}}"
	var panels []object
	for i, p := range []struct{ title, unit, expr, legend string }{
		{"Devices by state", "none", "sum by (state) (gpuard_gpu_state)", "{{state}}"},
		{"Requests that wait", "none", "gpuard_queue_requests", "requests"},
		{"Load", "percentunit", named("gpuard_gpu_utilization_ratio"), device},
		{"Memory in use", "bytes", named("gpuard_gpu_memory_used_bytes"), device},
		{"Temperature", "celsius", named("gpuard_gpu_temperature_celsius"), device},
		{"Degrees until the driver slows down", "celsius", named("gpuard_gpu_temperature_margin_celsius"), device},
		{"Power", "watt", named("gpuard_gpu_power_watts"), device},
		{"Clock", "hertz", named("gpuard_gpu_clock_hertz"), device},
		{"Leased devices by user", "none", "count by (user) (group by (user, uuid) (gpuard_lease_info))", "{{user}}"},
		{"Memory by user", "bytes", "sum by (user) (gpuard_gpu_processes_memory_bytes)", "{{user}}"},
		{"Processes without a lease", "none", `sum by (user) (gpuard_gpu_processes{foreign="true"})`, "{{user}}"},
		{"Shares: used of what was promised", "percentunit", "gpuard_lease_memory_used_bytes / on (lease, uuid, user) gpuard_lease_memory_quota_bytes", "{{lease}}"},
		{"Idle although leased", "none", `count((gpuard_gpu_state{state="leased"} == 1) and on (instance, uuid) (avg_over_time(gpuard_gpu_utilization_ratio[1h]) < 0.05))`, "devices"},
		{"Wait until a device was there, 90th percentile", "s", "histogram_quantile(0.9, sum by (le) (increase(gpuard_queue_wait_seconds_bucket[1h])))", "last hour"},
		{"Health", "none", `sum by (health) (gpuard_gpu_health)`, "{{health}}"},
		{"Slowed down, part of the time", "percentunit", named("sum by (instance, uuid, reason) (rate(gpuard_gpu_throttle_seconds_total[5m]))"), device + " {{reason}}"},
		{"Errors of the driver (XID)", "none", named("sum by (instance, uuid, xid) (gpuard_gpu_xid_total)"), device + " XID {{xid}}"},
		{"Violations of leases", "none", "sum by (kind) (gpuard_lease_violations_total)", "{{kind}}"},
	} {
		panels = append(panels, object{
			"id": i + 1, "type": "timeseries", "title": p.title, "datasource": object{"type": "prometheus", "uid": "${source}"},
			"gridPos":     object{"h": 8, "w": 12, "x": i % 2 * 12, "y": i / 2 * 8},
			"fieldConfig": object{"defaults": object{"unit": p.unit, "min": 0}, "overrides": []object{}},
			"targets":     []object{{"refId": "A", "expr": p.expr, "legendFormat": p.legend}},
		})
	}
	return object{
		"title": "GPUs (gpuard)", "uid": "gpuard", "schemaVersion": 39, "tags": []string{"gpuard"}, "timezone": "browser", "refresh": "10s",
		"time":       object{"from": "now-6h", "to": "now"},
		"templating": object{"list": []object{{"name": "source", "type": "datasource", "query": "prometheus", "label": "Source"}}},
		"panels":     panels,
	}
}

package setup

import (
	"fmt"
	"regexp"
	"strings"
)

// jsonObject is one of JSON.
type jsonObject = map[string]any

// dashboardPanel is one picture of the dashboard.
type dashboardPanel struct{ title, unit, expr, legend string }

// deviceLegend names a device by its index and model, which gpuard_gpu_info adds to each metric.
const deviceLegend = "GPU {{index}} {{name}}"

// withDeviceName adds index and model to what is counted by device.
func withDeviceName(expr string) string {
	return expr + " * on (instance, uuid) group_left (index, name) gpuard_gpu_info"
}

// curvePanels are the panels that are curves.
func curvePanels() []dashboardPanel {
	return []dashboardPanel{
		{"Load", "percentunit", withDeviceName("gpuard_gpu_utilization_ratio"), deviceLegend},
		{"Memory in use", "bytes", withDeviceName("gpuard_gpu_memory_used_bytes"), deviceLegend},
		{"Devices by state", "none", "sum by (state) (gpuard_gpu_state)", "{{state}}"},
		{"Requests that wait", "none", "sum by (instance) (gpuard_queue_requests)", "{{instance}}"},
		{"Leased devices by user", "none", "count by (user) (group by (user, uuid) (gpuard_lease_info))", "{{user}}"},
		{"Memory by user", "bytes", "sum by (user) (gpuard_gpu_processes_memory_bytes)", "{{user}}"},
		{"Temperature", "celsius", withDeviceName("gpuard_gpu_temperature_celsius"), deviceLegend},
		{"Degrees until the driver slows down", "celsius", withDeviceName("gpuard_gpu_temperature_margin_celsius"), deviceLegend},
		{"Power", "watt", withDeviceName("gpuard_gpu_power_watts"), deviceLegend},
		{"Energy within an hour", "joule", withDeviceName("increase(gpuard_gpu_energy_joules_total[1h])"), deviceLegend},
		{"Memory read or written, part of the time", "percentunit", withDeviceName("gpuard_gpu_memory_utilization_ratio"), deviceLegend},
		{"Clock", "hertz", withDeviceName("gpuard_gpu_clock_hertz"), deviceLegend},
		{"Processes without a lease", "none", `sum by (user) (gpuard_gpu_processes{foreign="true"})`, "{{user}}"},
		{"Shares: used of what was promised", "percentunit", "gpuard_lease_memory_used_bytes / on (instance, lease, uuid, user) gpuard_lease_memory_quota_bytes", "{{lease}}"},
		{"Idle although leased", "none", `count((gpuard_gpu_state{state="leased"} == 1) and on (instance, uuid) (avg_over_time(gpuard_gpu_utilization_ratio[1h]) < 0.05))`, "devices"},
		{"Wait until a device was there, 90th percentile", "s", "histogram_quantile(0.9, sum by (le) (increase(gpuard_queue_wait_seconds_bucket[1h])))", "last hour"},
		{"Health", "none", `sum by (health) (gpuard_gpu_health)`, "{{health}}"},
		{"Slowed down, part of the time", "percentunit", withDeviceName("sum by (instance, uuid, reason) (rate(gpuard_gpu_throttle_seconds_total[5m]))"), deviceLegend + " {{reason}}"},
		{"Errors of the driver (XID)", "none", withDeviceName("sum by (instance, uuid, xid) (gpuard_gpu_xid_total)"), deviceLegend + " XID {{xid}}"},
		{"Violations of leases", "none", "sum by (kind) (gpuard_lease_violations_total)", "{{kind}}"},
	}
}

// limitToMachines limits an expression to the machines that are chosen.
func limitToMachines(expr string) string {
	// the name of one of ours, and the begin of its labels where it has some
	metric := regexp.MustCompile(`gpuard_\w+\{?`)
	const chosen = `{instance=~"$machine"`
	return metric.ReplaceAllStringFunc(expr, func(name string) string {
		if bare, labelled := strings.CutSuffix(name, "{"); labelled {
			return bare + chosen + ","
		}
		return name + chosen + "}"
	})
}

// stateColours are the words of a band, by their number in it, with the colour of each.
func stateColours() (words, colours []string) {
	return []string{"free", "leased", "shared", "split", "draining", "busy", "unknown", "degraded", "unhealthy"},
		[]string{"#2f7d5b", "#4457d6", "#7c8cf0", "#6d747d", "#c1991c", "#e0762b", "#8b939d", "#d98b1f", "#b3261e"}
}

// grafanaDashboard is one for Grafana
// (grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model): who has what now, a band of
// each device, a band of who had it, and the curves.
func grafanaDashboard() jsonObject {
	panels := []jsonObject{leaseTable(), bandOfStates(), bandOfUsers()}
	for i, p := range curvePanels() {
		one := panelOf(len(panels)+1, "timeseries", p)
		one["gridPos"] = jsonObject{"h": 8, "w": 12, "x": i % 2 * 12, "y": 27 + i/2*8}
		panels = append(panels, one)
	}
	return jsonObject{
		"title": "GPUs (gpuard)", "uid": "gpuard", "schemaVersion": 39, "tags": []string{"gpuard"}, "timezone": "browser", "refresh": "10s",
		"time": jsonObject{"from": "now-6h", "to": "now"},
		"templating": jsonObject{"list": []jsonObject{
			{"name": "source", "type": "datasource", "query": "prometheus", "label": "Source"},
			{"name": "machine", "type": "query", "label": "Machine", "datasource": dataSource(), "query": "label_values(gpuard_gpu_info, instance)",
				"refresh": 2, "multi": true, "includeAll": true, "allValue": ".*", "current": jsonObject{"text": "All", "value": "$__all"}, "sort": 1},
		}},
		"panels": panels,
	}
}

func dataSource() jsonObject { return jsonObject{"type": "prometheus", "uid": "${source}"} }

func panelOf(id int, kind string, p dashboardPanel) jsonObject {
	return jsonObject{
		"id": id, "type": kind, "title": p.title, "datasource": dataSource(),
		"fieldConfig": jsonObject{"defaults": jsonObject{"unit": p.unit, "min": 0}, "overrides": []jsonObject{}},
		"targets":     []jsonObject{{"refId": "A", "expr": limitToMachines(p.expr), "legendFormat": p.legend}},
	}
}

// leaseTable is a table of the leases of now.
func leaseTable() jsonObject {
	const expr = "(time() - gpuard_lease_start_timestamp_seconds) * on (instance, lease, uuid, user) group_left (job, kind) gpuard_lease_info"
	p := panelOf(1, "table", dashboardPanel{"Who has what now", "s", withDeviceName(expr), ""})
	target := p["targets"].([]jsonObject)[0] //nolint:forcetypeassert // made above
	target["instant"], target["format"] = true, "table"
	p["gridPos"] = jsonObject{"h": 9, "w": 24, "x": 0, "y": 0}
	p["transformations"] = []jsonObject{{"id": "organize", "options": jsonObject{
		"excludeByName": jsonObject{"Time": true, "uuid": true, "__name__": true},
		"indexByName":   jsonObject{"instance": 0, "index": 1, "name": 2, "user": 3, "job": 4, "Value": 5, "kind": 6, "lease": 7},
		"renameByName":  jsonObject{"instance": "machine", "index": "GPU", "name": "model", "Value": "for"},
	}}}

	p["options"] = jsonObject{"sortBy": []jsonObject{{"displayName": "machine"}, {"displayName": "GPU"}}}

	return p
}

// bandOfStates has a row for each device, with its state over time.
func bandOfStates() jsonObject {
	words, colours := stateColours()
	var terms []string
	mapped := jsonObject{}
	for i, word := range words {
		terms = append(terms, fmt.Sprintf("%d * gpuard_gpu_state{state=%q}", i+1, word))
		mapped[fmt.Sprint(i+1)] = jsonObject{"text": word, "color": colours[i], "index": i}
	}

	p := panelOf(2, "state-timeline", dashboardPanel{"Devices over time", "none", withDeviceName("sum by (instance, uuid) (" + strings.Join(terms, " or ") + ")"), "GPU {{index}} {{instance}}"})
	p["gridPos"] = jsonObject{"h": 9, "w": 24, "x": 0, "y": 9}
	styleAsBand(p, []jsonObject{{"type": "value", "options": mapped}})

	return p
}

// bandOfUsers has a row for each user on each device.
func bandOfUsers() jsonObject {
	expr := "group by (instance, uuid, user) (gpuard_lease_info)"
	p := panelOf(3, "state-timeline", dashboardPanel{"Who had what", "none", withDeviceName(expr), "GPU {{index}} {{user}}"})
	p["gridPos"] = jsonObject{"h": 9, "w": 24, "x": 0, "y": 18}
	styleAsBand(p, []jsonObject{{"type": "value", "options": jsonObject{"1": jsonObject{"text": "leased", "color": "#4457d6", "index": 0}}}})

	return p
}

// styleAsBand is what a state timeline needs besides its query.
func styleAsBand(p jsonObject, mappings []jsonObject) {
	p["options"] = jsonObject{"mergeValues": true, "showValue": "auto", "rowHeight": 0.85, "alignValue": "left", "legend": jsonObject{"showLegend": true, "displayMode": "list", "placement": "bottom"}}
	p["fieldConfig"] = jsonObject{"defaults": jsonObject{"mappings": mappings, "custom": jsonObject{"fillOpacity": 80, "lineWidth": 0, "insertNulls": 60000}, "color": jsonObject{"mode": "thresholds"}}, "overrides": []jsonObject{}}
}

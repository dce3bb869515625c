package setup

import (
	"fmt"
	"regexp"
	"strings"
)

// object is one of JSON.
type object = map[string]any

// panel is one picture of the dashboard.
type panel struct{ title, unit, expr, legend string }

// deviceName names a device by its index and model, which gpuard_gpu_info adds to each metric.
const deviceName = "GPU {{index}} {{name}}"

// withName adds index and model to what is counted by device.
func withName(expr string) string {
	return expr + " * on (instance, uuid) group_left (index, name) gpuard_gpu_info"
}

// curvesOverTime are the panels that are curves.
func curvesOverTime() []panel {
	return []panel{
		{"Load", "percentunit", withName("gpuard_gpu_utilization_ratio"), deviceName},
		{"Memory in use", "bytes", withName("gpuard_gpu_memory_used_bytes"), deviceName},
		{"Devices by state", "none", "sum by (state) (gpuard_gpu_state)", "{{state}}"},
		{"Requests that wait", "none", "sum by (instance) (gpuard_queue_requests)", "{{instance}}"},
		{"Leased devices by user", "none", "count by (user) (group by (user, uuid) (gpuard_lease_info))", "{{user}}"},
		{"Memory by user", "bytes", "sum by (user) (gpuard_gpu_processes_memory_bytes)", "{{user}}"},
		{"Temperature", "celsius", withName("gpuard_gpu_temperature_celsius"), deviceName},
		{"Degrees until the driver slows down", "celsius", withName("gpuard_gpu_temperature_margin_celsius"), deviceName},
		{"Power", "watt", withName("gpuard_gpu_power_watts"), deviceName},
		{"Energy within an hour", "joule", withName("increase(gpuard_gpu_energy_joules_total[1h])"), deviceName},
		{"Memory read or written, part of the time", "percentunit", withName("gpuard_gpu_memory_utilization_ratio"), deviceName},
		{"Clock", "hertz", withName("gpuard_gpu_clock_hertz"), deviceName},
		{"Processes without a lease", "none", `sum by (user) (gpuard_gpu_processes{foreign="true"})`, "{{user}}"},
		{"Shares: used of what was promised", "percentunit", "gpuard_lease_memory_used_bytes / on (instance, lease, uuid, user) gpuard_lease_memory_quota_bytes", "{{lease}}"},
		{"Idle although leased", "none", `count((gpuard_gpu_state{state="leased"} == 1) and on (instance, uuid) (avg_over_time(gpuard_gpu_utilization_ratio[1h]) < 0.05))`, "devices"},
		{"Wait until a device was there, 90th percentile", "s", "histogram_quantile(0.9, sum by (le) (increase(gpuard_queue_wait_seconds_bucket[1h])))", "last hour"},
		{"Health", "none", `sum by (health) (gpuard_gpu_health)`, "{{health}}"},
		{"Slowed down, part of the time", "percentunit", withName("sum by (instance, uuid, reason) (rate(gpuard_gpu_throttle_seconds_total[5m]))"), deviceName + " {{reason}}"},
		{"Errors of the driver (XID)", "none", withName("sum by (instance, uuid, xid) (gpuard_gpu_xid_total)"), deviceName + " XID {{xid}}"},
		{"Violations of leases", "none", "sum by (kind) (gpuard_lease_violations_total)", "{{kind}}"},
	}
}

// ofMachine limits an expression to the machines that are chosen.
func ofMachine(expr string) string {
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

// states are the words of a band, by their number in it, with the colour of each.
func states() (words, colours []string) {
	return []string{"free", "leased", "shared", "split", "draining", "busy", "unknown", "degraded", "unhealthy"},
		[]string{"#2f7d5b", "#4457d6", "#7c8cf0", "#6d747d", "#c1991c", "#e0762b", "#8b939d", "#d98b1f", "#b3261e"}
}

// dashboard is one for Grafana (grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model): who has what now, a
// band of each device, a band of who had it, and the curves.
func dashboard() object {
	panels := []object{whoHasWhat(), bandOfStates(), bandOfUsers()}
	for i, p := range curvesOverTime() {
		one := panelOf(len(panels)+1, "timeseries", p)
		one["gridPos"] = object{"h": 8, "w": 12, "x": i % 2 * 12, "y": 27 + i/2*8}
		panels = append(panels, one)
	}
	return object{
		"title": "GPUs (gpuard)", "uid": "gpuard", "schemaVersion": 39, "tags": []string{"gpuard"}, "timezone": "browser", "refresh": "10s",
		"time": object{"from": "now-6h", "to": "now"},
		"templating": object{"list": []object{
			{"name": "source", "type": "datasource", "query": "prometheus", "label": "Source"},
			{"name": "machine", "type": "query", "label": "Machine", "datasource": source(), "query": "label_values(gpuard_gpu_info, instance)",
				"refresh": 2, "multi": true, "includeAll": true, "allValue": ".*", "current": object{"text": "All", "value": "$__all"}, "sort": 1},
		}},
		"panels": panels,
	}
}

func source() object { return object{"type": "prometheus", "uid": "${source}"} }

func panelOf(id int, kind string, p panel) object {
	return object{
		"id": id, "type": kind, "title": p.title, "datasource": source(),
		"fieldConfig": object{"defaults": object{"unit": p.unit, "min": 0}, "overrides": []object{}},
		"targets":     []object{{"refId": "A", "expr": ofMachine(p.expr), "legendFormat": p.legend}},
	}
}

// whoHasWhat is a table of the leases of now.
func whoHasWhat() object {
	const expr = "(time() - gpuard_lease_start_timestamp_seconds) * on (instance, lease, uuid, user) group_left (job, kind) gpuard_lease_info"
	p := panelOf(1, "table", panel{"Who has what now", "s", withName(expr), ""})
	target := p["targets"].([]object)[0] //nolint:forcetypeassert // made above
	target["instant"], target["format"] = true, "table"
	p["gridPos"] = object{"h": 9, "w": 24, "x": 0, "y": 0}
	p["transformations"] = []object{{"id": "organize", "options": object{
		"excludeByName": object{"Time": true, "uuid": true, "__name__": true},
		"indexByName":   object{"instance": 0, "index": 1, "name": 2, "user": 3, "job": 4, "Value": 5, "kind": 6, "lease": 7},
		"renameByName":  object{"instance": "machine", "index": "GPU", "name": "model", "Value": "for"},
	}}}
	p["options"] = object{"sortBy": []object{{"displayName": "machine"}, {"displayName": "GPU"}}}
	return p
}

// bandOfStates has a row for each device, with its state over time.
func bandOfStates() object {
	words, colours := states()
	var terms []string
	mapped := object{}
	for i, word := range words {
		terms = append(terms, fmt.Sprintf("%d * gpuard_gpu_state{state=%q}", i+1, word))
		mapped[fmt.Sprint(i+1)] = object{"text": word, "color": colours[i], "index": i}
	}
	p := panelOf(2, "state-timeline", panel{"Devices over time", "none", withName("sum by (instance, uuid) (" + strings.Join(terms, " or ") + ")"), "GPU {{index}} {{instance}}"})
	p["gridPos"] = object{"h": 9, "w": 24, "x": 0, "y": 9}
	asBand(p, []object{{"type": "value", "options": mapped}})
	return p
}

// bandOfUsers has a row for each user on each device.
func bandOfUsers() object {
	expr := "group by (instance, uuid, user) (gpuard_lease_info)"
	p := panelOf(3, "state-timeline", panel{"Who had what", "none", withName(expr), "GPU {{index}} {{user}}"})
	p["gridPos"] = object{"h": 9, "w": 24, "x": 0, "y": 18}
	asBand(p, []object{{"type": "value", "options": object{"1": object{"text": "leased", "color": "#4457d6", "index": 0}}}})
	return p
}

// asBand is what a state timeline needs besides its query.
func asBand(p object, mappings []object) {
	p["options"] = object{"mergeValues": true, "showValue": "auto", "rowHeight": 0.85, "alignValue": "left", "legend": object{"showLegend": true, "displayMode": "list", "placement": "bottom"}}
	p["fieldConfig"] = object{"defaults": object{"mappings": mappings, "custom": object{"fillOpacity": 80, "lineWidth": 0, "insertNulls": 60000}, "color": object{"mode": "thresholds"}}, "overrides": []object{}}
}

package web

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"gpuard/internal/app/observe"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
	"gpuard/internal/core/trend"
)

// exposition is a prometheus.Collector of what was seen: its metrics are made anew for each request, because devices
// and leases come and go. A value that was not read has no line. Names, units and labels follow
// https://prometheus.io/docs/practices/naming/; devices are named by UUID.
type exposition struct {
	site *Site
	now  func() observe.Snapshot
	out  chan<- prometheus.Metric
	// Names and labels: a second value for one would leave Prometheus without any.
	sent map[string]bool
}

// Describe says nothing in advance: which metrics there are depends on the devices.
func (e exposition) Describe(chan<- *prometheus.Desc) {}

// Collect gives the metrics of what was seen last.
func (e exposition) Collect(out chan<- prometheus.Metric) {
	e.out, e.sent = out, map[string]bool{}
	seen := e.now()
	e.newMetric("gpuard_build_info", "gauge", "Version of gpuard.")(1, "version", e.site.Version)
	if seen.At.IsZero() {
		return
	}

	e.addDevices(&seen.Report)
	e.addLoads(&seen.Report)
	e.addProcesses(&seen.Report)
	e.addLeases(&seen.Report)
	e.addQueue(&seen.Report, seen.Counts.Waits)
	e.addCounts(seen)
	e.addUses(seen)

	for _, source := range e.site.Sources {
		if source.Gauges == nil {
			continue
		}
		answer, _, err := e.site.live.answerOf(context.Background(), source, maxPageWait)
		if err != nil {
			continue
		}

		for _, g := range source.Gauges(answer) {
			e.newMetric(g.Name, "gauge", g.Help)(g.Value, g.Labels...)
		}
	}
}

// addUses are what leases that have not ended did with their devices, as far as gpuard serve has looked.
func (e exposition) addUses(seen observe.Snapshot) {
	busy := e.newMetric("gpuard_lease_busy_seconds_total", "counter", "How long a device of a lease was busy, by its measured load.")
	idle := e.newMetric("gpuard_lease_idle_seconds_total", "counter", "How long a device of a lease was idle, by its measured load.")
	for _, l := range seen.Uses {
		for _, d := range l.Devices {
			labels := []string{"lease", l.Lease, "uuid", string(d.UUID), "user", l.User}
			busy(d.Busy, labels...)
			idle(d.Idle, labels...)
		}
	}
}

// collectorHandler answers with what these collect. What one of them does wrong leaves the rest there.
func collectorHandler(all ...prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(all...)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 16})
}

// uuidOf names a device in labels. One that is lost, or that may not be read, has no UUID.
func uuidOf(d *status.Device) string {
	if d.UUID == "" {
		return fmt.Sprint("index-", d.Index)
	}
	return string(d.UUID)
}

// newMetric returns what adds the values of one metric; labels are names and values in turn.
func (e exposition) newMetric(name, kind, help string) func(value float64, labels ...string) {
	of := prometheus.GaugeValue
	if kind == "counter" {
		of = prometheus.CounterValue
	}
	return func(value float64, labels ...string) {
		var names, values []string
		for i := 0; i+1 < len(labels); i += 2 {
			names, values = append(names, labels[i]), append(values, strings.ToValidUTF8(labels[i+1], "\ufffd"))
		}
		if key := fmt.Sprintf("%s %q", name, values); !e.sent[key] {
			e.sent[key] = true
			e.out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), of, value, values...)
		}
	}
}

func (e exposition) addDevices(s *status.Report) {
	info := e.newMetric("gpuard_gpu_info", "gauge", "A device; its other metrics have its uuid.")
	for _, d := range s.Devices {
		info(1, "uuid", uuidOf(&d), "index", strconv.Itoa(d.Index), "vendor", string(d.Vendor), "name", d.Name, "pci_bus_id", d.PCI, "driver_version", s.Driver)
	}

	state := e.newMetric("gpuard_gpu_state", "gauge", "Use of a device or, where nobody uses it, why it is not free: 1 for the present word.")
	for _, d := range s.Devices {
		present := strings.TrimPrefix(d.State(), "use ")
		for _, word := range status.States() {
			state(boolToFloat(present == word), "uuid", uuidOf(&d), "state", word)
		}
	}

	well := e.newMetric("gpuard_gpu_health", "gauge", "Health of a device: 1 for the present one.")
	for _, d := range s.Devices {
		for _, h := range []health.State{health.OK, health.Degraded, health.Unhealthy, health.Unknown} {
			well(boolToFloat(d.Health == h), "uuid", uuidOf(&d), "health", string(h))
		}
	}
}

// addLoads are the readings of the devices.
func (e exposition) addLoads(s *status.Report) {
	for _, m := range []struct {
		name, kind, help string
		of               func(status.Device) *float64
	}{
		{"gpuard_gpu_utilization_ratio", "gauge", "Load of a device, 0 to 1.", func(d status.Device) *float64 { return d.Utilization }},
		{"gpuard_gpu_memory_total_bytes", "gauge", "Memory of a device.", func(d status.Device) *float64 { return scaled(d.MemoryTotal, 1) }},
		{"gpuard_gpu_memory_utilization_ratio", "gauge", "Part of the time in which the memory of a device was read or written.", func(d status.Device) *float64 { return d.MemoryLoad }},
		{"gpuard_gpu_memory_used_bytes", "gauge", "Memory of a device in use.", func(d status.Device) *float64 { return scaled(d.MemoryUsed, 1) }},
		{"gpuard_gpu_temperature_celsius", "gauge", "Temperature of a device.", func(d status.Device) *float64 { return scaled(d.Temperature, 1) }},
		{"gpuard_gpu_temperature_margin_celsius", "gauge", "Degrees left until the driver slows the device down.", func(d status.Device) *float64 { return scaled(d.Margin, 1) }},
		{"gpuard_gpu_power_watts", "gauge", "Power that a device takes.", func(d status.Device) *float64 { return d.Power }},
		{"gpuard_gpu_power_limit_watts", "gauge", "Power that a device may take.", func(d status.Device) *float64 { return d.PowerLimit }},
		{"gpuard_gpu_energy_joules_total", "counter", "Energy that a device has taken since the driver was loaded.", func(d status.Device) *float64 { return d.Energy }},
		{"gpuard_gpu_clock_hertz", "gauge", "Clock of the multiprocessors of a device.", func(d status.Device) *float64 { return scaled(d.Clock, 1e6) }},
	} {
		add := e.newMetric(m.name, m.kind, m.help)
		for _, d := range s.Devices {
			if v := m.of(d); v != nil {
				add(*v, "uuid", uuidOf(&d))
			}
		}
	}
}

func boolToFloat(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// addProcesses are counted by owner: a process ID as a label would make a new series for each job.
func (e exposition) addProcesses(s *status.Report) {
	type whose struct {
		device  string
		user    string
		foreign bool
	}

	n, memory := map[whose]int{}, map[whose]gpu.Bytes{}
	s.EachDevice(func(d *status.Device) {
		for _, p := range d.Processes {
			by := whose{uuidOf(d), p.User, p.Foreign}
			n[by]++
			if p.Memory != nil {
				memory[by] += *p.Memory
			}
		}
	})

	order := func(a, b whose) int {
		return cmp.Or(cmp.Compare(a.device, b.device), strings.Compare(a.user, b.user), cmp.Compare(boolToFloat(a.foreign), boolToFloat(b.foreign)))
	}

	count := e.newMetric("gpuard_gpu_processes", "gauge", "Processes on a device; those without a lease are foreign.")
	for _, by := range slices.SortedFunc(maps.Keys(n), order) {
		count(float64(n[by]), "uuid", by.device, "user", by.user, "foreign", strconv.FormatBool(by.foreign))
	}

	size := e.newMetric("gpuard_gpu_processes_memory_bytes", "gauge", "Memory of a device that processes use.")
	for _, by := range slices.SortedFunc(maps.Keys(memory), order) {
		size(float64(memory[by]), "uuid", by.device, "user", by.user, "foreign", strconv.FormatBool(by.foreign))
	}
}

func (e exposition) addLeases(s *status.Report) {
	type held struct {
		lease status.Lease
		// Its ID may be in a file of another user too.
		labels []string
		kind   string
	}

	var all []held
	s.EachDevice(func(d *status.Device) {
		for _, l := range d.Leases {
			kind := "device"
			switch {
			case l.Share > 0:
				kind = "share"
			case d.Profile != "":
				kind = "slice"
			}
			all = append(all, held{l, []string{"lease", l.ID, "uuid", uuidOf(d), "user", l.User}, kind})
		}
	})

	info := e.newMetric("gpuard_lease_info", "gauge", "A lease on a device.")
	for _, h := range all {
		info(1, append(h.labels, "job", h.lease.Command, "kind", h.kind, "quota_enforcement", string(h.lease.Quota), "isolation", string(h.lease.Isolation))...)
	}

	for _, m := range []struct {
		name, help string
		of         func(status.Lease) (value float64, there bool)
	}{
		{"gpuard_lease_start_timestamp_seconds", "When a lease began.", func(l status.Lease) (float64, bool) {
			return prose.ValueOr(l.Since, 0, unixSeconds), l.Since != nil
		}},
		{"gpuard_lease_memory_used_bytes", "Memory of a device that the processes of a lease use.", func(l status.Lease) (float64, bool) {
			return float64(prose.OrElse(l.Memory, 0)), l.Memory != nil
		}},
		{"gpuard_lease_memory_quota_bytes", "Memory of a device that is promised to a shared lease.", func(l status.Lease) (float64, bool) { return float64(l.Share), l.Share > 0 }},
		{"gpuard_lease_ended", "1 for a lease whose command has ended while another process keeps it.", func(l status.Lease) (float64, bool) { return 1, l.Ended }},
	} {
		add := e.newMetric(m.name, "gauge", m.help)
		for _, h := range all {
			if value, there := m.of(h.lease); there {
				add(value, h.labels...)
			}
		}
	}
}

func (e exposition) addQueue(s *status.Report, waits trend.Waits) {
	by := map[string]int{}
	var oldest *time.Time

	for _, w := range s.Waiting {
		by[w.User]++
		if w.Since != nil && (oldest == nil || w.Since.Before(*oldest)) {
			oldest = w.Since
		}
	}

	e.newMetric("gpuard_queue_requests", "gauge", "Requests that wait for devices.")(float64(len(s.Waiting)))
	users := e.newMetric("gpuard_queue_user_requests", "gauge", "Requests of a user that wait for devices.")
	for _, user := range slices.Sorted(maps.Keys(by)) {
		users(float64(by[user]), "user", user)
	}

	if oldest != nil {
		e.newMetric("gpuard_queue_oldest_timestamp_seconds", "gauge", "Since when the oldest request waits.")(unixSeconds(*oldest))
	}

	buckets := map[float64]uint64{}
	for i, bound := range trend.WaitBounds() {
		buckets[bound.Seconds()] = uint64(waits.Below[i]) //nolint:gosec // a count
	}

	desc := prometheus.NewDesc("gpuard_queue_wait_seconds", "How long requests waited that got their devices.", nil, nil)
	e.out <- prometheus.MustNewConstHistogram(desc, uint64(waits.N), waits.Sum.Seconds(), buckets) //nolint:gosec // a count
}

// addCounts are those since gpuard serve was started.
func (e exposition) addCounts(seen observe.Snapshot) {
	c := seen.Counts
	throttled := e.newMetric("gpuard_gpu_throttle_seconds_total", "counter", "How long the driver lowered the clocks of a device, by reason.")
	for _, r := range slices.SortedFunc(maps.Keys(c.Throttled), func(a, b trend.Reason) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), strings.Compare(a.Why, b.Why))
	}) {
		throttled(c.Throttled[r].Seconds(), "uuid", string(r.Device), "reason", r.Why)
	}

	codes := slices.SortedFunc(maps.Keys(c.XIDs), func(a, b trend.XID) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Code, b.Code))
	})

	xids := e.newMetric("gpuard_gpu_xid_total", "counter", "Errors that the driver reported about a device.")
	for _, x := range codes {
		xids(float64(c.XIDs[x].Times), "uuid", string(x.Device), "xid", strconv.Itoa(x.Code))
	}

	last := e.newMetric("gpuard_gpu_xid_last_timestamp_seconds", "gauge", "When the driver reported such an error last.")
	for _, x := range codes {
		if at := c.XIDs[x].Last; !at.IsZero() {
			last(unixSeconds(at), "uuid", string(x.Device), "xid", strconv.Itoa(x.Code))
		}
	}

	violations := e.newMetric("gpuard_lease_violations_total", "counter", "Processes that appeared on a leased device without a lease, and leases that went above their share.")
	violations(float64(c.Foreign), "kind", "foreign_process")
	violations(float64(c.Over), "kind", "over_quota")
	e.newMetric("gpuard_readings_total", "counter", "Readings of the devices.")(float64(c.Reports))
	e.newMetric("gpuard_reading_timestamp_seconds", "gauge", "When the devices were read last.")(unixSeconds(seen.Report.Taken))
	e.newMetric("gpuard_reader_starts_total", "counter", "How often the process that reads the devices was started.")(float64(seen.Children))
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"gpuard/internal/app/observe"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/status"
	"gpuard/internal/core/trend"
)

// scrapeMetrics is what Prometheus gets of a report.
func scrapeMetrics(t *testing.T, s *Site, seen observe.Snapshot) string {
	t.Helper()
	seen.Counts = seen.Counts.WithReport(nil, &seen.Report)
	now := func() observe.Snapshot { return seen }
	w := httptest.NewRecorder()
	collectorHandler(exposition{site: s, now: now}, dcgmCollector{s, now}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// TestMetricsOfSickDevices: devices without a UUID, and two files of one lease, leave all metrics there.
func TestMetricsOfSickDevices(t *testing.T) {
	now := time.Now()
	load, memory := 0.5, gpu.Bytes(1<<30)
	lease := func(user string) status.Lease {
		return status.Lease{ID: "k3f9", User: user, Command: "train", Since: &now, Memory: &memory, Share: 2 << 30}
	}
	s := status.Report{Taken: now, Devices: []status.Device{
		{Index: 0, Vendor: gpu.NVIDIA, Use: status.Busy, Health: "unknown"}, {Index: 1, Vendor: gpu.NVIDIA, Use: status.Busy, Health: "unknown"},
		{Index: 2, Vendor: gpu.NVIDIA, UUID: "GPU-2", Use: status.Shared, Health: "ok", Utilization: &load, MemoryLoad: new(0.25), Energy: new(1500.5), MemoryTotal: new(gpu.Bytes(80 << 30)), MemoryReserved: new(gpu.Bytes(600 << 20)), Leases: []status.Lease{lease("ann"), lease("bob"), lease("bob")}},
	}}
	s.Devices = append(s.Devices, status.Device{Index: 3, Vendor: gpu.NVIDIA, UUID: "GPU-3", Use: status.Free, Health: health.Unhealthy},
		status.Device{Index: 4, Vendor: gpu.NVIDIA, UUID: "GPU-4", Use: status.Unknown, Health: health.OK})
	text := scrapeMetrics(t, newEmptySite(t), observe.Snapshot{At: now, Report: s, Uses: []trend.EndedLease{{Lease: "k3f9", User: "ann", Devices: []trend.DeviceUse{{UUID: "GPU-2", Busy: 30, Idle: 90}}}}})
	for _, want := range []string{`gpuard_gpu_state{state="busy",uuid="index-0"} 1`, `gpuard_gpu_state{state="busy",uuid="index-1"} 1`, `gpuard_gpu_utilization_ratio{uuid="GPU-2"} 0.5`, `gpuard_gpu_memory_utilization_ratio{uuid="GPU-2"} 0.25`, `gpuard_gpu_energy_joules_total{uuid="GPU-2"} 1500.5`,
		`# TYPE gpuard_gpu_energy_joules_total counter`, `# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter`, `# TYPE DCGM_FI_DEV_FB_TOTAL gauge`,
		`gpuard_gpu_state{state="unhealthy",uuid="GPU-3"} 1`, `gpuard_gpu_state{state="free",uuid="GPU-3"} 0`, `gpuard_gpu_state{state="unknown",uuid="GPU-4"} 1`,
		`gpuard_lease_info{isolation="",job="train",kind="share",lease="k3f9",quota_enforcement="",user="ann",uuid="GPU-2"} 1`, `gpuard_lease_memory_quota_bytes{lease="k3f9",user="bob",uuid="GPU-2"}`,
		`gpuard_lease_idle_seconds_total{lease="k3f9",user="ann",uuid="GPU-2"} 90`, `gpuard_lease_busy_seconds_total{lease="k3f9",user="ann",uuid="GPU-2"} 30`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// TestMetricsOfSources: what a source counts is there, once, and one that fails leaves the rest there.
func TestMetricsOfSources(t *testing.T) {
	gauges := func(any) []observe.Gauge {
		return []observe.Gauge{{Name: "gpuard_jobs", Help: "Jobs.", Value: 3, Labels: []string{"state", "pending"}}, {Name: "gpuard_jobs", Help: "Jobs.", Value: 4, Labels: []string{"state", "pending"}}}
	}
	s := newEmptySite(t, observe.Source{Name: "queue", Gauges: gauges, Read: func(context.Context) (any, error) { return 1, nil }},
		observe.Source{Name: "other", Gauges: gauges, Read: func(context.Context) (any, error) { return nil, context.Canceled }})
	if text := scrapeMetrics(t, s, observe.Snapshot{At: time.Now()}); !strings.Contains(text, `gpuard_jobs{state="pending"} 3`) {
		t.Error(text)
	}
}

// TestDCGMReadings: memory in all, what of it is reserved, the energy and the work of the memory have the names of dcgm-exporter.
func TestDCGMReadings(t *testing.T) {
	d := status.Device{Index: 0, Vendor: gpu.NVIDIA, UUID: "GPU-1", Use: status.Free, Health: health.OK, MemoryLoad: new(0.25), Energy: new(1500.5), MemoryTotal: new(80 * gpu.GiB), MemoryReserved: new(600 * gpu.MiB), MemoryUsed: new(20 * gpu.GiB)}
	text := scrapeMetrics(t, newEmptySite(t), observe.Snapshot{At: time.Now(), Report: status.Report{Devices: []status.Device{d}}})
	for _, want := range []string{"DCGM_FI_DEV_FB_TOTAL|81920", "DCGM_FI_DEV_FB_RESERVED|600", "DCGM_FI_DEV_FB_USED|20480", "DCGM_FI_DEV_FB_FREE|60840", "DCGM_FI_DEV_MEM_COPY_UTIL|25", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION|1.5005e+06"} {
		name, value, _ := strings.Cut(want, "|")
		found := false
		for line := range strings.Lines(text) {
			found = found || strings.HasPrefix(line, name+"{") && strings.HasSuffix(line, "} "+value+"\n")
		}
		if !found {
			t.Errorf("no %s of %s in\n%s", value, name, text)
		}
	}
}

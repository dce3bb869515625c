package web

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"gpuard/internal/app/observe"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
)

// dcgmCollector gives readings under the names, units and labels of NVIDIA's dcgm-exporter (NVIDIA/dcgm-exporter,
// etc/default-counters.csv), so that boards made for it work. It has only what means the same.
type dcgmCollector struct {
	site *Site
	now  func() observe.Snapshot
}

// Describe says nothing in advance.
func (d dcgmCollector) Describe(chan<- *prometheus.Desc) {}

// Collect gives the readings that were seen last.
func (d dcgmCollector) Collect(out chan<- prometheus.Metric) {
	seen := d.now()
	names := []string{"gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION"}
	for _, m := range dcgmReadings() {
		desc := prometheus.NewDesc(m.name, m.help, names, nil)
		for i := range seen.Report.Devices {
			g := &seen.Report.Devices[i]
			value := m.of(g)
			if g.Vendor != gpu.NVIDIA || value == nil {
				continue
			}

			kind := prometheus.GaugeValue
			if m.counter {
				kind = prometheus.CounterValue
			}

			out <- prometheus.MustNewConstMetric(desc, kind, *value,
				strconv.Itoa(g.Index), uuidOf(g), strings.ToUpper(g.PCI), fmt.Sprintf("nvidia%d", g.Index), g.Name, d.site.Host, seen.Report.Driver)
		}
	}
}

type dcgmReading struct {
	name, help string
	of         func(*status.Device) *float64
	counter    bool
}

func dcgmReadings() []dcgmReading {
	const mib = 1 << 20
	gauge := func(name, help string, of func(*status.Device) *float64) dcgmReading {
		return dcgmReading{name, help, of, false}
	}
	inMiB := func(size *gpu.Bytes) *float64 {
		return prose.ValueOr(size, nil, func(n gpu.Bytes) *float64 { return new(float64(n / mib)) })
	}

	return []dcgmReading{
		gauge("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", func(d *status.Device) *float64 { return scaled(d.Utilization, 100) }),
		gauge("DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).", func(d *status.Device) *float64 { return scaled(d.MemoryLoad, 100) }),
		gauge("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", func(d *status.Device) *float64 { return scaled(d.Temperature, 1) }),
		gauge("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", func(d *status.Device) *float64 { return d.Power }),
		{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Total energy consumption since boot (in mJ).", func(d *status.Device) *float64 { return scaled(d.Energy, 1000) }, true},
		gauge("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", func(d *status.Device) *float64 { return scaled(d.Clock, 1) }),
		gauge("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", func(d *status.Device) *float64 { return inMiB(d.MemoryUsed) }),
		gauge("DCGM_FI_DEV_FB_RESERVED", "Framebuffer memory reserved (in MiB).", func(d *status.Device) *float64 { return inMiB(d.MemoryReserved) }),
		gauge("DCGM_FI_DEV_FB_TOTAL", "Framebuffer memory in all (in MiB).", func(d *status.Device) *float64 { return inMiB(d.MemoryTotal) }),
		gauge("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", func(d *status.Device) *float64 {
			if d.MemoryUsed == nil || d.MemoryTotal == nil {
				return nil
			}

			return inMiB(new(max(0, *d.MemoryTotal-*d.MemoryUsed-prose.OrElse(d.MemoryReserved, 0))))
		}),
		gauge("DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered.", func(d *status.Device) *float64 {
			if len(d.XIDs) == 0 {
				return new(0.0)
			}
			return new(float64(d.XIDs[len(d.XIDs)-1].Code))
		}),
	}
}

// scaled is a reading as Prometheus has it.
func scaled[T int | float64 | gpu.Bytes](reading *T, by float64) *float64 {
	return prose.ValueOr(reading, nil, func(n T) *float64 { return new(float64(n) * by) })
}

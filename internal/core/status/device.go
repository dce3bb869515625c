package status

import (
	"cmp"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
)

// Use is how a device is used, whatever its health.
type Use string

// States are the words of Device.State, of which "unknown" is said of the use and of the health.
func States() []string {
	return []string{string(Free), string(Leased), string(Shared), string(Draining), string(Busy), string(Unknown), "split", string(health.Degraded), string(health.Unhealthy)}
}

// Word is the use as it is shown to people: beside a health, "unknown" alone would not say of what.
func (u Use) Word() string {
	if u == Unknown {
		return "use unknown"
	}
	return string(u)
}

// State is a device in one word, the same wherever people see it: its health where it has no lease and is not well,
// "split" where its slices have states of their own, else its use.
func (d *Device) State() string {
	if len(d.MIG) > 0 && d.Health == health.OK && d.Use != Draining {
		return "split"
	}
	if (d.Use == Free || d.Use == Unknown) && d.Health != health.OK {
		return string(d.Health)
	}
	return d.Use.Word()
}

// Device is one GPU or one MIG slice. A reading that is absent is null.
type Device struct {
	// The index; of a slice within its GPU.
	Index   int        `json:"index"`
	UUID    gpu.UUID   `json:"uuid"`
	Name    string     `json:"name"`
	Vendor  gpu.Vendor `json:"vendor"`
	PCI     string     `json:"pci"`
	Profile string     `json:"profile,omitempty"` // of a slice
	// The use; a GPU with slices is free while one slice is; "unknown" where nothing tells.
	Use    Use          `json:"use"`
	Health health.State `json:"health"`
	// Reasons of the health, empty when it is ok.
	Why []string `json:"why"`
	// What repairs its health; "" when there is nothing to do.
	Remedy string `json:"remedy"`
	// Why its processes are not listed.
	Unlisted string `json:"unlisted,omitempty"`
	// Who takes it out of use, since when and why; "" when it is not drained.
	Drained string `json:"drained"`
	// Errors that the driver reported and that are not settled, oldest first.
	XIDs []XID `json:"xids"`
	// Why it cannot be leased now, "" when it can.
	Reason string `json:"reason"`
	// Reason without command lines, for people who may not read them.
	Discreet       string     `json:"-"`
	MemoryTotal    *gpu.Bytes `json:"memory_total"`
	MemoryUsed     *gpu.Bytes `json:"memory_used"`
	MemoryReserved *gpu.Bytes `json:"memory_reserved"`
	// The memory of the machine, for a device that has no memory of its own.
	MainMemory *gpu.Bytes `json:"main_memory,omitempty"`
	// The part of main_memory that can be had now without swapping.
	MainAvailable *gpu.Bytes `json:"main_available,omitempty"`
	Utilization   *float64   `json:"utilization"` // 0..1
	// Part of the time in which its memory was read or written, 0..1.
	MemoryLoad  *float64 `json:"memory_utilization"`
	Temperature *int     `json:"temperature"` // Celsius
	Power       *float64 `json:"power"`       // watts
	PowerLimit  *float64 `json:"power_limit"` // watts
	// Joules since the driver was loaded.
	Energy *float64 `json:"energy"`
	// Celsius left until the driver slows it down.
	Margin *int `json:"temperature_margin"`
	// MHz, of the multiprocessors.
	Clock *int `json:"clock"`
	// Why the driver lowers its clocks, in its own words; idle ones are not listed.
	Throttled []string  `json:"throttled"`
	Leases    []Lease   `json:"leases"`
	Processes []Process `json:"processes"`
	MIG       []Device  `json:"mig"` // slices
}

// InAll is the memory that the device works in, InUse what is used of it, by whom ever; nil where that is not known.
func (d Device) InAll() *gpu.Bytes { return cmp.Or(d.MainMemory, d.MemoryTotal) }

// InUse is of InAll.
func (d Device) InUse() *gpu.Bytes {
	if d.MainMemory != nil && d.MainAvailable != nil {
		return new(*d.MainMemory - *d.MainAvailable)
	}
	return d.MemoryUsed
}

// XID is one error that the driver reported.
type XID struct {
	Code int `json:"code"`
	// How bad it is for the device.
	Class   health.Class `json:"class"`
	Meaning string       `json:"meaning"` // in a few words
	At      *time.Time   `json:"at"`      // null: in this boot
	// The process that the driver blames; 0 unknown.
	PID int `json:"pid"`
	// "nvml", "kernel log".
	Source string `json:"source"`
}

// Uses of a device. Draining: its present leases stay, and no new ones are given. Busy: processes without a lease use
// more than is tolerated. Unknown: it has no lease, and nothing tells whether it is in use.
const (
	Free     Use = "free"
	Leased   Use = "leased"
	Shared   Use = "shared"
	Draining Use = "draining"
	Busy     Use = "busy"
	Unknown  Use = "unknown"
)

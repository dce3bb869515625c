package job

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
)

// DeviceHash is the first 8 hex digits of the SHA-256 of a UUID. Lease file names contain it, so that devices stay busy
// even when the content of a lease cannot be read.
func DeviceHash(id gpu.UUID) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:4])
}

// ManyDevices replaces a list in a file name that would be too long; it blocks every device while the lease is
// unreadable.
const ManyDevices = "many"

// Holds reports whether the lease covers the device, or the MIG device, id itself.
func (l *Lease) Holds(id gpu.UUID) bool {
	if l.Unreadable {
		return slices.Contains(l.Hashes, DeviceHash(id)) || slices.Contains(l.Hashes, ManyDevices)
	}
	return slices.Contains(l.Devices, id)
}

// String names a given device for users: "GPU 2 (NVIDIA A100-SXM4-80GB)", "MIG 1g.10gb of GPU 2 (…)".
func (g Given) String() string {
	label := cmp.Or(g.Label, fmt.Sprintf("GPU %d", g.Index))
	if g.Profile != "" {
		label = "MIG " + g.Profile + " of " + label
	}

	return label + " (" + prose.Brief(g.Name) + ")"
}

// RuntimeName is the name under which programs number the devices of the vendor: "cuda" in cuda:0.
func (g Given) RuntimeName() string { return g.Vendor.RuntimeName() }

// OwnedDevices returns the devices, as DeviceHash, in the living leases of a user. Sub-leases and several shares of a
// device count once. The lease except and its sub-leases do not count.
func OwnedDevices(held []Lease, uid uint32, except string) map[string]bool {
	devices := map[string]bool{}
	for _, l := range held {
		if l.UID != uid || except != "" && (l.ID == except || l.Parent == except) {
			continue
		}
		for _, id := range l.Devices {
			devices[DeviceHash(id)] = true
		}
		for _, hash := range l.Hashes {
			devices[hash] = true
		}
	}
	return devices
}

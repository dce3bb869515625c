package job

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"gpuard/internal/core/gpu"
)

// DeviceHash is the first 8 hex digits of the SHA-256 of a UUID. Lease file names carry it,
// so that devices stay busy even when the content of a lease cannot be read.
func DeviceHash(id gpu.UUID) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:4])
}

// ManyDevices stands in a file name for a list that would not fit; it blocks every device while unreadable.
const ManyDevices = "many"

// Holds reports whether the lease covers the device, or the MIG device, id itself.
func (l *Lease) Holds(id gpu.UUID) bool {
	if l.Unreadable {
		return slices.Contains(l.Hashes, DeviceHash(id)) || slices.Contains(l.Hashes, ManyDevices)
	}
	return slices.Contains(l.Devices, id)
}

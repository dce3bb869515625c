package gpu

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is an amount of memory.
type Bytes int64

// Binary units. gpuard has no decimal units: "20G" and "20GiB" are the same.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
)

// ParseBytes reads "20G", "20GiB", "500M", "1.5g" or a plain number of bytes. Negative, zero-length and overflowing
// sizes are errors.
func ParseBytes(s string) (Bytes, error) {
	text := strings.TrimSpace(s)
	digits := strings.TrimRight(text, "kKmMgGtTiIbB ")
	unit, ok := units[strings.ToLower(strings.TrimSpace(text[len(digits):]))]
	if !ok || digits == "" || strings.ContainsAny(digits, "eExXpPnN+-_") {
		return 0, fmt.Errorf("cannot read the size %q: write a number and a unit, such as 20G or 500M", s)
	}

	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || n*float64(unit) > float64(math.MaxInt64)/2 {
		return 0, fmt.Errorf("cannot read the size %q: write a number and a unit, such as 20G or 500M", s)
	}

	return Bytes(math.Round(n * float64(unit))), nil
}

// units is a read-only table.
var units = map[string]Bytes{
	"": 1, "b": 1, "k": KiB, "kb": KiB, "kib": KiB, "m": MiB, "mb": MiB, "mib": MiB,
	"g": GiB, "gb": GiB, "gib": GiB, "t": TiB, "tb": TiB, "tib": TiB,
}

// String writes the size in binary units: "512 MiB", "20 GiB", "79.6 GiB".
func (b Bytes) String() string {
	for _, u := range []struct {
		size Bytes
		name string
	}{{TiB, "TiB"}, {GiB, "GiB"}, {MiB, "MiB"}, {KiB, "KiB"}} {
		if b >= u.size || -b >= u.size {
			v := float64(b) / float64(u.size)
			if v == math.Trunc(v) || math.Abs(v) >= 100 {
				return fmt.Sprintf("%.0f %s", v, u.name)
			}
			return fmt.Sprintf("%.1f %s", v, u.name)
		}
	}
	return fmt.Sprintf("%d B", int64(b))
}

// ParseCapability reads a compute capability such as "8.0" or "9".
func ParseCapability(s string) (Capability, error) {
	major, minor, dotted := strings.Cut(strings.TrimSpace(s), ".")
	a, err := strconv.ParseUint(major, 10, 8)
	var b uint64
	if err == nil && dotted {
		b, err = strconv.ParseUint(minor, 10, 8)
	}

	if err != nil {
		return Capability{}, fmt.Errorf("cannot read the compute capability %q: write it as 8.0", s)
	}

	return Capability{int(a), int(b)}, nil
}

// String writes "8.0".
func (c Capability) String() string { return fmt.Sprintf("%d.%d", c.Major, c.Minor) }

// AtLeast reports whether c is o or newer.
func (c Capability) AtLeast(o Capability) bool {
	return c.Major > o.Major || c.Major == o.Major && c.Minor >= o.Minor
}

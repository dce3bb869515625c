package nvsmi

import (
	"math"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
)

// Every reading is a number and its unit, or a text that says why there is none: "N/A", "[N/A]", "Not Supported",
// "Unknown Error", "ERR!", "Requested functionality has been deprecated", and more with each driver. No list of such
// texts could be complete, so a text that is not exactly a number with the expected unit is an absent reading.

// parseNumber reads "65.32 W"; an empty unit means a bare number.
func parseNumber(s, unit string) (float64, bool) {
	fields := strings.Fields(s)
	if unit != "" {
		if len(fields) != 2 || fields[1] != unit {
			return 0, false
		}
	} else if len(fields) != 1 {
		return 0, false
	}

	if strings.Trim(fields[0], "+-.0123456789") != "" {
		// No "inf", "nan", "0x10", "1e9".
		return 0, false
	}

	n, err := strconv.ParseFloat(fields[0], 64)

	return n, err == nil && math.Abs(n) < 1<<53
}

func parseWatts(s string) *float64 {
	if n, ok := parseNumber(s, "W"); ok && n >= 0 {
		return &n
	}
	return nil
}

// parsePercent reads "45 %" as 0.45.
func parsePercent(s string) *float64 {
	if n, ok := parseNumber(s, "%"); ok && n >= 0 && n <= 100 {
		return new(n / 100)
	}
	return nil
}

// parseWhole reads a whole number with a unit such as "C" or "MHz".
func parseWhole(s, unit string) *int {
	if n, ok := parseNumber(s, unit); ok && n == math.Trunc(n) && math.Abs(n) < 1<<31 {
		return new(int(n))
	}
	return nil
}

// parseCount reads a whole number that is not negative.
func parseCount(s string) *int64 {
	if n, ok := parseNumber(s, ""); ok && n >= 0 && n == math.Trunc(n) {
		return new(int64(n))
	}
	return nil
}

// sumCounts adds the counts that are present; nil if there is none.
func sumCounts(texts ...string) *int64 {
	var total *int64
	for _, s := range texts {
		if n := parseCount(s); n != nil {
			if total == nil {
				total = new(int64)
			}
			*total += *n
		}
	}
	return total
}

// parseMemory reads "81920 MiB". Drivers before 340 wrote MB and meant MiB.
func parseMemory(s string) *gpu.Bytes {
	for unit, size := range map[string]gpu.Bytes{"MiB": gpu.MiB, "MB": gpu.MiB, "KiB": gpu.KiB, "GiB": gpu.GiB, "B": 1} {
		if n, ok := parseNumber(s, unit); ok && n >= 0 && n*float64(size) < 1<<60 {
			return new(gpu.Bytes(n * float64(size)))
		}
	}
	return nil
}

// parseChoice reads one of two words, such as "Enabled" and "Disabled"; nil for any other text.
func parseChoice(s, yes, no string) *bool {
	switch strings.TrimSpace(s) {
	case yes:
		return new(true)
	case no:
		return new(false)
	}
	return nil
}

func isYes(s string) bool { return strings.TrimSpace(s) == "Yes" }

// cleanWord returns a name, "" for a text that means that there is none.
func cleanWord(s string) string {
	s = strings.TrimSpace(prose.Clean(s))
	switch strings.ToLower(strings.Trim(s, "[]")) {
	case "", "n/a", "not supported", "not found", "unknown error", "err!", "insufficient permissions", "no permission",
		"gpu is lost", "gpu requires reset", "requested functionality has been deprecated":
		return ""
	}
	return s
}

// kernelAddress converts a PCI address with its domain to the kernel's form; "" if s is not one.
func kernelAddress(s string) string {
	if strings.Count(s, ":") != 2 {
		return ""
	}
	return gpu.KernelAddress(strings.TrimSpace(s))
}

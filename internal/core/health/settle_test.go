package health

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
)

func TestSettle(t *testing.T) {
	at := func(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }
	x := func(code, ms, pid int, source string) gpu.XID {
		return gpu.XID{Code: code, At: at(ms), PID: pid, Source: source}
	}
	undated := gpu.XID{Code: 48, Source: "kernel log"}
	tests := []struct {
		name    string
		in      []gpu.XID
		over    time.Time
		undated bool
		want    []gpu.XID
	}{
		{"nothing", nil, time.Time{}, false, nil},
		{"the same from two sources, and who did it", []gpu.XID{x(79, 400, 12, "kernel log"), x(79, 0, 0, "nvml")}, time.Time{}, false, []gpu.XID{x(79, 0, 12, "nvml")}},
		{"two codes at the same time", []gpu.XID{x(79, 0, 0, "nvml"), x(154, 0, 0, "nvml")}, time.Time{}, false, []gpu.XID{x(79, 0, 0, "nvml"), x(154, 0, 0, "nvml")}},
		{"again later", []gpu.XID{x(13, 1001, 0, "nvml"), x(13, 0, 0, "nvml")}, time.Time{}, false, []gpu.XID{x(13, 0, 0, "nvml"), x(13, 1001, 0, "nvml")}},
		{"over", []gpu.XID{x(79, 0, 0, "nvml"), x(79, 5000, 0, "nvml"), x(79, 9000, 0, "nvml")}, at(5000), false, []gpu.XID{x(79, 9000, 0, "nvml")}},
		{"without a time", []gpu.XID{x(79, 0, 0, "nvml"), undated}, time.Time{}, false, []gpu.XID{undated, x(79, 0, 0, "nvml")}},
		{"without a time, of a boot before", []gpu.XID{undated}, at(0), false, []gpu.XID{undated}},
		{"without a time, over", []gpu.XID{undated}, at(0), true, nil},
	}
	for _, test := range tests {
		for range 2 { // in any order
			if got := MergeXIDs(test.in, test.over, test.undated); !reflect.DeepEqual(got, test.want) {
				t.Errorf("%s:\n%+v\nwant\n%+v", test.name, got, test.want)
			}
			slices.Reverse(test.in)
		}
	}
}

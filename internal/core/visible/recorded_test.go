package visible_test

import (
	"slices"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/visible"
	"gpuard/test/recorded"
)

// TestRecordedAnswers compares the package with every table of testdata: documented results, and results that "make
// gpu-check" recorded on machines with GPUs.
func TestRecordedAnswers(t *testing.T) {
	tables := recorded.ListTables(t, "testdata")
	if !slices.Contains(tables, "testdata/documented.txt") {
		t.Fatalf("the tables are %q", tables)
	}
	for _, table := range tables {
		rows := recorded.ReadTable(t, table)
		wrong := 0
		for _, r := range rows {
			var got []gpu.UUID
			for _, e := range visible.CUDA(r.Env(), r.Machine).Visible {
				got = append(got, e.UUID)
			}
			if slices.Equal(got, r.Devices) {
				continue
			}
			if wrong++; wrong <= 20 {
				t.Errorf("%s: %q shows %q, the driver shows %q (%s)", r.At, r.Env(), got, r.Devices, r.Source)
			}
		}
		t.Logf("%s: %d rows, %d differ", table, len(rows), wrong)
	}
}

package nvidia

import (
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/visible"
	"gpuard/internal/gate"
	"gpuard/test/recorded"
)

// TestVisible asks libcuda what random values show, and core/visible the same: more of the drivers with which the rules changed, and fewer
// of those that answer alike. A question is a process and 2.4 ms of both processors; make soak asks 100,000.
func TestVisible(t *testing.T) {
	t.Parallel()
	for _, library := range Libraries(t) {
		n := 1_000
		if slices.Contains([]string{"535", "545", "550", "570", "580"}, library.Version[:3]) {
			n = 4_000
		}
		for machine, n := range map[string]int{"a100x4": gate.SoakCount(100_000, n), "a100x1": 2_000} {
			t.Run(library.Version+" "+machine, func(t *testing.T) {
				t.Parallel()
				compareWithLibrary(t, New(t, library, machine), n)
			})
		}
	}
}

// TestVisibleMIG: of machines with MIG devices libcuda 535 shows what core/visible says, or core/visible says that it is not sure. What
// it is not sure of depends on what the pretended driver answers: which numbers MIG devices have, and GPUs in MIG mode without any.
func TestVisibleMIG(t *testing.T) {
	t.Parallel()
	for _, library := range Libraries(t) {
		if !strings.HasPrefix(library.Version, "535") {
			continue
		}
		for _, machine := range []string{"mig", "mig-all"} {
			t.Run(library.Version+" "+machine, func(t *testing.T) {
				t.Parallel()
				l, unsure, wrong := New(t, library, machine), 0, 0
				rows := l.Ask(recorded.RandomRows(l.Machine, 29, gate.SoakCount(20_000, 1_000)))
				for _, r := range rows {
					v := visible.CUDA(r.Env(), l.Machine)
					switch {
					case slices.Equal(visibleUUIDs(v), r.Devices):
					case slices.ContainsFunc(v.Notes, visible.Note.IsDoubtful):
						unsure++
					default:
						if wrong++; wrong <= 20 {
							t.Errorf("%.200q shows %q, libcuda says %d and shows %q: %v", r.Env(), visibleUUIDs(v), r.Code, r.Devices, v.Notes)
						}
					}
				}
				t.Logf("%d of %d are not sure and differ, %d are sure and wrong", unsure, len(rows), wrong)
			})
		}
	}
}

func visibleUUIDs(v visible.View) (ids []gpu.UUID) {
	for _, e := range v.Visible {
		ids = append(ids, e.UUID)
	}
	return ids
}

// compareWithLibrary asks n random questions. It fails with the first few that libcuda answers otherwise.
func compareWithLibrary(t *testing.T, l *InventedMachine, n int) {
	t.Helper()
	wrong := 0
	for _, r := range l.Ask(slices.DeleteFunc(recorded.RandomRows(l.Machine, 29, n), isTooLong)) {
		got := visibleUUIDs(visible.CUDA(r.Env(), l.Machine))
		if slices.Equal(got, r.Devices) && (r.Code == 0) == (len(got) > 0) {
			continue
		}
		if wrong++; wrong <= 20 {
			t.Errorf("%.200q shows %q, libcuda says %d and shows %q", r.Env(), got, r.Code, r.Devices)
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d differ", wrong, n)
	}
}

// isTooLong: since 545 the drivers read a value that begins with MIG- and is longer than 1,024 bytes differently. 545.29 ends on some;
// 550.163 shows nothing; 555.58 reads it, but for one of 1,025 bytes, and writes beyond its room when it has 2,560, which ends some programs.
func isTooLong(r recorded.Row) bool {
	return r.Machine.Driver > "545" && r.Visible != nil && strings.HasPrefix(*r.Visible, "MIG-") && len(*r.Visible) > 1024
}

package health

import (
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
)

func TestOf(t *testing.T) {
	tests := []struct {
		name   string
		device gpu.Device
		state  State
		says   []string // one substring per reason, in order
	}{
		{"a consumer card without any health reading", gpu.Device{Name: "NVIDIA GeForce RTX 3060"}, OK, nil},
		{"all readings present and good", gpu.Device{
			RecoveryAction: "none", RemappedRows: &gpu.RemappedRows{Correctable: 3, Uncorrectable: 1},
			RetiredPages: &gpu.RetiredPages{SingleBit: 2}, ECCUncorrected: new(int64(0)),
			ClockEvents: []string{}, Temperature: new(60), TempSlowdown: new(90),
		}, OK, nil},
		{"no answer", gpu.Device{Problem: "no answer within 5s"}, Unknown, []string{"no answer within 5s"}},
		{"lost", gpu.Device{Problem: "GPU is lost"}, Unhealthy, []string{"GPU is lost"}},
		{"fallen off the bus", gpu.Device{Problem: "GPU has fallen off the bus"}, Unhealthy, []string{"fallen off"}},
		{"another problem", gpu.Device{Problem: "Insufficient Permissions"}, Unknown, []string{"Insufficient"}},
		{"a problem wins over stale readings", gpu.Device{Problem: "no answer", RecoveryAction: "reset"}, Unknown, []string{"no answer"}},
		{"reset asked for", gpu.Device{RecoveryAction: "reset"}, Unhealthy, []string{"a GPU reset"}},
		{"reboot asked for", gpu.Device{RecoveryAction: "reboot"}, Unhealthy, []string{"reboot"}},
		{"drain and reset asked for", gpu.Device{RecoveryAction: "drain_and_reset"}, Unhealthy, []string{"jobs to end"}},
		{"drain of peer traffic", gpu.Device{RecoveryAction: "drain_p2p"}, Degraded, []string{"peer-to-peer"}},
		{"an action of a newer driver", gpu.Device{RecoveryAction: "recover_imex"}, Degraded, []string{"recover_imex"}},
		{"remapping failed", gpu.Device{RemappedRows: &gpu.RemappedRows{Failed: true}}, Unhealthy, []string{"failed"}},
		{"remapping pending", gpu.Device{RemappedRows: &gpu.RemappedRows{Pending: true}}, Degraded, []string{"remapped"}},
		{"retirement pending", gpu.Device{RetiredPages: &gpu.RetiredPages{Pending: true}}, Degraded, []string{"retired"}},
		{"one uncorrectable error", gpu.Device{ECCUncorrected: new(int64(1))}, Degraded, []string{"1 uncorrectable memory error since"}},
		{"uncorrectable errors", gpu.Device{ECCUncorrected: new(int64(2))}, Degraded, []string{"2 uncorrectable memory errors"}},
		{"uncorrectable error that the driver calls repaired", gpu.Device{ECCUncorrected: new(int64(2)), RecoveryAction: "none"}, OK, nil},
		{"correctable errors are normal", gpu.Device{ECCCorrected: new(int64(500))}, OK, nil},
		{"thermal slowdown", gpu.Device{ClockEvents: []string{"sw_power_cap", "hw_thermal_slowdown"}}, Degraded, []string{"heat"}},
		{"power brake", gpu.Device{ClockEvents: []string{"hw_power_brake_slowdown"}}, Degraded, []string{"power supply"}},
		{"normal clock events", gpu.Device{ClockEvents: []string{"gpu_idle", "sw_power_cap", "hw_slowdown"}}, OK, nil},
		{"at the slowdown temperature", gpu.Device{Temperature: new(90), TempSlowdown: new(90)}, Degraded, []string{"at 90 C; it slows down at 90 C"}},
		{"just below it", gpu.Device{Temperature: new(87), TempSlowdown: new(90)}, Degraded, []string{"at 87 C"}},
		{"warm", gpu.Device{Temperature: new(86), TempSlowdown: new(90)}, OK, nil},
		{"hot without a known limit", gpu.Device{Temperature: new(95)}, OK, nil},
		{"a limit of zero is no limit", gpu.Device{Temperature: new(40), TempSlowdown: new(0)}, OK, nil},
		{"no margin left", gpu.Device{TempMargin: new(2)}, Degraded, []string{"2 C left"}},
		{"the margin counts before the limit", gpu.Device{TempMargin: new(20), Temperature: new(95), TempSlowdown: new(90)}, OK, nil},
		{"all at once, worst state and order of evidence", gpu.Device{
			RecoveryAction: "drain_p2p", RemappedRows: &gpu.RemappedRows{Failed: true, Pending: true},
			RetiredPages: &gpu.RetiredPages{Pending: true}, ECCUncorrected: new(int64(1)),
			ClockEvents: []string{"hw_power_brake_slowdown", "hw_thermal_slowdown"}, TempMargin: new(0),
		}, Unhealthy, []string{"peer", "failed", "remapped", "retired", "uncorrectable", "heat", "power", "0 C"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			state, reasons := Of(tt.device)
			if state != tt.state || len(reasons) != len(tt.says) {
				t.Fatalf("got %s %q, want %s with %d reasons", state, reasons, tt.state, len(tt.says))
			}
			for i, want := range tt.says {
				if !strings.Contains(reasons[i], want) {
					t.Errorf("reason %d is %q, want %q in it", i, reasons[i], want)
				}
			}
		})
	}
}

func TestCures(t *testing.T) {
	tests := []struct {
		name   string
		device gpu.Device
		want   []Cure
	}{
		{"well", gpu.Device{Name: "NVIDIA L4"}, nil},
		{"silent", gpu.Device{Problem: "no answer within 5s"}, []Cure{Ask}},
		{"lost is not hot", gpu.Device{Problem: "GPU is lost"}, []Cure{Recover}},
		{"remapping failed", gpu.Device{RemappedRows: &gpu.RemappedRows{Failed: true}}, []Cure{Inspect}},
		{"a reset does not mend a broken board", gpu.Device{RecoveryAction: "reset", RemappedRows: &gpu.RemappedRows{Failed: true, Pending: true}}, []Cure{Inspect}},
		{"remapping pending", gpu.Device{RemappedRows: &gpu.RemappedRows{Pending: true}}, []Cure{Reset}},
		{"retirement pending", gpu.Device{RetiredPages: &gpu.RetiredPages{Pending: true}}, []Cure{Reset}},
		{"uncorrectable errors", gpu.Device{ECCUncorrected: new(int64(1))}, []Cure{Reset}},
		{"too hot is not reset", gpu.Device{Temperature: new(95), TempSlowdown: new(90)}, []Cure{Cool}},
		{"no margin left, and slowed down", gpu.Device{TempMargin: new(0), ClockEvents: []string{"hw_thermal_slowdown"}}, []Cure{Cool}},
		{"power brake", gpu.Device{ClockEvents: []string{"hw_power_brake_slowdown"}}, []Cure{Power}},
		{"a reboot resets", gpu.Device{RecoveryAction: "reboot", RetiredPages: &gpu.RetiredPages{Pending: true}}, []Cure{Reboot}},
		{"a reset after the jobs", gpu.Device{RecoveryAction: "drain_and_reset", RetiredPages: &gpu.RetiredPages{Pending: true}}, []Cure{Drain}},
		{"peer traffic", gpu.Device{RecoveryAction: "drain_p2p"}, []Cure{Unlink}},
		{"an action of a newer driver", gpu.Device{RecoveryAction: "recover_imex"}, []Cure{Consult}},
		{"two causes, two cures", gpu.Device{RecoveryAction: "reset", Temperature: new(95), TempSlowdown: new(90)}, []Cure{Reset, Cool}},
	}
	for _, tt := range tests {
		if got := Cures(tt.device); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
		if state, _ := Of(tt.device); (state == OK) != (len(tt.want) == 0) {
			t.Errorf("%s: %s, but cures %v", tt.name, state, tt.want)
		}
	}
}

package health

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
)

// noon is the time at which the devices of these tests are judged.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// errors are XIDs that came some minutes before noon, one after the other.
func errors(codes ...int) []gpu.XID {
	var out []gpu.XID
	for i, code := range codes {
		out = append(out, gpu.XID{Code: code, At: noon.Add(time.Duration(i-5) * time.Minute), Source: "kernel log"})
	}
	return out
}

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
		{"needs a reset", gpu.Device{Problem: "GPU needs a reset"}, Unhealthy, []string{"GPU needs a reset"}},
		{"fallen off the bus", gpu.Device{Problem: "GPU has fallen off the bus"}, Unhealthy, []string{"fallen off"}},
		{"another problem", gpu.Device{Problem: "Insufficient Permissions"}, Unknown, []string{"Insufficient"}},
		{"NVLink fabric", gpu.Device{Fabric: []string{"degraded_bandwidth", "route_unhealthy"}}, Degraded, []string{"NVLink fabric: degraded bandwidth, route unhealthy"}},
		{"NVLink fabric in order", gpu.Device{Fabric: []string{}}, OK, nil},
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
		{"a program's own errors", gpu.Device{XIDs: errors(13, 31, 43, 45, 63)}, OK, nil},
		{"off the bus", gpu.Device{XIDs: errors(79)}, Unhealthy, []string{"XID 79 on 21 Nov at 11:55:00: the GPU has fallen off the bus"}},
		{"off the bus, although the driver asks for nothing", gpu.Device{RecoveryAction: "none", XIDs: errors(79)}, Unhealthy, []string{"XID 79"}},
		{"off the bus, when is not known", gpu.Device{XIDs: []gpu.XID{{Code: 79}}}, Unhealthy, []string{"XID 79 since the machine was started"}},
		{"off the bus and lost", gpu.Device{Problem: "GPU is lost", XIDs: errors(79)}, Unhealthy, []string{"lost", "XID 79"}},
		{"silent after an error", gpu.Device{Problem: "no answer within 5s", XIDs: errors(119)}, Unhealthy, []string{"no answer", "XID 119"}},
		{"each code once, the last of it", gpu.Device{XIDs: errors(62, 13, 62)}, Unhealthy, []string{"XID 62 on 21 Nov at 11:57:00"}},
		{"a code of a newer driver", gpu.Device{XIDs: errors(999)}, Unhealthy, []string{"XID 999 on 21 Nov at 11:55:00: an error that this version does not know"}},
		{"a contained memory error", gpu.Device{XIDs: errors(94)}, Degraded, []string{"it gets no new job until 10 minutes after it"}},
		{"a contained memory error, long ago", gpu.Device{XIDs: []gpu.XID{{Code: 94, At: noon.Add(-10 * time.Minute)}}}, OK, nil},
		{"a contained memory error, when is not known", gpu.Device{XIDs: []gpu.XID{{Code: 94}}}, Degraded, []string{"XID 94"}},
		{"the recovery action changed, and is known", gpu.Device{RecoveryAction: "none", XIDs: errors(154)}, OK, nil},
		{"the recovery action changed, and cannot be read", gpu.Device{XIDs: errors(154)}, Unhealthy, []string{"XID 154"}},
		{"all together, worst state and order of evidence", gpu.Device{
			RecoveryAction: "drain_p2p", RemappedRows: &gpu.RemappedRows{Failed: true, Pending: true},
			RetiredPages: &gpu.RetiredPages{Pending: true}, ECCUncorrected: new(int64(1)), XIDs: errors(95),
			ClockEvents: []string{"hw_power_brake_slowdown", "hw_thermal_slowdown"}, TempMargin: new(0),
		}, Unhealthy, []string{"peer", "failed", "remapped", "retired", "uncorrectable", "XID 95", "heat", "power", "0 C"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			state, reasons := StateOf(tt.device, noon)
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
		{"an error that asks for a reset", gpu.Device{XIDs: errors(119)}, []Cure{Reset, Confirm}},
		{"off the bus: a reboot forgets it", gpu.Device{Problem: "GPU is lost", XIDs: errors(79)}, []Cure{Recover}},
		{"off the bus, and back", gpu.Device{XIDs: errors(79)}, []Cure{Recover, Confirm}},
		{"no power cable", gpu.Device{XIDs: errors(54)}, []Cure{Power, Confirm}},
		{"a double-bit error", gpu.Device{XIDs: errors(48)}, []Cure{Reset, Confirm}},
		{"two errors", gpu.Device{XIDs: errors(119, 999)}, []Cure{Reset, Consult, Confirm}},
		{"two causes, two cures", gpu.Device{RecoveryAction: "reset", Temperature: new(95), TempSlowdown: new(90)}, []Cure{Reset, Cool}},
	}
	for _, tt := range tests {
		if got := Cures(tt.device, noon); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
		if state, _ := StateOf(tt.device, noon); (state == OK) != (len(tt.want) == 0) {
			t.Errorf("%s: %s, but cures %v", tt.name, state, tt.want)
		}
	}
}

func TestExplain(t *testing.T) {
	for code, want := range map[int]Class{13: Fault, 31: Fault, 43: Note, 45: Note, 94: Fault, 100: Fault, 46: Stuck, 62: Stuck, 109: Stuck, 158: Stuck,
		48: Host, 79: Host, 147: Host, 154: Host, 162: Host, 0: Host, -7: Host, 1 << 30: Host} {
		class, meaning := ExplainXID(code)
		if class != want || meaning == "" {
			t.Errorf("XID %d is %s (%s), want %s", code, class, meaning, want)
		}
	}
	for code, want := range map[int]bool{13: false, 31: false, 43: false, 45: false, 94: true, 79: true, 119: true, 154: false, 999: true} {
		if IsMachineFault(code) != want {
			t.Errorf("XID %d of the machine: %v", code, !want)
		}
	}
}

// TestErrorTable: each line is codes, class and meaning, in order and without overlap, and all that the catalog gives
// an action for are there.
func TestErrorTable(t *testing.T) {
	last, count := 0, map[Class]int{}
	for line := range strings.Lines(errorTable) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.Split(strings.TrimSpace(line), "\t")
		if len(parts) != 3 || !slices.Contains([]Class{Note, Fault, Stuck, Host}, Class(parts[1])) {
			t.Fatalf("not codes, class and meaning: %q", line)
		}
		var low, high int
		if n, _ := fmt.Sscanf(parts[0], "%d-%d", &low, &high); n == 1 {
			high = low
		}
		if low <= last || high < low {
			t.Errorf("%s is out of order or empty", parts[0])
		}
		last = high
		count[Class(parts[1])] += high - low + 1
	}
	if want := map[Class]int{Note: 20, Fault: 48, Stuck: 14, Host: 16}; !maps.Equal(count, want) {
		t.Errorf("%v, want %v", count, want)
	}
}

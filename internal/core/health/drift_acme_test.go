package health

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/gate"
)

// The core temperatures of the A100 machines of the Acme cluster in August 2023 (Seren: median 39 C, 95th percentile
// 65, 99th 69, 99.9th 80), and their utilization (0 in 31 %, above 95 % in 62 % of samples): computed from
// InternLM/AcmeTrace, data/utilization/util_pkl. Values between those points are interpolated, from 25 C to 88 C. That
// data has no clocks and no reasons: those here are invented, and vary more than a healthy card's.
var acme = [][2]float64{{0, 25}, {0.5, 39}, {0.95, 65}, {0.99, 69}, {0.999, 80}, {1, 88}}

func acmeTemperature(p float64) int {
	for i := 1; i < len(acme); i++ {
		if a, b := acme[i-1], acme[i]; p <= b[0] {
			return int(a[1] + (p-a[0])/(b[0]-a[0])*(b[1]-a[1]))
		}
	}
	return int(acme[len(acme)-1][1])
}

// weather simulates eight cards of a healthy machine over time: phases of minutes to hours, in each of which a card has
// a load and a temperature of the distribution, with noise. Hot phases are as frequent as the distribution says and
// long: a card may be at 80 C among cold neighbours for an hour.
type weather struct {
	rng   *rand.Rand
	cards [8]phase
	calm  []gpu.Device
}

func newWeather(seed, kind int) *weather {
	return &weather{rng: rand.New(rand.NewPCG(uint64(seed), uint64(kind))), calm: healthy(8).Devices}
}

type phase struct {
	until time.Duration
	util  float64
	temp  int
	cap   bool // at its power limit
}

func (w *weather) machine(at time.Duration) gpu.Machine {
	m := gpu.Machine{Devices: slices.Clone(w.calm)}
	for i := range w.cards {
		p := &w.cards[i]
		if at >= p.until {
			*p = phase{until: at + time.Duration((10+w.rng.ExpFloat64()*1200)*float64(time.Second)), temp: acmeTemperature(w.rng.Float64()), util: w.load()}
			p.cap = p.util > 0.9 && w.rng.IntN(3) == 0
		}
		d := &m.Devices[i]
		d.Temperature = new(p.temp + w.rng.IntN(5) - 2)
		d.Utilization = new(min(max(p.util+0.05*w.rng.NormFloat64(), 0), 1))
		d.ClockSM = new(1410 - w.rng.IntN(80))
		switch {
		case p.util == 0:
			d.ClockSM, d.ClockEvents = new(210+w.rng.IntN(900)), []string{"gpu_idle"}
		case p.cap:
			d.ClockSM, d.ClockEvents, d.Power = new(800+w.rng.IntN(610)), []string{"sw_power_cap"}, new(385+20*w.rng.Float64())
		}
		switch w.rng.IntN(2000) { // outliers of single readings
		case 0:
			d.ClockSM = new(600 + w.rng.IntN(800))
		case 1:
			d.ClockEvents = append(d.ClockEvents, "hw_slowdown")
		case 2:
			d.Problem = "no answer within 5s"
		case 3:
			d.ClockEvents, d.ClockSM, d.Utilization = nil, nil, nil
		}
	}
	return m
}

func (w *weather) load() float64 {
	switch p := w.rng.Float64(); {
	case p < 0.31:
		return 0
	case p < 0.38:
		return 0.3 + 0.6*w.rng.Float64()
	}
	return 0.97
}

// blindness lists readings that a driver may not report.
var blindness = [][]string{nil, {"events"}, {"events", "power"}, {"clock"}, {"events", "clock", "margin"}, {"util"}, {"temp"}}

// TestAcmeTemperaturesMoveNothing replays 28 days of a job on two cards: 28 machines of a day each, with every kind of
// missing reading.
func TestAcmeTemperaturesMoveNothing(t *testing.T) {
	seeds, days := gate.SoakCount(28, 7), 1
	hottest := 0
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s, w := newSim(8), newWeather(seed, 5)
			s.on = []int{0, 3}
			st := &story{t: t, sim: s}
			for at := time.Duration(0); at < time.Duration(days)*24*time.Hour; at += 5 * time.Second {
				m := w.machine(at)
				for i := range m.Devices {
					hottest = max(hottest, *m.Devices[i].Temperature)
					for _, b := range blindness[seed%len(blindness)] {
						st.hide(&m.Devices[i], b)
					}
				}
				if move, _, ok := s.sample(at, m, 0); ok {
					t.Fatalf("after %v: %s: %s", at, move.Kind, move.Reason)
				}
			}
		})
	}
	if hottest < 80 {
		t.Errorf("the hottest reading was %d C: the replay showed no heat", hottest)
	}
}

// TestThrottledCardIsFoundIn90Seconds lets one card throttle at a random moment of the same weather, as cards with bad
// cooling do: at full load, hotter, with a reason that comes and goes, and samples that are late or fail.
func TestThrottledCardIsFoundIn90Seconds(t *testing.T) {
	for seed := range gate.SoakCount(300, 100) {
		s, w := newSim(8), newWeather(seed, 6)
		rng := w.rng
		first := time.Duration(rng.IntN(3600)) * time.Second
		silent := seed%3 == 0 // the driver gives no reason: only the clock shows it
		found, last := time.Duration(0), first+2*time.Minute
		for at := time.Duration(0); at < last && found == 0; at += 5*time.Second + time.Duration(rng.IntN(500))*time.Millisecond {
			m := w.machine(at)
			d := &m.Devices[0]
			d.Utilization, d.Temperature, d.Problem, d.ClockEvents = new(1.0), new(60), "", []string{}
			d.ClockSM, d.Power = new(1410-rng.IntN(30)), new(300.0)
			for i := 1; i < 8; i++ {
				m.Devices[i].Temperature = new(35 + rng.IntN(30))
			}
			if at >= first {
				d.Temperature, d.ClockSM = new(83+rng.IntN(6)), new(400+rng.IntN(200))
				if !silent {
					d.ClockEvents = []string{"sw_thermal_slowdown"}
				}
				if rng.IntN(30) == 0 {
					d.Problem = "no answer within 5s"
				}
			}
			move, _, ok := s.sample(at, m, 0)
			switch {
			case ok && at < first:
				t.Fatalf("seed %d: moved %v before it throttled: %s", seed, first-at, move.Reason)
			case ok:
				found = at - first
			}
		}
		if silent && first < 5*time.Minute {
			continue // too early to know the card's own clock
		}
		if found == 0 || found > 90*time.Second {
			t.Errorf("seed %d: found after %v (0: not at all), want at most 90s", seed, found)
		}
	}
}

// TestMovesEnd runs the policy on random cards in every kind of trouble for days: a job never returns to a card that it
// left, and never moves twice within 30 minutes.
func TestMovesEnd(t *testing.T) {
	reasons := [][]string{nil, {}, {"sw_thermal_slowdown"}, {"hw_slowdown"}, {"hw_power_brake_slowdown", "hw_slowdown"}, {"sw_power_cap"}}
	moves := 0
	for seed := range gate.SoakCount(40, 25) {
		rng := rand.New(rand.NewPCG(uint64(seed), 7))
		s := newSim(6)
		left, last := map[int]bool{}, -time.Hour
		state := healthy(6)
		for at := time.Duration(0); at < 24*time.Hour; at += 10 * time.Second {
			if rng.IntN(20) == 0 {
				d := &state.Devices[rng.IntN(6)]
				d.Temperature, d.ClockSM, d.ClockEvents = new(30+rng.IntN(65)), new(300+rng.IntN(1100)), reasons[rng.IntN(len(reasons))]
				d.RecoveryAction = []string{"none", "none", "none", "none", "reset"}[rng.IntN(5)]
			}
			from := s.on[0]
			move, to, ok := s.sample(at, gpu.Machine{Devices: state.Devices}, 0)
			if !ok || to == nil {
				continue
			}
			moves++
			left[from] = true
			if left[to[0]] || at-last < 30*time.Minute || move.GPU != state.Devices[from].UUID {
				t.Fatalf("seed %d: after %v from %d to %d, the last move was after %v: %s", seed, at, from, to[0], last, move.Reason)
			}
			last = at
		}
	}
	if moves < 100 {
		t.Errorf("%d moves in all: the test shows little", moves)
	}
}

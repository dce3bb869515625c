package health

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
)

// TestDriftScenarios reads testdata/drift.txt; testdata/README.txt describes the format.
func TestDriftScenarios(t *testing.T) {
	data, err := os.ReadFile("testdata/drift.txt")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for text := range strings.SplitSeq("\n"+string(data), "\ncase: ") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		name, rest, _ := strings.Cut(text, "\n")
		t.Run(name, func(t *testing.T) {
			s := newStory(t, rest)
			got := s.play()
			if strings.Join(got, "\n") != strings.Join(s.want, "\n") {
				t.Errorf("moves:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(s.want, "\n"))
			}
			if s.reason != "" && !strings.Contains(s.last.Reason, s.reason) {
				t.Errorf("reason %q, want in it %q", s.last.Reason, s.reason)
			}
			kinds[string(s.last.Kind)]++
		})
	}
	for _, k := range append(Kinds(), "") {
		if kinds[string(k)] < 5 {
			t.Errorf("%d scenarios end with %q", kinds[string(k)], k)
		}
	}
}

// TestNeighbours: a device is compared with the others of its vendor.
func TestNeighbours(t *testing.T) {
	m := healthy(4)
	dev := m.Devices[0]
	dev.Temperature = new(50)
	m.Devices[2].Vendor, m.Devices[2].Temperature = gpu.AMD, new(90)
	m.Devices[3].Problem, m.Devices[3].Temperature = "no answer within 5s", new(90)
	if got := degreesWarmer(m, dev); got == nil || *got != 10 {
		t.Errorf("%v C hotter, want 10: neither another vendor's nor what a silent one showed", got)
	}
}

// TestAGoneDeviceIsNotJudged: the job's other devices are judged when one is missing in a reading.
func TestAGoneDeviceIsNotJudged(t *testing.T) {
	m := healthy(2)
	m.Devices[1].RecoveryAction = "reset"
	d := Drift{Kinds: Kinds()}
	if move, ok := d.AddSample(m, []gpu.UUID{"GPU-9", "GPU-0"}, 0); ok {
		t.Errorf("%+v", move)
	}
	if move, ok := d.AddSample(m, []gpu.UUID{"GPU-9", "GPU-1"}, 0); !ok || move.GPU != "GPU-1" {
		t.Errorf("%+v, %v", move, ok)
	}
}

// story is one scenario: what the cards show at which time, and what the job should do.
type story struct {
	t      *testing.T
	sim    *sim
	blind  []string
	every  time.Duration
	until  time.Duration
	end    time.Duration // remaining at the start
	acts   []act
	want   []string
	reason string
	last   Move
}

type act struct {
	at      time.Duration
	card    int // -1 all
	on, off time.Duration
	set     []string // "calm" alone: as at the start
}

func newStory(t *testing.T, text string) *story {
	s := &story{t: t, sim: newSim(4), every: 5 * time.Second, until: 2 * time.Hour}
	moves := false
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
		case line == "moves:":
			moves = true
		case strings.HasPrefix(line, "reason "):
			s.reason = line[len("reason "):]
		case moves:
			s.want = append(s.want, line)
		default:
			s.read(strings.Fields(strings.ReplaceAll(strings.ReplaceAll(line, `"GPU is lost"`, "GPU_is_lost"), `"no answer within 5s"`, "no_answer_within_5s")))
		}
	}
	return s
}

func (s *story) read(words []string) {
	numbers := func() (out []int) {
		for _, w := range words[1:] {
			out = append(out, s.number(w))
		}
		return out
	}
	switch words[0] {
	case "cards":
		s.sim = newSim(s.number(words[1]))
	case "on":
		s.sim.on = numbers()
	case "taken":
		s.sim.taken = numbers()
	case "kinds":
		s.sim.drift.Kinds = nil
		for _, w := range words[1:] {
			s.sim.drift.Kinds = append(s.sim.drift.Kinds, Kind(w))
		}
	case "blind":
		s.blind = words[1:]
	case "remaining":
		s.end = s.duration(words[1])
	case "every":
		s.every = s.duration(words[1])
	case "until":
		s.until = s.duration(words[1])
	case "at":
		a := act{at: s.duration(strings.TrimSuffix(words[1], ":")), card: -1, set: words[3:]}
		if words[2] != "all" {
			a.card = s.number(words[2])
		}
		if a.set[0] == "flap" {
			on, off, _ := strings.Cut(a.set[1], "/")
			a.on, a.off, a.set = s.duration(on), s.duration(off), a.set[2:]
		}
		s.acts = append(s.acts, a)
	default:
		s.t.Fatalf("cannot read %q", words)
	}
}

func (s *story) number(w string) int {
	n, err := strconv.Atoi(w)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *story) duration(w string) time.Duration {
	d, err := time.ParseDuration(w)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *story) play() (moves []string) {
	for at := time.Duration(0); at <= s.until; at += s.every {
		remaining := time.Duration(0)
		if s.end > 0 {
			remaining = max(s.end-at, time.Second)
		}
		move, to, ok := s.sim.sample(at, s.machine(at), remaining)
		if !ok {
			continue
		}
		s.last = move
		line := fmt.Sprintf("%v %s %s", at, move.Kind, strings.TrimPrefix(string(move.GPU), "GPU-"))
		if to == nil {
			line += " stays"
		} else {
			line += " > " + strings.Trim(fmt.Sprint(to), "[]")
		}
		moves = append(moves, line)
	}
	return moves
}

// machine is the reading at a time.
func (s *story) machine(at time.Duration) gpu.Machine {
	m := healthy(len(s.sim.cards))
	for _, a := range s.acts {
		if at < a.at || a.on > 0 && (at-a.at)%(a.on+a.off) >= a.on {
			continue
		}
		for i := range m.Devices {
			if a.card < 0 || a.card == i {
				s.set(&m.Devices[i], a.set)
			}
		}
	}
	for i := range m.Devices {
		for _, b := range s.blind {
			s.hide(&m.Devices[i], b)
		}
	}
	return m
}

func (s *story) set(d *gpu.Device, pairs []string) {
	for _, p := range pairs {
		key, v, _ := strings.Cut(p, "=")
		switch key {
		case "calm":
			*d = healthy(d.Index + 1).Devices[d.Index]
		case "temp":
			d.Temperature = new(s.number(v))
		case "clock":
			d.ClockSM = new(s.number(v))
		case "margin":
			d.TempMargin = new(s.number(v))
		case "slowdown":
			d.TempSlowdown = new(s.number(v))
		case "power":
			d.Power = new(float64(s.number(v)))
		case "limit":
			d.PowerLimit = new(float64(s.number(v)))
		case "util":
			u, err := strconv.ParseFloat(v, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			d.Utilization = &u
		case "events":
			d.ClockEvents = strings.Split(strings.TrimSuffix(v, "none"), "+")
		case "problem":
			d.Problem = strings.ReplaceAll(v, "_", " ")
		case "xid":
			d.XIDs = append(d.XIDs, gpu.XID{Code: s.number(v), At: s.sim.start})
		case "recovery":
			d.RecoveryAction = v
		default:
			s.t.Fatalf("cannot read %q", p)
		}
	}
}

func (s *story) hide(d *gpu.Device, what string) {
	switch what {
	case "events":
		d.ClockEvents = nil
	case "clock":
		d.ClockSM, d.ClockSMMax = nil, nil
	case "margin":
		d.TempMargin = nil
	case "power":
		d.Power, d.PowerLimit = nil, nil
	case "temp":
		d.Temperature = nil
	case "util":
		d.Utilization = nil
	default:
		s.t.Fatalf("cannot hide %q", what)
	}
}

// healthy is a machine without trouble.
func healthy(n int) gpu.Machine {
	var m gpu.Machine
	for i := range n {
		m.Devices = append(m.Devices, gpu.Device{Index: i, UUID: gpu.UUID(fmt.Sprintf("GPU-%d", i)), Vendor: gpu.NVIDIA,
			Temperature: new(40), Utilization: new(0.99), ClockSM: new(1400), ClockSMMax: new(1410), ClockEvents: []string{},
			Power: new(300.0), PowerLimit: new(400.0)})
	}
	return m
}

// sim is a job that follows the advice: it moves to the first cards that are free, not its own, and not to be avoided.
type sim struct {
	drift Drift
	cards []int
	on    []int
	taken []int
	start time.Time
}

func newSim(cards int) *sim {
	s := &sim{drift: Drift{Kinds: Kinds()}, on: []int{0}, start: time.Unix(1_700_000_000, 0)}
	for i := range cards {
		s.cards = append(s.cards, i)
	}
	return s
}

// sample gives the policy one reading; to is nil when a move was advised but no card was free.
func (s *sim) sample(at time.Duration, m gpu.Machine, remaining time.Duration) (move Move, to []int, ok bool) {
	m.Taken = s.start.Add(at)
	var on []gpu.UUID
	for _, i := range s.on {
		on = append(on, m.Devices[i].UUID)
	}
	move, ok = s.drift.AddSample(m, on, remaining)
	if !ok {
		return move, nil, false
	}
	for _, i := range s.cards {
		if len(to) < len(s.on) && !slices.Contains(s.on, i) && !slices.Contains(s.taken, i) && !slices.Contains(move.Avoid, m.Devices[i].UUID) {
			to = append(to, i)
		}
	}
	if len(to) < len(s.on) {
		return move, nil, true
	}
	s.drift.RecordMove(m.Taken, []gpu.UUID{move.GPU})
	s.on = to
	return move, to, true
}

package queue

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
)

// TestScenarios reads testdata/*.txt; testdata/README.txt describes the format.
func TestScenarios(t *testing.T) {
	cases := 0
	for _, name := range []string{"order.txt", "own.txt", "policy.txt", "start.txt"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range strings.Split(string(data), "\ncase: ")[1:] {
			title, body, _ := strings.Cut(text, "\n")
			cases++
			t.Run(name+"/"+title, func(t *testing.T) { play(t, body) })
		}
	}
	if cases < 30 {
		t.Errorf("only %d scenarios were read", cases)
	}
}

func play(t *testing.T, body string) {
	s := &scenario{q: Input{Now: int64(1_800_000_000 * time.Second), Boot: int64(100 * time.Hour),
		Rooms: map[gpu.UUID]pick.Room{}, Passed: map[string]bool{},
		Reserved: map[string]Reservation{}, Rest: map[gpu.UUID]int64{}}}
	section, answers := "", 0
	for line := range strings.Lines(body) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutSuffix(line, ":"); ok {
			section = name
			continue
		}
		f := strings.Fields(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case section == "rooms":
			s.room(f)
		case section == "held":
			s.lease(f)
		case section == "tickets":
			s.ticket(f)
		case section == "fading":
			s.fading(f)
		case section == "reserved":
			s.reserved(f)
		case section == "rest":
			for _, id := range devices(f[0]) {
				s.q.Rest[id] = s.q.Boot + int64(duration(f[1]))
			}
		case section == "answer":
			answers++
			if got := s.answer(f); got != strings.Join(f, " ") {
				t.Errorf("got %s, want %s", got, line)
			}
		default:
			t.Fatalf("cannot read %q", line)
		}
	}
	if answers == 0 {
		t.Error("the scenario has no answer")
	}
}

type scenario struct{ q Input }

// devices reads "0-2,5".
func devices(list string) []gpu.UUID {
	var out []gpu.UUID
	for part := range strings.SplitSeq(list, ",") {
		from, to, many := strings.Cut(part, "-")
		if !many {
			to = from
		}
		for i := number(from); i <= number(to); i++ {
			out = append(out, gpu.UUID(strconv.Itoa(i)))
		}
	}
	return out
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

func size(text string) gpu.Bytes {
	b, err := gpu.ParseBytes(text)
	if err != nil {
		panic(err)
	}
	return b
}

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

func (s *scenario) room(f []string) {
	r := pick.Room{}
	if f[1] == "free" {
		r = pick.Room{Whole: true, Free: new(80 * gpu.GiB), Share: new(76 * gpu.GiB)}
	}
	for _, word := range f[2:] {
		switch key, value, _ := strings.Cut(word, "="); {
		case word == "blocked":
			r.Blocked = true
		case word == "mem=none":
			r.Free = nil
		case key == "mem":
			r.Free = new(size(value))
		case key == "share":
			r.Share = new(size(value))
		default:
			panic(word)
		}
	}
	for _, id := range devices(f[0]) {
		s.q.Rooms[id] = r
	}
}

func (s *scenario) fading(f []string) {
	for _, id := range devices(f[0]) {
		r := s.q.Rooms[id]
		r.Fading = &pick.Fading{Since: s.q.Boot - int64(duration(f[1])), Until: s.q.Boot + int64(duration(f[2]))}
		s.q.Rooms[id] = r
	}
}

// uid of a name: by its first letter.
func uid(name string) uint32 { return 1000 + uint32(name[0]) }

func (s *scenario) lease(f []string) {
	l := job.Lease{ID: fmt.Sprintf("held%d", len(s.q.Held)), UID: uid(f[0]), Devices: devices(f[1])}
	for _, word := range f[2:] {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "until":
			l.Until = s.q.Boot + int64(duration(value))
		case "share":
			l.Share = size(value)
		case "ran":
			l.SinceBoot = s.q.Boot - int64(duration(value))
		case "id":
			l.ID = value
		case "time":
			l.Time = duration(value)
		case "parent":
			l.Parent = value
		case "allocation":
			l.Allocation = value
		default:
			panic(word)
		}
	}
	s.q.Held = append(s.q.Held, l)
}

func (s *scenario) reserved(f []string) {
	i := slices.IndexFunc(s.q.Tickets, func(t job.Ticket) bool { return t.ID == f[0] })
	s.q.Reserved[s.q.Tickets[i].Key()] = Reservation{Devices: devices(f[1]), Since: s.q.Boot - int64(time.Minute), Until: s.q.Boot + int64(duration(f[2])), Certain: len(f) > 3}
}

func (s *scenario) ticket(f []string) {
	waits := time.Minute
	t := job.Ticket{ID: f[0], UID: uid(f[1]), Count: number(f[2]), Devices: devices(f[4])}
	for _, word := range f[5:] {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "waits":
			waits = duration(value)
		case "share":
			t.Share = size(value)
		case "mem":
			t.Memory = size(value)
		case "timeout":
			t.Timeout = duration(value)
		case "time":
			t.Time = duration(value)
		case "asked":
			t.Asked = s.q.Now - int64(duration(value))
		case "max":
			t.Max = number(value)
		case "passed":
			s.q.Passed[t.Key()] = true
		case "inside":
			t.Parent = value
		case "allocation":
			t.Allocation = value
		default:
			panic(word)
		}
	}
	t.Arrival = s.q.Now - int64(waits)
	s.q.Tickets = append(s.q.Tickets, t)
}

// answer is the package's answer in the words of the line.
func (s *scenario) answer(f []string) string {
	out := f[:1:1]
	switch f[0] {
	case "next":
		next, ok := NextTicket(s.q)
		if !ok {
			return "next none"
		}
		return "next " + next.ID
	case "order":
		for _, t := range OrderTickets(s.q) {
			out = append(out, t.ID)
		}
		return strings.Join(out, " ")
	case "keeps":
		out = append(out, f[1])
		i := slices.IndexFunc(s.q.Tickets, func(t job.Ticket) bool { return t.ID == f[1] })
		for id, t := range KeptDevices(s.q, f[1], s.q.Tickets[i].UID) {
			out = append(out, string(id)+":"+t.ID)
		}
		if slices.Sort(out[2:]); len(out) == 2 {
			out = append(out, "nothing")
		}
		return strings.Join(out, " ")
	}
	return "unknown answer"
}

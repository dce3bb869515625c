package queue

import (
	"cmp"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
)

func TestOwn(t *testing.T) {
	const minute = int64(time.Minute)
	now := 1000 * minute
	long, short := Own{Arrival: now - 60*minute, Estimate: 10 * time.Hour}, Own{Arrival: now - 10*minute, Estimate: time.Minute}
	old := Own{Arrival: now - 31*24*60*minute, Estimate: 100 * 24 * time.Hour}
	nice := Own{Nice: 1, Arrival: now - 20*60*minute}
	for _, pair := range [][2]Own{{short, long}, {old, short}, {old, long}, {short, nice}, {{Arrival: now - minute, Estimate: time.Hour}, {Arrival: now - 2*minute, Estimate: time.Hour, Count: 4}}, // less device time
		{{Nice: -1, Arrival: now}, old},
		{{Arrival: 1, Estimate: time.Hour}, {Arrival: 2, Estimate: time.Hour}}, {{Arrival: 1}, {Arrival: 2}},
		{{Arrival: now - 32*24*60*minute, Estimate: 1000 * time.Hour}, old},                                       // both beyond OwnPatience: by arrival, whatever they take
		{{Arrival: now - 100*minute, Estimate: time.Hour}, {Arrival: now - minute, Estimate: 50 * time.Minute}}} { // what has waited gets ahead of what is a little shorter
		if pair[0].Compare(pair[1], now) >= 0 || pair[1].Compare(pair[0], now) <= 0 {
			t.Errorf("%+v is not before %+v", pair[0], pair[1])
		}
	}
}

// TestOwnPlaces: whatever a user writes into tickets, the places of others stay theirs.
func TestOwnPlaces(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	for range 2000 {
		q := Input{Now: int64(20 * time.Hour), Rooms: map[gpu.UUID]pick.Room{"a": {Whole: true}}}
		for i := range 12 {
			q.Tickets = append(q.Tickets, job.Ticket{ID: string(rune('a' + i)), UID: uint32(random.IntN(3)), Arrival: random.Int64N(int64(20 * time.Hour)), //nolint:gosec // small
				Devices: []gpu.UUID{"a"}, Count: 1})
		}
		before := OrderTickets(q)
		forged := uint32(random.IntN(3)) //nolint:gosec // small
		for i := range q.Tickets {
			if q.Tickets[i].UID == forged {
				q.Tickets[i].Nice, q.Tickets[i].Time = random.IntN(9)-4, time.Duration(random.Int64())
			}
		}
		after := OrderTickets(q)
		for i := range before {
			if before[i].UID != after[i].UID || before[i].UID != forged && before[i].ID != after[i].ID {
				t.Fatalf("place %d was %s, and is %s", i, before[i].Key(), after[i].Key())
			}
		}
	}
	q := Input{Now: int64(time.Hour), Tickets: []job.Ticket{{ID: "long", UID: 1, Arrival: 1, Time: 9 * time.Hour}, {ID: "other", UID: 2, Arrival: 2}, {ID: "short", UID: 1, Arrival: 3, Time: time.Minute}}}
	var ids []string
	for _, t := range OrderTickets(q) {
		ids = append(ids, t.ID)
	}
	if !slices.Equal(ids, []string{"short", "other", "long"}) {
		t.Error(ids)
	}
}

// TestLine: the line of classes gives the order that looking at all gives, where one without an estimate counts as the
// usual one of those that are left; and a class that becomes another one keeps its places.
func TestLine(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // a test
	estimates := []time.Duration{0, time.Minute, time.Hour, 30 * time.Hour}
	of := func(kind uint64) time.Duration { return estimates[kind] }
	for range 300 {
		var l Line
		type one struct {
			Class
			arrival int64
			id      int
		}
		var all []one
		now := int64(40 * time.Hour)
		for id := range 30 {
			c := Class{Nice: random.IntN(2), Count: 1 << random.IntN(3), Kind: random.Uint64N(4)}
			arrival := random.Int64N(now)
			l.Add(c, arrival, id)
			all = append(all, one{c, arrival, id})
		}
		for step := range 30 {
			if step == 10 { // the command of some has ended for the first time
				for i := range all {
					if all[i].Kind == 0 && all[i].id%2 == 0 {
						all[i].Kind = 2
					}
				}
				l.Reclass(func(kind uint64) bool { return kind == 0 }, func(id int) Class { return all[slices.IndexFunc(all, func(o one) bool { return o.id == id })].Class })
			}
			classes := map[Class]bool{}
			var known []time.Duration
			for _, o := range all {
				if e := of(o.Kind); e > 0 && !classes[o.Class] {
					known = append(known, e)
				}
				classes[o.Class] = true
			}
			usual := Median(known)
			own := func(o one) Own {
				return Own{Nice: o.Nice, Arrival: o.arrival, Estimate: cmp.Or(of(o.Kind), usual), Count: o.Count}
			}
			want := slices.MinFunc(all, func(a, b one) int { return own(a).Compare(own(b), now) })
			if id, ok := l.Take(now, of); !ok || id != want.id {
				t.Fatalf("%d, want %d", id, want.id)
			}
			all = slices.DeleteFunc(all, func(o one) bool { return o.id == want.id })
		}
		if _, ok := l.Take(now, of); ok {
			t.Fatal("something is left")
		}
	}
}

// TestDisplaces: the last of those behind gives way, and equals do not.
func TestDisplaces(t *testing.T) {
	now := int64(time.Hour)
	first, middle, last := Own{Arrival: 1, Estimate: time.Minute}, Own{Arrival: 1, Estimate: time.Hour}, Own{Arrival: 1, Estimate: time.Hour, Count: 8}
	for _, c := range []struct {
		own      Own
		ticketed []Own
		want     int
	}{
		{first, []Own{middle, last, middle}, 1},
		{middle, []Own{first, last}, 1},
		{middle, []Own{first, middle}, -1},
		{last, []Own{first, middle}, -1},
		{first, nil, -1},
	} {
		if got := c.own.IndexToDisplace(c.ticketed, now); got != c.want {
			t.Errorf("%+v among %+v: %d, want %d", c.own, c.ticketed, got, c.want)
		}
	}
}

func TestForecast(t *testing.T) {
	const h = int64(time.Hour)
	got := ForecastStarts([]int64{2 * h, h}, []ForecastRequest{{1, nil, time.Hour}, {2, nil, time.Hour}, {1, nil, 0}, {1, nil, time.Hour}, {2, nil, time.Hour}, {3, nil, time.Hour}})
	if want := []int64{h, 2 * h, 3 * h, 3 * h, UnknownTime, UnknownTime}; !reflect.DeepEqual(got, want) {
		t.Error(got)
	}
	got = ForecastStarts([]int64{3 * h, h, 2 * h}, []ForecastRequest{{1, []int{0}, time.Hour}, {1, []int{2, 0}, time.Hour}, {1, nil, time.Hour}, {2, []int{1}, time.Hour}, {1, []int{}, time.Hour}})
	if want := []int64{3 * h, 2 * h, h, UnknownTime, UnknownTime}; !reflect.DeepEqual(got, want) {
		t.Errorf("of some devices: %v", got)
	}
}

package queue

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
)

// questionOf makes a question of bytes: a ticket or a lease may contain anything.
func questionOf(data []byte) Input {
	upTo := func(n int) int {
		if len(data) == 0 {
			return 0
		}
		b := int(data[0])
		data = data[1:]
		return b % n
	}
	sizes := []gpu.Bytes{0, 0, 8 * gpu.GiB, 20 * gpu.GiB, math.MaxInt64, -1}
	some := func() (out []gpu.UUID) {
		for range upTo(4) {
			out = append(out, gpu.UUID(strconv.Itoa(upTo(5))))
		}
		return out
	}
	q := Input{Now: int64(1_800_000_000 * time.Second), Boot: int64(time.Hour), Rooms: map[gpu.UUID]pick.Room{}, Passed: map[string]bool{}}
	for i := range upTo(5) {
		r := pick.Room{Whole: upTo(2) == 1}
		if size := sizes[upTo(4)]; size > 0 {
			r.Free, r.Share = new(size), new(size)
		}
		q.Rooms[gpu.UUID(strconv.Itoa(i))] = r
	}
	for range upTo(5) {
		id := fmt.Sprintf("l%d", len(q.Held))
		q.Held = append(q.Held, job.Lease{ID: id, UID: uint32(upTo(3)), Devices: some(), Share: sizes[upTo(len(sizes))],
			Until: []int64{0, 1, int64(2 * time.Hour), math.MaxInt64, math.MinInt64}[upTo(5)], Parent: []string{"", "", "l0", "l1", "l2"}[upTo(5)]})
	}
	parent := []string{"", "l0", "l1"}[upTo(3)]
	for range upTo(24) {
		id := fmt.Sprintf("t%d", len(q.Tickets))
		q.Tickets = append(q.Tickets, job.Ticket{ID: id, UID: uint32(upTo(3)), Arrival: q.Now - int64(upTo(5))*int64(5*time.Hour), Devices: some(), Count: upTo(4) - 1,
			Share: sizes[upTo(len(sizes))], Memory: sizes[upTo(len(sizes))], Parent: parent,
			Timeout: []time.Duration{0, -1, time.Minute, 3 * time.Hour, math.MaxInt64}[upTo(5)]})
		q.Passed[q.Tickets[len(q.Tickets)-1].Key()] = upTo(8) == 7
	}
	return q
}

// checkAnswers checks what must be true of every answer.
func checkAnswers(t *testing.T, q Input, r *rand.Rand) {
	t.Helper()
	order := OrderTickets(q)
	if len(order) != len(q.Tickets) {
		t.Fatalf("%d tickets became %d", len(q.Tickets), len(order))
	}
	next, ok := NextTicket(q)
	if ok {
		kept, able := KeptDevices(q, next.ID, next.UID), map[gpu.UUID]bool{}
		for _, id := range next.Devices {
			room, exists := q.Rooms[id]
			if _, taken := kept[id]; exists && !taken && (has(pick.Room{Share: room.Share}, next) || room.Whole && (next.Memory <= 0 || room.Free != nil && *room.Free >= next.Memory)) {
				able[id] = true
			}
		}
		if next.Count < 1 || len(able) < next.Count {
			t.Fatalf("%+v is next, with %v, while %v are kept", next, able, kept)
		}
	}
	other := q
	other.Tickets, other.Held = shuffled(r, q.Tickets), shuffled(r, q.Held)
	if again, too := NextTicket(other); too != ok || again.ID != next.ID {
		t.Fatalf("next is %s, in another order %s", next.ID, again.ID)
	}
	if !slices.EqualFunc(order, OrderTickets(other), func(a, b job.Ticket) bool { return a.ID == b.ID }) {
		t.Fatal("the order is another one when the list is")
	}
	if len(order) > 0 && !ok {
		alone := q
		alone.Tickets = order[:1]
		if _, could := NextTicket(alone); could {
			t.Fatalf("%+v is first and could start, but no ticket is next", order[0])
		}
	}
}

func FuzzNext(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x04some rooms, some leases, and who waits for them"))
	f.Fuzz(func(t *testing.T, data []byte) {
		checkAnswers(t, questionOf(data), rand.New(rand.NewPCG(uint64(len(data)), 1)))
	})
}

func TestAnswersAreSensible(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	started := 0
	for range 3000 {
		data := make([]byte, 300)
		for i := range data {
			data[i] = byte(r.UintN(256))
		}
		q := questionOf(data)
		checkAnswers(t, q, r)
		if _, ok := NextTicket(q); ok {
			started++
		}
	}
	if started < 300 {
		t.Errorf("only %d of 3000 questions had an answer", started)
	}
}

// BenchmarkNext has 64 users with 16 tickets each, on 8 devices of which one has just become free: with enforced ends
// everywhere, and with none.
func BenchmarkNext(b *testing.B) {
	for name, until := range map[string]int64{"ends": int64(2 * time.Hour), "no ends": 0} {
		q := Input{Now: int64(1_800_000_000 * time.Second), Boot: int64(time.Hour), Rooms: map[gpu.UUID]pick.Room{}}
		for i := range 8 {
			id := gpu.UUID(strconv.Itoa(i))
			if q.Rooms[id] = (pick.Room{Whole: i == 0}); i > 0 {
				q.Held = append(q.Held, job.Lease{ID: "l" + strconv.Itoa(i), UID: uint32(i), Devices: []gpu.UUID{id}, Until: until})
			}
		}
		for i := range 1024 {
			t := job.Ticket{ID: strconv.Itoa(i), UID: uint32(i / 16), Arrival: q.Now - int64(i), Count: 2}
			for id := range q.Rooms {
				t.Devices = append(t.Devices, id)
			}
			q.Tickets = append(q.Tickets, t)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				NextTicket(q)
			}
		})
	}
}

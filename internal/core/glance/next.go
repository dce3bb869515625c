package glance

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/queue"
	"gpuard/internal/core/status"
)

// Start is when a request that waits may get its devices, and by whose end. Of one that has others before it only the time is known.
type Start struct {
	Ticket string    // of the request
	At     time.Time // zero: not known
	// The time is an estimate; else it is a limit, and may be earlier.
	Guess bool
	// Enough is free for it.
	Now bool
	// Devices that it gets, or gets some of, in the devices of the report; empty where At is not known.
	Places []int
	// The command of the lease whose end it waits for; "" none, or which one is not known.
	Command string
	User    string // of that lease
	Lease   string // of that lease
	// The text in English: "the next gets GPU 5 at about 14:20 (end of bert-large)", "your train.py is 3rd and gets 1
	// GPU at about 14:20".
	Text string
}

// ForecastStarts are when the requests of a report may start, in their order, as far as estimates say. A zero time is not known.
func ForecastStarts(s *status.Report) (out []time.Time) {
	spots := spotsOf(s)
	free := make([]int64, len(spots))
	for i := range spots {
		free[i] = spots[i].freeAt(s.Now, 0).at
	}

	var asked []queue.ForecastRequest

	for i := range s.Waiting {
		w := &s.Waiting[i]
		asked = append(asked, queue.ForecastRequest{Count: w.Count, Of: servingSpots(spots, w), Estimate: w.Time})
	}

	for _, start := range queue.ForecastStarts(free, asked) {
		at := time.Time{}
		if start != queue.UnknownTime {
			at = time.Unix(0, start).In(s.Now.Location())
		}
		out = append(out, at)
	}

	return out
}

// deviceOrSlice is what a request can be given: a device without slices, or a slice.
type deviceOrSlice struct {
	place int // of the device
	name  string
	*status.Device
}

func spotsOf(s *status.Report) (all []deviceOrSlice) {
	eachSpot(s, func(place int, d *status.Device) {
		name := fmt.Sprintf("GPU %d", s.Devices[place].Index)
		if d.Profile != "" {
			name += fmt.Sprintf(":%d", d.Index)
		}
		all = append(all, deviceOrSlice{place, name, d})
	})
	return all
}

// servingSpots are the spots that can serve a request.
func servingSpots(spots []deviceOrSlice, w *status.Waiting) []int {
	of := []int{}
	for i := range spots {
		if slices.Contains(w.Devices, spots[i].UUID) {
			of = append(of, i)
		}
	}
	return of
}

// expectedRelease is when a spot may be free, and which lease ends last before that.
type expectedRelease struct {
	// ns since 1970, or queue.UnknownTime.
	at    int64
	guess bool
	// nil: it is free, or no lease keeps it.
	lease *status.Lease
	// No lease keeps it, and it cannot be given: somebody has to act.
	stuck bool
}

// freeAt is for a whole device, or for a share of it.
func (d deviceOrSlice) freeAt(now time.Time, share gpu.Bytes) expectedRelease {
	if d.Reason == "" {
		return expectedRelease{at: now.UnixNano()}
	}
	if len(d.Leases) == 0 || d.Use == status.Draining {
		return expectedRelease{at: queue.UnknownTime, stuck: true}
	}

	var ends []expectedRelease
	var promised gpu.Bytes

	for i := range d.Leases {
		l := &d.Leases[i]
		promised += l.Share
		at, guess, known := l.EndsAt(now)
		r := expectedRelease{at: queue.UnknownTime, lease: l}
		if known && at.After(now) {
			r.at, r.guess = at.UnixNano(), guess
		}

		ends = append(ends, r)
	}

	slices.SortStableFunc(ends, func(a, b expectedRelease) int { return cmp.Compare(a.at, b.at) })
	if share <= 0 || d.Use != status.Shared || d.MemoryTotal == nil {
		return ends[len(ends)-1]
	}

	for _, r := range ends {
		promised -= r.lease.Share
		if promised+share <= *d.MemoryTotal {
			return r
		}
	}

	return ends[len(ends)-1]
}

// IsInLine reports whether a request can be next. The others have no place in the line.
func IsInLine(w *status.Waiting) bool { return !w.Stopped && w.Parent == "" && w.Count > 0 }

// nextStart is the first request that could start; nil where there is none.
func nextStart(s *status.Report) *Start {
	for i := range s.Waiting {
		if w := &s.Waiting[i]; IsInLine(w) {
			return startOf(s, w, "the next", "its user")
		}
	}
	return nil
}

// mineOf is the first request of a reader; nil where there is none.
func mineOf(s *status.Report, reader string) *Start {
	place := 0
	for i := range s.Waiting {
		w := &s.Waiting[i]
		if !IsInLine(w) {
			continue
		}
		place++

		switch {
		case reader == "" || w.User != reader:
		case place == 1:
			return startOf(s, w, "your "+w.Command, "you")
		default:
			return laterOf(s, i, fmt.Sprintf("your %s is %s and", w.Command, prose.Ordinal(place)))
		}
	}
	return nil
}

// startOf is when a request may start if none is before it. who is what it is called, and user who asked for it.
func startOf(s *status.Report, w *status.Waiting, who, user string) *Start {
	n := &Start{Ticket: w.ID}
	if w.Most > 0 {
		n.Text = fmt.Sprintf("%s waits for a rule: %s may have %d", who, user, w.Most)
		return n
	}

	spots := spotsOf(s)
	can := servingSpots(spots, w)
	when := map[int]expectedRelease{}
	usable := 0
	for _, at := range can {
		when[at] = spots[at].freeAt(s.Now, w.Share)
		if !when[at].stuck {
			usable++
		}
	}

	slices.SortStableFunc(can, func(a, b int) int { return cmp.Compare(when[a].at, when[b].at) })
	if usable < w.Count {
		n.Text = who + " waits until somebody frees a GPU"
		return n
	}

	n.fillStart(s, spots, can[:usable], w.Count, when)
	n.Text = who + " " + n.Text

	return n
}

// laterOf is when a request may start that has others before it: as far as estimates say, or why that is not known.
func laterOf(s *status.Report, i int, who string) *Start {
	w := &s.Waiting[i]
	alone := startOf(s, w, who, "you")
	at := ForecastStarts(s)[i]
	switch {
	case w.Most > 0 || alone.At.IsZero():
		return alone
	case at.IsZero():
		return &Start{Ticket: w.ID, Text: who + " waits for others of which no end is known"}
	case !at.After(s.Now):
		return &Start{Ticket: w.ID, At: at, Now: true, Text: fmt.Sprintf("%s gets %s now", who, prose.CountNoun(w.Count, "GPU"))}
	}

	return &Start{Ticket: w.ID, At: at, Guess: true, Text: fmt.Sprintf("%s gets %s at about %s", who, prose.CountNoun(w.Count, "GPU"), prose.NearTime(at, s.Now))}
}

// fillStart says when the request gets count of these spots, which are in the order in which they get free. Its text lacks what gets them.
func (n *Start) fillStart(s *status.Report, spots []deviceOrSlice, can []int, count int, when map[int]expectedRelease) {
	last := when[can[count-1]]
	if last.lease != nil {
		n.Command, n.User, n.Lease = last.lease.Command, last.lease.User, last.lease.ID
	}

	if last.at == queue.UnknownTime {
		n.Text = "waits for an end that is not known"
		if countEndless(can[:count], when) == 1 && count == len(can) {
			n.Text = "waits for the end of " + n.Command + ", which is not known"
			return
		}

		// Any of several.
		n.Command, n.User, n.Lease = "", "", ""

		return
	}

	some := count
	for some < len(can) && when[can[some]].at == last.at {
		// As well as the last one.
		some++
	}

	for _, at := range slices.Sorted(slices.Values(can[:some])) {
		n.Places = append(n.Places, spots[at].place)
	}

	n.At, n.Now = time.Unix(0, last.at).In(s.Now.Location()), last.lease == nil
	what := spotNames(spots, can[:some], count)
	switch clock := prose.NearTime(n.At, s.Now); {
	case n.Now && some > count:
		n.Text = "starts now"
	case n.Now:
		n.Text = fmt.Sprintf("gets %s now", what)
	case last.guess:
		n.Guess = true
		n.Text = fmt.Sprintf("gets %s at about %s (end of %s)", what, clock, n.Command)
	default:
		n.Text = fmt.Sprintf("gets %s by %s (end of %s)", what, clock, n.Command)
	}
}

// spotNames names the spots that a request gets: "GPU 2, 3", "GPU 2/3" for one of both, "3 GPUs" for so many of more.
func spotNames(spots []deviceOrSlice, can []int, count int) string {
	between := ", "
	switch {
	case len(can) > count && count > 1:
		return prose.CountNoun(count, "GPU")
	case len(can) > count:
		between = "/"
	}

	names := prose.Texts(slices.Sorted(slices.Values(can)), func(at int) string { return strings.TrimPrefix(spots[at].name, "GPU ") })

	return "GPU " + strings.Join(names, between)
}

// countEndless is how many leases of these spots have no known end.
func countEndless(spots []int, when map[int]expectedRelease) int {
	ids := map[string]bool{}
	for _, at := range spots {
		if r := when[at]; r.at == queue.UnknownTime && r.lease != nil {
			ids[r.lease.ID] = true
		}
	}
	return len(ids)
}

// Package glance is what a person wants to know of a machine at the first look, as values: is something free, when does the next request
// get its devices, is something broken. A view puts each part where it likes, links it, and says it in its language:
//
//	answer := glance.Summarize(&report, "bob")
//	answer.Text() // 2 of 8 free · 3 wait, your train.py gets GPU 5 at about 14:20 (end of bert-large) · 1 GPU unhealthy: lost
//
// It reads the report of status and nothing else, so each figure is the one that status shows. It must not judge a device itself.
package glance

import (
	"cmp"
	"fmt"
	"strings"

	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
)

// Key names a part, for links and colours.
type Key string

// Keys of the parts. A device is counted by one of Lost to Degraded at most, by the gravest; the keys after them are counted beside.
const (
	Free Key = "free"
	// What of that a newcomer can have.
	Room    Key = "room"
	Waiting Key = "waiting"
	// The request that gets devices next.
	Next Key = "next"
	// The first request of the reader.
	Mine Key = "mine"
	// Devices that left the bus.
	Lost Key = "lost"
	// Devices that must not get work.
	Unhealthy Key = "unhealthy"
	// Devices that do not answer.
	Silent Key = "silent"
	// Devices that are slowed down because of heat, or soon will be.
	Hot Key = "hot"
	// Devices that need attention for another reason.
	Degraded Key = "degraded"
	// Devices that were taken out of use.
	Drained Key = "drained"
	// Devices in use without a lease.
	Unleased Key = "unleased"
	// Processes on a device that another user has leased.
	Intruder Key = "intruder"
	// Leases that use more than their share.
	Over Key = "over"
	// Leases whose command has ended.
	Kept Key = "kept"
	// Vendors whose devices cannot be read.
	Unreadable Key = "unreadable"
	// None of the troubles.
	Well Key = "well"
)

// Part is one figure of the line.
type Part struct {
	Key   Key
	Count int
	// The text in English: "2 of 8 free", "1 GPU drained".
	Text string
	// The places of the devices that it is about, in the devices of the report.
	Places []int
	// That it is about, by id.
	Leases []string
	// Something is broken or somebody is harmed; else it is to be known.
	Grave bool
}

// Answer is the first line.
type Answer struct {
	Free Part
	// How many devices there are; a GPU with slices counts as its slices.
	Of int
	// nil: nothing is free, or nobody waits for it.
	Room    *Part
	Waiting Part
	// nil: nothing waits that could start.
	Next *Start
	// The reader's first request in the line; nil: none waits, or who reads is not known.
	Mine *Start
	// The gravest first; never empty: Well where there are none.
	Troubles []Part
}

// Summarize is the answer that a report gives to a reader, who is a user by name; "" where nobody knows who reads.
func Summarize(s *status.Report, reader string) Answer {
	var a Answer
	a.Free.Key = Free
	eachSpot(s, func(_ int, d *status.Device) {
		a.Of++
		if d.State() == string(status.Free) {
			a.Free.Count++
		}
	})

	for i := range s.Devices {
		if isFreeSomewhere(&s.Devices[i]) {
			a.Free.Places = append(a.Free.Places, i)
		}
	}

	a.Free.Text = fmt.Sprintf("%d of %d free", a.Free.Count, a.Of)
	if a.Of == 0 {
		a.Free.Text = "no GPU"
	}

	a.Room = roomOf(s)
	n := len(s.Waiting)
	a.Waiting = Part{Key: Waiting, Count: n, Text: fmt.Sprintf("%d wait", n)}

	switch n {
	case 0:
		a.Waiting.Text = "nothing waits"
	case 1:
		a.Waiting.Text = "1 waits"
	}

	a.Next, a.Mine = nextStart(s), mineOf(s, reader)
	a.Troubles = findTroubles(s)

	return a
}

// Groups are the texts of the parts, in English, as the line groups them: free; waiting and next; troubles.
func (a Answer) Groups() [][]string {
	free, waiting := []string{a.Free.Text}, []string{a.Waiting.Text}
	if a.Room != nil {
		free = append(free, a.Room.Text)
	}

	if told := a.Told(); told != nil {
		waiting = append(waiting, told.Text)
	}

	ills := prose.Texts(a.Troubles, func(t Part) string { return t.Text })

	return [][]string{free, waiting, ills}
}

// Told is the request of which the line speaks: the reader's first, and the next one where none of theirs waits.
func (a Answer) Told() *Start { return cmp.Or(a.Mine, a.Next) }

// Text is the whole line in English.
func (a Answer) Text() string {
	return strings.Join(prose.Texts(a.Groups(), func(group []string) string { return strings.Join(group, ", ") }), " · ")
}

// Title is the line for a tab in the background: "2 free", "0 free, 1 GPU unhealthy: lost".
func (a Answer) Title() string {
	title := fmt.Sprintf("%d free", a.Free.Count)
	if len(a.Troubles) > 0 && a.Troubles[0].Grave {
		title += ", " + a.Troubles[0].Text
	}
	return title
}

// eachSpot calls f for each device without slices and for each slice, with the place of the device.
func eachSpot(s *status.Report, f func(place int, d *status.Device)) {
	for i := range s.Devices {
		d := &s.Devices[i]
		if len(d.MIG) == 0 {
			f(i, d)
		}

		for j := range d.MIG {
			f(i, &d.MIG[j])
		}
	}
}

func isFreeSomewhere(d *status.Device) bool {
	free := len(d.MIG) == 0 && d.State() == string(status.Free)
	for i := range d.MIG {
		free = free || d.MIG[i].State() == string(status.Free)
	}
	return free
}

package queue

import (
	"maps"
	"slices"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// Guess adds to each ticket the devices that are there and that it does not know. One that appeared after the ticket was
// written may suit it; only its owner can tell, and renews the ticket at its next look. Until then nobody who came later shall
// take the device.
//
// That holds for a time only, counted from the first moment at which a device was seen that the ticket does not know, and not
// again before the ticket is renewed. So a ticket whose owner is stopped, or cannot see the device (in a container), or says
// on purpose that it knows nothing, keeps nothing for longer than one that is next and does not come.
func (t Turn) Guess(tickets []job.Ticket, there []gpu.UUID, boot int64, within time.Duration) (Turn, []job.Ticket) {
	turn := t
	turn.Unsure = maps.Clone(t.Unsure)
	if turn.Unsure == nil {
		turn.Unsure = map[string]int64{}
	}
	tickets = slices.Clone(tickets)
	for i, ticket := range tickets {
		unknown := slices.DeleteFunc(slices.Clone(there), func(id gpu.UUID) bool {
			return slices.Contains(ticket.Known, id) || slices.Contains(ticket.Devices, id)
		})
		if len(unknown) == 0 {
			continue
		}
		since, seen := turn.Unsure[ticket.Key()]
		if !seen || !past(since, boot) {
			since = boot
			turn.Unsure[ticket.Key()] = boot
		}
		if boot-since < int64(within) {
			tickets[i].Devices = slices.Concat(ticket.Devices, unknown)
		}
	}
	return turn, tickets
}

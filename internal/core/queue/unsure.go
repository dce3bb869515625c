package queue

import (
	"maps"
	"slices"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// AddUnknownDevices adds to each ticket the devices that exist and are not in Ticket.Known. A device that appeared
// after the ticket was written may suit it; only the ticket's owner can decide that, and renews the ticket at its next
// poll. Until then no later ticket may take the device.
//
// The addition lasts for within, counted from the first time that such a device was seen, and does not start again
// before the ticket is renewed. So a ticket whose owner is stopped, cannot see the device (in a container), or omits
// known devices on purpose holds up others no longer than a ticket that is next and does not start.
func (t Turn) AddUnknownDevices(tickets []job.Ticket, there []gpu.UUID, boot int64, within time.Duration) (Turn, []job.Ticket) {
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
		if !seen || !isValidTime(since, boot) {
			since = boot
			turn.Unsure[ticket.Key()] = boot
		}

		if boot-since < int64(within) {
			tickets[i].Devices = slices.Concat(ticket.Devices, unknown)
		}
	}

	return turn, tickets
}

package status

import "time"

// Standing is the place of a request that waits for devices.
type Standing struct {
	// "1 GPU", "2 GPUs with 20 GiB".
	Want string
	// 1 is next; 0 unknown.
	Place int
	// How many requests wait for the same devices; 0 unknown.
	Of int
	// When it began to wait.
	Since time.Time
	// The request that is next, while its devices are free: "train.py of bob (PID 77)"; "" otherwise.
	Ahead string
	// No obstacle ends without help: a user or an administrator has to act.
	Stuck bool
	// The obstacles, in the order of the devices.
	Holders []Holder
}

// Holder is what keeps one device.
type Holder struct {
	// "GPU 2"; "" where it is none of the devices.
	Device string
	User   string // "" when unknown
	// Base name; "" when unknown.
	Command string
	PID     int // 0 when unknown
	// PID counts in another PID namespace, as in a container.
	Apart bool
	Since time.Time // zero when unknown
	// When its lease is over; zero when unknown.
	Until time.Time
	// That is an estimate.
	Guess bool
	// Process that keeps a lease whose command has ended: "PID 7 (sleep)"; "" while the command runs.
	Keeper string
	// The time until which that lease waits for a next start of its command; zero: it does not.
	Awaited time.Time
	// The obstacle where it is no command: "drained: fan replacement (root, since 2 Jan 15:04)".
	Text string
}

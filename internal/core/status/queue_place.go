package status

import "time"

// Standing is the place of a request that waits for devices.
type Standing struct {
	Want    string    // "1 GPU", "2 GPUs with 20 GiB"
	Place   int       // 1 is next; 0 unknown
	Of      int       // how many requests wait for the same devices; 0 unknown
	Since   time.Time // when it began to wait
	Ahead   string    // the request that is next, while its devices are free: "train.py of bob (PID 77)"; "" otherwise
	Stuck   bool      // no obstacle ends without help: a user or an administrator has to act
	Holders []Holder  // the obstacles, in the order of the devices
}

// Holder is what keeps one device.
type Holder struct {
	Device  string    // "GPU 2"; "" where it is none of the devices
	User    string    // "" when unknown
	Command string    // base name; "" when unknown
	PID     int       // 0 when unknown
	Apart   bool      // PID counts in another PID namespace, as in a container
	Since   time.Time // zero when unknown
	Until   time.Time // when its lease is over; zero when unknown
	Guess   bool      // that is an estimate
	Keeper  string    // process that keeps a lease whose command has ended: "PID 7 (sleep)"; "" while the command runs
	Awaited time.Time // until when that lease waits for a next start of its command; zero: it does not
	Text    string    // the obstacle where it is no command: "drained: fan replacement (root, since 2 Jan 15:04)"
}

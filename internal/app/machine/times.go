package machine

import "time"

// Times are intervals and deadlines. 0 means the usual one; tests set shorter ones.
type Times struct {
	// Deadline for an answer of the driver: 5 s.
	Driver time.Duration
	// Deadline for the folder lock: 10 s.
	Lock time.Duration
	// Deadline for the CUDA driver to answer --probe: 30 s.
	Probe time.Duration
	// Deadline for each thing that doctor reads, except the devices: 5 s.
	Survey time.Duration
	// The time between two readings of the kernel's log while a command is watched: 5 s.
	Log time.Duration
	// How long the first in line may leave a free device unused: queue.PassOverAfter.
	Overdue time.Duration
	// The time between two readings of the machine by the first in line: 1 s.
	Slow time.Duration
	// How long a request waits for the GPU memory of a job that has just ended: 10 s.
	Fading time.Duration
	// The time between two readings of verify: 500 ms.
	Verify time.Duration
	// The time between two readings of the devices of a job that may be moved: 5 s.
	Drift time.Duration
	// What the policy of such moves counts as a minute: one minute.
	Minute time.Duration
	// The time between two reports of the machine for serve and top: 1 s.
	Observe time.Duration
	// The time without a report after which the process that reads the machine is replaced: 10 s.
	Late time.Duration
	// The time before a job of a queue is tried again whose devices could not be read: 30 s.
	Retry time.Duration
	// The time between two measurements of what leases use, and before the first one: 10 s.
	Sample time.Duration
	// The time from the start of a job to the first judgement of where it works: 20 s; the second comes at 2.5 times
	// that.
	Glance time.Duration
	// The time between two readings of the memory of a shared lease: 1 s.
	Measure time.Duration
	// The time that a job above its share has to free memory, and then to end: 3 s.
	Grace time.Duration
	// The time that a job on a device has to appear as a client of MPS: 30 s.
	Reach time.Duration
	// The time before a command that failed is started again: 500 ms, growing to 30 s.
	Pause time.Duration
	// The time between two touches of a lease by its holder, so that no cleaner of old files removes it: 24 h.
	Touch time.Duration
	// The time that the ranks of a job have to connect to each other: one minute.
	Join time.Duration
	// Deadline for a command of another scheduler: 10 s.
	Engine time.Duration
	// The time between two questions to another scheduler while one of its jobs is waited for: 3 s.
	Poll time.Duration
	// The time that a lease is kept for the next start of its command: 15 s.
	Again time.Duration
}

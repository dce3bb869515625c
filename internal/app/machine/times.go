package machine

import "time"

// Times are intervals and deadlines. 0 means the usual one; tests set shorter ones.
type Times struct {
	Driver  time.Duration // deadline for an answer of the driver: 5 s
	Lock    time.Duration // deadline for the folder lock: 10 s
	Probe   time.Duration // deadline for the CUDA driver to answer --probe: 30 s
	Survey  time.Duration // deadline for each thing that doctor reads, except the devices: 5 s
	Log     time.Duration // between two readings of the kernel's log while a command is watched: 5 s
	Overdue time.Duration // how long the first in line may leave a free device unused: queue.PassOverAfter
	Slow    time.Duration // between two readings of the machine by the first in line: 1 s
	Fading  time.Duration // how long a request waits for the GPU memory of a job that has just ended: 10 s
	Verify  time.Duration // between two readings of verify: 500 ms
	Drift   time.Duration // between two readings of the devices of a job that may be moved: 5 s
	Minute  time.Duration // what the policy of such moves counts as a minute: one minute
	Observe time.Duration // between two reports of the machine for serve and top: 1 s
	Late    time.Duration // without a report, the process that reads the machine is replaced: 10 s
	Retry   time.Duration // before a job of a queue is tried again whose devices could not be read: 30 s
	Sample  time.Duration // between two measurements of what leases use, and before the first one: 10 s
	Glance  time.Duration // from the start of a job to the first judgement of where it works: 20 s; the second comes at 2.5 times that
	Measure time.Duration // between two readings of the memory of a shared lease: 1 s
	Grace   time.Duration // for a job above its share to free memory, and then to end: 3 s
	Reach   time.Duration // for a job on a device to appear as a client of MPS: 30 s
	Pause   time.Duration // before a command that failed is started again: 500 ms, growing to 30 s
	Touch   time.Duration // between two times that a holder touches its lease, so that no cleaner of old files removes it: 24 h
	Join    time.Duration // for the ranks of a job to connect to each other: one minute
	Engine  time.Duration // deadline for a command of another scheduler: 10 s
	Poll    time.Duration // between two questions to another scheduler while one of its jobs is waited for: 3 s
	Again   time.Duration // for the next start of a command whose lease is kept for it: 15 s
}

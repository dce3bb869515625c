package run

import (
	"os"
	"time"

	"gpuard/internal/app/engine"
	"gpuard/internal/app/holder"
	"gpuard/internal/core/job"
)

// holderOrders are what the holder of the lease is told: when the time of the lease is over, and what it waits for when
// the command has ended.
func (l *Launch) holderOrders() *holder.Orders {
	o := &holder.Orders{Folder: l.claimed.Folder.Path, Lease: l.Lease, Starter: os.Getpid()}
	if l.spec.Timeout > 0 {
		o.Until = l.claimed.Held.Lease.DueTime(l.spec.Timeout)
	}
	if l.contained == nil {
		o.NextStart = l.nextStart()
	} else {
		o.Containers = &engine.Watch{Engine: l.contained.engine.ForHolder(), Lease: l.Lease, Names: l.contained.names}
	}

	return o
}

// endInTime: this process ends the command in time. Its holder does that in its place two seconds after this process
// would have killed the command. certain is when the lease has certainly ended.
func (l *Launch) endInTime(o *holder.Orders, certain int64) {
	self, err := l.host.Proc.Stat(os.Getpid())
	if err != nil {
		o.Until = 0
		return
	}
	o.Until = certain - int64(job.KillGrace-2*time.Second)
	o.InTime = &holder.Process{PID: os.Getpid(), Start: self.Start}
}

package nvml

import (
	"context"
	"sync"
	"time"
	"unsafe"

	"gpuard/internal/core/gpu"
)

// listenFor is how long one wait inside the driver lasts, in milliseconds, and so how late a listener notices that it is no
// longer wanted.
const listenFor = 500

// Events reports the errors (XIDs) of the whole devices ids from now on, as the driver tells them
// (nvmlEventTypeXidCriticalError in NVIDIA/go-nvml gen/nvml/nvml.h). What happened before is in the kernel log only. Each
// device has a listener of its own: one that hangs in the driver, or is lost, costs the others nothing. The channel is
// closed when nobody listens any more: ctx has ended, or no device can be listened to. Whoever receives must go on until
// then, or end ctx.
func (l *Library) Events(ctx context.Context, ids []gpu.UUID) <-chan gpu.Event {
	out := make(chan gpu.Event)
	var listeners sync.WaitGroup
	for _, id := range ids {
		l.listening.Add(1)
		listeners.Go(func() {
			defer l.listening.Add(-1)
			l.shut.Lock()   // not while the library is shut down
			l.shut.Unlock() //nolint:staticcheck // one that comes later sees this listener
			l.listen(ctx, id, out)
		})
	}
	go func() {
		listeners.Wait()
		close(out)
	}()
	return out
}

// listen waits for one device until ctx ends or the driver says anything but "nothing happened".
func (l *Library) listen(ctx context.Context, id gpu.UUID, out chan<- gpu.Event) {
	name := append([]byte(id), 0)
	var handle, set uintptr
	if l.call("nvmlDeviceGetHandleByUUID", uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(&handle))) != success ||
		l.call("nvmlEventSetCreate", uintptr(unsafe.Pointer(&set))) != success {
		return
	}
	defer l.call("nvmlEventSetFree", set)
	if l.call("nvmlDeviceRegisterEvents", handle, eventXID, set) != success {
		return
	}
	for ctx.Err() == nil {
		var e eventData
		switch s := l.call("nvmlEventSetWait_v2", set, uintptr(unsafe.Pointer(&e)), listenFor); {
		case s == timedOut, s == success && e.kind != eventXID:
			continue
		case s != success:
			return
		}
		select {
		case out <- gpu.Event{Device: id, XID: gpu.XID{Code: int(e.data), At: time.Now(), Source: "nvml"}}:
		case <-ctx.Done():
		}
	}
}

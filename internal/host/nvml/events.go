package nvml

import (
	"context"
	"sync"
	"time"
	"unsafe"

	"gpuard/internal/core/gpu"
)

// eventWaitMillis is the length of one wait in the driver, in milliseconds. A listener notices within that time that
// ctx has ended.
const eventWaitMillis = 500

// Events sends the errors (XIDs) that the driver reports for the devices ids from now on (nvmlEventTypeXidCriticalError
// in NVIDIA/go-nvml gen/nvml/nvml.h). ids are whole devices, not slices. Earlier errors are only in the kernel log.
// Each device has a listener of its own, so a device that hangs or is lost does not affect the others. The channel is
// closed when the last listener ends: because ctx has ended, or because listening to the device fails. The caller must
// receive until then or end ctx.
func (l *Library) Events(ctx context.Context, ids []gpu.UUID) <-chan gpu.Event {
	out := make(chan gpu.Event)
	var listeners sync.WaitGroup
	for _, id := range ids {
		l.listening.Add(1)
		listeners.Go(func() {
			defer l.listening.Add(-1)

			// Waits while the library is initialised again.
			l.shut.Lock()
			l.shut.Unlock() //nolint:staticcheck // a later recount sees this listener in listening
			l.listenDevice(ctx, id, out)
		})
	}

	go func() {
		listeners.Wait()
		close(out)
	}()

	return out
}

// listenDevice sends the errors of one device until ctx ends or a driver call fails.
func (l *Library) listenDevice(ctx context.Context, id gpu.UUID, out chan<- gpu.Event) {
	name := append([]byte(id), 0)
	var handle, set uintptr
	if l.callDriver("nvmlDeviceGetHandleByUUID", uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(&handle))) != success ||
		l.callDriver("nvmlEventSetCreate", uintptr(unsafe.Pointer(&set))) != success {
		return
	}

	defer l.callDriver("nvmlEventSetFree", set)
	if l.callDriver("nvmlDeviceRegisterEvents", handle, eventXID, set) != success {
		return
	}

	for ctx.Err() == nil {
		var e eventData
		switch s := l.callDriver("nvmlEventSetWait_v2", set, uintptr(unsafe.Pointer(&e)), eventWaitMillis); {
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

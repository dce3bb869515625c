package machine

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/prose"
	"gpuard/internal/host/devicestate"
	"gpuard/internal/host/kmsg"
)

// logPatience is how long the kernel's log may still take when the driver has answered. The two are read at the same
// time, and the log takes about a millisecond; but a busy machine may not give a broken device to a job because it was
// late.
const logPatience = 500 * time.Millisecond

// kernelLog starts to read the driver's errors from the kernel's log, and returns a function that waits for them. There
// are none if this user may not read the log, or if that takes too long.
func (h *Host) kernelLog() func() []kmsg.Error {
	if h.KernelLog == "" {
		return func() []kmsg.Error { return nil }
	}
	read := make(chan []kmsg.Error, 1)
	go func() {
		// Most users may not, and the driver's own words stay.
		found, _ := kmsg.ReadErrors(h.KernelLog)
		read <- found
	}()

	return func() []kmsg.Error {
		select {
		case found := <-read:
			return found
		case <-time.After(logPatience):
			return nil
		}
	}
}

// addFaults adds to the devices what the readings do not show: errors of the driver that are not settled, and drains.
func (h *Host) addFaults(m *gpu.Machine, log []kmsg.Error) {
	drains, seen := h.DeviceMarks(m)
	seen = append(seen, h.heard.allEvents()...)
	for i := range m.Devices {
		d := &m.Devices[i]
		mark := drains[d.UUID]
		switch {
		case mark.Drained:
			d.Drained = drainText(mark)
		case mark.Device != "":
			// Put into use again, whatever a recorded machine says.
			d.Drained = ""
		}

		over := mark.Cleared
		for _, e := range log {
			ours := e.PCI == "" || d.PCI != "" && strings.HasPrefix(d.PCI, e.PCI+".")
			switch {
			case !ours || d.Vendor != gpu.NVIDIA:
			case !e.After:
				d.XIDs = append(d.XIDs, e.XID)
			case e.XID.At.After(over):
				over = e.XID.At
			}
		}

		for _, e := range seen {
			if e.Device == d.UUID {
				d.XIDs = append(d.XIDs, e.XID)
			}
		}

		if len(d.XIDs) > 0 {
			boot, _ := h.Proc.BootID()
			d.XIDs = health.MergeXIDs(d.XIDs, over, mark.Boot != "" && mark.Boot == boot)
		}
	}
}

// DeviceMarks reads what was noted in every state folder that counts for m: of the own one its owner is believed, of
// the others only root.
func (h *Host) DeviceMarks(m *gpu.Machine) (map[gpu.UUID]devicestate.DrainMark, []gpu.Event) {
	path, others, err := h.StateFolder(*m)
	if err != nil {
		return nil, nil
	}

	boot := func() string {
		id, _ := h.Proc.BootID()
		return id
	}

	all := map[gpu.UUID]devicestate.DrainMark{}
	var seen []gpu.Event
	for i, folder := range append([]string{path}, others...) {
		owner, ok := ownerOf(folder)
		if !ok || i > 0 && folder == path {
			continue
		}

		if i > 0 {
			owner = 0
		}

		found, events, err := devicestate.ReadState(folder, owner, boot, h.Proc.IDs().OverflowIDs()...)
		if err != nil {
			m.Problems = append(slices.Clip(m.Problems), fmt.Sprintf("what was noted about devices is not all known: %v", err))
		}

		for id, mark := range found {
			if had, known := all[id]; !known || mark.Since.After(had.Since) {
				all[id] = mark
			}
		}

		seen = append(seen, events...)
	}

	return all, seen
}

// drainText is the text for a drained device: the reason, the user, and since when.
func drainText(m devicestate.DrainMark) string {
	why := prose.Clean(m.Reason)
	if why == "" {
		why = "no reason given"
	}
	return fmt.Sprintf("%s (%s, since %s)", why, prose.Clean(m.By), m.Since.Local().Format("2 Jan 15:04"))
}

// WatchErrors returns a channel of the driver's errors on devices, from the driver's events and from the kernel's log,
// each once, until ctx ends: new ones, and those in the log since began. It records each in the state folder.
func (h *Host) WatchErrors(ctx context.Context, m gpu.Machine, ids []gpu.UUID, began time.Time) <-chan gpu.Event {
	w := &errorWatch{host: h, m: m, began: began, out: make(chan gpu.Event)}
	for _, id := range ids {
		if d, _, ok := m.FindDevice(id); ok && d.UUID != "" && !slices.Contains(w.ids, d.UUID) {
			w.ids = append(w.ids, d.UUID)
		}
	}
	go w.watchErrors(ctx)

	return w.out
}

// heardErrors has the errors that this process has received itself. They count even if they cannot be recorded, because
// the disk is full or another user owns the file.
type heardErrors struct {
	turn   sync.Mutex
	events []gpu.Event
}

// CopyForListener returns a copy of h for a process that also receives the driver's errors itself. say replaces Say.
func (h *Host) CopyForListener(say func(string)) *Host {
	out := *h
	out.heard, out.Say = &heardErrors{}, say
	return &out
}

// addEvent keeps an error, and reports whether it was not known from the other source.
func (h *heardErrors) addEvent(e gpu.Event) bool {
	h.turn.Lock()
	defer h.turn.Unlock()

	// A program that fails in a loop must not push out what happened once.
	const often = 4
	same := 0
	for _, o := range h.events {
		if o.Device != e.Device || o.XID.Code != e.XID.Code {
			continue
		}
		same++
		if o.XID.At.Sub(e.XID.At).Abs() <= time.Second {
			return false
		}
	}

	if same == often {
		i := slices.IndexFunc(h.events, func(o gpu.Event) bool { return o.Device == e.Device && o.XID.Code == e.XID.Code })
		h.events = slices.Delete(h.events, i, i+1)
	}

	h.events = append(h.events, e)

	return true
}

func (h *heardErrors) allEvents() []gpu.Event {
	if h == nil {
		return nil
	}
	h.turn.Lock()
	defer h.turn.Unlock()

	return slices.Clone(h.events)
}

// errorWatch is one call of watchErrors.
type errorWatch struct {
	host  *Host
	m     gpu.Machine
	ids   []gpu.UUID // whole devices
	began time.Time
	out   chan gpu.Event
}

// logInterval is the time between two readings of the kernel's log. The driver's own events come without delay.
const logInterval = 5 * time.Second

func (w *errorWatch) watchErrors(ctx context.Context) {
	defer close(w.out)
	var events <-chan gpu.Event
	if w.host.Events != nil && len(w.ids) > 0 {
		events = w.host.Events(ctx, w.ids)
	}

	interval := w.host.Times.Log
	if interval == 0 {
		interval = logInterval
	}

	look := time.NewTicker(interval)
	defer look.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case e, open := <-events:
			if !open {
				events = nil
				continue
			}
			w.reportError(ctx, e)
		case <-look.C:
			w.checkLog(ctx)
		}
	}
}

// checkLog tells what is new in the kernel's log.
func (w *errorWatch) checkLog(ctx context.Context) {
	for _, e := range w.host.kernelLog()() {
		for i := range w.m.Devices {
			d := &w.m.Devices[i]
			if !e.After && slices.Contains(w.ids, d.UUID) && strings.HasPrefix(d.PCI, e.PCI+".") && e.XID.At.After(w.began) {
				w.reportError(ctx, gpu.Event{Device: d.UUID, XID: e.XID})
			}
		}
	}
}

// reportError passes an error on that is not known from the other source.
func (w *errorWatch) reportError(ctx context.Context, e gpu.Event) {
	if !w.host.heard.addEvent(e) {
		return
	}

	w.recordError(e)

	select {
	case w.out <- e:
	case <-ctx.Done():
	}
}

// recordError keeps an error for other processes; this one has it already.
func (w *errorWatch) recordError(e gpu.Event) {
	path, _, err := w.host.StateFolder(w.m)
	if err != nil || w.host.Proc.IDs().Part() {
		// In a user namespace the file would bear another user's number.
		return
	}

	boot, err := w.host.Proc.BootID()
	if err != nil {
		return
	}

	_ = devicestate.RecordErrors(path, boot, e)
}

// ErrorText is the sentence about an error, for the owner of the command on that device.
func ErrorText(m gpu.Machine, e gpu.Event) string {
	_, meaning := health.ExplainXID(e.XID.Code)
	text := fmt.Sprintf("%s reported XID %d: %s", nameOfDevice(m, e.Device), e.XID.Code, meaning)
	if health.IsMachineFault(e.XID.Code) {
		text += "; it gets no new job, and gpuard status says what to do"
	}

	return text
}

func nameOfDevice(m gpu.Machine, id gpu.UUID) string {
	if d, _, ok := m.FindDevice(id); ok {
		return DeviceName(m, *d)
	}
	return "GPU " + prose.Clean(string(id))
}

func ownerOf(path string) (uint32, bool) {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return 0, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)

	return st.Uid, ok
}

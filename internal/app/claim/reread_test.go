package claim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/host/proc"
	"gpuard/test/hosts"
)

// asked are the queries that reach the driver of a machine with four L4.
type asked struct {
	mu      sync.Mutex
	queries []gpu.Query
	during  func(nth int) // a reading; nil: nothing happens
}

func (a *asked) read(_ context.Context, query gpu.Query) (gpu.Machine, error) {
	m, err := gpu.Invent("demo:4xL4")
	m.Taken = time.Now()
	for i := range m.Devices {
		if d := &m.Devices[i]; !query.Wants(d) {
			*d = gpu.Device{Index: d.Index, UUID: d.UUID, Name: d.Name, Vendor: d.Vendor, PCI: d.PCI}
		}
	}
	a.mu.Lock()
	a.queries = append(a.queries, query)
	nth := len(a.queries)
	a.mu.Unlock()
	if a.during != nil {
		a.during(nth)
	}
	return m, err
}

// about lists the devices of each query; nil: all.
func (a *asked) about() (only [][]int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range a.queries {
		only = append(only, q.Only)
	}
	return only
}

// real is a machine whose driver is asked, and another user of the same leases, who is not counted.
func real(t *testing.T) (host, other *machine.Host, driver *asked) {
	t.Helper()
	state := []string{"GPUARD_STATE=" + filepath.Join(t.TempDir(), "state")}
	of := func(driver *asked) *machine.Host {
		return &machine.Host{Env: state, Proc: proc.New("/proc"), Run: t.TempDir(), Tmp: t.TempDir(), PrivateState: true,
			Messages: machine.Messages{Say: func(text string) { t.Log(text) }}, Readers: machine.Readers{Reader: driver.read}, Times: machine.Times{Slow: time.Millisecond}}
	}
	driver = &asked{}
	return of(driver), of(&asked{}), driver
}

func idsOf(t *testing.T) (ids []gpu.UUID) {
	t.Helper()
	for _, d := range hosts.Invented(t, "demo:4xL4").Devices {
		ids = append(ids, d.UUID)
	}
	return ids
}

// TestNamedDevicesAreReadAlone: of the other devices a claim needs to know no more than which they are, unless the answer is no.
func TestNamedDevicesAreReadAlone(t *testing.T) {
	t.Parallel()
	host, other, driver := real(t)
	ids := idsOf(t)
	d, _ := lend(t, host, job.Spec{Devices: []string{"2", " 1"}})
	if want := []gpu.UUID{ids[2], ids[1]}; !slices.Equal(d.Plan.UUIDs(), want) {
		t.Errorf("given %v, want %v", d.Plan.UUIDs(), want)
	}
	_, err := Claim(t.Context(), host, job.Spec{Devices: []string{"1"}, Waiting: job.Waiting{No: true}}, Subject{PID: os.Getpid(), Command: "sleep"})
	var refusal *job.Refusal
	if !errors.As(err, &refusal) || refusal.Never {
		t.Errorf("a device that is leased: %v", err)
	}
	lend(t, other, job.Spec{Devices: []string{"0"}})
	lend(t, host, job.Spec{Devices: []string{string(ids[3])}})
	if got, want := driver.about(), [][]int{{2, 1}, {1}, nil, nil}; !reflect.DeepEqual(got, want) {
		t.Errorf("the driver was asked about %v, want %v", got, want)
	}
}

// TestWaitingReadsNoLeasedDevice: while another's lease is in the way of a request that waits, no reading of the device can
// change that. It is read again when the lease has ended, and what is given rests on that.
func TestWaitingReadsNoLeasedDevice(t *testing.T) {
	t.Parallel()
	host, other, driver := real(t)
	lend(t, other, job.Spec{GPUs: 3, Devices: []string{"0", "1", "3"}})
	_, give := lend(t, other, job.Spec{Devices: []string{"2"}})
	enough := make(chan struct{})
	driver.during = func(nth int) {
		if nth == 6 {
			close(enough)
		}
	}
	go func() {
		<-enough
		give()
	}()
	d, err := Claim(t.Context(), host, job.Spec{GPUs: 1}, Subject{PID: os.Getpid(), Command: "sleep"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Unwatch()
	defer (&claimer{folder: d.Folder, boot: d.Held.Lease.Boot}).free(d)
	if want := idsOf(t)[2]; d.Held.Lease.Devices[0] != want {
		t.Errorf("given %v, want %v", d.Held.Lease.Devices, want)
	}
	about := driver.about()
	last := len(about) - 1
	for i, only := range about {
		switch {
		case i == 0 && only == nil:
		case i > 0 && i < 6 && only != nil && len(only) == 0:
		case i == last && reflect.DeepEqual(only, []int{2}):
		case i >= 6 && i < last && len(only) <= 1 && only != nil: // while the lease ends
		default:
			t.Errorf("reading %d was about %v: %v", i, only, about)
		}
	}
	for _, device := range d.Machine.Devices {
		if device.MemoryTotal == nil || device.MemoryUsed == nil {
			t.Errorf("what was known of GPU %d is lost: %+v", device.Index, device)
		}
	}
}

// TestStaleReadingIsReadAgain: where leases have changed during a reading, only their devices are read again.
func TestStaleReadingIsReadAgain(t *testing.T) {
	t.Parallel()
	host, other, driver := real(t)
	driver.during = func(nth int) {
		if nth == 1 {
			_, give := lend(t, other, job.Spec{Devices: []string{"2"}})
			give()
		}
	}
	d, _ := lend(t, host, before(idsOf(t)[2]))
	if want := idsOf(t)[2]; d.Held.Lease.Devices[0] != want {
		t.Errorf("given %v, want %v", d.Held.Lease.Devices, want)
	}
	if got, want := driver.about(), [][]int{nil, {2}}; !reflect.DeepEqual(got, want) {
		t.Errorf("the driver was asked about %v, want %v", got, want)
	}
}

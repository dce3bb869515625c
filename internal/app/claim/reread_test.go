package claim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/host/proc"
	"gpuard/internal/host/store"
	"gpuard/test/hosts"
)

// recordingDriver are the queries that reach the driver of a machine with four L4.
type recordingDriver struct {
	queries []gpu.Query
	last    time.Time     // of the queries
	during  func(nth int) // a reading; nil: nothing happens
}

func (a *recordingDriver) readDevices(_ context.Context, query gpu.Query) (gpu.Machine, error) {
	whole, err := gpu.InventMachine("demo:4xL4")
	m := gpu.Machine{Taken: time.Now()}
	for _, d := range whole.Devices {
		d.Persistence = new(true) // else it is asked for where a reading is slow
		switch {
		case query.Wants(&d):
			m.Devices = append(m.Devices, d)
		default:
			m.Devices = append(m.Devices, gpu.Device{Index: d.Index, UUID: d.UUID, Name: d.Name, Vendor: d.Vendor, PCI: d.PCI})
		}
	}
	a.queries, a.last = append(a.queries, query), time.Now()
	nth := len(a.queries)
	if a.during != nil {
		a.during(nth)
	}
	return m, err
}

// askedDevices lists the devices of each query; nil: all.
func (a *recordingDriver) askedDevices() (only [][]int) {
	for _, q := range a.queries {
		only = append(only, q.Only)
	}
	return only
}

// hardwareHost is a machine whose driver is asked, and another user of the same leases, who is not counted.
func hardwareHost(t *testing.T) (host, other *machine.Host, driver *recordingDriver) {
	t.Helper()
	state := []string{"GPUARD_STATE=" + filepath.Join(t.TempDir(), "state")}
	of := func(driver *recordingDriver) *machine.Host {
		return &machine.Host{Env: state, Proc: proc.New("/proc"), Run: t.TempDir(), Tmp: t.TempDir(), PrivateState: true,
			Messages: machine.Messages{Say: func(text string) { t.Log(text) }}, Readers: machine.Readers{Reader: driver.readDevices}, Times: machine.Times{Slow: time.Millisecond}}
	}
	driver = &recordingDriver{}
	return of(driver), of(&recordingDriver{}), driver
}

func demoUUIDs(t *testing.T) (ids []gpu.UUID) {
	t.Helper()
	for _, d := range hosts.InventMachine(t, "demo:4xL4").Devices {
		ids = append(ids, d.UUID)
	}
	return ids
}

// TestNamedDevicesAreReadAlone: of the other devices a claim needs to know no more than which they are, unless the answer is no.
func TestNamedDevicesAreReadAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, checkNamedReadAlone)
}

func checkNamedReadAlone(t *testing.T) {
	host, other, driver := hardwareHost(t)
	ids := demoUUIDs(t)
	d, _ := leaseUntilEnd(t, host, job.Spec{Devices: []string{"2", " 1"}})
	if want := []gpu.UUID{ids[2], ids[1]}; !slices.Equal(d.Plan.UUIDs(), want) {
		t.Errorf("given %v, want %v", d.Plan.UUIDs(), want)
	}
	_, err := Claim(t.Context(), host, job.Spec{Devices: []string{"1"}, Waiting: job.Waiting{No: true}}, Subject{PID: os.Getpid(), Command: "sleep"})
	var refusal *job.Refusal
	if !errors.As(err, &refusal) || refusal.Never {
		t.Errorf("a device that is leased: %v", err)
	}
	leaseUntilEnd(t, other, job.Spec{Devices: []string{"0"}})
	leaseUntilEnd(t, host, job.Spec{Devices: []string{string(ids[3])}})
	if got, want := driver.askedDevices(), [][]int{{2, 1}, {1}, nil, nil}; !reflect.DeepEqual(got, want) {
		t.Errorf("the driver was asked about %v, want %v", got, want)
	}
}

// TestFirstQuery: as little as the numbers in variables, masks and slices allow.
func TestFirstQuery(t *testing.T) {
	what := WhatToRead(job.Spec{GPUs: 1})
	for name, test := range map[string]struct {
		spec    job.Spec
		running bool
		want    gpu.Query
	}{
		"any":                 {spec: job.Spec{GPUs: 1}},
		"one":                 {spec: job.Spec{Devices: []string{"0"}}, want: gpu.Query{Only: []int{0}}},
		"two":                 {spec: job.Spec{Devices: []string{"2", "0"}}, want: gpu.Query{Only: []int{2, 0}}},
		"a UUID":              {spec: job.Spec{Devices: []string{"0", "GPU-a"}}},
		"a vendor":            {spec: job.Spec{Devices: []string{"nvidia:0"}}},
		"a slice":             {spec: job.Spec{Devices: []string{"0"}, MIG: "1g.10gb"}},
		"a move":              {spec: job.Spec{Devices: []string{"0"}, Moving: "k3f9"}},
		"kept":                {spec: job.Spec{Devices: []string{"0"}, KeepWhile: "/f"}},
		"for what runs there": {spec: job.Spec{Devices: []string{"0"}}, running: true},
	} {
		test.want.What = what
		if got := firstQuery(&machine.Host{}, test.spec, Subject{Running: test.running}); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
	if got := firstQuery(&machine.Host{Machine: "demo"}, job.Spec{Devices: []string{"0"}}, Subject{}); got.Only != nil {
		t.Errorf("an invented machine: %+v", got)
	}
}

// TestWaitingReadsNoLeasedDevice: while another's lease is in the way of a request that waits, no reading of the device can
// change that. It is read again when the lease has ended, and what is given rests on that.
func TestWaitingReadsNoLeasedDevice(t *testing.T) {
	t.Parallel()
	host, other, driver := hardwareHost(t)
	leaseUntilEnd(t, other, job.Spec{GPUs: 3, Devices: []string{"0", "1", "3"}})
	_, give := leaseUntilEnd(t, other, job.Spec{Devices: []string{"2"}})
	began := time.Now()
	driver.during = func(nth int) {
		if nth == 6 {
			give()
		}
	}
	d, err := Claim(t.Context(), host, job.Spec{GPUs: 1}, Subject{PID: os.Getpid(), Command: "sleep"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Unwatch()
	defer (&claimer{folder: d.Folder, boot: d.Held.Lease.Boot}).releaseDecision(d)
	if want := demoUUIDs(t)[2]; d.Held.Lease.Devices[0] != want {
		t.Errorf("given %v, want %v", d.Held.Lease.Devices, want)
	}
	if driver.last.Sub(began) > longestKept {
		t.Log("this machine is so busy that the devices had to be read again")
		return
	}
	got := driver.askedDevices()
	for n := len(got); n > 7 && reflect.DeepEqual(got[n-1], got[n-2]); n = len(got) { // a second has passed before the lease was written
		got = got[:n-1]
	}
	if want := [][]int{nil, {}, {}, {}, {}, {}, {2}}; !reflect.DeepEqual(got, want) {
		t.Errorf("the driver was asked about %v, want %v", got, want)
	}
	if q := driver.queries[6]; q.Known {
		t.Errorf("a device is given on %+v: numbers rest on the identity of all", q)
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
	synctest.Test(t, checkStaleReread)
}

func checkStaleReread(t *testing.T) {
	host, other, driver := hardwareHost(t)
	driver.during = func(nth int) {
		if nth == 1 {
			_, give := leaseUntilEnd(t, other, job.Spec{Devices: []string{"2"}})
			give()
		}
	}
	d, _ := leaseUntilEnd(t, host, preferringSpec(demoUUIDs(t)[2]))
	if want := demoUUIDs(t)[2]; d.Held.Lease.Devices[0] != want {
		t.Errorf("given %v, want %v", d.Held.Lease.Devices, want)
	}
	if got, want := driver.askedDevices(), [][]int{nil, {2}}; !reflect.DeepEqual(got, want) {
		t.Errorf("the driver was asked about %v, want %v", got, want)
	}
}

// TestNothingIsGivenOnAnOldReading: not even where no change of a lease was recorded, which any user can bring about.
func TestNothingIsGivenOnAnOldReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, checkStaleReading)
}

func checkStaleReading(t *testing.T) {
	host, _, _ := hardwareHost(t)
	ids := demoUUIDs(t)
	plan := func(id gpu.UUID) job.Plan { return job.Plan{Devices: []job.Given{{UUID: id}}} }
	now := time.Now()
	time.Sleep(time.Nanosecond)
	q := &request{host: host, machine: hosts.InventMachine(t, "demo:4xL4"), since: 7, readAt: now, older: map[gpu.UUID]readMoment{ids[0]: {5, now.Add(-machine.MaxReadingAge)}, ids[1]: {5, now}}}
	for id, want := range map[gpu.UUID]bool{ids[0]: true, ids[1]: false, ids[2]: false} {
		if got := q.isStale(store.View{}, plan(id), nil); got != want {
			t.Errorf("%s: stale %v, want %v", id, got, want)
		}
	}
	changes := map[gpu.UUID]store.Change{ids[1]: {Generation: 6}, ids[2]: {Generation: 6}}
	for id, want := range map[gpu.UUID]bool{ids[1]: true, ids[2]: false} { // the first one's reading is older than the change
		if got := q.isStale(store.View{Changes: changes}, plan(id), nil); got != want {
			t.Errorf("%s changed: stale %v, want %v", id, got, want)
		}
	}
}

// TestWhatIsReadAgain: a device keeps its reading only where nothing new can be read of it, or nothing that helps.
func TestWhatIsReadAgain(t *testing.T) {
	t.Parallel()
	id := gpu.UUID("GPU-a")
	lease := job.Lease{ID: "k3f9", UID: uint32(os.Geteuid()), Devices: []gpu.UUID{id}}
	for name, test := range map[string]struct {
		change func(q *request, d *gpu.Device, s *store.UnlockedView)
		why    rereadCause
		keeps  bool
	}{
		"leased by another":          {keeps: true},
		"read too long ago":          {change: func(q *request, _ *gpu.Device, _ *store.UnlockedView) { q.readAt = time.Now().Add(-longestKept) }},
		"the lease has ended":        {change: func(_ *request, _ *gpu.Device, s *store.UnlockedView) { s.Leased = nil }},
		"another lease by now":       {change: func(_ *request, _ *gpu.Device, s *store.UnlockedView) { s.Changes[id] = store.Change{Generation: 9} }},
		"a share":                    {change: func(q *request, _ *gpu.Device, _ *store.UnlockedView) { q.view.Held[0].Share = 1 }},
		"a part of a lease":          {change: func(q *request, _ *gpu.Device, _ *store.UnlockedView) { q.view.Held[0].Parent = "x" }},
		"another scheduler's":        {change: func(q *request, _ *gpu.Device, _ *store.UnlockedView) { q.view.Held[0].Allocation = "slurm:1" }},
		"what is left of a lease":    {change: func(q *request, _ *gpu.Device, _ *store.UnlockedView) { q.view.Held[0].Ended = true }},
		"a share is asked for":       {change: func(q *request, _ *gpu.Device, _ *store.UnlockedView) { q.spec.Share = 1 }},
		"a move":                     {change: func(q *request, _ *gpu.Device, _ *store.UnlockedView) { q.spec.Moving = "k3f9" }},
		"inside that lease":          {change: func(q *request, _ *gpu.Device, _ *store.UnlockedView) { q.env = []string{"GPUARD_LEASE=k3f9"} }},
		"for a process on it":        {change: func(q *request, _ *gpu.Device, _ *store.UnlockedView) { q.subject.Running = true }},
		"a sick device":              {change: func(_ *request, d *gpu.Device, _ *store.UnlockedView) { d.Problem = "no answer" }},
		"processes that are unknown": {change: func(_ *request, d *gpu.Device, _ *store.UnlockedView) { d.Unlisted = "cannot list" }},
		"slices may come":            {change: func(_ *request, d *gpu.Device, _ *store.UnlockedView) { d.MIGMode = new(true) }},
		"no lease, just read":        {change: func(q *request, _ *gpu.Device, _ *store.UnlockedView) { q.view.Held = nil }, why: readingTooOld, keeps: true},
		"no lease, use may differ":   {change: func(q *request, _ *gpu.Device, _ *store.UnlockedView) { q.view.Held = nil }},
		"changed since": {change: func(q *request, _ *gpu.Device, s *store.UnlockedView) {
			q.view.Held, s.Changes[id] = nil, store.Change{Generation: 8}
		}, why: readingTooOld},
		"read a while ago": {change: func(q *request, _ *gpu.Device, _ *store.UnlockedView) {
			q.view.Held, q.readAt = nil, time.Now().Add(-machine.MaxReadingAge)
		}, why: readingTooOld},
	} {
		q := &request{host: &machine.Host{Proc: proc.New("/proc")}, since: 7, readAt: time.Now().Add(time.Hour), // however slow this test is
			view: store.View{Held: []job.Lease{lease}, Changes: map[gpu.UUID]store.Change{id: {Generation: 3}}}}
		d := &gpu.Device{UUID: id, Vendor: gpu.NVIDIA}
		sight := store.UnlockedView{Leased: map[string]bool{job.DeviceHash(id): true}, Changes: map[gpu.UUID]store.Change{id: {Generation: 3}}}
		if test.change != nil {
			test.change(q, d, &sight)
		}
		if got := q.keepsReading(d, sight, test.why); got != test.keeps {
			t.Errorf("%s: keeps its reading %v, want %v", name, got, test.keeps)
		}
	}
}

// TestKeptReadingsStayOld: what a device keeps does not become younger by readings of others.
func TestKeptReadingsStayOld(t *testing.T) {
	t.Parallel()
	ids, m := demoUUIDs(t), hosts.InventMachine(t, "demo:4xL4")
	old, first, second := time.Unix(1, 0), time.Unix(2, 0), time.Unix(3, 0)
	q := &request{since: 1, readAt: old}
	q.acceptReading(m, gpu.Query{Only: []int{0, 1}}, readMoment{2, first})
	q.acceptReading(m, gpu.Query{Only: []int{1, 2}}, readMoment{3, second})
	var got []readMoment
	for _, id := range ids {
		got = append(got, q.lastReading(id))
	}
	if want := []readMoment{{2, first}, {3, second}, {3, second}, {1, old}}; !reflect.DeepEqual(got, want) {
		t.Errorf("read at %v, want %v", got, want)
	}
	if q.acceptReading(m, gpu.Query{}, readMoment{4, second}); q.lastReading(ids[3]).since != 4 {
		t.Error("a reading of all leaves one old")
	}
}

// TestTurnRestsOnAll: where others wait, it is not enough to know the device that is named.
func TestTurnRestsOnAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, checkTurnReadsAll)
}

func checkTurnReadsAll(t *testing.T) {
	host, other, driver := hardwareHost(t)
	ids := demoUUIDs(t)
	first, _ := leaseUntilEnd(t, other, job.Spec{Devices: []string{"0"}})
	ticket, err := first.Folder.QueueTicket(job.Ticket{UID: uint32(os.Geteuid()), PID: os.Getpid(), Devices: ids[:1], Known: ids, Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer ticket.Withdraw() //nolint:errcheck // the folder goes, too
	d, _ := leaseUntilEnd(t, host, job.Spec{Devices: []string{"2"}})
	if got, want := driver.askedDevices(), [][]int{{2}, nil}; !reflect.DeepEqual(got, want) || d.Plan.UUIDs()[0] != ids[2] {
		t.Errorf("the driver was asked about %v, want %v; given %v", got, want, d.Plan.UUIDs())
	}
}

// TestNextQuery: what is read again after a refusal because all devices are leased.
func TestNextQuery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, checkNextQuery)
}

func checkNextQuery(t *testing.T) {
	host, other, _ := hardwareHost(t)
	_, give := leaseUntilEnd(t, other, job.Spec{GPUs: 4})
	whole, none := gpu.Query{}, gpu.Query{Only: []int{}, Known: true}
	for name, test := range map[string]struct {
		change func(c *claimer)
		want   gpu.Query
	}{
		"nothing":                       {want: none},
		"the last chance":               {change: func(c *claimer) { c.request.final = true }, want: whole},
		"the record of changes is lost": {change: func(c *claimer) { c.request.view.Unknown = true }, want: whole},
		"only some are known":           {change: func(c *claimer) { c.request.narrow = true }, want: whole},
		"nvidia-smi reads all":          {change: func(c *claimer) { c.request.machine.Source = "nvidia-smi" }, want: whole},
		"links are not known":           {change: func(c *claimer) { c.request.spec.GPUs = 2 }, want: gpu.Query{What: gpu.Links}},
		"links are known": {change: func(c *claimer) {
			c.request.spec.GPUs = 2
			for i := range c.request.machine.Devices {
				c.request.machine.Devices[i].Links = []gpu.Link{}
			}
		}, want: none},
		"one is sick":      {change: func(c *claimer) { c.request.machine.Devices[1].Problem = "lost" }, want: gpu.Query{Only: []int{1}}},
		"read long ago":    {change: func(c *claimer) { c.request.readAt = time.Now().Add(-longestKept - 1) }, want: whole},
		"others see a new": {change: func(c *claimer) { c.request.absent = []gpu.UUID{"GPU-x"} }, want: gpu.Query{What: gpu.RecountDevices}},
	} {
		spec := job.Spec{GPUs: 1, Waiting: job.Waiting{No: true}}
		q, folder, boot, err := newRequest(t.Context(), host, spec, Subject{PID: os.Getpid()}, gpu.Query{What: WhatToRead(spec)})
		if err != nil {
			t.Fatal(err)
		}
		c := &claimer{host: host, request: q, folder: folder, boot: boot}
		if _, err := claimLocked(host, q, folder, boot, nil); err == nil {
			t.Fatal("a leased device was given")
		}
		for i := range q.machine.Devices {
			q.machine.Devices[i].Links = nil
		}
		if test.change != nil {
			test.change(c)
		}
		test.want.What |= WhatToRead(spec)
		if got := c.nextQuery(mayHaveChanged); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
	give()
}

// TestLastChanceIsOfOneAttempt: what is asked for instead (--fallback) rests on readings that are as new as any.
func TestLastChanceIsOfOneAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, checkLastChanceOnce)
}

func checkLastChanceOnce(t *testing.T) {
	host, _, driver := hardwareHost(t)
	spec := job.Spec{GPUs: 1, Waiting: job.Waiting{No: true}}
	q, folder, boot, err := newRequest(t.Context(), host, spec, Subject{PID: os.Getpid()}, gpu.Query{What: WhatToRead(spec)})
	if err != nil {
		t.Fatal(err)
	}
	q.final, q.readAt = true, time.Now().Add(-machine.MaxReadingAge-1)
	c := &claimer{host: host, request: q, folder: folder, boot: boot}
	d, err := c.claimNow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.releaseDecision(d)
	if n := len(driver.queries); n != 2 {
		t.Errorf("%d readings, and the first one was too old", n)
	}
}

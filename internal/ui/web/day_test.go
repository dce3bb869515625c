package web

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/app/observe"
	"gpuard/internal/core/trend"
)

// What a day of updates may cost.
const (
	dayOfUpdates  = 24 * 60 * 60 // one each second
	mostCore      = 0.01         // of a core, for what is done while somebody looks
	mostCorePages = 0.10         // with 200 pages
	mostMemory    = 60 << 20     // bytes
	mostGrowth    = 4 << 20      // bytes, from the first tenth to the end
)

// moving is a machine that lives through a day, a second at each update: loads change, jobs begin and end.
type moving struct {
	*inventedMachine
	now  time.Time
	day  *trend.Day
	uses trend.Uses
	seen atomic.Pointer[observe.Snapshot]
}

func movingMachine(t testing.TB) *moving {
	m := &moving{inventedMachine: workdayMachine(t), now: inventedNow, day: trend.NewDay(time.Minute)}
	m.day.Restore(m.minutes) // a whole day is kept from the begin, so what grows grows for another reason
	m.step(0)
	return m
}

// step is one second later.
func (m *moving) step(n int) {
	m.now = inventedNow.Add(time.Duration(n) * time.Second)
	m.machine.Taken = m.now
	for i := range m.machine.Devices {
		d := &m.machine.Devices[i]
		d.Utilization, d.Temperature, d.Power = new(float64((7*n+13*i)%100)/100), new(40+(n+i)%40), new(float64(80+(11*n+i)%300))
	}
	if n%2100 == 0 && n > 0 { // 41 jobs in a day, each on GPU 4 after the last
		for i := range m.leases {
			if m.leases[i].Devices[0] == m.machine.Devices[4].UUID {
				m.leases = append(m.leases[:i], m.leases[i+1:]...)
				break
			}
		}
		l := m.addLease(labUsers()[n/2100%6], "train.py", 0, 30, 0.7, 0, 4)
		l.ID, l.Since = "d"+strconv.Itoa(n), m.now
		m.open = nil
	}
	report := m.reportAt(m.now)
	before := m.seen.Load()
	next := observe.Snapshot{Report: report, At: m.now, Width: time.Minute, Minutes: m.day.Minutes()}
	if before != nil {
		next.Minutes = before.Minutes
	}
	over, ended := m.day.Add(&report), m.uses.Add(&report)
	if over != nil {
		next.Minutes = m.day.Minutes()
	}
	next.Uses, next.Over = m.uses.OpenLeases(), ended
	m.seen.Store(&next)
}

// dayCost is what updates have cost.
type dayCost struct {
	processor      time.Duration
	memory, growth int64 // of the heap after a collection, and since the first tenth
	resident       int64
	sent           int64 // bytes
}

// spend sends updates to pages that are open over HTTP and read all of it, each as soon as all pages have the one before, and says what that
// cost this process, which the pages are of, too.
func spend(t *testing.T, updates, open int) (c dayCost) {
	t.Helper()
	m := movingMachine(t)
	site := m.makeSite(t, secretToken)
	site.watch = func() observe.Snapshot { return *m.seen.Load() }
	site.live.pages.now = func() time.Time { return m.seen.Load().At }
	server := httptest.NewServer(site.Handler())
	t.Cleanup(server.CloseClientConnections)
	var got sync.WaitGroup
	var bytesSent atomic.Int64
	got.Add(open) // the first message is the whole page
	for i := range open {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept-Language", []string{"en", "zh"}[i%2])
		response, err := server.Client().Do(request)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("page %d: %v", i, err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		go func() {
			lines := bufio.NewReaderSize(response.Body, 16<<10)
			for begun := true; ; {
				text, err := lines.ReadSlice('\n')
				if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
					return
				}
				bytesSent.Add(int64(len(text)))
				if begun && bytes.HasPrefix(text, []byte("data: ")) {
					begun = false
				}
				if !begun && err == nil { // the end of a message
					got.Done()
					begun = true
				}
			}
		}()
	}
	got.Wait()
	sent, first := sent{}, int64(0)
	before := used()
	for n := 1; n <= updates; n++ {
		m.step(n)
		got.Add(open)
		if err := site.update(t.Context(), sent); err != nil {
			t.Fatal(err)
		}
		got.Wait()
		if n == updates/10 {
			first = heap()
		}
	}
	c.processor, c.memory, c.resident, c.sent = used()-before, heap(), resident(), bytesSent.Load()
	c.growth = c.memory - first
	return c
}

// used is the processor time of this process.
func used() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // small
}

func resident() int64 {
	text, _ := os.ReadFile("/proc/self/statm")
	fields := append(strings.Fields(string(text)), "0", "0")
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// TestDayOfUpdates: updates of a day cost less than 1 % of a core, and memory that does not grow. Usually it is 20 minutes for one page; with
// GPUARD_SOAK=1, which make day sets, a day for one page, and an hour for 200.
func TestDayOfUpdates(t *testing.T) {
	type run struct {
		updates, pages int
		core           float64
	}
	runs := []run{{20 * 60, 1, mostCore}}
	if os.Getenv("GPUARD_SOAK") == "1" {
		runs = []run{{dayOfUpdates, 1, mostCore}, {60 * 60, 200, mostCorePages}}
	}
	for _, r := range runs {
		began := time.Now()
		c := spend(t, r.updates, r.pages)
		core := c.processor.Seconds() / float64(r.updates)
		t.Logf("%d updates for %d pages: %.2f %% of a core at one a second (%.1f s of processor time), heap %.1f MiB, %.1f MiB more than at the first tenth, resident %d MiB, %d MiB sent; it took %v",
			r.updates, r.pages, 100*core, c.processor.Seconds(), float64(c.memory)/(1<<20), float64(c.growth)/(1<<20), c.resident>>20, c.sent>>20, time.Since(began).Round(time.Second))
		if core > r.core && !raceEnabled {
			t.Errorf("%d pages: %.2f %% of a core", r.pages, 100*core)
		}
		// 200 pages that read are in this process, too, and the race detector keeps a shadow of all memory.
		if c.memory > mostMemory || c.resident > mostMemory && r.pages == 1 && !raceEnabled {
			t.Errorf("%d pages: %d MiB, resident %d MiB", r.pages, c.memory>>20, c.resident>>20)
		}
		if c.growth > mostGrowth {
			t.Errorf("%d pages: %d KiB more than at the first tenth", r.pages, c.growth>>10)
		}
	}
}

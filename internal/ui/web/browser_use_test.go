//go:build browser

package web

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"gpuard/internal/app/observe"
	"gpuard/internal/gate"
)

// siteToken is the token of the invented sites.
const siteToken = secretToken

// browserVisit is a page that is open in a browser.
type browserVisit struct {
	t    *testing.T
	ctx  context.Context
	site *Site
	base string

	mu   sync.Mutex
	done []string // what was asked for
}

func newBrowserVisit(t *testing.T, s *inventedMachine, width int64) *browserVisit {
	t.Helper()
	gate.Need(t, "chromium")
	v := &browserVisit{t: t, ctx: openBrowser(t, "en"), site: s.makeSite(t, siteToken)}
	v.site.Actions = nil
	for _, name := range []string{"cancel", "release", "drain", "undrain", "evict"} {
		v.site.Actions = append(v.site.Actions, observe.Action{Name: name, Do: func(_ context.Context, words []string) error {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.done = append(v.done, name+" "+strings.Join(words, " "))
			return nil
		}})
	}
	server := httptest.NewServer(v.site.Handler())
	t.Cleanup(server.CloseClientConnections)
	v.base = server.URL
	v.runActions(setColorScheme(false), chromedp.EmulateViewport(width, 900), chromedp.Navigate(v.base))
	v.waitUntil("the page is kept current", func() bool { return len(v.site.live.openSights()) == 1 })
	return v
}

func (v *browserVisit) runActions(steps ...chromedp.Action[chromedp.Void]) {
	v.t.Helper()
	if err := chromedp.Do(v.ctx, steps...); err != nil {
		v.t.Fatal(err)
	}
}

// evalText is the value of an expression on the page, as text.
func (v *browserVisit) evalText(script string) string {
	v.t.Helper()
	value, err := chromedp.Run(v.ctx, chromedp.Evaluate[any](script))
	if err != nil {
		v.t.Fatalf("%s: %v", script, err)
	}
	return fmt.Sprint(value)
}

func (v *browserVisit) waitUntil(what string, f func() bool) {
	v.t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			v.t.Fatal("still not so after a minute: " + what)
		}
	}
}

// savePicture keeps how the page looks now, where GPUARD_PICTURES names a folder.
func (v *browserVisit) savePicture(name string) {
	v.t.Helper()
	if dir := os.Getenv("GPUARD_PICTURES"); dir != "" {
		saveScreenshot(v.ctx, v.t, filepath.Join(dir, name+".png"))
	}
}

// tabTo presses Tab until the expression is true of the element e that has the focus.
func (v *browserVisit) tabTo(what, is string) {
	v.t.Helper()
	for range 120 {
		v.runActions(chromedp.KeyEvent(kb.Tab))
		if v.evalText(`(e => !!(`+is+`))(document.activeElement)`) == "true" {
			return
		}
	}
	v.t.Fatal("Tab does not lead to " + what)
}

// TestKeyboard does everything by keyboard: details, what a band is made of, an action with its token and its undo.
func TestKeyboard(t *testing.T) {
	v := newBrowserVisit(t, workdayMachine(t), 1280)
	v.tabTo("GPU 5", `e.textContent === 'GPU 5'`)
	v.runActions(chromedp.KeyEvent(kb.Enter))
	v.waitUntil("its details are open, and have the focus", func() bool { return v.evalText(`document.activeElement.id`) == "detail-title" })
	if got := v.evalText(`location.search.startsWith('?gpu=GPU-') + document.querySelector('#detail h3').textContent`); !strings.HasPrefix(got, "trueGPU 5") {
		t.Error(got)
	}
	v.tabTo("drain", `e.dataset.action === 'drain'`)
	v.runActions(chromedp.KeyEvent(kb.Enter))
	v.waitUntil("it asks", func() bool { return v.evalText(`document.querySelector('dialog').open`) == "true" })
	if got := v.evalText(`document.getElementById('ask-text').textContent + document.activeElement.name`); got != "Take GPU 5 out of use? What runs there goes on, and no new job gets it.token" {
		t.Error(got)
	}
	v.runActions(chromedp.SendKeys(chromedp.CSS("dialog input"), siteToken+kb.Enter))
	v.waitUntil("the answer is at its row", func() bool {
		return strings.Contains(v.evalText(`document.querySelector('#detail .answer')?.textContent`), "Done. Undo")
	})
	v.savePicture("answer")
	v.tabTo("undo", `e.textContent === 'Undo'`)
	v.runActions(chromedp.KeyEvent(kb.Enter))
	v.waitUntil("it is undone", func() bool { v.mu.Lock(); defer v.mu.Unlock(); return len(v.done) == 2 })
	v.runActions(chromedp.KeyEvent(kb.Escape))
	v.waitUntil("the details are closed, and the focus is back", func() bool {
		return v.evalText(`document.getElementById('detail').hidden + document.activeElement.textContent + location.search`) == "trueGPU 5"
	})
	v.runActions(chromedp.KeyEvent(kb.Tab))
	v.runActions(chromedp.KeyEvent(kb.ArrowLeft))
	if got := v.evalText(`document.getElementById('tip').textContent`); !strings.Contains(got, "alice · bert-large") || !strings.Contains(got, "04:00 – now") || v.evalText(`document.getElementById('tip').hidden`) != "false" {
		t.Errorf("the tip says %q", got)
	}
	v.savePicture("tip")
	v.runActions(chromedp.KeyEvent(kb.Home))
	if got := v.evalText(`document.getElementById('tip').textContent`); !strings.Contains(got, "frank · pretrain") {
		t.Errorf("the tip says %q", got)
	}
	v.tabTo("the end of the own job", `e.dataset.action === 'cancel'`)
	v.runActions(chromedp.KeyEvent(kb.Enter))
	v.savePicture("dialog")
	v.waitUntil("it asks without a token", func() bool {
		return v.evalText(`document.getElementById('ask-text').textContent + document.getElementById('ask-key').hidden`) == "End job 8, bert-large of alice, running for 5 h 12 min?true"
	})
	v.runActions(chromedp.KeyEvent(kb.Escape))
	v.runActions(chromedp.KeyEvent(kb.Enter))
	v.waitUntil("it asks again", func() bool { return v.evalText(`document.querySelector('dialog').open`) == "true" })
	v.tabTo("yes", `e.value === 'yes'`)
	v.runActions(chromedp.KeyEvent(kb.Enter))
	v.waitUntil("it is ended", func() bool { v.mu.Lock(); defer v.mu.Unlock(); return len(v.done) == 3 })
	v.mu.Lock()
	defer v.mu.Unlock()
	id := v.site.lastSeen().Report.Devices[5].UUID
	if want := fmt.Sprintf("drain %s, undrain %[1]s, cancel 8", id); strings.Join(v.done, ", ") != want {
		t.Errorf("%q, want %q", v.done, want)
	}
}

// TestUpdates: what is sent later changes figures and nothing else: a selection, the focus, what was opened and the place in the
// page stay, and nothing moves.
func TestUpdates(t *testing.T) {
	s := crowdedMachine(t)
	v := newBrowserVisit(t, s, 1280)
	v.evalText(`document.querySelector('#queue details[data-keep]').open = true; document.querySelectorAll('button.copy')[2].focus(); scrollTo(0, 300)`)
	v.evalText(`(() => { const n = document.querySelector('#nvidia-3 .now'); window.kept = n; const r = document.createRange(); r.selectNodeContents(n.querySelector('b')); getSelection().removeAllRanges(); getSelection().addRange(r) })()`)
	place := v.evalText(`scrollY + document.activeElement.dataset.copy`)
	v.evalText(`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => { // what was opened here has moved what is below
		new PerformanceObserver(l => { for (const e of l.getEntries()) window.moved += e.value }).observe({ type: 'layout-shift', buffered: false }); window.moved = 0; done() })))`)
	for round := range 5 {
		load := 0.11 + 0.01*float64(round)
		for i := range s.machine.Devices {
			s.machine.Devices[i].Utilization = &load
			s.machine.Devices[i].Temperature = new(50 + round)
		}
		report := s.makeReport()
		before := v.site.watch()
		before.Report = report
		v.site.watch = func() observe.Snapshot { return before }
		parts, err := v.site.renderSections(t.Context(), pageView{language: "en", days: 1})
		if err != nil {
			t.Fatal(err)
		}
		v.site.live.sendParts(pageView{language: "en", days: 1}, parts)
		v.waitUntil("the load is shown", func() bool {
			return strings.Contains(v.evalText(`document.querySelector('#nvidia-3 .figures').textContent`), fmt.Sprintf("%.0f %%", 100*load))
		})
	}
	if got := v.evalText(`getSelection() + ' ' + (window.kept === document.querySelector('#nvidia-3 .now')) + document.querySelector('#queue details[data-keep]').open`); got != "dave truetrue" {
		t.Errorf("the selection, the node and what was opened: %s", got)
	}
	if got := v.evalText(`scrollY + document.activeElement.dataset.copy`); got != place {
		t.Errorf("the place and the focus were %s and are %s", place, got)
	}
	if got := v.evalText(`window.moved`); got != "0" {
		t.Errorf("the layout has moved by %s", got)
	}
	// A lease that ends and a device that goes away leave, and come back in their order.
	whole := v.site.watch()
	fewer := whole
	fewer.Report.Devices = append(fewer.Report.Devices[:2:2], fewer.Report.Devices[4:]...)
	for _, seen := range []observe.Snapshot{fewer, whole} {
		v.site.watch = func() observe.Snapshot { return seen }
		parts, err := v.site.renderSections(t.Context(), pageView{language: "en", days: 1})
		if err != nil {
			t.Fatal(err)
		}
		v.site.live.sendParts(pageView{language: "en", days: 1}, parts)
		var want []string
		for i := range seen.Report.Devices {
			want = append(want, fmt.Sprintf("nvidia-%d", seen.Report.Devices[i].Index))
		}
		v.waitUntil("the rows are "+strings.Join(want, " "), func() bool {
			return v.evalText(`[...document.querySelectorAll('.gpu[data-uuid]')].filter(e => e.querySelector('svg.band')).map(e => e.id).join(' ')`) == strings.Join(want, " ")
		})
	}
}

// TestTouch: a finger on a band shows what it is, and a page of a phone has room for it.
func TestTouch(t *testing.T) {
	v := newBrowserVisit(t, troubledMachine(t), 360)
	v.evalText(`document.querySelector('#nvidia-4 .mark').dispatchEvent(new PointerEvent('pointerover', { bubbles: true, pointerType: 'touch' }))`)
	if got := v.evalText(`(() => { const b = document.getElementById('tip').getBoundingClientRect(); return document.getElementById('tip').textContent + (b.left >= 0 && b.right <= 360) })()`); !strings.Contains(got, "05:02\nXID 79: the GPU has fallen off the bustrue") {
		t.Error(got)
	}
}

// TestRendering: a page of 8 GPUs and a day is drawn at once.
func TestRendering(t *testing.T) {
	v := newBrowserVisit(t, workdayMachine(t), 1280)
	best := time.Hour
	for range 8 {
		took := v.evalText(`(() => { const text = document.body.innerHTML; document.body.innerHTML = ''; document.body.offsetHeight; const began = performance.now(); document.body.innerHTML = text; document.body.offsetHeight; return performance.now() - began })()`)
		var ms float64
		if _, err := fmt.Sscan(took, &ms); err != nil {
			t.Fatal(err)
		}
		best = min(best, time.Duration(ms*float64(time.Millisecond)))
	}
	t.Logf("text to layout: %v", best)
	if best > 50*time.Millisecond {
		t.Errorf("the page takes %v", best)
	}
}

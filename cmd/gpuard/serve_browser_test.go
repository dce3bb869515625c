//go:build browser

// Its library would make every program of the other tests slower: make pages runs this.

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"gpuard/internal/gate"
)

// browser is a real Chromium with one open page.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string // what its console shows
}

func newBrowser(t *testing.T, language string) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()), chromedp.Flag("lang", language), chromedp.Flag("accept-lang", language),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Flag("disable-quic", true))
	ctx, end := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(end)
	ctx, end = chromedp.NewContext(ctx)
	t.Cleanup(end)
	b := &browser{t: t, ctx: ctx}
	b.do(chromedp.Navigate("about:blank"))
	note := func(text string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.problems = append(b.problems, text)
	}
	if err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			note(e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			if e.Entry.Level == "error" || e.Entry.Level == "warning" {
				note(e.Entry.Text + " " + e.Entry.URL)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// eval is the value of an expression on the page, as text.
func (b *browser) eval(script string) string {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[any](script))
	if err != nil {
		b.t.Fatalf("%s: %v", script, err)
	}
	return fmt.Sprint(value)
}

// shows waits for a text on the page, and says after what time it was there.
func (b *browser) shows(text string) time.Duration {
	b.t.Helper()
	began := time.Now()
	eventually(b.t, "the page shows "+text, func() bool { return strings.Contains(b.eval("document.body.innerText"), text) })
	return time.Since(began)
}

// picture keeps how the page looks, where GPUARD_PICTURES names a folder.
func (b *browser) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("GPUARD_PICTURES")
	if dir == "" {
		return
	}
	image, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), image, 0o644)
	}
	if err != nil {
		b.t.Error(err)
	}
}

// sound: nothing was wrong on the console, and the page is not wider than the window.
func (b *browser) sound() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.problems) > 0 {
		b.t.Errorf("the console of the browser says: %q", b.problems)
	}
	b.problems = nil
}

// TestServeBrowser drives the page as a person does: what it shows, what changes, by keyboard, in the dark, on a phone.
func TestServeBrowser(t *testing.T) {
	gate.Need(t, "chromium")
	t.Parallel()
	r := newRack(t, a100s(2)...)
	file := filepath.Join(t.TempDir(), "token")
	home := quietDir(t)
	r.env = append(r.env, "TIMES=10", "HOME="+home, "XDG_STATE_HOME="+home) // a minute is 6 s, so that there is a last day
	project := filepath.Join(t.TempDir(), "gpuard.yaml")
	if err := os.WriteFile(project, []byte("name: shop\nservices:\n  web:\n    command: sleep 60\n    cpu: true\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := r.serve("--token-file", file)
	b := newBrowser(t, "en-US")
	b.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(p.base))
	for _, part := range []string{"2 of 2 free", "GPU 0", "GPU 1", "2 × A100-SXM4-80GB", "Nothing waits.", "Nothing runs.", "No services.", "No lease in this time.", "Findings"} {
		b.shows(part)
	}
	same(t, "the title", strings.HasPrefix(b.eval("document.title"), "2 free · "), true)
	job := r.cmd("run", "-q", "--device", "1", "--name", "train", "--", "sh", "-c", "echo $GPUARD_LEASE; exec sleep 60")
	lease := begin(t, job)
	if took := b.shows("1 of 2 free"); took > 2*time.Second {
		t.Errorf("a new lease was on the page after %v", took)
	}
	eventually(t, "it has a row, a band and an icon", func() bool {
		return b.eval(`[document.querySelector('#running tr[data-key="r`+lease+`"]') !== null, document.querySelector('#nvidia-1 .band .lease') !== null, document.querySelector('link[rel=icon]').getAttribute('href')].join(' ')`) == "true true /icon/1-free.svg"
	})
	eventually(t, "the icon is drawn", func() bool { return strings.Contains(p.get("/icon/1-free.svg").body, ">1</text>") })

	// the details, by keyboard only
	eventually(t, "Tab leads to GPU 1", func() bool {
		b.do(chromedp.KeyEvent(kb.Tab))
		return b.eval(`document.activeElement.textContent`) == "GPU 1"
	})
	b.do(chromedp.KeyEvent(kb.Enter))
	b.shows(string(p.status().Devices[1].UUID))
	b.shows(lease)
	r.Set(1, "temperature", "55")
	b.shows("55 °C")
	same(t, "what has the focus after a change", b.eval(`document.activeElement.id`), "detail-title")
	b.picture("details")
	b.do(chromedp.KeyEvent(kb.Escape))
	eventually(t, "the details are closed", func() bool { return b.eval(`document.getElementById('detail').hidden`) == "true" })

	// with the token, which is asked for with the first action
	token := strings.TrimSpace(string(must(os.ReadFile(file))))
	press := func(label string) {
		t.Helper()
		eventually(t, label, func() bool {
			return b.eval(`(() => { const e = [...document.querySelectorAll('button')].find(e => e.offsetParent && e.textContent === '`+label+`'); if (!e) return false; e.click(); return true })()`) == "true"
		})
	}
	yes := func() {
		t.Helper()
		eventually(t, "it asks", func() bool {
			return b.eval(`(() => { const d = document.querySelector('dialog'); if (!d.open) return false; document.getElementById('ask-yes').click(); return true })()`) == "true"
		})
	}
	same(t, "submit", run(t, r.cmd("submit", "-q", "--hold", "--name", "night-run", "--", "true")).code, 0)
	b.shows("night-run")
	press("Cancel")
	b.do(chromedp.SendKeys(chromedp.CSS("#ask-key input"), token+kb.Enter))
	b.shows("Nothing waits.")
	up := run(t, r.cmd("up", "-d", "--file", project))
	same(t, "up: "+up.err, up.code, 0)
	b.shows("shop")
	same(t, "down", run(t, r.cmd("down", "--file", project)).code, 0)
	b.shows("No services.")
	b.eval(`document.querySelector('#nvidia-0 .name').click()`)
	press("Drain")
	yes()
	b.shows("1 drained")
	b.shows("Done. Undo")
	press("Undo")
	b.shows("nothing is broken")
	_ = job.Process.Kill()
	eventually(t, "the ended lease is in the history and in its band", func() bool {
		return b.eval(`[...document.querySelectorAll('#history th[scope=row]')].map(e => e.textContent).includes('train') + ' ' + document.querySelector('#nvidia-1 .band .lease').getAttribute('aria-label').includes('now')`) == "true false"
	})
	b.picture("page")
	if strings.Contains(b.eval("location.href + document.cookie"), token) {
		t.Error("the token is in the address or a cookie")
	}
	b.sound()

	// in the dark, on a phone
	dark := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}}
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, dark)
		return err
	}), chromedp.EmulateViewport(360, 740), chromedp.Navigate(p.base))
	b.shows("GPU 1")
	same(t, "scrolls sideways at 360 px", b.eval(`document.documentElement.scrollWidth > 360`), "false")
	same(t, "background", b.eval(`getComputedStyle(document.body).backgroundColor`), "rgb(22, 24, 27)")
	b.picture("phone-dark")
	b.sound()
	b.named()
}

// named: everything that can be reached has a name for a screen reader.
func (b *browser) named() {
	b.t.Helper()
	var nodes []*accessibility.Node
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		tree, err := cdp.Call(ctx, t, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		if err == nil {
			nodes = tree.Nodes
		}
		return err
	}))
	seen := map[string]int{}
	for _, n := range nodes {
		if n.Ignored || n.Role == nil {
			continue
		}
		role := strings.Trim(string(n.Role.Value), `"`)
		seen[role]++
		switch role {
		case "button", "link", "textbox", "image", "img", "region", "article", "heading", "navigation", "columnheader", "rowheader":
			if n.Name == nil || strings.Trim(string(n.Name.Value), `"`) == "" {
				b.t.Errorf("a %s has no name", role)
			}
		}
	}
	for _, role := range []string{"main", "navigation", "heading", "region"} {
		if seen[role] == 0 {
			b.t.Errorf("the page has no %s for a screen reader: %v", role, seen)
		}
	}
}

// TestServeBrowserChinese: a browser that wishes Chinese gets it.
func TestServeBrowserChinese(t *testing.T) {
	gate.Need(t, "chromium")
	t.Parallel()
	r := newRack(t, a100s(1)...)
	p := r.serve()
	b := newBrowser(t, "zh-CN")
	b.do(chromedp.Navigate(p.base))
	b.shows("空闲")
	b.picture("chinese")
	r.Set(0, "temperature", "61")
	b.shows("61 °C")
	b.shows("一切正常")
	b.sound()
}

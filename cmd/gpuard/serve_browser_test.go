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
	b.runActions(chromedp.Navigate("about:blank"))
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

func (b *browser) runActions(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// evalText is the value of an expression on the page, as text.
func (b *browser) evalText(script string) string {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[any](script))
	if err != nil {
		b.t.Fatalf("%s: %v", script, err)
	}
	return fmt.Sprint(value)
}

// waitForText waits for a text on the page, and says after what time it was there.
func (b *browser) waitForText(text string) time.Duration {
	b.t.Helper()
	began := time.Now()
	waitUntil(b.t, "the page shows "+text, func() bool { return strings.Contains(b.evalText("document.body.innerText"), text) })
	return time.Since(began)
}

// savePicture keeps how the page looks, where GPUARD_PICTURES names a folder.
func (b *browser) savePicture(name string) {
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

// checkConsole: nothing was wrong on the console, and the page is not wider than the window.
func (b *browser) checkConsole() {
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
	r := newFakeDriverMachine(t, makeA100s(2)...)
	file := filepath.Join(t.TempDir(), "token")
	home := quietDir(t)
	r.env = append(r.env, "TIMES=10", "HOME="+home, "XDG_STATE_HOME="+home) // a minute is 6 s, so that there is a last day
	project := filepath.Join(t.TempDir(), "gpuard.yaml")
	if err := os.WriteFile(project, []byte("name: shop\nservices:\n  web:\n    command: sleep 60\n    cpu: true\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := r.startServe("--token-file", file)
	b := newBrowser(t, "en-US")
	b.runActions(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(p.base))
	for _, part := range []string{"2 of 2 free", "GPU 0", "GPU 1", "2 × A100-SXM4-80GB", "Nothing waits.", "Nothing runs.", "gpuard up has started none.", "No lease in this time.", "Findings"} {
		b.waitForText(part)
	}
	checkEqual(t, "the title", strings.HasPrefix(b.evalText("document.title"), "2 free · "), true)
	job := r.cmd("run", "-q", "--device", "1", "--name", "train", "--", "sh", "-c", "echo $GPUARD_LEASE; exec sleep 60")
	lease := startToFirstLine(t, job)
	if took := b.waitForText("1 of 2 free"); took > 2*time.Second {
		t.Errorf("a new lease was on the page after %v", took)
	}
	waitUntil(t, "it has a row, a band and an icon", func() bool {
		return b.evalText(`[document.querySelector('#running tr[data-key="r`+lease+`"]') !== null, document.querySelector('#nvidia-1 .band .lease') !== null, document.querySelector('link[rel=icon]').getAttribute('href')].join(' ')`) == "true true /icon/1-free.svg"
	})
	waitUntil(t, "the icon is drawn", func() bool { return strings.Contains(p.get("/icon/1-free.svg").body, ">1</text>") })

	// the details, by keyboard only
	waitUntil(t, "Tab leads to GPU 1", func() bool {
		b.runActions(chromedp.KeyEvent(kb.Tab))
		return b.evalText(`document.activeElement.textContent`) == "GPU 1"
	})
	b.runActions(chromedp.KeyEvent(kb.Enter))
	b.waitForText(string(p.readStatus().Devices[1].UUID))
	b.waitForText(lease)
	r.SetValue(1, "temperature", "55")
	b.waitForText("55 °C")
	checkEqual(t, "what has the focus after a change", b.evalText(`document.activeElement.id`), "detail-title")
	b.savePicture("details")
	b.runActions(chromedp.KeyEvent(kb.Escape))
	waitUntil(t, "the details are closed", func() bool { return b.evalText(`document.getElementById('detail').hidden`) == "true" })

	// with the token, which is asked for with the first action
	token := strings.TrimSpace(string(must(os.ReadFile(file))))
	press := func(label string) {
		t.Helper()
		waitUntil(t, label, func() bool {
			return b.evalText(`(() => { const e = [...document.querySelectorAll('button')].find(e => e.offsetParent && e.textContent === '`+label+`'); if (!e) return false; e.click(); return true })()`) == "true"
		})
	}
	yes := func() {
		t.Helper()
		waitUntil(t, "it asks", func() bool {
			return b.evalText(`(() => { const d = document.querySelector('dialog'); if (!d.open) return false; document.getElementById('ask-yes').click(); return true })()`) == "true"
		})
	}
	checkEqual(t, "submit", runCommand(t, r.cmd("submit", "-q", "--hold", "--name", "night-run", "--", "true")).code, 0)
	b.waitForText("night-run")
	press("Cancel")
	b.runActions(chromedp.SendKeys(chromedp.CSS("#ask-key input"), token+kb.Enter))
	b.waitForText("Nothing waits.")
	up := runCommand(t, r.cmd("up", "-d", "--file", project))
	checkEqual(t, "up: "+up.err, up.code, 0)
	b.waitForText("shop")
	checkEqual(t, "down", runCommand(t, r.cmd("down", "--file", project)).code, 0)
	b.waitForText("gpuard up has started none.")
	b.evalText(`document.querySelector('#nvidia-0 .name').click()`)
	press("Drain")
	yes()
	b.waitForText("1 GPU drained")
	b.waitForText("Done. Undo")
	press("Undo")
	b.waitForText("nothing is broken")
	_ = job.Process.Kill()
	waitUntil(t, "the ended lease is in the history and in its band", func() bool {
		return b.evalText(`[...document.querySelectorAll('#history th[scope=row]')].map(e => e.textContent).includes('train') + ' ' + document.querySelector('#nvidia-1 .band .lease').getAttribute('aria-label').includes('now')`) == "true false"
	})
	b.savePicture("page")
	if strings.Contains(b.evalText("location.href + document.cookie"), token) {
		t.Error("the token is in the address or a cookie")
	}
	b.checkConsole()

	// in the dark, on a phone
	dark := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}}
	b.runActions(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, dark)
		return err
	}), chromedp.EmulateViewport(360, 740), chromedp.Navigate(p.base))
	b.waitForText("GPU 1")
	checkEqual(t, "scrolls sideways at 360 px", b.evalText(`document.documentElement.scrollWidth > 360`), "false")
	checkEqual(t, "background", b.evalText(`getComputedStyle(document.body).backgroundColor`), "rgb(22, 24, 27)")
	b.savePicture("phone-dark")
	b.checkConsole()
	b.checkAccessibleNames()
}

// checkAccessibleNames: everything that can be reached has a name for a screen reader.
func (b *browser) checkAccessibleNames() {
	b.t.Helper()
	var nodes []*accessibility.Node
	b.runActions(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
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
	r := newFakeDriverMachine(t, makeA100s(1)...)
	p := r.startServe()
	b := newBrowser(t, "zh-CN")
	b.runActions(chromedp.Navigate(p.base))
	b.waitForText("空闲")
	b.savePicture("chinese")
	r.SetValue(0, "temperature", "61")
	b.waitForText("61 °C")
	b.waitForText("一切正常")
	b.checkConsole()
}

//go:build browser

// The library of the browser would make every other test slower: make pages runs this.

package web

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"gpuard/internal/gate"
)

// openBrowser starts a Chromium, whose language is that.
func openBrowser(t *testing.T, language string) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()), chromedp.Flag("lang", language), chromedp.Flag("accept-lang", language),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Flag("hide-scrollbars", true))
	ctx, end := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(end)
	ctx, end = chromedp.NewContext(ctx)
	t.Cleanup(end)
	return ctx
}

// setColorScheme makes the browser wish for the dark, or for the light.
func setColorScheme(dark bool) chromedp.Action[chromedp.Void] {
	value := map[bool]string{true: "dark", false: "light"}[dark]
	set := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}, {Name: "prefers-reduced-motion", Value: "reduce"}}}
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, set)
		return err
	})
}

// cutTexts are the texts beside the bands, and the pane of the details, that do not show all that is in them.
const cutTexts = `[...document.querySelectorAll('.now p, aside')].filter(e => e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1).map(e => e.textContent.slice(0, 60)).join(' | ')`

// TestPictures: five situations at three widths, light and dark, in both languages; GPUARD_PICTURES keeps them.
func TestPictures(t *testing.T) {
	gate.Need(t, "chromium")
	dir := os.Getenv("GPUARD_PICTURES")
	for _, language := range []string{"en", "zh-CN"} {
		ctx := openBrowser(t, language)
		for name, make := range inventedMachines() {
			s := make(t)
			server := httptest.NewServer(s.makeSite(t, "0123456789abcdef0123").Handler())
			t.Cleanup(server.Close)
			for _, width := range []int64{1280, 1920, 360} {
				for _, dark := range []bool{false, true} {
					height := int64(900)
					if width == 360 {
						height = 740
					}
					if err := chromedp.Do(ctx, setColorScheme(dark), chromedp.EmulateViewport(width, height), chromedp.Navigate(server.URL)); err != nil {
						t.Fatal(err)
					}
					wide, err := chromedp.Run(ctx, chromedp.Evaluate[float64](`document.documentElement.scrollWidth`))
					if err != nil || wide > float64(width) {
						t.Errorf("%s at %d px, %s: scrolls sideways to %v px: %v", name, width, language, wide, err)
					}
					if dir == "" {
						continue
					}
					dress := fmt.Sprintf("%d-%s-%s", width, map[bool]string{true: "dark", false: "light"}[dark], language[:2])
					saveScreenshot(ctx, t, filepath.Join(dir, name+"-"+dress+".png"))
					if name != "trouble" && name != "day" || language != "en" {
						continue
					}
					for choice, path := range map[string]string{"details": "/?gpu=" + string(s.machine.Devices[1].UUID), "week": "/?days=7", "month": "/?days=30"} {
						if err := chromedp.Do(ctx, chromedp.Navigate(server.URL+path)); err != nil {
							t.Fatal(err)
						}
						cut, err := chromedp.Run(ctx, chromedp.Evaluate[string](cutTexts))
						if err != nil || choice == "details" && cut != "" {
							t.Errorf("%s at %d px: beside the details is cut: %s, %v", name, width, cut, err)
						}
						saveScreenshot(ctx, t, filepath.Join(dir, name+"-"+choice+"-"+dress+".png"))
					}
				}
			}
		}
	}
}

// saveScreenshot writes how the page looks.
func saveScreenshot(ctx context.Context, t *testing.T, path string) {
	t.Helper()
	image, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(path, image, 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}

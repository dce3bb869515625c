//go:build browser

package web

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/chromedp/chromedp"

	"gpuard/internal/gate"
)

// auditScript checks a page by the rules of WCAG 2.2 that a program can check, on what a browser has made of it. It returns what is wrong.
const auditScript = `(() => {
const wrong = [];
const say = (rule, e) => wrong.push(rule + ': ' + (e.outerHTML || e).slice(0, 160));
const shown = e => e.getClientRects().length > 0 && getComputedStyle(e).visibility !== 'hidden';
const all = [...document.querySelectorAll('body *')];
const spoken = e => !e.closest('[aria-hidden=true], [hidden], dialog:not([open])');
const byId = id => document.getElementById(id);
const nameOf = e => {
  const label = e.getAttribute('aria-labelledby');
  if (label) return label.split(' ').map(id => byId(id)?.textContent).join(' ').trim();
  return (e.getAttribute('aria-label') || e.labels?.[0]?.textContent || e.textContent || e.getAttribute('title') || '').trim();
};

// 3.1.1, 2.4.2, 1.3.1: language, title, one main, one h1, headings without a gap
if (!document.documentElement.lang) say('no language', document.documentElement);
if (!document.title) say('no title', document.head);
if (document.querySelectorAll('main').length !== 1) say('not one main', document.body);
let level = 0;
for (const h of all.filter(e => /^H[1-6]$/.test(e.nodeName) && shown(e))) {
  const now = +h.nodeName[1];
  if (now > level + 1) say('a heading is left out', h);
  if (!h.textContent.trim()) say('an empty heading', h);
  level = now;
}
if (document.querySelectorAll('h1').length !== 1) say('not one h1', document.body);

// 4.1.1, 4.1.2: ids, what refers to them, names, roles
const ids = new Set();
for (const e of all) {
  if (e.id && ids.has(e.id)) say('a second id', e);
  if (e.id) ids.add(e.id);
}
for (const e of all) {
  for (const a of ['aria-labelledby', 'aria-controls', 'aria-describedby']) for (const id of (e.getAttribute(a) || '').split(' ').filter(Boolean)) if (!byId(id)) say(a + ' leads nowhere', e);
  const href = e.getAttribute('href');
  if (e.nodeName === 'A' && href && href.startsWith('#') && !byId(href.slice(1))) say('a link leads nowhere', e);
  if (!spoken(e)) { if (e.matches('a[href], button, input, [tabindex="0"]') && e.closest('[aria-hidden=true]')) say('hidden, but to be reached', e); continue; }
  if (e.matches('a[href], button, input, summary, [role=img], [role=group], [role=region], section, article, aside, nav, dialog, [tabindex]') && !nameOf(e)) say('no name', e);
  if (e.nodeName === 'svg' && !e.hasAttribute('role') && !e.parentElement.closest('svg')) say('a picture that is neither hidden nor named', e);
  if (e.getAttribute('tabindex') > 0) say('an order of its own', e);
  if (e.matches('ul, ol') && [...e.children].some(c => c.nodeName !== 'LI')) say('a list with something else', e);
  if (e.nodeName === 'LI' && !e.parentElement.matches('ul, ol')) say('an item without a list', e);
  if (e.nodeName === 'TABLE' && ![...e.querySelectorAll('th')].some(h => h.scope === 'col')) say('a table without heads', e);
  if (e.nodeName === 'TH' && !e.textContent.trim()) say('an empty head', e);
  if (e.matches('dl') && [...e.children].some(c => !/^(DT|DD)$/.test(c.nodeName))) say('a list of terms with something else', e);
  if (e.hasAttribute('style') && e.id !== 'tip') say('a style of its own', e);
}

// 1.4.3: contrast of texts
const rgb = text => { const n = text.match(/[\d.]+/g)?.map(Number) || [0, 0, 0, 0]; if (text.startsWith('color(srgb')) return [...n.slice(0, 3).map(v => v * 255), n[3] ?? 1]; return n.length < 4 ? [...n, 1] : n; };
const mix = (front, back) => front.slice(0, 3).map((v, i) => v * front[3] + back[i] * (1 - front[3]));
const light = c => { const [r, g, b] = c.map(v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const ground = e => { const chain = []; for (; e; e = e.parentElement) chain.unshift(rgb(getComputedStyle(e).backgroundColor)); return chain.reduce((back, c) => mix(c, back), [255, 255, 255]); };
for (const e of all) {
  const texts = [...e.childNodes].filter(n => n.nodeType === 3 && n.data.trim());
  if (!texts.length || !shown(e) || e.closest('.skip, .hidden')) continue;
  const style = getComputedStyle(e), inPicture = e.closest('svg');
  const back = ground(e), front = mix(rgb(inPicture ? style.fill : style.color), back);
  const [high, low] = [light(front), light(back)].sort((a, b) => b - a);
  const size = parseFloat(style.fontSize), large = size >= 24 || size >= 18.66 && style.fontWeight >= 700;
  if ((high + 0.05) / (low + 0.05) < (large ? 3 : 4.5)) say('contrast ' + ((high + 0.05) / (low + 0.05)).toFixed(2), e);
  if (size < 11) say('small text', e);
}

// 2.5.8: what is to be hit is 24 px large, or has so much room, or stands in a text
for (const e of all.filter(e => e.matches('button, summary, input, a[href]') && shown(e) && !e.closest('.skip, p, th, td, footer, li'))) {
  const b = e.getBoundingClientRect();
  if (b.height < 23.5 && !e.matches('.name, .close')) say('small target ' + b.height, e);
}
for (const e of all.filter(e => e.matches('button') && shown(e))) if (e.getBoundingClientRect().height < 23.5 || e.getBoundingClientRect().width < 23.5) say('small button', e);

// 1.4.10: nothing is wider than the window
if (document.documentElement.scrollWidth > innerWidth) say('scrolls sideways', document.body);
return wrong;
})()`

// TestAccessible: the audit finds nothing, in any situation, dress, language and width, with and without details; and it finds what
// is put in.
func TestAccessible(t *testing.T) {
	gate.Need(t, "chromium")
	for _, language := range []string{"en", "zh-CN"} {
		ctx := openBrowser(t, language)
		look := func() (wrong []string) {
			t.Helper()
			text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`JSON.stringify(`+auditScript+`)`))
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(text), &wrong); err != nil {
				t.Fatal(err)
			}
			return wrong
		}
		for name, make := range inventedMachines() {
			s := make(t)
			server := httptest.NewServer(s.makeSite(t, siteToken).Handler())
			t.Cleanup(server.CloseClientConnections)
			for _, width := range []int64{1280, 360} {
				for _, dark := range []bool{false, true} {
					for _, path := range []string{"/", "/?days=7&gpu=" + string(s.machine.Devices[0].UUID)} {
						if err := chromedp.Do(ctx, setColorScheme(dark), chromedp.EmulateViewport(width, 900), chromedp.Navigate(server.URL+path)); err != nil {
							t.Fatal(err)
						}
						found := look()
						if _, err := chromedp.Run(ctx, chromedp.Evaluate[any](`document.querySelector('button[data-action]')?.click(); null`)); err != nil {
							t.Fatal(err)
						}
						for _, wrong := range append(found, look()...) { // and while it asks
							t.Errorf("%s, %s, %d px, dark %v, %s: %s", name, language, width, dark, path, wrong)
						}
					}
				}
			}
		}
		for what, script := range map[string]string{
			"a button without a name": `document.querySelector('main').append(document.createElement('button'))`,
			"a pale text":             `document.querySelector('h2').classList.add('pale'); document.styleSheets[0].insertRule('.pale { color: #777 !important; background: #888 !important }')`,
			"a second id":             `document.querySelector('h2').id = 'gpus'`,
			"a heading left out":      `document.querySelector('main').insertAdjacentHTML('beforeend', '<h6>x</h6>')`,
		} {
			if _, err := chromedp.Run(ctx, chromedp.Evaluate[any](script+`; null`)); err != nil {
				t.Fatal(err)
			}
			if len(look()) == 0 {
				t.Errorf("%s is not found", what)
			}
			if err := chromedp.Do(ctx, chromedp.Reload()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

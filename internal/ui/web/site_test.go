package web

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/observe"
)

// newEmptySite is a site that has seen nothing yet, with these sources.
func newEmptySite(t *testing.T, sources ...observe.Source) *Site {
	t.Helper()
	o, err := observe.New(&machine.Host{Messages: machine.Messages{Say: func(string) {}}}, "")
	if err != nil {
		t.Fatal(err)
	}
	return &Site{Observer: o, Sources: sources, Host: "box", Owner: "alice"}
}

// TestSlowSource: a source that takes long keeps neither a page nor the others waiting, and is asked once at a time.
func TestSlowSource(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	end := make(chan struct{})
	s := newEmptySite(t, observe.Source{Name: "findings", Title: "Findings", Read: func(context.Context) (any, error) {
		asked.Add(1)
		<-end
		return nil, errors.New("it has ended")
	}})
	get := func() string {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/", nil)
		s.Handler().ServeHTTP(w, r)
		return w.Body.String()
	}
	began := time.Now()
	for range 3 {
		if text := get(); !strings.Contains(text, "it is being read") {
			t.Fatal(text)
		}
	}
	if took := time.Since(began); took > 20*time.Second || asked.Load() != 1 {
		t.Errorf("three pages took %v, and asked %d times", took, asked.Load())
	}
	close(end)
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(get(), "it has ended"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("its answer is not shown")
		}
	}
}

// TestMeant: which names of this machine are answered.
func TestMeant(t *testing.T) {
	s := Site{Names: []string{"box"}}
	for host, want := range map[string]bool{"127.0.0.1": true, "127.0.0.1:8470": true, "[::1]:8470": true, "10.0.0.7": true, "localhost:1": true, "BOX:8470": true,
		"": false, "evil.example.org": false, "box.example.org": false, "127.0.0.1.example.org": false, "localhost.example.org": false, "1.2.3": false} {
		if got := s.isOwnHost(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}

// TestLanguageOf: the first language of the browser that the page has; traditional characters are not those of the catalogue.
func TestLanguageOf(t *testing.T) {
	for wish, want := range map[string]string{"": "en", "zh-CN,zh;q=0.9": "zh", "zh": "zh", "de-DE,zh-CN;q=0.7,en;q=0.3": "zh", "zh-TW,en;q=0.5": "en", "zh-HK": "en", "en-US,zh;q=0.5": "en"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set("Accept-Language", wish)
		if got := languageOf(r); got != want {
			t.Errorf("%q: %s, want %s", wish, got, want)
		}
	}
}

// TestWords: every word of the page has a translation.
func TestWords(t *testing.T) {
	say := translatorOf("zh")
	found := 0
	names, err := files.ReadDir("files")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := files.ReadFile("files/" + name.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split(string(text), `{{t "`)[1:] {
			found++
			if word, _, _ := strings.Cut(part, `"`); say(word) == word {
				t.Errorf("%q is not translated", word)
			}
		}
	}
	if found < 60 {
		t.Errorf("only %d words", found)
	}
}

// TestLostIsNotFree: a GPU that is lost is no free one.
func TestLostIsNotFree(t *testing.T) {
	s := troubledMachine(t)
	page := getPage(t, s.makeSite(t, ""), "/")
	_, row, _ := strings.Cut(page, `id="nvidia-4"`)
	row, _, _ = strings.Cut(row, `id="nvidia-5"`)
	if !strings.Contains(row, `<span class="state unhealthy" data-is="state">unhealthy</span>`) || strings.Contains(row, ">free<") {
		t.Error(row)
	}
}

// getPage is a page as it is sent.
func getPage(t testing.TB, s *Site, path string) string {
	t.Helper()
	return getPageIn(t, s, path, "en")
}

// getPageIn is a page in a language.
func getPageIn(t testing.TB, s *Site, path, language string) string {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1"+path, nil)
	r.Header.Set("Accept-Language", language)
	s.Handler().ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// TestFirstLineNames: the first line names the devices of a trouble where they are three at most.
func TestFirstLineNames(t *testing.T) {
	s := troubledMachine(t)
	page := strings.ReplaceAll(getPage(t, s.makeSite(t, ""), "/"), "\u00a0", " ")
	for _, want := range []string{`data-is="lost">1 GPU unhealthy: lost (GPU 4)<`, `data-is="hot">1 GPU degraded: hot (GPU 0)<`, `data-is="drained">1 GPU drained (GPU 6)<`} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in %s", want, cutFragment(page, `class="glance"`))
		}
	}
	if strings.Contains(page, ">draining<") {
		t.Error("one state has two words")
	}
	for i := range 4 {
		s.machine.Devices[4+i].Problem = "GPU is lost"
	}
	if page := getPage(t, s.makeSite(t, ""), "/"); !strings.Contains(page, `data-is="lost">4 GPUs unhealthy: lost<`) {
		t.Error(cutFragment(page, `class="glance"`))
	}
}

// TestFindingsBegin: where the minutes know when a device stopped answering, that is the time; else it is when it was seen.
func TestFindingsBegin(t *testing.T) {
	page := getPage(t, troubledMachine(t).makeSite(t, ""), "/")
	_, findings, _ := strings.Cut(page, `<ul class="findings">`)
	for _, want := range []string{`GPU 4 unhealthy: GPU is lost</a> <span class="soft">since 05:02<`, `GPU 4 reported XID 79: the GPU has fallen off the bus</a> <span class="soft">since 05:02<`, `GPU 0 is slowed down by its hardware because of heat</a> <span class="soft">since 08:52<`} {
		if !strings.Contains(findings, want) {
			t.Errorf("no %s in %s", want, findings[:min(len(findings), 900)])
		}
	}
}

// TestSummaryInChinese: what doctor says in one sentence is in the language of the page.
func TestSummaryInChinese(t *testing.T) {
	for name, want := range map[string]string{"day": "GPU 程序可以在这里运行：8 NVIDIA", "trouble": "但不是每块 GPU 都行：GPU 4"} {
		page := getPageIn(t, inventedMachines()[name](t).makeSite(t, ""), "/", "zh")
		if !strings.Contains(page, want) {
			t.Errorf("no %s in %s", want, cutFragment(page, `<section id="findings"`))
		}
	}
}

// TestWhatHoursAre: hours and percentages say of what they are, in both languages.
func TestWhatHoursAre(t *testing.T) {
	s := workdayMachine(t).makeSite(t, "")
	for language, wants := range map[string][]string{
		"en": {`<li class="soft">GPU-hours, and their part of all:<`, `class="n">GPU-hours<`, `class="n">of them used<`},
		"zh": {`<li class="soft">GPU 小时及占比：<`, `class="n">GPU 小时<`, `class="n">实际使用<`},
	} {
		page := getPageIn(t, s, "/", language)
		for _, want := range wants {
			if !strings.Contains(page, want) {
				t.Errorf("no %s", want)
			}
		}
	}
}

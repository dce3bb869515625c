package web

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gpuard/internal/core/prose"
)

// statusAnswer is what gpuard status --json says, read as a program of somebody else reads it.
type statusAnswer struct {
	Now     string
	Devices []statusDevice
	Waiting []struct {
		User, Command, Why string
		Count              int
	}
}

type statusDevice struct {
	Index                  int
	UUID, Use, Health      string
	Utilization, Power     *float64
	Temperature            *int
	MemoryUsed             *int64 `json:"memory_used"`
	MemoryTotal            *int64 `json:"memory_total"`
	Why                    []string
	Leases                 []struct{ ID, User, Command, Until string }
	Processes              []struct{ PID int }
	Throttled              []string
	PowerLimit             *float64 `json:"power_limit"`
	TemperatureMargin      *int     `json:"temperature_margin"`
	Drained, Reason, Extra string
}

// readFigure finds what a row says of one reading: its value as it is written for programs, and as people see it.
func readFigure(row, name string) (value, text string) {
	m := regexp.MustCompile(`data-is="` + name + `" data-value="([^"]*)"[^>]*>([^<]*)<`).FindStringSubmatch(row)
	if m == nil {
		return "", "–"
	}
	return m[1], m[2]
}

// TestFigures: in all five situations, without a token, each figure of the page is that of gpuard status --json: of the same value, by
// /api/status, which is that command's answer.
func TestFigures(t *testing.T) {
	for name, make := range inventedMachines() {
		t.Run(name, func(t *testing.T) {
			s := make(t)
			site := s.makeSite(t, "")
			w := httptest.NewRecorder()
			site.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/api/status", nil))
			var answer statusAnswer
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
				t.Fatal(err)
			}
			page := getPage(t, site, "/")
			free := 0
			for i, d := range answer.Devices {
				_, row, _ := strings.Cut(page, fmt.Sprintf(`<div class="gpu" id="nvidia-%d"`, d.Index))
				row, _, _ = strings.Cut(row, `<div class="gpu"`)
				compareRow(t, d, row)
				if d.Use == "free" && d.Health == "ok" {
					free++
				}
				detail := getPage(t, site, "/?gpu="+answer.Devices[i].UUID)
				compareDetail(t, d, detail)
			}
			compareJobs(t, &answer, page)
			if want := fmt.Sprintf(`data-is="free">%d of %d free<`, free, len(answer.Devices)); !strings.Contains(page, want) {
				t.Errorf("no %s in %s", want, cutFragment(page, `class="glance"`))
			}
			n := len(answer.Waiting)
			want := map[int]string{0: "nothing waits", 1: "1 waits"}[n]
			if name == "crowd" { // of 60 jobs in the list and 28 besides, none runs
				want = fmt.Sprintf("%d others and 88 of yours wait", n-1)
			}
			if want == "" {
				want = fmt.Sprintf("%d wait", n)
			}
			if !strings.Contains(page, `data-is="waiting">`+want+`<`) {
				t.Errorf("no %s in %s", want, cutFragment(page, `class="glance"`))
			}
		})
	}
}

func compareRow(t *testing.T, d statusDevice, row string) {
	t.Helper()
	state := d.Use
	if state == "free" && d.Health != "ok" {
		state = d.Health
	}
	if !strings.Contains(row, `data-is="state">`+shownState(state)+`<`) {
		t.Errorf("GPU %d is not %s: %s", d.Index, state, row[:min(len(row), 300)])
	}
	if d.Health != "ok" && d.Health != state && !strings.Contains(row, `data-is="health">`+d.Health+`<`) {
		t.Errorf("GPU %d is not %s", d.Index, d.Health)
	}
	expect := func(name, value, text string) {
		t.Helper()
		gotValue, gotText := readFigure(row, name)
		if gotValue != value || gotText != text {
			t.Errorf("GPU %d, %s: %q %q, want %q %q", d.Index, name, gotValue, gotText, value, text)
		}
	}
	if d.Utilization == nil {
		expect("utilization", "", "–")
	} else {
		expect("utilization", strconv.FormatFloat(*d.Utilization, 'g', -1, 64), fmt.Sprintf("%.0f %%", 100**d.Utilization))
	}
	if d.Temperature == nil {
		expect("temperature", "", "–")
	} else {
		expect("temperature", strconv.Itoa(*d.Temperature), fmt.Sprintf("%d °C", *d.Temperature))
	}
	if d.MemoryUsed != nil {
		value, _ := readFigure(row, "memory")
		if value != strconv.FormatInt(*d.MemoryUsed, 10) || !strings.Contains(row, fmt.Sprintf(`data-of="%d"`, *d.MemoryTotal)) {
			t.Errorf("GPU %d: memory %s, want %d of %d", d.Index, value, *d.MemoryUsed, *d.MemoryTotal)
		}
	}
	if len(d.Why) > 0 && !strings.Contains(row, html.EscapeString(d.Why[0])) {
		t.Errorf("GPU %d: no %q", d.Index, d.Why[0])
	}
}

func compareDetail(t *testing.T, d statusDevice, page string) {
	t.Helper()
	_, detail, _ := strings.Cut(page, `<article aria-labelledby="detail-title">`)
	detail, _, _ = strings.Cut(detail, "</article>")
	var wants []string
	wants = append(wants, d.UUID)
	if d.Power != nil {
		wants = append(wants, `data-is="power" data-value="`+strconv.FormatFloat(*d.Power, 'g', -1, 64)+`"`)
	}
	if d.PowerLimit != nil {
		wants = append(wants, fmt.Sprintf("/ %.0f W", *d.PowerLimit))
	}
	if d.TemperatureMargin != nil {
		wants = append(wants, fmt.Sprintf("%d °C to its limit", *d.TemperatureMargin))
	}
	wants = append(wants, d.Why...)
	for _, l := range d.Leases {
		wants = append(wants, l.ID, l.User, l.Command)
	}
	for _, p := range d.Processes {
		wants = append(wants, fmt.Sprintf("PID %d", p.PID))
	}
	for _, want := range wants {
		if !strings.Contains(detail, want) && !strings.Contains(detail, html.EscapeString(want)) {
			t.Errorf("GPU %d: no %q in its details", d.Index, want)
		}
	}
}

// compareJobs: each lease is a row with its devices, and each request a row with its reason.
func compareJobs(t *testing.T, answer *statusAnswer, page string) {
	t.Helper()
	_, running, _ := strings.Cut(page, `<section id="running"`)
	running, _, _ = strings.Cut(running, "</section>")
	on := map[string][]string{}
	for _, d := range answer.Devices {
		for _, l := range d.Leases {
			on[l.ID] = append(on[l.ID], strconv.Itoa(d.Index))
		}
	}
	for id, devices := range on {
		_, row, found := strings.Cut(running, `<tr data-key="r`+id+`"`)
		row, _, _ = strings.Cut(row, "</tr>")
		if !found || !strings.Contains(row, `data-l="GPU">`+strings.Join(devices, ", ")+"<") {
			t.Errorf("%s on %v: %s", id, devices, row)
		}
	}
	if n := strings.Count(running, "<tr data-key="); n != len(on) {
		t.Errorf("%d rows for %d leases", n, len(on))
	}
	_, waiting, _ := strings.Cut(page, `<section id="queue"`)
	waiting, _, _ = strings.Cut(waiting, "</section>")
	for _, w := range answer.Waiting {
		if w.User == "alice" { // a row of the queue, with its array
			continue
		}
		short, rest, _ := strings.Cut(w.Why, "; ")
		subject := "they"
		if len(answer.Waiting) == 1 {
			subject = w.Command
		}
		short = strings.Replace(short, "that it can", "that "+subject+" can", 1)
		row := fmt.Sprintf(`<b>%s</b></span> <span class="meta"><span class="user">%s</span><span class="dash"> · </span><span class="asks">%s`, w.Command, w.User, prose.CountNoun(w.Count, "GPU"))
		if !strings.Contains(waiting, row) || !strings.Contains(waiting, html.EscapeString(short)) || !strings.Contains(waiting, html.EscapeString(rest)) {
			t.Errorf("%+v is not in the list", w)
		}
	}
}

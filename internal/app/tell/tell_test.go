package tell

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/trend"
	"gpuard/internal/host/proc"
)

// log is what was said.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) say(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, text)
}

func (l *log) count(part string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

func owner(t *testing.T, l *log, invented string) *OwnerNotifier {
	return New(t.Context(), &machine.Host{Messages: machine.Messages{Say: l.say}, Proc: proc.New("/proc"), Root: t.TempDir(), Machine: invented})
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still not so after 20 s: %s", what)
		}
	}
}

func trouble(text string, level policy.Level) trend.Trouble {
	return trend.Trouble{What: trend.Hot, Text: text, Device: "GPU-1", Lease: "aaaa", User: "ann", Level: level}
}

// TestTell: each trouble is in the log and posted once; what is off is only in the log, and so is all of an invented
// machine.
func TestTell(t *testing.T) {
	var mu sync.Mutex
	var got []map[string]any
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var one map[string]any
		if err := json.NewDecoder(r.Body).Decode(&one); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, one)
	}))
	defer server.Close()
	var l, invented log
	rules := policy.Watch{Webhook: server.URL}
	owner(t, &invented, "demo").TellTroubles(rules, []trend.Trouble{trouble("unreal", policy.Report)})
	o := owner(t, &l, "")
	again := trouble("again", policy.Report)
	again.Again = true
	o.TellTroubles(rules, []trend.Trouble{again, trouble("quiet", policy.Off), trouble("one", policy.Report), trouble("two", policy.Warn)})
	o.TellTroubles(policy.Watch{}, []trend.Trouble{trouble("without a webhook", policy.Report)})
	o.TellTroubles(rules, []trend.Trouble{trouble("three", policy.Report)})
	eventually(t, "three have arrived", func() bool { mu.Lock(); defer mu.Unlock(); return len(got) >= 3 })
	time.Sleep(50 * time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	var texts []string
	for _, one := range got {
		texts = append(texts, fmt.Sprint(one["text"]))
		at, err := time.Parse(time.RFC3339, fmt.Sprint(one["time"]))
		if one["schema"] != "gpuard.trouble/1" || one["what"] != "hot" || one["device"] != "GPU-1" || one["lease"] != "aaaa" || one["user"] != "ann" || one["host"] == "" || len(one) != 8 || err != nil || time.Since(at) > time.Minute {
			t.Errorf("%v", one)
		}
	}
	if slices.Sort(texts); fmt.Sprint(texts) != "[one three two]" {
		t.Errorf("posted: %q", texts)
	}
	if fmt.Sprint(l.lines) != "[again quiet one two without a webhook three]" || fmt.Sprint(invented.lines) != "[unreal]" {
		t.Errorf("said: %q and %q", l.lines, invented.lines)
	}
}

// TestTellFailing: a webhook that hangs or fails is not waited for, at most a few posts are on their way, and it is said
// once, until one has arrived.
func TestTellFailing(t *testing.T) {
	hold, answer := make(chan struct{}), http.StatusInternalServerError
	var mu sync.Mutex
	now, most, all := 0, 0, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		now, all = now+1, all+1
		most = max(most, now)
		code := answer
		mu.Unlock()
		<-hold
		mu.Lock()
		now--
		mu.Unlock()
		w.WriteHeader(code)
	}))
	defer server.Close()
	var l log
	o := owner(t, &l, "")
	rules := policy.Watch{Webhook: server.URL}
	send := func(n int) {
		began := time.Now()
		for i := range n {
			o.TellTroubles(rules, []trend.Trouble{trouble(fmt.Sprint("number ", i), policy.Report)})
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%d troubles took %v", n, took)
		}
	}
	arrived := func(n int) func() bool {
		return func() bool { mu.Lock(); defer mu.Unlock(); return all >= n && now == 0 }
	}
	send(500)
	eventually(t, "it is said that there are too many", func() bool { return l.count("posts wait for it already") == 1 })
	close(hold)
	eventually(t, "those that waited have arrived", func() bool { return arrived(maxWaitingPosts)() && len(o.posts) == 0 })
	send(3)
	eventually(t, "they have failed", arrived(maxWaitingPosts+3))
	mu.Lock()
	if most > maxPostsAtOnce || all > maxWaitingPosts+maxPostsAtOnce+3 {
		t.Errorf("%d posts, %d at the same time", all, most)
	}
	answer = http.StatusNoContent
	mu.Unlock()
	if n := l.count("cannot post"); n != 1 {
		t.Errorf("the failure was said %d times: %q", n, l.lines[len(l.lines)-3:])
	}
	sent := 503
	eventually(t, "one has arrived, and none of those that failed is looked at later", func() bool {
		send(1)
		sent++
		time.Sleep(10 * time.Millisecond)
		o.mu.Lock()
		defer o.mu.Unlock()
		return !o.failing
	})
	before := l.count("cannot post")
	server.Close()
	send(2)
	eventually(t, "the next failure is said", func() bool { return l.count("cannot post") > before })
	if n := l.count("number "); n != sent+2 {
		t.Errorf("%d troubles are in the log, want %d", n, sent+2)
	}
}

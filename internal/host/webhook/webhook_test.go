package webhook

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestPost: one POST with the body; every other answer than success is a failure, no redirect is followed, and the error
// does not have the path.
func TestPost(t *testing.T) {
	var posts, strayed atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strayed.Add(1) }))
	defer elsewhere.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		posts.Add(1)
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || string(body) != `{"a":1}` || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %q %v", r.Method, body, r.Header)
		}
		switch r.URL.Path {
		case "/broken":
			w.WriteHeader(http.StatusInternalServerError)
		case "/moved":
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		case "/here":
			http.Redirect(w, r, "/", http.StatusFound)
		}
	}))
	defer server.Close()
	for path, want := range map[string]string{"/secret": "", "/broken": "it answers 500", "/moved": "it answers 307", "/here": "it answers 302"} {
		err := Post(t.Context(), server.URL+path, []byte(`{"a":1}`))
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), path)) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if posts.Load() != 4 || strayed.Load() != 0 {
		t.Errorf("%d posts, %d elsewhere", posts.Load(), strayed.Load())
	}
	server.Close()
	if err := Post(t.Context(), server.URL+"/secret", nil); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("without a server: %v", err)
	}
	if err := Post(t.Context(), "http://%zz/secret", nil); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("no address: %v", err)
	}
}

// TestPostHangs: a server that does not answer is left when the caller's time is over.
func TestPostHangs(t *testing.T) {
	done := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-done }))
	defer server.Close()
	defer close(done)
	ctx, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer end()
	began := time.Now()
	if err := Post(ctx, server.URL, nil); err == nil || time.Since(began) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

// Package web shows what app/observe sees: a page that is kept current, metrics for Prometheus, and the same as JSON.
// What may be asked for (to cancel, to release) needs a token, and is done by functions of the caller.
//
//	site := &web.Site{Observer: o, Sources: sources, Host: "box"}
//	go site.Run(ctx)
//	err := http.Serve(listener, site.Handler())
package web

import (
	"crypto/subtle"
	"embed"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/collectors"

	"gpuard/internal/app/observe"
)

//go:embed files
var files embed.FS

// Site is what one process serves. Its fields are not changed after Run.
type Site struct {
	Observer *observe.Observer
	Sources  []observe.Source
	Actions  []observe.Action
	// The token for Actions; "" forbids them.
	Token string
	// The names of this machine by which it may be asked besides its addresses.
	Names   []string
	Host    string // shown on the page
	Version string
	TLS     bool
	// Whose jobs and leases are own ones; "" the user of this process.
	Owner string

	live pageUpdater
	// The watch of a test; nil: what Observer sees.
	watch func() observe.Snapshot
}

// lastSeen is what was seen last.
func (s *Site) lastSeen() observe.Snapshot {
	if s.watch != nil {
		return s.watch()
	}
	return s.Observer.Now()
}

// Handler answers all requests.
func (s *Site) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.servePage)
	mux.HandleFunc("GET /style.css", fileHandler("files/style.css", "text/css; charset=utf-8"))
	mux.HandleFunc("GET /page.js", fileHandler("files/page.js", "text/javascript; charset=utf-8"))
	mux.HandleFunc("GET /events", s.serveEvents)
	mux.Handle("GET /metrics", collectorHandler(exposition{site: s, now: s.Observer.Now}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})))
	mux.Handle("GET /metrics/dcgm", collectorHandler(dcgmCollector{s, s.Observer.Now}))
	mux.HandleFunc("GET /icon/{name}", serveIcon)
	mux.HandleFunc("GET /api/{$}", s.serveIndex)
	mux.HandleFunc("GET /api/status", s.serveStatus)
	mux.HandleFunc("GET /api/day", s.serveDay)

	for _, source := range s.Sources {
		mux.HandleFunc("GET /api/"+source.Name, func(w http.ResponseWriter, r *http.Request) { s.serveSource(w, r, source) })
	}

	for _, action := range s.Actions {
		mux.HandleFunc("POST /api/"+action.Name, func(w http.ResponseWriter, r *http.Request) { s.serveAction(w, r, action) })
	}

	mux.HandleFunc("/api/", s.refuseUnknown)

	return s.guardRequests(mux)
}

// refuseUnknown refuses what no path below /api/ answers.
func (s *Site) refuseUnknown(w http.ResponseWriter, r *http.Request) {
	for _, action := range s.Actions {
		if r.URL.Path == "/api/"+action.Name {
			w.Header().Set("Allow", http.MethodPost)
			refuseRequest(w, http.StatusMethodNotAllowed, "cannot read "+r.URL.Path+": it is asked for by POST")
			return
		}
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", http.MethodGet)
		refuseRequest(w, http.StatusMethodNotAllowed, "cannot "+r.Method+" here: /api/ lists the actions")
		return
	}
	refuseRequest(w, http.StatusNotFound, "cannot find "+r.URL.Path+": /api/ lists what there is")
}

// guardRequests refuses requests that another site's page could have made, and says what the page may load.
func (s *Site) guardRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if !s.isOwnHost(r.Host) {
			refuseRequest(w, http.StatusMisdirectedRequest, "cannot answer for this Host: ask by address, by localhost, or start gpuard serve with --name")
			return
		}

		if origin := r.Header.Get("Origin"); origin != "" && !s.isSameOrigin(origin, r.Host) || r.Header.Get("Sec-Fetch-Site") == "cross-site" {
			refuseRequest(w, http.StatusForbidden, "cannot answer another site")
			return
		}

		next.ServeHTTP(w, r)
	})
}

// isOwnHost reports whether host is an address or one of our own names. A name that somebody else's DNS gives to this address
// is neither (DNS rebinding).
func (s *Site) isOwnHost(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}

	name = strings.ToLower(strings.Trim(name, "[]"))
	if _, err := netip.ParseAddr(name); err == nil || name == "localhost" {
		return true
	}

	return slices.Contains(s.Names, name)
}

// isSameOrigin reports whether origin is this site, asked as host.
func (s *Site) isSameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	scheme := "http"
	if s.TLS {
		scheme = "https"
	}

	return err == nil && u.Scheme == scheme && strings.EqualFold(u.Host, host)
}

// hasToken reports whether the request has the token.
func (s *Site) hasToken(r *http.Request) bool {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && s.Token != "" && subtle.ConstantTimeCompare([]byte(given), []byte(s.Token)) == 1
}

// serveAction does what was asked for. The Authorization header cannot be sent by a form of another site.
func (s *Site) serveAction(w http.ResponseWriter, r *http.Request, action observe.Action) {
	switch {
	case s.Token == "":
		refuseRequest(w, http.StatusForbidden, "cannot "+action.Name+": gpuard serve was started without --token-file")
		return
	case !s.hasToken(r):
		// Guessing takes time.
		time.Sleep(200 * time.Millisecond)
		refuseRequest(w, http.StatusUnauthorized, "cannot "+action.Name+": the token is missing or wrong")
		return
	case !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json"):
		refuseRequest(w, http.StatusUnsupportedMediaType, `cannot read the request: its body must be application/json, such as {"arguments": ["17"]}`)
		return
	}

	var asked struct {
		Arguments []string `json:"arguments"`
	}

	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10))
	body.DisallowUnknownFields()
	if err := body.Decode(&asked); err != nil || len(asked.Arguments) == 0 {
		refuseRequest(w, http.StatusBadRequest, `cannot read the request: write {"arguments": ["17"]}`)
		return
	}

	if err := action.Do(r.Context(), asked.Arguments); err != nil {
		refuseRequest(w, http.StatusConflict, err.Error())
		return
	}

	replyJSON(w, struct {
		Schema string `json:"schema"`
	}{"gpuard.done/1"})
}

func fileHandler(name, kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		text, err := files.ReadFile(name)
		if err != nil {
			refuseRequest(w, http.StatusInternalServerError, err.Error())
			return
		}
		w.Header().Set("Content-Type", kind)

		// Who asked may be gone.
		_, _ = w.Write(text)
	}
}

func replyJSON(w http.ResponseWriter, answer any) {
	text, err := json.MarshalIndent(answer, "", "  ")
	if err != nil {
		refuseRequest(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n'))
}

// errorAnswer is the JSON answer of whatever went wrong.
type errorAnswer struct {
	Schema string `json:"schema"` // "gpuard.error/1"
	Error  string `json:"error"`
}

func refuseRequest(w http.ResponseWriter, code int, text string) {
	out, _ := json.Marshal(errorAnswer{"gpuard.error/1", text})
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(out, '\n'))
}

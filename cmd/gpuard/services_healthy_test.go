package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/service"
)

// answering is a server for health checks, and the status of its answers.
func answering(t *testing.T) (port string, status *atomic.Int32) {
	t.Helper()
	status = &atomic.Int32{}
	status.Store(http.StatusOK)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) }))
	t.Cleanup(server.Close)
	return server.URL[strings.LastIndex(server.URL, ":")+1:], status
}

// killAll kills the supervisor and the keepers of a team, and waits until one instance is left alone.
func (c *team) killAll(name string) {
	c.t.Helper()
	for _, what := range []string{"project-supervise", "project-keep"} {
		for _, pid := range c.processes(what) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	c.until("its keeper is gone", func(s *sight) bool { return !s.Supervised && s.row(name).Seen.Orphaned })
}

func healthIs(healthy bool) func(*sight) bool {
	return func(s *sight) bool {
		h := s.row("web").Seen.Healthy
		return settled(1)(s) && h != nil && *h == healthy
	}
}

// TestServicesUnhealthy: a service that answers with 503 after it was ready is unhealthy, also for a new keeper after
// kill -9, and healthy again later. Without restart it continues to run.
func TestServicesUnhealthy(t *testing.T) {
	t.Parallel()
	port, status := answering(t)
	c := newTeam(t, "demo:1xL4", fmt.Sprintf("services:\n  web: {command: [alone], healthy: {http: %s/health, interval: 50ms, failures: 2}}\n", port))
	ps := func(args ...string) string {
		cmd := c.command(append([]string{"ps"}, args...)...)
		cmd.Args[0] = "gpuard"
		return run(t, cmd).out
	}
	c.do("up")
	first := c.until("it is healthy", healthIs(true)).row("web").Seen
	contains(t, ps("--json"), `"healthy": true,`, `"ready": true,`)
	status.Store(http.StatusServiceUnavailable)
	c.until("it is unhealthy", healthIs(false))
	contains(t, ps("--json"), `"healthy": false,`, `"ready": false,`, "/health answers with status 503")
	contains(t, ps(), "unhealthy", "answers with status 503")
	status1 := c.command("status")
	status1.Args[0] = "gpuard"
	contains(t, run(t, status1).out, "/web", "unhealthy: ", "answers with status 503")
	c.killAll("web")
	c.do("up")
	second := c.until("it is found again", healthIs(false)).row("web").Seen
	same(t, "process", second.Main, first.Main)
	status.Store(http.StatusOK)
	third := c.until("it is healthy again", healthIs(true)).row("web").Seen
	same(t, "process and reason", fmt.Sprint(third.Main, third.Why), fmt.Sprint(first.Main, ""))
	log := c.command("logs")
	log.Args[0] = "gpuard"
	contains(t, run(t, log).out, "the service is unhealthy: ", "the service is healthy again")
	c.do("down")
	c.until("all is over", nothing)
	c.check()
}

// TestServicesUnhealthyRestart: with restart an unhealthy service is ended and started again, also when its keeper was
// killed meanwhile, and counts as failed after the limit.
func TestServicesUnhealthyRestart(t *testing.T) {
	t.Parallel()
	port, status := answering(t)
	check := fmt.Sprintf("ready: {log: ^ready}, healthy: {http: %s/health, interval: 50ms}", port)
	c := newTeam(t, "demo:1xL4", "services:\n  web: {command: [sh, -c, \"trap '' TERM; echo ready; while :; do sleep 0.1; done\"], grace: 5s, restart: always, "+check+"}\n")
	c.do("up")
	first := c.until("it is healthy", healthIs(true)).row("web").Seen
	status.Store(http.StatusServiceUnavailable)
	c.until("it is unhealthy", healthIs(false))
	c.killAll("web")
	c.do("up")
	c.until("it is ended", func(s *sight) bool { return s.row("web").Seen.Restarts > 0 })
	status.Store(http.StatusOK)
	c.until("it is healthy again", func(s *sight) bool { return healthIs(true)(s) && s.row("web").Seen.Main != first.Main })
	c.do("kill")
	c.until("all is over", nothing)

	status.Store(http.StatusServiceUnavailable)
	c.write("services:\n  web: {command: [alone], restart: on-failure:2, " + check + "}\n")
	c.do("up")
	last := c.until("it has failed", func(s *sight) bool { return s.row("web").Fresh && s.row("web").Seen.State == service.Failed })
	contains(t, last.row("web").Seen.Why, "unhealthy: ", "status 503, and it is not started again: it ended 3 times in a row (restart: on-failure:2)")
	same(t, "restarts", last.row("web").Seen.Restarts, 2)
	c.until("all is over", nothing)
	c.check()
}

// TestServicesLoopOutlastsALock: a service that is to be started again is not given up because another process keeps the
// lock of the lease folder for too long.
func TestServicesLoopOutlastsALock(t *testing.T) {
	t.Parallel()
	c := newTeam(t, "demo:1xL4", "services:\n  web: {command: [sh, -c, exit 4], restart: always}\n")
	c.do("up")
	looping := func(more int) func(*sight) bool {
		return func(s *sight) bool {
			web := s.row("web").Seen
			return web.State == service.Restarting && web.Streak > more && web.Lease == ""
		}
	}
	before := c.until("it ends again and again", looping(3)).row("web").Seen.Streak
	locks, _ := filepath.Glob(filepath.Join(c.state, "machines", "*", "lock"))
	if len(locks) != 1 {
		t.Fatalf("locks: %v", locks)
	}
	keeper := program(t, c.state, nil, locks[0])
	keeper.Args[0] = "keeplock"
	in, err := keeper.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the lock is taken", begin(t, keeper), "locked <nil>")
	time.Sleep(time.Second) // a claim waits for 300 ms
	_ = in.Close()
	_ = keeper.Wait()
	c.until("it is started again", looping(before+1))
	c.do("down")
}

// TestServicesLoopFreesGPU: a service that ends again and again has no GPU until its next start.
func TestServicesLoopFreesGPU(t *testing.T) {
	t.Parallel()
	c := newTeam(t, "demo:1xL4", "services:\n  web: {command: [sh, -c, \"[ -e $ALONE/good ] && exec sleep 1014; exit 4\"], restart: always}\n")
	c.do("up")
	s := c.until("it ends again and again", func(s *sight) bool {
		web := s.row("web").Seen
		return web.State == service.Restarting && web.Streak > 3 && web.Lease == ""
	})
	same(t, "devices", len(s.row("web").Seen.Devices), 0)
	other := c.command("run", "-q", "--", "sh", "-c", "touch $ALONE/has; until [ -e $ALONE/over ]; do sleep 0.1; done")
	other.Args[0] = "gpuard"
	over := make(chan result, 1)
	go func() { over <- run(t, other) }()
	eventually(t, "the other job has the GPU", func() bool { _, err := os.Stat(c.traces + "/has"); return err == nil })
	s = c.until("it waits", func(s *sight) bool { return s.row("web").Seen.State == service.Waiting })
	contains(t, s.row("web").Seen.Why, "GPU")
	for _, name := range []string{"good", "over"} {
		if err := os.WriteFile(c.traces+"/"+name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "the other job", (<-over).code, 0)
	s = c.until("it runs", settled(1))
	same(t, "devices", len(s.row("web").Seen.Devices), 1)
	c.do("down")
	c.until("all is over", nothing)
}

// TestServicesLimitKilled: restarts in a row are counted on when the gpuard beside the service is killed.
func TestServicesLimitKilled(t *testing.T) {
	t.Parallel()
	c := newTeam(t, "demo:1xL4", "services:\n  web: {command: [sh, -c, \"until rm $ALONE/end 2>/dev/null; do sleep 0.1; done; exit 4\"], restart: always:2}\n")
	end := func() {
		if err := os.WriteFile(c.traces+"/end", nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runs := func(restarts int) func(*sight) bool {
		return func(s *sight) bool {
			web := s.row("web").Seen
			return web.State == service.Running && web.Restarts == restarts && web.Main.PID != 0
		}
	}
	c.do("up")
	c.until("it runs", runs(0))
	end()
	c.until("it runs again", runs(1))
	c.killAll("web")
	c.do("up")
	c.until("it is found", func(s *sight) bool { return runs(1)(s) && s.row("web").Seen.Kept })
	end()
	c.until("it runs a third time", runs(2))
	end()
	last := c.until("it has failed", func(s *sight) bool { return s.row("web").Seen.State == service.Failed })
	contains(t, last.row("web").Seen.Why, "it ended 3 times in a row (restart: always:2)")
	c.until("all is over", nothing)
	c.check()
}

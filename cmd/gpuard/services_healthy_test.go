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

// startHealthServer is a server for health checks, and the status of its answers.
func startHealthServer(t *testing.T) (port string, status *atomic.Int32) {
	t.Helper()
	status = &atomic.Int32{}
	status.Store(http.StatusOK)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) }))
	t.Cleanup(server.Close)
	return server.URL[strings.LastIndex(server.URL, ":")+1:], status
}

// killKeepers kills the supervisor and the keepers of a team, and waits until one instance is left alone.
func (c *exclusiveProject) killKeepers(name string) {
	c.t.Helper()
	for _, what := range []string{"project-supervise", "project-keep"} {
		for _, pid := range c.processesOf(what) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	c.waitForView("its keeper is gone", func(s *projectView) bool { return !s.Supervised && s.findInstance(name).Seen.Orphaned })
}

func healthIs(healthy bool) func(*projectView) bool {
	return func(s *projectView) bool {
		h := s.findInstance("web").Seen.Healthy
		return areInstancesSettled(1)(s) && h != nil && *h == healthy
	}
}

// TestServicesUnhealthy: a service that answers with 503 after it was ready is unhealthy, also for a new keeper after
// kill -9, and healthy again later. Without restart it continues to run.
func TestServicesUnhealthy(t *testing.T) {
	t.Parallel()
	port, status := startHealthServer(t)
	c := newExclusiveProject(t, "demo:1xL4", fmt.Sprintf("services:\n  web: {command: [alone], healthy: {http: %s/health, interval: 50ms, failures: 2}}\n", port))
	ps := func(args ...string) string {
		cmd := c.servicesCommand(append([]string{"ps"}, args...)...)
		cmd.Args[0] = "gpuard"
		return runCommand(t, cmd).out
	}
	c.mustRunTool("up")
	first := c.waitForView("it is healthy", healthIs(true)).findInstance("web").Seen
	checkContains(t, ps("--json"), `"healthy": true,`, `"ready": true,`)
	status.Store(http.StatusServiceUnavailable)
	c.waitForView("it is unhealthy", healthIs(false))
	checkContains(t, ps("--json"), `"healthy": false,`, `"ready": false,`, "/health answers with status 503")
	checkContains(t, ps(), "unhealthy", "answers with status 503")
	status1 := c.servicesCommand("status")
	status1.Args[0] = "gpuard"
	checkContains(t, runCommand(t, status1).out, "/web", "unhealthy: ", "answers with status 503")
	c.killKeepers("web")
	c.mustRunTool("up")
	second := c.waitForView("it is found again", healthIs(false)).findInstance("web").Seen
	checkEqual(t, "process", second.Main, first.Main)
	status.Store(http.StatusOK)
	third := c.waitForView("it is healthy again", healthIs(true)).findInstance("web").Seen
	checkEqual(t, "process and reason", fmt.Sprint(third.Main, third.Why), fmt.Sprint(first.Main, ""))
	log := c.servicesCommand("logs")
	log.Args[0] = "gpuard"
	checkContains(t, runCommand(t, log).out, "the service is unhealthy: ", "the service is healthy again")
	c.mustRunTool("down")
	c.waitForView("all is over", isNothingLeft)
	c.checkViolations()
}

// TestServicesUnhealthyRestart: with restart an unhealthy service is ended and started again, also when its keeper was
// killed meanwhile, and counts as failed after the limit.
func TestServicesUnhealthyRestart(t *testing.T) {
	t.Parallel()
	port, status := startHealthServer(t)
	check := fmt.Sprintf("ready: {log: ^ready}, healthy: {http: %s/health, interval: 50ms}", port)
	c := newExclusiveProject(t, "demo:1xL4", "services:\n  web: {command: [sh, -c, \"trap '' TERM; echo ready; while :; do sleep 0.1; done\"], grace: 5s, restart: always, "+check+"}\n")
	c.mustRunTool("up")
	first := c.waitForView("it is healthy", healthIs(true)).findInstance("web").Seen
	status.Store(http.StatusServiceUnavailable)
	c.waitForView("it is unhealthy", healthIs(false))
	c.killKeepers("web")
	c.mustRunTool("up")
	c.waitForView("it is ended", func(s *projectView) bool { return s.findInstance("web").Seen.Restarts > 0 })
	status.Store(http.StatusOK)
	c.waitForView("it is healthy again", func(s *projectView) bool { return healthIs(true)(s) && s.findInstance("web").Seen.Main != first.Main })
	c.mustRunTool("kill")
	c.waitForView("all is over", isNothingLeft)

	status.Store(http.StatusServiceUnavailable)
	c.writeProjectFile("services:\n  web: {command: [alone], restart: on-failure:2, " + check + "}\n")
	c.mustRunTool("up")
	last := c.waitForView("it has failed", func(s *projectView) bool {
		return s.findInstance("web").Fresh && s.findInstance("web").Seen.State == service.Failed
	})
	checkContains(t, last.findInstance("web").Seen.Why, "unhealthy: ", "status 503, and it is not started again: it ended 3 times in a row (restart: on-failure:2)")
	checkEqual(t, "restarts", last.findInstance("web").Seen.Restarts, 2)
	c.waitForView("all is over", isNothingLeft)
	c.checkViolations()
}

// TestServicesLoopOutlastsALock: a service that is to be started again is not given up because another process keeps the
// lock of the lease folder for too long.
func TestServicesLoopOutlastsALock(t *testing.T) {
	t.Parallel()
	c := newExclusiveProject(t, "demo:1xL4", "services:\n  web: {command: [sh, -c, exit 4], restart: always}\n")
	c.mustRunTool("up")
	looping := func(more int) func(*projectView) bool {
		return func(s *projectView) bool {
			web := s.findInstance("web").Seen
			return web.State == service.Restarting && web.Streak > more && web.Lease == ""
		}
	}
	before := c.waitForView("it ends again and again", looping(3)).findInstance("web").Seen.Streak
	locks, _ := filepath.Glob(filepath.Join(c.state, "machines", "*", "lock"))
	if len(locks) != 1 {
		t.Fatalf("locks: %v", locks)
	}
	keeper := gpuardCommand(t, c.state, nil, locks[0])
	keeper.Args[0] = "keeplock"
	in, err := keeper.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	checkEqual(t, "the lock is taken", startToFirstLine(t, keeper), "locked <nil>")
	time.Sleep(time.Second) // a claim waits for 300 ms
	_ = in.Close()
	_ = keeper.Wait()
	c.waitForView("it is started again", looping(before+1))
	c.mustRunTool("down")
}

// TestServicesLoopFreesGPU: a service that ends again and again has no GPU until its next start.
func TestServicesLoopFreesGPU(t *testing.T) {
	t.Parallel()
	c := newExclusiveProject(t, "demo:1xL4", "services:\n  web: {command: [sh, -c, \"[ -e $ALONE/good ] && exec sleep 1014; exit 4\"], restart: always}\n")
	c.mustRunTool("up")
	s := c.waitForView("it ends again and again", func(s *projectView) bool {
		web := s.findInstance("web").Seen
		return web.State == service.Restarting && web.Streak > 3 && web.Lease == ""
	})
	checkEqual(t, "devices", len(s.findInstance("web").Seen.Devices), 0)
	other := c.servicesCommand("run", "-q", "--", "sh", "-c", "touch $ALONE/has; until [ -e $ALONE/over ]; do sleep 0.1; done")
	other.Args[0] = "gpuard"
	over := make(chan runResult, 1)
	go func() { over <- runCommand(t, other) }()
	waitUntil(t, "the other job has the GPU", func() bool { _, err := os.Stat(c.traces + "/has"); return err == nil })
	s = c.waitForView("it waits", func(s *projectView) bool { return s.findInstance("web").Seen.State == service.Waiting })
	checkContains(t, s.findInstance("web").Seen.Why, "GPU")
	for _, name := range []string{"good", "over"} {
		if err := os.WriteFile(c.traces+"/"+name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	checkEqual(t, "the other job", (<-over).code, 0)
	s = c.waitForView("it runs", areInstancesSettled(1))
	checkEqual(t, "devices", len(s.findInstance("web").Seen.Devices), 1)
	c.mustRunTool("down")
	c.waitForView("all is over", isNothingLeft)
}

// TestServicesLimitKilled: restarts in a row are counted on when the gpuard beside the service is killed.
func TestServicesLimitKilled(t *testing.T) {
	t.Parallel()
	c := newExclusiveProject(t, "demo:1xL4", "services:\n  web: {command: [sh, -c, \"until rm $ALONE/end 2>/dev/null; do sleep 0.1; done; exit 4\"], restart: always:2}\n")
	end := func() {
		if err := os.WriteFile(c.traces+"/end", nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runs := func(restarts int) func(*projectView) bool {
		return func(s *projectView) bool {
			web := s.findInstance("web").Seen
			return web.State == service.Running && web.Restarts == restarts && web.Main.PID != 0
		}
	}
	c.mustRunTool("up")
	c.waitForView("it runs", runs(0))
	end()
	c.waitForView("it runs again", runs(1))
	c.killKeepers("web")
	c.mustRunTool("up")
	c.waitForView("it is found", func(s *projectView) bool { return runs(1)(s) && s.findInstance("web").Seen.Kept })
	end()
	c.waitForView("it runs a third time", runs(2))
	end()
	last := c.waitForView("it has failed", func(s *projectView) bool { return s.findInstance("web").Seen.State == service.Failed })
	checkContains(t, last.findInstance("web").Seen.Why, "it ended 3 times in a row (restart: always:2)")
	c.waitForView("all is over", isNothingLeft)
	c.checkViolations()
}

package services

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/service"
)

// serving writes that it began, and its restart, and serves until it is ended.
const serving = `echo "$$ ${GPUARD_RESTART:-0}" >>$T/began; exec sleep 60`

// TestUp: a service is started when what it depends on is ready; what has not changed goes on, what has begins anew, and what is not in the
// file any more ends.
func TestUp(t *testing.T) {
	t.Parallel()
	tr := newTrial(t)
	db := script("db", serving)
	db.Ready = &service.Ready{Probe: untilFile("ready"), Interval: 20 * time.Millisecond}
	app := script("app", "echo app >>$T/order; exec sleep 60")
	app.After = []service.Dependency{{Service: "db", Until: service.UntilReady}}
	if got, want := tr.up(db, app), (&Change{Start: []string{"db", "app"}, Stay: []string{}, End: []string{}}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	first := tr.awaitState("db", service.Running)
	tr.await("it says that it is not ready", func() bool { return strings.HasPrefix(tr.row("db").Why, "not ready: ") })
	if r := tr.row("app"); r.Kept || len(tr.lines("order")) > 0 {
		t.Errorf("it began before what it depends on was ready: %+v", r)
	}
	tr.write("ready")
	tr.awaitState("app", service.Running)
	if got := tr.up(db, app); len(got.Stay) != 2 || len(got.Start)+len(got.End) != 0 {
		t.Errorf("nothing has changed: %+v", got)
	}
	changed := script("db", serving+"; exit 1")
	changed.Ready = db.Ready
	if got := tr.up(changed); len(got.Start) != 1 || len(got.End) != 1 || got.End[0] != "app" {
		t.Errorf("one has changed and one is gone: %+v", got)
	}
	tr.await("it runs anew", func() bool {
		r := tr.row("db")
		return r.State == service.Running && r.Fresh && r.Main.PID != first.Main.PID
	})
	tr.await("the other has ended", func() bool { return len(tr.look().Rows) == 1 })
	if !isGone(first.Main.PID) {
		t.Error("the one before it is still there")
	}
	if err := tr.folder().Restart(t.Context(), []string{"db"}); err != nil {
		t.Error(err)
	}
	tr.awaitBegan(3)
	tr.down(false)
}

// isGone reports whether the process is over.
func isGone(pid int) bool { return syscall.Kill(pid, 0) != nil }

// TestEnds: how a service ended for good is written down, and how often it was started again.
func TestEnds(t *testing.T) {
	t.Parallel()
	restarted := func(rule service.Restart, limit int, s service.Service) service.Service {
		s.Restart, s.Limit = rule, limit
		return s
	}
	timeout := service.Flag{Name: "timeout", Value: "300ms"}
	away := script("away", "exit 0")
	away.WorkDir = "/nowhere"
	ends := []struct {
		service  service.Service
		state    service.State
		restarts int
		why      string
	}{
		{script("good", "exit 0"), service.Done, 0, ""},
		{script("bad", "exit 3"), service.Failed, 0, "exit 3"},
		{script("signal", "kill -USR1 $$"), service.Failed, 0, "ended by SIGUSR1"},
		{restarted(service.OnFailure, 2, script("twice", `echo "${GPUARD_RESTART:-0}" >>$T/twice; exit 4`)), service.Failed, 2, "exit 4, and it is not started again: it ended 3 times in a row (restart: on-failure:2)"},
		{restarted(service.OnFailure, 0, script("mended", `test "$GPUARD_RESTART" = 2`)), service.Done, 2, ""},
		{script("late", "sleep 60", timeout), service.Failed, 0, "its time was over (timeout: 300ms)"},
		{restarted(service.OnFailure, 0, script("again", "sleep 60", timeout)), service.Failed, 0, "its time was over (timeout: 300ms)"},
	}
	tr := newTrial(t)
	var list []service.Service
	for _, e := range ends {
		list = append(list, e.service)
	}
	tr.up(list...)
	for _, e := range ends {
		if r := tr.awaitState(e.service.Name, e.state); r.Restarts != e.restarts || r.Why != e.why {
			t.Errorf("%s: %d restarts, %q, want %d, %q", e.service.Name, r.Restarts, r.Why, e.restarts, e.why)
		}
	}
	if got := strings.Join(tr.lines("twice"), " "); got != "0 1 2" {
		t.Errorf("GPUARD_RESTART was %s", got)
	}
}

// TestKeeperKilled: the command of a killed keeper runs on, and another keeper looks after it: when the command is killed, it is started
// again.
func TestKeeperKilled(t *testing.T) {
	t.Parallel()
	tr := newTrial(t)
	s := script("web", serving)
	s.Restart = service.OnFailure
	tr.up(s)
	before := tr.awaitState("web", service.Running)
	tr.kill(before.Keeper.PID)
	tr.await("another keeper has it", func() bool {
		r := tr.row("web")
		return r.Kept && r.State == service.Running && r.Keeper != before.Keeper
	})
	tr.awaitBegan(1)
	if now := tr.row("web"); now.Main != before.Main || len(tr.lines("began")) != 1 {
		t.Errorf("%+v, before %+v; began %q", now.Main, before.Main, tr.lines("began"))
	}
	tr.kill(before.Main.PID)
	tr.await("it is started again", func() bool {
		r := tr.row("web")
		return r.State == service.Running && r.Main.PID != before.Main.PID && r.Restarts == 1
	})
	tr.awaitBegan(2)
	tr.down(false)
	if began := tr.lines("began"); len(began) != 2 {
		t.Errorf("began %q", began)
	}
}

// TestEndsAfterItsKeeper: how a command ends whose keeper was killed is known where the kernel says it; else it counts as a failure.
func TestEndsAfterItsKeeper(t *testing.T) {
	t.Parallel()
	ends := []struct {
		name, code string
		restart    service.Restart
		state      service.State
		begun      int    // how often, where the kernel says how it ended
		why        string // likewise
	}{
		{"good", "0", service.OnFailure, service.Done, 1, ""},
		{"bad", "3", service.Never, service.Failed, 1, "exit 3"},
		{"again", "3", service.OnFailure, service.Done, 2, ""},
	}
	tr := newTrial(t)
	var list []service.Service
	for _, e := range ends {
		s := script(e.name, "echo $$ >>$T/"+e.name+"; test -e $T/go && exit 0; until test -e $T/go || ! test -d $T; do sleep 0.01; done; exit "+e.code)
		s.Restart = e.restart
		list = append(list, s)
	}
	tr.up(list...)
	for _, e := range ends {
		before := tr.awaitState(e.name, service.Running)
		tr.kill(before.Keeper.PID)
		tr.await("another keeper has it", func() bool {
			r := tr.row(e.name)
			return r.Kept && r.Keeper != before.Keeper && r.State == service.Running && r.Main == before.Main
		})
	}
	tr.write("go")
	for _, e := range ends {
		r := tr.awaitState(e.name, e.state)
		if begun := len(tr.lines(e.name)); kernelTells(t) && (begun != e.begun || r.Why != e.why) {
			t.Errorf("%s began %d times, %q", e.name, begun, r.Why)
		}
	}
}

// kernelTells reports whether the kernel says how a process ended to others than its parent.
func kernelTells(t *testing.T) bool {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	major, minor := 0, 0
	_, _ = fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	return major > 6 || major == 6 && minor >= 15
}

// TestKeeperAndCommandKilled: where both are killed at the same moment the command is started again, once.
func TestKeeperAndCommandKilled(t *testing.T) {
	t.Parallel()
	tr := newTrial(t)
	s := script("web", serving)
	s.Restart = service.OnFailure
	tr.up(s)
	before := tr.awaitState("web", service.Running)
	tr.awaitBegan(1)
	tr.kill(before.Keeper.PID)
	tr.kill(before.Main.PID)
	tr.await("it is started again", func() bool {
		r := tr.row("web")
		return r.State == service.Running && r.Main.PID != before.Main.PID && r.Main.PID > 0
	})
	tr.awaitBegan(2)
	tr.down(false)
	if began := tr.lines("began"); len(began) != 2 {
		t.Errorf("began %q", began)
	}
}

// TestUnreadableAfterItsKeeper: a command whose keeper was killed is ended as it was started, with its signal and its
// grace, also where what it asks for cannot be read now.
func TestUnreadableAfterItsKeeper(t *testing.T) {
	t.Parallel()
	tr := newTrial(t)
	tr.up(script("web", "trap 'echo asked >>$T/asked; exit 0' TERM; echo $$ >>$T/began; while test -d $T; do sleep 0.01; done", service.Flag{Name: "grace", Value: "1m"}))
	before := tr.awaitState("web", service.Running)
	tr.awaitBegan(1)
	tr.write("unreadable")
	tr.kill(before.Keeper.PID)
	tr.await("another keeper has it", func() bool {
		r := tr.row("web")
		return r.Kept && r.Keeper != before.Keeper && r.State == service.Running && r.Main == before.Main
	})
	tr.down(false)
	if asked := tr.lines("asked"); len(asked) != 1 {
		t.Errorf("it was asked %d times to end", len(asked))
	}
}

// TestEndedWhileItIsRead: an instance is ended also while its keeper waits for a driver that does not answer, and is not
// started when that answers.
func TestEndedWhileItIsRead(t *testing.T) {
	t.Parallel()
	tr := newTrial(t)
	tr.write("hangs")
	tr.up(script("web", serving))
	reader := 0
	tr.await("its keeper reads", func() bool {
		reader = tr.keeperPID()
		return reader != 0
	})
	if err := tr.folder().Down(t.Context(), nil, true); err != nil {
		t.Fatal(err)
	}
	tr.await("nothing is up", func() bool { return len(tr.look().Rows) == 0 })
	if err := os.Remove(filepath.Join(tr.dir, "hangs")); err != nil {
		t.Fatal(err)
	}
	tr.await("its keeper has ended", func() bool { return isGone(reader) })
	if began := tr.lines("began"); len(began) != 0 {
		t.Errorf("began %q", began)
	}
}

// TestSupervisorKilled: services go on without a supervisor, and the next one starts none of them a second time.
func TestSupervisorKilled(t *testing.T) {
	t.Parallel()
	tr := newTrial(t)
	tr.up(script("one", serving), script("two", serving))
	one, two := tr.awaitState("one", service.Running), tr.awaitState("two", service.Running)
	stat, err := tr.projects.Host.Proc.Stat(one.Keeper.PID)
	if err != nil {
		t.Fatal(err)
	}
	words := tr.projects.Host.Proc.Arguments(stat.PPID)
	if len(words) < 2 || words[1] != "project-supervise" {
		t.Fatalf("the parent of a keeper is %q", words)
	}
	tr.kill(stat.PPID)
	tr.await("another supervisor is there", func() bool { v := tr.look(); return v.Supervised && isGone(stat.PPID) })
	if now := tr.row("one"); now.Main != one.Main || tr.row("two").Main != two.Main {
		t.Errorf("%+v, before %+v", now, one)
	}
	tr.awaitBegan(2)
	tr.down(false)
	if began := tr.lines("began"); len(began) != 2 {
		t.Errorf("began %q", began)
	}
}

// TestUnhealthy: a service whose check fails is started again, and said to be unhealthy meanwhile where it is not.
func TestUnhealthy(t *testing.T) {
	t.Parallel()
	tr := newTrial(t)
	check := &service.Healthy{Probe: untilFile("well"), Interval: 20 * time.Millisecond, Timeout: 5 * time.Second, Failures: 2}
	ends, stays := script("ends", serving), script("stays", serving)
	ends.Healthy, ends.Restart, ends.Limit, stays.Healthy = check, service.OnFailure, 1, check
	ends.Ready = &service.Ready{Probe: untilFile("began"), Interval: 20 * time.Millisecond}
	tr.write("well")
	tr.up(ends, stays)
	healthy := func(name string) bool { r := tr.row(name); return r.Seen.Healthy != nil && *r.Seen.Healthy }
	tr.await("both are healthy", func() bool { return healthy("ends") && healthy("stays") })
	first := tr.row("stays")
	if err := syscall.Unlink(tr.dir + "/well"); err != nil {
		t.Fatal(err)
	}
	if r := tr.awaitState("ends", service.Failed); r.Restarts != 1 || !strings.Contains(r.Why, "unhealthy: ") {
		t.Errorf("%d restarts, %s", r.Restarts, r.Why)
	}
	tr.await("the other is unhealthy, and runs", func() bool {
		r := tr.row("stays")
		return r.State == service.Running && r.Main == first.Main && r.Seen.Healthy != nil && !*r.Seen.Healthy
	})
	tr.write("well")
	tr.await("it is healthy again", func() bool { return healthy("stays") })
}

// TestDownStubborn: what does not end when it is asked is killed after its grace, with what it has started; at once where it is to be.
func TestDownStubborn(t *testing.T) {
	t.Parallel()
	tr := newTrial(t)
	tr.up(script("deaf", "trap '' TERM; sleep 60 & echo $! >$T/child; wait; sleep 60"))
	r := tr.awaitState("deaf", service.Running)
	tr.await("it has a child", func() bool { return len(tr.lines("child")) == 1 })
	child, err := strconv.Atoi(tr.lines("child")[0])
	if err != nil {
		t.Fatal(err)
	}
	tr.down(false)
	if !isGone(r.Main.PID) || !isGone(child) {
		t.Errorf("process %d, or its child %d, is still there", r.Main.PID, child)
	}
}

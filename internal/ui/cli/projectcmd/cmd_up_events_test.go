package projectcmd

import (
	"slices"
	"testing"
	"time"

	"gpuard/internal/app/services"
	"gpuard/internal/core/service"
	"gpuard/test/golden"
)

// TestTeller compares successive views of a project.
func TestTeller(t *testing.T) {
	ready := func(r *services.Row) { r.Ready = &service.Ready{Probe: service.Probe{TCP: "8001"}} }
	notReady := func(r *services.Row) { ready(r); r.Seen.Ready = false }
	ill := func(r *services.Row) { r.Seen.Healthy, r.Why = new(false), "it answers with status 503" }
	held := func(why string) func(*services.Row) {
		return func(r *services.Row) { r.Kept, r.Why = false, why }
	}
	node := func(state service.State, change func(*services.Row)) services.Row {
		return instance("node", 0, state, 42, time.Minute, nil, change)
	}
	gpu0 := given(t, 0)
	tell := &eventFinder{only: everything}
	for i, look := range []struct {
		rows []services.Row
		want []string
	}{
		{nil, nil},
		{[]services.Row{node(service.Done, func(r *services.Row) { r.Fresh = false })}, nil}, // of an earlier start
		{[]services.Row{node(service.Starting, nil), instance("web", -1, service.Waiting, 0, 0, nil, held("waits for node-0 to be ready"))}, nil},
		{[]services.Row{node(service.Waiting, func(r *services.Row) { r.Why = "all 4 GPUs are leased" }), instance("web", -1, service.Waiting, 0, 0, nil, held("waits for node-0 to be ready"))}, []string{"node-0 waits: all 4 GPUs are leased"}},
		{[]services.Row{node(service.Running, func(r *services.Row) { notReady(r); r.Devices = gpu0 })}, []string{"node-0 started on GPU 0 (NVIDIA A100-SXM4-80GB)"}},
		{[]services.Row{node(service.Running, func(r *services.Row) { notReady(r); r.Devices, r.Why = gpu0, "no program listens at 127.0.0.1:8001" })}, nil},
		{[]services.Row{node(service.Running, func(r *services.Row) { ready(r); r.Devices = gpu0 }), instance("web", -1, service.Running, 7, 0, nil, ready)}, []string{"node-0 is ready", "web started without a GPU, and is ready"}},
		{[]services.Row{node(service.Running, func(r *services.Row) { ready(r); r.Devices = gpu0 }), instance("web", -1, service.Running, 7, 0, nil, ready)}, nil},
		{[]services.Row{node(service.Running, func(r *services.Row) { ill(r); r.Devices = gpu0 })}, []string{"web ended", "node-0 is unhealthy: it answers with status 503"}},
		{[]services.Row{node(service.Running, func(r *services.Row) { ready(r); r.Devices = gpu0 })}, []string{"node-0 is healthy again"}},
		{[]services.Row{node(service.Restarting, func(r *services.Row) { r.Exit, r.Since = new(3), golden.Now })}, []string{"node-0 ended with exit code 3, and is started again"}},
		{[]services.Row{node(service.Running, func(r *services.Row) { r.Devices, r.Restarts, r.Since = gpu0, 1, golden.Now })}, []string{"node-0 started on GPU 0 (NVIDIA A100-SXM4-80GB), 1 restart"}},
		{[]services.Row{node(service.Running, func(r *services.Row) { r.Devices, r.Restarts, r.Since = gpu0, 2, golden.Now.Add(time.Second) })}, []string{"node-0 started on GPU 0 (NVIDIA A100-SXM4-80GB), 2 restarts"}},
		{[]services.Row{node(service.Failed, func(r *services.Row) { r.Signal = "SIGSEGV" })}, []string{"node-0 failed: ended by SIGSEGV"}},
		{[]services.Row{node(service.Failed, func(r *services.Row) { r.Signal = "SIGSEGV" }), instance("web", -1, service.Waiting, 0, 0, nil, held("waits for node-0, which failed"))}, []string{"web waits for node-0, which failed"}},
		{[]services.Row{node(service.Refused, func(r *services.Row) { r.Why = "no GPU has 200 GiB" })}, []string{"node-0 cannot be started: no GPU has 200 GiB"}},
		{nil, nil},
	} {
		var got []string
		for _, h := range tell.findEvents(&services.View{Rows: look.rows}) {
			got = append(got, h.name+" "+h.text)
		}
		if !slices.Equal(got, look.want) {
			t.Errorf("look %d: %q, want %q", i, got, look.want)
		}
	}
}

// TestTellerEnds: an end is reported once, whatever states follow, and after the ends of the dependents.
func TestTellerEnds(t *testing.T) {
	doomed := func(name string, state service.State, kept, orphaned bool) services.Row {
		return instance(name, -1, state, 0, 0, nil, func(r *services.Row) { r.Wanted, r.Fresh, r.Kept, r.Orphaned = false, false, kept, orphaned })
	}
	running := []services.Row{instance("db", -1, service.Running, 1, 0, nil, nil), instance("api", -1, service.Running, 2, 0, nil, nil), instance("web", -1, service.Running, 3, 0, nil, nil)}
	all := []string{"web ended", "api ended", "db ended"}
	for _, c := range []struct {
		name  string
		looks [][]services.Row
	}{
		{"gone immediately", [][]services.Row{{}}},
		{"seen as ended", [][]services.Row{{doomed("api", service.Done, true, false), doomed("db", service.Done, true, false)}, {}}},
		{"seen without a record", [][]services.Row{{doomed("db", service.Done, true, false)}, {doomed("db", "", true, false)}, {}}},
		{"seen at last without a record", [][]services.Row{{doomed("db", "", false, false)}, {}}},
		{"seen with processes", [][]services.Row{{doomed("db", service.Done, true, false)}, {doomed("db", service.Done, false, true)}, {}}},
	} {
		tell := &eventFinder{only: everything}
		tell.findEvents(&services.View{Rows: running})
		var got []string
		for _, rows := range c.looks {
			for _, h := range tell.findEvents(&services.View{Rows: rows}) {
				got = append(got, h.name+" "+h.text)
			}
		}
		if !slices.Equal(got, all) {
			t.Errorf("%s: %q, want %q", c.name, got, all)
		}
	}
	tell := &eventFinder{only: everything}
	for range 2 { // it may start and end again
		tell.findEvents(&services.View{Rows: running[:1]})
		if got := tell.findEvents(&services.View{}); len(got) != 1 {
			t.Errorf("told %v, want one end", got)
		}
	}
}

// TestBegun: the states for which up -d waits, and those for which it does not.
func TestBegun(t *testing.T) {
	on := func(needs string, kept bool) func(*services.Row) {
		return func(r *services.Row) {
			r.Kept = kept
			if needs != "" {
				r.After = []service.Dependency{{Service: needs, Until: service.UntilReady}}
			}
		}
	}
	a := func(state service.State) services.Row { return instance("a", -1, state, 0, 0, nil, nil) }
	b := instance("b", -1, service.Waiting, 0, 0, nil, on("a", false))
	c := instance("c", -1, service.Waiting, 0, 0, nil, on("b", false))
	for _, look := range []struct {
		name string
		rows []services.Row
		want string
	}{
		{"nothing", nil, ""},
		{"all run", []services.Row{a(service.Running)}, ""},
		{"still starts", []services.Row{a(service.Starting)}, "a is starting"},
		{"waits for one that starts", []services.Row{a(service.Starting), b, c}, "a is starting"},
		{"in line for a GPU", []services.Row{a(service.Waiting)}, ""},
		{"waits for one in line", []services.Row{a(service.Waiting), b, c}, ""},
		{"waits for one that failed", []services.Row{a(service.Failed), b, c}, ""},
		{"waits for one that fails again and again", []services.Row{a(service.Restarting), b, c}, ""},
		{"waits for one that is unhealthy", []services.Row{instance("a", -1, service.Running, 1, 0, nil, func(r *services.Row) { r.Seen.Healthy = new(false) }), b, c}, ""},
		{"is about to start", []services.Row{a(service.Running), b, c}, "b waits: "},
		{"is of the time before", []services.Row{instance("a", -1, service.Running, 1, 0, nil, func(r *services.Row) { r.Fresh = false })}, "a runs"},
	} {
		got := ""
		if row := slowestRow(&services.View{Rows: look.rows}, everything); row != nil {
			got = row.Name + " " + stateText(row)
		}
		if got != look.want {
			t.Errorf("%s: %q, want %q", look.name, got, look.want)
		}
	}
}

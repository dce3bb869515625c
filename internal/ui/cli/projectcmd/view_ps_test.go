package projectcmd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gpuard/internal/app/services"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/service"
	"gpuard/internal/ui/console"
	"gpuard/test/golden"
)

// given returns devices of the invented machine.
func given(t *testing.T, numbers ...int) (list []job.Given) {
	t.Helper()
	m := golden.InventMachine(t, "demo:4xA100-80GB")
	for i, n := range numbers {
		list = append(list, job.Given{UUID: m.Devices[n].UUID, Name: m.Devices[n].Name, Index: n, Logical: i})
	}
	return list
}

// instance is a wanted row with current settings; change may modify it.
func instance(name string, ordinal int, state service.State, pid int, ago time.Duration, on []job.Given, change func(*services.Row)) services.Row {
	full := name
	if ordinal >= 0 {
		full = fmt.Sprint(name, "-", ordinal)
	}
	r := services.Row{Instance: service.Instance{Name: full, Service: name, Ordinal: max(ordinal, 0)}, Wanted: true, Fresh: true}
	r.Record = service.Record{State: state, Ready: state == service.Running, Service: name, Main: service.Process{PID: pid}, Devices: on, Since: golden.Now.Add(-ago)}
	r.Kept = state != service.Done && state != service.Failed && state != service.Refused
	if change != nil {
		change(&r)
	}
	return r
}

func busyProject(t *testing.T) *services.View {
	return &services.View{Name: "lab", File: "/home/ann/lab/gpuard.yaml", Supervised: true, Rows: []services.Row{
		instance("node", 0, service.Running, 4242, 3*time.Hour, given(t, 0), nil),
		instance("node", 1, service.Running, 4243, 40*time.Second, given(t, 1), func(r *services.Row) { r.Restarts = 2 }),
		instance("video", -1, service.Running, 51000, 26*time.Hour, given(t, 2, 3), func(r *services.Row) {
			r.Seen.Ready, r.Why = false, "no program listens at 127.0.0.1:8001"
		}),
		instance("speech-to-text", -1, service.Running, 999, 5*time.Minute, given(t, 1), func(r *services.Row) { r.Share, r.Fresh = 8*gpu.GiB, false }),
		instance("prepare", -1, service.Done, 0, 2*time.Hour, nil, func(r *services.Row) { r.Exit = new(0) }),
		instance("web", -1, service.Running, 777, 12*time.Second, nil, nil),
		instance("train", -1, service.Waiting, 0, 4*time.Second, nil, func(r *services.Row) { r.Why = "all 4 GPUs are leased" }),
		instance("after", -1, service.Waiting, 0, 0, nil, func(r *services.Row) {
			r.Since, r.Kept, r.Why = time.Time{}, false, "waits for train to be ready"
		}),
		instance("huge", -1, service.Refused, 0, time.Minute, nil, func(r *services.Row) {
			r.Why = "cannot get 1 GPU: no GPU of this machine has 200 GiB of memory"
		}),
		instance("broken", -1, service.Failed, 0, 70*time.Minute, nil, func(r *services.Row) { r.Exit, r.Restarts = new(3), 5 }),
		instance("old\x1b[31m", -1, service.Ending, 888, time.Second, given(t, 3), func(r *services.Row) { r.Wanted = false }),
	}}
}

func everything(*services.Row) bool { return true }

func TestInstances(t *testing.T) {
	killed := busyProject(t)
	killed.Supervised = false
	killed.Rows = killed.Rows[:2]
	for name, view := range map[string]*services.View{"busy": busyProject(t), "killed": killed, "none": {Name: "lab"}} {
		for _, width := range []int{40, 80, 140} {
			var b strings.Builder
			console.Draw(&b, console.Term{Width: width, UTF8: true}, func(page *console.Page) { instancesView(page, view, everything, golden.Now) })
			for line := range strings.Lines(b.String()) {
				if n := console.CellWidth(strings.TrimSuffix(line, "\n")); n > width {
					t.Errorf("%s at %d columns has a line of %d: %s", name, width, n, line)
				}
			}
			golden.Compare(t, fmt.Sprintf("ps-%s-%d", name, width), b.String())
		}
	}
	var b strings.Builder
	console.Draw(&b, console.Term{Width: 80, Color: true}, func(page *console.Page) { instancesView(page, busyProject(t), everything, golden.Now) })
	golden.Compare(t, "ps-busy-color", b.String())
}

package doctor

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/check"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/host/proc"
)

// TestLookFailsAlone: a reading that hangs, panics or fails says so in its own answer, and the others are complete.
func TestLookFailsAlone(t *testing.T) {
	var said []string
	l := &readingSet{ctx: t.Context(), say: func(s string) { said = append(said, s) }}
	stuck := make(chan struct{})
	defer close(stuck)
	var fine, hung, broken, failed hostinfo.Answer[int]
	startReading(l, "what is fine", time.Minute, &fine, func(context.Context, *machine.Host) hostinfo.Answer[int] { return hostinfo.AnswerOf(7) })
	startReading(l, "what hangs", 20*time.Millisecond, &hung, func(context.Context, *machine.Host) hostinfo.Answer[int] {
		<-stuck
		l.sayLine("too late")
		return hostinfo.AnswerOf(8)
	})
	startReading(l, "what panics", time.Minute, &broken, func(context.Context, *machine.Host) hostinfo.Answer[int] { panic("oh no") })
	startReading(l, "what fails", time.Minute, &failed, func(context.Context, *machine.Host) hostinfo.Answer[int] {
		return hostinfo.NoAnswer[int]("permission denied")
	})
	l.awaitReadings()
	l.muteReadings()
	for got, want := range map[*hostinfo.Answer[int]]hostinfo.Answer[int]{
		&fine:   hostinfo.AnswerOf(7),
		&hung:   hostinfo.NoAnswer[int]("no answer within 20ms"),
		&broken: hostinfo.NoAnswer[int]("gpuard made a mistake (oh no); please report it"),
		&failed: hostinfo.NoAnswer[int]("permission denied"),
	} {
		if *got != want {
			t.Errorf("%+v and not %+v", *got, want)
		}
	}
	l.sayLine("after the answer")
	if len(said) > 0 || len(l.pending) > 0 {
		t.Errorf("said %q, and %q is pending", said, l.pending)
	}
}

// TestLookTellsWhatItWaitsFor: after a second the user is told what doctor waits for.
func TestLookTellsWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	said := make(chan string, 10)
	l := &readingSet{ctx: t.Context(), say: func(s string) { said <- s }}
	var slow, quick hostinfo.Answer[int]
	startReading(l, "the quick", time.Minute, &quick, func(context.Context, *machine.Host) hostinfo.Answer[int] { return hostinfo.AnswerOf(1) })
	startReading(l, "the slow", time.Minute, &slow, func(ctx context.Context, _ *machine.Host) hostinfo.Answer[int] {
		select {
		case text := <-said:
			return hostinfo.NoAnswer[int](text)
		case <-time.After(30 * time.Second):
			return hostinfo.NoAnswer[int]("nothing was said")
		}
	})
	l.awaitReadings()
	if slow.Problem != "still looking at the slow" {
		t.Error(slow.Problem)
	}
}

// TestDoctorElsewhere: about a machine that is not this computer, nothing of this computer is told.
func TestDoctorElsewhere(t *testing.T) {
	host := &machine.Host{Machine: "demo:2xL4", Messages: machine.Messages{Say: func(string) {}}, Env: []string{"GPUARD_STATE=" + t.TempDir()}}
	d, err := Diagnose(t.Context(), host, "", false)
	if err != nil || d.Runs == nil || !*d.Runs || !strings.Contains(d.Summary, "2 NVIDIA L4") {
		t.Errorf("%v %+v", err, d.Verdict)
	}
	if i := slices.IndexFunc(d.Findings, func(f check.Finding) bool { return f.Code == "container-gpus" }); i < 0 || d.Findings[i].Severity != check.Unknown {
		t.Errorf("whether this is a container is told of another machine: %+v", d.Findings[max(i, 0)])
	}
	if slices.ContainsFunc(d.Site.Cards.Found, func(hostinfo.Card) bool { return true }) || !strings.Contains(d.Site.Driver.Problem, "not looked") {
		t.Errorf("%+v", d.Site)
	}
	host.Machine = "no-such-file"
	if _, err := Diagnose(t.Context(), host, "", false); exit.PlainCode(err) != 2 {
		t.Errorf("a machine file that is not there: %v", err)
	}
}

// TestOwners: texts may name the owners of files in the state folder, so the scrubber knows them.
func TestOwners(t *testing.T) {
	folder := t.TempDir()
	if err := os.MkdirAll(filepath.Join(folder, "leases", "k3f9"), 0o700); err != nil {
		t.Fatal(err)
	}
	host := &machine.Host{Proc: proc.New("/proc")}
	me := host.Names(uint32(os.Geteuid()))
	for what, state := range map[string]hostinfo.State{
		"the folder itself": {Folder: folder}, "what lies above it": {Folder: filepath.Join(folder, "not", "there")}, "another folder": {Others: []string{folder}},
	} {
		if got := folderOwners(host, state); !slices.Contains(got, me) {
			t.Errorf("%s is owned by %s, and %q are told", what, me, got)
		}
	}
}

// TestBare: of a machine file, keys that gpuard does not know stay out of an archive, and the machine itself stays as
// it was.
func TestBare(t *testing.T) {
	extra := func() map[string]json.RawMessage { return map[string]json.RawMessage{"site": []byte(`"hush"`)} }
	m, err := gpu.InventMachine("demo:2xA100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	m.Extra, m.Devices[0].Extra = extra(), extra()
	m.Devices[1].MIG = []gpu.MIGDevice{{UUID: "MIG-1", Extra: extra()}}
	m.Processes = []gpu.Process{{PID: 7, Extra: extra()}}
	whole, _ := m.Encode()
	if strings.Count(string(whole), "hush") != 4 {
		t.Fatalf("unknown keys are not kept: %s", whole)
	}
	left := withoutUnknownKeys(m)
	data, err := left.Encode()
	if err != nil || strings.Contains(string(data), "hush") {
		t.Errorf("%v %s", err, data)
	}
	if again, _ := m.Encode(); string(again) != string(whole) {
		t.Error("the machine was changed")
	}
}

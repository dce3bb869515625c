package amd

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/visible"
	"gpuard/internal/gate"
	"gpuard/test/recorded"
)

// TestVisible asks ROCr, HIP and OpenCL what random values show, and core/visible the same.
func TestVisible(t *testing.T) {
	t.Parallel()
	for _, library := range Libraries(t) {
		for _, machine := range []string{"instinct4", "integrated", "order", "partitions"} {
			for runtime, reading := range map[Runtime]func(visible.Env, gpu.Machine) visible.View{HSA: visible.ROCR, HIP: visible.HIP, OpenCL: visible.OpenCL} {
				if runtime == OpenCL && !library.HasLibrary("libamdocl64.so") || machine == "partitions" && library.IsBefore(6, 0) { // which knows no MI300
					continue
				}
				t.Run(library.Version+" "+machine+" "+string(runtime), func(t *testing.T) {
					t.Parallel()
					l := New(t, library, machine)
					compareWithRuntime(t, l, reading, runtime, randomQuestions(l.Machine, runtime, gate.SoakCount(5_000, 100)))
				})
			}
		}
	}
}

// TestMissingNode: the runtimes leave out a GPU without its render node and count the others anew, and so does gpuard.
func TestMissingNode(t *testing.T) {
	t.Parallel()
	for _, library := range Libraries(t) {
		t.Run(library.Version, func(t *testing.T) {
			t.Parallel()
			l := New(t, library, "instinct4", 1)
			if len(l.Machine.Devices) != 3 {
				t.Fatalf("gpuard reads %d GPUs", len(l.Machine.Devices))
			}
			compareWithRuntime(t, l, visible.HIP, HIP, []Question{{}, {HIP: new("0,1,2,3")}, {HIP: new("1")}, {ROCR: new("2,1"), HIP: new("1")}})
			compareWithRuntime(t, l, visible.ROCR, HSA, []Question{{}, {ROCR: new("1")}, {ROCR: new("3")}, {ROCR: new("GPU-aaaaaaaaaaaaaaaa")}})
		})
	}
}

// compareWithRuntime fails where a runtime shows other devices than core/visible says, without a note that it depends on the C library with which
// ROCm was built. core/visible speaks of a newer ROCm: an older one is asked what it makes of the question.
func compareWithRuntime(t *testing.T, l *InventedMachine, reading func(visible.Env, gpu.Machine) visible.View, runtime Runtime, questions []Question) {
	t.Helper()
	unsure, wrong := 0, 0
	for i, a := range l.Ask(runtime, questions) {
		v := reading(l.Library.olderQuestion(questions[i]).Env(), l.Machine)
		var got []int
		for _, e := range v.Visible {
			d, _, _ := l.Machine.FindDevice(e.UUID)
			got = append(got, *d.Minor)
		}
		has := func(code string) bool {
			return slices.ContainsFunc(v.Notes, func(n visible.Note) bool { return n.Code == code })
		}
		switch {
		case slices.Equal(got, a.Devices) && a.Ended == has("program-fails"):
		case has("undocumented"):
			unsure++
		default:
			if wrong++; wrong <= 10 {
				t.Errorf("%.200q shows %d, %s shows %d (ended: %t, code %d): %v", questions[i].Env(), got, runtime, a.Devices, a.Ended, a.Code, v.Notes)
			}
		}
	}
	if wrong > 0 || unsure > len(questions)/5 {
		t.Errorf("of %d: %d are wrong, %d are unsure and differ", len(questions), wrong, unsure)
	}
}

// olderQuestion is the question as this version reads it: HIP 5.2 takes an empty value for not set, and 5.7 and older know no identifiers.
func (l Library) olderQuestion(q Question) Question {
	for _, v := range []**string{&q.HIP, &q.CUDA, &q.Ordinal} {
		switch {
		case *v == nil:
		case **v == "" && l.IsBefore(5, 3):
			*v = nil
		case l.IsBefore(6, 2):
			*v = new(strings.ReplaceAll(**v, "GPU-", "none-"))
		}
	}
	return q
}

// randomQuestions makes n questions to a runtime: mostly its own variable, now and then with those that filter below it, or win over it.
func randomQuestions(m gpu.Machine, runtime Runtime, n int) (questions []Question) {
	value := recorded.RandomValues(m, 29)
	r := rand.New(rand.NewPCG(29, 1))
	one := func() *string {
		v := value()
		if v != nil && r.IntN(12) == 0 {
			return new([]string{`"`, ` "`, `  "`}[r.IntN(3)] + *v + []string{`"`, `" `, `"`, "", `"x`}[r.IntN(5)])
		}
		return v
	}
	for range n {
		var q Question
		switch runtime {
		case HSA:
			q.ROCR = one()
		case HIP:
			if q.HIP = one(); r.IntN(3) == 0 {
				q.HIP = nil
			}
			if q.HIP == nil || r.IntN(5) == 0 {
				q.CUDA = one()
			}
		case OpenCL:
			q.Ordinal, q.HIP = one(), new("1")
		}
		if runtime != HSA && r.IntN(3) == 0 {
			q.ROCR = one()
		}
		questions = append(questions, q)
	}
	return questions
}

package quota

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
)

var limits = Limits{Share: 8 * gpu.GiB, Grace: 3 * time.Second}

// uses are processes 100, 101, … with so many GiB; negative: no figure.
func uses(gib ...float64) (out []Use) {
	for i, n := range gib {
		u := Use{PID: 100 + i, Start: 7, Command: "train.py"}
		if n >= 0 {
			u.Memory = new(gpu.Bytes(n * float64(gpu.GiB)))
		}
		out = append(out, u)
	}
	return out
}

// said writes an order in a few letters: W warn, B blind, T100 terminate, K100 kill.
func said(o Order) string {
	var words []string
	if o.Warn {
		words = append(words, "W")
	}
	if o.Blind != "" {
		words = append(words, "B")
	}
	for _, u := range o.Terminate {
		words = append(words, fmt.Sprint("T", u.PID))
	}
	for _, u := range o.Kill {
		words = append(words, fmt.Sprint("K", u.PID))
	}
	return strings.Join(words, " ")
}

func TestJudge(t *testing.T) {
	const dark = -100 // the driver does not answer
	for _, c := range []struct {
		name    string
		samples [][]float64 // one per second
		want    []string
	}{
		{"within", [][]float64{{}, {7}, {4, 4}}, []string{"", "", ""}},
		{"over", [][]float64{{7}, {16}, {16}, {16}, {16}, {16}, {16}, {16}}, []string{"", "W", "", "", "T100", "", "", "K100"}},
		{"together", [][]float64{{4}, {4, 5}, {4, 5}, {4, 5}, {4, 5}}, []string{"", "W", "", "", "T100 T101"}},
		{"gives back in time", [][]float64{{9}, {9}, {7}, {7}, {7}, {7}, {9}, {9}, {9}, {9}}, []string{"W", "", "", "", "", "", "W", "", "", "T100"}},
		{"comes and goes", [][]float64{{9}, {7}, {9}, {7}, {9}}, []string{"W", "", "", "", "T100"}},
		{"ends when asked", [][]float64{{16}, {16}, {16}, {16}, {}, {}}, []string{"W", "", "", "T100", "", ""}},
		{"starts another", [][]float64{{16}, {16}, {16}, {16}, {1, 16}, {1, 16}, {1, 16}}, []string{"W", "", "", "T100", "T101", "", "K100"}},
		{"no figure", [][]float64{{-1}, {-1}, {3, -1}, {-1}, {-1}}, []string{"B", "", "", "", ""}},
		{"some without a figure, and the rest too much", [][]float64{{9, -1}, {9, -1}, {9, -1}, {9, -1}}, []string{"W", "", "", "T100"}},
		{"no answer", [][]float64{{dark}, {dark}, {9}, {dark}, {dark}, {dark}, {9}}, []string{"B", "", "W", "B", "", "", "T100"}},
		{"no answer any more", [][]float64{{9}, {9}, {dark}, {dark}, {dark}, {dark}, {7}}, []string{"W", "", "B", "", "", "", ""}},
		{"forgiven only after a while in one piece", [][]float64{{9}, {7}, {9}, {7}, {7}, {9}}, []string{"W", "", "", "", "", "T100"}},
		{"no answer, an answer, no answer", [][]float64{{dark}, {7}, {dark}}, []string{"B", "", "B"}},
		{"exactly the share, and one without a figure", [][]float64{{8, -1}}, []string{"B"}},
		{"nothing on it", [][]float64{{9, 0}, {9, 0}, {9, 0}, {9, 0}}, []string{"W", "", "", "T100"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var k Case
			var got []string
			for i, gib := range c.samples {
				s := Sample{At: time.Duration(i) * time.Second, Uses: uses(gib...)}
				if len(gib) == 1 && gib[0] == dark {
					s = Sample{At: s.At, Blind: "no answer"}
				}
				var o Order
				before := k
				k, o = before.JudgeSample(limits, s)
				if _, again := before.JudgeSample(limits, s); !reflect.DeepEqual(again, o) {
					t.Errorf("asked twice at %s: %q, then %q", s.At, said(o), said(again))
				}
				if dim := s.Blind != "" || o.Blind != ""; dim && !k.IsUnmeasured() {
					t.Errorf("at %s it says that it was measured", s.At)
				}
				if sum, missing := sumMemory(s.Uses); s.Blind == "" && (sum > limits.Share || !missing) && k.IsUnmeasured() {
					t.Errorf("at %s it says that it was not measured", s.At)
				}
				got = append(got, said(o))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestJudgeReused: a process with the reused PID of another one was never sent SIGTERM.
func TestJudgeReused(t *testing.T) {
	var k Case
	var o Order
	for i := range 8 {
		use := uses(16)
		if i >= 5 {
			use[0].Start = 8
		}
		k, o = k.JudgeSample(limits, Sample{At: time.Duration(i) * time.Second, Uses: use})
		if want := map[int]string{0: "W", 3: "T100", 5: "T100"}[i]; said(o) != want {
			t.Errorf("second %d: %q, want %q", i, said(o), want)
		}
	}
}

// TestJudgePart: a process in a sub-lease with a share of its own is ended only when there are no others.
func TestJudgePart(t *testing.T) {
	for want, keeps := range map[string][]bool{"T101": {true, false}, "T100": {false, true}, "T100 T101": {true, true}} {
		var k Case
		var o Order
		for i := range 4 {
			use := uses(4, 6, 0, -1)
			use[0].Keeps, use[1].Keeps = keeps[0], keeps[1]
			use[2].Keeps, use[3].Keeps = keeps[0] && keeps[1], keeps[0] && keeps[1]
			k, o = k.JudgeSample(limits, Sample{At: time.Duration(i) * time.Second, Uses: use})
		}
		if said(o) != want {
			t.Errorf("%v: %q, want %q", keeps, said(o), want)
		}
	}
}

// TestJudgeNever: no process is ended on a measurement within the share or without a figure, none without a warning a
// grace before, and none gets SIGKILL without SIGTERM a grace before.
func TestJudgeNever(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var k Case
		var warned time.Duration = -1
		asked := map[int]time.Duration{}
		for at := time.Duration(0); at < time.Minute; at += time.Duration(random.IntN(3000)) * time.Millisecond {
			s := Sample{At: at, Uses: uses(float64(random.IntN(14)-1), float64(random.IntN(6)-1))}
			if random.IntN(6) == 0 {
				s = Sample{At: at, Blind: "no answer"}
			}
			var o Order
			k, o = k.JudgeSample(limits, s)
			sum, _ := sumMemory(s.Uses)
			if acts := len(o.Terminate) + len(o.Kill); acts > 0 && (s.Blind != "" || sum <= limits.Share || warned < 0 || at-warned < limits.Grace) {
				t.Fatalf("ended at %s, warned at %s: %+v", at, warned, s)
			}
			for _, u := range o.Kill {
				if first, ok := asked[u.PID]; !ok || at-first < limits.Grace {
					t.Fatalf("killed %d at %s, asked at %s", u.PID, at, first)
				}
			}
			for _, u := range slices.Concat(o.Terminate, o.Kill) {
				if u.Memory == nil {
					t.Fatalf("ended a process without a figure: %+v", u)
				}
			}
			if o.Warn {
				warned, asked = at, map[int]time.Duration{}
			}
			for _, u := range o.Terminate {
				asked[u.PID] = at
			}
		}
	}
}

func TestWords(t *testing.T) {
	n := Names{Lease: "k3f9", Device: "GPU 2"}
	_, o := Case{}.JudgeSample(limits, Sample{Uses: uses(6, 10)})
	for got, want := range map[string]string{
		o.WarningText(n, limits, uses(6, 10)):                         "train.py (process 101) and 1 more use 16 GiB on GPU 2, and the share of lease k3f9 is 8 GiB; give memory back, or it is ended in 3 s. Next time ask for --share 18G",
		o.EndingText(n, limits, uses(6, 10), uses(6), false):          "asking train.py (process 100) to end (SIGTERM): train.py (process 101) and 1 more use 16 GiB on GPU 2, and the share of lease k3f9 is 8 GiB. Next time ask for --share 18G",
		Order{Blind: "no answer within 5 s"}.BlindText(n, limits):     "cannot measure lease k3f9 on GPU 2: no answer within 5 s; nothing is ended, and its share of 8 GiB is not enforced",
		Order{Sum: 9 * gpu.GiB}.WarningText(n, limits, uses(9)):       "train.py (process 100) uses 9 GiB on GPU 2, and the share of lease k3f9 is 8 GiB; give memory back, or it is ended in 3 s. Next time ask for --share 10G",
		Order{Sum: 9 * gpu.GiB}.EndingText(n, limits, nil, nil, true): "ending no process (SIGKILL): no process uses 9 GiB on GPU 2, and the share of lease k3f9 is 8 GiB. Next time ask for --share 10G",
		Order{Sum: 9 * gpu.GiB}.UntouchedText(n, limits, uses(9)):     "cannot end train.py (process 100), which is not of the user of lease k3f9 or has not opened the GPU, although 9 GiB is used on GPU 2 and the share is 8 GiB",
	} {
		if got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}

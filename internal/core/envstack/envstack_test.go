package envstack

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/visible"
)

// after is the environment that a shell has when it evaluated vars.
func after(env visible.Env, vars ...visible.Var) visible.Env {
	out := slices.Clone(env)
	for _, v := range vars {
		out = slices.DeleteFunc(out, func(pair string) bool { return strings.HasPrefix(pair, v.Name+"=") })
		if !v.Unset {
			out = append(out, v.Name+"="+v.Value)
		}
	}
	slices.Sort(out)
	return out
}

func enter(t *testing.T, env visible.Env, id string, change ...visible.Var) visible.Env {
	t.Helper()
	s, err := ReadStack(env)
	if err != nil {
		t.Fatal(err)
	}
	return after(env, append(slices.Clone(change), s.Push(Entry{ID: id}, env, change).AsVariable())...)
}

func leave(t *testing.T, env visible.Env, id string) visible.Env {
	t.Helper()
	s, err := ReadStack(env)
	if err != nil {
		t.Fatal(err)
	}
	rest, back, _ := s.Pop(id)
	return after(env, append(back, rest.AsVariable())...)
}

// TestAnyOrder: nested choices may end in any order, and the original values are restored at the end. While a choice
// lasts and no later one changes its variables, its values hold.
func TestAnyOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	values := []string{"", "0", "a b", "it's", "x\ny", `"\`, "\xff\xfe", "$(id)", "<é>"}
	names := []string{"A", "B", "C_1"}
	for range 2000 {
		var first visible.Env
		for _, n := range names {
			if random.IntN(2) == 0 {
				first = after(first, visible.Var{Name: n, Value: values[random.IntN(len(values))]})
			}
		}
		env := first
		var ids []string
		last := map[string]visible.Var{}
		for i := range 1 + random.IntN(4) {
			var change []visible.Var
			for _, n := range names {
				if random.IntN(2) == 0 {
					v := visible.Var{Name: n, Value: values[random.IntN(len(values))]}
					if random.IntN(3) == 0 {
						v = visible.Var{Name: n, Unset: true}
					}
					change, last[n] = append(change, v), v
				}
			}
			ids = append(ids, fmt.Sprint(i, "\xff\xfe"))
			env = enter(t, env, ids[i], change...)
		}
		inner := ids[len(ids)-1]
		s, _ := ReadStack(env)
		holds := s[len(s)-1].Before
		random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		left := false
		for _, id := range ids {
			env = leave(t, env, id)
			left = left || id == inner
			for n := range holds {
				if got, set := env.Lookup(n); !left && (got != last[n].Value || set == last[n].Unset) {
					t.Fatalf("%s is %q after an outer choice ended, want %+v", n, got, last[n])
				}
			}
		}
		if !slices.Equal(env, first) {
			t.Fatalf("before %q, after %q", first, env)
		}
	}
}

func TestRead(t *testing.T) {
	for text, bad := range map[string]string{
		"":   "",
		"[]": "",
		`[{"id":"a","before":{"A":null,"B":"","C":{"bytes":"/w=="}}}]`: "",
		"{":  "cannot read GPUARD_SAVED",
		"no": "unset GPUARD_SAVED",
		`[{"id":"a","before":{"A;touch x":"1"}}]`: "unset GPUARD_SAVED",
		`[{"id":"a","before":{"A":"\u0000"}}]`:    "zero byte",
		`[{"id":"a","before":{"A":1}}]`:           "unset GPUARD_SAVED",
		`[{"id":"a","before":[]}]`:                "unset GPUARD_SAVED",
	} {
		_, err := ReadStack(visible.Env{Variable + "=" + text})
		if (err != nil) != (bad != "") || err != nil && !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v, want %q", text, err, bad)
		}
	}
	env := visible.Env{`GPUARD_SAVED=[{"id":"a","before":{"A":null,"B":"","C":{"bytes":"/w=="}}}]`, "A=1", "B=1", "C=1"}
	if got, want := leave(t, env, "a"), (visible.Env{"B=", "C=\xff"}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := leave(t, env, "other"); !slices.Contains(got, "A=1") {
		t.Errorf("an id that is not there changed %q", got)
	}
}

package userqueue

import (
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/visible"
	"gpuard/internal/gate"
)

// TestMalformed: names, notes, commands and environments of any bytes are kept as they are, or with the mark of Unicode
// for what is no text; the journal stays whole.
func TestMalformed(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 8)) //nolint:gosec // a test
	word := func(most int) string {
		var b strings.Builder
		for range random.IntN(most) {
			switch random.IntN(4) {
			case 0:
				b.WriteByte(byte(1 + random.IntN(255)))
			case 1:
				b.WriteString([]string{"\n", "\"", "\\", "{", "}", "\r", "\u2028", "\x1b[2J", "=", "$(x)"}[random.IntN(10)])
			default:
				b.WriteRune(rune(' ' + random.IntN(90)))
			}
		}
		return b.String()
	}
	q := open(t, filepath.Join(t.TempDir(), "state"))
	jobs := gate.SoakCount(10_000, 3_000)
	var names []string
	var envs []visible.Env
	for range jobs {
		var env visible.Env
		for range random.IntN(6) {
			env = append(env, "V"+word(10)+"="+word(40))
		}
		names = append(names, word(30))
		envs = append(envs, env)
		j := Job{Command: []string{"true", word(20)}, Path: "/bin/true", Folder: "/", Note: word(20)}
		if _, _, err := q.Submit(batchlog.Job{Name: names[len(names)-1]}, j, env, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	list, err := q.List(func(State) bool { return true })
	if err != nil || len(list) != jobs {
		t.Fatalf("%d jobs, %v", len(list), err)
	}
	for i, e := range list {
		if e.Name != strings.ToValidUTF8(names[i], "\ufffd") && utf8.ValidString(names[i]) {
			t.Errorf("job %d is called %q, want %q", i+1, e.Name, names[i])
		}
		j, err := q.ReadJob(i)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readEnvironment(filepath.Join(q.Dir, envFolder), j.Env)
		if want := withoutLeaseVars(envs[i]); err != nil || len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("job %d has %q, want %q, %v", i+1, got, want, err)
		}
	}
}

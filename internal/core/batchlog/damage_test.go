package batchlog

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// lineOf is a line of a journal.
func lineOf(e Event) string {
	text, err := json.Marshal(e)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// TestDamagedLines: a line that is no record, or has an impossible number, is named and left out; jobs after it keep
// their numbers and run, and none that was begun is begun again.
func TestDamagedLines(t *testing.T) {
	submit := func(run int) string { return lineOf(Event{Kind: Submit, Run: run, Job: &Job{Name: "a"}}) }
	of := func(kind Kind, run int) string { return lineOf(Event{Kind: kind, Run: run}) }
	const garbage = `{"is":"submit","run`
	for _, c := range []struct {
		name  string
		lines []string
		fresh string
		odd   string // the first odd line
		runs  int
	}{
		{"no damage", []string{submit(0), submit(1)}, "[0 1]", "", 2},
		{"between", []string{submit(0), garbage, submit(1)}, "[0 1]", "line 2 of journal is no record (it is no event: unexpected end of JSON input), and is left out", 2},
		{"at the end", []string{submit(0), submit(1), "\x00\x00"}, "[0 1]", "line 3 of journal is no record", 2},
		{"in place of a job", []string{submit(0), garbage, submit(2)}, "[0 2]", "line 2 of journal is no record", 3},
		{"two lines in one", []string{submit(0), submit(1) + submit(2), submit(3)}, "[0 3]", "line 2 of journal is no record", 4},
		{"a negative number", []string{submit(0), submit(-3), submit(1)}, "[0 1]", "line 2 of journal is no record (run -3 cannot be added to 1)", 2},
		{"a number too large", []string{submit(0), submit(100_000_000), submit(1)}, "[0 1]", "line 2 of journal is no record (run 100000000 cannot be added to 1)", 2},
		{"another number in place of a job", []string{submit(0), submit(7), submit(2)}, "[0 2]", "line 2 of journal is no record", 3},
		{"a job without its work", []string{submit(0), of(Submit, 1), submit(1)}, "[0 1]", "line 2 of journal is no record", 2},
		{"a number too large after garbage", []string{garbage, submit(50)}, "[]", "line 1 of journal is no record", 0},
		{"another kind of another gpuard", []string{submit(0), of("later", 0), submit(1)}, "[0 1]", "line 2 of journal is no record", 2},
		{"its begin", []string{submit(0), "{", of(Start, 0)}, "[]", "line 2 of journal is no record", 1},
		{"all of its run but the end", []string{submit(0), "{", "{", of(End, 0)}, "[]", "line 2 of journal is no record", 1},
		{"its end", []string{submit(0), of(Begin, 0), of(Start, 0), "{", of(Gone, 0)}, "[]", "line 4 of journal is no record", 1},
		{"again of what cannot be read", []string{garbage, submit(1), of(Again, 0)}, "[1]", "line 1 of journal is no record", 2},
	} {
		s, tally, first := NewQueue(), Tally{}, ""
		for i, line := range c.lines {
			if err := s.ReadLine([]byte(line), int64(i)); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			if odd := tally.ReadLine([]byte(line)); odd != nil && first == "" {
				first = odd.DescribeIn("journal")
			}
		}
		var fresh []int
		for _, run := range s.TakeFresh() {
			if s.MayStart(run) {
				fresh = append(fresh, run)
			}
		}
		if fmt.Sprint(fresh) != c.fresh || len(s.Runs) != c.runs || tally.Runs != c.runs {
			t.Errorf("%s: %v may start of %d, counted %d; want %s of %d", c.name, fresh, len(s.Runs), tally.Runs, c.fresh, c.runs)
		}
		named := ""
		if len(s.OddLines) > 0 {
			named = s.OddLines[0].DescribeIn("journal")
		}
		if c.odd == "" && s.Odd > 0 || !strings.Contains(named, c.odd) || s.Count.All != len(s.Runs) {
			t.Errorf("%s: %s, want %s; %+v", c.name, named, c.odd, s.Count)
		}
		if first != "" && first != named {
			t.Errorf("%s: %s when it is counted, %s when it is read", c.name, first, named)
		}
	}
}

// TestTallyIsTheState: whatever is damaged, a queue has as many jobs for who hands one in as for who runs them, and a
// job that is handed in then is one that may start.
func TestTallyIsTheState(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	for range 2000 {
		var text []byte
		for run := range 1 + random.IntN(8) {
			text = append(text, lineOf(Event{Kind: Submit, Run: run, Job: &Job{Name: "a"}})+"\n"...)
			if random.IntN(2) == 0 {
				text = append(text, lineOf(Event{Kind: Begin, Run: run})+"\n"...)
			}
		}
		for range random.IntN(4) {
			text[random.IntN(len(text))] = "\n\x00{}7,\""[random.IntN(7)]
		}
		s, tally := NewQueue(), Tally{}
		read := func(line []byte) {
			_ = s.ReadLine(line, 0)
			tally.ReadLine(line)
		}
		for line := range strings.Lines(string(text)) {
			read([]byte(strings.TrimSuffix(line, "\n")))
		}
		if tally.Runs != len(s.Runs) || tally.Lost != s.lost {
			t.Fatalf("%+v and %d runs (%d lost) of\n%s", tally, len(s.Runs), s.lost, text)
		}
		read([]byte(lineOf(Event{Kind: Submit, Run: tally.Runs, Job: &Job{}})))
		if n := len(s.Runs); tally.Runs != n || !s.MayStart(n-1) {
			t.Fatalf("the next job cannot start after\n%s", text)
		}
	}
}

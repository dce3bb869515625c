package userqueue

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/core/batchlog"
	"gpuard/test/apart"
)

func TestMain(m *testing.M) {
	apart.UseMemoryFolder()
	apart.SetParallelTests(8)
	os.Exit(m.Run())
}

// TestDamagedJournal: a line of the journal that is no record is named where a job is handed in and where jobs are shown;
// that job gets the next number, and may start. A job whose line is damaged is shown, too, and keeps its number.
func TestDamagedJournal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		line string // is put behind those of three jobs
		in   bool   // it takes the place of the last one's
		want int    // number of the next job
	}{
		"garbage":          {"half a li", false, 4},
		"a negative job":   {`{"is":"submit","run":-4,"job":{"name":"x"}}`, false, 4},
		"job 100000001":    {`{"is":"submit","run":100000000,"job":{"name":"x"}}`, false, 4},
		"in place of one":  {strings.Repeat("\x00", 300), true, 4},
		"another has data": {`{"is":"submit","run":2,"job":{"name":"x","data":7}}`, true, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := folder(t, 3)
			path := filepath.Join(q.Dir, journalFile)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.SplitAfter(string(text), "\n")
			lines = lines[:len(lines)-1] // after the last break is nothing
			if c.in {
				lines = lines[:len(lines)-1]
			}
			lines = append(lines, c.line+"\n")
			if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.in { // the count was written before the damage, as on a disk that went bad
				if err := os.WriteFile(filepath.Join(q.Dir, countFile), []byte("0 0 0 0\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				lines = append(lines, string(mustLine(t, 3))+"\n")
				if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
					t.Fatal(err)
				}
				c.want++
			}
			other, err := Open(q.host, true)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(other.Close)
			number, _, err := other.Submit(batchlog.Job{Name: "later"}, Job{Command: []string{"true"}}, nil, nil, 0)
			if err != nil || number != c.want {
				t.Errorf("job %d, want %d, %v", number, c.want, err)
			}
			state, err := other.Read()
			if err != nil || len(state.Runs) != number || !state.MayStart(number-1) {
				t.Fatalf("%d jobs, %v", len(state.Runs), err)
			}
			if said := strings.Join(other.OddLines(), "\n"); name != "another has data" && !strings.Contains(said, " of "+path+" is no record") {
				t.Errorf("who hands in a job is told %q", said)
			} else if shown := strings.Join(other.OddIn(state), "\n"); shown != said {
				t.Errorf("it is shown as %q, and was %q", shown, said)
			}
			list, err := other.List(func(State) bool { return true })
			if err != nil || len(list) != number {
				t.Errorf("%d are shown, %v", len(list), err)
			}
			if number, _, err = other.Submit(batchlog.Job{Name: "last"}, Job{Command: []string{"true"}}, nil, nil, 0); err != nil || number != c.want+1 {
				t.Errorf("job %d, %v", number, err)
			}
		})
	}
}

func mustLine(t *testing.T, run int) []byte {
	t.Helper()
	text, err := submitLine(run, batchlog.Job{Name: "before the damage"}, Job{Command: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

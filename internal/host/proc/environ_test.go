package proc

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestEnvironOfOneThatStarts: a process that is just executing a program has no environment yet, and one that has none is not waited for.
func TestEnvironOfOneThatStarts(t *testing.T) {
	const begin, kernel = "7 (sh) R 1 7 7 0 -1 4194304", "7 (kworker) I 2 7 7 0 -1 69238880"
	field := func(starts bool) string {
		if starts {
			return " 0 0 0 0 0"
		}
		return " 140731143801529 140731143801549 140731143801549 140731143801549 0"
	}
	rest := strings.Repeat(" 0", 12) + " 8034141" + strings.Repeat(" 0", 25)
	for name, test := range map[string]struct {
		stat  string
		after time.Duration // that it has an environment
		want  []string
		waits bool
	}{
		"a program that has just begun": {begin + rest + field(true), 20 * time.Millisecond, []string{"A=b", "C=d"}, true},
		"one that never begins":         {begin + rest + field(true), time.Hour, nil, true},
		"one without an environment":    {begin + rest + field(false), time.Hour, nil, false},
		"a thread of the kernel":        {kernel + rest + field(true), time.Hour, nil, false},
		"one that has ended":            {strings.Replace(begin, " R ", " Z ", 1) + rest + field(true), time.Hour, nil, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			root := t.TempDir()
			write := func(file, text string) {
				if err := os.WriteFile(filepath.Join(root, "7", file), []byte(text), 0o600); err != nil {
					t.Error(err)
				}
			}
			if err := os.Mkdir(filepath.Join(root, "7"), 0o700); err != nil {
				t.Fatal(err)
			}
			write("stat", test.stat+"\n")
			write("environ", "")
			later := time.AfterFunc(test.after, func() { write("environ", "A=b\x00C=d\x00") })
			defer later.Stop()
			asked := time.Now()
			got, err := FS{root: root}.Environ(7)
			if spent := time.Since(asked); err != nil || !slices.Equal(got, test.want) || test.waits != (spent > 0) || spent > 2*time.Second {
				t.Errorf("%s: %q, %v, after %v", name, got, err, spent)
			}
		})
	}
}

package shellquote

import (
	"slices"
	"testing"
)

func TestReadList(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{"": {}, "0": {"0"}, "0,1": {"0", "1"}, "0, 1": {"0", " 1"}, "0,": {"0", ""}, `"0,1"`: {`"0`, `1"`}, "0，1": {"0", "1"}, "ü": {"ü"}} {
		if got, err := ReadList(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"0\n1", "0\n", "\n", "0\r1", "0\x001", "0\t1", "0,1\x1b[2J", "0\u0085"} {
		if got, err := ReadList(text); err == nil {
			t.Errorf("%q was read as %q", text, got)
		}
	}
}

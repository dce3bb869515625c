package gate

import (
	"errors"
	"testing"
)

// TestJudge: what is missing skips, or fails where it is demanded; a program that is there fails where there must be
// none.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		kind           kind
		missing        bool
		wanted         string
		fails, skipped bool
	}{
		{installed, false, "", false, false},
		{installed, true, "", false, true},
		{installed, true, "all", true, false},
		{installed, true, "a,mine", true, false},
		{installed, true, "a,b", false, true},
		{installed, true, "none", false, true},
		{installed, false, "none", true, false},
		{installed, false, "all", false, false},
		{granted, true, "all", true, false},
		{granted, false, "none", false, false},
		{granted, true, "none", false, true},
		{rare, true, "all", false, true},
		{rare, true, "mine", true, false},
	} {
		p := probe{"mine", func() error { return nil }, c.kind}
		if c.missing {
			p.here = func() error { return errors.New("there is none") }
		}
		if fails, skipped := p.judge(c.wanted); (fails != "") != c.fails || (skipped != "") != c.skipped {
			t.Errorf("kind %d, missing %v, GPUARD_GATES=%s: fails %q, skipped %q", c.kind, c.missing, c.wanted, fails, skipped)
		}
	}
}

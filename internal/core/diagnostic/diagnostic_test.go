package diagnostic

import (
	"strings"
	"testing"
)

// TestMany: all mistakes of a file in order, without terminal control characters, up to the limit.
func TestMany(t *testing.T) {
	err := &Many{File: "/etc/x\x1b", List: []One{{4, 2, "b"}, {1, 9, "a\x07"}}, Do: "ask root to mend it"}
	if got := err.Error(); got != "cannot read /etc/x:1:9: a\ncannot read /etc/x:4:2: b; ask root to mend it" {
		t.Errorf("%q", got)
	}
	lines := strings.Split((&Many{File: "f", List: make([]One, maxListed+7), Do: "do"}).Error(), "\n")
	if len(lines) != maxListed+1 || lines[maxListed] != "cannot read f: 7 more mistakes follow these; do" {
		t.Errorf("%q", lines)
	}
}

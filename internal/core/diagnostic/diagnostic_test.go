package diagnostic

import (
	"strings"
	"testing"
)

// TestMany: all of a file, in its order, nothing that moves a terminal, and no flood.
func TestMany(t *testing.T) {
	err := &Many{File: "/etc/x\x1b", List: []One{{4, 2, "b"}, {1, 9, "a\x07"}}, Do: "ask root to mend it"}
	if got := err.Error(); got != "cannot read /etc/x:1:9: a\ncannot read /etc/x:4:2: b; ask root to mend it" {
		t.Errorf("%q", got)
	}
	lines := strings.Split((&Many{File: "f", List: make([]One, most+7), Do: "do"}).Error(), "\n")
	if len(lines) != most+1 || lines[most] != "cannot read f: 7 more mistakes stand behind these; do" {
		t.Errorf("%q", lines)
	}
}

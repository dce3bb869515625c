package timens

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestOffset: outside of every time namespace nothing is shifted, inside as the kernel says, and where that cannot be
// known there is an error.
func TestOffset(t *testing.T) {
	const inside, other = "time:[4026532178]", "time:[4026532179]"
	for name, tt := range map[string]struct {
		own, children, offsets string
		want                   time.Duration
		fails                  bool
	}{
		"a kernel without them":            {"", "", "", 0, false},
		"the machine's":                    {firstTimeNamespace, firstTimeNamespace, "monotonic           0         0\nboottime            0         0\n", 0, false},
		"that of children is another":      {firstTimeNamespace, inside, "boottime 1000 0\n", 0, false},
		"inside":                           {inside, inside, "monotonic        5         0\nboottime         1000         0\n", 1000 * time.Second, false},
		"back":                             {inside, inside, "monotonic 0 0\nboottime -7 500000000\n", -6500 * time.Millisecond, false},
		"a part of a tick":                 {inside, inside, "boottime 1000 5000000\n", 0, true},
		"inside, and not that of children": {inside, other, "boottime 1000 0\n", 0, true},
		"inside, and nothing can be read":  {inside, inside, "", 0, true},
		"noise":                            {inside, inside, "boottime x 0\n", 0, true},
		"a number that is too large":       {inside, inside, "boottime 9223372036854775807 0\n", 0, true},
	} {
		root := t.TempDir()
		ns := filepath.Join(root, "self/ns")
		err := os.MkdirAll(ns, 0o755)
		if tt.own != "" {
			err = errors.Join(err, os.Symlink(tt.own, filepath.Join(ns, "time")), os.Symlink(tt.children, filepath.Join(ns, "time_for_children")))
		}
		if tt.offsets != "" {
			err = errors.Join(err, os.WriteFile(filepath.Join(root, "self/timens_offsets"), []byte(tt.offsets), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Offset(root, Boottime); got != tt.want || (err != nil) != tt.fails {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

package space

import "testing"

// TestIDs: only a namespace that maps every id to itself is equivalent to the machine's.
func TestIDs(t *testing.T) {
	for name, tt := range map[string]struct {
		uidMap, overflow string
		part             bool
		shown, hidden    []uint32
	}{
		"the machine's":              {"         0          0 4294967295\n", "65534\n", false, []uint32{0, 1000, 65534}, nil},
		"every id, in two lines":     {"0 0 1\n1 1 4294967294\n", "65534\n", false, []uint32{0, 1, 65534}, nil},
		"every id, moved":            {"0 1 1\n1 0 1\n2 2 4294967293\n", "65534", true, []uint32{0, 1, 2}, []uint32{65534}},
		"unshare -c":                 {"1000 1000 1\n", "65534\n", true, []uint32{1000}, []uint32{0, 999, 1001, 65534}},
		"unshare -r":                 {"0 1000 1\n", "65534\n", true, []uint32{0}, []uint32{1, 1000, 65534}},
		"unshare -U":                 {"", "65534\n", true, nil, []uint32{0, 1000, 65534}},
		"rootless podman":            {"0 1000 1\n1 100000 65536\n", "65534\n", true, []uint32{0, 1, 65533, 65535, 65536}, []uint32{65534, 65537, 100000}},
		"another overflow id":        {"0 1000 1\n", "99\n", true, []uint32{0}, []uint32{99, 65534}},
		"an overflow id that is own": {"65534 65534 1\n", "65534\n", true, nil, []uint32{0, 65534}},
		"nonsense":                   {"0 0\nx 0 4294967295\n-1 0 1\n", "x", true, nil, []uint32{0, 65534}},
	} {
		ids := ParseIDs(tt.uidMap, tt.overflow)
		if ids.Part() != tt.part {
			t.Errorf("%s: a part of the ids: %v", name, ids.Part())
		}
		for _, uid := range tt.shown {
			if ids.Hides(uid) {
				t.Errorf("%s: %d is hidden", name, uid)
			}
		}
		for _, uid := range tt.hidden {
			if !ids.Hides(uid) {
				t.Errorf("%s: %d is not hidden", name, uid)
			}
		}
	}
	if zero := (IDs{}); zero.Part() || zero.Hides(65534) {
		t.Error("the zero value hides an owner")
	}
}

// TestStandIn: the number of a hidden owner belongs to no user of this namespace, and is the same for leases and
// tickets.
func TestStandIn(t *testing.T) {
	for _, uidMap := range []string{"0 1000 1\n", "0 1000 1\n1 100000 65536\n", "0 0 4294967294\n", "1000 1000 1\n", ""} {
		ids := ParseIDs(uidMap, "65534")
		seen := map[uint32]string{}
		for _, folder := range []string{"0", "1000", "1001", "ns-0a1b2c3d", "ns-0a1b2c3e", "4294967295", "4294967296"} {
			n := ids.StandIn(folder)
			if !ids.Hides(n) || n == 1<<32-1 || n != ids.StandIn(folder) {
				t.Errorf("%q: %s means %d", uidMap, folder, n)
			}
			if other, taken := seen[n]; taken && uidMap != "0 0 4294967294\n" {
				t.Errorf("%q: %d means %s and for %s", uidMap, n, other, folder)
			}
			seen[n] = folder
		}
	}
	if n := ParseIDs("1000 1000 1\n", "65534").StandIn("0"); n != 0 {
		t.Errorf("root's folder means %d", n)
	}
}

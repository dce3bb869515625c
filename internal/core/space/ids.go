// Package space says what a process in Linux namespaces can know: which user ids are distinct, and whether the rest of
// the machine sees the same folder:
//
//	ids := space.ParseIDs(uidMap, overflow) // texts of /proc/self/uid_map, /proc/sys/fs/overflowuid
//	hidden := ids.Hides(uid)
//
// It must not read procfs; the caller passes in the texts.
package space

import (
	"hash/fnv"
	"strconv"
	"strings"
)

// HiddenUser replaces the name of a hidden owner.
const HiddenUser = "a user that this user namespace hides"

// FirstUserNamespace is the link /proc/PID/ns/user in the machine's initial user namespace, which has every id:
// PROC_USER_INIT_INO in torvalds/linux include/linux/proc_ns.h.
const FirstUserNamespace = "user:[4026531837]"

// IDs are the user ids of a user namespace (user_namespaces(7)). All ids that are not mapped in it appear as the
// overflow id. The zero value is a namespace with every id, such as the machine's own.
type IDs struct {
	part     bool
	overflow uint32
	ranges   []span
}

type span struct{ first, count uint64 }

// idCount is how many user ids there are: the last number means "no id".
const idCount = 1<<32 - 1

// ParseIDs parses /proc/self/uid_map and /proc/sys/fs/overflowuid. A malformed line maps nothing, so that an owner
// counts as hidden in doubt.
func ParseIDs(uidMap, overflow string) IDs {
	// The kernel's default (DEFAULT_OVERFLOWUID in include/linux/highuid.h).
	ids := IDs{part: true, overflow: 65534}
	if n, err := strconv.ParseUint(strings.TrimSpace(overflow), 10, 32); err == nil {
		ids.overflow = uint32(n)
	}

	same := uint64(0)
	for line := range strings.Lines(uidMap) {
		var n [3]uint64
		fields := strings.Fields(line)
		ok := len(fields) == len(n)
		for i := range n {
			if ok {
				var err error
				n[i], err = strconv.ParseUint(fields[i], 10, 32)
				ok = err == nil
			}
		}

		if !ok {
			continue
		}

		ids.ranges = append(ids.ranges, span{n[0], n[2]})
		if n[0] == n[1] {
			same += n[2]
		}
	}

	if same == idCount {
		return IDs{}
	}

	return ids
}

// Part reports whether some ids are not mapped in this namespace.
func (s IDs) Part() bool { return s.part }

// OverflowIDs is the id of hidden owners; none where no owner can be hidden.
func (s IDs) OverflowIDs() []uint32 {
	if !s.part {
		return nil
	}
	return []uint32{s.overflow}
}

// Hides reports whether uid does not identify a user: as the owner of a file or process it is the overflow id, and as a
// number it is not mapped here.
func (s IDs) Hides(uid uint32) bool {
	if !s.part {
		return false
	}
	if uid == s.overflow {
		return true
	}

	for _, r := range s.ranges {
		if uint64(uid) >= r.first && uint64(uid)-r.first < r.count {
			return false
		}
	}

	return true
}

// StandIn is a number for the hidden owner of a folder with that name. Equal names have equal numbers, and no visible
// user has the number. Most folders are named after the uid of their owner, so different owners usually get different
// numbers.
func (s IDs) StandIn(folder string) uint32 {
	if n, err := strconv.ParseUint(folder, 10, 32); err == nil && n < idCount && s.Hides(uint32(n)) {
		return uint32(n)
	}

	h := fnv.New32a()

	// Cannot fail.
	_, _ = h.Write([]byte(folder))

	for i := range uint32(64) {
		if n := h.Sum32() + i; n < idCount && s.Hides(n) {
			return n
		}
	}

	return s.overflow
}

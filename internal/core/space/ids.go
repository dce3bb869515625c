// Package space says what a process inside of Linux namespaces can know: which user ids it can tell apart, and whether
// a folder is the one that the rest of the machine sees. It gets the text of procfs and reads nothing itself.
package space

import (
	"hash/fnv"
	"strconv"
	"strings"
)

// HiddenUser stands in place of the name of an owner who is hidden.
const HiddenUser = "a user that this user namespace hides"

// FirstUserNamespace is the link /proc/PID/ns/user in the machine's own user namespace, which has every id:
// PROC_USER_INIT_INO in torvalds/linux include/linux/proc_ns.h.
const FirstUserNamespace = "user:[4026531837]"

// IDs are the user ids of a user namespace (user_namespaces(7)). An id without a place in it appears as the overflow
// id, as all others without one do. The zero value is a namespace with every id, such as the machine's own.
type IDs struct {
	part     bool
	overflow uint32
	ranges   []span
}

type span struct{ first, count uint64 }

// every is how many user ids there are: the last number means "no id".
const every = 1<<32 - 1

// Of reads /proc/self/uid_map and /proc/sys/fs/overflowuid. A line that cannot be read maps nothing, so that an owner
// counts as hidden where in doubt.
func Of(uidMap, overflow string) IDs {
	ids := IDs{part: true, overflow: 65534} // the kernel's default (DEFAULT_OVERFLOWUID in include/linux/highuid.h)
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
	if same == every {
		return IDs{}
	}
	return ids
}

// Part reports whether there are ids without a place in this namespace.
func (s IDs) Part() bool { return s.part }

// Overflow is the id as which hidden owners appear; none where nobody is hidden.
func (s IDs) Overflow() []uint32 {
	if !s.part {
		return nil
	}
	return []uint32{s.overflow}
}

// Hides reports whether uid tells nothing about who it is: as the owner of a file or process it is the overflow id, and
// as a number it has no place here.
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

// StandIn is a number for the hidden owner of a folder of that name. It is the same for each such name, and no visible
// user has it. Most folders are named after the uid of their owner, so different owners mostly get different numbers.
func (s IDs) StandIn(folder string) uint32 {
	if n, err := strconv.ParseUint(folder, 10, 32); err == nil && n < every && s.Hides(uint32(n)) {
		return uint32(n)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(folder)) // cannot fail
	for i := range uint32(64) {
		if n := h.Sum32() + i; n < every && s.Hides(n) {
			return n
		}
	}
	return s.overflow
}

package isolation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/isolate"
	"gpuard/internal/host/cgroupfs"
)

// wallPrefix begins the name of a group that is a wall. What follows is chance: no two walls ever have the same.
const wallPrefix = cgroupfs.Prefix + "wall-"

// mostTries is how often a group is made anew that another process took for one that was left.
const mostTries = 20

// hierarchy is one of the two in which the kernel filters devices by control group.
type hierarchy struct {
	name       string
	controller string // of version 1
	magic      int64  // of its file system
	deny       func(dir string, numbers []isolate.DeviceNumber) error
}

// hierarchies are both, the one of today first.
func hierarchies() []hierarchy {
	return []hierarchy{
		{"version 2", "", unix.CGROUP2_SUPER_MAGIC, denyByProgram},
		{"version 1", "devices", unix.CGROUP_SUPER_MAGIC, denyByList},
	}
}

// becomeInGroup becomes the program in a control group of its own, below that of this process, whose device filter
// denies these files by their numbers: wherever they are, and also as files that are made later. All that the program
// starts is in the group, and the filter stays when every gpuard is gone. An outer filter stays in force. Root can move
// out again, and nobody else.
func becomeInGroup(nodes []string, p walledProgram) error {
	found, err := numbersOf(nodes)
	if err != nil {
		return err
	}

	err = wantRoot()
	if err != nil {
		return err
	}

	var numbers []isolate.DeviceNumber
	for n := range found {
		numbers = append(numbers, isolate.DeviceNumber{Major: unix.Major(n), Minor: unix.Minor(n)})
	}

	SweepGroups()
	var reasons []string
	for _, h := range hierarchies() {
		err = h.enter(numbers)
		if err == nil {
			break
		}
		reasons = append(reasons, h.name+": "+err.Error())
	}

	if err != nil {
		return errors.New("no control group filters devices here: " + strings.Join(reasons, "; "))
	}

	for _, path := range nodes {
		// access(2) asks the filter, and wakes no device.
		if unix.Access(path, unix.R_OK|unix.W_OK) == nil {
			return fmt.Errorf("cannot close %s: the kernel allows it in spite of the control group's filter", path)
		}
	}

	return p.execute()
}

// enter moves this process into a new group with the filter.
func (h hierarchy) enter(numbers []isolate.DeviceNumber) error {
	return h.inGroup(numbers, func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0)
	})
}

// inGroup makes a group with the filter and calls use with it. If that fails the group is removed, and where it was
// gone already, all is done once more: SweepGroups of another process cannot tell a group without a process that is new
// from one that is left.
func (h hierarchy) inGroup(numbers []isolate.DeviceNumber, use func(dir string) error) error {
	parent := cgroupfs.Own(h.controller)
	why := h.refusal(parent)
	if why != nil {
		return why
	}

	for range mostTries {
		why = h.tryGroup(parent, numbers, use)
		if !errors.Is(why, unix.ENOENT) && !errors.Is(why, unix.ENODEV) {
			break
		}
	}

	return why
}

// tryGroup does once what inGroup does.
func (h hierarchy) tryGroup(parent string, numbers []isolate.DeviceNumber, use func(dir string) error) (err error) {
	dir, err := os.MkdirTemp(parent, wallPrefix+"*")
	if err != nil {
		return err
	}

	defer func() {
		if err != nil {
			cgroupfs.Prune(dir)
		}
	}()

	err = os.Chmod(dir, 0o755) //nolint:gosec // programs read the limits of their group there
	if err != nil {
		return err
	}

	err = h.deny(dir, numbers)
	if err != nil {
		return err
	}

	return use(dir)
}

// refusal says why no wall can stand below a group.
func (h hierarchy) refusal(parent string) error {
	if parent == "" {
		return errors.New("it is not mounted")
	}
	if why := cgroupfs.Fixed(parent); why != "" {
		return errors.New(why)
	}

	// Who may write in a group above can move his processes there.
	var fs unix.Statfs_t
	for dir := parent; unix.Statfs(dir, &fs) == nil && int64(fs.Type) == h.magic; dir = filepath.Dir(dir) { //nolint:unconvert // 32 bits elsewhere
		for _, path := range []string{dir, filepath.Join(dir, "cgroup.procs")} {
			var stat unix.Stat_t
			err := unix.Stat(path, &stat)
			if err != nil {
				return fmt.Errorf("cannot see who may move processes to %s: %w", dir, err)
			}
			if stat.Uid != 0 || stat.Mode&0o022 != 0 {
				return fmt.Errorf("the control group %s is not root's alone, so that a job could move out", dir)
			}
		}
	}

	return nil
}

// wantRoot refuses a user, also one who has the capabilities and a group.
func wantRoot() error {
	if os.Geteuid() == 0 {
		return nil
	}
	return errors.New("the kernel lets only root filter devices, and who owns a control group could move out of it: sudo gpuard run --isolate cgroup -- setpriv --reuid NAME --regid GROUP --init-groups COMMAND")
}

// denyByList denies devices in a group of version 1: cgroup-v1/devices.rst of the kernel. It takes CAP_SYS_ADMIN,
// whoever owns the group (security/device_cgroup.c, devcgroup_update_access).
func denyByList(dir string, numbers []isolate.DeviceNumber) error {
	for _, n := range numbers {
		err := os.WriteFile(filepath.Join(dir, "devices.deny"), fmt.Appendf(nil, "c %d:%d rwm", n.Major, n.Minor), 0)
		if err != nil {
			return err
		}
	}
	return nil
}

// SweepGroups removes the groups of walls below the own one behind which no process is left. Who ends a lease calls it,
// and who builds a wall, for what was left by a process that was killed.
func SweepGroups() {
	for _, h := range hierarchies() {
		dir := cgroupfs.Own(h.controller)
		if dir == "" {
			continue
		}
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if e.IsDir() && strings.HasPrefix(e.Name(), wallPrefix) {
				cgroupfs.Prune(filepath.Join(dir, e.Name()))
			}
		}
	}
}

// Cgroup says why no control group can filter devices here; "" where one can. It makes one and removes it.
func Cgroup() string {
	err := wantRoot()
	if err != nil {
		return err.Error()
	}

	var reasons []string
	for _, h := range hierarchies() {
		var made string
		err = h.inGroup([]isolate.DeviceNumber{{}}, func(dir string) error { made = dir; return nil })
		if err == nil {
			cgroupfs.Prune(made)
			return ""
		}
		reasons = append(reasons, h.name+": "+err.Error())
	}

	return strings.Join(reasons, "; ")
}

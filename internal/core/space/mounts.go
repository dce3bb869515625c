package space

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Mount is a line of mountinfo (proc_pid_mountinfo(5)).
type Mount struct {
	ID int
	// The device of the file system, as "8:1".
	Device string
	// Mounted part of the file system.
	Root  string
	Point string // mount point
	// It receives mounts from the namespace that it was copied from.
	Slave   bool
	Kind    string
	Source  string
	Options string // of the file system
}

// ParseMounts reads mountinfo. A line that cannot be read is left out.
func ParseMounts(mountinfo string) []Mount {
	var all []Mount
	for line := range strings.Lines(mountinfo) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}

		m := Mount{Device: f[2], Root: unescapeOctal(f[3]), Point: unescapeOctal(f[4])}
		m.ID, _ = strconv.Atoi(f[0])
		if i := slices.Index(f, "-"); i > 5 && len(f) > i+2 {
			m.Slave = slices.ContainsFunc(f[6:i], func(tag string) bool { return strings.HasPrefix(tag, "master:") })
			m.Kind, m.Source, m.Options = f[i+1], unescapeOctal(f[i+2]), f[len(f)-1]
		}

		all = append(all, m)
	}
	return all
}

// unescapeOctal undoes the kernel's octal escapes of space, tab, newline and backslash.
func unescapeOctal(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}

	return b.String()
}

// Sight is whether the rest of the machine sees the files that a process writes to a folder.
type Sight int

// Unclear: the process cannot find out.
const (
	Unclear Sight = iota
	Common
	Private
)

// MountView is a folder in a mount namespace other than the machine's: the ID of its mount, and all visible mounts.
type MountView struct {
	On  int
	All []Mount
}

// JudgeSight says whether the machine sees the folder. why is the reason for Private, and for Unclear, where it is
// Private if this is a container. A namespace does not list the mounts of the machine's own one, but mounts that were
// copied from there can usually be distinguished from those made inside.
func (m MountView) JudgeSight() (s Sight, why string) {
	i := slices.IndexFunc(m.All, func(o Mount) bool { return o.ID == m.On })
	if i < 0 {
		// Mounts that cannot be reached from the root folder are not listed.
		return Private, "this is a chroot"
	}

	on := m.All[i]
	switch uid := on.mountOwner(); {
	case strings.Contains(on.Root, "/systemd-private-"):
		// systemd.exec(5), PrivateTmp=.
		return Private, on.Point + " is private to this service (PrivateTmp=)"
	case uid != 0:
		return Private, fmt.Sprintf("%s was mounted in here by uid %d", on.Point, uid)
	}

	if on.Point == "/" && strings.Contains(on.Kind, "overlay") {
		// Or a system that runs from an image.
		return Unclear, "this is a container"
	}

	copied := slices.ContainsFunc(m.All, func(o Mount) bool { return o.Slave }) && !m.sharesLittle()
	switch {
	case copied && !on.Slave:
		return Private, on.Point + " was mounted in this mount namespace alone"
	case copied && m.inPlace(on), on.Point == "/" && on.Root == "/" && strings.HasPrefix(on.Source, "/dev/"):
		return Common, ""
	}

	return Unclear, ""
}

// sharesLittle reports whether / is the machine's and was not shared there, unlike some other mount, as that of a
// dockerd where no systemd runs. Then a copied mount need not receive anything. What was copied shows that / is the
// machine's: a part of its file system that is where it would be.
func (m MountView) sharesLittle() bool {
	i := slices.IndexFunc(m.All, func(o Mount) bool { return o.Point == "/" })
	if i < 0 || m.All[i].Slave || m.All[i].Root != "/" || !strings.HasPrefix(m.All[i].Source, "/dev/") {
		return false
	}
	return slices.ContainsFunc(m.All, func(o Mount) bool {
		return o.Slave && o.Device == m.All[i].Device && o.Root == o.Point && o.Point != "/"
	})
}

// mountOwner is the user who mounted a tmpfs: the kernel reports its uid in the machine's ids, and omits root
// (shmem_show_options in mm/shmem.c).
func (m Mount) mountOwner() int {
	if m.Kind != "tmpfs" {
		return 0
	}
	for option := range strings.SplitSeq(m.Options, ",") {
		if n, ok := strings.CutPrefix(option, "uid="); ok {
			uid, _ := strconv.Atoi(n)
			return uid
		}
	}
	return 0
}

// inPlace reports whether a mount shows all of a file system, or what the file system of / has at that place.
func (m MountView) inPlace(on Mount) bool {
	if on.Root == "/" || on.Point == "/" && on.Kind == "btrfs" {
		// Whose systems are in subvolumes.
		return true
	}
	return slices.ContainsFunc(m.All, func(root Mount) bool {
		return root.Point == "/" && on.Point != "/" && root.Device == on.Device && on.Root == path.Join(root.Root, on.Point)
	})
}

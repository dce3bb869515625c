package isolation

import (
	"errors"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// oldestABI is the first version of Landlock under which files can be renamed between folders (landlock(7), LANDLOCK_ACCESS_FS_REFER).
const oldestABI = 2

// Landlock says why rules of Landlock cannot be made here; "" where they can.
func Landlock() string {
	version, err := landlockABI()
	switch {
	case errors.Is(err, unix.ENOSYS):
		return "this kernel has no Landlock, or a sandbox hides it: Linux 5.19 or newer is needed"
	case errors.Is(err, unix.EOPNOTSUPP):
		return "Landlock is built into this kernel and not enabled: add landlock to lsm= on the kernel's command line"
	case err != nil:
		return "Landlock cannot be asked: " + err.Error()
	case version < oldestABI:
		return "this kernel's Landlock would forbid every rename between folders: Linux 5.19 or newer is needed"
	}
	return ""
}

// Namespace says why a user and a mount namespace cannot be made here; "" where they can. It makes them for a process that ends at
// once.
func Namespace() string {
	if _, err := os.Stat("/proc/self/uid_map"); err != nil {
		return "this kernel has no user namespaces"
	}
	attr := &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}},
		Chroot:      "/", // needs a capability in the namespace, which AppArmor may refuse
	}
	// What is executed does not exist: that it is looked for shows that all the rest worked.
	_, err := syscall.ForkExec("/proc/self/fd/no such program", []string{"none"}, &syscall.ProcAttr{Sys: attr})
	switch {
	case errors.Is(err, unix.ENOENT):
		return ""
	case setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
		return "AppArmor forbids it: sysctl kernel.apparmor_restrict_unprivileged_userns is 1"
	case setting("/proc/sys/kernel/unprivileged_userns_clone") == "0":
		return "sysctl kernel.unprivileged_userns_clone is 0"
	case setting("/proc/sys/user/max_user_namespaces") == "0":
		return "sysctl user.max_user_namespaces is 0"
	case errors.Is(err, unix.ENOSPC):
		return "there are too many user namespaces, or they are nested too deep"
	case err != nil:
		return "a user namespace cannot be made (" + err.Error() + "): a container or a sandbox forbids it, or this is inside a chroot"
	}
	return "a program that does not exist was started" // cannot be
}

func setting(path string) string {
	text, _ := os.ReadFile(path)
	return strings.TrimSpace(string(text))
}

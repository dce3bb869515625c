package isolation

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// minLandlockABI is the first version of Landlock under which files can be renamed between folders (landlock(7),
// LANDLOCK_ACCESS_FS_REFER).
const minLandlockABI = 2

// LandlockObstacle says why rules of Landlock cannot be made here; "" where they can.
func LandlockObstacle() string {
	version, err := landlockABI()
	switch {
	case errors.Is(err, unix.ENOSYS):
		return "this kernel has no Landlock, or a sandbox hides it: Linux 5.19 or newer is needed"
	case errors.Is(err, unix.EOPNOTSUPP):
		return "Landlock is built into this kernel and not enabled: add landlock to lsm= on the kernel's command line"
	case err != nil:
		return "Landlock cannot be asked: " + err.Error()
	case version < minLandlockABI:
		return "this kernel's Landlock would forbid every rename between folders: Linux 5.19 or newer is needed"
	}
	return ""
}

// NamespaceObstacle says why a user and a mount namespace cannot be made here, and a file mounted in it; "" where they
// can. A child that ends at once tries it.
func NamespaceObstacle() string {
	if _, err := os.Stat("/proc/self/uid_map"); err != nil {
		return "this kernel has no user namespaces"
	}
	err := tryNamespace()
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errProcessor):
		return err.Error()
	case readSetting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" && os.Geteuid() != 0:
		return "AppArmor forbids it: sysctl kernel.apparmor_restrict_unprivileged_userns is 1"
	case readSetting("/proc/sys/kernel/unprivileged_userns_clone") == "0" && os.Geteuid() != 0:
		return "sysctl kernel.unprivileged_userns_clone is 0"
	case readSetting("/proc/sys/user/max_user_namespaces") == "0":
		return "sysctl user.max_user_namespaces is 0"
	case errors.Is(err, unix.ENOSPC):
		return "there are too many user namespaces, or they are nested too deep"
	}

	return "a user namespace cannot be made, or nothing mounted in it (" + err.Error() + "): a container, a sandbox or Landlock forbids it, or this is inside a chroot"
}

// errProcessor: the list of system calls is made for two kinds.
var errProcessor = errors.New("gpuard does not know how on this processor")

func readSetting(path string) string {
	text, _ := os.ReadFile(path)
	return strings.TrimSpace(string(text))
}

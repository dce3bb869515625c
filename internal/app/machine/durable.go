package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/host/sys"
)

// What a user keeps beyond the life of a process belongs to one host: a home may be shared by many (NFS), and what is
// written there of processes, of boots and of leases means nothing on another one.
//
//	~/.local/state/gpuard/hosts/gpu07-3f2a9c1b7d21/queue
//	$GPUARD_STATE/user-1000/hosts/gpu07-3f2a9c1b7d21/queue

// DurablePath is the path of what this user keeps on this host under a name, such as "queue". Nothing is made.
func (h *Host) DurablePath(name string) (string, error) {
	all, err := h.HostsFolder()
	if err != nil {
		return "", err
	}
	return filepath.Join(all, h.folderIn(all), name), nil
}

// HomePath is DurablePath for what has nothing to do with leases, and so stays where it is when GPUARD_STATE names
// another folder for those; "" without a home.
func (h *Host) HomePath(name string) string {
	home := h.StateHome()
	if home == "" {
		return ""
	}
	all := filepath.Join(home, hostsFolder)

	return filepath.Join(all, h.folderIn(all), name)
}

// hostsFolder has a folder for each host on which the user has kept something.
const hostsFolder = "hosts"

// HostsFolder is the path of that folder.
func (h *Host) HostsFolder() (string, error) {
	own, _ := h.Env.Lookup("GPUARD_STATE")
	home, err := h.StateHome(), h.Proc.CheckClock()
	switch {
	case err != nil:
		// Whether a process of it lives could not be said.
		return "", err
	case own != "" && !filepath.IsAbs(own):
		return "", exit.Usagef("cannot use GPUARD_STATE=%s: it must be an absolute path", own)
	case own != "":
		return filepath.Join(own, fmt.Sprint("user-", os.Geteuid()), hostsFolder), nil
	case home == "":
		return "", exit.Usagef("cannot find a folder for what gpuard keeps: set HOME or GPUARD_STATE")
	}

	return filepath.Join(home, hostsFolder), nil
}

// MakeDurable is DurablePath, and makes the folder for this user alone. After it, and after OpenDurable, the path may
// be used: each folder on the way is this user's or root's, so that no other user can put something else in its place.
func (h *Host) MakeDurable(name string) (string, error) {
	all, err := h.HostsFolder()
	if err != nil {
		return "", err
	}

	if own, _ := h.Env.Lookup("GPUARD_STATE"); own != "" {
		if err := h.MakeParents(own); err != nil {
			return "", err
		}
	}

	// The path comes after the note: another process may have noted another folder just before.
	h.noteBoot(all)
	path, err := h.DurablePath(name)
	if err != nil {
		return "", err
	}

	dir, err := sys.OpenOwnFolder(path, 0o700)
	if err != nil {
		return "", err
	}

	return path, dir.Close()
}

// OpenDurable is DurablePath of a folder that is there, else the error is os.ErrNotExist.
func (h *Host) OpenDurable(name string) (string, error) {
	path, err := h.DurablePath(name)
	if err != nil {
		return "", err
	}

	dir, err := sys.OpenOwnFolder(path, 0)
	if err != nil {
		return "", err
	}

	return path, dir.Close()
}

// A machine may change its name while it runs (DHCP, hostnamectl), and have two at once (unshare --uts). So a link
// beside the folders, which is named by the boot, says which of them is in use until the next one: the same boot is the
// same machine for sure, which neither its name nor its id says of a copy of an image.
//
//	hosts/.boot-5ac2701be6d4-8d20c1f59a3e -> gpu07-3f2a9c1b7d21
const bootPrefix = ".boot-"

// folderIn is the name of this host's folder among all.
func (h *Host) folderIn(all string) string {
	if link := h.BootMark(); link != "" {
		folder, err := os.Readlink(filepath.Join(all, bootPrefix+link))
		if err == nil && folder == filepath.Base(folder) && !strings.HasPrefix(folder, ".") {
			return folder
		}
	}
	return h.HostFolder()
}

// noteBoot makes that link, if no other process has, and removes those of earlier boots to the same folder. Where there
// can be no links, the name of the machine decides, as it does after a boot.
func (h *Host) noteBoot(all string) {
	link := h.BootMark()
	if link == "" {
		return
	}

	folder := h.HostFolder()
	dir, err := sys.OpenOwnFolder(all, 0o700)
	if err != nil {
		// MakeDurable says it.
		return
	}

	defer dir.Close() //nolint:errcheck // nothing is written through it
	if _, err := dir.Lstat(bootPrefix + link); err == nil || dir.Symlink(folder, bootPrefix+link) != nil {
		return
	}

	entries, _ := os.ReadDir(dir.Name())
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir.Name(), e.Name())); err == nil && to == folder &&
			strings.HasPrefix(e.Name(), bootPrefix) && e.Name() != bootPrefix+link {
			_ = dir.Remove(e.Name())
		}
	}
}

// FoldersOfSameID lists which folders among all were used by a machine with this one's id: by this one under another
// name, or by a copy of its image.
func (h *Host) FoldersOfSameID(all string) (folders []string) {
	machine, _, known := strings.Cut(h.BootMark(), "-")
	entries, _ := os.ReadDir(all)
	for _, e := range entries {
		if !known || !strings.HasPrefix(e.Name(), bootPrefix+machine+"-") {
			continue
		}

		to, err := os.Readlink(filepath.Join(all, e.Name()))
		if err != nil {
			continue
		}

		folders = append(folders, to)
	}

	return folders
}

// BootMark tells this boot of this machine from all others; "" where it cannot be told, and in a container: its host
// is its PID namespace, or has another container's files, where its jobs would not run as they were handed in.
func (h *Host) BootMark() string {
	boot, err := h.Proc.BootID()
	data, _ := sys.ReadSome(h.SystemPath("/etc/machine-id"), 64)
	id := validID(string(data))
	if err != nil || id == "" || h.ownNamespace() != "" || h.Container() != "" {
		return ""
	}

	machine := sha256.Sum256([]byte("gpuard machine\x00" + id))
	sum := sha256.Sum256([]byte(strings.Join([]string{"gpuard boot", boot, id}, "\x00")))

	return hex.EncodeToString(machine[:6]) + "-" + hex.EncodeToString(sum[:6])
}

// ownNamespace is the PID namespace, if that is not the machine's.
func (h *Host) ownNamespace() string {
	if !h.HasOwnPIDNamespace() {
		return ""
	}
	return fmt.Sprint(h.Proc.PIDNamespace())
}

// HostFolder is the name that the folder of this host has by the name of the machine, which tells copies of one image
// apart that have the same machine id. The id tells machines of the same name apart.
func (h *Host) HostFolder() string {
	id, _ := sys.ReadSome(h.SystemPath("/etc/machine-id"), 64)
	boot, _ := h.Proc.BootID()
	return hostFolder(h.Proc.HostName(), string(id), boot, h.ownNamespace())
}

// hostFolder is HostFolder by the name of the machine, the content of machine-id(5), the id of this boot, and the PID
// namespace where that is not the machine's: a container cannot see which of the machine's processes live.
func hostFolder(name, id, boot, space string) string {
	id = validID(id)
	if id == "" && slices.Contains([]string{"", "(none)", "localhost", "localhost.localdomain"}, name) {
		// Nothing else tells it from others; what is kept ends with this boot.
		id = boot
	}

	sum := sha256.Sum256([]byte(strings.Join([]string{"gpuard", name, id, space}, "\x00")))
	plain := strings.Map(func(r rune) rune {
		if strings.ContainsRune("-_.", r) || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, strings.TrimLeft(name, "."))

	return plain + "-" + hex.EncodeToString(sum[:6])
}

// validID is the id in the content of machine-id(5); "" where it is missing, empty, or "uninitialized".
func validID(content string) string {
	id := strings.TrimSpace(content)
	if len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" || strings.Trim(id, "0") == "" {
		return ""
	}
	return id
}

// NameOfHost is the name of the machine whose folder has this name.
func (h *Host) NameOfHost(folder string) string {
	if i := strings.LastIndexByte(folder, '-'); i > 0 {
		return folder[:i]
	}
	return folder
}

// AdviseOwn adds to an error of MakeDurable and OpenDurable what helps against a folder of another user. GPUARD_STATE
// goes before XDG_STATE_HOME, and may be a folder that all can write.
func (h *Host) AdviseOwn(err error) error {
	var foreign *sys.ForeignError
	if !errors.As(err, &foreign) {
		return err
	}

	elsewhere := "set XDG_STATE_HOME to a folder of your own"
	if own, _ := h.Env.Lookup("GPUARD_STATE"); own != "" {
		elsewhere = "set GPUARD_STATE to a folder of your own, or unset it"
	}

	all, _ := h.HostsFolder()
	if ours := filepath.Dir(all); foreign.Path != ours && !strings.HasPrefix(foreign.Path, ours+"/") {
		return fmt.Errorf("%w; %s", err, elsewhere)
	}

	return fmt.Errorf("%s belongs to %s, not to you; ask them or root to remove it (sudo rm -r %s), or %s",
		foreign.Path, h.Names(foreign.UID), shellquote.Sh(foreign.Path), elsewhere)
}

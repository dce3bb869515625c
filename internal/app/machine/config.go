package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"gpuard/internal/core/diagnostic"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/policy"
	"gpuard/internal/host/files"
	"gpuard/internal/text/config"
)

// There is no daemon of root: each gpuard applies the rules to its own caller. So rules prevent mistakes, and do not
// stop a user who means to get around them. What the kernel vouches for is still checked: the owner of each file, and
// the uid of the caller.

// machineConfig is the machine's policy, below Root.
const machineConfig = "etc/gpuard/config.yaml"

// ConfigPatience is the deadline for reading a configuration file where no terminal shows what gpuard waits for.
const ConfigPatience = 2 * time.Second

// MachineConfig is where the policy of the machine lies.
func (h *Host) MachineConfig() string { return filepath.Join(h.Root, machineConfig) }

// UserConfig is where the policy of the caller lies; "" when that cannot be told.
func (h *Host) UserConfig() string {
	if x, _ := h.Env.Lookup("XDG_CONFIG_HOME"); filepath.IsAbs(x) {
		return filepath.Join(x, "gpuard", "config.yaml")
	}
	if home, _ := h.Env.Lookup("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".config", "gpuard", "config.yaml")
	}
	return ""
}

// Config is what the files of the machine, of the caller and of the project say. Where one of them is wrong, or not to
// be trusted, the error names it, and nothing may be leased.
func (h *Host) Config() (policy.Policy, error) {
	var p policy.Policy
	switch {
	case h.Root == "":
		// Nothing of this computer is looked at.
		return h.withProject(nil), nil
	case time.Since(h.said.at) < MaxReadingAge:
		return h.said.policy, nil
	}

	machine, err := h.configFile(h.MachineConfig(), true)
	if err == nil && machine != nil {
		p = append(p, machine)
	}

	if path := h.UserConfig(); err == nil && path != "" {
		var own *policy.File
		own, err = h.configFile(path, false)
		if own != nil {
			p = append(p, own)
		}
	}

	if err != nil {
		return nil, err
	}

	p = h.withProject(p)
	h.said = configCache{at: time.Now(), policy: p}

	return p, nil
}

// ForgetConfig makes the next call of Config read the files again.
func (h *Host) ForgetConfig() { h.said = configCache{} }

// withProject adds what the file of a project says.
func (h *Host) withProject(p policy.Policy) policy.Policy {
	if h.Project != nil {
		p = append(p, h.Project)
	}
	return p
}

// configCache is what the files said: one command asks several times.
type configCache struct {
	at     time.Time
	policy policy.Policy
	// The rules for the caller; nil: not asked yet.
	rules *Rules
}

// configFile reads one file, in the time that there is for it; nil when there is none.
func (h *Host) configFile(path string, machine bool) (*policy.File, error) {
	if h.Patience <= 0 {
		return h.readConfig(path, machine)
	}

	type answer struct {
		file *policy.File
		err  error
	}

	read := make(chan answer, 1)
	go func() {
		file, err := h.readConfig(path, machine)
		read <- answer{file, err}
	}()

	select {
	case got := <-read:
		return got.file, got.err
	case <-time.After(h.Patience):
		return nil, fmt.Errorf("cannot read %s within %s: its file system does not answer, or the file is of a kind that takes long to read; try: cat %[1]s", path, h.Patience)
	}
}

func (h *Host) readConfig(path string, machine bool) (*policy.File, error) {
	uid := uint32(os.Geteuid())
	text, err := files.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR), !machine && errors.Is(err, os.ErrPermission):
		// The home folder of another user.
		return nil, nil //nolint:nilnil // nothing is said
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("cannot read the policy of this machine, %s: %w; ask root to make it readable for all: chmod a+r %[1]s", path, err)
	case err != nil:
		return nil, fmt.Errorf("cannot read %s: %w; remove it, or ask its owner to", path, err)
	}

	if machine && h.maybeRoots(path, text) {
		text.UID = 0
	}

	if err := checkTrusted(path, text, machine, uid, h.Names); err != nil {
		return nil, err
	}

	f, mistakes := config.ReadPolicy(text.Content, path, machine)
	if len(mistakes) > 0 {
		do := "mend it, since nothing is leased until then"
		if machine && uid != 0 {
			do = "ask root to mend it, since nothing is leased until then"
		}
		return nil, &diagnostic.Many{File: path, List: mistakes, Do: do}
	}

	return f, nil
}

// checkTrusted refuses a file that belongs to neither the caller nor root, or that others than its owner can write. The
// policy of the machine is root's alone.
func checkTrusted(path string, text files.Text, machine bool, uid uint32, names func(uint32) string) error {
	sudo, owner := "", uid
	if machine {
		sudo, owner = "sudo ", 0
	}

	switch {
	case !text.IsOwnedBy(owner):
		beside := ""
		if machine && text.UID == 65534 {
			// The uid that all users without a mapping have in a user namespace (user_namespaces(7)).
			beside = "; in a user namespace (unshare -r, a rootless container) that may be root all the same: lease outside of it"
		}
		return fmt.Errorf("cannot use %s: it belongs to %s, and only one of %s counts there; %schown %[3]s %[1]s, or remove it%[5]s", path, names(text.UID), names(owner), sudo, beside)
	case text.CanOthersWrite(), machine && text.Mode&0o020 != 0:
		return fmt.Errorf("cannot use %s: others than its owner may write it (mode %#o); %schmod go-w %[1]s", path, text.Mode, sudo)
	}

	return nil
}

// maybeRoots reports whether a file may be root's where that cannot be told, as behind a wall: in a user namespace
// without root's uid all owners without a mapping are shown as one (user_namespaces(7)). It must be none that the
// caller could have put there.
func (h *Host) maybeRoots(path string, text files.Text) bool {
	ids := h.Proc.IDs()
	if !ids.Hides(0) || !slices.Contains(ids.OverflowIDs(), text.UID) {
		return false
	}

	for !files.IsWritable(path) {
		if path == filepath.Dir(path) {
			return true
		}
		path = filepath.Dir(path)
	}

	return false
}

// Rules are what the files say to the caller.
type Rules struct {
	Limits   policy.Limits
	Tolerate pick.Tolerance
}

// Rules reads the configuration files and returns the rules for the caller.
func (h *Host) Rules() (Rules, error) {
	p, err := h.Config()
	out := Rules{Tolerate: pick.DefaultTolerance()}
	switch {
	case err != nil || len(p) == 0:
		return out, err
	case h.said.rules != nil:
		return *h.said.rules, nil
	}

	out.Limits = p.For(h.callerUser(p.Names()))
	base := out.Tolerate
	t := p.ApplyTolerance(policy.Tolerance{Memory: &base.Memory, Display: &base.Display, Utilization: &base.Utilization})
	out.Tolerate.Memory, out.Tolerate.Display, out.Tolerate.Utilization = *t.Memory, *t.Display, *t.Utilization
	out.Tolerate.MemoryCut = p.MemoryCut(base.Memory)
	limit := p.DisplayLimit(pick.DefaultTolerance().Display)
	out.Tolerate.DisplayBy, out.Tolerate.DisplayRaise, out.Tolerate.DisplayCut = limit.By, limit.Raise, limit.Cut
	h.said.rules = &out

	return out, nil
}

// callerUser is the user and the groups of this process, as the kernel reports them, with their names where rules need
// them.
func (h *Host) callerUser(users, groups bool) policy.User {
	u := policy.User{UID: uint32(os.Geteuid()), GIDs: []uint32{uint32(os.Getegid())}}
	more, _ := os.Getgroups()
	for _, g := range more {
		if !slices.Contains(u.GIDs, uint32(g)) {
			u.GIDs = append(u.GIDs, uint32(g))
		}
	}

	return h.Proc.AddNames(u, users, groups)
}

// Limits are the rules that bind the caller.
func (h *Host) Limits() (policy.Limits, error) {
	r, err := h.Rules()
	return r.Limits, err
}

// ConfigProblem returns what is wrong with the configuration files, "" for nothing. status shows it and goes on.
func (h *Host) ConfigProblem() string {
	if _, err := h.Config(); err != nil {
		return "nothing is leased: " + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return ""
}

// MaxReadingAge is how old a reading may be on which devices are given.
const MaxReadingAge = time.Second

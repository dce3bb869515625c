package app

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

// Without a daemon of root's, every gpuard judges its own caller: rules keep people from mistakes, and not those who
// want to get around them. What can be had for nothing is had all the same: whose the files are, and who asks, is the kernel's word.

// machineConfig is the machine's policy, below Root.
const machineConfig = "etc/gpuard/config.yaml"

// patient is how long a configuration file is waited for where nobody sees for what.
const patient = 2 * time.Second

// MachineConfig is where the policy of the machine lies.
func (a *App) MachineConfig() string { return filepath.Join(a.Root, machineConfig) }

// UserConfig is where the policy of the caller lies; "" when that cannot be told.
func (a *App) UserConfig() string {
	if x, _ := a.Env.Lookup("XDG_CONFIG_HOME"); filepath.IsAbs(x) {
		return filepath.Join(x, "gpuard", "config.yaml")
	}
	if home, _ := a.Env.Lookup("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".config", "gpuard", "config.yaml")
	}
	return ""
}

// Config is what the files of the machine, of the caller and of the project say. Where one of them is wrong, or not to be trusted, the error
// names it, and nothing may be leased.
func (a *App) Config() (policy.Policy, error) {
	var p policy.Policy
	switch {
	case a.Root == "": // nothing of this computer is looked at
		return a.narrowed(nil), nil
	case time.Since(a.said.at) < freshness:
		return a.said.policy, nil
	}
	machine, err := a.configFile(a.MachineConfig(), true)
	if err == nil && machine != nil {
		p = append(p, machine)
	}
	if path := a.UserConfig(); err == nil && path != "" {
		var own *policy.File
		if own, err = a.configFile(path, false); own != nil {
			p = append(p, own)
		}
	}
	if err != nil {
		return nil, err
	}
	p = a.narrowed(p)
	a.said = said{at: time.Now(), policy: p}
	return p, nil
}

// forgetConfig makes the next call of Config read the files again.
func (a *App) forgetConfig() { a.said = said{} }

// narrowed adds what the file of a project says.
func (a *App) narrowed(p policy.Policy) policy.Policy {
	if a.Project != nil {
		p = append(p, a.Project)
	}
	return p
}

// said is what the files said: one command asks several times.
type said struct {
	at     time.Time
	policy policy.Policy
	rules  *rules // for the caller; nil: not asked yet
}

// configFile reads one file, in the time that there is for it; nil when there is none.
func (a *App) configFile(path string, machine bool) (*policy.File, error) {
	if a.Patience <= 0 {
		return a.readConfig(path, machine)
	}
	type answer struct {
		file *policy.File
		err  error
	}
	read := make(chan answer, 1)
	go func() {
		file, err := a.readConfig(path, machine)
		read <- answer{file, err}
	}()
	select {
	case got := <-read:
		return got.file, got.err
	case <-time.After(a.Patience):
		return nil, fmt.Errorf("cannot read %s within %s: its file system does not answer, or the file is of a kind that takes long to read; try: cat %[1]s", path, a.Patience)
	}
}

func (a *App) readConfig(path string, machine bool) (*policy.File, error) {
	uid := uint32(os.Geteuid())
	text, err := files.Read(path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR), !machine && errors.Is(err, os.ErrPermission): // somebody else's home
		return nil, nil //nolint:nilnil // nothing is said
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("cannot read the policy of this machine, %s: %w; ask root to let everybody read it: chmod a+r %[1]s", path, err)
	case err != nil:
		return nil, fmt.Errorf("cannot read %s: %w; remove it, or ask its owner to", path, err)
	}
	if err := trusted(path, text, machine, uid, a.Names); err != nil {
		return nil, err
	}
	f, mistakes := config.Read(text.Content, path)
	if len(mistakes) > 0 {
		do := "mend it, since nothing is leased until then"
		if machine && uid != 0 {
			do = "ask root to mend it, since nothing is leased until then"
		}
		return nil, &diagnostic.Many{File: path, List: mistakes, Do: do}
	}
	f.Machine = machine
	return f, nil
}

// trusted refuses a file that belongs to neither the caller nor root, or that others than its owner can write. The policy of the
// machine is root's alone.
func trusted(path string, text files.Text, machine bool, uid uint32, names func(uint32) string) error {
	sudo, owner := "", uid
	if machine {
		sudo, owner = "sudo ", 0
	}
	switch {
	case !text.OwnedBy(owner):
		beside := ""
		if machine && text.UID == 65534 { // which stands for ids that have none in a user namespace (user_namespaces(7))
			beside = "; in a user namespace (unshare -r, a rootless container) that may be root all the same: lease outside of it"
		}
		return fmt.Errorf("cannot use %s: it belongs to %s, and only one of %s counts there; %schown %[3]s %[1]s, or remove it%[5]s", path, names(text.UID), names(owner), sudo, beside)
	case text.OthersWrite(), machine && text.Mode&0o020 != 0:
		return fmt.Errorf("cannot use %s: others than its owner may write it (mode %#o); %schmod go-w %[1]s", path, text.Mode, sudo)
	}
	return nil
}

// rules are what the files say to the caller.
type rules struct {
	limits   policy.Limits
	tolerate pick.Tolerance
}

// rules reads the files and asks whom they name.
func (a *App) rules() (rules, error) {
	p, err := a.Config()
	out := rules{tolerate: pick.DefaultTolerance()}
	switch {
	case err != nil || len(p) == 0:
		return out, err
	case a.said.rules != nil:
		return *a.said.rules, nil
	}
	out.limits = p.For(a.caller(p.Names()))
	base := out.tolerate
	t := p.Tolerance(policy.Tolerance{Memory: &base.Memory, Display: &base.Display, Utilization: &base.Utilization})
	out.tolerate.Memory, out.tolerate.Display, out.tolerate.Utilization = *t.Memory, *t.Display, *t.Utilization
	a.said.rules = &out
	return out, nil
}

// caller is who asks, by the kernel's word, with names where they are needed.
func (a *App) caller(users, groups bool) policy.User {
	u := policy.User{UID: uint32(os.Geteuid()), GIDs: []uint32{uint32(os.Getegid())}}
	more, _ := os.Getgroups()
	for _, g := range more {
		if !slices.Contains(u.GIDs, uint32(g)) {
			u.GIDs = append(u.GIDs, uint32(g))
		}
	}
	return a.Proc.Account(u, users, groups)
}

// Limits are the rules that bind the caller.
func (a *App) Limits() (policy.Limits, error) {
	r, err := a.rules()
	return r.limits, err
}

// Unruly says what is wrong with the files, "" nothing, to somebody who only looks.
func (a *App) Unruly() string {
	if _, err := a.Config(); err != nil {
		return "nothing is leased: " + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return ""
}

// freshness is how old a reading may be on which devices are given.
const freshness = time.Second

package setup

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/edit"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/host/manifest"
	"gpuard/internal/host/store"
	"gpuard/internal/host/sys"
	"gpuard/internal/text/config"
)

// Machine sets gpuard up for all users: a folder for the leases that root owns, from each boot on, a policy to fill in,
// the manual, and completions. Files that a package of the distribution has installed stay as they are.
type Machine struct {
	Setup *Setup
	// That logins start; "" is this one.
	Program string
	// The pages of the manual, by the names of their files, such as gpuard-run.1.
	Pages map[string]string
	// Scripts, by the names of the shells.
	Completions map[string]string
}

// Key is what the setup is remembered by.
func (Machine) Key() (string, error) { return machineKey, nil }

const machineKey = "machine"

// CheckRoot is an error for all users but root.
func (m Machine) CheckRoot(remove bool) error {
	if os.Geteuid() == 0 || m.Setup.Host.Root != "/" {
		return nil
	}
	if remove {
		return fmt.Errorf("cannot remove what was set up for all users: only root can; type: %s --remove", store.SetupCommand())
	}
	return fmt.Errorf("cannot set gpuard up for all users: only root can; type: %s", store.SetupCommand())
}

// Wish is every file for the machine that is not there yet.
func (m Machine) Wish() (_ ChangePlan, err error) {
	w := ChangePlan{Key: machineKey, Leases: filepath.Join(m.Setup.Host.Root, leaseFolder), Users: filepath.Join(m.Setup.Host.Root, machine.UsersFolder), Try: []string{"man gpuard", "gpuard doctor"}}
	files, packaged := m.wantedFiles()
	if len(packaged) > 0 {
		w.Notes = append(w.Notes, "a package has installed "+strings.Join(packaged, ", ")+" already")
	}

	for _, c := range files {
		theirs, err := m.isUserFile(c)
		switch {
		case err != nil:
			return ChangePlan{}, err
		case theirs:
			w.Notes = append(w.Notes, c.Path+" is there already, and stays as it is")
		default:
			w.Changes = append(w.Changes, c)
		}
	}

	if !m.hasFile("usr/bin/systemd-tmpfiles") && !m.hasFile("bin/systemd-tmpfiles") {
		w.Notes = append(w.Notes, "there is no systemd-tmpfiles here, which makes "+leaseFolder+" again after a boot: let root call gpuard setup machine then")
	}

	w.Changes, err = m.addLogins(w.Changes)
	if err != nil {
		w.Notes = append(w.Notes, err.Error())
	}

	return w, nil
}

// leaseFolder is where systemd-tmpfiles makes the folder.
const leaseFolder = "/run/gpuard"

// addLogins adds what makes a login see the GPUs of the policy. The shells of all users then start the program, root's
// too, so only root may be able to change it.
func (m Machine) addLogins(changes []edit.Change) ([]edit.Change, error) {
	program, err := m.Program, error(nil)
	if program == "" {
		program, err = ProgramPath()
	}

	if err != nil {
		return changes, fmt.Errorf("logins are left as they are: %w", err)
	}

	err = checkProgramOwned(program)
	if err != nil {
		return changes, fmt.Errorf("logins are left as they are: %w; for that: sudo install %s /usr/local/bin/gpuard, and call gpuard setup machine there", err, shellquote.Sh(program))
	}

	whole := map[string]string{"etc/profile.d/gpuard.sh": LoginProfile(program), "etc/fish/conf.d/gpuard.fish": LoginFish(program)}
	for _, place := range slices.Sorted(maps.Keys(whole)) {
		changes = append(changes, edit.Change{Path: filepath.Join(m.Setup.Host.Root, place), Content: whole[place]})
	}

	for _, place := range []string{"etc/zsh/zprofile", "etc/zprofile"} {
		// Debian's and Fedora's.
		if m.hasFile(path.Dir(place)+"/zshrc") || m.hasFile(place) {
			changes = append(changes, edit.Change{Path: filepath.Join(m.Setup.Host.Root, place), Block: "login", Content: LoginProfile(program)})
			break
		}
	}

	return changes, nil
}

// checkProgramOwned is an error unless only root can change the program, also where a link leads to it.
func checkProgramOwned(program string) error {
	target, err := filepath.EvalSymlinks(program)
	if err != nil {
		return err
	}

	return cmp.Or(checkRootOwned(program), checkRootOwned(target))
}

// checkRootOwned is an error where others than root can change what lies under a path.
func checkRootOwned(at string) error {
	for ; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != 0 || info.Mode().Perm()&0o022 != 0 {
			return fmt.Errorf("they would start a program that others than root can change, by %s", at)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// wantedFiles are what a machine without the package needs, and the names of what the package has put into its place.
func (m Machine) wantedFiles() (wanted []edit.Change, packaged []string) {
	add := func(what, place, text string, elsewhere ...string) {
		if slices.ContainsFunc(elsewhere, m.hasFile) {
			packaged = append(packaged, what)
			return
		}
		wanted = append(wanted, edit.Change{Path: filepath.Join(m.Setup.Host.Root, place), Content: text})
	}

	add("config.yaml", "etc/gpuard/config.yaml", policyToFill())
	add("tmpfiles.d/gpuard.conf", "etc/tmpfiles.d/gpuard.conf", Tmpfiles(), "usr/lib/tmpfiles.d/gpuard.conf")
	if m.hasFile("usr/share/man/man1/gpuard.1.gz") {
		packaged = append(packaged, "the manual")
	} else {
		for _, name := range slices.Sorted(maps.Keys(m.Pages)) {
			add(name, path.Join("usr/local/share/man/man"+strings.TrimPrefix(path.Ext(name), "."), name), m.Pages[name])
		}
	}

	// The folders in which each shell searches for completions of the administrator: bash-completion's README.md, zsh's
	// default fpath, fish's completions.rst.
	add("the completion for bash", "usr/local/share/bash-completion/completions/gpuard", m.Completions["bash"], "usr/share/bash-completion/completions/gpuard")
	add("the completion for zsh", "usr/local/share/zsh/site-functions/_gpuard", m.Completions["zsh"], "usr/share/zsh/vendor-completions/_gpuard", "usr/share/zsh/site-functions/_gpuard")
	add("the completion for fish", "etc/fish/completions/gpuard.fish", m.Completions["fish"], "usr/share/fish/vendor_completions.d/gpuard.fish")

	return wanted, packaged
}

// policyToFill is an example without effect until its comment marks are removed: "#" before keys, "# " before prose.
func policyToFill() string {
	var b strings.Builder
	for line := range strings.Lines(config.Example()) {
		if line != "\n" && !strings.HasPrefix(line, "#") {
			b.WriteString("#")
		}
		b.WriteString(line)
	}
	return b.String()
}

func (m Machine) hasFile(place string) bool {
	_, err := os.Lstat(filepath.Join(m.Setup.Host.Root, place))
	return err == nil
}

// isUserFile reports whether a user has written the file.
func (m Machine) isUserFile(c edit.Change) (bool, error) {
	at, err := m.Setup.recordPath()
	if err != nil {
		return false, err
	}

	record, err := manifest.Peek(at)
	if err != nil {
		return false, err
	}

	var conflict *edit.Conflict
	now, err := readFound(&c, record.KnownSums(c))
	if err == nil {
		_, err = edit.PlanWrite(c, now)
	}

	if errors.As(err, &conflict) {
		return true, nil
	}

	return false, err
}

// makeUsers makes the folder in which each user keeps lines about ended leases, where root finds them.
func makeUsers(path string) error {
	if path == "" {
		return nil
	}

	err := sys.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = sys.Mkdir(path, machine.UsersMode)
	}

	if err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("cannot make the folder for the history of all users: %w", err)
	}

	return nil
}

// Tmpfiles is tmpfiles.d/gpuard.conf: the folder of the leases as store.Create makes it (tmpfiles.d(5)), and that of
// makeUsers.
func Tmpfiles() string {
	var b strings.Builder
	b.WriteString("# The leases of gpuard, in a folder of root's, where users cannot touch each other's.\n")

	for _, p := range store.FolderParts() {
		kind, text := "f", strings.ReplaceAll(p.Content, "\n", `\n`)
		if p.Folder {
			kind = "d"
		}
		fmt.Fprintf(&b, "%s\n", strings.TrimSpace(fmt.Sprintf("%s %s %04o root root - %s", kind, path.Join(leaseFolder, p.Name), p.Mode, text)))
	}

	fmt.Fprintf(&b, "# The history of leases that have ended, in a folder of each user's.\nd /%s 0755 root root -\nd /%s %04o root root -\n", path.Dir(machine.UsersFolder), machine.UsersFolder, machine.UsersMode)

	return b.String()
}

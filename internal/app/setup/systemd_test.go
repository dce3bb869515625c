package setup

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/visible"
	"gpuard/internal/gate"
	"gpuard/internal/text/unit"
)

// TestUnitFolders: units are searched in the folders that systemd reports, in its order.
func TestUnitFolders(t *testing.T) {
	gate.Need(t, "systemd")
	home, runtime := t.TempDir(), t.TempDir()
	for _, env := range [][]string{nil, {"SYSTEMD_UNIT_PATH=/a:/b:"}, {"SYSTEMD_UNIT_PATH=/a"}, {"XDG_DATA_HOME=/d", "XDG_CONFIG_HOME=/c", "XDG_CONFIG_DIRS=/e:/f", "XDG_DATA_DIRS=/g"}} {
		env = append(env, "HOME="+home, "XDG_RUNTIME_DIR="+runtime, "PATH="+os.Getenv("PATH"))
		for _, manager := range []string{"--system", "--user"} {
			cmd := exec.Command("systemd-analyze", manager, "unit-paths")
			cmd.Env = env
			said, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			got, err := (&Setup{Host: &machine.Host{Root: "/", Env: visible.Env(env)}}).unitFolders(manager == "--user")
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Fields(string(said))
			ours := slices.DeleteFunc(slices.Clone(got.all), func(dir string) bool { return !slices.Contains(want, dir) })
			if !slices.Equal(ours, want) {
				t.Errorf("%s %q:\n%s\nsystemd:\n%s", manager, env, strings.Join(got.all, "\n"), said)
			}
			if beyond := len(got.all) - len(ours); beyond > 1 { // /lib, where that is not /usr/lib
				t.Errorf("%s %q: %d more than systemd has: %s", manager, env, beyond, got.all)
			}
		}
	}
}

// TestDroppedInto: drop-ins are looked for where systemd says that it finds them, in the same order. Each folder has a
// file of the same name with a key of its own that systemd does not know; it names that of the file which counts, until
// that is taken away.
func TestDroppedInto(t *testing.T) {
	gate.Need(t, "systemd")
	t.Parallel()
	for name, file := range map[string]string{"a-b-c@x-y.service": "a-b-c@.service", "a-b-@.service": "", "a--b-.service": "", "-a.service": ""} {
		dirs := []string{t.TempDir(), t.TempDir()}
		u := unitFolders{all: dirs}
		planted(t, dirs[1], map[string]string{cmp.Or(file, name): "[Service]\nExecStart=/bin/true\n"})
		other := func(name string) string { return "z" + strings.TrimLeft(name, "abc-") }
		if err := os.Symlink(cmp.Or(file, name), filepath.Join(dirs[1], other(cmp.Or(file, name)))); err != nil {
			t.Fatal(err)
		}
		keys := map[string]string{}
		for _, into := range slices.Concat(dropInNames(name), dropInNames(other(name)), []string{"service", "none.service", "a-.service", "a-@x-y.service", "a-b.service"}) {
			for i, dir := range dirs {
				key := fmt.Sprintf("Key%d_%s", i, into)
				keys[key] = filepath.Join(dir, into+".d")
				planted(t, dir, map[string]string{into + ".d/x.conf": "[Service]\n" + key + "=1\n"})
			}
		}
		var want []string
		for {
			cmd := exec.Command("systemd-analyze", "--user", "--man=no", "verify", "--", name)
			cmd.Env = []string{"HOME=/nonexistent", "XDG_RUNTIME_DIR=" + t.TempDir(), "SYSTEMD_UNIT_PATH=" + strings.Join(dirs, ":"), "PATH=" + os.Getenv("PATH")}
			said, _ := cmd.CombinedOutput()
			counts := regexp.MustCompile(`Unknown key(?: name)? '(\S+)' in section`).FindSubmatch(said)
			if counts == nil {
				break
			}
			want = append(want, keys[string(counts[1])])
			if err := os.RemoveAll(keys[string(counts[1])]); err != nil {
				t.Fatal(err)
			}
		}
		if got := u.dropInFolders(name); len(want) < 4 || !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nsystemd:\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestService: what a unit may and may not have for gpuard to start its command.
func TestService(t *testing.T) {
	for _, c := range []struct {
		text, program string
		user          bool
		refused       string // part of why; "" not refused
		readOnly      bool
		clocks        string
	}{
		{"", "/home/ann/bin/gpuard", false, "", false, ""},
		{"User=bob", "/home/ann/bin/gpuard", false, "sudo install /home/ann/bin/gpuard", false, ""},
		{"User=bob", "/usr/bin/gpuard", false, "", false, ""},
		{"User=bob", "/root/gpuard", false, "in a home folder", false, ""},
		{"DynamicUser=1", "/home/ann/bin/gpuard", false, "in a home folder", true, ""},
		{"ProtectHome=tmpfs", "/home/ann/bin/gpuard", true, "in a home folder", false, ""},
		{"ProtectHome=read-only", "/home/ann/bin/gpuard", true, "", false, ""},
		{"ProtectHome=yes\nProtectHome=off", "/home/ann/bin/gpuard", true, "", false, ""},
		{"RootImage=/x", "/usr/bin/gpuard", false, "RootImage=", false, ""},
		{"ProtectSystem=strict", "/usr/bin/gpuard", false, "", true, ""},
		{"ProtectSystem=full", "/usr/bin/gpuard", false, "", false, ""},
		{"ReadOnlyPaths=/etc -/run/", "/usr/bin/gpuard", false, "", true, ""},
		{"ReadOnlyPaths=/run/x", "/usr/bin/gpuard", false, "", false, ""},
		{"WatchdogSec=5\nRuntimeMaxSec=infinity", "/usr/bin/gpuard", false, "", false, "WatchdogSec"},
		{"Type=notify\nWatchdogSec=5", "/usr/bin/gpuard", false, "", false, ""},
		{"Type=oneshot\nTimeoutSec=5\nWatchdogSec=5", "/usr/bin/gpuard", false, "", false, "TimeoutSec"},
	} {
		u := unitService{name: "a.service", program: c.program, user: c.user, entries: unit.Entries([]byte("[Service]\nExecStart=/bin/true\n" + c.text))}
		_, err := u.startCommands()
		if err != nil && (c.refused == "" || !strings.Contains(err.Error(), c.refused)) || err == nil && c.refused != "" || u.isReadOnly() != c.readOnly || strings.Join(u.runningClocks(), " ") != c.clocks {
			t.Errorf("%+v: %v, read only %v, %q", c, err, u.isReadOnly(), u.runningClocks())
		}
	}
}

// TestServiceNotes: each note is there for its service, and no other.
func TestServiceNotes(t *testing.T) {
	root := t.TempDir()
	planted(t, root, map[string]string{"etc/default/a": "# CUDA_VISIBLE_DEVICES=7\nA=1\n HIP_VISIBLE_DEVICES=\"0\x1b\" \n"})
	for _, c := range []struct {
		text   string
		noWait bool
		want   string // of the only note; "" there is none
	}{
		{"Type=notify", false, ""},
		{"Type=notify\nTimeoutSec=5", false, "TimeoutSec=5 does not end its start any more"},
		{"Type=dbus\nTimeoutStartSec=5", false, "TimeoutStartSec=5 does not end its start any more"},
		{"Type=notify\nTimeoutStartSec=5", true, ""},
		{"Restart=on-failure", true, "Restart=on-failure without RestartSec= tries five times within a second and gives up; a line RestartSec=30 in systemctl edit a.service"},
		{"Restart=always\nRestartSec=5", true, ""},
		{"Restart=on-abnormal", true, ""},
		{"Type=notify\nRestart=always", false, ""},
		{"Type=notify\nProcSubset=pid", false, "write ProcSubset=all"},
		{"Type=notify\nEnvironmentFile=-/etc/default/?\nEnvironmentFile=/etc/none", false, "in " + root + `/etc/default/a, HIP_VISIBLE_DEVICES="0" is obeyed`},
		{"Type=notify\nEnvironmentFile=/etc/default/a\nEnvironmentFile=", false, ""},
	} {
		u := unitService{name: "a.service", root: root, shared: true, entries: unit.Entries([]byte("[Service]\nExecStart=/bin/true\n" + c.text))}
		notes := u.unitNotes(c.noWait)
		if said := strings.Join(notes, "\n"); !strings.Contains(said, c.want) || len(notes) > 1 || len(notes) == 1 && c.want == "" {
			t.Errorf("%q: %q, want %q", c.text, said, c.want)
		}
	}
}

// planted writes files below a folder.
func planted(t *testing.T, dir string, texts map[string]string) {
	t.Helper()
	for path, text := range texts {
		file := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFindDropIns: of files with one name the first counts, and one that leads nowhere takes the others away.
func TestFindDropIns(t *testing.T) {
	root := t.TempDir()
	planted(t, root, map[string]string{
		"usr/lib/systemd/system/a@.service": "unit", "usr/lib/systemd/system/a@.service.d/10.conf": "lib", "etc/systemd/system/a@x.service.d/10.conf": "etc",
		"usr/lib/systemd/system/service.d/20.conf": "all", "usr/lib/systemd/system/a@x.service.d/30.conf": "masked", "etc/systemd/system/a@x.service.d/zz-gpuard.conf": "ours", "etc/systemd/system/a@x.service.d/40.txt": "no",
	})
	if err := os.Symlink(os.DevNull, filepath.Join(root, "etc/systemd/system/a@x.service.d/30.conf")); err != nil {
		t.Fatal(err)
	}
	where, err := (&Setup{Host: &machine.Host{Root: root}}).unitFolders(false)
	if err != nil {
		t.Fatal(err)
	}
	f, err := where.findUnit("a@x.service")
	if want := "unit\n\n[]\netc\n\n[]\nall"; err != nil || f.text != want || f.path != filepath.Join(root, "usr/lib/systemd/system/a@.service") {
		t.Errorf("%+v %v", f, err)
	}
}

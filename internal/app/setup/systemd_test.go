package setup

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/app"
	"gpuard/internal/core/visible"
	"gpuard/internal/gate"
)

// TestUnitFolders: units are looked for where systemd says that it looks, in the same order.
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
			got, err := (&Setup{App: &app.App{Root: "/", Env: visible.Env(env)}}).unitFolders(manager == "--user")
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

func TestDroppedInto(t *testing.T) {
	for name, want := range map[string]string{
		"a.service":         "a.service service",
		"a-b-c.service":     "a-b-c.service a-b-.service a-.service service",
		"a-b@x-y.service":   "a-b@x-y.service a-b@.service a-.service service",
		"a@.service":        "a@.service service",
		"trailing-.service": "trailing-.service service",
	} {
		if got := strings.Join(droppedInto(name), " "); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestFindDropIns: of files with one name the first counts, and one that leads nowhere takes the others away.
func TestFindDropIns(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"usr/lib/systemd/system/a@.service": "unit", "usr/lib/systemd/system/a@.service.d/10.conf": "lib", "etc/systemd/system/a@x.service.d/10.conf": "etc",
		"usr/lib/systemd/system/service.d/20.conf": "all", "usr/lib/systemd/system/a@x.service.d/30.conf": "masked", "etc/systemd/system/a@x.service.d/zz-gpuard.conf": "ours", "etc/systemd/system/a@x.service.d/40.txt": "no",
	} {
		file := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(os.DevNull, filepath.Join(root, "etc/systemd/system/a@x.service.d/30.conf")); err != nil {
		t.Fatal(err)
	}
	where, err := (&Setup{App: &app.App{Root: root}}).unitFolders(false)
	if err != nil {
		t.Fatal(err)
	}
	f, err := where.find("a@x.service")
	if want := "unit\n\n[]\netc\n\n[]\nall"; err != nil || f.text != want || f.path != filepath.Join(root, "usr/lib/systemd/system/a@.service") {
		t.Errorf("%+v %v", f, err)
	}
}

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpuard/internal/gate"
	"gpuard/internal/text/desktop"
	"gpuard/test/executable"
)

const (
	userEntryFolder = ".local/share/applications/"
	mtoolsEntry     = `#!/usr/bin/env xdg-open
[Desktop Entry]
Version=1.0
Type=Application
Name=MTools
Name[de]=Werkzeuge\s& mehr
Name[zh_CN]=工具箱
X-GNOME-FullName=Toolbox
GenericName=Tools
Comment=Image, speech and video
Comment[de]=Bild, Sprache und Video
Exec=argv "a  b" "c\\$d\\"e" 100%% %% --title=%c %U
TryExec=argv
Icon=mtools
Terminal=false
DBusActivatable=true
NoDisplay=true
MimeType=image/png;image/jpeg;
Categories=Graphics;
Keywords=AI;
Keywords[de]=KI;
StartupNotify=true
StartupWMClass=mtools
X-Vendor-Thing=kept=so
Actions=new;old;

[Desktop Action new]
Name=New
Name[de]=Neu
Exec=argv --new "x\\\\y"

[Desktop Action old]
Name=Old
Icon=old
Exec=env A=1 argv --old %F
`
	plainEntry   = "[Desktop Entry]\nType=Application\nName=Plain\nExec=argv\nTerminal=true\nX-End=without a line end"
	browserEntry = "[Desktop Entry]\nVersion=1.0\nName=Browser\nExec=/usr/bin/argv %U\nTerminal=false\nType=Application\nMimeType=text/html;x-scheme-handler/https;\nCategories=Network;WebBrowser;\nActions=private;\n\n[Desktop Action private]\nName=Private\nExec=/usr/bin/argv --incognito\n"
)

// newDesktopHome has a home with programs in the menu; argv writes what it was started with and what it sees.
func newDesktopHome(t testing.TB) (home, bin string) {
	t.Helper()
	home, bin = filepath.Join(quietDir(t), "home"), makeProgramFolder(t)
	writeFilesBelow(t, home, map[string]string{".bashrc": "", "share/applications/org.x.MTools.desktop": mtoolsEntry, "share/applications/kde/plain.desktop": plainEntry, userEntryFolder + "browser.desktop": browserEntry})
	executable.Write(t, filepath.Join(bin, "argv"), []byte("#!/bin/sh\nfor a; do printf '<%s>' \"$a\"; done >\"$HOME/argv.new\"\nprintf '%s %s' \"$CUDA_VISIBLE_DEVICES\" \"${GPUARD_LEASE:+leased}\" >>\"$HOME/argv.new\"\nmv \"$HOME/argv.new\" \"$HOME/argv\"\n"))
	return home, bin
}

// desktopSetupCommand prepares gpuard setup desktop.
func desktopSetupCommand(t testing.TB, home, bin string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := setupCommand(t, home, bin, append([]string{"desktop"}, args...)...)
	cmd.Env = append(cmd.Env, "XDG_DATA_DIRS="+home+"/share")
	return cmd
}

// TestSetupDesktop: the copy is the entry but for what starts it and its name; all of it goes again.
func TestSetupDesktop(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, source, file string
		args               []string
		changed            []string // lines, old and new by turns
	}{
		{"all of it", mtoolsEntry, "org.x.MTools-gpuard.desktop", []string{"org.x.MTools", "--device", "0,1"}, []string{
			"Name=MTools\n", "Name=MTools (GPU 0,1)\n", "Name[de]=Werkzeuge\\s& mehr\n", "Name[de]=Werkzeuge\\s& mehr (GPU 0,1)\n", "=工具箱\n", "=工具箱 (GPU 0,1)\n", "=Toolbox\n", "=Toolbox (GPU 0,1)\n",
			"Exec=argv \"a", "Exec=GPUARD run --alert --device=0,1 --no-wait -- argv \"a", "Exec=argv --new", "Exec=GPUARD run --alert --device=0,1 --no-wait -- argv --new",
			"Exec=env", "Exec=GPUARD run --alert --device=0,1 --no-wait -- env", "DBusActivatable=true", "DBusActivatable=false", "NoDisplay=true", "NoDisplay=false", "MimeType=image/png;image/jpeg;\n", "",
			"xdg-open\n", "xdg-open\n# Written by gpuard setup desktop, which changes it and takes it away (--remove).\n"}},
		{"a module", mtoolsEntry, "org.x.MTools-gpuard-image-2.desktop", []string{"org.x.MTools.desktop", "--name", "Image 2", "--mem", "40G", "--", "--module", "image $x"}, []string{
			"Name=MTools\n", "Name=MTools (Image 2, GPU)\n", "mehr\n", "mehr (Image 2, GPU)\n", "=工具箱\n", "=工具箱 (Image 2, GPU)\n", "=Toolbox\n", "=Toolbox (Image 2, GPU)\n",
			"Exec=argv \"a", "Exec=GPUARD run --alert --mem=40G --no-wait -- argv \"a", "%c %U", "%c --module \"image \\\\$x\" %U", "Exec=argv --new", "Exec=GPUARD run --alert --mem=40G --no-wait -- argv --new",
			"Exec=env", "Exec=GPUARD run --alert --mem=40G --no-wait -- env", "DBusActivatable=true", "DBusActivatable=false", "NoDisplay=true", "NoDisplay=false", "MimeType=image/png;image/jpeg;\n", "",
			"xdg-open\n", "xdg-open\n# Written by gpuard setup desktop, which changes it and takes it away (--remove).\n"}},
		{"below a folder", plainEntry, "kde-plain-gpuard.desktop", []string{"kde-plain", "--ask", "--wait", "1h"}, []string{
			"Name=Plain\n", "Name=Plain (which GPU?)\n", "Exec=argv\n", "Exec=GPUARD run --alert --wait=1h --ask -- argv\n", "[Desktop Entry]\n", "# Written by gpuard setup desktop, which changes it and takes it away (--remove).\n[Desktop Entry]\n"}},
		{"own, by path", browserEntry, "browser-gpuard.desktop", []string{"./" + userEntryFolder + "browser.desktop", "--share", "8G", "--fallback", "cpu"}, []string{
			"Name=Browser\n", "Name=Browser (8G of a GPU)\n", "Exec=", "Exec=GPUARD run --alert --share=8G --fallback=cpu -- ", "MimeType=text/html;x-scheme-handler/https;\n", "",
			"[Desktop Entry]\n", "# Written by gpuard setup desktop, which changes it and takes it away (--remove).\n[Desktop Entry]\n"}},
	} {
		home, bin := newDesktopHome(t)
		before := readTree(t, home)
		if got := runCommand(t, desktopSetupCommand(t, home, bin, append([]string{"--dry-run"}, c.args...)...)); got.code != 0 {
			t.Fatalf("%s: %+v", c.name, got)
		}
		checkSameTree(t, c.name+" after --dry-run", before, readTree(t, home))
		if got := runCommand(t, desktopSetupCommand(t, home, bin, c.args...)); got.code != 0 {
			t.Fatalf("%s: %+v", c.name, got)
		}
		written := filepath.Join(home, userEntryFolder, c.file)
		got, err := os.ReadFile(written)
		if want := strings.NewReplacer(c.changed...).Replace(c.source); err != nil || strings.ReplaceAll(string(got), filepath.Join(bin, "gpuard"), "GPUARD") != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", c.name, err, got, want)
		}
		validateEntry(t, written)
		now := readTree(t, home)
		if got := runCommand(t, desktopSetupCommand(t, home, bin, c.args...)); got.code != 0 || !strings.Contains(got.out, "unchanged:") {
			t.Errorf("%s again: %+v", c.name, got)
		}
		checkSameTree(t, c.name+" again", now, readTree(t, home))
		if got := runCommand(t, desktopSetupCommand(t, home, bin, append([]string{"--remove"}, c.args...)...)); got.code != 0 {
			t.Errorf("%s: %+v", c.name, got)
		}
		checkSameTree(t, c.name+" after --remove", before, readTree(t, home))
	}
}

func validateEntry(t *testing.T, path string) {
	t.Helper()
	if !gate.Has(t, "desktop-file-validate") {
		return
	}
	if said, err := exec.Command("desktop-file-validate", path).CombinedOutput(); err != nil || strings.Contains(string(said), "error:") || strings.Contains(string(said), "warning:") {
		t.Errorf("desktop-file-validate: %v\n%s", err, said)
	}
}

// TestSetupDesktopOddPath: the specification has its own idea of what must be quoted.
func TestSetupDesktopOddPath(t *testing.T) {
	t.Parallel()
	gate.Need(t, "desktop-file-validate")
	home, bin := newDesktopHome(t)
	odd := filepath.Join(t.TempDir(), "a \"b' $c `d` \\e %f (g) é")
	if err := os.Rename(bin, odd); err != nil {
		t.Fatal(err)
	}
	if got := runCommand(t, desktopSetupCommand(t, home, odd, "org.x.MTools", "--device", "1")); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	written := filepath.Join(home, userEntryFolder, "org.x.MTools-gpuard.desktop")
	validateEntry(t, written)
	f := entryWords(t, written)
	if f[0][0] != filepath.Join(odd, "gpuard") {
		t.Errorf("%q", f[0])
	}
	equal := filepath.Join(t.TempDir(), "a=b")
	if err := os.Rename(odd, equal); err != nil {
		t.Fatal(err)
	}
	if got := runCommand(t, desktopSetupCommand(t, home, equal, "kde-plain")); got.code != 2 || !strings.Contains(got.err, "no = in its path") {
		t.Errorf("%+v", got)
	}
}

// entryWords are the words of each Exec of an entry.
func entryWords(t *testing.T, path string) (all [][]string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := desktop.ReadSteps(path, text)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range f.Steps {
		var words []string
		for _, w := range step.Words {
			words = append(words, w.Text)
		}
		all = append(all, words)
	}
	return all
}

// TestDesktopStarts: GLib, which most desktops use, starts the copy: the program gets the same arguments, the files
// too, on its GPU.
func TestDesktopStarts(t *testing.T) {
	t.Parallel()
	gate.Need(t, "gio")
	home, bin := newDesktopHome(t)
	if got := runCommand(t, desktopSetupCommand(t, home, bin, "org.x.MTools", "--device", "2", "--", "--module", `im"a$ge`)); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	writeFilesBelow(t, home, map[string]string{"a b.png": ""})
	cmd := desktopSetupCommand(t, home, bin)
	gio, err := exec.LookPath("gio")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path, cmd.Args = gio, []string{"gio", "launch", filepath.Join(home, userEntryFolder, "org.x.MTools-gpuard.desktop"), "a b.png"}
	if got := runCommand(t, cmd); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	const want = `<a  b><c$d"e><100%><%><--title=MTools (GPU 2)><--module><im"a$ge><`
	if got := waitForArgv(t, home); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "a b.png>2 leased") {
		t.Errorf("%s\nwant %s…", got, want)
	}
	action := gpuardCommand(t, filepath.Join(home, "..", "state"), []string{"GPUARD_MACHINE=demo", "HOME=" + home, "PATH=" + bin + ":" + os.Getenv("PATH")})
	words := entryWords(t, filepath.Join(home, userEntryFolder, "org.x.MTools-gpuard.desktop"))[1]
	action.Path, action.Args = words[0], words
	if got := runCommand(t, action); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	if got := waitForArgv(t, home); got != `<--new><x\y>2 leased` {
		t.Error(got)
	}
}

// TestDesktopModules: one entry per module, by the commands of docs/how-to/desktop.md. Each starts the program with its
// own arguments, and goes without the others.
func TestDesktopModules(t *testing.T) {
	t.Parallel()
	home, bin := newDesktopHome(t)
	writeFilesBelow(t, home, map[string]string{"share/applications/mtools.desktop": mtoolsEntry})
	before := readTree(t, home)
	page, err := os.ReadFile("../../docs/how-to/desktop.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## One entry per module\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var modules [][]string
	for line := range strings.Lines(section) {
		if command, ok := strings.CutPrefix(line, "    gpuard setup desktop "); ok {
			modules = append(modules, strings.Fields(command))
		}
	}
	if len(modules) < 2 {
		t.Fatalf("%q", section)
	}
	entry := func(args []string) string {
		return filepath.Join(home, userEntryFolder, "mtools-gpuard-"+args[slices.Index(args, "--name")+1]+".desktop")
	}
	for _, args := range modules {
		if got := runCommand(t, desktopSetupCommand(t, home, bin, args...)); got.code != 0 {
			t.Fatalf("%q: %+v", args, got)
		}
	}
	for _, args := range modules {
		text, err := os.ReadFile(entry(args))
		name := regexp.MustCompile(`(?m)^Name=(.*)$`).FindStringSubmatch(string(text))
		if err != nil || len(name) == 0 || !strings.Contains(section, `"`+name[1]+`"`) {
			t.Errorf("%q is called %q, which is not what the page says: %v", args, name, err)
		}
		validateEntry(t, entry(args))
		started := gpuardCommand(t, filepath.Join(home, "..", "state"), []string{"GPUARD_MACHINE=demo", "HOME=" + home, "PATH=" + bin + ":" + os.Getenv("PATH")})
		words := slices.DeleteFunc(entryWords(t, entry(args))[0], func(w string) bool { return w == "%U" })
		started.Path, started.Args = words[0], words
		if got := runCommand(t, started); got.code != 0 {
			t.Errorf("%q: %+v", words, got)
		}
		if got, want := waitForArgv(t, home), "<"+strings.Join(args[slices.Index(args, "--")+1:], "><")+">"; !strings.Contains(got, want) || !strings.HasSuffix(got, " leased") {
			t.Errorf("%q started with %s", args, got)
		}
	}
	for i, args := range modules {
		if got := runCommand(t, desktopSetupCommand(t, home, bin, "--remove", "mtools", "--name", args[slices.Index(args, "--name")+1])); got.code != 0 {
			t.Errorf("%+v", got)
		}
		for j, other := range modules {
			if _, err := os.Stat(entry(other)); (err == nil) != (j > i) {
				t.Errorf("after --remove of %q: %q: %v", args, other, err)
			}
		}
	}
	checkSameTree(t, "after --remove", before, readTree(t, home))
}

// waitForArgv is what argv wrote.
func waitForArgv(t *testing.T, home string) string {
	t.Helper()
	file := filepath.Join(home, "argv")
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if text, err := os.ReadFile(file); err == nil {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		if time.Now().After(end) {
			t.Fatal("the program did not start")
		}
	}
}

// TestSetupDesktopRefuses: what could not get a lease is not written.
func TestSetupDesktopRefuses(t *testing.T) {
	t.Parallel()
	home, bin := newDesktopHome(t)
	const head = "[Desktop Entry]\nType=Application\nName=X\n"
	texts := map[string]string{"edited-gpuard": head + "Exec=mine\n", "edited": head + "Exec=argv\n"}
	for name, lines := range map[string]string{"flat": "Exec=/usr/bin/flatpak run x", "snapped": "Exec=env BAMF=1 /snap/bin/x %U", "gone": "Hidden=true\nExec=argv", "noexec": "DBusActivatable=true", "own": "Exec=/usr/bin/gpuard run -- argv",
		"twice": "Exec=argv\nExec=flatpak run x", "zero": "Exec=ar\x00gv", "large": strings.Repeat("#\n", 5<<20), "moving": "Type=\x1b[2J"} {
		texts[name] = head + lines + "\n"
	}
	texts["linked"], texts["notext"], texts["headless"] = "[Desktop Entry]\nType=Link\nName=X\nURL=http://x\n", head+"Name[de]=\xff\n", "Name=x\n"
	for name, text := range texts {
		writeFilesBelow(t, home, map[string]string{userEntryFolder + name + ".desktop": text})
	}
	before := readTree(t, home)
	for _, c := range [][]string{
		{"sandbox of Flatpak", "flat"}, {"sandbox of snap", "snapped"}, {"counts as deleted", "gone"}, {"names no program", "noexec"}, {"starts gpuard already", "own"}, {"Type=Link", "linked"},
		{"no text in UTF-8", "notext"}, {"does not begin with [Desktop Entry]", "headless"}, {"is it org.x.MTools?", "mtools"}, {"takes the name of a file in /usr/share/applications", "nosuch"},
		{"there is no such file", "./x.desktop"}, {"ends in .desktop", "./bin"}, {"without its name"}, {"cannot set up 2 programs", "a", "b"}, {"gpuard has no record of writing it", "edited"},
		{"sandbox of Flatpak", "twice"}, {"no text in UTF-8", "zero"}, {"larger than", "large"}, {"it starts no program (Type=[2J)", "moving"}, {"one line of printable text", "kde-plain", "--name", "a\nExec=b"},
		{"one line of printable text", "kde-plain", "--name", "\xff"}, {"one line of printable text", "kde-plain", "--name", "\x1b[2J"}, {"it is not UTF-8", "kde-plain", "--", "\xff"}, {"it is not UTF-8", "kde-plain", "--model", "\xff"},
		{"the device is already given", "mtools", "--ask", "--device", "0"}, {"cannot ask for --mem", "mtools", "--mem", "4"},
	} {
		got := runCommand(t, desktopSetupCommand(t, home, bin, c[1:]...))
		if !strings.Contains(got.err, c[0]) || got.code != 2 && c[0] != "gpuard has no record of writing it" && c[0] != "larger than" || strings.Contains(got.err, "\x1b") || got.out != "" {
			t.Errorf("%q: want %q, got %+v", c[1:], c[0], got)
		}
	}
	checkSameTree(t, "refused", before, readTree(t, home))
}

// TestAlert: without a terminal a window shows once why nothing was started; closing a question's window shows none.
func TestAlert(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, display, script string
		args                  []string
		code                  int
		want                  string
	}{
		{"refused", ":9", "", []string{"--alert", "--device", "9", "--", "true"}, 122, "gpuard|"},
		{"not there", ":9", "", []string{"--alert", "--", "nosuchprogram"}, 127, `cannot run "nosuchprogram": no such command in PATH`},
		{"no desktop", "", "", []string{"--alert", "--device", "9", "--", "true"}, 122, ""},
		{"not asked for", ":9", "", []string{"--device", "9", "--", "true"}, 122, ""},
		{"nothing wrong", ":9", "", []string{"--alert", "--", "true"}, 0, ""},
		{"closed", ":9", "exit 1", []string{"--alert", "--ask", "--", "true"}, 125, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bin, home := makeProgramFolder(t), t.TempDir()
			executable.Write(t, filepath.Join(bin, "zenity"), []byte("#!/bin/sh\ncase $1 in --error) printf '%s|' \"$@\" >>\"$HOME/shown\";; esac\n"+c.script+"\n"))
			cmd := gpuardCommand(t, stateFolder(t), []string{"GPUARD_MACHINE=demo", "HOME=" + home, "PATH=" + bin + ":" + os.Getenv("PATH"), "DISPLAY=" + c.display, "WAYLAND_DISPLAY="}, append([]string{"run"}, c.args...)...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			got := runCommand(t, cmd)
			shown, _ := os.ReadFile(filepath.Join(home, "shown"))
			if got.code != c.code || (len(shown) > 0) != (c.want != "") || !strings.Contains(string(shown), c.want) || strings.Count(string(shown), "--error|") > 1 {
				t.Errorf("%+v, and in a window: %q", got, shown)
			}
		})
	}
}

// TestSetupDesktopWithoutEntry: a program that the menu does not have gets an entry of its own, and what is no program none.
func TestSetupDesktopWithoutEntry(t *testing.T) {
	t.Parallel()
	home, bin := newDesktopHome(t)
	if got := runCommand(t, desktopSetupCommand(t, home, bin, "sim", "--device", "0", "--", "argv", "--gui", "a b")); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	text, err := os.ReadFile(filepath.Join(home, userEntryFolder, "sim-gpuard.desktop"))
	if err != nil {
		t.Fatal(err)
	}
	checkContains(t, string(text), "Type=Application\n", "Name=sim (GPU 0)\n", "Terminal=false\n", ` run --alert --device=0 --no-wait -- `+filepath.Join(bin, "argv")+` --gui "a b"`+"\n")
	for words, want := range map[string]string{
		"sim2":            "for a program that has none: gpuard setup desktop sim2 -- PROGRAM",
		"sim2 -- nowhere": "no program of the menu has that name, so the first word behind -- is taken for the program: ",
	} {
		if got := runCommand(t, desktopSetupCommand(t, home, bin, strings.Fields(words)...)); got.code == 0 || !strings.Contains(got.err, want) {
			t.Errorf("%s: %+v", words, got)
		}
	}
	checkEqual(t, "taken away", runCommand(t, desktopSetupCommand(t, home, bin, "sim", "--remove")).code, 0)
	if _, err := os.Stat(filepath.Join(home, userEntryFolder, "sim-gpuard.desktop")); err == nil {
		t.Error("the entry is still there")
	}
}

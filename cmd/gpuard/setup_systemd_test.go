package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
	parse "gpuard/internal/text/unit"
)

// writeFilesBelow writes files below a folder.
func writeFilesBelow(t testing.TB, dir string, texts map[string]string) {
	t.Helper()
	for path, text := range texts {
		file := filepath.Join(dir, path)
		err := os.MkdirAll(filepath.Dir(file), 0o755)
		if target, link := strings.CutPrefix(text, "-> "); err == nil && link {
			err = os.Symlink(target, file)
		} else if err == nil {
			err = os.WriteFile(file, []byte(text), 0o644) //nolint:gosec // as it is there
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

const userUnitFolder = ".config/systemd/user/"

// systemdUnitCases are as people have them: the files, the arguments of setup, and of the answer what must be in it.
func systemdUnitCases() []struct {
	name  string
	files map[string]string
	args  []string
	want  []string
} {
	const written = "ExecStart=\n  + ExecStart="
	return []struct {
		name  string
		files map[string]string
		args  []string
		want  []string
	}{
		{"simple", map[string]string{userUnitFolder + "vllm.service": "[Service]\nExecStart=/bin/sh -c 'exec sleep 1'\nRestart=always\n"},
			[]string{"vllm", "--device", "1", "--mem", "20G"},
			[]string{"wrote ~/" + userUnitFolder + "vllm.service.d/zz-gpuard.conf", written + "GPUARD run --device=1 --mem=20G -- /bin/sh -c 'exec sleep 1'\n",
				"note: Type=simple: it counts as started while", "systemctl --user restart vllm.service\n", "loginctl enable-linger"}},
		{"notify with prefix and line ends", map[string]string{userUnitFolder + "a.service": "[Service]\nType=notify\nWatchdogSec=5\nIgnoreSIGPIPE=yes\nExecStart=-!/bin/echo \\\n  \"a b\" \\\n# why\n  $X ${Y}z %i %% \\x20\n"},
			[]string{"a.service", "--gpus", "2"},
			[]string{written + `-!GPUARD run --gpus=2 -- /bin/echo    "a b"    $X ${Y}z %i %% \x20` + "\n", "TimeoutStartSec=infinity\nnote: it ends when you log out"}},
		{"no variables", map[string]string{userUnitFolder + "a.service": "[Service]\nType=exec\nExecStart=:/bin/echo $X\n"},
			[]string{"a", "--model", "*A$1%*", "--no-wait"},
			[]string{written + `:GPUARD run "--model=*A$1%%*" --no-wait -- /bin/echo $X` + "\n"}},
		{"several commands", map[string]string{userUnitFolder + "a.service": "[Service]\nType=oneshot\nExecStart=/bin/echo a ; -/bin/echo ; b\nExecStart=/bin/echo \\; c\n"},
			[]string{"a", "--share", "8G"},
			[]string{"GPUARD run --share=8G -- /bin/echo a ; -GPUARD run --share=8G -- /bin/echo ; GPUARD run --share=8G -- b\n", "ExecStart=GPUARD run --share=8G -- /bin/echo \\; c\n", "note: each of its commands gets a lease of its own"}},
		{"changed by others", map[string]string{
			userUnitFolder + "a@.service": "[Service]\nExecStart=/bin/echo one\n", userUnitFolder + "a@.service.d/10-x.conf": "[Service]\nExecStart=\nExecStart=/bin/echo two\nEnvironment=CUDA_VISIBLE_DEVICES=3\n",
			userUnitFolder + "a@x.service.d/override.conf": "[Service]\nExecStart=\nExecStart=/bin/echo three %i\nPrivateTmp=yes\n", ".local/share/systemd/user/a@x.service.d/override.conf": "[Service]\nExecStart=/bin/not\n"},
			[]string{"a@x"}, []string{written + "GPUARD run -- /bin/echo three %i\n", "a@x.service.d/zz-gpuard.conf", "Environment=CUDA_VISIBLE_DEVICES=3 is obeyed"}},
		{"template", map[string]string{userUnitFolder + "a@.service": "[Service]\nExecStart=/bin/echo %i\n"},
			[]string{"a@"}, []string{"a@.service.d/zz-gpuard.conf", "restart 'a@*.service'\n"}},
		{"elsewhere", map[string]string{".local/share/systemd/user/a.service": "[Service]\nExecStart=/bin/echo 1\n", userUnitFolder + "a.service.d/20.conf": "[Unit]\nDescription=x\n"},
			[]string{"a", "--cpu"}, []string{userUnitFolder + "a.service.d/zz-gpuard.conf", written + "GPUARD run --cpu -- /bin/echo 1\n"}},
		{"closed in", map[string]string{userUnitFolder + "a.service": "[Service]\nType=exec\nExecStart=/bin/echo 1\nProtectSystem=strict\nPrivateDevices=yes\nProtectProc=invisible\nKillMode=process\nDevicePolicy=closed\nIgnoreSIGPIPE=no\n"},
			[]string{"a", "--no-wait"}, []string{"ReadWritePaths=-/run/gpuard", "UnsetEnvironment=SYSTEMD_EXEC_PID\n", "note: PrivateDevices=", "note: ProtectProc=", "note: KillMode=", "note: DevicePolicy="}},
		{"odd lines", map[string]string{userUnitFolder + "a.service": "[Service]\nType=exec\rExecStart=/bin/echo a\\\\\x00ExecStartPost=/bin/echo \x1b[1mb\nExecStop\\\n=/bin/echo c\n#" + strings.Repeat("x", 900_000) + "\n", userUnitFolder + "other-name.service": "-> a.service",
			userUnitFolder + "other-name.service.d/x.conf": "[Service]\nEnvironment=\"HIP_VISIBLE_DEVICES=\\x1b[31m1\"\n", userUnitFolder + "service.d/x.conf": "[Service]\nType=forking\n"},
			[]string{"a"}, []string{written + "GPUARD run -- /bin/echo a\\\\\nnote: ", "note: Type=exec", "note: Environment=HIP_VISIBLE_DEVICES=[31m1 is obeyed"}},
		{"under a clock", map[string]string{userUnitFolder + "a.service": "[Service]\nExecStart=/bin/echo \x1b[1ma\nWatchdogSec=5\nRuntimeMaxSec=infinity\n"},
			[]string{"a"}, []string{"GPUARD run -- /bin/echo [1ma\n", "note: WatchdogSec=5 runs while it waits"}},
		{"once, under a clock", map[string]string{userUnitFolder + "a.service": "[Service]\nType=oneshot\nExecStart=/bin/echo a\nTimeoutStartSec=1h\n"},
			[]string{"a"}, []string{"note: TimeoutStartSec=1h runs while it waits"}},
		{"whole", nil, []string{"tts", "--fallback", "cpu", "--", "sleep", "a $b", "%c;", ";", `"\`, "é"},
			[]string{"wrote ~/" + userUnitFolder + "tts.service", `ExecStart=GPUARD run --fallback=cpu -- ` + must(exec.LookPath("sleep")) + ` "a $$b" "%%c;" ";" "\"\\" "é"` + "\n", "WantedBy=default.target", "enable --now tts.service", "RestartSec=30"}},
	}
}

// TestSetupSystemd: what is written starts what the unit starts, systemd takes it, and all of it goes again.
func TestSetupSystemd(t *testing.T) {
	t.Parallel()
	bin := makeProgramFolder(t)
	for _, c := range systemdUnitCases() {
		home := filepath.Join(quietDir(t), "home")
		writeFilesBelow(t, home, map[string]string{".bashrc": "", userUnitFolder + "other.service": "[Service]\nExecStart=/bin/true"})
		writeFilesBelow(t, home, c.files)
		before := readTree(t, home)
		args := append([]string{"systemd", "--user"}, c.args...)
		dry := runCommand(t, setupCommand(t, home, bin, slices.Concat(args[:2], []string{"--dry-run"}, args[2:])...))
		if dry.code != 0 {
			t.Fatalf("%s: %+v", c.name, dry)
		}
		checkSameTree(t, c.name+" after --dry-run", before, readTree(t, home))
		got := runCommand(t, setupCommand(t, home, bin, args...))
		for _, want := range c.want {
			if said := strings.ReplaceAll(dry.out+got.out, filepath.Join(bin, "gpuard"), "GPUARD"); got.code != 0 || !strings.Contains(said, want) || strings.ContainsAny(said, "\x1b\r\x00") {
				t.Errorf("%s: no %q in %d %s%s", c.name, want, got.code, said, got.err)
			}
		}
		now := readTree(t, home)
		if got = runCommand(t, setupCommand(t, home, bin, args...)); got.code != 0 || !strings.Contains(got.out, "unchanged:") {
			t.Errorf("%s again: %+v", c.name, got)
		}
		checkSameTree(t, c.name+" again", now, readTree(t, home))
		verifyUserUnit(t, c.name, home, c.args[0])
		after := "  systemctl --user daemon-reload\n  systemctl --user restart "
		if strings.HasPrefix(c.name, "whole") {
			after = "  systemctl --user disable --now " + c.args[0] + ".service\n  systemctl --user daemon-reload\n"
		}
		if got := runCommand(t, setupCommand(t, home, bin, "systemd", "--user", "--remove", c.args[0])); got.code != 0 || !strings.Contains(got.out, after) {
			t.Errorf("%s: %+v", c.name, got)
		}
		checkSameTree(t, c.name+" after --remove", before, readTree(t, home))
	}
}

// verifyUserUnit asks systemd itself, where it is installed.
func verifyUserUnit(t *testing.T, name, home, unit string) {
	t.Helper()
	if !gate.Has(t, "systemd") {
		return
	}
	if unit = strings.TrimSuffix(unit, ".service"); strings.HasSuffix(unit, "@") {
		unit += "one"
	}
	cmd := exec.Command("systemd-analyze", "--user", "--man=no", "verify", unit+".service")
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_RUNTIME_DIR="+t.TempDir(), "XDG_CONFIG_HOME="+home+"/.config", "XDG_DATA_HOME="+home+"/.local/share")
	said, err := cmd.CombinedOutput()
	if text := regexp.MustCompile(`(?m)^.*Command b is not executable.*\n`).ReplaceAllString(string(said), ""); err != nil && text == string(said) || text != "" {
		t.Errorf("%s: systemd-analyze verify: %v\n%s", name, err, said)
	}
}

// verifySystemUnits: systemd has nothing to say about units and drop-ins of the machine below another root.
func verifySystemUnits(t *testing.T, root string, units ...string) {
	t.Helper()
	gate.Need(t, "systemd")
	cmd := exec.Command("systemd-analyze", append([]string{"--system", "--man=no", "verify"}, units...)...)
	cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+root+"/etc/systemd/system:"+root+"/usr/lib/systemd/system:")
	if said, err := cmd.CombinedOutput(); err != nil || len(said) > 0 {
		t.Errorf("systemd-analyze verify %v: %v\n%s", units, err, said)
	}
}

// TestSetupSystemdVerified: it is not for want of systemd that nothing was asked.
func TestSetupSystemdVerified(t *testing.T) {
	gate.Need(t, "systemd")
	home := t.TempDir()
	writeFilesBelow(t, home, map[string]string{userUnitFolder + "bad.service": "[Service]\nExecStart=/bin/true\n", userUnitFolder + "bad.service.d/x.conf": "[Service]\nNoSuch=1\n"})
	cmd := exec.Command("systemd-analyze", "--user", "--man=no", "verify", "bad.service")
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_RUNTIME_DIR="+t.TempDir(), "XDG_CONFIG_HOME="+home+"/.config")
	if said, _ := cmd.CombinedOutput(); !strings.Contains(string(said), "NoSuch") {
		t.Errorf("systemd-analyze does not look at drop-ins: %s", said)
	}
}

// TestSetupSystemdOddPath: systemd finds the program under the name that was written.
func TestSetupSystemdOddPath(t *testing.T) {
	t.Parallel()
	gate.Need(t, "systemd")
	odd := filepath.Join(t.TempDir(), "a b %i ;é")
	if err := os.Rename(makeProgramFolder(t), odd); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(quietDir(t), "home")
	writeFilesBelow(t, home, map[string]string{".bashrc": ""})
	got := runCommand(t, setupCommand(t, home, odd, "systemd", "--user", "a", "--", "sleep", "1"))
	if text, err := os.ReadFile(filepath.Join(home, userUnitFolder, "a.service")); got.code != 0 || err != nil || !strings.Contains(string(text), `ExecStart="`) {
		t.Fatalf("%+v %s %v", got, text, err)
	}
	verifyUserUnit(t, "odd", home, "a")
	odder := filepath.Join(t.TempDir(), "it's")
	if err := os.Rename(odd, odder); err != nil {
		t.Fatal(err)
	}
	if got := runCommand(t, setupCommand(t, home, odder, "systemd", "--user", "b", "--", "sleep", "1")); got.code != 2 || !strings.Contains(got.err, "systemd takes no such name for a program") {
		t.Errorf("%+v", got)
	}
}

// TestSetupSystemdOddFolder: the name of a folder adds no lines to a unit.
func TestSetupSystemdOddFolder(t *testing.T) {
	t.Parallel()
	home, bin := filepath.Join(quietDir(t), "home"), makeProgramFolder(t)
	for _, odd := range []string{"a\rExecStartPre=/bin/x", "a\nUser=root", "\xff", "\x1b[1m", `b\`, "c "} {
		writeFilesBelow(t, home, map[string]string{odd + "/.keep": ""})
		before := readTree(t, home)
		cmd := setupCommand(t, home, bin, "systemd", "--user", "a", "--", "sleep", "1")
		cmd.Dir = filepath.Join(home, odd)
		if got := runCommand(t, cmd); got.code != 2 || !strings.Contains(got.err, "call it from another one") {
			t.Errorf("%q: %+v", odd, got)
		}
		checkSameTree(t, odd, before, readTree(t, home))
	}
	writeFilesBelow(t, home, map[string]string{`d %h "e' $HOME;é/.keep`: ""})
	cmd := setupCommand(t, home, bin, "systemd", "--user", "a", "--", "sleep", "1")
	cmd.Dir = filepath.Join(home, `d %h "e' $HOME;é`)
	got := runCommand(t, cmd)
	if text, err := os.ReadFile(filepath.Join(home, userUnitFolder, "a.service")); got.code != 0 || err != nil || !strings.Contains(string(text), "WorkingDirectory="+home+`/d %%h "e' $HOME;é`+"\n") {
		t.Errorf("%+v %s %v", got, text, err)
	}
	verifyUserUnit(t, "an odd folder", home, "a")
}

// TestSetupSystemdRefuses: what would not work is not written.
func TestSetupSystemdRefuses(t *testing.T) {
	t.Parallel()
	home, bin := filepath.Join(quietDir(t), "home"), makeProgramFolder(t)
	texts := map[string]string{userUnitFolder + "masked.service": "-> /dev/null", userUnitFolder + "alias.service": "-> none.service", userUnitFolder + "later.service.d/zzz.conf": "[Service]\nExecStart=\nExecStart=/bin/echo 2\n",
		userUnitFolder + "later.service": "[Service]\nExecStart=/bin/echo 1\n", userUnitFolder + "mine.service": "[Service]\nExecStart=/bin/echo 1\n", userUnitFolder + "mine.service.d/zz-gpuard.conf": "# mine\n"}
	for name, lines := range map[string]string{"forking": "Type=forking\nExecStart=/bin/true", "none": "Type=oneshot\nExecStop=/bin/true", "argv0": "ExecStart=@/bin/true t", "bad": `ExecStart=/bin/echo "a`,
		"own": "ExecStart=/usr/bin/gpuard run -- x", "box": "ExecStart=/usr/bin/podman run x", "inside": "RootDirectory=/x\nExecStart=/bin/true", "shell": "ExecStart=|echo 1", "dollar": "ExecStart=/opt/${x}/y", "own2": "ExecStart=/usr/bin/gpuard run -- \x1b[1m"} {
		texts[userUnitFolder+name+".service"] = "[Service]\n" + lines + "\n"
	}
	writeFilesBelow(t, home, texts)
	before := readTree(t, home)
	for _, c := range [][]string{
		{"cannot give forking.service a GPU: Type=forking", "forking"}, {"it starts no program", "none"}, {"begins with @", "argv0"}, {"do not close", "bad"}, {"it starts gpuard itself", "own"}, {"itself: /usr/bin/gpuard run -- [1m;", "own2"}, {"has a $", "dollar"},
		{"into it", "box"}, {"RootDirectory", "inside"}, {"begins with |", "shell"}, {"is masked", "masked"}, {"another name of none.service", "alias"}, {"zzz.conf is read after zz-gpuard.conf", "later"},
		{"gpuard has no record of writing it", "mine"}, {"there is none of yours; to have it written", "nosuch"}, {"that is no name of a unit", "a/b"}, {"that is no name of a unit", "@x"}, {"it starts no program itself", "a.timer"},
		{"into a container", "a.container"}, {"without its name"}, {"cannot set up 2 services", "a", "b"}, {"it is there already", "mine", "--", "sleep", "1"}, {"no such command in PATH", "new", "--", "nosuchprogram"},
		{"cannot ask for --mem", "mine", "--mem", "20"}, {"they contradict each other", "mine", "--wait", "--no-wait"}, {"cannot write a service that starts", "new", "--", ""},
	} {
		got := runCommand(t, setupCommand(t, home, bin, append([]string{"systemd", "--user"}, c[1:]...)...))
		if want := 2; !strings.Contains(got.err, c[0]) || got.code != want && !strings.Contains(got.err, "did not write it") && !strings.Contains(got.err, "already") || got.out != "" {
			t.Errorf("%q: want %q, got %+v", c[1:], c[0], got)
		}
	}
	checkSameTree(t, "refused", before, readTree(t, home))
}

// TestSetupSystemdEdited: what a person changed since stays as it is, and is named.
func TestSetupSystemdEdited(t *testing.T) {
	t.Parallel()
	home, bin := filepath.Join(quietDir(t), "home"), makeProgramFolder(t)
	writeFilesBelow(t, home, map[string]string{userUnitFolder + "a.service": "[Service]\nExecStart=/bin/echo 1\n"})
	ours := filepath.Join(home, userUnitFolder, "a.service.d/zz-gpuard.conf")
	if got := runCommand(t, setupCommand(t, home, bin, "systemd", "--user", "a")); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	writeFilesBelow(t, home, map[string]string{userUnitFolder + "a.service": "[Service]\nExecStart=/bin/echo 2\n"})
	if got := runCommand(t, setupCommand(t, home, bin, "systemd", "--user", "a")); got.code != 0 || !strings.Contains(got.out, "changed ") {
		t.Errorf("a unit that changed: %+v", got)
	}
	if text, err := os.ReadFile(ours); err != nil || !strings.Contains(string(text), "/bin/echo 2") {
		t.Errorf("a unit that changed: %s %v", text, err)
	}
	writeFilesBelow(t, home, map[string]string{userUnitFolder + "a.service.d/zz-gpuard.conf": "# by hand\n"})
	for _, flag := range []string{"--gpus=2", "--remove"} {
		if got := runCommand(t, setupCommand(t, home, bin, "systemd", "--user", flag, "a")); got.code == 0 || !strings.Contains(got.err, ours) || !strings.Contains(got.err, "it was changed") {
			t.Errorf("%s: %+v", flag, got)
		}
		if text, err := os.ReadFile(ours); err != nil || string(text) != "# by hand\n" {
			t.Errorf("%s: %q %v", flag, text, err)
		}
	}
}

// TestSetupSystemdOfTheMachine: root's setups are the system's, below its own folders.
func TestSetupSystemdOfTheMachine(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root")
	root, bin := t.TempDir(), makeProgramFolder(t)
	home := filepath.Join(root, "root")
	writeFilesBelow(t, root, map[string]string{"root/.bashrc": "", "usr/lib/systemd/system/ollama.service": "[Service]\nUser=ollama\nExecStart=/usr/bin/ollama serve\n", "etc/hostname": "a", "var/lib/x": ""})
	before := readTree(t, root)
	system := func(args ...string) runResult {
		cmd := setupCommand(t, home, bin, append([]string{"systemd"}, args...)...)
		cmd.Args[0] = "surveyed"
		cmd.Env = append(cmd.Env, "SITE="+root)
		return runCommand(t, cmd)
	}
	for range 2 {
		if got := system("ollama", "--device", "0"); got.code != 0 || !strings.Contains(got.out, root+"/etc/systemd/system/ollama.service.d/zz-gpuard.conf") {
			t.Fatalf("%+v", got)
		}
	}
	if got := system("new", "--", "sleep", "1"); got.code != 0 || !strings.Contains(got.out, "it runs as root") || strings.Contains(got.out, "linger") {
		t.Errorf("%+v", got)
	}
	if text, err := os.ReadFile(filepath.Join(root, "etc/systemd/system/new.service")); err != nil || !strings.Contains(string(text), "WantedBy=multi-user.target") {
		t.Errorf("%s %v", text, err)
	}
	verifySystemUnits(t, root, "ollama.service", "new.service")
	writeFilesBelow(t, root, map[string]string{"usr/lib/systemd/system/strict.service": "[Service]\nProtectSystem=strict\nExecStart=/bin/true\n"})
	for _, c := range []struct {
		folder string
		mode   os.FileMode
		noted  bool
	}{{"run/lock", 0o755, true}, {"run/lock", 0o777, false}, {"run/gpuard", 0o755, false}} {
		err := os.MkdirAll(filepath.Join(root, c.folder), 0o755)
		if err == nil {
			err = os.Chmod(filepath.Join(root, c.folder), c.mode|os.ModeSticky)
		}
		if got := system("--dry-run", "strict"); err != nil || strings.Contains(got.out, "the machine needs /run/gpuard") != c.noted || !strings.Contains(got.out, "ReadWritePaths=") {
			t.Errorf("%+v: %v %+v", c, err, got)
		}
	}
	for _, path := range []string{"run", "usr/lib/systemd/system/strict.service"} {
		if err := os.RemoveAll(filepath.Join(root, path)); err != nil {
			t.Fatal(err)
		}
	}
	if got := system("--user", "ollama"); got.code != 2 || !strings.Contains(got.err, "is a unit of the system") {
		t.Errorf("%+v", got)
	}
	for _, unit := range []string{"ollama", "new"} {
		if got := system("--remove", unit); got.code != 0 {
			t.Errorf("%+v", got)
		}
	}
	checkSameTree(t, "after --remove", before, readTree(t, root))
}

// serveOneCaller is a service: it says that it is ready, answers one caller on the socket that it was given, and ends.
func serveOneCaller() {
	said := map[string]string{"args": strings.Join(os.Args[1:], "|"), "pid": fmt.Sprint(os.Getpid())}
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "CUDA_VISIBLE_DEVICES", "GPUARD_LEASE"} {
		said[name] = os.Getenv(name)
	}
	err := func() error {
		notify, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET"))
		if err != nil {
			return err
		}
		if _, err = io.WriteString(notify, "READY=1"); err != nil {
			return err
		}
		l, err := net.FileListener(os.NewFile(3, "socket"))
		if err != nil {
			return err
		}
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		return errors.Join(json.NewEncoder(conn).Encode(said), conn.Close())
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestServiceIsMainProcess: started by systemd's own hand, from the line that was written, the command is the process
// that systemd knows: its socket is number 3 and meant for it, and what it notifies comes from that process.
func TestServiceIsMainProcess(t *testing.T) {
	t.Parallel()
	gate.Need(t, "systemd")
	home, bin := filepath.Join(quietDir(t), "home"), makeProgramFolder(t)
	writeFilesBelow(t, home, map[string]string{".bashrc": ""})
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(bin, "served"))
	}
	if err != nil {
		t.Fatal(err)
	}
	got := runCommand(t, setupCommand(t, home, bin, "systemd", "--user", "web", "--device", "2", "--", "served", "a  b", `"c\`, "$HOME", "%i", ";"))
	if got.code != 0 {
		t.Fatalf("%+v", got)
	}
	sock, notify := filepath.Join(home, "sock"), filepath.Join(home, "notify")
	ready := listenForReady(t, notify)
	cmd := gpuardCommand(t, filepath.Join(home, "state"), nil)
	if cmd.Path, err = exec.LookPath("systemd-socket-activate"); err != nil {
		t.Fatal(err)
	}
	cmd.Args = []string{"systemd-socket-activate", "-l", sock, "--fdname=web"}
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+notify, "WATCHDOG_USEC=5000000", "GPUARD_MACHINE=demo")
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID=1", "GPUARD_MACHINE", "GPUARD_STATE", "GORACE"} {
		cmd.Args = append(cmd.Args, "-E", name)
	}
	cmd.Args = append(cmd.Args, execWords(t, filepath.Join(home, userUnitFolder, "web.service"))...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn := dialWhenReady(t, sock)
	var said map[string]string
	if err := json.NewDecoder(conn).Decode(&said); err != nil {
		t.Fatal(err)
	}
	main := fmt.Sprint(cmd.Process.Pid)
	want := map[string]string{"args": `a  b|"c\|$HOME|%i|;`, "pid": main, "LISTEN_PID": main, "LISTEN_FDS": "1", "LISTEN_FDNAMES": "web", "NOTIFY_SOCKET": notify,
		"WATCHDOG_USEC": "5000000", "WATCHDOG_PID": "1", "CUDA_VISIBLE_DEVICES": "2", "GPUARD_LEASE": said["GPUARD_LEASE"]}
	for name, value := range want {
		if said[name] != value || value == "" {
			t.Errorf("%s is %q, want %q", name, said[name], value)
		}
	}
	if from := ready(); from != main {
		t.Errorf("READY=1 came from %s, and the main process is %s", from, main)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// execWords are the words of a unit's ExecStart as systemd would start them.
func execWords(t *testing.T, path string) (words []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := parse.ReadSteps(path, text)
	if err != nil || len(f.Steps) != 1 {
		t.Fatalf("%+v %v", f, err)
	}
	for _, w := range f.Steps[0].Words {
		words = append(words, strings.ReplaceAll(w.Text, "%%", "%"))
	}
	return words
}

// listenForReady listens as systemd does, and tells which process said READY=1.
func listenForReady(t *testing.T, path string) func() string {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	raw, err := conn.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() string {
		text, more := make([]byte, 100), make([]byte, 100)
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		n, m, _, _, err := conn.ReadMsgUnix(text, more)
		if err != nil || string(text[:n]) != "READY=1" {
			t.Fatalf("%q %v", text[:n], err)
		}
		messages, err := unix.ParseSocketControlMessage(more[:m])
		if err != nil || len(messages) != 1 {
			t.Fatalf("%v %v", messages, err)
		}
		who, err := unix.ParseUnixCredentials(&messages[0])
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(who.Pid)
	}
}

// dialWhenReady connects to a socket that is about to be there.
func dialWhenReady(t *testing.T, path string) net.Conn {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("unix", path)
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			t.Cleanup(func() { _ = conn.Close() })
			return conn
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gpuard/test/executable"
)

// standInScripts are the programs that the pages start and that a machine need not have. The one for python waits as a worker
// until four of it run, and writes what it sees into the file "workers". Those that would change the machine only print
// their call.
func standInScripts() map[string]string {
	const (
		called = "#!/bin/sh\necho \"${0##*/} $*\" >>called\n"
		works  = "#!/bin/sh\nexit 0\n"
	)
	return map[string]string{
		"python": `#!/bin/sh
[ "$1" = worker.py ] || exit 0
echo "$CUDA_VISIBLE_DEVICES" >>workers
n=0
until [ "$(wc -l <workers)" -ge 4 ]; do
	n=$((n + 1))
	[ $n -lt 1500 ] || exit 1
	sleep 0.02
done
`,
		"torchrun": works, "pytest": works, "jupyter": works, "mtools": works, "ffmpeg": works, "exo": works,
		"git": called + "[ \"$1\" != clone ] || mkdir -p gpuard\n", "dpkg": called, "apt": called, "rpm": called, "dnf": called,
		"systemctl": called, "code": called, "crontab": called, "nvidia-smi": called,
		// The repository is not where the commands are typed; what is built from it is there already.
		"go": called + `case $1 in
run) shift 2 && exec gpuard "$@" ;;
build) mkdir -p "$3" ;; # into a folder
esac
`,
		// The tests of root must not change the machine.
		"sudo": `#!/bin/sh
if [ "$1 $2" = "gpuard setup" ]; then
	target=$3
	shift 3
	exec gpuard setup "$target" --dry-run "$@"
fi
exec "$@"
`,
	}
}

// shellSession is a shell in a folder of its own, on an idle invented machine.
type shellSession struct {
	shell   string // bash, zsh or fish
	columns int
	before  string            // typed first; its output and its end do not count
	said    map[string]string // what to type for a word of the page, such as the id of a lease
}

// commandReply is what a command printed, and how it ended.
type commandReply struct {
	out  string
	code int
}

// runCommands types commands one after the other, in one shell. What they leave in the background has ended when it returns.
func (s shellSession) runCommands(t *testing.T, folder string, commands []string) []commandReply {
	t.Helper()
	script := s.before + "\necho @@-1 0\n"
	if s.shell == "zsh" {
		script = "autoload -U compinit && compinit -u -D\n" + script // which a start file has done
	}
	status := "$?"
	if s.shell == "fish" {
		status = "$status"
	}
	for i, c := range commands {
		for word, now := range s.said {
			c = strings.ReplaceAll(c, word, now)
		}
		script += awaitableCommand(c) + fmt.Sprintf("\necho @@%d %s\n", i, status)
	}
	if s.shell == "bash" {
		script += "[ -z \"$sleeping\" ] || kill $sleeping\nfor job in $waited; do wait $job || echo \"@@failed $?\"; done\nwait\n"
	}
	file := filepath.Join(t.TempDir(), "typed")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	shell, err := exec.LookPath(s.shell)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, shell, file)
	cmd.Dir, cmd.Env, cmd.WaitDelay = folder, s.sessionEnv(t), 10*time.Second
	got, err := cmd.CombinedOutput()
	if err != nil && ctx.Err() != nil {
		t.Fatalf("%q does not come to its end:\n%s", commands, got)
	}
	if _, why, failed := strings.Cut(string(got), "@@failed "); failed {
		t.Errorf("%q: what was left in the background ends with %s\n%s", commands, why, got)
	}
	return splitReplies(t, commands, string(got))
}

// awaitableCommand is a command as it is typed here. One that sleeps in the background must have begun before it is asked about,
// and must not outlive the page.
func awaitableCommand(command string) string {
	// Its name is there earlier than its arguments and environment.
	const begun = `until tr "\0" " " </proc/$!/cmdline | grep -q ^sleep; do :; done`
	if regexp.MustCompile(`\bsleep \d+ *&$`).MatchString(command) {
		command += " sleeping=\"$sleeping $!\"; " + begun
	} else if strings.HasSuffix(command, "&") {
		command += " waited=\"$waited $!\""
	}
	return strings.ReplaceAll(command, "sleep 60 & gpuard explain $!'", "sleep 60 & "+begun+"; gpuard explain $!; kill $!'")
}

// splitReplies gives each command what was printed before its mark.
func splitReplies(t *testing.T, commands []string, printed string) []commandReply {
	t.Helper()
	all := make([]commandReply, len(commands))
	marks := regexp.MustCompile(`@@(-?\d+) (\d+)\n`)
	from, next := 0, -1
	for _, at := range marks.FindAllStringSubmatchIndex(printed, -1) {
		n, _ := strconv.Atoi(printed[at[2]:at[3]])
		if n != next {
			break
		}
		if n >= 0 {
			all[n].out = printed[from:at[0]]
			all[n].code, _ = strconv.Atoi(printed[at[4]:at[5]])
		}
		from, next = at[1], next+1
	}
	if next != len(commands) {
		t.Fatalf("%d of %d commands were answered: %q\n%s", next, len(commands), commands, printed)
	}
	return all
}

func (s shellSession) sessionEnv(t *testing.T) []string {
	t.Helper()
	bin := makeStandInFolder(t)
	home := t.TempDir()
	return append(gpuardCommand(t, stateFolder(t), nil).Env, "GPUARD_MACHINE=demo", "SHELL=/bin/sh", "LC_ALL=C.UTF-8", "HOME="+home,
		"XDG_STATE_HOME="+home+"/.local/state", "XDG_DATA_HOME="+home+"/.local/share", "XDG_CONFIG_HOME="+home+"/.config",
		"PATH="+bin+":"+os.Getenv("PATH"), fmt.Sprintf("COLUMNS=%d", s.columns))
}

var standInsOnce sync.Once

// makeStandInFolder has gpuard and the stand-ins. The sessions, of which there are hundreds, all have the same.
func makeStandInFolder(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(testPlace.Root(), "stand-ins")
	standInsOnce.Do(func() {
		self, err := os.Executable()
		err = errors.Join(err, os.Mkdir(bin, 0o755), os.Symlink(self, filepath.Join(bin, "gpuard"))) //nolint:gosec // tests act as other users
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range standInScripts() {
			executable.Write(t, filepath.Join(bin, name), []byte(text))
		}
	})
	return bin
}

// makePageFolder is a folder in which the commands of a page are typed: what the page names of the repository is there, and
// the programs that people have in such a folder.
func makePageFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{"docs", "examples"} {
		from, err := filepath.Abs(filepath.Join("..", "..", name))
		if err == nil {
			err = os.Symlink(from, filepath.Join(folder, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"app", "train.sh", "serve.sh", "solver"} {
		executable.Write(t, filepath.Join(folder, name), []byte("#!/bin/sh\nexit 0\n"))
	}
	return folder
}

// normalizeOutput replaces what differs from run to run, and from machine to machine, in what a command prints.
func normalizeOutput(t *testing.T, command, text string) string {
	t.Helper()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct{ pattern, as string }{
		{`(?i)\b(process|pid) \d{2,}`, "${1} 4242"},
		{`( of |└ )` + regexp.QuoteMeta(me.Username) + `\b`, "${1}alice"},
		{`\b(since) \d\d:\d\d\b`, "${1} 09:12"},
		{`\b[a-z][a-z0-9]{3}( \(here\))?, pid `, "k3f9${1}, pid "},
		{`\b(lease) ([a-z][a-z0-9]{3})\b`, "${1} k3f9"},
		{`  \d+ s  `, "  0 s  "},
		{`\bran [0-9.hms ]+`, "ran 3 s"},
		{`at most [0-9.]+ MiB of host`, "at most 14 MiB of host"},
		{` +driver (.*)recorded [0-9a-z ]+ ago`, "      driver ${1}recorded 265 days ago"},
		{`(?m) +$`, ""},
	} {
		pattern := regexp.MustCompile(r.pattern)
		if strings.Contains(r.pattern, "process|pid") && strings.Contains(command, "--machine docs/") {
			continue // of a file, where processes keep their numbers
		}
		text = pattern.ReplaceAllStringFunc(text, func(found string) string {
			if found == "lease hold" { // a word, not the id of a lease
				return found
			}
			return pattern.ReplaceAllString(found, r.as)
		})
	}
	return text
}

package isolation_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/job"
	"gpuard/internal/gate"
	"gpuard/internal/host/isolation"
	"gpuard/test/executable"
)

// TestMain makes this test program one that becomes others behind a wall, and one that tries to get out.
func TestMain(m *testing.M) {
	word := ""
	if len(os.Args) > 1 {
		word = os.Args[1]
	}
	call := map[string]func([]string) error{probeFlag: probe, probeGroupFlag: probeGroup, isolation.WallFlag: isolation.Become, isolation.FailedFlag: isolation.FailedStepError, tryFlag: tryToEscape, execFlag: execBehind, userFlag: becomeUser}[word]
	if call == nil {
		code := m.Run()
		isolation.SweepGroups()
		os.Exit(code)
	}
	err := call(os.Args[2:])
	fmt.Fprintln(os.Stderr, err)
	var own *isolation.ProgramError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &own):
		os.Exit(126)
	}
	os.Exit(125)
}

// others is the device file that nothing may open behind the walls here. Every computer has it, and nobody needs it.
const others = "/dev/full"

// user is who starts a program: root, who runs this test, or somebody else.
type user struct {
	name string
	uid  uint32
	old  bool // control groups are of version 1 there

	groups []uint32 // beside its own
}

// means are the levels, and why each is not possible here.
func means() map[job.Isolation]string {
	return map[job.Isolation]string{job.Namespace: isolation.NamespaceObstacle(), job.Landlock: isolation.LandlockObstacle(), job.Cgroup: isolation.Cgroup()}
}

// possible are the levels that are possible here.
func possible() (levels []job.Isolation) {
	for level, why := range means() {
		if why == "" {
			levels = append(levels, level)
		}
	}
	return levels
}

// eachWall runs a test at each level, and where root runs it, as root and as an ordinary user.
func eachWall(t *testing.T, test func(t *testing.T, level job.Isolation, who user)) {
	t.Helper()
	users := []user{{name: "caller", uid: uint32(os.Getuid())}} //nolint:gosec // an id
	if os.Getuid() == 0 {
		users = []user{{name: "root"}, {name: "ordinary user", uid: 1_731_035}, {name: "root, version 1", old: true}, {name: "ordinary user, version 1", uid: 1_731_035, old: true}}
	}
	for level, why := range means() {
		for _, who := range users {
			if who.old && level != job.Cgroup {
				continue
			}
			t.Run(string(level)+" "+who.name, func(t *testing.T) {
				if why != "" {
					t.Skip(why)
				}
				if who.old {
					gate.Need(t, "cgroup1", "mountns", "isolation")
				}
				test(t, level, who)
			})
		}
	}
}

// behind is a command behind a wall.
func behind(t *testing.T, level job.Isolation, who user, words ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath(words[0])
	if err != nil {
		t.Fatal(err)
	}
	return who.walled(t, level, path, words...)
}

// walled is a program that this user starts behind a wall. A device filter is built by root, and what is behind it becomes the user.
func (who user) walled(t *testing.T, level job.Isolation, path string, argv ...string) *exec.Cmd {
	t.Helper()
	starts := who
	if level == job.Cgroup && who.uid != 0 {
		path, argv = "/proc/self/exe", append([]string{"as", userFlag, strconv.Itoa(int(who.uid)), strings.Trim(fmt.Sprint(who.groups), "[]"), path}, argv...)
		starts = user{name: "root"}
	}
	path, argv, err := isolation.Wall{level, []string{others}}.Command(path, argv)
	if err != nil {
		t.Fatal(err)
	}
	if who.old && level == job.Cgroup {
		path, argv = where(t, withoutTwo, argv...)
	}
	return starts.command(t, path, argv...)
}

// withoutTwo is a script that takes control groups of version 2 away, in a mount namespace of its own.
const withoutTwo = `for at in $(awk '/ - cgroup2 /{print $5}' /proc/self/mountinfo); do umount -l $at; done`

// where is this program, with these words behind its name, after a script in a mount namespace of its own.
func where(t *testing.T, script string, words ...string) (path string, argv []string) {
	t.Helper()
	self, err := os.Executable()
	if err == nil {
		path, err = exec.LookPath("unshare")
	}
	if err != nil {
		t.Fatal(err)
	}
	return path, append([]string{"unshare", "--mount", "sh", "-ec", script + `; exec "$@"`, "sh", self}, words[1:]...)
}

// userFlag begins the command line of a program that becomes another as an ordinary user.
const userFlag = "__as"

func becomeUser(args []string) error {
	id, err := strconv.Atoi(args[0])
	var groups []int
	for word := range strings.FieldsSeq(args[1]) {
		group, groupErr := strconv.Atoi(word)
		groups, err = append(groups, group), errors.Join(err, groupErr)
	}
	if err == nil {
		err = errors.Join(syscall.Setgroups(groups), syscall.Setgid(id), syscall.Setuid(id))
	}
	if err != nil {
		return err
	}
	err = unix.Exec(args[2], args[3:], os.Environ())
	if errors.Is(err, unix.ENOEXEC) {
		err = unix.Exec("/bin/sh", append([]string{"/bin/sh", args[2]}, args[4:]...), os.Environ())
	}
	return err
}

// command is a program that this user starts.
func (who user) command(t *testing.T, path string, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path)
	cmd.Args, cmd.Dir, cmd.Env = argv, "/", append(os.Environ(), "HOME=/")
	if who.uid != uint32(os.Getuid()) { //nolint:gosec // an id
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: who.uid, Gid: who.uid, Groups: who.groups}}
	}
	return cmd
}

// output is what a command prints on both streams, and its exit code.
func output(t *testing.T, cmd *exec.Cmd) (string, int) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// TestWall: of two device files one can be opened; the program has the process ID that was started, its arguments, variables,
// streams, exit code and identity.
func TestWall(t *testing.T) {
	t.Parallel()
	eachWall(t, func(t *testing.T, level job.Isolation, who user) {
		cmd := behind(t, level, who, "sh", "-c", `echo $$ $(id -u) $(id -g) "$0" "$X" $(cat); true <>/dev/zero && echo zero; true <>/dev/full || echo closed; exit 7`, "a name")
		cmd.Env, cmd.Stdin = append(cmd.Env, "X=a  value"), strings.NewReader("said")
		out, code := output(t, cmd)
		want := fmt.Sprintf("%d %d %d a name a  value said\nzero\n", cmd.ProcessState.Pid(), who.uid, gid(who))
		if !strings.HasPrefix(out, want) || !strings.Contains(out, "closed") || code != 7 {
			t.Errorf("exit code %d, prints\n%s\nwant\n%s…closed", code, out, want)
		}
	})
}

func gid(who user) int {
	if who.uid == uint32(os.Getuid()) { //nolint:gosec // an id
		return os.Getgid()
	}
	return int(who.uid)
}

// TestSame: what the kernel knows of the process beside its rights is what it would be without a wall: signals, limits, groups,
// folder, open files.
func TestSame(t *testing.T) {
	t.Parallel()
	const script = `trap "" USR1; cd /; exec sh -c 'grep -E "^(Sig(Blk|Ign|Cgt)|ShdPnd|Threads|Groups|Uid|Gid|Cpus_allowed):" /proc/self/status; ulimit -Sn; ulimit -Hn; pwd; umask; ls -l /proc/self/fd | wc -l'`
	eachWall(t, func(t *testing.T, level job.Isolation, who user) {
		sh, err := exec.LookPath("sh")
		if err != nil {
			t.Fatal(err)
		}
		plain, _ := output(t, who.command(t, sh, "sh", "-c", script))
		walled, _ := output(t, behind(t, level, who, "sh", "-c", script))
		if plain != walled {
			t.Errorf("without\n%s\nbehind the wall\n%s", plain, walled)
		}
	})
}

// TestProgramFails: the wall stands and the program does not: its own error and exit code.
func TestProgramFails(t *testing.T) {
	t.Parallel()
	eachWall(t, func(t *testing.T, level job.Isolation, who user) {
		if level == job.Cgroup && who.uid != 0 { // what fails is the program that becomes the user
			return
		}
		out, code := output(t, who.walled(t, level, "/dev/null", "null"))
		if out != "cannot run \"null\": permission denied\n" || code != 126 {
			t.Errorf("exit code %d, says %s", code, out)
		}
	})
}

// TestScript: one without "#!" goes to the shell, as with execvp(3).
func TestScript(t *testing.T) {
	t.Parallel()
	script := filepath.Join(public(t), "script")
	executable.Write(t, script, []byte("true <>/dev/full || echo closed \"$1\"\n"))
	eachWall(t, func(t *testing.T, level job.Isolation, who user) {
		out, code := output(t, behind(t, level, who, script, "for you"))
		if !strings.HasSuffix(out, "closed for you\n") || code != 0 {
			t.Errorf("exit code %d, says %s", code, out)
		}
	})
}

// public is a folder that every user can read.
func public(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "wall")
	if err == nil {
		err = os.Chmod(dir, 0o777) //nolint:gosec // as it says
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestFailsClosed: where the wall cannot be built, the program is not started.
func TestFailsClosed(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"no such device":    {`{"level":"namespace","nodes":["/dev/no-such"]}`, "/bin/echo", "echo", "started"},
		"no device":         {`{"level":"landlock","nodes":["/etc/passwd"]}`, "/bin/echo", "echo", "started"},
		"no such level":     {`{"level":"moat","nodes":["/dev/full"]}`, "/bin/echo", "echo", "started"},
		"an empty level":    {`{"nodes":["/dev/full"]}`, "/bin/echo", "echo", "started"},
		"not understood":    {`{"level":`, "/bin/echo", "echo", "started"},
		"no program":        {`{"level":"landlock"}`, "/bin/echo"},
		"nested too deeply": nil,
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe", append([]string{isolation.WallFlag}, args...)...)
			if args == nil { // what makes user namespaces is refused from 32 deep on
				if why := isolation.NamespaceObstacle(); why != "" {
					t.Skip(why)
				}
				cmd = deep(t, 40)
			}
			out, code := output(t, cmd)
			if strings.Contains(out, "started\n") || code != 125 || !strings.HasPrefix(out, "cannot ") {
				t.Errorf("exit code %d, says %s", code, out)
			}
		})
	}
}

// deep is a program behind so many walls.
func deep(t *testing.T, walls int) *exec.Cmd {
	t.Helper()
	path, argv := "/bin/echo", []string{"echo", "started"}
	var err error
	for range walls {
		path, argv, err = isolation.Wall{job.Namespace, []string{others}}.Command(path, argv)
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), path)
	cmd.Args = argv
	return cmd
}

// TestFailedStep: what failed before the first step has its own name.
func TestFailedStep(t *testing.T) {
	t.Parallel()
	for index, want := range map[string]string{
		"0009999": "cannot end the other threads of gpuard", "0009998": "cannot start the process that maps the users and groups", "0000001": "cannot second: ",
	} {
		err := isolation.FailedStepError([]string{index, "0000011", "echo", "first", "second"})
		if !strings.Contains(fmt.Sprint(err), want) || !errors.Is(err, unix.EAGAIN) {
			t.Errorf("%s: %v", index, err)
		}
	}
}

// probeFlag begins the command line of a program that says why a namespace is not possible.
const probeFlag = "__probe"

func probe([]string) error {
	fmt.Println("namespace:", isolation.NamespaceObstacle())
	return nil
}

// probeGroupFlag begins the command line of a program that says why no control group filters devices.
const probeGroupFlag = "__probe-group"

func probeGroup([]string) error {
	fmt.Println("cgroup:", isolation.Cgroup())
	return nil
}

// TestProbe: what the wall cannot do is not promised. Here /proc is read-only, so that a namespace and a mount can be made, and no ids mapped.
func TestProbe(t *testing.T) {
	t.Parallel()
	gate.Need(t, "mountns", "isolation")
	eachWall(t, func(t *testing.T, _ job.Isolation, who user) {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		drop := fmt.Sprintf("setpriv --reuid %d --regid %[1]d --clear-groups ", who.uid)
		if who.uid == 0 {
			drop = ""
		}
		for before, works := range map[string]bool{"true": true, "mount --bind /proc /proc; mount -o remount,bind,ro /proc": false} {
			dir := public(t)
			script := before + "; mount --bind " + filepath.Dir(self) + " " + dir + "; exec " + drop + filepath.Join(dir, filepath.Base(self)) + " " + probeFlag
			out, _ := output(t, exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-ec", script))
			if strings.HasPrefix(out, "namespace: \n") != works || !strings.HasPrefix(out, "namespace: ") {
				t.Errorf("after %s: %s", before, out)
			}
			path, argv, err := isolation.Wall{job.Namespace, []string{others}}.Command("/bin/echo", []string{"echo", "begun"})
			if err != nil {
				t.Fatal(path, err)
			}
			script = before + "; mount --bind " + filepath.Dir(self) + " " + dir + "; exec " + drop + filepath.Join(dir, filepath.Base(self)) + ` "$@"`
			out, _ = output(t, exec.CommandContext(t.Context(), "unshare", append([]string{"--mount", "sh", "-ec", script, "sh"}, argv[1:]...)...))
			if strings.Contains(out, "begun") != works {
				t.Errorf("the wall after %s: %s", before, out)
			}
		}
	})
}

// TestNested: a wall inside of a wall, of either kind, as a lease within a lease has it.
func TestNested(t *testing.T) {
	t.Parallel()
	eachWall(t, func(t *testing.T, level job.Isolation, who user) {
		inner, argv, err := isolation.Wall{job.Landlock, []string{"/dev/zero"}}.Command("/bin/sh", []string{"sh", "-c", "true <>/dev/full || echo closed; true <>/dev/zero || echo closed; true <>/dev/null && echo open"})
		if isolation.LandlockObstacle() != "" {
			t.Skip(isolation.LandlockObstacle())
		}
		if err != nil {
			t.Fatal(err)
		}
		out, _ := output(t, who.walled(t, level, inner, argv...))
		lines := strings.Split(out, "\n")
		if n := len(slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return l != "closed" })); n != 2 || !slices.Contains(lines, "open") {
			t.Errorf("says %s", out)
		}
	})
}

// TestExec: a process that has several threads and open files builds the wall around itself, and keeps its process ID.
func TestExec(t *testing.T) {
	t.Parallel()
	eachWall(t, func(t *testing.T, level job.Isolation, who user) {
		if level == job.Cgroup && who.uid != 0 { // only root builds it
			return
		}
		cmd := who.command(t, "/proc/self/exe", "exec", execFlag, string(level), "/bin/sh", "sh", "-c", `echo $$ "$1"; true <>/dev/full || echo closed; grep Threads /proc/self/status; exit 7`, "sh", "a  word")
		out, code := output(t, cmd)
		if !strings.HasPrefix(out, fmt.Sprintf("%d a  word\n", cmd.Process.Pid)) || !strings.Contains(out, "closed\nThreads:\t1\n") || code != 7 {
			t.Errorf("exit code %d, prints\n%s", code, out)
		}
	})
}

// execFlag begins the command line of a program with busy threads that becomes another behind a wall.
const execFlag = "__exec"

func execBehind(args []string) error {
	for range 4 {
		go func() { // a thread in a system call, and one that computes
			fds := []unix.PollFd{{Fd: -1}}
			_, _ = unix.Poll(fds, -1)
		}()
		go func() {
			for {
				runtime.Gosched()
			}
		}()
	}
	return isolation.Wall{Level: job.Isolation(args[0]), Nodes: []string{others}}.Exec(args[1], args[2:], os.Environ())
}

// TestMadeLater: a device file that is made while the program runs cannot be opened under Landlock, in no folder of devices, also where
// nothing had to be closed.
func TestMadeLater(t *testing.T) {
	t.Parallel()
	gate.Need(t, "mountns", "isolation")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, closed := range [][]string{nil, {others}} {
		_, argv, err := isolation.Wall{job.Landlock, closed}.Command("/bin/sh", []string{"sh", "-c", `echo x >ready; read x <made; for f in gpu dri/gpu nvidia-caps/gpu; do ls /dev/$f; true <>/dev/$f && echo opens; done; true <>/dev/null && true <>/dev/shm/there && echo fine`})
		if err != nil {
			t.Fatal(err)
		}
		script := `mount -t tmpfs none /mnt; cd /mnt; mkdir shm dri nvidia-caps; for n in null zero full; do touch $n; mount --bind /dev/$n $n; done; touch shm/there
mount --move /mnt /dev; cd "$DIR"; mkfifo ready made; "$@" & read x <ready; for f in gpu dri/gpu nvidia-caps/gpu; do mknod -m 666 /dev/$f c 1 7; done; echo x >made; wait $!`
		cmd := exec.CommandContext(t.Context(), "unshare", append([]string{"--mount", "sh", "-ec", script, "sh", self}, argv[1:]...)...)
		cmd.Dir = public(t)
		cmd.Env = append(os.Environ(), "DIR="+cmd.Dir)
		out, code := output(t, cmd)
		if strings.Contains(out, "opens") || strings.Contains(out, "No such file") || !strings.HasSuffix(out, "fine\n") || code != 0 {
			t.Errorf("closed %v: exit code %d, says\n%s", closed, code, out)
		}
	}
}

// TestGroups: the groups of a user count behind the wall, too.
func TestGroups(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root", "isolation")
	const group = 1_731_099
	file := filepath.Join(public(t), "file")
	err := os.WriteFile(file, []byte("readable\n"), 0o600)
	if err == nil {
		err = errors.Join(os.Chown(file, 0, group), os.Chmod(file, 0o640)) //nolint:gosec // for a group
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, level := range possible() {
		cmd := behind(t, level, user{uid: 1_731_035, groups: []uint32{group}}, "cat", file)
		if out, _ := output(t, cmd); out != "readable\n" {
			t.Errorf("%s: %s", level, out)
		}
	}
}

// TestFileCapabilities: a program that has rights by its file starts, and has not that to mount.
func TestFileCapabilities(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root", "isolation")
	grep, err := exec.LookPath("grep")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(grep)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(public(t), "grep")
	executable.Write(t, path, text)
	who := user{uid: 1_731_035}
	for name, c := range map[string]struct {
		right byte
		says  string // without a wall
	}{"CAP_SYS_ADMIN": {unix.CAP_SYS_ADMIN, "0000000000200000"}, "CAP_NET_RAW": {unix.CAP_NET_RAW, "0000000000002000"}} {
		rights := make([]byte, 20) // struct vfs_cap_data, version 2, effective (linux/capability.h)
		copy(rights, []byte{1, 0, 0, 2, 0, 0, 0, 0})
		rights[4+c.right/8] = 1 << (c.right % 8)
		err = unix.Setxattr(path, "security.capability", rights, 0)
		if err != nil {
			t.Skip(err)
		}
		if out, _ := output(t, who.command(t, path, "grep", "CapEff", "/proc/self/status")); !strings.Contains(out, c.says) {
			t.Skipf("files have no capabilities here: %s", out)
		}
		for _, level := range possible() {
			out, code := output(t, behind(t, level, who, path, "CapEff", "/proc/self/status"))
			if level == job.Cgroup { // which leaves every right but that to the devices
				if !strings.Contains(out, c.says) {
					t.Errorf("%s, %s: exit code %d, says %s", name, level, code, out)
				}
				continue
			}
			if strings.Contains(out, "200000") || (code != 0) != (c.right == unix.CAP_SYS_ADMIN && level == job.Namespace) {
				t.Errorf("%s, %s: exit code %d, says %s", name, level, code, out)
			}
		}
	}
}

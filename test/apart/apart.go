// Package apart gives the tests of a package surroundings of their own: an environment out of a written list, a home, and a
// PATH without the programs that would change what gpuard does. It ends every process that they leave, also when they are
// killed.
//
//	apart.RunIfWatcher()
//	os.Exit(apart.Run(m))
package apart

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// keptVariables are the variables of the caller that tests see; what else a test needs, it sets. They say how Go works, where files
// and libraries are, and what is asked of the tests. .ci/bare gives no others.
func keptVariables() []string {
	return []string{
		"CGO_ENABLED", "GOCACHE", "GOCOVERDIR", "GODEBUG", "GOENV", "GOFLAGS", "GOMAXPROCS", "GOMODCACHE", "GOPATH", "GOPROXY", "GORACE", "GOROOT", "GOTOOLCHAIN", "GOTRACEBACK",
		"CI", "LD_LIBRARY_PATH", "PWD", "TMPDIR",
		"GPUARD_AMD", "GPUARD_BEFORE", "GPUARD_CAPTURES", "GPUARD_GATES", "GPUARD_NVIDIA", "GPUARD_PICTURES", "GPUARD_PROBES", "GPUARD_RECORD", "GPUARD_SKIPPED", "GPUARD_SOAK", "GPUARD_TRACES", "GPUARD_UPDATE",
	}
}

// hiddenPrograms are the programs that gpuard looks for in PATH and no gate of internal/gate names: a test that needs one brings one.
func hiddenPrograms() []string {
	return []string{
		"conda", "kdialog", "kubectl", "mamba", "notify-send", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "nvidia-smi", "torchrun",
		"xdg-open", "xmessage", "zenity",
	}
}

// systemFolders are the folders of a distribution. Others in the PATH of a person have an interpreter that asks their own home.
func systemFolders() []string {
	return []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
}

// TestFolder is a folder for one run of tests. What they start has its name in PATH or HOME, so that it is found at the end.
type TestFolder struct {
	root  string
	paths string   // the PATH of the caller
	alive *os.File // the watcher acts when this process ends, which closes it
	watch *exec.Cmd
}

// Enter changes the environment of this process to that of the tests. Its caller has called Watch before.
func Enter() (*TestFolder, error) {
	temporary := TempFolder()
	root, err := os.MkdirTemp(temporary, "gpuard")
	if err != nil {
		return nil, err
	}
	heedIgnoredSignals()
	p := &TestFolder{root: root, paths: os.Getenv("PATH")}
	err = os.Chmod(root, 0o755) //nolint:gosec // tests act as other users
	if err == nil {
		err = os.Mkdir(p.pathOf("home"), 0o700)
	}
	var path string
	if err == nil {
		path, err = p.makePath(systemFolders(), p.paths)
	}
	if err == nil {
		err = p.startWatcher()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(root))
	}
	return p, setEnvironment(map[string]string{"HOME": p.pathOf("home"), "PATH": path, "TMPDIR": temporary})
}

// memoryFolder is where Linux has a filesystem in memory, as the state folder of a machine is on one. On a disk, tests that make
// and remove many files take a tenth longer.
const memoryFolder = "/dev/shm"

// TempFolder is where tests make their folders: where the caller says, or in memory, if there is room (containers often have
// 64 MiB) and programs can be run from there.
func TempFolder() string {
	const room = 2 << 30
	var fs syscall.Statfs_t
	_, chosen := os.LookupEnv("TMPDIR")
	if chosen || syscall.Statfs(memoryFolder, &fs) != nil || fs.Bavail*uint64(fs.Bsize) < room || fs.Flags&unix.ST_NOEXEC != 0 || unix.Access(memoryFolder, unix.W_OK) != nil { //nolint:gosec // a size is positive
		return os.TempDir()
	}
	return memoryFolder
}

// heedIgnoredSignals lets programs that the tests start get the signals that the caller ignores, as nohup does and a shell for what runs in
// the background: an exec gives a caught signal its default again.
func heedIgnoredSignals() {
	// The Go runtime itself takes back the others.
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

func (p *TestFolder) pathOf(name string) string { return filepath.Join(p.root, name) }

// Root is the folder; it is removed at the end, whatever happens.
func (p *TestFolder) Root() string { return p.root }

// CallerPath is the PATH of the caller, for tests of the very machine.
func (p *TestFolder) CallerPath() string { return p.paths }

// setEnvironment keeps what is passed, and sets the others.
func setEnvironment(others map[string]string) error {
	for name, value := range goPlaces() {
		others[name] = value
	}
	for _, name := range keptVariables() {
		if value, ok := os.LookupEnv(name); ok {
			others[name] = value
		}
	}
	os.Clearenv()
	var err error
	for name, value := range others {
		err = errors.Join(err, os.Setenv(name, value))
	}
	return err
}

// goPlaces are the places in the home of the caller where Go keeps what it has built: with another home it would build
// everything again.
func goPlaces() map[string]string {
	places := map[string]string{}
	if cache, err := os.UserCacheDir(); err == nil {
		places["GOCACHE"] = filepath.Join(cache, "go-build")
	}
	if config, err := os.UserConfigDir(); err == nil {
		places["GOENV"] = filepath.Join(config, "go/env")
	}
	if home, err := os.UserHomeDir(); err == nil {
		places["GOPATH"] = filepath.Join(home, "go")
	}
	return places
}

// makePath returns a PATH of the programs in folders, and go. Where a distribution has them elsewhere, it is that of the
// caller.
func (p *TestFolder) makePath(folders []string, callers string) (string, error) {
	if !slices.ContainsFunc(folders, func(folder string) bool { return pathExists(filepath.Join(folder, "sleep")) }) {
		folders = filepath.SplitList(callers)
	}
	path := []string{p.pathOf("bin")}
	if err := os.Mkdir(p.pathOf("bin"), 0o755); err != nil { //nolint:gosec // tests act as other users
		return "", err
	}
	if tool, err := exec.LookPath("go"); err == nil { // else a test program that was built elsewhere
		if err := os.Symlink(tool, p.pathOf("bin/go")); err != nil {
			return "", err
		}
	}
	for _, folder := range folders {
		place, err := filepath.EvalSymlinks(folder)
		if err != nil || !filepath.IsAbs(place) || slices.Contains(path, place) {
			continue
		}

		path = append(path, place)
		if hasHiddenProgram(place) {
			path[len(path)-1] = p.pathOf(fmt.Sprint("bin", len(path)))
			if err := linkPrograms(path[len(path)-1], place); err != nil {
				return "", err
			}
		}
	}
	return strings.Join(path, ":"), nil
}

// AddPrograms puts this program into the PATH of the tests, under each of the names. It is copied once, as the folder may be on another
// filesystem than what go test has built; the other names are links.
func (p *TestFolder) AddPrograms(names ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	from, err := os.Open(self) //nolint:gosec // this program
	if err != nil {
		return err
	}
	defer from.Close() //nolint:errcheck // it was read
	first := p.pathOf("bin/" + names[0])
	to, err := os.OpenFile(first, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755) //nolint:gosec // tests act as other users
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	err = errors.Join(err, to.Close())
	for _, name := range names[1:] {
		err = errors.Join(err, os.Link(first, p.pathOf("bin/"+name)))
	}
	return err
}

// hasHiddenProgram reports whether a folder has a program that tests must not find.
func hasHiddenProgram(folder string) bool {
	return slices.ContainsFunc(hiddenPrograms(), func(name string) bool { return pathExists(filepath.Join(folder, name)) })
}

// linkPrograms makes dir another folder with the programs of that one, without those that tests must not find.
func linkPrograms(dir, programs string) error {
	entries, err := os.ReadDir(programs)
	if err == nil {
		err = os.Mkdir(dir, 0o755) //nolint:gosec // tests act as other users
	}
	for _, e := range entries {
		if err == nil && !slices.Contains(hiddenPrograms(), e.Name()) {
			err = os.Symlink(filepath.Join(programs, e.Name()), filepath.Join(dir, e.Name()))
		}
	}
	return err
}

func pathExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// leaveTimeout: holders end a moment after the jobs that they hold for.
var leaveTimeout = 5 * time.Second

// Run runs the tests of a package apart, and returns the code to end with.
func Run(tests interface{ Run() int }) int {
	place, err := Enter()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot run the tests in surroundings of their own:", err)
		return 1
	}
	return place.Leave(tests.Run())
}

// Leave ends what the tests have left, and returns the code to end with: it is a failure that something was left.
func (p *TestFolder) Leave(code int) int {
	left := AwaitNoneNaming(p.root, leaveTimeout, p.watch.Process.Pid)
	for _, one := range left {
		fmt.Fprintf(os.Stderr, "the tests have left behind, and it is ended now: %s\n", one)
		code = max(code, 1)
	}
	_ = p.alive.Close()
	if err := p.watch.Wait(); err != nil {
		fmt.Fprintf(os.Stderr, "cannot remove %s: %v\n", p.root, err)
		code = max(code, 1)
	}
	return code
}

// AwaitNoneNaming waits until no process speaks of the folder any more, and returns those that still do. A look through all of /proc
// takes long on a machine with many processes: the pause is as long, so that what is waited for gets the processor.
func AwaitNoneNaming(folder string, patience time.Duration, other ...int) []Process {
	for end := time.Now().Add(patience); ; {
		began := time.Now()
		left := ProcessesNaming(folder, other...)
		if len(left) == 0 || !time.Now().Before(end) {
			return left
		}
		time.Sleep(max(5*time.Millisecond, 8*time.Since(began)))
	}
}

// SetParallelTests lets so many tests run at the same time, for packages whose tests mostly wait. -parallel of the command line is
// read later, and wins.
func SetParallelTests(most int) {
	if err := flag.Set("test.parallel", strconv.Itoa(max(most, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
}

// UseMemoryFolder lets t.TempDir make its folders where Temporary says, for packages whose tests make many small files.
func UseMemoryFolder() {
	if err := os.Setenv("TMPDIR", TempFolder()); err != nil {
		panic(err)
	}
}

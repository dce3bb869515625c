package main

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
	"gpuard/test/apart"
	"gpuard/test/hardware"
	"gpuard/test/kubectl"
	"gpuard/test/nvidia"
)

// TestMain makes this test binary the program: started under the name gpuard it runs main, holder included; hasty is
// the same with short waits; occupy is a job for it to start.
func TestMain(m *testing.M) {
	nvidia.ReenterMachine()
	apart.RunIfWatcher()
	gate.Driver = hardware.CheckGPUs
	apart.SetParallelTests(map[bool]int{true: 8, false: 12}[raceEnabled])
	if len(os.Args) > 1 && (os.Args[1] == "__rank" || os.Args[1] == "__join") { // torchrun starts the file of this program, under its own name
		main()
	}
	roles := map[string]func(){"gpuard": main, "hasty": runHasty, "orderly": runHastyInOrder, "polite": runSlowToPassOver, "sampling": runSampling, "glancing": runShortFirstMinute, "trusting": runPatientWithDriver, "pausing": runPausingLong, "lasting": runKeepingLeaseLong, "crowded": runPatientWithLock, "unwell": runWithKernelLog, "amdbox": runOnAMDRoot, "labbox": runOnLabRoot,
		"surveyed": runOnSite, "strict": runHastyQuota, "occupy": occupyDevices, "upkeep": runServicesTool, "alone": runExclusiveService, "keeplock": keepFolderLock, "listen": reportSignals, "reap": reapChildren, "adopter": becomeSubreaper, "thread": printThreadState, "threadless": exhaustThreads, "rank": runRank, "torchagent": runTorchAgent, "served": serveOneCaller, "kubectl": kubectl.Main, "stubengine": runStubEngine, "contained": runContained}
	if name := filepath.Base(os.Args[0]); roles[name] != nil {
		os.Args[0] = name
		roles[name]()
		os.Exit(0)
	}
	os.Exit(runTests(m, slices.Collect(maps.Keys(roles))))
}

// testPlace is where the tests are; nil in the programs that they start.
var testPlace *apart.TestFolder

// runTests runs the tests, which find this program under the names.
func runTests(m *testing.M, names []string) int {
	var err error
	if testPlace, err = apart.Enter(); err == nil {
		err = testPlace.AddPrograms(names...)
	}
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"LC_ALL", "LC_MESSAGES", "LANG"} {
		_ = os.Unsetenv(name) // what is compared is English
	}
	unix.Umask(0o022) // a project in a folder that a group can write is not used
	return testPlace.Leave(m.Run())
}

// linkProgram gives this program another name. What go test has built is in a folder that other users cannot enter.
func linkProgram(t testing.TB, path string) {
	t.Helper()
	if err := os.Link(filepath.Join(testPlace.Root(), "bin/gpuard"), path); err != nil {
		t.Fatal(err)
	}
}

// TestScript runs the program from outside: one file in testdata/script per theme.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			state := filepath.Join(e.WorkDir, "state")
			e.Setenv("GPUARD_STATE", state)
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			e.Setenv("LC_ALL", "C.UTF-8")
			_, options, _ := strings.Cut(raceOptions(), "=")
			e.Setenv("GORACE", options)
			e.Setenv("COLUMNS", "120") // of what is printed into files
			e.Defer(func() { waitForWriters(t, e.WorkDir) })
			return nil
		},
		Condition: func(name string) (bool, error) { return gate.Has(t, name), nil },
	})
}

// runResult is how one run of the program ended.
type runResult struct {
	code     int // -1 when a signal ended it
	out, err string
}

// gpuardCommand prepares the program with a state folder and a clean environment; env comes last and wins. The locale is the
// same on every machine, and neither the program nor a shell that is started with this environment writes into the home
// of the caller.
func gpuardCommand(t testing.TB, state string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	for _, folder := range append(stateHomes(env), state) {
		if slices.ContainsFunc(args, func(a string) bool { return slices.Contains([]string{"submit", "sweep", "up"}, a) }) && strings.HasPrefix(folder, os.TempDir()) && !inQuietDir(folder) {
			t.Fatalf("what %q leaves in the background may still write in %s when the test is over: take stateFolder(t) or quietDir(t)", args, folder)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(soakCount(60, 3))*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Args[0] = "gpuard"
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "GPUARD_") { // what is asked of the tests
			cmd.Env = append(cmd.Env, pair)
		}
	}
	cmd.Env = append(append(cmd.Env, raceOptions(), "COLUMNS=120", "LC_ALL=C.UTF-8", "HISTFILE=", "XDG_CONFIG_HOME=/dev/null", "XDG_STATE_HOME="+state+".home", "GPUARD_STATE="+state), env...)
	return cmd
}

// stateHomes are the folders of env in which gpuard keeps what has to last.
func stateHomes(env []string) (list []string) {
	for _, pair := range env {
		if name, folder, _ := strings.Cut(pair, "="); name == "XDG_STATE_HOME" || name == "HOME" {
			list = append(list, folder)
		}
	}
	return list
}

// raceOptions keep what the caller wants of the race detector, which would hold each of the many processes for a second
// at its end.
func raceOptions() string { return "GORACE=" + os.Getenv("GORACE") + " atexit_sleep_ms=0" }

// runCommand starts cmd and waits.
func runCommand(t testing.TB, cmd *exec.Cmd) runResult {
	t.Helper()
	return runAndKill(t, cmd, 0)
}

// runAndKill is run with a kill -9 after a while, unless that is 0 or cmd has ended before.
func runAndKill(t testing.TB, cmd *exec.Cmd, after time.Duration) runResult {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Start()
	if err == nil {
		if after > 0 {
			timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
			defer timer.Stop()
		}
		err = cmd.Wait()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("cannot start %q: %v", cmd.Args, err)
	}
	return runResult{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// quietDir is a folder that is removed only after the processes that may still write there, such as holders at the end
// of their leases. One that stays is an error of the test.
func quietDir(t testing.TB) string {
	t.Helper()
	return waitForWritersAtEnd(t, t.TempDir())
}

func waitForWritersAtEnd(t testing.TB, folder string) string {
	t.Helper()
	t.Cleanup(func() { waitForWriters(t, folder) })
	quietDirs.Store(folder, true)
	return folder
}

var quietDirs sync.Map

// inQuietDir reports whether processes that write in this folder are awaited.
func inQuietDir(folder string) bool {
	for ; folder != "/" && folder != "."; folder = filepath.Dir(folder) {
		if _, quiet := quietDirs.Load(folder); quiet {
			return true
		}
	}
	return false
}

// stateFolder is a folder in a quietDir that is missing, so that the program makes it.
func stateFolder(t testing.TB) string {
	t.Helper()
	return filepath.Join(quietDir(t), "state")
}

// waitForWriters waits until no process speaks of the folder any more, and ends those that do not stop.
func waitForWriters(t testing.TB, folder string) {
	t.Helper()
	left := apart.AwaitNoneNaming(folder, 20*time.Second)
	for _, process := range left {
		t.Errorf("left behind, and ended now: %s", process)
	}
	apart.KillProcesses(left)
}

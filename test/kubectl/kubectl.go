// Package kubectl is a kubectl for tests. It answers from a recording of calls to a real cluster, which make
// check-kubernetes makes. A call that is not in the recording fails: the arguments are part of what is tested.
package kubectl

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Variables of the environment.
const (
	recordingVariable = "GPUARD_KUBECTL_RECORDING" // file with a Call on each line
	callsVariable     = "GPUARD_KUBECTL_CALLS"     // file that notes what was called in this test
)

// Call is one call and its answer. {job} is the name of the job that the last create made.
type Call struct {
	Args []string `json:"args"`
	Out  string   `json:"out,omitempty"`
	Err  string   `json:"err,omitempty"`
	Exit int      `json:"exit,omitempty"`
}

// madeCall is what a test can see of its calls.
type madeCall struct {
	Args []string `json:"args"`
	In   string   `json:"in,omitempty"`
	Job  string   `json:"job,omitempty"` // of a create
}

// InstallPlayer is a folder for PATH in which kubectl is this test binary, and what it needs in its environment. The binary's
// TestMain has to call Main where it is started under the name kubectl.
func InstallPlayer(t testing.TB, file string) (dir string, env []string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if file, err = filepath.Abs(file); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "kubectl")); err != nil {
		t.Fatal(err)
	}
	return dir, []string{recordingVariable + "=" + file, callsVariable + "=" + filepath.Join(dir, "calls")}
}

// ReadCalls lists the calls that were made of a Player's kubectl, as words, and what they were given on standard input.
func ReadCalls(t testing.TB, dir string) (words, in []string) {
	t.Helper()
	list, err := readJSONLines[madeCall](filepath.Join(dir, "calls"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, a := range list {
		words, in = append(words, strings.Join(a.Args, " ")), append(in, a.In)
	}
	return words, in
}

// Main is kubectl.
func Main() {
	code, err := playCall(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "error: the kubectl of the test:", err)
		code = 99
	}
	os.Exit(code)
}

func playCall(args []string) (int, error) {
	var in []byte
	if slices.Contains(args, "--filename=-") {
		in, _ = io.ReadAll(os.Stdin)
	}
	known, err := readJSONLines[Call](os.Getenv(recordingVariable))
	if err != nil {
		return 0, err
	}
	lock, err := openLocked(os.Getenv(callsVariable))
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	before, err := readJSONLines[madeCall](os.Getenv(callsVariable))
	if err != nil {
		return 0, err
	}
	job := jobNameIn(in)
	for i := len(before) - 1; i >= 0 && job == ""; i-- {
		job = before[i].Job
	}
	now := madeCall{args, string(in), jobNameIn(in)}
	line, _ := json.Marshal(now)
	if _, err := lock.Write(append(line, '\n')); err != nil {
		return 0, err
	}
	c, err := nextAnswer(known, before, args, job)
	if err != nil {
		return 0, err
	}
	fmt.Fprint(os.Stdout, strings.ReplaceAll(c.Out, "{job}", job))
	fmt.Fprint(os.Stderr, strings.ReplaceAll(c.Err, "{job}", job))
	return c.Exit, nil
}

// nextAnswer is the next answer to the same call; the last one is given again and again.
func nextAnswer(known []Call, before []madeCall, args []string, job string) (Call, error) {
	var same []Call
	for _, c := range known {
		if strings.ReplaceAll(strings.Join(c.Args, "\x00"), "{job}", job) == strings.Join(args, "\x00") {
			same = append(same, c)
		}
	}
	if len(same) == 0 {
		return Call{}, fmt.Errorf("%q is not in the recording", args)
	}
	n := 0
	for _, a := range before {
		if slices.Equal(a.Args, args) {
			n++
		}
	}
	return same[min(n, len(same)-1)], nil
}

// jobNamePattern finds the name of the Job in a manifest, as YAML or as JSON.
var jobNamePattern = regexp.MustCompile(`(?s)kind"?: "?Job"?.*?name"?: "?([a-z0-9-]+)`)

func jobNameIn(manifest []byte) string {
	if m := jobNamePattern.FindSubmatch(manifest); m != nil {
		return string(m[1])
	}
	return ""
}

// openLocked opens a file to append to; nobody else has it until it is closed.
func openLocked(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	return f, err
}

func readJSONLines[T any](path string) (list []T, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var one T
		if text := bytes.TrimSpace(in.Bytes()); len(text) == 0 || text[0] == '#' {
			continue
		}
		if err := json.Unmarshal(in.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		list = append(list, one)
	}
	return list, in.Err()
}

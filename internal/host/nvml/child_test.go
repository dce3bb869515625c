package nvml

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/test/apart"
	"gpuard/test/fakegpu"
)

// The dynamic loader reads LD_LIBRARY_PATH when a process starts, so a test that wants the fake library runs this test
// program again as a child, which prints what it read.
const (
	childWhat     = "NVML_TEST_WHAT"     // parts to read; its presence makes the process a child
	childQuery    = "NVML_TEST_QUERY"    // gpu.Query of the last reading, as JSON without What; not set: all devices
	childDeadline = "NVML_TEST_DEADLINE" // a duration
	childListens  = "NVML_TEST_LISTENS"  // UUIDs: report their events until the standard input ends
	childCounts   = "NVML_TEST_COUNTS"   // folder of the kernel driver: read for each line of the standard input
	childTwice    = "NVML_TEST_TWICE"    // a file: read, create it, wait until it is gone, read again
)

func TestMain(m *testing.M) {
	if ids, listens := os.LookupEnv(childListens); listens {
		beListener(strings.Split(ids, ","))
		os.Exit(0)
	}
	if kernel, counts := os.LookupEnv(childCounts); counts {
		beCounter(kernel)
		os.Exit(0)
	}
	if what, child := os.LookupEnv(childWhat); child {
		if err := json.NewEncoder(os.Stdout).Encode(beChild(what)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	apart.SetParallelTests(24)
	os.Exit(m.Run())
}

// reading is what a child read.
type reading struct {
	Machine     gpu.Machine
	First       gpu.Machine // of two readings
	Unavailable *gpu.Unavailable
	Error       string
	Elapsed     time.Duration // of all driver calls
}

func beChild(what string) reading {
	parts, err := strconv.ParseUint(what, 10, 32)
	if err != nil {
		return reading{Error: err.Error()}
	}
	deadline, err := time.ParseDuration(os.Getenv(childDeadline))
	if err != nil {
		return reading{Error: err.Error()}
	}
	var r reading
	begin := time.Now()
	r.Machine, err = readOnceOrTwice(&r, gpu.What(parts), deadline)
	r.Elapsed = time.Since(begin)
	if err != nil {
		r.Error = err.Error()
		errors.As(err, &r.Unavailable)
	}
	return r
}

func readOnceOrTwice(r *reading, what gpu.What, deadline time.Duration) (gpu.Machine, error) {
	ctx, query := context.Background(), gpu.Query{What: what}
	if some, set := os.LookupEnv(childQuery); set {
		if err := json.Unmarshal([]byte(some), &query); err != nil {
			return gpu.Machine{}, err
		}
	}
	l, err := Open(ctx, WithDeadline(deadline))
	if err != nil {
		return gpu.Machine{}, err
	}
	pause := os.Getenv(childTwice)
	if pause == "" {
		return l.Read(ctx, query)
	}
	if r.First, err = l.Read(ctx, gpu.Query{What: what}); err != nil {
		return gpu.Machine{}, err
	}
	if err := os.WriteFile(pause, nil, 0o600); err != nil {
		return gpu.Machine{}, err
	}
	for range 4000 {
		if _, err := os.Stat(pause); err != nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	return l.Read(ctx, query)
}

// child reads the fake machine in a process of its own.
func child(t *testing.T, env []string, what gpu.What, deadline time.Duration) reading {
	t.Helper()
	return finish(t, childCommand(t, env, what, deadline))
}

func childCommand(t *testing.T, env []string, what gpu.What, deadline time.Duration) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), env...), fmt.Sprintf("%s=%d", childWhat, what), childDeadline+"="+deadline.String())
	return cmd
}

func finish(t *testing.T, cmd *exec.Cmd) reading {
	t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	return parse(t, out, stderr.String(), err)
}

func parse(t *testing.T, out []byte, stderr string, err error) reading {
	t.Helper()
	if err != nil {
		t.Fatalf("the child ended with %v\n%s", err, stderr)
	}
	var r reading
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("cannot read the child's answer: %v\n%s\n%s", err, out, stderr)
	}
	return r
}

// machine reads a fake machine that must be readable.
func machine(t *testing.T, d *fakegpu.Driver, what gpu.What) gpu.Machine {
	t.Helper()
	r := child(t, d.Env(), what, 5*time.Second)
	if r.Error != "" {
		t.Fatalf("cannot read the fake machine: %s", r.Error)
	}
	return r.Machine
}

// machineTwice reads, lets change happen, and reads again with the same library.
func machineTwice(t *testing.T, d *fakegpu.Driver, what gpu.What, deadline time.Duration, change func(), env ...string) reading {
	t.Helper()
	pause := filepath.Join(t.TempDir(), "pause")
	cmd := childCommand(t, append(append(d.Env(), childTwice+"="+pause), env...), what, deadline)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 4000 {
		if _, err := os.Stat(pause); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	change()
	if err := os.Remove(pause); err != nil {
		_ = cmd.Process.Kill()
		t.Errorf("the child did not get to its second reading: %v", err)
	}
	err := cmd.Wait()
	return parse(t, []byte(stdout.String()), stderr.String(), err)
}

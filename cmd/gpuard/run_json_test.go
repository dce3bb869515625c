package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/test/fakegpu"
)

// readJSONLines reads standard error of a run --json: nothing but JSON, one object per line.
func readJSONLines(t *testing.T, text string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Errorf("%v in %q", err, line)
		}
		all = append(all, one)
	}
	return all
}

// TestRunVerifyJSON: the verifier's line is an object of its own.
func TestRunVerifyJSON(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	got := r.run("run", "--json", "--verify", "--device", "1", "--", "sh", "-c", "fakegpu-job --gpu 1 --mem 2G --seconds 2")
	said := readJSONLines(t, got.err)
	if got.code != 0 || len(said) != 2 {
		t.Fatalf("exit %d, %d objects:\n%s", got.code, len(said), got.err)
	}
	checkEqual(t, "schemas", []any{said[0]["schema"], said[1]["schema"]}, []any{"gpuard.run/1", "gpuard.verify/1"})
	checkEqual(t, "verdict", []any{said[1]["verdict"], said[1]["stopped"], said[1]["lease"]}, []any{"proven", false, said[0]["lease"]})

	script := `trap 'exit 9' TERM; CUDA_VISIBLE_DEVICES=1 fakegpu-job --gpu 1 --seconds 3 & wait; exit 0`
	got = r.run("run", "--json", "--verify=20s,stop", "--device", "0", "--anyway", "--", "sh", "-c", script)
	said = readJSONLines(t, got.err)
	if got.code != 9 || len(said) != 2 {
		t.Fatalf("exit %d, %d objects:\n%s", got.code, len(said), got.err)
	}
	checkEqual(t, "outside", []any{said[1]["verdict"], said[1]["stopped"]}, []any{"outside-lease", true})
}

// TestRunJSONRemarks: notes are in the object, not next to it.
func TestRunJSONRemarks(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	r.Hang("nvmlDeviceGetTemperature", 0)
	got := runCommand(t, r.hastyCommand("run", "--json", "--", "true"))
	said := readJSONLines(t, got.err)
	if got.code != 0 || len(said) == 0 {
		t.Fatalf("exit %d\n%s", got.code, got.err)
	}
	notes, _ := json.Marshal(said[0]["notes"])
	checkContains(t, string(notes), "GPU 0 was not waited for: no answer within ")
}

// TestSilentDeviceIsNamed: a wait for a device that does not answer names the device, unless -q is given.
func TestSilentDeviceIsNamed(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	r.Hang("nvmlDeviceGetTemperature", 0)
	got := runCommand(t, r.hastyCommand("run", "--gpus", "2", "--no-wait", "--", "true"))
	checkEqual(t, "exit", got.code, 120)
	checkContains(t, got.err, "gpuard: waited ", "s for GPU 0: no answer within 1s; gpuard status shows it")
	got = runCommand(t, r.hastyCommand("run", "--", "true"))
	checkEqual(t, "exit", got.code, 0)
	checkContains(t, got.err, "gpuard: GPU 0 was not waited for: no answer within ", "; gpuard status shows it")
	got = runCommand(t, r.hastyCommand("run", "-q", "--", "true"))
	checkEqual(t, "quietly", []any{got.code, got.err}, []any{0, ""})
}

// TestRunWaitsForWhatEnds: a process that started after the lease's end does not count as memory about to be freed.
func TestRunWaitsForWhatEnds(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.A100(0))
	r.givenDevices()
	r.waitForEndRecord()
	pid := r.startFakeJob(0, "20G", fakegpu.Compute)
	got := runCommand(t, r.hastyCommand("run", "--wait=1s", "--", "true"))
	checkEqual(t, "exit", got.code, 121)
	if strings.Contains(got.err, "job that just ended") {
		t.Errorf("waits for process %d, which is newer than the lease's end:\n%s", pid, got.err)
	}
}

// TestRunDoesNotWaitForTheLiving: memory of a process that goes on living is not about to be freed, although a lease on
// its device has just ended.
func TestRunDoesNotWaitForTheLiving(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.A100(0))
	pid := r.leaveChildOnGPU(60)
	r.waitForEndRecord()
	got := runCommand(t, r.cmd("run", "--fallback", "other", "--", "true"))
	checkEqual(t, "exit", got.code, 120)
	checkContains(t, got.err, fmt.Sprintf("PID %d", pid))
	if strings.Contains(got.err, "job that just ended") {
		t.Errorf("waits for the end of process %d, which lives:\n%s", pid, got.err)
	}
}

// TestRunNoWait: --no-wait answers immediately where run alone waits for memory that is about to be freed.
func TestRunNoWait(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.A100(0))
	r.leaveChildOnGPU(60)
	r.waitForNoLeases()
	got := runCommand(t, r.hastyCommand("run", "--no-wait", "--", "true"))
	checkEqual(t, "exit", got.code, 120)
	waited := runCommand(t, r.hastyCommand("run", "--wait", "3s", "--", "true"))
	checkEqual(t, "exit", waited.code, 121)
	checkContains(t, waited.err, "gpuard: waiting for 1 GPU")
	if strings.Contains(got.err, "waiting") {
		t.Errorf("it waited:\n%s", got.err)
	}
}

// waitForEndRecord waits until the end of the lease on GPU 0 is on record, which is later than the end, and until a process
// that starts now is younger by the kernel's count of 10 ms too.
func (r *fakeDriverMachine) waitForEndRecord() {
	r.t.Helper()
	waitUntil(r.t, "the end is recorded", func() bool {
		var record struct {
			Devices map[string]struct{ Ended int64 }
		}
		var now unix.Timespec
		data, err := os.ReadFile(filepath.Join(r.state, "lock"))
		if err != nil || json.Unmarshal(data, &record) != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
			return false
		}
		ended := record.Devices[fakeUUID(0)].Ended
		return ended > 0 && now.Nano() > ended+10e6
	})
}

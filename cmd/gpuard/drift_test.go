package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpuard/test/pace"
)

// driftMinute is one minute of the policy about moves for the hasty program: a reading every 5 s is then one every 80
// ms.
const driftMinute = time.Second

// driftingJob is a job that says where and why each of its starts is, until it is told to end.
type driftingJob struct {
	r        *fakeDriverMachine
	cmd      *exec.Cmd
	log, end string
	errs     string // file of what gpuard says
}

const driftingJobScript = `echo "$GPUARD_GPUS|$GPUARD_RESTART|$GPUARD_DRIFT_REASON" >> %[1]s
trap 'echo saved >> %[1]s; exit 0' TERM
for i in $(seq 1200); do
	[ -e %[2]s ] && exit $(cat %[2]s)
	[ -e %[2]s.first ] && [ -z "$GPUARD_RESTART" ] && exit 9
	sleep 0.05
done`

// startDriftingJob starts the job under the hasty program.
func (r *fakeDriverMachine) startDriftingJob(flags ...string) *driftingJob {
	r.t.Helper()
	dir := r.t.TempDir()
	j := &driftingJob{r: r, log: filepath.Join(dir, "log"), end: filepath.Join(dir, "end"), errs: filepath.Join(dir, "errs")}
	script := fmt.Sprintf(driftingJobScript, j.log, j.end)
	j.cmd = r.hastyCommand(append(append([]string{"run"}, flags...), "--", "sh", "-c", script)...)
	errs, err := os.Create(j.errs)
	if err == nil {
		j.cmd.Stderr = errs
		err = j.cmd.Start()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		j.endWithCode(0)
		_, _ = j.cmd.Process.Kill(), j.cmd.Wait()
		_ = errs.Close()
	})
	return j
}

// jobStarts are the job's starts, each as GPU, restart, reason; a "saved" line is left out.
func (j *driftingJob) jobStarts() (list [][]string) {
	text, _ := os.ReadFile(j.log)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "|") && strings.HasSuffix(line, "\n") {
			list = append(list, strings.Split(strings.TrimSpace(line), "|"))
		}
	}
	return list
}

// waitForStart waits for the n-th start and returns the number of its GPU.
func (j *driftingJob) waitForStart(n int) int {
	j.r.t.Helper()
	waitUntil(j.r.t, fmt.Sprintf("start %d; gpuard says: %s", n, j.errorText()), func() bool { return len(j.jobStarts()) >= n })
	return gpuIndexOf(j.r.t, j.jobStarts()[n-1][0])
}

func gpuIndexOf(t testing.TB, id string) int {
	t.Helper()
	n, err := strconv.ParseInt(id[len(id)-12:], 16, 32)
	if err != nil {
		t.Fatalf("%q: %v", id, err)
	}
	return int(n)
}

func (j *driftingJob) errorText() string {
	text, _ := os.ReadFile(j.errs)
	return string(text)
}

// endWithCode lets the job end by itself with that code.
func (j *driftingJob) endWithCode(code int) {
	j.r.t.Helper()
	if err := os.WriteFile(j.end+".new", []byte(strconv.Itoa(code)), 0o600); err == nil {
		_ = os.Rename(j.end+".new", j.end)
	}
}

// setFullLoad makes a GPU fully loaded.
func (r *fakeDriverMachine) setFullLoad(i int) {
	r.SetValue(i, "utilization", "99 50")
	r.SetValue(i, "clock_sm", "1400")
	r.SetValue(i, "events", "0x0")
	r.SetValue(i, "power_mw", "300000")
	r.SetValue(i, "temperature", "50")
}

// setThrottled lets a GPU throttle: software thermal slowdown.
func (r *fakeDriverMachine) setThrottled(i int) {
	r.SetValue(i, "temperature", "86")
	r.SetValue(i, "clock_sm", "600")
	r.SetValue(i, "events", "0x20")
}

// checkStartsStay checks for some minutes of the policy that the job has had n starts.
func (j *driftingJob) checkStartsStay(n int, minutes float64) {
	j.r.t.Helper()
	for end := time.Now().Add(time.Duration(minutes * float64(driftMinute))); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if s := j.jobStarts(); len(s) != n {
			j.r.t.Fatalf("%d starts, want %d: %q\n%s", len(s), n, s, j.errorText())
		}
	}
}

// driftTolerance is what the end of a job, its next start and a busy machine may add to the times of the policy, which its own
// tests hold exactly.
const driftTolerance = 10 * time.Second

func TestDriftMovesFromAHeatingGPU(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(4)...)
	j := r.startDriftingJob("--drift")
	first := j.waitForStart(1)
	r.setFullLoad(first)
	j.checkStartsStay(1, 1.5)
	r.setThrottled(first)
	slowed := time.Now()
	second := j.waitForStart(2)
	if took := time.Since(slowed); took < driftMinute*9/10 || took > driftMinute*3/2+driftTolerance {
		t.Errorf("moved %v after the first slowdown reason, want from 60 to 90 s, where a minute is %v, and at most %v more", took, driftMinute, driftTolerance)
	}
	if second == first {
		t.Errorf("moved to the same GPU %d", first)
	}
	start := j.jobStarts()[1]
	checkEqual(t, "GPUARD_RESTART", start[1], "1")
	checkContains(t, start[2], fmt.Sprintf("hot: GPU %d is slowed down because of heat (sw_thermal_slowdown)", first))
	text, _ := os.ReadFile(j.log)
	checkContains(t, string(text), "saved\n")
	checkContains(t, j.errorText(), start[2]+": asking the command to end")

	r.setFullLoad(first) // it cools down, and the new one gets hot: a job that went to and fro would go back
	r.setFullLoad(second)
	r.setThrottled(second)
	checkEqual(t, "the GPU that it left", r.givenDevices("--device", strconv.Itoa(first)), fakeUUID(first))
	j.checkStartsStay(2, 4)
	j.endWithCode(7)
	_ = j.cmd.Wait()
	checkEqual(t, "exit", j.cmd.ProcessState.ExitCode(), 7)
	r.setFullLoad(second)
	checkEqual(t, "its GPU afterwards", r.givenDevices("--device", strconv.Itoa(second)), fakeUUID(second))
}

// TestDriftAcme: temperatures of a data centre, up to 88 C, move no job. Package health replays the distribution over
// many days.
func TestDriftAcme(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(4)...)
	j := r.startDriftingJob("--drift")
	on := j.waitForStart(1)
	for i := range 4 {
		r.setFullLoad(i)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	points := []int{39, 39, 39, 39, 52, 60, 65, 69, 80, 88}
	for range 5 {
		for i := range 4 {
			r.SetValue(i, "temperature", strconv.Itoa(points[rng.IntN(len(points))]))
		}
		r.SetValue(on, "temperature", "88") // of all GPUs the job's is the hottest, for minutes
		j.checkStartsStay(1, 1)
	}
	if said := j.errorText(); strings.Contains(said, "stays where it is") {
		t.Errorf("it wanted to move:\n%s", said)
	}
}

// TestDriftStays: without a better device the job stays, and gpuard says so.
func TestDriftStays(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	j := r.startDriftingJob("--drift")
	on := j.waitForStart(1)
	startToFirstLine(t, r.cmd("run", "-q", "--device", strconv.Itoa(1-on), "--", "sh", "-c", "echo on; exec sleep 60"))
	r.setFullLoad(on)
	j.checkStartsStay(1, 1.5)
	r.setThrottled(on)
	waitUntil(t, "it says that it stays", func() bool { return strings.Contains(j.errorText(), "the command stays where it is") })
	checkContains(t, j.errorText(), fmt.Sprintf("hot: GPU %d is slowed down because of heat", on))
	j.checkStartsStay(1, 3)
	checkEqual(t, "how often it said so", strings.Count(j.errorText(), "the command stays where it is"), 1)
}

// TestDriftSick: a GPU breaks under one of three jobs. It is not given again, the other jobs are not affected, and its
// job is started once more on another GPU, whether it runs on or dies.
func TestDriftSick(t *testing.T) {
	t.Parallel()
	lost := func(r *fakeDriverMachine, _ *driftingJob, i int) { r.SetValue(i, "lost", "handle") }
	xid := func(r *fakeDriverMachine, j *driftingJob, i int) {
		waitUntil(t, "the error is heard", func() bool { // the start of listening is not visible
			r.XID(i, 79)
			return strings.Contains(j.errorText(), "XID 79")
		})
	}
	tests := []struct {
		name  string
		sick  func(r *fakeDriverMachine, j *driftingJob, i int)
		dies  bool
		words string
	}{
		{"lost", lost, false, "GPU is lost"},
		{"lost and dead of it", lost, true, "GPU is lost"},
		{"XID 79", xid, false, "XID 79"},
		{"dead of XID 79", xid, true, "XID 79"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newFakeDriverMachine(t, makeA100s(4)...)
			var jobs []*driftingJob
			for range 3 {
				j := r.startDriftingJob("--drift")
				j.waitForStart(1)
				jobs = append(jobs, j)
			}
			j, broken := jobs[1], jobs[1].waitForStart(1)
			test.sick(r, j, broken)
			if test.dies {
				if err := os.WriteFile(j.end+".first", nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if to := j.waitForStart(2); to == broken {
				t.Errorf("it was started on the broken GPU %d again", to)
			}
			start := j.jobStarts()[1]
			checkEqual(t, "GPUARD_RESTART", start[1], "1")
			checkContains(t, start[2], "sick: GPU "+strconv.Itoa(broken), test.words)
			answer := mustRefuse(t, r.cmd("run", "--json", "--device", strconv.Itoa(broken), "--", "true"), 120)
			checkContains(t, answer.Reasons[broken].Text, test.words)
			for i, j := range jobs {
				j.checkStartsStay(1+i%2, 1)
			}
			for _, other := range []*driftingJob{jobs[0], jobs[2]} {
				if said := other.errorText(); strings.Contains(said, test.words) {
					t.Errorf("another job heard of it:\n%s", said)
				}
			}
		})
	}
}

// TestDriftBesideAHangingGPU: a driver call that blocks on one GPU delays neither the move of a job on another nor a
// new lease. The minute of blocking is one of the policy's and more: it lasts for the whole test.
func TestDriftBesideAHangingGPU(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(4)...)
	j := r.startDriftingJob("--drift")
	first := j.waitForStart(1)
	stuck := (first + 3) % 4
	r.setFullLoad(first)
	j.checkStartsStay(1, 1.5)
	r.Hang("nvmlDeviceGetTemperature", stuck)
	r.setThrottled(first)
	speed, slowed := pace.Start(t), time.Now()
	second := j.waitForStart(2)
	const driver = time.Second // the hasty program's deadline for the driver: at most one reading and one claim wait for it
	if took := time.Since(slowed); took > speed.ScaleClock(driftMinute*3/2+2*driver+driftTolerance) {
		t.Errorf("moved after %v", took)
	}
	if slices.Contains([]int{first, stuck}, second) {
		t.Errorf("moved from GPU %d to %d; %d hangs", first, second, stuck)
	}
	got := runWithin(t, driver+driftTolerance, r.hastyCommand("run", "-q", "--", "sh", "-c", "echo $GPUARD_GPUS"))
	if id := strings.TrimSpace(got.out); got.code != 0 || slices.Contains([]string{fakeUUID(stuck), fakeUUID(second)}, id) {
		t.Errorf("another job: exit %d on %s\n%s", got.code, id, got.err)
	}
	j.checkStartsStay(2, 1)
}

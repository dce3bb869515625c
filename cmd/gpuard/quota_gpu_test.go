package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuard/internal/gate"
	"gpuard/test/fakegpu"
)

// allocateScript takes so many GiB of the first GPU, as a program that knows nothing of shares, and stays so many seconds
// (NVIDIA CUDA Driver API, cuMemAlloc).
const allocateScript = `
import ctypes, sys, time
size, stay = int(float(sys.argv[1]) * 2**30), float(sys.argv[2])
try: cuda = ctypes.CDLL("libcuda.so.1")
except OSError as why: print("skipped:", why); sys.exit()
def must(what, *arguments):
    code = getattr(cuda, what)(*arguments)
    if code: print("refused: %s answers %d" % (what, code), flush=True); sys.exit(3)
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
must("cuInit", 0)
must("cuDeviceGet", ctypes.byref(device), 0)
must("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
must("cuCtxSetCurrent", context)
must("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
print("ready", flush=True)
time.sleep(stay)
print("stayed", flush=True)
`

// frameworkScripts asks each framework for more than its share: what it knows of a limit, and what becomes of 3 GiB.
func frameworkScripts() map[string]string {
	const script = `
import sys, time
try: import %s as m
except ImportError as why: print("skipped:", str(why).splitlines()[0]); sys.exit()
def tried(what):
    try: kept = what(); time.sleep(%d); print("given |", end=" "); return kept
    except Exception as why: print("refused: %%s |" %% type(why).__name__, end=" ")
print("version", m.__version__, "|", end=" ")
%s
print("ended by itself")
`
	const size, stay = "3 << 30", 10 // seconds, in which what measures from outside would end it
	out := map[string]string{}
	for module, question := range map[string]string{
		"jax": `d = m.devices()[0]
if d.platform == "cpu": print("skipped: it sees no GPU"); sys.exit()
print("limit", d.memory_stats().get("bytes_limit"), "|", end=" ")
tried(lambda: m.numpy.zeros((` + size + `,), dtype="uint8").block_until_ready())`,
		"cupy": `print("limit", m.get_default_memory_pool().get_limit(), "|", end=" ")
tried(lambda: m.zeros(` + size + `, dtype="uint8"))`,
		"torch": `if not m.cuda.is_available(): print("skipped: it sees no GPU"); sys.exit()
tried(lambda: m.zeros(` + size + `, dtype=m.uint8, device="cuda"))`,
		"tensorflow": `if not m.config.list_physical_devices("GPU"): print("skipped: it sees no GPU"); sys.exit()
tried(lambda: m.zeros(1 << 20, dtype=m.uint8))
print(m.config.experimental.get_memory_info("GPU:0"), "|", end=" ")`,
	} {
		out[module] = fmt.Sprintf(script, module, stay, question)
	}
	return out
}

// shareTrial is how one job with a share ended.
type shareTrial struct {
	out, said string // the job; gpuard
	state     string // "exit status 0", "signal: terminated"
	spent     time.Duration
}

func runShareTrial(cmd *exec.Cmd) shareTrial {
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	began := time.Now()
	err := cmd.Run()
	if cmd.ProcessState == nil {
		return shareTrial{state: err.Error()}
	}
	return shareTrial{out.String(), said.String(), cmd.ProcessState.String(), time.Since(began).Round(100 * time.Millisecond)}
}

// String is a line of the record, with what gpuard said below it.
func (a shareTrial) String() string {
	text := fmt.Sprintf("%s | %s after %s", strings.Join(strings.Fields(a.out), " "), a.state, a.spent)
	for line := range strings.Lines(a.said) {
		if strings.HasPrefix(line, "gpuard: ") {
			text += "\n    " + strings.TrimSpace(line)
		}
	}
	return text
}

// isBlind: the driver does not say here what each process uses, as in most containers.
func (a shareTrial) isBlind() bool { return strings.Contains(a.said, "cannot measure lease ") }

// shareTrials are what is asked of one machine. python3 and share make a job with a share of 2 GiB.
type shareTrials struct {
	t      *testing.T
	share  func(flags []string, command ...string) *exec.Cmd
	take   func(gib string, seconds int) []string
	record strings.Builder
}

func (r *shareTrials) recordTrial(question string, a shareTrial) {
	fmt.Fprintf(&r.record, "%s: %s\n", question, a)
}

// checkWatchedShare: a job that takes more than its share is ended within 10 s, and no other is.
func (r *shareTrials) checkWatchedShare() {
	r.t.Helper()
	neighbour := make(chan shareTrial)
	go func() { neighbour <- runShareTrial(r.share(nil, r.take("1", 12)...)) }()
	greedy := runShareTrial(r.share(nil, r.take("3", 20)...))
	beside := <-neighbour
	r.recordTrial("watch, 3 GiB of a share of 2 GiB", greedy)
	r.recordTrial("watch, 1 GiB of a share of 2 GiB beside it", beside)
	if beside.state != "exit status 0" {
		r.t.Errorf("the neighbour: %s", beside)
	}
	if !greedy.isBlind() && (greedy.state != "signal: terminated" || !strings.Contains(greedy.said, "Next time ask for --share ")) {
		r.t.Errorf("it was not ended: %s", greedy)
	}
}

// checkMPSShare: the memory is refused, what fits is not, and clients are recognised as such, which takes their time.
func (r *shareTrials) checkMPSShare(seconds int) {
	r.t.Helper()
	mps := []string{"--quota", "mps"}
	greedy, modest := runShareTrial(r.share(mps, r.take("3", seconds)...)), runShareTrial(r.share(append(mps, "--mps-threads", "50"), r.take("1", seconds)...))
	r.recordTrial("mps, 3 GiB of a share of 2 GiB", greedy)
	r.recordTrial("mps, 1 GiB of a share of 2 GiB", modest)
	if !strings.Contains(greedy.said, "(mps)") {
		return // the daemon could not start, and the record says why
	}
	if strings.Contains(greedy.out, "ready") {
		r.t.Errorf("it was given: %s", greedy)
	}
	if modest.state != "exit status 0" || !modest.isBlind() && strings.Contains(modest.said, "does not go through MPS") {
		r.t.Errorf("one within its share: %s", modest)
	}
}

// checkFrameworks: those with a setting keep to it, and their jobs are not ended.
func (r *shareTrials) checkFrameworks() {
	r.t.Helper()
	for _, module := range []string{"torch", "tensorflow", "jax", "cupy"} {
		a := runShareTrial(r.share(nil, "python3", "-c", frameworkScripts()[module]))
		r.recordTrial(module, a)
		tried := !strings.Contains(a.out, "skipped: ") && a.out != ""
		if keeps := module == "jax" || module == "cupy"; tried && keeps && (!strings.Contains(a.out, "refused: ") || a.state != "exit status 0") {
			r.t.Errorf("%s does not keep to its limit: %s", module, a)
		}
	}
}

// TestSharesOnHardware writes into GPUARD_RECORD what shares are worth on this machine, for "make gpu-check".
func TestSharesOnHardware(t *testing.T) {
	gate.Need(t, "gpu", "python3")
	state, private := stateFolder(t), []string(nil)
	if isContained() {
		private = []string{"--private-state"}
	}
	temporary := t.TempDir()
	r := &shareTrials{t: t}
	r.share = func(flags []string, command ...string) *exec.Cmd {
		args := append(append([]string{"run", "--no-wait", "--share", "2G"}, private...), flags...)
		return gpuardCommand(t, state, []string{"TMPDIR=" + temporary, "PATH=" + testPlace.CallerPath()}, append(append(args, "--"), command...)...)
	}
	r.take = func(gib string, seconds int) []string {
		return []string{"python3", "-c", allocateScript, gib, fmt.Sprint(seconds)}
	}
	r.checkWatchedShare()
	r.checkFrameworks()
	r.checkMPSShare(35) // longer than a process may take to become a client
	t.Log("\n" + r.record.String())
	if dir := os.Getenv("GPUARD_RECORD"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, "shares.txt"), []byte(r.record.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// The questions themselves, where there is no GPU: over the fake, and programs that find none.
func TestShareQuestions(t *testing.T) {
	t.Parallel()
	rack := newFakeDriverMachine(t, fakegpu.GeForce(0))
	temporary := t.TempDir()
	r := &shareTrials{t: t}
	r.share = func(flags []string, command ...string) *exec.Cmd {
		cmd := rack.cmd(append(append([]string{"run", "--no-wait", "--share", "2G"}, flags...), append([]string{"--"}, command...)...)...)
		cmd.Env = append(cmd.Env, "TMPDIR="+temporary)
		return cmd
	}
	r.take = func(gib string, seconds int) []string {
		return []string{"fakegpu-job", "--gpu", "0", "--mem", gib + "G", "--seconds", fmt.Sprint(seconds)}
	}
	r.checkWatchedShare()
	r.checkMPSShare(1)
	checkContains(t, r.record.String(), "watch, 3 GiB of a share of 2 GiB: ready | signal: terminated after ", "\n    gpuard: asking fakegpu-job (process ",
		"watch, 1 GiB of a share of 2 GiB beside it: ready | exit status 0 after ", "mps, 3 GiB of a share of 2 GiB:  | exit status 3 after ",
		"mps, 1 GiB of a share of 2 GiB: ready | exit status 0 after ")
	if got := runShareTrial(exec.Command("python3", "-c", allocateScript, "1", "0")); gate.Has(t, "python3") && gate.Has(t, "no nvidia libraries") {
		checkContains(t, got.out, "skipped: libcuda.so.1")
	}
	for module, script := range frameworkScripts() {
		if got := runShareTrial(exec.Command("python3", "-c", strings.Replace(script, "import "+module, "import missing_"+module, 1))); gate.Has(t, "python3") {
			checkContains(t, got.out, "skipped: No module named 'missing_"+module+"'")
		}
	}
}

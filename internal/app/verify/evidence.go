package verify

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/explain"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/proof"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/proc"
)

// frameworkProbe is the third one: the job's own framework, asked in a process of its own.
type frameworkProbe struct {
	// Frameworks, each is asked once.
	asked  []string
	asking bool
	// When the libraries were read.
	last    time.Time
	answers chan []proof.Framework
}

// The libraries of a job are read at most this often and in this many of its processes; a framework has this long to
// answer, because the first import from a cold disk takes long.
const (
	librariesEvery = time.Second
	librariesOf    = 16
	witnessLimit   = time.Minute
)

// findFrameworks finds frameworks in the job's processes, and asks each new one which devices it uses.
func (w *treeWatch) findFrameworks(ctx context.Context) {
	if w.witness.asking || time.Since(w.witness.last) < min(librariesEvery, w.facts.Patience/4) {
		return
	}
	w.witness.last = time.Now()

	for _, pid := range w.oldestMembers() {
		program, err := w.host.Proc.ReadProgram(pid)
		if err != nil {
			continue
		}

		libraries, err := w.host.Proc.Libraries(pid)
		if err != nil {
			continue
		}

		for _, l := range libraries {
			if !slices.Contains(w.facts.Libraries, l) {
				w.facts.Libraries = append(w.facts.Libraries, l)
			}
		}

		found := slices.DeleteFunc(proof.RecognizeFrameworks(program.Name, libraries), func(word string) bool { return slices.Contains(w.witness.asked, word) })
		if len(found) > 0 {
			w.askWitness(ctx, pid, program, found)
			return
		}
	}
}

// oldestMembers are the living processes of the job, the first one first.
func (w *treeWatch) oldestMembers() (pids []int) {
	for pid, m := range w.members {
		if w.host.Proc.IsAlive(pid, m.start) {
			pids = append(pids, pid)
		}
	}
	slices.SortFunc(pids, func(a, b int) int { return cmp.Or(cmp.Compare(w.members[a].start, w.members[b].start), a-b) })
	return pids[:min(len(pids), librariesOf)]
}

// askWitness starts the job's own program again, outside of the job, with the environment and in the folder that the
// process has.
func (w *treeWatch) askWitness(ctx context.Context, pid int, program proc.Program, frameworks []string) {
	w.witness.asked = append(w.witness.asked, frameworks...)
	w.witness.asking, w.witness.answers = true, make(chan []proof.Framework, 1)
	answers := w.witness.answers
	args, ok := proof.QuestionArgs(program.Name, frameworks)
	env, err := w.host.Proc.Environ(pid)
	reason, hides := witnessObstacle(w.host, pid, program), ""
	if err == nil {
		hides = w.hidesAll(env, pid)
	}

	switch {
	case reason != "":
	case !ok:
		reason = "not asked: " + machine.BaseName([]string{program.Name}) + " cannot be asked"
	case err != nil:
		reason = "not asked: " + err.Error()
	}

	if reason != "" {
		answers <- frameworkAnswers(pid, frameworks, nil, reason, hides)
		return
	}

	q := launch.Question{Args: append(program.Args[:1:1], args...), Env: witnessEnv(env)}
	start := w.members[pid].start
	go func() {
		out, err := askProgram(ctx, q, pid, start)
		reason := ""
		if err != nil {
			reason = err.Error()
		}
		answers <- frameworkAnswers(pid, frameworks, out, reason, hides)
	}()
}

// askProgram asks the program of a process that began at start and is our own user's, and no other: root would run a
// user's program if the number was another process's by now.
func askProgram(ctx context.Context, q launch.Question, pid int, start uint64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, witnessLimit)
	defer cancel()
	process, err := q.UseProgramOf(pid, func(procfs string, number int) bool {
		at := proc.New(procfs)
		s, err := at.Stat(number)
		uid, known := at.Owner(number)

		return err == nil && s.Start == start && known && int(uid) == os.Geteuid()
	})

	if err != nil {
		return nil, err
	}

	defer process.Close() //nolint:errcheck // nothing was written

	return launch.AskQuestion(ctx, q)
}

// endWitness ends a witness process that still runs, and waits for its end, so that no process stays behind.
func (w *treeWatch) endWitness(cancel context.CancelFunc) {
	cancel()
	if w.witness.asking {
		<-w.witness.answers
	}
}

// hidesAll are the variables by which a process of the job sees no GPU; "" where it sees one, or that is a guess.
// Something between gpuard and it may have changed them.
func (w *treeWatch) hidesAll(env visible.Env, pid int) string {
	x, _, masks := explain.VisibleTo(w.host, env, pid, w.facts.Machine)
	if len(w.facts.Machine.Devices) == 0 || len(x.Visible) > 0 || slices.ContainsFunc(x.Notes, visible.Note.IsDoubtful) {
		return ""
	}
	return strings.Join(masks, " ")
}

// frameworkAnswers is the witness's output for each framework; reason replaces a missing one.
func frameworkAnswers(pid int, frameworks []string, out []byte, reason, hides string) []proof.Framework {
	all := proof.ReadAnswers(frameworks, out)
	for i := range all {
		all[i].PID, all[i].Hides = pid, hides
		if all[i].GPU == proof.Unknown && reason != "" {
			all[i].Error = reason
		}
	}
	return all
}

// witnessObstacle says why a process's program must not be started by us: it could do in our name what its owner cannot
// do, or it is another program under the same path here.
func witnessObstacle(host *machine.Host, pid int, p proc.Program) string {
	uid, known := host.Proc.Owner(pid)
	switch {
	case !known || int(uid) != os.Geteuid():
		return "not asked: the process belongs to " + host.Proc.DescribeProcess(pid).User
	case p.Elsewhere:
		return "not asked: the process is in a container"
	case len(p.Args) == 0:
		return "not asked: the process hides its arguments"
	}
	return ""
}

// witnessEnv is the environment for the witness: that of the job without the lease, with the frameworks' settings that
// keep them from allocating most of a GPU's memory (JAX's and TensorFlow's guides on GPU memory).
func witnessEnv(env []string) []string {
	own := []string{"XLA_PYTHON_CLIENT_PREALLOCATE=false", "TF_FORCE_GPU_ALLOW_GROWTH=true", "TF_CPP_MIN_LOG_LEVEL=3", "PYTHONDONTWRITEBYTECODE=1"}
	return append(own, slices.DeleteFunc(slices.Clone(env), func(pair string) bool { return strings.HasPrefix(pair, "GPUARD_LEASE=") })...)
}

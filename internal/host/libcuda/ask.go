package libcuda

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
)

// ProbeFlag is the first argument of a process that Ask starts. Such a process must call ServeProbe and end.
const ProbeFlag = "__probe"

const schema = "gpuard.probe/1"

// childMessage is the line that the child prints. It is a line of its own, because the driver or a preloaded library
// may print too.
type childMessage struct {
	Schema string `json:"schema"`
	Answer
	Unavailable *gpu.Unavailable `json:"unavailable"`
}

// ServeProbe is the work of the child: it lists the devices, and writes the answer or the reason why there is none.
func ServeProbe(w io.Writer) error {
	a, err := ListDevices()
	m := childMessage{Schema: schema, Answer: a}
	if err != nil && !errors.As(err, &m.Unavailable) {
		return err
	}

	line, err := json.Marshal(m)
	if err != nil {
		return err
	}

	_, err = fmt.Fprintf(w, "\n%s\n", line)

	return err
}

// AskInChild starts this program again with ProbeFlag and exactly this environment, and waits at most limit for its
// answer. The error is a *gpu.Unavailable, also if the driver hangs or ends the child.
func AskInChild(ctx context.Context, env []string, limit time.Duration) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := startChild(env)
	if err != nil {
		return Answer{}, fmt.Errorf("cannot start the process that asks the CUDA driver: %w", err)
	}

	select {
	case end := <-c.ended:
		return end.parseAnswer()
	case <-ctx.Done():
		// It does not wait for the end: a process that hangs in the kernel driver cannot be killed.
		_ = c.process.Kill()
		if errors.Is(ctx.Err(), context.Canceled) {
			return Answer{}, fmt.Errorf("cannot ask the CUDA driver: %w", context.Canceled)
		}
		return Answer{}, noAnswerError(limit)
	}
}

// askedChild is a process that AskInChild started.
type askedChild struct {
	process *os.Process
	ended   chan childEnd
}

// childEnd is how a child ended and what it wrote.
type childEnd struct {
	out, errors []byte
	state       *os.ProcessState
	err         error
}

// startChild uses os.StartProcess, because exec.Cmd drops all but the last value of a variable that is set twice.
func startChild(env []string) (*askedChild, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}

	defer null.Close()
	out, outChild, err := os.Pipe()
	if err != nil {
		return nil, err
	}

	defer outChild.Close()
	errs, errsChild, err := os.Pipe()
	if err != nil {
		out.Close()
		return nil, err
	}

	defer errsChild.Close()
	process, err := os.StartProcess("/proc/self/exe", []string{"gpuard", ProbeFlag}, &os.ProcAttr{
		Env:   append([]string{}, env...), // nil would mean our own
		Files: []*os.File{null, outChild, errsChild},
	})

	if err != nil {
		out.Close()
		errs.Close()
		return nil, err
	}

	c := &askedChild{process, make(chan childEnd, 1)}
	go c.collectOutput(out, errs)

	return c, nil
}

func (a *askedChild) collectOutput(out, errs *os.File) {
	said := make(chan []byte, 1)
	go func() { said <- readCapped(errs) }()
	e := childEnd{out: readCapped(out)}
	e.errors = <-said
	e.state, e.err = a.process.Wait()
	a.ended <- e
}

// readCapped reads to the end and keeps the first MiB: a child that prints more must not block or fill the memory.
func readCapped(f *os.File) []byte {
	defer f.Close()
	const most = 1 << 20
	kept, _ := io.ReadAll(io.LimitReader(f, most))
	_, _ = io.Copy(io.Discard, f)

	return kept
}

func (c childEnd) parseAnswer() (Answer, error) {
	for line := range bytes.Lines(c.out) {
		var m childMessage
		if json.Unmarshal(line, &m) != nil || m.Schema != schema {
			continue
		}
		if m.Unavailable != nil {
			return m.Answer, m.Unavailable
		}

		return m.Answer, nil
	}

	how := fmt.Sprint(c.state)
	if c.err != nil {
		how = c.err.Error()
	}

	if said := firstErrorLine(c.errors); said != "" {
		how += ", " + said
	}

	return Answer{}, &gpu.Unavailable{
		Cause:  gpu.DriverError,
		Text:   "cannot ask the CUDA driver: the process that asked it ended without an answer: " + how,
		Remedy: findRemedy + "; is anything in LD_PRELOAD?",
	}
}

// firstErrorLine returns the first line of a child's standard error, cut to 200 bytes.
func firstErrorLine(text []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	const most = 200
	return prose.Clean(line[:min(len(line), most)])
}

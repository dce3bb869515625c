package driverchild

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"gpuard/internal/core/gpu"
)

// maxLineSize is the longest answer in bytes.
const maxLineSize = 16 << 20

// childProcess is one child.
type childProcess struct {
	cmd *exec.Cmd

	// Held while a request is written.
	writing sync.Mutex
	in      *json.Encoder

	mu   sync.Mutex
	last int
	// Where each answer is waited for, by the ID of the request.
	waiting map[int]chan childAnswer

	// Closed when the child has ended.
	done chan struct{}
	// Set before: to all requests without an answer.
	end childAnswer
}

// runningProcess returns the child that runs, or starts one.
func (c *Child) runningProcess() (*childProcess, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	switch {
	case c.crash != nil && time.Since(c.crashed) < crashPause:
		return nil, c.crash
	case c.running != nil:
		return c.running, nil
	case c.killed >= maxKilled:
		return nil, noAnswerError(fmt.Sprintf("calls of the driver hold %d killed processes that read the devices", c.killed))
	}

	p, out, err := startProcess(ChildFlag, c.deadline.String(), c.folder)
	if err != nil {
		return nil, &gpu.Unavailable{
			Cause:  gpu.DriverError,
			Text:   fmt.Sprintf("cannot start the process that reads the devices: %v", err),
			Remedy: "see whether this user may have more processes: ulimit -u",
		}
	}

	c.running, c.alive[p] = p, true
	go c.receiveAnswers(p, out)

	return p, nil
}

// startProcess starts this program as a child that the terminal does not end (Ctrl-C is for the command), and that is
// no process of the session, in which what is left of a command is looked for.
func startProcess(args ...string) (*childProcess, io.ReadCloser, error) {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = "gpuard"
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}

	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}

	err = cmd.Start()
	if err != nil {
		return nil, nil, err
	}

	return &childProcess{cmd: cmd, in: json.NewEncoder(in), waiting: map[int]chan childAnswer{}, done: make(chan struct{})}, out, nil
}

// receiveAnswers passes the answers of a child on until it ends, and then waits for its end, which may last: a process
// inside the driver cannot be killed.
func (c *Child) receiveAnswers(p *childProcess, out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(make([]byte, 64<<10), maxLineSize)
	p.end = childAnswer{Unavailable: &gpu.Unavailable{
		Cause:  gpu.DriverError,
		Text:   "cannot read the GPUs: the process that reads them has ended without an answer",
		Remedy: "see what nvidia-smi says, and whether the kernel has killed it: sudo dmesg",
	}}

	for lines.Scan() {
		var a childAnswer
		switch {
		case json.Unmarshal(lines.Bytes(), &a) != nil:
			// Cut off by a crash.
		case a.ID == 0 && a.Unavailable != nil:
			p.end = a
		default:
			p.deliverAnswer(a)
		}
	}

	c.mu.Lock()
	if c.running == p {
		c.running = nil
	}

	if p.end.Unavailable.Cause == gpu.LibraryCrashed {
		c.crash, c.crashed = p.end.Unavailable, time.Now()
	}
	c.mu.Unlock()
	close(p.done)
	_ = p.cmd.Wait()
	c.mu.Lock()
	delete(c.alive, p)
	c.mu.Unlock()
}

// abandonProcess gives up a child that does not answer.
func (c *Child) abandonProcess(p *childProcess) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running != p {
		return
	}

	c.running = nil
	c.killed++
	_ = p.cmd.Process.Kill()
	go func() {
		<-p.done
		c.mu.Lock()
		c.killed--
		c.mu.Unlock()
	}()
}

// sendRequest sends a request, and returns the channel of its answers, of which at most so many are kept.
func (p *childProcess) sendRequest(r childRequest, most int) (id int, answers <-chan childAnswer) {
	c := make(chan childAnswer, most)
	p.mu.Lock()
	p.last++
	r.ID = p.last
	p.waiting[r.ID] = c
	p.mu.Unlock()
	p.writeRequest(r)

	return r.ID, c
}

// writeRequest writes a request. If the child has ended, done says so.
func (p *childProcess) writeRequest(r childRequest) {
	p.writing.Lock()
	defer p.writing.Unlock()
	_ = p.in.Encode(r)
}

func (p *childProcess) forgetRequest(id int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, id)
}

// deliverAnswer gives an answer to the caller that asked.
func (p *childProcess) deliverAnswer(a childAnswer) {
	p.mu.Lock()
	defer p.mu.Unlock()

	select {
	case p.waiting[a.ID] <- a:
		// A nil channel takes nothing.
	default:
	}
}

package observe

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const (
	// Without a reading, a child is replaced.
	lateAfter = 10 * time.Second
	// Times lateAfter, after children that were replaced before their first reading.
	lateMost = 16
	lineMost = 16 << 20 // bytes of a reading
	// Readers that were killed and have not ended: the driver holds them.
	mostStuck = 3
)

// runReader starts a reader and takes its readings until it ends or is given up; it returns how many came, and why it
// is over. Until the first one it is given up after patience.
func (o *Observer) runReader(ctx context.Context, patience time.Duration) (readings int, why string) {
	if !o.reserveReader(ctx) {
		return 0, ctx.Err().Error()
	}

	ctx, end := context.WithCancel(ctx)
	defer end()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", Flag, o.Host.Machine)
	cmd.Args[0] = filepath.Base(os.Args[0])
	cmd.Stderr = os.Stderr
	pipe, err := startWithPipe(cmd)
	if err != nil {
		<-o.readers
		return 0, fmt.Sprintf("cannot start the process that reads the devices: %v", err)
	}

	o.mu.Lock()
	o.seen.Children++
	o.mu.Unlock()
	messages := make(chan childMessage)
	go func() {
		defer close(messages)
		readMessages(ctx, pipe, messages)

		// May last: a process inside the driver cannot be killed.
		_ = cmd.Wait()
		<-o.readers
	}()

	return o.followReader(ctx, messages, patience)
}

// startWithPipe starts a process; the answer is its standard output.
func startWithPipe(cmd *exec.Cmd) (io.ReadCloser, error) {
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}

	return pipe, cmd.Start()
}

// readerPatience is how long a reader may be silent.
func (o *Observer) readerPatience() time.Duration { return cmp.Or(o.Host.Times.Late, lateAfter) }

// reserveReader waits until fewer than mostStuck readers are left; false: ctx ends first.
func (o *Observer) reserveReader(ctx context.Context) bool {
	select {
	case o.readers <- struct{}{}:
		return true
	default:
	}
	o.noteTrouble(fmt.Sprintf("calls of the driver hold %d killed processes that read the devices; the next one starts when one of them ends", mostStuck))

	select {
	case o.readers <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// readMessages sends what the child prints, until it prints no more.
func readMessages(ctx context.Context, pipe io.Reader, messages chan<- childMessage) {
	lines := bufio.NewScanner(pipe)
	lines.Buffer(make([]byte, 64<<10), lineMost)

	for lines.Scan() {
		var m childMessage
		if json.Unmarshal(lines.Bytes(), &m) != nil {
			return
		}

		select {
		case messages <- m:
		case <-ctx.Done():
			return
		}
	}
}

// followReader takes messages in until there are no more, or none comes, or the driver holds the child for long.
// patience is how long the first one may take.
func (o *Observer) followReader(ctx context.Context, messages <-chan childMessage, patience time.Duration) (readings int, why string) {
	usual := o.readerPatience()
	late := time.NewTimer(patience)
	defer late.Stop()
	var stuck time.Time
	for {
		select {
		case m, more := <-messages:
			patience = usual
			late.Reset(patience)
			if !more {
				return readings, "the process that reads the devices has ended; another one is started"
			}

			readings++
			o.acceptReading(ctx, m)

			switch {
			case m.Machine == nil || !m.Machine.Stuck:
				stuck = time.Time{}
			case stuck.IsZero():
				stuck = time.Now()
			case time.Since(stuck) > 6*patience:
				return readings, "a call of the driver hangs; the process that reads the devices is replaced"
			}
		case <-late.C:
			return readings, lateText(patience)
		}
	}
}

package sys

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"time"
)

// lingers is how long the output of a program that has ended is read while a process that it left behind has it open. On a busy
// machine it may also take a while until all of it is read.
const lingers = time.Second

// Output runs a program without a shell, and returns what it printed: at most most bytes of output, and errors without
// blanks at their ends. The error is context.DeadlineExceeded if it did not end within patience. What a process that it leaves behind
// prints later than lingers is left out.
func Output(ctx context.Context, patience time.Duration, most int, env []string, argv ...string) (out []byte, errs string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	printed, said := &Bounded{Most: most}, &Bounded{Most: 64 << 10}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = env, printed, said, lingers
	if err = cmd.Run(); ctx.Err() != nil {
		return nil, "", ctx.Err()
	}
	if errors.Is(err, exec.ErrWaitDelay) { // it has ended with 0
		err = nil
	}
	return printed.Text.Bytes(), strings.TrimSpace(said.Text.String()), err
}

package sys

import (
	"context"
	"os/exec"
	"strings"
	"time"
)

// Output runs a program without a shell, and returns what it printed: at most most bytes of output, and errors without
// blanks at their ends. The error is context.DeadlineExceeded if it did not end within patience.
func Output(ctx context.Context, patience time.Duration, most int, env []string, argv ...string) (out []byte, errs string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	printed, said := &Bounded{Most: most}, &Bounded{Most: 64 << 10}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = env, printed, said, 200*time.Millisecond
	if err = cmd.Run(); ctx.Err() != nil {
		return nil, "", ctx.Err()
	}
	return printed.Text.Bytes(), strings.TrimSpace(said.Text.String()), err
}

package cli

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/observe"
	"gpuard/internal/core/compare"
	"gpuard/internal/core/sim"
	"gpuard/internal/core/trend"
)

func (p *Program) serve() *cobra.Command {
	o := &observe.Serving{}
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Show the machine as a page, metrics for Prometheus",
		Long: `Serves a page with the devices, the last day, who uses what, your queue,
services and findings; /metrics for Prometheus; and the same as JSON below
/api/. It only looks: leases, jobs and the line do not need it. Other users of
this machine can open the page too; it shows them names of jobs and commands,
as gpuard status would, and no arguments or folders.

What is wrong it tells once, here and on your other terminals. Run by root it
also does what /etc/gpuard/config.yaml says under watch: it posts to a webhook,
and warns or ends processes without a lease on GPUs that others have leased.

With --token-file, who has the token may also cancel, release, drain and evict
by the page, as far as your own command line could. The file is made if it is
missing, and only you can read it. Outside this machine that needs --tls-cert.
Ctrl-C ends gpuard serve.`,
		Example: `  gpuard serve                             http://127.0.0.1:8470
  gpuard serve --token-file ~/.gpuard-token
  ssh -L 8470:127.0.0.1:8470 box           then open it on your own machine`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return report(func() error { return p.serveWith(cmd, o) })
		},
	}
	addPageFlags(cmd, o)
	cmd.Flags().StringVar(&o.Jobs, "dcgm-jobs", "", "keep files with the leases of each GPU in `FOLDER`, for dcgm-exporter")
	return cmd
}

func (p *Program) serveWith(cmd *cobra.Command, o *observe.Serving) error {
	if err := bothForTLS(o.Cert, o.Key); err != nil {
		return err
	}
	if p.Views.Serve == nil {
		return p.view()
	}
	if info, err := os.Stat(o.Jobs); o.Jobs != "" && (err != nil || !info.IsDir()) {
		return usagef("cannot write the jobs for dcgm-exporter into %s: make the folder first: mkdir -p %[1]s", o.Jobs)
	}
	token, err := tokenIn(o.TokenFile)
	if err != nil {
		return err
	}
	o.Token = token
	return p.Views.Serve(cmd.Context(), p.watched(), *o)
}

// Views are the commands that gpuard-view has; those that are nil are started there.
type Views struct {
	Serve    func(context.Context, observe.View, observe.Serving) error
	Top      func(context.Context, observe.View) error
	Picture  func(use trend.UseTable, format string) ([]byte, error)       // "svg" or "png"
	Chart    func(results []sim.Result, png bool) ([]byte, error)          // of simulate
	Compared func(quantities []compare.Quantity, png bool) ([]byte, error) // of compare
}

// view becomes gpuard-view, with the same arguments.
func (p *Program) view() error {
	const name = "gpuard-view"
	path, err := beside(name)
	if err != nil {
		return fmt.Errorf("cannot find %s, which has the page, the full screen and pictures: it belongs beside gpuard, and is in the same package; from source: go build -o ~/.local/bin/ ./cmd/gpuard-view", name)
	}
	return fmt.Errorf("cannot start %s: %w", path, unix.Exec(path, append([]string{name}, p.Args...), os.Environ()))
}

// beside is the path of a program beside this one, or else in PATH.
func beside(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), name)); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(name)
}

// watched is what a view may show and do: what this command line can.
func (p *Program) watched() observe.View {
	of := func(host *machine.Host) *Program {
		q, own := *p, *host
		own.Say, own.Loud = func(string) {}, func(string) {} // what they say is for the caller of one command
		q.Host = &own
		return &q
	}
	return observe.View{Host: p.Host, Version: version(),
		Sources: func(host *machine.Host) []observe.Source { return of(host).sources() },
		Actions: func(host *machine.Host) []observe.Action { return of(host).actions() }}
}

// tokenIn reads the token, which only its owner may be able to read; a missing file is made.
func tokenIn(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		secret := make([]byte, 24)
		_, _ = rand.Read(secret)
		token := base64.RawURLEncoding.EncodeToString(secret)
		return token, observe.WriteToken(path, token)
	}
	if err != nil {
		return "", usagef("cannot read the token: %v; name a file of your own", err)
	}
	defer file.Close() //nolint:errcheck // read only
	info, err := file.Stat()
	if err != nil {
		return "", fmt.Errorf("cannot read the token: %w", err)
	}
	owner, _ := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular() || owner == nil || int(owner.Uid) != os.Geteuid():
		return "", usagef("cannot use the token in %s: it is no file of yours; name another one", path)
	case info.Mode().Perm()&0o077 != 0:
		return "", usagef("cannot use the token in %s: others can read it; make a new one: rm %[1]s, or: chmod 600 %[1]s", path)
	}
	text := make([]byte, 1024)
	n, _ := file.Read(text)
	token := strings.TrimSpace(string(text[:n]))
	if len(token) < 16 {
		return "", usagef("cannot use the token in %s: it is shorter than 16 characters; remove the file, and a new one is made", path)
	}
	return token, nil
}

// within bounds what a page asks for.
func within[T any](limit time.Duration, f func(context.Context) (T, error)) func(context.Context) (any, error) {
	return func(ctx context.Context) (any, error) {
		ctx, end := context.WithTimeout(ctx, limit)
		defer end()
		return f(ctx)
	}
}

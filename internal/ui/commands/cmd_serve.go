package commands

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/observe"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/cli/setupcmd"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
)

func serveCommand(p *cli.Program) *cobra.Command {
	o := &observe.ServeOptions{}
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
		Args: flagset.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return startServe(p, cmd, o) },
	}

	setupcmd.AddPageFlags(cmd, o)
	cmd.Flags().StringVar(&o.Jobs, "dcgm-jobs", "", "keep files with the leases of each GPU in `FOLDER`, for dcgm-exporter")

	return cmd
}

func startServe(p *cli.Program, cmd *cobra.Command, o *observe.ServeOptions) error {
	if err := setupcmd.BothForTLS(o.Cert, o.Key); err != nil {
		return err
	}
	if p.Views.Serve == nil {
		return p.BecomeView()
	}
	if info, err := os.Stat(o.Jobs); o.Jobs != "" && (err != nil || !info.IsDir()) {
		return failure.Usagef("cannot write the jobs for dcgm-exporter into %s: make the folder first: mkdir -p %[1]s", o.Jobs)
	}

	token, err := readToken(o.TokenFile)
	if err != nil {
		return err
	}

	o.Token = token

	return p.Views.Serve(cmd.Context(), newView(p), *o)
}

// newView is what a view may show and do: what this command line can.
func newView(p *cli.Program) observe.View {
	of := func(host *machine.Host) *cli.Program {
		q, own := *p, *host

		// What they say is for the caller of one command.
		own.Say, own.Loud = func(string) {}, func(string) {}
		q.Host = &own

		return &q
	}
	return observe.View{Host: p.Host, Version: cli.Version(),
		Sources: func(host *machine.Host) []observe.Source { return pageSources(of(host)) },
		Actions: func(host *machine.Host) []observe.Action { return pageActions(of(host)) },
		Log:     func(host *machine.Host) observe.LogReader { return logReader(of(host)) }}
}

// readToken reads the token, which only its owner may be able to read; a missing file is made.
func readToken(path string) (string, error) {
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
		return "", failure.Usagef("cannot read the token: %v; name a file of your own", err)
	}

	defer file.Close() //nolint:errcheck // read only
	info, err := file.Stat()
	if err != nil {
		return "", fmt.Errorf("cannot read the token: %w", err)
	}

	owner, _ := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular() || owner == nil || int(owner.Uid) != os.Geteuid():
		return "", failure.Usagef("cannot use the token in %s: it is no file of yours; name another one", path)
	case info.Mode().Perm()&0o077 != 0:
		return "", failure.Usagef("cannot use the token in %s: others can read it; make a new one: rm %[1]s, or: chmod 600 %[1]s", path)
	}

	text := make([]byte, 1024)
	n, _ := file.Read(text)
	token := strings.TrimSpace(string(text[:n]))
	if len(token) < 16 {
		return "", failure.Usagef("cannot use the token in %s: it is shorter than 16 characters; remove the file, and a new one is made", path)
	}

	return token, nil
}

// withTimeout bounds what a page asks for.
func withTimeout[T any](limit time.Duration, f func(context.Context) (T, error)) func(context.Context) (any, error) {
	return func(ctx context.Context) (any, error) {
		ctx, end := context.WithTimeout(ctx, limit)
		defer end()
		return f(ctx)
	}
}

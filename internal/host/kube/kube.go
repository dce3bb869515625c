// Package kube asks a Kubernetes cluster through kubectl, as the person who calls it: with the contexts, the
// credentials and the plugins that kubectl knows. It decides nothing.
//
//	c, err := kube.FindKubectl(env, "", "")
//	made, err := c.Create(ctx, manifests)
package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"gpuard/internal/host/program"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Cluster is a way to one cluster. The zero value of Context and Namespace is what kubectl takes by itself.
type Cluster struct {
	Path string // of kubectl
	// The environment of kubectl; its KUBECONFIG is obeyed.
	Env       []string
	Context   string
	Namespace string
	// How long one answer is waited for; 0: 20 s.
	Patience time.Duration
}

// ErrorKind is what became of a call that failed.
type ErrorKind int

// Kinds of failures.
const (
	// The cluster, or kubectl, says no.
	Refused ErrorKind = iota
	// There is no such object.
	NotFound
	// This person may not.
	Forbidden
	// Nothing answers: whether the call had an effect is unknown.
	Silent
)

// Error is a call that failed. Its text is one line, which kubectl has written.
type Error struct {
	Kind ErrorKind
	Text string
}

// Error is what kubectl says.
func (e *Error) Error() string { return e.Text }

// IsKind reports whether err is a failure of that kind.
func IsKind(err error, kind ErrorKind) bool {
	var own *Error
	return errors.As(err, &own) && own.Kind == kind
}

// FindKubectl finds kubectl in the PATH of this process.
func FindKubectl(env []string, context, namespace string) (*Cluster, error) {
	path, err := exec.LookPath("kubectl")
	if err != nil {
		return nil, errors.New("cannot ask Kubernetes: there is no kubectl in PATH; install it (https://kubernetes.io/docs/tasks/tools) and try: kubectl get pods")
	}
	return &Cluster{Path: path, Env: env, Context: context, Namespace: namespace}, nil
}

// maxAnswerSize is the longest answer that is read: a cluster of 5,000 nodes prints about 60 MiB.
const maxAnswerSize = 128 << 20

// commandArgs are the arguments of a call.
func (c *Cluster) commandArgs(args []string) []string {
	var list []string
	if c.Context != "" {
		list = append(list, "--context="+c.Context)
	}
	if c.Namespace != "" {
		list = append(list, "--namespace="+c.Namespace)
	}

	return append(list, args...)
}

func (c *Cluster) answerTimeout() time.Duration {
	if c.Patience > 0 {
		return c.Patience
	}
	return 20 * time.Second
}

// kubectlCommand is kubectl with messages that do not depend on the language.
func (c *Cluster) kubectlCommand(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.Path, c.commandArgs(args)...) //nolint:gosec // the person's own kubectl
	cmd.Env, cmd.WaitDelay = c.kubectlEnv(), time.Second
	return cmd
}

func (c *Cluster) kubectlEnv() []string { return append(append([]string{}, c.Env...), "LC_ALL=C") }

// runKubectl runs kubectl to its end and returns what it printed, also when it failed.
func (c *Cluster) runKubectl(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	patience := c.answerTimeout()
	words := append(c.commandArgs(args), fmt.Sprintf("--request-timeout=%ds", max(1, int(patience.Seconds()))))
	out, said, err := program.Output(ctx, patience, maxAnswerSize, c.kubectlEnv(), stdin, append([]string{c.Path}, words...)...)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return nil, &Error{Silent, fmt.Sprintf("no answer within %s", patience)}
	case err != nil:
		return out, parseFailure(said, err)
	}

	return out, nil
}

// parseFailure reads the last line that kubectl wrote, which is its error; lines before it are warnings and repeated
// tries (k8s.io/kubectl, pkg/cmd/util/helpers.go, checkErr).
func parseFailure(said string, err error) error {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	text := strings.TrimSpace(lines[len(lines)-1])
	for _, line := range lines {
		// A refusal of a manifest goes on over several lines.
		if strings.HasPrefix(line, "Error from server") || strings.HasPrefix(line, "error: ") {
			text = strings.TrimSpace(line)
			break
		}
	}

	if text == "" {
		text = "kubectl: " + err.Error()
	}

	kind := Refused
	switch {
	case strings.HasPrefix(text, "Error from server (NotFound)"):
		kind = NotFound
	case strings.HasPrefix(text, "Error from server (Forbidden)"):
		kind = Forbidden
	case hasAny(text, "Unable to connect to the server", "The connection to the server", "Error from server (Timeout)", "Error from server (ServiceUnavailable)", "Error from server (InternalError)",
		"Error from server (TooManyRequests)", "couldn't get current server API group list", "the server is currently unable", "i/o timeout", "connection refused", "no such host", "TLS handshake timeout", "context deadline exceeded"):
		kind = Silent
	}

	for _, lead := range []string{"Error from server (", "error: "} {
		if rest, ok := strings.CutPrefix(text, lead); ok {
			_, rest, cut := strings.Cut(rest, "): ")
			if lead == "error: " || !cut {
				rest = strings.TrimPrefix(text, lead)
			}
			text = rest
		}
	}

	return &Error{kind, text}
}

func hasAny(text string, signs ...string) bool {
	return slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(text, sign) })
}

// getObject decodes one object that a call prints.
func getObject[T any](ctx context.Context, c *Cluster, args ...string) (v T, err error) {
	out, err := c.runKubectl(ctx, nil, append(args, "--output=json")...)
	if err != nil {
		return v, err
	}
	err = decodeAnswer(out, &v)

	return v, err
}

// listObjects decodes the objects that kubectl get prints.
func listObjects[T any](ctx context.Context, c *Cluster, args ...string) ([]T, error) {
	found, err := getObject[struct{ Items []T }](ctx, c, append([]string{"get"}, args...)...)
	return found.Items, err
}

func decodeAnswer(text []byte, into any) error {
	if err := json.Unmarshal(text, into); err != nil {
		return &Error{Refused, fmt.Sprintf("cannot read what kubectl printed: %v", err)}
	}
	return nil
}

// streamKubectl runs kubectl with its output going to w, for as long as it takes.
func (c *Cluster) streamKubectl(ctx context.Context, w io.Writer, args ...string) error {
	said := &program.Bounded{Most: 64 << 10}
	cmd := c.kubectlCommand(ctx, args)
	cmd.Stdout, cmd.Stderr = w, said
	err := cmd.Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return parseFailure(said.Text.String(), err)
	}

	return nil
}

// Package engine asks container engines through their own commands, and waits for the end of containers. The engine's
// command and not its socket is used: it knows the person's contexts and credentials, podman has no daemon, and both
// print the same JSON.
//
//	e, err := engine.FindEngine(host, call)
//	facts, err := e.Facts(ctx, host)
package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"gpuard/internal/host/program"
	"os"
	"strings"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/container"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/launch"
)

// Engine is the command of an engine with the options that choose which one, such as --context.
type Engine struct {
	Name   string      `json:"name"` // "docker", "podman"
	Prefix []string    `json:"prefix"`
	Env    visible.Env `json:"env"`
}

// FindEngine finds the engine of a call.
func FindEngine(host *machine.Host, c container.Call) (Engine, error) {
	path, err := launch.FindCommand(c.Before[0])
	if err != nil {
		return Engine{}, err
	}

	prefix := append([]string{path}, c.Before[1:]...)
	if n := len(prefix) - 1; c.Verb != "" {
		// The last word of Before.
		prefix = prefix[:n-len(c.Compose)]
	}

	if n := len(prefix) - 1; n > 0 && prefix[n] == "container" {
		prefix = prefix[:n]
	}

	return Engine{c.Engine, prefix, host.UnmaskedEnv()}, nil
}

// ForHolder is the engine for a holder: with those variables alone that say where the engine is. They are passed on a
// command line, which other users can read.
func (e Engine) ForHolder() Engine {
	var env visible.Env
	for _, name := range strings.Fields("PATH HOME USER TMPDIR XDG_RUNTIME_DIR XDG_CONFIG_HOME XDG_DATA_HOME DBUS_SESSION_BUS_ADDRESS DOCKER_HOST DOCKER_CONTEXT DOCKER_CONFIG DOCKER_TLS_VERIFY DOCKER_CERT_PATH " +
		"CONTAINER_HOST CONTAINER_CONNECTION CONTAINERS_CONF CONTAINERS_STORAGE_CONF") {
		if value, set := e.Env.Lookup(name); set {
			env = append(env, name+"="+value)
		}
	}
	e.Env = env

	return e
}

// most is the longest answer of an engine that is read, in bytes; patience how long one may take. An engine that has to
// set up its storage first needs seconds.
const (
	maxAnswerSize = 16 << 20
	answerTimeout = 20 * time.Second
)

// askEngine returns what a command of the engine prints.
func (e Engine) askEngine(ctx context.Context, args ...string) ([]byte, error) {
	out, said, err := program.Output(ctx, answerTimeout, maxAnswerSize, append(append([]string{}, e.Env...), "LC_ALL=C"), nil, append(append([]string{}, e.Prefix...), args...)...)
	if err != nil && said != "" {
		err = errors.New(said[strings.LastIndex(said, "\n")+1:])
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%s did not answer within %v", e.Name, answerTimeout)
	}

	return out, err
}

// Facts asks the engine what it can take. The error is one line with what to type next; then no lease may be taken.
func (e Engine) Facts(ctx context.Context, host *machine.Host) (f container.Facts, err error) {
	f.Engine = e.Name
	specs, _ := Specs(host)
	for _, s := range specs {
		if s.Problem != "" {
			f.Broken = append(f.Broken, s.Path+": "+s.Problem)
		}
		for _, name := range s.Devices {
			f.Names = append(f.Names, s.Kind+"="+name)
		}
	}

	f.Files = append(sharedFiles(host, gpu.NVIDIA), sharedFiles(host, gpu.AMD)...)
	if e.Name == "podman" {
		return f, e.askPodman(ctx, &f)
	}

	return f, e.askDocker(ctx, &f)
}

func (e Engine) askPodman(ctx context.Context, f *container.Facts) error {
	var info struct {
		Host struct {
			Security        struct{ Rootless, SELinuxEnabled bool }
			ServiceIsRemote bool
		}
		Version struct{ Version string }
	}

	text, err := e.askEngine(ctx, "info", "--format", "json")
	if err != nil {
		return fmt.Errorf("cannot ask podman: %w; see: podman info", err)
	}

	err = json.Unmarshal(text, &info)
	switch {
	case err != nil:
		return fmt.Errorf("cannot ask podman: %w; see: podman info", err)
	case info.Version.Version == "":
		return errors.New("cannot ask podman: it does not say its version; see: podman info")
	case info.Host.ServiceIsRemote:
		return exit.Usagef("cannot lease for an engine that may not be of this machine: podman works with a service (--remote, --url or --connection); run gpuard and podman there")
	}

	f.Rootless, f.SELinux = info.Host.Security.Rootless, info.Host.Security.SELinuxEnabled

	// Since 4.1.
	f.CDI = true

	return nil
}

func (e Engine) askDocker(ctx context.Context, f *container.Facts) error {
	if err := e.checkLocal(ctx); err != nil {
		return err
	}

	var info struct {
		ServerVersion   string
		Runtimes        map[string]any
		SecurityOptions []string
		CDISpecDirs     []string
		ServerErrors    []string
	}

	text, err := e.askEngine(ctx, "info", "--format", "{{json .}}")
	bad := json.Unmarshal(text, &info)
	if len(info.ServerErrors) > 0 {
		err = errors.New(info.ServerErrors[0])
	}

	switch {
	case err != nil && strings.Contains(err.Error(), "permission denied"):
		return fmt.Errorf("cannot use %s: you may not open its socket; ask the administrator for the group docker (sudo usermod -aG docker %s, then log in again), or use podman, which needs no group", e.Name, e.userName())
	case err != nil && strings.Contains(err.Error(), "Cannot connect"):
		return fmt.Errorf("cannot use %s: its daemon does not run; start it: sudo systemctl start docker", e.Name)
	case err != nil:
		return fmt.Errorf("cannot use %s: %w; see: docker info", e.Name, err)
	case info.ServerVersion == "" && e.askPodman(ctx, f) == nil:
		// The package podman-docker.
		f.Engine = "podman"
		return nil
	case bad != nil || info.ServerVersion == "":
		return fmt.Errorf("cannot use %s: docker info says nothing that gpuard understands; see: docker info", e.Name)
	}

	_, f.Toolkit = info.Runtimes["nvidia"]
	f.CDI = len(info.CDISpecDirs) > 0
	if !f.Toolkit {
		// The daemon looks for the hook on its PATH.
		_, err := launch.FindCommand("nvidia-container-runtime-hook")
		f.Toolkit = err == nil
	}

	for _, option := range info.SecurityOptions {
		f.Rootless = f.Rootless || option == "name=rootless"
	}

	return nil
}

// checkLocal refuses an engine of another machine: the GPUs of that one are not leased here. Of docker's --host,
// --context, DOCKER_HOST, DOCKER_CONTEXT and configuration the first one counts (docker/cli: cli/command/cli.go,
// resolveContextName).
func (e Engine) checkLocal(ctx context.Context) error {
	endpoint, named := container.Endpoint(e.Prefix)
	if endpoint == "" && !named {
		endpoint, _ = e.Env.Lookup("DOCKER_HOST")
	}

	if endpoint == "" && e.Name == "docker" {
		text, err := e.askEngine(ctx, "context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
		if err != nil {
			return nil //nolint:nilerr // an old client has no contexts
		}
		endpoint = strings.TrimSpace(string(text))
	}

	if endpoint == "" || strings.HasPrefix(endpoint, "unix://") {
		return nil
	}

	return exit.Usagef("cannot lease for an engine that is not of this machine: docker works with %s; run gpuard there, or choose the local one: docker context use default", endpoint)
}

func (e Engine) userName() string {
	if name, _ := e.Env.Lookup("USER"); name != "" {
		return name
	}
	return fmt.Sprint(os.Getuid())
}

// Container is one container as its engine describes it.
type Container struct {
	ID     string
	State  State
	Config struct {
		Labels map[string]string
	}
	Mounts mounts
}

// State is whether a container runs.
type State struct {
	// "running", "paused", "restarting", "created", "exited", "stopping", ….
	Status string
	// 0 while no process runs.
	PID int `json:"Pid"`
}

// IsAlive reports whether processes of the container exist, or the engine is about to start them again.
func (c Container) IsAlive() bool {
	return c.State.PID > 0 || c.State.Status == "restarting"
}

// Inspect describes containers by name or id. One that does not exist is left out.
func (e Engine) Inspect(ctx context.Context, names ...string) ([]Container, error) {
	if len(names) == 0 {
		return nil, nil
	}

	text, err := e.askEngine(ctx, append([]string{"inspect", "--type", "container"}, names...)...)
	var all []Container
	if bad := json.Unmarshal(text, &all); bad != nil {
		if err != nil {
			return nil, err
		}
		err = bad

		return nil, err
	}

	if err != nil && !isMissing(err) {
		return nil, err
	}

	return all, nil
}

// Labels are those of containers that gpuard started.
const (
	LeaseLabel = "gpuard.lease"
	// Of a container without a lease.
	JobLabel     = "gpuard.job"
	DevicesLabel = "gpuard.devices" // UUIDs, with commas
)

// WithLabel describes the containers that have a label of this value.
func (e Engine) WithLabel(ctx context.Context, label, value string) ([]Container, error) {
	text, err := e.askEngine(ctx, "ps", "--all", "--quiet", "--no-trunc", "--filter", "label="+label+"="+value)
	if err != nil {
		return nil, err
	}
	return e.Inspect(ctx, strings.Fields(string(text))...)
}

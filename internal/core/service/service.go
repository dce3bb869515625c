// Package service decides about the long-running programs of a project: what gpuard.yaml asks for, its instances on a
// machine, and what to start or end next:
//
//	wanted, placement, err := service.Expand(project, ground)
//	for _, a := range service.NextActions(wanted, seen) {
//		// start or end a.Instance
//	}
//
// It must not start processes, read files or use a clock.
package service

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/policy"
)

// Project is a gpuard.yaml.
type Project struct {
	// The key name of the file; without it the name of the folder.
	Name     string
	File     string // absolute path
	Services []Service
	// Rules and defaults of the file; nil for none.
	Policy *policy.File
}

// NeedsNoGPU reports whether all services run on a machine that has no GPU: each has cpu, or falls back to it.
func (p *Project) NeedsNoGPU() bool {
	return !slices.ContainsFunc(p.Services, func(s Service) bool {
		return s.Each || !slices.ContainsFunc(s.Flags, func(f Flag) bool {
			return f.Name == "cpu" || f.Name == "fallback" && slices.Contains(strings.Split(f.Value, ","), "cpu")
		})
	})
}

// LocalPart is the project without the services that another engine gets.
func (p *Project) LocalPart() *Project {
	own := *p
	own.Services = slices.DeleteFunc(slices.Clone(p.Services), func(s Service) bool { return s.HasOtherEngine() })
	return &own
}

// hereEngine is the name for this machine in place of another engine.
const hereEngine = "here"

// HasOtherEngine reports whether another engine gets the service.
func (s *Service) HasOtherEngine() bool { return s.Engine != "" && s.Engine != hereEngine }

// Service is one entry of a project: a program with its instances.
type Service struct {
	Name string
	// Line and Column are where its name stands in the file.
	Line   int
	Column int
	// Templates, see Expand.
	Command []string
	// Command is one text, which is split into words after it is filled in.
	Split bool
	// The flags of gpuard run, in the order of the file; values are templates.
	Flags []Flag
	// The key each: gpu is set: an instance for every GPU that Flags allow.
	Each bool
	// 1 or more; 1 with Each.
	Replicas int
	// Values are templates.
	Env      []Pair
	EnvFiles []string // absolute paths
	// Absolute path; a template.
	WorkDir string
	// The image of its container in another engine; a template. Nothing here uses it.
	Image string
	// What gpuard submit hands it to, such as "slurm"; "" and "here": this machine.
	Engine  string
	Restart Restart
	// Restarts in a row before it counts as failed; 0: no limit.
	Limit int
	After []Dependency // depends_on
	// When it is ready; nil: when Healthy says so, or without that as soon as it runs.
	Ready *Ready
	// nil: it is not checked.
	Healthy *Healthy
}

// Flag is a flag of gpuard run that is set by a key of the file.
type Flag struct {
	// The name without leading dashes: "min-compute".
	Name string
	// "" for a flag without a value.
	Value        string
	Line, Column int // of the value
}

// Pair is a variable.
type Pair struct{ Name, Value string }

// Restart says after which ends an instance is restarted, like job.Restart.
type Restart string

// Values of Restart; the pause before a restart grows.
const (
	Never     Restart = "no"
	OnFailure Restart = Restart(job.OnFailure)
	Always    Restart = Restart(job.Always)
)

// Dependency is a service that must be started first.
type Dependency struct {
	Service string    `json:"service"`
	Until   Condition `json:"until"`
}

// Condition is what must be true of every instance of a service before its dependents are started.
type Condition string

// Conditions of a dependency.
const (
	// It is ready; without a readiness check: it runs.
	UntilReady Condition = "ready"
	UntilDone  Condition = "done" // it ended with 0
)

// Probe is one way to check an instance. One of Command, TCP and HTTP is set; each is a template.
type Probe struct {
	Command []string `json:"command,omitempty"` // ends with 0
	Split   bool     `json:"-"`                 // as in Service
	// "8001" or "host:8001" accepts a connection.
	TCP string `json:"tcp,omitempty"`
	// "http://127.0.0.1:8000/health" answers with a status of 200 to 399.
	HTTP string `json:"http,omitempty"`
}

// Ready is the readiness check of an instance: a Probe or Log.
type Ready struct {
	Probe
	// Regular expression (RE2) for a line that it writes.
	Log string `json:"log,omitempty"`
	// The time between two checks; 0 means 1 s, and shorter at the beginning.
	Interval time.Duration `json:"interval,omitempty"`
	// The time after which it counts as failed; 0 means never.
	Timeout time.Duration `json:"timeout,omitempty"`
}

// Port is the port of this machine that the check of an instance asks; 0 none.
func (i *Instance) Port() int {
	if i.Ready == nil {
		return 0
	}

	at := i.Ready.TCP
	if address, found := strings.CutPrefix(i.Ready.HTTP, "http://"); found {
		at, _, _ = strings.Cut(address, "/")
	}

	if host, port, found := strings.Cut(at, ":"); found {
		if host != "127.0.0.1" && host != "localhost" && host != "0.0.0.0" {
			return 0
		}
		at = port
	}

	port, err := strconv.Atoi(at)
	if err != nil {
		return 0
	}

	return port
}

// Instance is one wanted process tree.
type Instance struct {
	// "node-0", or the service's name where the service has a single instance.
	Name    string   `json:"name"`
	Service string   `json:"service"`
	Ordinal int      `json:"ordinal"`
	Command []string `json:"command"`
	// The flags of gpuard run, one for each of Service.Flags: "--mem=40GiB"; with each: gpu, --device is the last.
	Flags []string `json:"flags"`
	// "NAME=value", from env_file and env.
	Env     []string     `json:"env"`
	WorkDir string       `json:"workdir"`
	Image   string       `json:"-"` // as in Service
	Restart Restart      `json:"restart"`
	Limit   int          `json:"limit,omitempty"` // as in Service
	Ready   *Ready       `json:"ready,omitempty"`
	Healthy *Healthy     `json:"healthy,omitempty"`
	After   []Dependency `json:"after"`
	// The device of an instance with each: gpu; "" chosen at the start.
	Device gpu.UUID `json:"device,omitempty"`
	// The rules of the project: changed rules count from the next start, changed defaults cause a restart.
	Policy *policy.File `json:"policy,omitempty"`
	Round  int          `json:"round"` // raised by restart
	// The hash of what needs a restart when it changes: all fields but Policy, of which the defaults count, Image and
	// Refused.
	Hash string `json:"hash"`
	// Why it cannot be started, such as a GPU that is gone.
	Refused string `json:"refused,omitempty"`
}

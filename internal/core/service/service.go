// Package service is the long-running programs of a project: what gpuard.yaml asks for, the instances that come of it on a
// machine, what is known of each, and what has to be started or ended next. Plain values and decisions only: it starts
// nothing, reads no file and knows no clock.
package service

import (
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/policy"
)

// Project is a gpuard.yaml.
type Project struct {
	Name     string // name, else that of the file's folder
	File     string // absolute path
	Services []Service
	Policy   *policy.File // rules and defaults of the file; nil for none
}

// Service is one entry of a project: a program, as often as it says.
type Service struct {
	Name     string
	Line     int // of its name in the file, as is Column
	Column   int
	Command  []string // templates still, see Expand
	Split    bool     // Command is one text, which becomes words when it is filled in
	Flags    []Flag   // of gpuard run, in the order of the file; values are templates still
	Each     bool     // each: gpu, an instance for every GPU that Flags allow
	Replicas int      // 1 or more; 1 with Each
	Env      []Pair   // values are templates still
	EnvFiles []string // absolute paths
	WorkDir  string   // absolute path; a template still
	Restart  Restart
	After    []Dependency // depends_on
	Ready    *Ready       // nil: it is ready when it runs
}

// Flag is a flag of gpuard run that a key of the file stands for.
type Flag struct {
	Name         string // without dashes in front: "min-compute"
	Value        string // "" for one that stands alone
	Line, Column int    // of the value
}

// Pair is a variable.
type Pair struct{ Name, Value string }

// Restart says after which ends an instance is started again, as job.Restart does.
type Restart string

// When an instance is started again; the pause before it grows.
const (
	Never     Restart = "no"
	OnFailure Restart = Restart(job.OnFailure)
	Always    Restart = Restart(job.Always)
)

// Dependency is a service that has to come first.
type Dependency struct {
	Service string    `json:"service"`
	Until   Condition `json:"until"`
}

// Condition is what has to be true of every instance of a service before those that depend on it are started.
type Condition string

// Conditions of a dependency.
const (
	UntilReady Condition = "ready" // also one without ready: it runs
	UntilDone  Condition = "done"  // it ended with 0
)

// Ready is how an instance shows that it can be used. One of Command, TCP, HTTP and Log is set; all are templates still.
type Ready struct {
	Command  []string      `json:"command,omitempty"`  // ends with 0
	Split    bool          `json:"-"`                  // as in Service
	TCP      string        `json:"tcp,omitempty"`      // "8001" or "host:8001" accepts a connection
	HTTP     string        `json:"http,omitempty"`     // "http://127.0.0.1:8000/health" answers with a status of 200 to 399
	Log      string        `json:"log,omitempty"`      // regular expression (RE2) for a line that it writes
	Interval time.Duration `json:"interval,omitempty"` // between two looks; 0 means 1 s, and shorter at the beginning
	Timeout  time.Duration `json:"timeout,omitempty"`  // after which it counts as failed; 0 means never
}

// Instance is one process tree that shall run.
type Instance struct {
	Name    string       `json:"name"` // "node-0", or the service's name where there is one
	Service string       `json:"service"`
	Ordinal int          `json:"ordinal"`
	Command []string     `json:"command"`
	Flags   []string     `json:"flags"` // of gpuard run, one for each of Service.Flags: "--mem=40GiB"; with each: gpu, --device stands at the end
	Env     []string     `json:"env"`   // "NAME=value", from env_file and env
	WorkDir string       `json:"workdir"`
	Restart Restart      `json:"restart"`
	Ready   *Ready       `json:"ready,omitempty"`
	After   []Dependency `json:"after"`
	Device  gpu.UUID     `json:"device,omitempty"`  // of each: gpu; "" chosen at the start
	Policy  *policy.File `json:"policy,omitempty"`  // of the project: its rules count from the next start, other defaults begin anew
	Round   int          `json:"round"`             // raised by restart
	Hash    string       `json:"hash"`              // of all that; another one means that it has to be started anew
	Refused string       `json:"refused,omitempty"` // why it cannot be started at all, such as a GPU that is gone
}

// Package hostinfo describes what lies around the devices of a machine: driver, libraries, Python environments, containers,
// variables, state. It is plain values: readings that may be absent, each with the reason why it could not be made.
package hostinfo

import (
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/leftover"
	"gpuard/internal/core/visible"
)

// Site is everything that doctor looks at, read at one moment.
type Site struct {
	Now        time.Time
	Env        visible.Env            // of the caller
	Machine    Answer[gpu.Machine]    // everything of it, processes and health too; Problem where no reader answered
	Driver     Answer[Driver]         // the kernel's side of the driver, and the library beside it
	Cards      Answer[[]Card]         // display and 3D controllers of the PCI bus, as sysfs shows them
	Nodes      Answer[[]Node]         // device files of GPU drivers
	Libraries  Answer[[]Library]      // CUDA libraries where the loader would look, in its order
	Toolkits   Answer[[]Toolkit]      // nvcc on PATH and in /usr/local
	Pythons    Answer[[]Python]       // Python environments, the one that runs now first
	Containers Answer[Containers]     // container toolkit, CDI, Docker
	Limits     Answer[Limits]         // /dev/shm, locked memory, processor count
	NCCL       Answer[[]NCCLFile]     // files that NCCL reads settings from
	Policy     Answer[Policy]         // configuration files: who may use what
	State      Answer[State]          // gpuard's own folder and what it can promise here
	Log        Answer[[]Error]        // errors of NVIDIA's driver in the kernel's log; Problem where this user may not read it
	Leftovers  Answer[[]leftover.Row] // GPU memory without a living lease
	Container  string                 // the kind of container this runs in ("docker", "podman", "kubernetes", "lxc"); "" outside
}

// Answer is a reading that may have failed. Found counts only when Problem is empty.
type Answer[T any] struct {
	Found   T
	Problem string // why it could not be read, in words; "not looked" when nobody asked
	Do      string // what helps against the problem, where whoever read it knows that
}

// Read is an answer that was found.
func Read[T any](v T) Answer[T] { return Answer[T]{Found: v} }

// Failed is a reading that could not be made.
func Failed[T any](problem string) Answer[T] { return Answer[T]{Problem: problem} }

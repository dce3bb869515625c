// Package hostinfo has the types for the surroundings of the devices: driver, libraries, Python environments,
// containers, variables, state. They are plain values: each reading may be absent, with the reason. It must not read
// anything itself:
//
//	site.Driver = hostinfo.AnswerOf(driver)
//	site.Cards = hostinfo.NoAnswer[[]hostinfo.Card]("cannot read sysfs")
package hostinfo

import (
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/leftover"
	"gpuard/internal/core/visible"
)

// Site is the input of doctor, read at one moment.
type Site struct {
	Now        time.Time
	Env        visible.Env            // of the caller
	Machine    Answer[gpu.Machine]    // complete, with processes and health; Problem where no reader answered
	CUDA       Answer[CUDA]           // what cuInit answers to a process without a mask; Problem where it was not asked
	Driver     Answer[Driver]         // the kernel's part of the driver, and its library
	Cards      Answer[[]Card]         // display and 3D controllers of the PCI bus, as sysfs shows them
	Nodes      Answer[[]Node]         // device files of GPU drivers
	Libraries  Answer[[]Library]      // CUDA libraries in the folders of the loader, in its order
	Toolkits   Answer[[]Toolkit]      // nvcc on PATH and in /usr/local
	Pythons    Answer[[]Python]       // Python environments, the active one first
	Containers Answer[Containers]     // container toolkit, CDI, Docker
	Limits     Answer[Limits]         // /dev/shm, locked memory, processor count
	NCCL       Answer[[]NCCLFile]     // files that NCCL reads settings from
	Accelerate Answer[Accelerate]     // the user's settings of accelerate launch
	Policy     Answer[Policy]         // configuration files: which users may use which devices
	State      Answer[State]          // gpuard's own folder, and what it can enforce here
	Log        Answer[[]Error]        // errors of NVIDIA's driver in the kernel log; Problem where this user may not read it
	Leftovers  Answer[[]leftover.Row] // GPU memory without a living lease
	Container  string                 // the kind of container this runs in ("docker", "podman", "kubernetes", "lxc"); "" outside
}

// Answer is a reading that may have failed. Found is valid only when Problem is empty.
type Answer[T any] struct {
	Found   T
	Problem string // why it could not be read, in words; "not looked" when it was not requested
	Do      string // remedy for the problem, where known
}

// CUDA is how the CUDA driver starts in a process.
type CUDA struct {
	Code   int    // that cuInit returned; 0 success
	Word   string // the driver's name for it
	Remedy string // what to do about it; "" for 0
}

// AnswerOf is a successful reading.
func AnswerOf[T any](v T) Answer[T] { return Answer[T]{Found: v} }

// NoAnswer is a reading that could not be made.
func NoAnswer[T any](problem string) Answer[T] { return Answer[T]{Problem: problem} }

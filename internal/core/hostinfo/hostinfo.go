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
	Now time.Time
	Env visible.Env // of the caller
	// Complete, with processes and health; Problem where no reader answered.
	Machine Answer[gpu.Machine]
	// What cuInit answers to a process without a mask; Problem where it was not asked.
	CUDA Answer[CUDA]
	// The kernel's part of the driver, and its library.
	Driver Answer[Driver]
	// Display and 3D controllers of the PCI bus, as sysfs shows them.
	Cards Answer[[]Card]
	// Device files of GPU drivers.
	Nodes Answer[[]Node]
	// CUDA libraries in the folders of the loader, in its order.
	Libraries Answer[[]Library]
	// Nvcc on PATH and in /usr/local.
	Toolkits Answer[[]Toolkit]
	// Python environments, the active one first.
	Pythons Answer[[]Python]
	// Container toolkit, CDI, Docker.
	Containers Answer[Containers]
	// /dev/shm, locked memory, processor count.
	Limits Answer[Limits]
	// Files that NCCL reads settings from.
	NCCL Answer[[]NCCLFile]
	// The user's settings of accelerate launch.
	Accelerate Answer[Accelerate]
	// Configuration files: which users may use which devices.
	Policy Answer[Policy]
	// Gpuard's own folder, and what it can enforce here.
	State Answer[State]
	// Errors of NVIDIA's driver in the kernel log; Problem where this user may not read it.
	Log Answer[[]Error]
	// GPU memory without a living lease.
	Leftovers Answer[[]leftover.Row]
	// The kind of container this runs in ("docker", "podman", "kubernetes", "lxc"); "" outside.
	Container string
}

// Answer is a reading that may have failed. Found is valid only when Problem is empty.
type Answer[T any] struct {
	Found T
	// Why it could not be read, in words; "not looked" when it was not requested.
	Problem string
	// Remedy for the problem, where known.
	Do string
}

// CUDA is how the CUDA driver starts in a process.
type CUDA struct {
	// That cuInit returned; 0 success.
	Code int
	// The driver's name for it.
	Word string
	// What to do about it; "" for 0.
	Remedy string
}

// AnswerOf is a successful reading.
func AnswerOf[T any](v T) Answer[T] { return Answer[T]{Found: v} }

// NoAnswer is a reading that could not be made.
func NoAnswer[T any](problem string) Answer[T] { return Answer[T]{Problem: problem} }

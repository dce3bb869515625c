package service

import (
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/pick"
)

// Placement remembers the GPUs of services with each: gpu, by service and ordinal, so that a node keeps its GPU when all is
// started anew, and when another GPU fails or is added.
type Placement map[string][]gpu.UUID

// Ground is what a project becomes instances on.
type Ground struct {
	Machine   gpu.Machine
	In        pick.Context      // what this caller may not see: Hidden, Parent
	Placement Placement         // of the last time
	Files     map[string][]Pair // content of each of EnvFiles
}

// Expand makes the instances of a project, in the order in which they may be started (dependencies first, else that of the
// file), and what to remember of their placement. Each has its Hash. An error is a template that cannot be filled in.
func Expand(p *Project, on Ground) ([]Instance, Placement, error) {
	return []Instance{}, Placement{}, nil
}

// InRound is the instance in another round: another Hash, so that it is started anew though nothing else changed.
func (i Instance) InRound(n int) Instance { i.Round = n; return i }

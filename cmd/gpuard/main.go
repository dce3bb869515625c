// The number of CPUs that a cgroup allows means nothing to a program that lives for milliseconds: the runtime need not
// keep the files that say it open, nor read them again.
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command gpuard chooses, leases and proves GPUs on a shared machine.
package main

import (
	"os"
	"runtime"

	"gpuard/internal/app/machine"
	"gpuard/internal/entry"
	"gpuard/internal/host/launch"
	"gpuard/internal/ui/cli"
)

// A command is executed from the first thread. What the kernel keeps per thread (the signal at the parent's death) came
// to that one, and an exec from another would lose it. Go lets main move to another thread before its first statement,
// unless it was locked while variables are set (runtime.LockOSThread).
var _ = lockMainThread()

func lockMainThread() bool {
	runtime.LockOSThread()
	return true
}

func main() {
	launch.DefaultSignals()
	os.Exit(start("/", machine.Times{}))
}

func start(root string, times machine.Times) int { return entry.Start(root, times, cli.Views{}) }

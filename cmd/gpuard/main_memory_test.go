package main

import (
	"strings"
	"testing"

	"gpuard/internal/core/status"
	"gpuard/internal/host/proc"
	"gpuard/test/fakegpu"
)

// TestMainMemory: a GPU without memory of its own works in that of the machine, whether its driver says nothing about it or the
// size of all: it is free, takes jobs and shares by what is available, and the plan says so.
func TestMainMemory(t *testing.T) {
	t.Parallel()
	chip := fakegpu.A100(0).With("name", "NVIDIA GB10").With("compute", "12.1").With("memory_reserved", "").With("mig_mode", "")
	for name, g := range map[string]fakegpu.GPU{
		"silent":       chip.With("memory_total", "").With("memory_used", ""),
		"of all of it": chip.With("memory_total", "122570M").With("memory_used", "60000M"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newFakeDriverMachine(t, g)
			total, _, err := proc.New("/proc").MainMemory()
			if err != nil {
				t.Fatal(err)
			}
			s, _ := r.readStatus()
			d := s.Devices[0]
			if d.Use != status.Free || d.MemoryTotal != nil || d.MemoryUsed != nil || d.MainMemory == nil || *d.MainMemory != total || *d.MainAvailable > total || *d.MainAvailable <= 0 {
				t.Errorf("%+v", d)
			}
			got := r.run("run", "--dry-run", "--mem", "100M", "--", "true")
			checkEqual(t, "exit: "+got.err, got.code, 0)
			checkContains(t, strings.Join(strings.Fields(got.err+got.out), " "), "its memory is the main memory, in which everything on this machine works", " are available")
			mustRefuse(t, r.cmd("run", "--json", "--mem", "60T", "--", "true"), 122)

			_, heard, over := r.startJobWithShare("100M", "50M")
			greedy, said, ended := r.startJobWithShare("100M", "300M")
			waitUntil(t, "the greedy one is ended", func() bool { return isClosed(ended) })
			checkEqual(t, "how: "+said.String(), greedy.ProcessState.String(), "signal: terminated")
			checkContains(t, said.String(), "and the share of lease ")
			if isClosed(over) || strings.Contains(heard.String(), "Next time") {
				t.Errorf("the modest one: %s", heard)
			}
		})
	}
}

package doctor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/registry"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/leftover"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/kmod"
	"gpuard/internal/host/kmsg"
	"gpuard/internal/host/libcuda"
	"gpuard/internal/host/loader"
	"gpuard/internal/host/proc"
)

// siteDriver reads the kernel's side of the driver, and finds the libraries beside it.
func siteDriver(_ context.Context, host *machine.Host) hostinfo.Answer[hostinfo.Driver] {
	d, err := kmod.ReadDriver(host.Root)
	if err != nil {
		return hostinfo.NoAnswer[hostinfo.Driver](err.Error())
	}

	if len(d.Switches) > 0 {
		if runs, sees := host.Proc.IsProgramRunning("nv-fabricmanager"); sees {
			d.FabricManager = &runs
		}
	}

	// That the cache cannot be read is told with the libraries.
	found, _ := librarySearch(host).Libraries()
	if l, ok := loader.FirstNamed(found, "libnvidia-ml.so.1"); ok {
		d.Library, d.LibraryPath = l.Version, l.Path
	}

	if l, ok := loader.FirstNamed(found, "libcuda.so.1"); ok {
		d.CUDALibrary, d.CUDAPath = l.Version, l.Path
	} else {
		d.Elsewhere = librarySearch(host).FindOutside("libcuda.so.1")
	}

	return hostinfo.AnswerOf(d)
}

// siteCUDA starts the CUDA driver in a process of its own, with the caller's environment without masks: what those hide
// is another question. It comes after the readings of device files, which cuInit may make.
func siteCUDA(ctx context.Context, host *machine.Host, m hostinfo.Answer[gpu.Machine], limit time.Duration) hostinfo.Answer[hostinfo.CUDA] {
	if m.Problem != "" || !slices.ContainsFunc(m.Found.Devices, func(d gpu.Device) bool { return d.Vendor == gpu.NVIDIA && d.Problem == "" }) {
		return hostinfo.NoAnswer[hostinfo.CUDA]("not looked: no NVIDIA GPU answers")
	}

	env := slices.DeleteFunc(slices.Clone(host.Env), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.Contains(visible.Variables(), name)
	})

	a, err := libcuda.AskInChild(ctx, env, limit)
	var none *gpu.Unavailable
	switch {
	case errors.As(err, &none) && a.Code != 0:
		return hostinfo.AnswerOf(hostinfo.CUDA{Code: a.Code, Word: a.Word, Remedy: none.Remedy})
	case errors.As(err, &none):
		return hostinfo.Answer[hostinfo.CUDA]{Problem: none.Text, Do: none.Remedy}
	case err != nil:
		return hostinfo.NoAnswer[hostinfo.CUDA](err.Error())
	}

	return hostinfo.AnswerOf(hostinfo.CUDA{Code: a.Code, Word: a.Word})
}

// siteCards lists the display controllers and accelerators of the PCI bus, with what NVIDIA's module calls them.
func siteCards(_ context.Context, host *machine.Host) hostinfo.Answer[[]hostinfo.Card] {
	if host.Cards == nil {
		return hostinfo.NoAnswer[[]hostinfo.Card]("not looked")
	}

	cards, err := host.Cards()
	if err != nil {
		return hostinfo.NoAnswer[[]hostinfo.Card](err.Error())
	}

	minors := kmod.DeviceMinors(host.Root)
	for i := range cards {
		if n, ok := minors[cards[i].PCI]; ok {
			cards[i].Minor = &n
		}
	}

	return hostinfo.AnswerOf(cards)
}

// siteNodes lists the device files of GPU drivers.
func siteNodes(_ context.Context, host *machine.Host) hostinfo.Answer[[]hostinfo.Node] {
	nodes, err := kmod.DeviceNodes(host.Root)
	if err != nil {
		return hostinfo.NoAnswer[[]hostinfo.Node](err.Error())
	}
	return hostinfo.AnswerOf(nodes)
}

// siteLibraries lists the CUDA libraries in the folders of the dynamic loader.
func siteLibraries(_ context.Context, host *machine.Host) hostinfo.Answer[[]hostinfo.Library] {
	found, err := librarySearch(host).Libraries()
	if err != nil {
		return hostinfo.Answer[[]hostinfo.Library]{Found: found, Problem: err.Error()}
	}
	return hostinfo.AnswerOf(found)
}

func librarySearch(host *machine.Host) loader.Search {
	path, _ := host.Env.Lookup("LD_LIBRARY_PATH")
	return loader.Search{Root: host.Root, Path: path}
}

// siteLog reads the errors of NVIDIA's driver that the kernel's log still has.
func siteLog(_ context.Context, host *machine.Host) hostinfo.Answer[[]hostinfo.Error] {
	if host.KernelLog == "" {
		return hostinfo.NoAnswer[[]hostinfo.Error]("not looked")
	}

	found, err := kmsg.ReadErrors(host.KernelLog)
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return hostinfo.NoAnswer[[]hostinfo.Error]("this user may not read the kernel's log")
	case err != nil:
		return hostinfo.NoAnswer[[]hostinfo.Error]("the kernel's log cannot be read: " + err.Error())
	}

	var all []hostinfo.Error
	for _, e := range found {
		if !e.After {
			all = append(all, hostinfo.Error{PCI: e.PCI, XID: e.XID})
		}
	}

	return hostinfo.AnswerOf(all)
}

// memoryUse is the use of GPU memory: the processes, and those without a lease.
type memoryUse struct {
	processes []gpu.Process
	rows      []leftover.Row
}

// Memory of a process that has just ended is no leftover, so a suspected one is checked again.
const (
	maxLeftoverLooks  = 4
	leftoverLookPause = 400 * time.Millisecond
)

// siteLeftovers finds GPU memory without a live lease. It keeps no history, so it cannot tell which processes are idle.
func siteLeftovers(ctx context.Context, host *machine.Host, m hostinfo.Answer[gpu.Machine]) hostinfo.Answer[memoryUse] {
	if m.Problem != "" {
		return hostinfo.NoAnswer[memoryUse](m.Problem)
	}
	now := m.Found
	for look := 1; ; look++ {
		held, _, err := registry.LiveLeases(host, now)
		if err != nil {
			return hostinfo.NoAnswer[memoryUse]("the leases cannot be read: " + err.Error())
		}

		h := memoryUse{now.Processes, leftover.FindRows(registry.LeftoverInput(host, now, held))}
		if look == maxLeftoverLooks || !host.IsHardware() || !slices.ContainsFunc(h.rows, func(r leftover.Row) bool { return mayBeEnding(now, r) }) {
			return hostinfo.AnswerOf(h)
		}

		select {
		case <-time.After(leftoverLookPause):
		case <-ctx.Done():
			return hostinfo.AnswerOf(h)
		}

		again, err := host.Read(ctx, gpu.Identity|gpu.Load|gpu.Processes)
		if err != nil {
			continue
		}

		now = again
	}
}

// setLeftovers puts the result into s, with the processes of the last reading, so that both agree.
func setLeftovers(s *hostinfo.Site, found hostinfo.Answer[memoryUse]) {
	s.Leftovers = hostinfo.Answer[[]leftover.Row]{Found: found.Found.rows, Problem: found.Problem}
	if found.Problem == "" && s.Machine.Problem == "" {
		s.Machine.Found.Processes = found.Found.processes
	}
}

// mayBeEnding reports whether memory may be that of a process that is just ending.
func mayBeEnding(m gpu.Machine, r leftover.Row) bool {
	return r.PID == 0 || r.Zombie || slices.ContainsFunc(m.Processes, func(p gpu.Process) bool { return p.PID == r.PID && p.State == proc.StateGone })
}

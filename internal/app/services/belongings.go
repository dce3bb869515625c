package services

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/service"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/projectdir"
	"gpuard/internal/host/sys"
)

// serviceVariable names the instance that a process belongs to, in the environment of its command.
const serviceVariable = "GPUARD_SERVICE"

// withoutServiceVar is an environment without it: a supervisor that was started from within a service is no part of
// that.
func withoutServiceVar(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(pair string) bool { return strings.HasPrefix(pair, serviceVariable+"=") })
}

// unkeptProcesses are the processes of an instance that have no keeper: the command that was recorded, what names the
// instance in its environment, what holds its life lock, and what descends from these.
type unkeptProcesses struct {
	host   *machine.Host
	folder *projectdir.Folder
	name   string
}

func newBelongings(host *machine.Host, folder *projectdir.Folder, name string) *unkeptProcesses {
	return &unkeptProcesses{host, folder, name}
}

// serviceTag is the value of the variable.
func (b *unkeptProcesses) serviceTag() string { return b.folder.ID() + "/" + b.name }

// findProcesses lists them, oldest first. r is what is known of the instance.
func (b *unkeptProcesses) findProcesses(r service.Record) []service.Process {
	var pids []int
	boot, _ := b.host.Proc.BootID()
	if r.Main.PID != 0 && r.Boot == boot && r.Namespace == b.host.Proc.PIDNamespace() && b.host.Proc.IsAlive(r.Main.PID, r.Main.Start) {
		pids = append(pids, r.Main.PID)
	}

	for _, pid := range b.host.Proc.ProcessesOfUser(uint32(os.Geteuid())) { //nolint:gosec // a uid
		env, err := b.host.Proc.Environ(pid)
		if value, _ := visible.Env(env).Lookup(serviceVariable); err == nil && value == b.serviceTag() {
			pids = append(pids, pid)
		}
	}

	if len(pids) == 0 && b.folder.IsAlive(b.name) {
		if dev, ino, err := b.folder.LifeLockInode(b.name); err == nil {
			for _, p := range b.host.Proc.LockHolders(dev, ino) {
				pids = append(pids, p.PID)
			}
		}
	}

	var found []service.Process
	for _, pid := range b.host.Proc.ProcessTree(pids...) {
		s, err := b.host.Proc.Stat(pid)
		if err == nil && pid != os.Getpid() && s.State != "Z" && s.State != "X" {
			found = append(found, service.Process{PID: pid, Start: s.Start})
		}
	}

	slices.SortFunc(found, func(a, b service.Process) int {
		if a.Start != b.Start {
			return int(min(max(int64(a.Start)-int64(b.Start), -1), 1)) //nolint:gosec // ticks since boot
		}
		return a.PID - b.PID
	})

	return found
}

// killTimeout is how long processes that were killed may take to be gone.
const killTimeout = 10 * time.Second

// endProcesses asks all of them to end, and kills them after grace, or when hurry is closed. It reports whether all are
// gone.
func (b *unkeptProcesses) endProcesses(r service.Record, stop syscall.Signal, grace time.Duration, hurry <-chan struct{}) bool {
	asked := map[service.Process]bool{}
	late := time.After(grace)
	sig, limit := stop, time.Time{}

	// Each look reads all of /proc, so that they become rarer.
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		found := b.findProcesses(r)
		if len(found) == 0 {
			return true
		}
		if sig == syscall.SIGKILL && time.Now().After(limit) {
			return false
		}

		for _, p := range found {
			if !asked[p] || sig == syscall.SIGKILL {
				asked[p] = true
				b.signalProcess(p, sig)
			}
		}

		select {
		case <-time.After(pause):
		case <-late:
			sig, limit = syscall.SIGKILL, time.Now().Add(killTimeout)
		case <-hurry:
			hurry, sig, limit = nil, syscall.SIGKILL, time.Now().Add(killTimeout)
		}
	}
}

// signalProcess signals a process, unless another one has its PID by now, and continues it if it is stopped.
func (b *unkeptProcesses) signalProcess(p service.Process, sig syscall.Signal) {
	_ = sys.SendSignals(p.PID, func() bool { return b.host.Proc.IsAlive(p.PID, p.Start) }, sig, syscall.SIGCONT)
}

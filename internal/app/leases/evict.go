package leases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/registry"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/leftover"
	"gpuard/internal/core/prose"
	"gpuard/internal/host/files"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/sys"
)

// Leftovers lists memory that belongs to no live lease; with idle, also processes that were idle for at least that
// long, with a lease or without. Each call records one sighting of each process for the next call.
func Leftovers(ctx context.Context, host *machine.Host, idle time.Duration) ([]leftover.Row, error) {
	q, err := readLeftovers(ctx, host, idle)
	if err != nil {
		return nil, err
	}
	return leftover.FindRows(q), nil
}

func readLeftovers(ctx context.Context, host *machine.Host, idle time.Duration) (leftover.Input, error) {
	q, err := readUnleased(ctx, host)
	if err != nil {
		return q, err
	}

	q.Idle = idle
	if host.IsHardware() {
		q.Seen, err = recordSightings(host, q.Machine)
		if err != nil {
			host.Say(err.Error())
		}
	}

	return q, nil
}

// readUnleased reads what belongs to no live lease.
func readUnleased(ctx context.Context, host *machine.Host) (leftover.Input, error) {
	m, err := host.Read(ctx, gpu.Identity|gpu.Load|gpu.Processes)
	if err != nil {
		return leftover.Input{}, err
	}

	held, _, err := registry.LiveLeases(host, m)
	if err != nil {
		return leftover.Input{}, err
	}

	return registry.LeftoverInput(host, m, held), nil
}

// sightingsFile is the file with what earlier calls of this user saw.
type sightingsFile struct {
	Boot string              `json:"boot"`
	Seen []leftover.Sighting `json:"seen"`
}

// recordSightings compares with the earlier calls and records this one. Its result is complete even if it cannot be
// recorded.
func recordSightings(host *machine.Host, m gpu.Machine) ([]leftover.Sighting, error) {
	cpu := map[int]time.Duration{}
	for _, p := range m.Processes {
		if s, err := host.Proc.Stat(p.PID); err == nil && s.Start == p.Start {
			cpu[p.PID] = s.CPU
		}
	}

	boot, err := host.Proc.BootID()
	if err != nil {
		return nil, err
	}

	now, err := host.Proc.Uptime()
	if err != nil {
		return nil, err
	}

	before, folder, err := openSightings(host.HomePath("seen"))
	if before.Boot != boot {
		before = sightingsFile{}
	}

	after := sightingsFile{boot, leftover.AddSample(before.Seen, m, cpu, now)}
	if err != nil {
		return after.Seen, fmt.Errorf("how long processes sleep is not remembered: %w", err)
	}

	defer folder.Close() //nolint:errcheck // nothing is written through it
	err = saveSightings(folder, after)
	if err != nil {
		return after.Seen, fmt.Errorf("how long processes sleep is not remembered: %w", err)
	}

	return after.Seen, nil
}

// seenFile is in a folder of its own. It decides which processes may be ended, and under sudo HOME may be another
// user's.
const seenFile = "seen.json"

func openSightings(path string) (before sightingsFile, folder *sys.Dir, err error) {
	if path == "" {
		return before, nil, errors.New("there is no home folder; set HOME or XDG_STATE_HOME")
	}

	folder, err = sys.OpenOwnFolder(path, 0o700)
	if err != nil {
		return before, nil, err
	}

	text, err := files.ReadFile(filepath.Join(path, seenFile))
	if err != nil || !text.IsOwnedBy(uint32(os.Geteuid())) || json.Unmarshal(text.Content, &before) != nil {
		before = sightingsFile{}
	}

	return before, folder, nil
}

func saveSightings(folder *sys.Dir, s sightingsFile) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return folder.Replace(seenFile, data, 0o600)
}

// Evict asks leftover processes to end, waits, and with force kills those that stay. It ends only the caller's own
// processes (root: all), none in another PID namespace, and none at all if one of them may not be ended.
func Evict(ctx context.Context, host *machine.Host, pids []int, idle, grace time.Duration, force bool) ([]leftover.Eviction, error) {
	if !host.IsHardware() {
		return nil, exit.Usagef("cannot end a process of %s: it is not on this machine", host.Machine)
	}

	q, err := readLeftovers(ctx, host, idle)
	if err != nil {
		return nil, err
	}

	rows := leftover.FindRows(q)
	var targets []*evictee
	for _, pid := range pids {
		if !slices.ContainsFunc(rows, func(r leftover.Row) bool { return r.PID == pid && pid > 0 }) {
			return nil, exit.Usagef("cannot end process %d: %s", pid, leftover.WhySpared(q, pid))
		}

		t, err := openEvictee(host, q.Machine, pid, rows)
		if err != nil {
			return nil, err
		}

		defer t.close()
		targets = append(targets, t)
	}

	return endProcesses(ctx, host, targets, grace, force), nil
}

// EvictUnleased ends one process of any user that has no lease: it is asked, and killed when it is still there after
// the grace. start and uid say which process is meant: another one may have its PID by now. Only root can.
func EvictUnleased(ctx context.Context, host *machine.Host, pid int, start uint64, uid uint32, grace time.Duration) (leftover.Eviction, error) {
	if !host.IsHardware() || !host.Proc.IsRoot() {
		return leftover.Eviction{}, fmt.Errorf("cannot end process %d: only root can, on its own machine", pid)
	}

	q, err := readUnleased(ctx, host)
	if err != nil {
		return leftover.Eviction{}, err
	}

	rows := slices.DeleteFunc(leftover.FindRows(q), func(r leftover.Row) bool {
		return r.PID != pid || r.Start != start || r.UID == nil || *r.UID != uid
	})

	if len(rows) == 0 {
		return leftover.Eviction{}, fmt.Errorf("cannot end process %d: it has ended, or got a lease, in the meantime", pid)
	}

	t, err := openEvictee(host, q.Machine, pid, rows)
	if err != nil {
		return leftover.Eviction{}, err
	}

	defer t.close()

	return endProcesses(ctx, host, []*evictee{t}, grace, true)[0], nil
}

// endProcesses asks processes to end, waits, and with force kills those that stay.
func endProcesses(ctx context.Context, host *machine.Host, targets []*evictee, grace time.Duration, force bool) []leftover.Eviction {
	for _, t := range targets {
		t.sendSignal(syscall.SIGTERM)
	}

	awaitGone(ctx, host, targets, grace)
	if force {
		for _, t := range targets {
			t.sendSignal(syscall.SIGKILL)
		}
		awaitGone(ctx, host, targets, grace)
	}

	out := []leftover.Eviction{}
	for _, t := range targets {
		out = append(out, t.evictionResult(grace, force))
	}

	return out
}

// OwnLeftovers lists the processes that the caller may end, with what they are, for completion.
func OwnLeftovers(ctx context.Context, host *machine.Host) []string {
	rows, err := Leftovers(ctx, host, 0)
	if err != nil {
		return nil
	}

	uid, root := os.Geteuid(), host.Proc.IsRoot()
	var out []string
	for _, r := range rows {
		if r.PID > 0 && !r.Zombie && !r.Spared && (root || r.UID != nil && int(*r.UID) == uid) {
			out = append(out, fmt.Sprintf("%d\t%s", r.PID, prose.Brief(r.Command)))
		}
	}

	return out
}

// evictee is a process that may be ended, with a pidfd, so that its PID cannot be used again.
type evictee struct {
	row   leftover.Row
	pidfd *os.File
	gone  bool
	err   error
}

// openEvictee opens a process that the caller may end, and proves that it is the one that the driver has listed.
func openEvictee(host *machine.Host, m gpu.Machine, pid int, rows []leftover.Row) (*evictee, error) {
	i := slices.IndexFunc(rows, func(r leftover.Row) bool { return r.PID == pid })
	r, uid := rows[i], uint32(os.Geteuid())
	owner, known := host.Proc.Owner(pid)
	switch {
	case r.Zombie:
		return nil, fmt.Errorf("cannot end process %d: it has ended already, and its parent has not collected it: end that, or have the GPU reset", pid)
	case !known:
		return nil, fmt.Errorf("cannot end process %d: whose it is cannot be read", pid)
	case owner != uid && !host.Proc.IsRoot():
		return nil, fmt.Errorf("cannot end process %d: it belongs to %s; ask them, or root", pid, host.Names(owner))
	case host.Proc.IsNested(pid):
		return nil, fmt.Errorf("cannot end process %d: it runs in another PID namespace; end its container", pid)
	case slices.Contains(host.Proc.ProcessTree(pid), os.Getpid()):
		return nil, fmt.Errorf("cannot end process %d: it started this gpuard", pid)
	}

	pidfd, err := openProcess(host, pid, r.Start, owner)
	if err != nil {
		return nil, fmt.Errorf("cannot end process %d: %w", pid, err)
	}

	for _, other := range rows {
		if other.PID != pid {
			continue
		}
		if err := host.ProveUse(m, pid, other.UUID); err != nil {
			_ = pidfd.Close()
			return nil, fmt.Errorf("cannot end process %d: %w", pid, err)
		}
	}

	return &evictee{row: r, pidfd: pidfd}, nil
}

// openProcess opens the process of that number, start and owner, and no other that has its number by now.
func openProcess(host *machine.Host, pid int, start uint64, owner uint32) (*os.File, error) {
	pidfd, err := launch.OpenPidfd(pid)
	if err != nil {
		return nil, err
	}

	// The descriptor may be of a later process with the same number: only now it is known which one it means. Where
	// procfs is that of another PID namespace, a signal would go to another process than the one that was read.
	reaches := sys.SendSignals(pid, func() bool { return true }, 0) == nil
	again, err := host.Proc.Stat(pid)
	now, known := host.Proc.Owner(pid)
	if err != nil || again.Start != start || !known || now != owner || !reaches {
		_ = pidfd.Close()
		return nil, errors.New("it has ended in the meantime")
	}

	return pidfd, nil
}

func (t *evictee) close() { _ = t.pidfd.Close() }

func (t *evictee) sendSignal(sig syscall.Signal) {
	if !t.gone {
		t.err = launch.SendSignal(t.pidfd, sig)
	}
}

// awaitGone waits until all are gone, or for so long.
func awaitGone(ctx context.Context, host *machine.Host, targets []*evictee, longest time.Duration) {
	timer := time.NewTimer(longest)
	defer timer.Stop()

	for _, t := range targets {
		select {
		case <-launch.ExitChannel(t.pidfd):
			t.gone = true
			continue
		case <-ctx.Done():
		case <-timer.C:
			// For the others too: they had as long.
			timer.Reset(0)
		}

		// Both events may have come together.
		t.gone = !host.Proc.IsAlive(t.row.PID, t.row.Start)
	}
}

func (t *evictee) evictionResult(grace time.Duration, force bool) leftover.Eviction {
	e := leftover.Eviction{PID: t.row.PID, User: t.row.User, Command: prose.Clean(t.row.Command), Gone: t.gone}
	switch {
	case t.gone:
	case t.err != nil && !errors.Is(t.err, syscall.ESRCH):
		e.Why = t.err.Error()
	case force:
		e.Why = "it does not end even when killed: it waits in the kernel, probably for the driver; reset the GPU or reboot"
	default:
		e.Why = fmt.Sprintf("it was asked to end and still runs after %s; add --force to kill it", grace)
	}
	return e
}

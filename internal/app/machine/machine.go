// Package machine is the computer that gpuard runs on: its devices, their health, its state folder and its
// configuration files. Every use case gets a Host. A Host reads; only the state folder is made where it is missing.
//
//	h := &machine.Host{Readers: machine.Readers{Reader: reader}, Messages: machine.Messages{Say: say},
//		Env: os.Environ(), Proc: proc.New("/proc"), Root: "/", Run: "/run", Tmp: "/var/tmp"}
//	m, err := h.Read(ctx, gpu.Identity|gpu.Load)
package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/status"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/files"
	"gpuard/internal/host/kmsg"
	"gpuard/internal/host/proc"
	"gpuard/internal/host/store"
	"gpuard/internal/host/sys"
)

// Reader reads what a query is about. The one injected seam: everything else is used for real, in tests too.
type Reader func(ctx context.Context, query gpu.Query) (gpu.Machine, error)

// Host is the computer, and the user's way to see what gpuard does: what every use case needs.
type Host struct {
	// The name under which this program starts itself again for services; "" if this process is not gpuard.
	Name string
	Readers
	Messages
	Env  visible.Env
	Proc proc.FS
	// --machine: "" for the hardware, "demo", "demo:KINDS", or a file.
	Machine      string
	PrivateState bool // --private-state
	Times        Times
	// Folder of the files of the system (etc, sys, dev, usr); "/" outside tests. /proc is Proc's.
	Root string
	// "/run" and "/var/tmp" outside tests.
	Run, Tmp string
	// How long each configuration file is waited for; 0: no limit, and 2 s at a login or in the queue.
	Patience time.Duration
	// What gpuard.yaml says about its services; nil: nothing.
	Project *policy.File

	// The configuration, as it was a moment ago.
	said configCache
	// Errors of devices that this process has received itself; nil: it does not listen.
	heard *heardErrors
}

// Readers read the devices and their errors. All but Reader may be nil, or "".
type Readers struct {
	Reader Reader
	// Devices of vendors that Reader does not know.
	Unread func() []gpu.Device
	// Devices on the PCI bus, with any driver or none.
	Cards func() ([]hostinfo.Card, error)
	// Errors of devices, as the driver reports them.
	Events func(ctx context.Context, ids []gpu.UUID) <-chan gpu.Event
	// The call after which another process uses the driver's library.
	Separate func()
	// Processor time of such a process that lives.
	Spent func() time.Duration
	// This process has begun again after a crash of the library.
	Crashed bool
	// Folder of the kernel's log, "/" for the kernel's own.
	KernelLog string
}

// Messages go to the user. Only Say is needed.
type Messages struct {
	Say func(string) // shows one line
	// Shows one line even with --quiet; may be nil.
	Loud func(string)
	// Shows the place of a waiting request in the queue, at each change; nil when the wait is over.
	Stand func(*status.Standing)
	// Standard error is a terminal.
	Live bool

	// Says a sentence in the language of the user; nil for English.
	Translate func(string) string
}

// Localize is a sentence in the language of the user.
func (m *Messages) Localize(sentence string) string {
	if m.Translate == nil {
		return sentence
	}
	return m.Translate(sentence)
}

// SurviveDriver is called before a process starts a command that it must not leave alone: a crash of the driver's
// library is from now on that of a child.
func (h *Host) SurviveDriver() {
	if h.Separate != nil {
		h.Separate()
	}
}

// IsHardware reports whether devices are real: only then do processes and namespaces matter.
func (h *Host) IsHardware() bool { return h.Machine == "" }

// machineSize is more than any machine file has.
const machineSize = 64 << 20

// Read reads parts of the whole machine that this call is about.
func (h *Host) Read(ctx context.Context, what gpu.What) (gpu.Machine, error) {
	return h.ReadFor(ctx, gpu.Query{What: what})
}

// ReadFor reads what the query is about. An invented machine is always read whole.
func (h *Host) ReadFor(ctx context.Context, query gpu.Query) (gpu.Machine, error) {
	what := query.What
	switch {
	case h.IsHardware():
		if ctx.Err() != nil {
			// In no time a device would seem not to answer.
			return gpu.Machine{}, fmt.Errorf("cannot read the GPUs: %w", context.Cause(ctx))
		}

		started := time.Now()
		log := func() []kmsg.Error { return nil }
		if what&gpu.Health != 0 {
			log = h.kernelLog()
		}

		m, err := h.Reader(ctx, query)
		if err != nil {
			return m, err
		}

		if what&gpu.Health != 0 {
			h.addFaults(&m, log())
		}

		if spent := time.Since(started); spent > time.Second && h.isAsleep(ctx, m, what) {
			h.Say(fmt.Sprintf("the driver took %.1f s to start, as it does each time while persistence mode is off: sudo nvidia-smi -pm 1", spent.Seconds()))
		}

		if what&gpu.Processes != 0 {
			h.Proc.FillProcesses(&m, time.Now(), h.HasOwnPIDNamespace())
		}

		return m, nil
	case h.Machine == "demo" || strings.HasPrefix(h.Machine, "demo:"):
		m, err := gpu.InventMachine(h.Machine)
		if err != nil {
			return m, &exit.Usage{Text: err.Error()}
		}

		m.Taken = time.Now()
		h.addFaults(&m, nil)

		return m, nil
	}

	data, err := files.ReadNamed(h.Machine, machineSize)
	if err != nil {
		return gpu.Machine{}, exit.Usagef("cannot read the machine file %s: %v; record one with: gpuard status --record > machine.json, or try demo", h.Machine, err)
	}

	m, err := gpu.DecodeMachine(data)
	if err != nil {
		return m, exit.Usagef("cannot read the machine file %s: %s", h.Machine, strings.TrimPrefix(err.Error(), "cannot read machine file: "))
	}

	m.Source = "file"
	h.addFaults(&m, nil)

	return m, nil
}

// isAsleep: without persistence mode the driver stops a device that no process uses, and starts it for every reading
// (NVIDIA driver-persistence documentation). A decision has not asked for the mode.
func (h *Host) isAsleep(ctx context.Context, m gpu.Machine, what gpu.What) bool {
	off := func(d gpu.Device) bool { return d.Persistence != nil && !*d.Persistence }
	known := func(d gpu.Device) bool { return d.Persistence != nil }
	if what&gpu.Deciding != 0 && !slices.ContainsFunc(m.Devices, known) {
		// ctx may be used up.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fastDeadline)
		defer cancel()
		m, _ = h.Reader(ctx, gpu.Query{What: gpu.Modes})
	}

	return slices.ContainsFunc(m.Devices, off)
}

// StateFolder is where the leases for m lie.
func (h *Host) StateFolder(m gpu.Machine) (path string, others []string, err error) {
	own, set := h.Env.Lookup("GPUARD_STATE")
	if set && own != "" && !filepath.IsAbs(own) {
		return "", nil, exit.Usagef("cannot use GPUARD_STATE=%s: it must be an absolute path", own)
	}

	if h.IsHardware() {
		others = store.CandidateFolders(h.Run, h.Tmp)
		if own != "" {
			return filepath.Clean(own), others, nil
		}
		path, _ = store.LocateFolder(h.Run, h.Tmp)

		return path, others, nil
	}

	if own == "" {
		own = h.StateHome()
		if own == "" {
			return "", nil, exit.Usagef("cannot find a folder for the state of %s: set GPUARD_STATE or HOME", h.Machine)
		}
	}

	return filepath.Join(own, "machines", Fingerprint(m)), nil, nil
}

// StateHome is the folder for the state of this user; "" if HOME and XDG_STATE_HOME are not set.
func (h *Host) StateHome() string {
	if x, _ := h.Env.Lookup("XDG_STATE_HOME"); filepath.IsAbs(x) {
		return filepath.Join(x, "gpuard")
	}
	if home, _ := h.Env.Lookup("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "gpuard")
	}
	return ""
}

// Fingerprint tells machines apart by their devices, in any order.
func Fingerprint(m gpu.Machine) string {
	var ids []string
	for _, d := range m.Devices {
		ids = append(ids, string(d.UUID))
	}

	slices.Sort(ids)
	sum := sha256.Sum256([]byte(strings.Join(ids, "\n")))

	return hex.EncodeToString(sum[:8])
}

// Folder opens the state folder of m. Without create, nil and no error means that there is none: no lease exists.
func (h *Host) Folder(m gpu.Machine, create bool) (*store.Folder, error) {
	path, others, err := h.StateFolder(m)
	if err != nil {
		return nil, err
	}

	deadline := h.Times.Lock
	if deadline == 0 {
		deadline = 10 * time.Second
	}

	if create && h.IsHardware() {
		if err := h.CheckShared(path); err != nil {
			return nil, err
		}
	}

	f, err := store.Open(path, others, deadline)
	if err == nil {
		h.NoteEnds(f)
	}

	if err == nil || !create && errors.Is(err, os.ErrNotExist) {
		return f, ignoreMissing(err)
	}

	if missing := errors.Is(err, os.ErrNotExist); !missing && !h.isVacantOwn(path) {
		// Between the two looks another process may have completed it: then it was no state folder, and is not vacant
		// any more.
		f, err = store.Open(path, others, deadline)
		if err != nil {
			return nil, h.FolderError(path, err)
		}
		h.NoteEnds(f)

		return f, nil
	}

	if !create {
		return nil, nil //nolint:nilnil // an empty folder has no leases, and looking changes nothing
	}

	if !h.IsHardware() {
		if err := h.MakeParents(filepath.Dir(path)); err != nil {
			return nil, err
		}
	}

	if err := store.CreateFolder(path); err != nil {
		return nil, h.FolderError(path, err)
	}

	f, err = store.Open(path, others, deadline)
	if err != nil {
		return nil, err
	}

	h.NoteEnds(f)
	if _, warning := store.LocateFolder(h.Run, h.Tmp); h.IsHardware() && warning != "" && strings.HasPrefix(path, h.Tmp) {
		h.Say(warning)
	}

	return f, nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// isVacantOwn: an existing folder named by GPUARD_STATE, without leases of real devices, is taken over.
func (h *Host) isVacantOwn(path string) bool {
	own, _ := h.Env.Lookup("GPUARD_STATE")
	return own != "" && store.IsVacant(path)
}

// MakeParents makes the folders above the state of an invented machine. Of $GPUARD_STATE only the last part may be
// missing.
func (h *Host) MakeParents(dir string) error {
	own, _ := h.Env.Lookup("GPUARD_STATE")
	if own == "" {
		if err := sys.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("cannot create the state folder: %w; set GPUARD_STATE to a folder you can write", err)
		}
		return nil
	}

	for _, p := range []string{own, dir} {
		// As open as the state folder inside, and sticky like it.
		err := sys.Mkdir(p, 0o1777)
		if err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("cannot create the state folder: %w; set GPUARD_STATE to a folder you can write", err)
		}
	}

	return nil
}

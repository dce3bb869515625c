package leases

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/registry"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
	"gpuard/internal/host/devicestate"
)

// longestReason is the longest reason, in characters: every refusal shows it.
const longestReason = 500

// Drain takes devices out of use: they get no new lease until Undrain, and present leases stay until their end. If one
// name is wrong, none is drained. Only root and the owner of the state folder may.
func Drain(ctx context.Context, host *machine.Host, names []string, reason string) ([]status.Drained, error) {
	reason = prose.Clean(reason)
	if n := utf8.RuneCountInString(reason); n > longestReason {
		return nil, exit.Usagef("cannot drain %s: the reason has %d characters; say it in %d", prose.Brief(strings.Join(names, ",")), n, longestReason)
	}

	devices, m, err := findWholeDevices(ctx, host, "drain", names)
	var out []status.Drained
	for i := 0; err == nil && i < len(devices); i++ {
		d := status.Drained{Device: devices[i]}
		whole, _, _ := m.FindDevice(d.Device.UUID)
		d.Before = whole.Drained
		err = changeMark(host, m, d.Device, "drain", names[i], func(mark *devicestate.DrainMark) {
			mark.Drained, mark.Reason, mark.By = true, reason, administratorName(host)
		})

		out = append(out, d)
	}

	if err != nil {
		return nil, err
	}

	for i := range out {
		if err := addAffected(host, m, &out[i]); err != nil {
			return out, err
		}
	}

	return out, nil
}

// addAffected adds the leases and tickets that a drain concerns.
func addAffected(host *machine.Host, m gpu.Machine, d *status.Drained) error {
	whole, _, _ := m.FindDevice(d.Device.UUID)
	ids := append([]gpu.UUID{whole.UUID}, slicesOf(whole)...)
	if err := invalidateReadings(host, m, ids); err != nil {
		return fmt.Errorf("%s is drained, but a command that asks for it at this moment may still get it: %w", d.Device.Label, err)
	}

	held, _, err := registry.LiveLeases(host, m)
	if err != nil {
		return err
	}

	d.Leases = slices.DeleteFunc(held, func(l job.Lease) bool { return !slices.ContainsFunc(ids, l.Holds) })
	folder, err := host.Folder(m, false)
	if err != nil || folder == nil {
		return err
	}

	defer folder.Close() //nolint:errcheck // read only
	tickets, _ := folder.Tickets()
	for _, t := range tickets {
		if slices.ContainsFunc(t.Devices, func(id gpu.UUID) bool { return slices.Contains(ids, id) }) {
			t.User = host.Names(t.UID)
			d.Waiting = append(d.Waiting, t)
		}
	}

	return nil
}

// invalidateReadings makes claims that have read the devices before read them again, and wakes waiting requests.
func invalidateReadings(host *machine.Host, m gpu.Machine, ids []gpu.UUID) error {
	boot, err := host.Proc.BootID()
	if err != nil {
		return err
	}

	f, err := host.Folder(m, false)
	if err != nil || f == nil {
		return err
	}

	defer f.Close() //nolint:errcheck // the record is written

	return registry.NameLockHolder(host, f, f.AnnounceChange(boot, ids...))
}

// Undrain puts devices into use again and takes their driver errors for settled. Where a name is wrong, it does
// nothing.
func Undrain(ctx context.Context, host *machine.Host, names []string) ([]status.Undrained, error) {
	devices, m, err := findWholeDevices(ctx, host, "undrain", names)
	var out []status.Undrained
	for i := 0; err == nil && i < len(devices); i++ {
		before, _, _ := m.FindDevice(devices[i].UUID)
		out = append(out, status.Undrained{Device: devices[i], Before: before.Drained, Settled: append([]gpu.XID{}, before.XIDs...)})
		err = changeMark(host, m, devices[i], "undrain", names[i], func(mark *devicestate.DrainMark) {
			boot, _ := host.Proc.BootID()
			mark.Drained, mark.Reason, mark.By, mark.Cleared, mark.Boot = false, "", administratorName(host), mark.Since, boot

			for _, x := range before.XIDs {
				// The clock of the kernel's log may run ahead.
				if x.At.After(mark.Cleared) {
					mark.Cleared = x.At
				}
			}
		})
	}

	if err != nil {
		return nil, err
	}

	var ids []gpu.UUID
	for _, d := range devices {
		whole, _, _ := m.FindDevice(d.UUID)
		ids = append(append(ids, d.UUID), slicesOf(whole)...)
	}

	if err := invalidateReadings(host, m, ids); err != nil {
		return out, fmt.Errorf("the devices are in use again, but those who wait were not told: %w", err)
	}

	return out, nil
}

// slicesOf are the slices of a device.
func slicesOf(d *gpu.Device) (ids []gpu.UUID) {
	for _, slice := range d.MIG {
		ids = append(ids, slice.UUID)
	}
	return ids
}

// findWholeDevices finds the whole devices that names mean.
func findWholeDevices(ctx context.Context, host *machine.Host, verb string, names []string) ([]job.Given, gpu.Machine, error) {
	m, err := host.Read(ctx, gpu.Identity|gpu.Health)
	if err != nil {
		return nil, m, err
	}

	var out []job.Given
	for _, name := range names {
		d, refusal := pick.FindDevice(m, name)
		switch {
		case refusal != nil:
			why := strings.TrimPrefix(refusal.Summary, "cannot find device ")
			return nil, m, exit.Usagef("cannot %s device %s; gpuard status shows what there is", verb, why)
		case d.Parent != "":
			return nil, m, exit.Usagef("cannot %s %s: it is a part of %s; name the whole GPU: gpuard %s %d", verb, prose.Clean(name), d.Label, verb, d.Index)
		case d.UUID == "":
			return nil, m, fmt.Errorf("cannot %s %s: it does not say its UUID, so nothing can be noted about it; it gets no lease either", verb, d.Label)
		case slices.ContainsFunc(out, func(o job.Given) bool { return o.UUID == d.UUID }):
			return nil, m, exit.Usagef("cannot %s %s twice; name each GPU once", verb, d.Label)
		}
		out = append(out, d)
	}

	return out, m, nil
}

// changeMark changes what is noted about a device.
func changeMark(host *machine.Host, m gpu.Machine, d job.Given, verb, name string, change func(*devicestate.DrainMark)) error {
	f, err := host.Folder(m, false)
	if f == nil && err == nil {
		f, err = host.Folder(m, true)
	}

	if err != nil {
		return fmt.Errorf("cannot %s %s: %w", verb, d.Label, err)
	}

	defer f.Close() //nolint:errcheck // what was noted lies in a file of its own
	known, _ := host.DeviceMarks(&m)
	mark := known[d.UUID]
	mark.Device, mark.Since = d.UUID, time.Now().Truncate(time.Millisecond)
	change(&mark)
	err = os.ErrPermission
	if host.Proc.IsRoot() || f.Owner == uint32(os.Geteuid()) {
		err = devicestate.WriteMark(f.Path, f.Owner, mark)
	}

	switch {
	case errors.Is(err, os.ErrPermission) && f.Owner == 0:
		return fmt.Errorf(`cannot %s %s: only root may; type: sudo "$(command -v gpuard)" %s %s`, verb, d.Label, verb, prose.Clean(name))
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf(`cannot %s %s: only root and %s, who owns %s, may; type: sudo "$(command -v gpuard)" %s %s`,
			verb, d.Label, host.Names(f.Owner), f.Path, verb, prose.Clean(name))
	case err != nil:
		return fmt.Errorf("cannot %s %s: %w", verb, d.Label, err)
	}

	return nil
}

// administratorName is the name of the user who typed this; under sudo, the one who called sudo.
func administratorName(host *machine.Host) string {
	uid := uint32(os.Geteuid())
	if person, ok := host.Env.Lookup("SUDO_USER"); ok && uid == 0 && person != "" && person != "root" {
		return prose.Clean(person) + " as root"
	}
	return host.Names(uid)
}

package app

import (
	"os"
	"strings"
	"time"

	"gpuard/internal/host/launch"
	"gpuard/internal/host/proc"
	"gpuard/internal/host/store"
)

// Keep is the life of a holder process: it keeps a reference to the lease until the command is gone, removes the entry, and
// names whoever still holds it then. args are pidfd, lock descriptor, state folder and lease id. The entry is touched every
// so often, as long as it takes: systemd-tmpfiles removes what is old.
func Keep(args []string, touch time.Duration) error {
	if len(args) != 4 {
		return usagef("cannot hold a lease by hand: gpuard starts its holder itself")
	}
	w, err := launch.Watching(args[0], args[1])
	if err != nil {
		return err
	}
	folder, err := store.Open(args[2], nil, time.Minute)
	if err != nil {
		return err
	}
	lease, found := folder.Own(args[3])
	if !found {
		return nil // released before we looked
	}
	if err := w.Wait(touch, func() { folder.Touch(lease) }); err != nil {
		return err
	}
	// The lock goes first: nobody waits for us to find the folder lock free.
	if err := w.Drop(); err != nil {
		return err
	}
	gone, err := folder.End(lease, lease.Boot)
	if err != nil || gone {
		return err
	}
	dev, ino, err := folder.LockFile(lease)
	if err != nil {
		return err
	}
	holders := proc.New("/proc").OpenBy(dev, ino)
	for i := range holders { // everybody may read a lease: names of commands, not their arguments
		holders[i].Command = baseName(strings.Fields(holders[i].Command))
	}
	return folder.Mark(lease, holders)
}

// Holder reports whether this process was started as one.
func Holder() bool { return len(os.Args) > 1 && os.Args[1] == launch.HolderFlag }

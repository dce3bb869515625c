package isolation

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// capabilitySet are capabilities of a process.
type capabilitySet [2]uint32

func (c capabilitySet) has(n uint) bool { return c[n/32]&(1<<(n%32)) != 0 }

// effectiveCaps are the effective capabilities of this process.
func effectiveCaps() (c capabilitySet, err error) {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err = unix.Capget(&head, &data[0])
	if err != nil {
		return c, fmt.Errorf("cannot read the capabilities of this process: %w", err)
	}

	return capabilitySet{data[0].Effective, data[1].Effective}, nil
}

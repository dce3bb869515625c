package isolation

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/isolate"
)

// loading is what BPF_PROG_LOAD takes of the kernel's union bpf_attr (include/uapi/linux/bpf.h).
type loading struct {
	kind, count           uint32
	instructions, license uint64
	logLevel, logSize     uint32
	log                   uint64
	kernel, flags         uint32
	name                  [16]byte // for bpftool
}

// attaching is what BPF_PROG_ATTACH takes.
type attaching struct{ group, program, kind, flags uint32 }

// denyByProgram denies devices in a group of version 2. That takes CAP_BPF and CAP_NET_ADMIN, and before Linux 5.8
// CAP_SYS_ADMIN (kernel/bpf/syscall.c, bpf_prog_load). Filters of groups above and of others stay beside it.
func denyByProgram(dir string, numbers []isolate.DeviceNumber) error {
	if len(numbers) > isolate.MostNumbers {
		return fmt.Errorf("there are %d devices to deny, and a filter takes %d", len(numbers), isolate.MostNumbers)
	}

	group, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}

	defer unix.Close(group) //nolint:errcheck // nothing was written
	instructions, license := isolate.Filter(numbers), []byte("Apache-2.0\x00")
	load := loading{kind: unix.BPF_PROG_TYPE_CGROUP_DEVICE, count: uint32(len(instructions)), //nolint:gosec // few
		instructions: uint64(uintptr(unsafe.Pointer(&instructions[0]))), license: uint64(uintptr(unsafe.Pointer(&license[0])))}

	copy(load.name[:], "gpuard")
	program, err := bpf(unix.BPF_PROG_LOAD, unsafe.Pointer(&load), unsafe.Sizeof(load))
	runtime.KeepAlive(instructions)
	runtime.KeepAlive(license)

	switch {
	case errors.Is(err, unix.EPERM):
		return errors.New("the kernel takes no filter of devices from this process: it wants CAP_BPF and CAP_NET_ADMIN, outside of every user namespace")
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return errors.New("this kernel has no filters of devices by BPF: Linux 4.15 with CONFIG_CGROUP_BPF is needed")
	case err != nil:
		return fmt.Errorf("cannot load the filter: %w", err)
	}

	defer unix.Close(program)                                                                           //nolint:errcheck // the group keeps it
	attach := attaching{uint32(group), uint32(program), unix.BPF_CGROUP_DEVICE, unix.BPF_F_ALLOW_MULTI} //nolint:gosec // descriptors
	_, err = bpf(unix.BPF_PROG_ATTACH, unsafe.Pointer(&attach), unsafe.Sizeof(attach))
	if errors.Is(err, unix.EPERM) {
		return errors.New("a control group above has a filter that allows no other beside it")
	}

	return err
}

// bpf is the system call, which begins its programs' and its own descriptors with close-on-exec.
func bpf(command uintptr, attr unsafe.Pointer, size uintptr) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(attr), size)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

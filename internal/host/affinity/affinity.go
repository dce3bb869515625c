// Package affinity binds commands to processors, and their memory to the NUMA node of these. It does not know which
// device is on which node.
//
//	err := affinity.CallBound(cpus, node, cmd.Start)
package affinity

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// NodeCPUs returns the processors of a NUMA node in the kernel's form, such as "0-15,32-47". root is the folder that
// contains sys. The error for a node that does not exist is fs.ErrNotExist.
func NodeCPUs(root string, number int) (string, error) {
	list, err := os.ReadFile(filepath.Join(root, "sys/devices/system/node", fmt.Sprintf("node%d", number), "cpulist"))
	return string(list), err
}

// AllowedCPUs returns the processors that this process may use: taskset, a batch system or a container may allow it
// only some.
func AllowedCPUs() ([]int, error) {
	set := unix.NewCPUSet(1 << 13)
	if err := unix.SchedGetaffinityDynamic(0, set); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}

	var cpus []int
	for n := range 1 << 13 {
		if set.IsSet(n) {
			cpus = append(cpus, n)
		}
	}

	return cpus, nil
}

// BindThread binds the calling thread, and the programs that it starts or executes, to processors. Their memory comes
// preferably from the node, unless a policy is set already (numactl). A caller with other threads must lock its
// goroutine to this one (runtime.LockOSThread). Without processors, or with node -1, that part stays as it is.
func BindThread(cpus []int, node int) error {
	var errs []error
	if len(cpus) > 0 {
		set := unix.NewCPUSet(cpus[len(cpus)-1] + 1)
		for _, n := range cpus {
			set.Set(n)
		}
		errs = append(errs, os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinityDynamic(0, set)))
	}
	if node >= 0 && memoryPolicy() == unix.MPOL_DEFAULT {
		errs = append(errs, preferNode(node))
	}

	return errors.Join(errs...)
}

// CallBound calls start on a thread that is bound during the call, so that a process that start starts is bound. It
// ignores errors of BindThread.
func CallBound(cpus []int, node int, start func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := AllowedCPUs()
	if err != nil {
		return start()
	}

	memory := memoryPolicy()
	_ = BindThread(cpus, node)
	defer func() {
		_ = BindThread(before, -1)
		if memory == unix.MPOL_DEFAULT {
			_ = preferNode(-1)
		}
	}()

	return start()
}

// memoryPolicy returns the calling thread's memory policy, -1 if it cannot be read.
func memoryPolicy() int {
	mode := int32(-1)
	if _, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)), 0, 0, 0, 0, 0); errno != 0 {
		return -1
	}
	return int(mode)
}

// preferNode sets the calling thread's memory policy (set_mempolicy(2)); -1 is the default.
func preferNode(node int) error {
	if node < 0 {
		if _, _, errno := unix.Syscall(unix.SYS_SET_MEMPOLICY, unix.MPOL_DEFAULT, 0, 0); errno != 0 {
			return os.NewSyscallError("set_mempolicy", errno)
		}
		return nil
	}

	const most, word = 1024, 64
	var mask [most / word]uint64
	if node >= most {
		return os.NewSyscallError("set_mempolicy", unix.EINVAL)
	}

	mask[node/word] = 1 << (node % word)

	// The kernel reads one bit less than the given number.
	if _, _, errno := unix.Syscall(unix.SYS_SET_MEMPOLICY, unix.MPOL_PREFERRED, uintptr(unsafe.Pointer(&mask)), most+1); errno != 0 {
		return os.NewSyscallError("set_mempolicy", errno)
	}

	return nil
}

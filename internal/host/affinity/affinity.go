// Package affinity binds what is started to processors, and its memory to the NUMA node beside them. It does not know which
// device is on which node.
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

// Node returns the processors of a NUMA node in the kernel's form, such as "0-15,32-47". Below root lies sys. The error of a
// node that does not exist is fs.ErrNotExist.
func Node(root string, number int) (string, error) {
	list, err := os.ReadFile(filepath.Join(root, "sys/devices/system/node", fmt.Sprintf("node%d", number), "cpulist"))
	return string(list), err
}

// Allowed are the processors that this process may use: taskset, a batch system or a container may have left it a part.
func Allowed() ([]int, error) {
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

// Bind binds the calling thread, and what it starts or becomes, to processors. Memory comes from the node first, unless
// somebody chose a policy before (numactl). A caller that has other threads locks its goroutine to this one
// (runtime.LockOSThread). No processors, or node -1, leave that part as it is.
func Bind(cpus []int, node int) error {
	var errs []error
	if len(cpus) > 0 {
		set := unix.NewCPUSet(cpus[len(cpus)-1] + 1)
		for _, n := range cpus {
			set.Set(n)
		}
		errs = append(errs, os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinityDynamic(0, set)))
	}
	if node >= 0 && policy() == unix.MPOL_DEFAULT {
		errs = append(errs, prefer(node))
	}
	return errors.Join(errs...)
}

// Around calls start on a thread that is bound like that for its time, so that a process that it starts is. What cannot be bound
// is started all the same.
func Around(cpus []int, node int, start func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := Allowed()
	if err != nil {
		return start()
	}
	memory := policy()
	_ = Bind(cpus, node)
	defer func() {
		_ = Bind(before, -1)
		if memory == unix.MPOL_DEFAULT {
			_ = prefer(-1)
		}
	}()
	return start()
}

// policy is the calling thread's memory policy, -1 where the kernel does not tell.
func policy() int {
	mode := int32(-1)
	if _, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)), 0, 0, 0, 0, 0); errno != 0 {
		return -1
	}
	return int(mode)
}

// prefer sets the calling thread's memory policy (set_mempolicy(2)); -1 is the default.
func prefer(node int) error {
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
	// The kernel reads one bit less than it is told.
	if _, _, errno := unix.Syscall(unix.SYS_SET_MEMPOLICY, unix.MPOL_PREFERRED, uintptr(unsafe.Pointer(&mask)), most+1); errno != 0 {
		return os.NewSyscallError("set_mempolicy", errno)
	}
	return nil
}

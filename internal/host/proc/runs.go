package proc

import "slices"

// commLength is the number of bytes that the kernel keeps of a program's name: TASK_COMM_LEN - 1 (torvalds/linux
// include/linux/sched.h).
const commLength = 15

// IsProgramRunning reports whether any process of the machine has the name of a program. sees is false where that
// cannot be known: in a PID namespace other than the machine's, and if procfs hides processes of other users
// (hidepid=).
func (f FS) IsProgramRunning(program string) (runs, sees bool) {
	initial, err := f.InitialPIDNamespace()
	if err != nil || !initial {
		return false, false
	}
	if _, err := f.Stat(1); err != nil {
		// Process 1 exists, so procfs hides it.
		return false, false
	}

	pids, err := f.listPIDs()
	if err != nil {
		return false, false
	}

	name := program[:min(len(program), commLength)]

	return slices.ContainsFunc(pids, func(pid int) bool {
		s, err := f.Stat(pid)
		return err == nil && s.Comm == name && s.State != "Z" && s.State != "X"
	}), true
}

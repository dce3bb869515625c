package proc

import "slices"

// commLength is how much of a program's name the kernel keeps: TASK_COMM_LEN less its end (torvalds/linux include/linux/sched.h).
const commLength = 15

// Runs reports whether a process of the whole machine bears the name of a program. sees is false where that cannot be known:
// in a PID namespace other than the machine's, and where procfs hides the processes of others (hidepid=).
func (f FS) Runs(program string) (runs, sees bool) {
	initial, err := f.InitialPIDNamespace()
	if err != nil || !initial {
		return false, false
	}
	if _, err := f.Stat(1); err != nil { // it is always there
		return false, false
	}
	pids, err := f.pids()
	if err != nil {
		return false, false
	}
	name := program[:min(len(program), commLength)]
	return slices.ContainsFunc(pids, func(pid int) bool {
		s, err := f.Stat(pid)
		return err == nil && s.Comm == name && s.State != "Z" && s.State != "X"
	}), true
}

package app

import "gpuard/internal/core/job"

// trees lists, by the id of each shared lease, the processes whose memory it pays for: the descendants of its command, and
// of those that hold it after the command's end. It walks /proc, so it is asked for before the folder is locked; a lease
// that appears meanwhile has no tree, and what it uses already counts as foreign until the next claim.
func (a *App) trees(held []job.Lease) map[string][]int {
	roots := map[string][]int{}
	for _, l := range held {
		if l.Share <= 0 || l.Namespace != a.Proc.Namespace() {
			continue
		}
		var pids []int
		if a.Proc.Alive(l.PID, l.Start) {
			pids = append(pids, l.PID)
		}
		for _, p := range l.HeldBy {
			if a.Proc.Alive(p.PID, p.Start) {
				pids = append(pids, p.PID)
			}
		}
		if len(pids) > 0 {
			roots[l.ID] = append(roots[l.ID], pids...)
		}
	}
	return a.Proc.Trees(roots)
}

package measure

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/explain"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/proof"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/quota"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/quotawatch"
)

// firstGlance is how old a job is when it is first judged where it works. The second look, at 2.5 times that, is in its
// first minute too, and by then a job is on its devices, or still loads its data.
const firstGlance = 20 * time.Second

// mostInspected is how many processes of a job are looked into for why it is on no device.
const mostInspected = 16

// jobLocation is what is known of where the job of a lease works.
type jobLocation struct {
	verdict proof.Verdict // "" none yet
	// That it is about: processes and devices.
	place string
	// Verdicts, with devices, that were said on the command's standard error.
	told map[string]bool
	// When it was seen on a device first; zero: not yet.
	first time.Time
	// Age at which it is looked into again, while it was on no device.
	inspectAt time.Duration
	// Readings in a row that saw this outside of the lease.
	outside   map[processPlace]int
	toldToEnd map[processPlace]bool // by a rule
}

// processPlace is one process on a device.
type processPlace struct {
	pid   int
	start uint64
	gpu   gpu.UUID
}

// judgeWhereabouts judges where the job of a lease works, by the reading that was made for its use anyway, and says it
// where that is worth a line: on the command's standard error once for each device, and in the lease.
func (w *leaseMeter) judgeWhereabouts(r *machineReading) {
	if w.lease.Apart || w.lease.Share > 0 && w.level == job.MPS || r.err != nil || !w.host.Proc.IsAlive(w.lease.PID, w.lease.Start) {
		// A process that gpuard did not start has chosen before; MPS lists its server.
		return
	}

	first := cmp.Or(w.host.Times.Glance, firstGlance)
	age, err := w.host.Proc.ProcessAge(w.lease.PID)

	// The process may have waited in line.
	age = min(age, time.Since(w.lease.Since))
	if err != nil || age < first {
		return
	}

	for _, device := range w.lease.Devices {
		if w.deviceBlindReason(r, device) != "" {
			return
		}
	}

	seen, places := w.sightings(r)
	if len(seen) > 0 && w.where.first.IsZero() {
		w.where.first = time.Now()
	}

	g := proof.Glimpse{
		Second: age >= first*5/2, Settled: !w.where.first.IsZero() && time.Since(w.where.first) >= first*3/2,
		Facts: proof.Facts{
			PID: w.lease.PID, Command: prose.ProgramName(w.host.Proc.DescribeProcess(w.lease.PID).Command), Machine: r.machine, Age: age,
			Lease: w.lease.ID, Leased: w.lease.Devices, Sightings: seen, Holders: w.deviceHolders(),
		},
	}

	if len(seen) == 0 {
		if !w.where.first.IsZero() || !g.Second || age < w.where.inspectAt {
			// It was on a device, and computes elsewhere now; or nothing new can be said.
			return
		}
		w.where.inspectAt = 2 * age
		w.inspectProcesses(&g)
	}

	found := g.Judge()
	outside := g.Outside()
	w.countOutside(outside, places)
	if found.Verdict == proof.OutsideLease {
		w.endOutside(r, places)
	}

	w.tellSeen(found, outside)
}

// tellSeen notes a verdict where it is another one than before, or about another place.
func (w *leaseMeter) tellSeen(found proof.Finding, outside []proof.Sighting) {
	place, devices := "", string(found.Verdict)
	for _, s := range outside {
		place += fmt.Sprint(" ", s.PID, " ", s.GPU)
		devices += " " + string(s.GPU)
	}

	if found.Verdict == w.where.verdict && place == w.where.place {
		return
	}

	w.where.verdict, w.where.place = found.Verdict, place
	u := w.used[w.lease.ID]
	if found.Verdict == proof.Proven && u.Seen != string(proof.OutsideLease) {
		// It took its time.
		u.Seen = ""
	}

	isTrouble := found.Verdict.Bad() || found.Verdict == proof.Partly
	if isTrouble && (found.Verdict.Bad() || u.Seen == "") {
		u.Seen = string(found.Verdict)

		// It is noted at once: the job may end.
		w.sampleDue = time.Time{}
	}

	w.used[w.lease.ID] = u
	if isTrouble && !w.where.told[devices] {
		w.where.told[devices] = true
		w.warnOwner("WARNING: "+found.Line()+"; "+found.Remedy, nil)
	}

	_ = w.folder.NoteSeen(w.lease.ID, string(found.Verdict), found.Text)
}

// sightings are the job's processes on devices, in its lease and outside of it, and which processes they are. What
// draws is on the device of the screen, and what has a lease of its own is there by that.
func (w *leaseMeter) sightings(r *machineReading) (all []proof.Sighting, places []processPlace) {
	for _, p := range r.machine.Processes {
		of, alive := r.leases[p.PID]
		if !alive || p.Kind == gpu.GraphicsProcess {
			continue
		}

		start, member := w.members[p.PID]
		if of == "" && member && start == p.Start {
			of = w.lease.ID
		}

		_, own := r.kin.partOf(of, w.lease.ID)
		if !own || w.hasOtherLease(r, p) {
			continue
		}

		all = append(all, proof.Sighting{PID: p.PID, Command: prose.ProgramName(p.Command), GPU: p.GPU, Peak: p.Memory, Kind: p.Kind})
		places = append(places, processPlace{p.PID, p.Start, p.GPU})
	}
	return all, places
}

// hasOtherLease reports whether a process is on a device by a lease that is not known to belong to the job's: of
// another user, as under sudo, or of another PID namespace.
func (w *leaseMeter) hasOtherLease(r *machineReading, p gpu.Process) bool {
	said := r.kin.leaseInEnv(p.PID)
	for _, l := range w.held {
		_, known := r.kin.parent[l.ID]
		if known || l.ID == w.lease.ID || !slices.Contains(l.Devices, p.GPU) {
			continue
		}
		if l.ID == said || slices.Contains(w.ancestors(p.PID), l.PID) {
			return true
		}
	}
	return false
}

// ancestors are a process and those above it, as far as the lease's own.
func (w *leaseMeter) ancestors(pid int) (line []int) {
	for p := pid; p > 1 && p != w.lease.PID && len(line) < 64; {
		line = append(line, p)
		s, err := w.host.Proc.Stat(p)
		if err != nil {
			break
		}
		p = s.PPID
	}
	return line
}

// countOutside counts in how many readings in a row each process was seen on a device outside of the lease.
func (w *leaseMeter) countOutside(outside []proof.Sighting, places []processPlace) {
	counted := map[processPlace]int{}
	for _, p := range places {
		if slices.ContainsFunc(outside, func(s proof.Sighting) bool { return s.PID == p.pid && s.GPU == p.gpu }) {
			counted[p] = w.where.outside[p] + 1
		}
	}
	w.where.outside = counted
}

// deviceHolders are the users who have devices that are not this lease's.
func (w *leaseMeter) deviceHolders() map[gpu.UUID]string {
	all := map[gpu.UUID]string{}
	for _, l := range w.held {
		for _, id := range l.Devices {
			if !slices.Contains(w.lease.Devices, id) {
				all[id] = prose.Clean(cmp.Or(l.User, w.host.Names(l.UID)))
			}
		}
	}
	return all
}

// inspectProcesses adds what the kernel says of a job's processes: their processor time, the libraries they have
// loaded, and whether any of them is shown a device.
func (w *leaseMeter) inspectProcesses(g *proof.Glimpse) {
	pids := w.livingMembers()
	slices.Sort(pids)

	for _, pid := range pids {
		s, err := w.host.Proc.Stat(pid)
		if err != nil {
			continue
		}
		g.CPUTime += s.CPU
	}

	isShown := len(pids) > mostInspected
	for _, pid := range pids[:min(len(pids), mostInspected)] {
		libraries, _ := w.host.Proc.Libraries(pid)
		g.Libraries = append(g.Libraries, libraries...)
		hides := w.hidesAll(pid, g.Machine)
		isShown = isShown || hides == ""
		g.Hides = hides
	}

	if isShown {
		g.Hides = ""
	}
}

// hidesAll are the variables by which a process sees no device; "" where it sees one, or that is a guess.
func (w *leaseMeter) hidesAll(pid int, m gpu.Machine) string {
	env, err := w.host.Proc.Environ(pid)
	if err != nil || len(m.Devices) == 0 {
		return ""
	}

	x, _, masks := explain.VisibleTo(w.host, visible.Env(env), pid, m)
	if len(x.Visible) > 0 || slices.ContainsFunc(x.Notes, visible.Note.IsDoubtful) {
		return ""
	}

	return strings.Join(masks, " ")
}

// endOutside ends the processes that two readings in a row saw on a device outside their lease, where a rule of the
// machine says so: first they are told to end, and from the next reading on they are.
func (w *leaseMeter) endOutside(r *machineReading, places []processPlace) {
	w.host.ForgetConfig()
	limits, err := w.host.Limits()
	rule := limits.Outside()
	if err != nil || rule == nil {
		return
	}

	for _, p := range places {
		if w.where.outside[p] < 2 {
			continue
		}

		force := w.where.toldToEnd[p]
		n, u := measuredDevice{quota.Names{Lease: w.lease.ID}, r.machine, p.gpu}, quota.Use{PID: p.pid, Start: p.start}
		sure := func() bool { return w.isMeasured(n, u) }
		if !sure() || quotawatch.EndProcess(p.pid, force, sure) != nil {
			continue
		}

		w.where.toldToEnd[p] = true
		if !force {
			w.warnOwner(fmt.Sprintf("told process %d to end, which is on a device outside lease %s, as %s says", p.pid, w.lease.ID, rule), nil)
		}
	}
}

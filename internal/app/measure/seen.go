package measure

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/explain"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/quota"
	"gpuard/internal/core/verify"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/quotawatch"
)

// firstGlance is how old a job is when it is first judged where it works. The second look, at 2.5 times that, is in its first minute
// too, and by then a job is on all of its devices, or still loads its data.
const firstGlance = 20 * time.Second

// mostInspected is how many processes of a job are looked into for why it is on no device.
const mostInspected = 16

// glance judges where the job of a lease works, by the reading that was made for its use anyway, and says it where that is worth a
// line: on the command's standard error once for each verdict, and in the lease.
func (w *measuring) glance(r *reading) {
	if w.lease.Apart || w.lease.Share > 0 && w.level == job.MPS || r.err != nil {
		return // a process that gpuard did not start has chosen before; MPS lists its server
	}
	first := cmp.Or(w.host.Times.Glance, firstGlance)
	age, err := w.host.Proc.Age(w.lease.PID)
	if err != nil || age < first {
		return
	}
	for _, device := range w.lease.Devices {
		if w.blind(r, device) != "" {
			return
		}
	}

	g := verify.Glimpse{Second: age >= first*5/2, Facts: verify.Facts{
		PID: w.lease.PID, Command: prose.ProgramName(w.host.Proc.Describe(w.lease.PID).Command), Machine: r.machine, Age: age,
		Lease: w.lease.ID, Leased: w.lease.Devices, Sightings: w.sightings(r), Holders: w.holders(),
	}}
	if len(g.Sightings) == 0 {
		if !g.Second || age < w.inspectAt {
			return // nothing new can be said until it is on a device
		}
		w.inspectAt = 2 * age
		w.inspect(&g)
	}
	found := g.Judge()
	if found.Verdict == verify.OutsideLease {
		w.endOutside(r, g.Outside())
	}
	w.tellSeen(found)
}

// tellSeen notes a verdict where it is another one than before.
func (w *measuring) tellSeen(found verify.Finding) {
	if found.Verdict == w.verdict {
		return
	}
	w.verdict = found.Verdict
	isTrouble := found.Verdict.Bad() || found.Verdict == verify.Partly
	if isTrouble && !slices.Contains(w.toldVerdicts, found.Verdict) {
		w.toldVerdicts = append(w.toldVerdicts, found.Verdict)
		u := w.used[w.lease.ID]
		if found.Verdict.Bad() || u.Seen == "" {
			u.Seen = string(found.Verdict)
			w.used[w.lease.ID] = u
			w.sampleDue = time.Time{} // it is noted at once: the job may end
		}
		w.warn("WARNING: "+found.Line()+"; "+found.Remedy, nil)
	}
	_ = w.folder.NoteSeen(w.lease.ID, string(found.Verdict), found.Text)
}

// sightings are the job's processes on devices, in its lease and outside of it. What draws is on the device of the screen.
func (w *measuring) sightings(r *reading) (all []verify.Sighting) {
	for _, p := range r.machine.Processes {
		of, alive := r.leases[p.PID]
		if !alive || p.Kind == gpu.GraphicsProcess {
			continue
		}
		start, member := w.members[p.PID]
		if of == "" && member && start == p.Start {
			of = w.lease.ID
		}
		_, own := r.kin.part(of, w.lease.ID)
		if own {
			all = append(all, verify.Sighting{PID: p.PID, Command: prose.ProgramName(p.Command), GPU: p.GPU, Peak: p.Memory, Kind: p.Kind})
		}
	}
	return all
}

// holders are the users who have devices that are not this lease's.
func (w *measuring) holders() map[gpu.UUID]string {
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

// inspect adds what the kernel says of a job's processes: their processor time, the libraries they have loaded, the devices they have
// open, and whether the one that computes most is shown a device at all.
func (w *measuring) inspect(g *verify.Glimpse) {
	var busiest int
	var most time.Duration
	pids := w.roots()
	slices.Sort(pids)
	for _, pid := range pids {
		s, err := w.host.Proc.Stat(pid)
		if err != nil {
			continue
		}
		g.CPUTime += s.CPU
		if s.CPU >= most {
			busiest, most = pid, s.CPU
		}
	}
	for _, pid := range pids[:min(len(pids), mostInspected)] {
		libraries, _ := w.host.Proc.Libraries(pid)
		g.Libraries = append(g.Libraries, libraries...)
		nodes, err := w.host.Proc.DevicesHeld(pid)
		g.Opened = g.Opened || err != nil || len(nodes) > 0
	}
	g.Opened = g.Opened || len(pids) > mostInspected
	g.Hides = w.hidesAll(busiest, g.Machine)
}

// hidesAll are the variables by which a process sees no device; "" where it sees one, or that is a guess.
func (w *measuring) hidesAll(pid int, m gpu.Machine) string {
	env, err := w.host.Proc.Environ(pid)
	if err != nil || len(m.Devices) == 0 {
		return ""
	}
	x, _, masks := explain.Environment(w.host, visible.Env(env), pid, m)
	if len(x.Visible) > 0 || slices.ContainsFunc(x.Notes, visible.Note.Doubtful) {
		return ""
	}
	return strings.Join(masks, " ")
}

// endOutside ends the processes that are on a device outside their lease, where a rule of the machine says so: first they are told
// to end, and from the next reading on they are.
func (w *measuring) endOutside(r *reading, seen []verify.Sighting) {
	w.host.ForgetConfig()
	limits, err := w.host.Limits()
	rule := limits.Outside()
	if err != nil || rule == nil {
		return
	}
	for _, s := range seen {
		u := quota.Use{PID: s.PID, Command: s.Command}
		stat, err := w.host.Proc.Stat(s.PID)
		if err != nil {
			continue
		}
		u.Start = stat.Start
		force := w.toldToEnd[s.PID] == u.Start
		n := measured{quota.Names{Lease: w.lease.ID}, r.machine, s.GPU}
		sure := func() bool { return w.isMeasured(n, u) }
		if !sure() || quotawatch.End(s.PID, force, sure) != nil {
			continue
		}
		w.toldToEnd[s.PID] = u.Start
		if !force {
			w.warn("told "+prose.ProgramName(s.Command)+" to end, which is on a device outside lease "+w.lease.ID+", as "+rule.String()+" says", nil)
		}
	}
}

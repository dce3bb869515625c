// Package proof decides whether a job runs on the devices that it was promised, from three witnesses: the environment
// it was started with, the driver's list of processes, and what the job's own framework reports. It must not read a
// clock, a process or the driver; the caller does that:
//
//	f := verify.Judge(verify.Facts{PID: pid, Machine: m, Promised: ids, Sightings: seen})
//	fmt.Println(f.Line())
//
// The order of weight: a process outside its lease comes first, because it harms others; then a process on a device
// that its environment does not show; then the proof, for which any sighting suffices if all are inside. Only without
// any sighting do the reasons for that count: the list cannot be read, the framework cannot use a GPU, the environment
// shows none, the job came to its own end, or it has worked on the CPU for all of Patience.
//
// A guess makes no accusation: if the reading of the environment is a guess, a device outside it is not a wrong one.
package proof

import (
	"cmp"
	"slices"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/option"
)

// Verdict is the result in one word. The words are part of the JSON output: add, never rename.
type Verdict string

// Verdicts.
const (
	Proven       Verdict = "proven"
	WrongDevice  Verdict = "wrong-device"
	OutsideLease Verdict = "outside-lease"
	CPU          Verdict = "cpu"
	// Of a job in its first minute alone.
	Partly        Verdict = "partly-used"
	TooEarly      Verdict = "too-early"
	NotMeasurable Verdict = "not-measurable"
)

// Words is the verdict for users.
func (v Verdict) Words() string {
	switch v {
	case WrongDevice:
		return "wrong device"
	case OutsideLease:
		return "outside the lease"
	case CPU:
		return "not on any GPU (CPU fallback)"
	case Partly:
		return "not on all of its GPUs"
	case TooEarly:
		return "too early to say"
	case NotMeasurable:
		return "not measurable"
	}
	return string(v)
}

// Bad reports whether the job certainly is not where it should be.
func (v Verdict) Bad() bool { return v == WrongDevice || v == OutsideLease || v == CPU }

// Finding is the result.
type Finding struct {
	Verdict Verdict `json:"verdict"`
	// Process, device, memory and variable, in one sentence.
	Text string `json:"text"`
	// What to type or change; "" when nothing is wrong.
	Remedy string `json:"remedy"`
	// Further facts, one sentence each; never nil.
	Notes []string `json:"notes"`
}

// Line is verdict and sentence on one line.
func (f Finding) Line() string { return f.Verdict.Words() + ": " + f.Text }

// Facts are what is known of one job so far.
type Facts struct {
	PID     int
	Command string // base name
	// The devices, for their names.
	Machine gpu.Machine

	// Devices that the environment at its start shows.
	Promised []gpu.UUID
	// What it shows to programs of the vendor's other runtime, which obeys other variables.
	Besides []gpu.UUID
	// Variable and value that decide Promised ("CUDA_VISIBLE_DEVICES=2"); "" when none is set.
	Mask string
	// Why Promised is a guess; "" when it is certain.
	Doubt string
	// Why the environment could not be read; "" when it was.
	Unread string
	// What to do about that; "" for running verify as its owner or as root.
	Reading string
	// Id; "" without a lease.
	Lease string
	// nil without a lease.
	Leased []gpu.UUID

	// Who else has a lease on a device, by name; nil where nobody looked.
	Holders map[gpu.UUID]string

	// What the driver has shown of any process of the job.
	Sightings []Sighting
	// Why the driver's list of processes could not be read; "" when it was.
	Unlisted string
	// What to do about that; "" where unknown.
	Mend string
	// How often that list was read while the job ran.
	Looks int

	Frameworks []Framework
	// Files mapped into the job's processes.
	Libraries []string

	// The age of the job's first process.
	Age     time.Duration
	Watched time.Duration
	// Used by all its processes while they were watched.
	CPUTime time.Duration
	// How long to watch before "never seen" means something.
	Patience time.Duration
	// None of its processes is alive.
	Ended bool
	// That ended its first process, or was sent to it by the caller ("SIGINT"); "" without one.
	Signal string
	// How its first process ended is unknown.
	Unheard bool
	// Surprises in reading the environment.
	Notes []string
}

// Sighting is one process on one device in the driver's list.
type Sighting struct {
	PID     int
	Command string // base name
	GPU     gpu.UUID
	// The most memory seen; nil when the driver does not say.
	Peak *gpu.Bytes
	Kind gpu.Kind
	// The time of the first sighting since the start of watching.
	First time.Duration
	Last  time.Duration
	// Nobody may be told to end it: it may serve a display.
	Spared bool
	// Id of another lease than the job's that the process is in, as of gpuard run in a script; "" without one.
	Lease  string
	Leased []gpu.UUID // its devices
}

// blindWait is how long a job whose environment shows no GPU is watched: a script may set the variable itself.
const blindWait = 2 * time.Second

// minLooks is how often the list must have been read before a job that has ended was certainly on no device.
const minLooks = 2

// Judge weighs the facts. TooEarly and NotMeasurable may become another verdict with more facts; the others stay.
func Judge(f Facts) Finding {
	out := Finding{Notes: f.witnessNotes()}
	outside := f.Outside()
	wrong := f.filterSightings(func(s Sighting) bool {
		return s.Lease == "" && f.Unread == "" && !f.isAmong(f.Promised, s.GPU) && !f.isAmong(f.Besides, s.GPU)
	})

	switch {
	case len(outside) > 0:
		out.Verdict, out.Text, out.Remedy = OutsideLease, f.outsideText(outside), f.elsewhereRemedy(outside)
	case len(wrong) > 0 && f.Doubt != "" && f.Leased == nil:
		out.Verdict, out.Text, out.Remedy = NotMeasurable, f.doubtText(wrong), f.doubtRemedy()
	case len(wrong) > 0 && f.Doubt == "":
		out.Verdict, out.Text, out.Remedy = WrongDevice, f.wrongText(wrong), f.elsewhereRemedy(wrong)
	case len(f.Sightings) > 0 && f.Unread != "" && f.Leased == nil:
		out.Verdict, out.Text, out.Remedy = NotMeasurable, f.unreadText(), f.unreadRemedy()
	case len(f.Sightings) > 0:
		out.Verdict, out.Text = Proven, f.seenText(f.Sightings)
		out.Notes = append(out.Notes, f.unusedNotes()...)
	case f.Unlisted != "":
		out.Verdict, out.Text = NotMeasurable, f.jobText()+" cannot be looked for on the GPUs: "+f.Unlisted
		out.Remedy = cmp.Or(f.Mend, option.Expand("{gpuard status} shows what the driver answers"))
	default:
		out.Verdict, out.Text, out.Remedy = f.judgeUnseen()
	}

	return out
}

// Outside are the sightings on devices that are not in the lease of the process.
func (f *Facts) Outside() []Sighting {
	return f.filterSightings(func(s Sighting) bool {
		if s.Lease != "" {
			return !f.isAmong(s.Leased, s.GPU)
		}
		return f.Leased != nil && !f.isAmong(f.Leased, s.GPU)
	})
}

// judgeUnseen judges a job that the driver never listed.
func (f *Facts) judgeUnseen() (Verdict, string, string) {
	none := f.hopelessFramework()
	blind := f.Unread == "" && f.Doubt == "" && len(f.Promised)+len(f.Besides) == 0
	switch {
	case none != nil && (!blind || none.Built == cpuBuild):
		return CPU, f.jobText() + ": " + none.inabilityText(), none.inabilityRemedy()
	case f.Ended && f.Looks < minLooks:
		return TooEarly, f.tooShortText(), "verify a command that runs longer"
	case blind && (f.Ended && !f.wasCutShort() || none != nil || f.Watched >= min(blindWait, f.Patience)):
		return CPU, f.blindText(), f.blindRemedy()
	case f.Ended && !f.wasCutShort():
		return CPU, f.endedText(), f.cpuRemedy()
	case f.Watched >= f.Patience && f.isBusy():
		return CPU, f.neverText(), f.cpuRemedy()
	case f.Ended:
		return TooEarly, f.cutText(), f.cutRemedy()
	}

	return TooEarly, f.tooEarlyText(), f.tooEarlyRemedy()
}

// wasCutShort reports whether a signal ended the job early, or may have: it might have used a GPU later.
func (f *Facts) wasCutShort() bool { return f.Signal != "" || f.Unheard }

// isBusy reports whether the job used at least a tenth of a CPU. A job that waits for input or a download may not have
// reached its GPU work.
func (f *Facts) isBusy() bool { return f.CPUTime > 0 && f.CPUTime >= f.Watched/10 }

// hopelessFramework returns a framework that cannot use a GPU, if no framework of the job can or might.
func (f *Facts) hopelessFramework() *Framework {
	var none *Framework
	for i := range f.Frameworks {
		if f.Frameworks[i].GPU != No {
			return nil
		}
		if none == nil {
			none = &f.Frameworks[i]
		}
	}
	return none
}

func (f *Facts) filterSightings(which func(Sighting) bool) []Sighting {
	var out []Sighting
	for _, s := range f.Sightings {
		if which(s) {
			out = append(out, s)
		}
	}
	return out
}

// isAmong reports whether a device belongs to the list. A slice matches its GPU in the list, and a split GPU matches
// its slice in the list: the driver may name either.
func (f *Facts) isAmong(list []gpu.UUID, id gpu.UUID) bool {
	if slices.Contains(list, id) {
		return true
	}
	d, slice, ok := f.Machine.FindDevice(id)
	switch {
	case !ok:
		return false
	case slice != nil:
		return slices.Contains(list, d.UUID)
	}

	return slices.ContainsFunc(d.MIG, func(s gpu.MIGDevice) bool { return slices.Contains(list, s.UUID) })
}

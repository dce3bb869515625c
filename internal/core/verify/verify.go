// Package verify says whether a job is on the devices that it was promised. Three witnesses are weighed: the environment
// it was started with, the driver's list of processes, and what the job's own framework reports. Judge reads no clock, no
// process and no driver; whoever calls it brings the facts.
//
// The order of weight: a process outside its lease harms others, so it is told first; then a process on a device that its
// environment does not show; then the proof, for which any sighting will do as long as all are inside. Only when nothing was
// seen anywhere do the reasons for that count: the list cannot be read, its framework cannot use a GPU, its environment shows
// none, it came to its own end, or it has worked on the CPU for as long as one cared to wait.
//
// A guess accuses nobody: where reading the environment is one, a device beside it is not a wrong one.
package verify

import (
	"slices"
	"time"

	"gpuard/internal/core/gpu"
)

// Verdict is one word for the answer. The words are part of the JSON output: add, never rename.
type Verdict string

// Verdicts.
const (
	Proven        Verdict = "proven"
	WrongDevice   Verdict = "wrong-device"
	OutsideLease  Verdict = "outside-lease"
	CPU           Verdict = "cpu"
	TooEarly      Verdict = "too-early"
	NotMeasurable Verdict = "not-measurable"
)

// Words is the verdict as people read it.
func (v Verdict) Words() string {
	switch v {
	case WrongDevice:
		return "wrong device"
	case OutsideLease:
		return "outside the lease"
	case CPU:
		return "not on any GPU (CPU fallback)"
	case TooEarly:
		return "too early to say"
	case NotMeasurable:
		return "not measurable"
	}
	return string(v)
}

// Bad reports whether the job certainly is not where it should be.
func (v Verdict) Bad() bool { return v == WrongDevice || v == OutsideLease || v == CPU }

// Finding is the answer.
type Finding struct {
	Verdict Verdict  `json:"verdict"`
	Text    string   `json:"text"`   // process, device, memory and variable, in one sentence
	Remedy  string   `json:"remedy"` // what to type or change; "" when all is well
	Notes   []string `json:"notes"`  // what else is worth knowing, one sentence each; never nil
}

// Line is verdict and sentence on one line.
func (f Finding) Line() string { return f.Verdict.Words() + ": " + f.Text }

// Facts are what the witnesses said about one job so far.
type Facts struct {
	PID     int
	Command string      // base name
	Machine gpu.Machine // the devices, for their names

	Promised []gpu.UUID // what the environment at its start shows
	Besides  []gpu.UUID // what it shows to programs of the vendor's other runtime, which obeys other variables
	Mask     string     // variable and value that decided that ("CUDA_VISIBLE_DEVICES=2"); "" when none is set
	Doubt    string     // why Promised is a guess; "" when it is certain
	Unread   string     // why the environment could not be read; "" when it was
	Reading  string     // what to do about that; "" for asking as its owner or as root
	Lease    string     // id; "" without a lease
	Leased   []gpu.UUID // nil without a lease

	Sightings []Sighting // by the driver, of any process of the job
	Unlisted  string     // why the driver's list of processes could not be read; "" when it was
	Mend      string     // what to do about that; "" where nobody knows
	Looks     int        // how often that list was read while the job ran

	Frameworks []Framework
	Libraries  []string // files mapped into the job's processes

	Age      time.Duration // of the job's first process
	Watched  time.Duration
	CPUTime  time.Duration // used by all its processes while they were watched
	Patience time.Duration // how long to watch before "never seen" means something
	Ended    bool          // none of its processes is alive
	Signal   string        // that ended its first process, or was sent to it by whoever waited ("SIGINT"); "" without one
	Unheard  bool          // nobody knows how its first process ended
	Notes    []string      // surprises in reading the environment
}

// Sighting is one process on one device, as the driver listed it.
type Sighting struct {
	PID     int
	Command string // base name
	GPU     gpu.UUID
	Peak    *gpu.Bytes // the most memory seen; nil when the driver does not say
	Kind    gpu.Kind
	First   time.Duration // since the watching began
	Last    time.Duration
}

// blindWait is how long a job whose environment shows no GPU is watched all the same: a script may set the variable itself.
const blindWait = 2 * time.Second

// looksNeeded is how often the list must have been read before a job that has ended was certainly on no device.
const looksNeeded = 2

// Judge weighs the facts. TooEarly and NotMeasurable may become another verdict with more facts; the others stay.
func Judge(f Facts) Finding {
	out := Finding{Notes: f.notes()}
	outside := f.sightings(func(s Sighting) bool { return f.Leased != nil && !f.inside(f.Leased, s.GPU) })
	wrong := f.sightings(func(s Sighting) bool {
		return f.Unread == "" && !f.inside(f.Promised, s.GPU) && !f.inside(f.Besides, s.GPU)
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
		out.Notes = append(out.Notes, f.unused()...)
	case f.Unlisted != "":
		out.Verdict, out.Text = NotMeasurable, f.job()+" cannot be looked for on the GPUs: "+f.Unlisted
		if out.Remedy = f.Mend; out.Remedy == "" {
			out.Remedy = "gpuard status shows what the driver answers"
		}
	default:
		out.Verdict, out.Text, out.Remedy = f.unseen()
	}
	return out
}

// unseen judges a job that the driver never listed.
func (f *Facts) unseen() (Verdict, string, string) {
	none := f.hopeless()
	blind := f.Unread == "" && f.Doubt == "" && len(f.Promised)+len(f.Besides) == 0
	switch {
	case none != nil && (!blind || none.Built == cpuBuild):
		return CPU, f.job() + ": " + none.inability(), none.remedy()
	case f.Ended && f.Looks < looksNeeded:
		return TooEarly, f.tooShortText(), "verify a command that runs longer"
	case blind && (f.Ended && !f.cut() || none != nil || f.Watched >= min(blindWait, f.Patience)):
		return CPU, f.blindText(), f.blindRemedy()
	case f.Ended && !f.cut():
		return CPU, f.endedText(), f.cpuRemedy()
	case f.Watched >= f.Patience && f.busy():
		return CPU, f.neverText(), f.cpuRemedy()
	case f.Ended:
		return TooEarly, f.cutText(), f.cutRemedy()
	}
	return TooEarly, f.tooEarlyText(), f.tooEarlyRemedy()
}

// cut: a signal kept it from coming to its own end, or may have. What it would have done later is not known.
func (f *Facts) cut() bool { return f.Signal != "" || f.Unheard }

// busy: it used at least a tenth of a CPU. A job that waits for input or for a download says nothing by being nowhere.
func (f *Facts) busy() bool { return f.CPUTime > 0 && f.CPUTime >= f.Watched/10 }

// hopeless is a framework that cannot use a GPU, when none of the job's frameworks can or might.
func (f *Facts) hopeless() *Framework {
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

func (f *Facts) sightings(which func(Sighting) bool) []Sighting {
	var out []Sighting
	for _, s := range f.Sightings {
		if which(s) {
			out = append(out, s)
		}
	}
	return out
}

// inside reports whether a device belongs to the list. The driver may name a slice where the list has its GPU, and a split
// GPU where the list has a slice: the two cannot be told apart then.
func (f *Facts) inside(list []gpu.UUID, id gpu.UUID) bool {
	if slices.Contains(list, id) {
		return true
	}
	d, slice, ok := f.Machine.Find(id)
	switch {
	case !ok:
		return false
	case slice != nil:
		return slices.Contains(list, d.UUID)
	}
	return slices.ContainsFunc(d.MIG, func(s gpu.MIGDevice) bool { return slices.Contains(list, s.UUID) })
}

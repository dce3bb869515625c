package proof

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
)

// maxNamesInText is how many devices or processes one sentence names.
const maxNamesInText = 8

// jobText names what is verified: "python (process 42)".
func (f *Facts) jobText() string { return processText(f.Command, f.PID) }

func processText(command string, pid int) string {
	if command == "" {
		return fmt.Sprintf("process %d", pid)
	}
	return fmt.Sprintf("%s (process %d)", command, pid)
}

// Device names one device for users: "GPU 2 (NVIDIA A100-SXM4-80GB, GPU-…)".
func (f *Facts) Device(id gpu.UUID) string {
	d, slice, ok := f.Machine.FindDevice(id)
	switch {
	case !ok:
		return f.briefDevice(id)
	case slice != nil:
		return fmt.Sprintf("MIG %s of %s (%s, %s)", slice.Profile, f.deviceNumber(d), d.Name, slice.UUID)
	}
	return fmt.Sprintf("%s (%s, %s)", f.deviceNumber(d), d.Name, d.UUID)
}

// briefDevice leaves out the model, and the identifier where a number suffices: "GPU 2".
func (f *Facts) briefDevice(id gpu.UUID) string {
	d, slice, ok := f.Machine.FindDevice(id)
	switch {
	case !ok:
		return fmt.Sprintf("a device that is not listed (%s)", id)
	case slice != nil:
		return fmt.Sprintf("MIG %s of %s (%s)", slice.Profile, f.deviceNumber(d), slice.UUID)
	}
	return f.deviceNumber(d)
}

func (f *Facts) deviceNumber(d *gpu.Device) string {
	if slices.ContainsFunc(f.Machine.Devices, func(o gpu.Device) bool { return o.Vendor != d.Vendor }) {
		return fmt.Sprintf("GPU %s:%d", d.Vendor, d.Index)
	}
	return fmt.Sprintf("GPU %d", d.Index)
}

// devicesText names a list. A single device is named in full, several by numbers, because the sentence is one line of a
// log.
func (f *Facts) devicesText(ids []gpu.UUID) string {
	if len(ids) == 1 {
		return f.Device(ids[0])
	}
	var names []string
	for i, id := range ids {
		if i == maxNamesInText {
			names = append(names, fmt.Sprintf("%d more", len(ids)-maxNamesInText))
			break
		}
		names = append(names, f.briefDevice(id))
	}

	return prose.JoinWords(names, "and")
}

// seenText says which process is on which device: "python (process 42) is on GPU 2 (…), 3.1 GiB".
func (f *Facts) seenText(list []Sighting) string {
	verb := "is"
	if f.Ended {
		verb = "was"
	}

	var parts []string
	for i, s := range list {
		if i == maxNamesInText {
			parts = append(parts, fmt.Sprintf("%d more", len(list)-maxNamesInText))
			break
		}
		place := " on " + f.Device(s.GPU) + amountText(s)
		if i > 0 && list[i-1].PID == s.PID {
			parts = append(parts, "and"+place)
			continue
		}
		parts = append(parts, processText(s.Command, s.PID)+" "+verb+place)
	}

	return strings.Join(parts, ", ")
}

func amountText(s Sighting) string {
	text := ""
	if s.Peak != nil {
		text = ", " + s.Peak.String()
	}
	if s.Kind == gpu.GraphicsProcess {
		text += ", for graphics"
	}

	return text
}

func (f *Facts) outsideText(list []Sighting) string {
	id, leased, has := f.Lease, f.Leased, "no GPU"
	if list[0].Lease != "" {
		id, leased = list[0].Lease, list[0].Leased
	}

	if len(leased) > 0 {
		has = f.devicesText(leased)
	}

	list = slices.DeleteFunc(slices.Clone(list), func(s Sighting) bool { return s.Lease != list[0].Lease })
	if holder := f.Holders[list[0].GPU]; holder != "" && len(list) == 1 {
		return fmt.Sprintf("%s, which %s has: lease %s has %s", f.seenText(list), holder, id, has)
	}

	return fmt.Sprintf("%s, which is not in lease %s: it has %s", f.seenText(list), id, has)
}

func (f *Facts) wrongText(list []Sighting) string {
	seen := f.seenText(list)
	switch {
	case len(f.Promised) == 0 && f.Mask != "":
		return fmt.Sprintf("%s, and its environment shows it no GPU (%s)", seen, f.Mask)
	case len(f.Promised) == 0:
		return seen + ", and its environment shows it no GPU"
	case f.Mask == "":
		return fmt.Sprintf("%s, and without a variable a program sees only %s", seen, f.devicesText(f.Promised))
	}
	return fmt.Sprintf("%s, and its environment (%s) shows it only %s", seen, f.Mask, f.devicesText(f.Promised))
}

// elsewhereRemedy: a process on a device that was not shown to it has changed the variable, or bypasses it.
func (f *Facts) elsewhereRemedy(list []Sighting) string {
	pids := []string{}
	for _, s := range list {
		if pid := fmt.Sprint(s.PID); !s.Spared && !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}

	variable, _, _ := strings.Cut(f.Mask, "=")
	if variable == "" {
		variable = "CUDA_VISIBLE_DEVICES"
	}

	why := "find the place in the program or its scripts that sets " + variable
	if !slices.ContainsFunc(list, func(s Sighting) bool { return s.Kind != gpu.GraphicsProcess }) {
		why = "it draws there, and " + variable + " has no say in graphics"
	}

	if f.Ended || len(pids) == 0 {
		return why
	}

	return fmt.Sprintf("%s; end it with: kill %s", why, strings.Join(pids[:min(len(pids), maxNamesInText)], " "))
}

func (f *Facts) unreadText() string {
	return fmt.Sprintf("%s, and what it was promised is not known: %s", f.seenText(f.Sightings), f.Unread)
}

func (f *Facts) unreadRemedy() string {
	if f.Reading != "" {
		return f.Reading
	}
	return option.Sprintf("ask as its owner or as root: sudo {gpuard verify} %d", f.PID)
}

// doubtText does not repeat f.Doubt, which is in the notes.
func (f *Facts) doubtText(list []Sighting) string {
	by := "its environment"
	if f.Mask != "" {
		by += " (" + f.Mask + ")"
	}

	guess := "none"
	if len(f.Promised) > 0 {
		guess = f.devicesText(f.Promised)
	}

	return fmt.Sprintf("%s, and which GPU %s shows it is a guess: most likely %s", f.seenText(list), by, guess)
}

func (f *Facts) doubtRemedy() string {
	return option.Expand("name GPUs by identifier, or set CUDA_DEVICE_ORDER=PCI_BUS_ID; {gpuard run} does, and its lease is certain")
}

// unusedNotes lists promised or leased devices that no process of the job is on.
func (f *Facts) unusedNotes() []string {
	list, source := f.Leased, "lease "+f.Lease
	if list == nil {
		if f.Mask == "" || f.Unread != "" || f.Doubt != "" {
			// A program without a mask need not use every device.
			return nil
		}
		list, source = f.Promised, f.Mask
	}

	idle := f.unusedOf(list)
	if len(idle) == 0 {
		return nil
	}

	return []string{fmt.Sprintf("%s of %s not used so far", f.devicesText(idle), source)}
}

func (f *Facts) tooShortText() string {
	return fmt.Sprintf("%s ended within %s, before it could be watched", f.jobText(), secondsText(f.Watched))
}

func (f *Facts) endedText() string {
	return fmt.Sprintf("%s ended after %s and was never seen on a GPU", f.jobText(), secondsText(max(f.Watched, f.Age)))
}

func (f *Facts) cutText() string {
	how := "ended, it is unknown how,"
	if f.Signal != "" {
		how = "was ended by signal (" + f.Signal + ")"
	}
	return fmt.Sprintf("%s %s after %s, and was on no GPU until then", f.jobText(), how, secondsText(max(f.Watched, f.Age)))
}

func (f *Facts) cutRemedy() string {
	if f.Signal != "" {
		return "let it run until it computes, and verify it then"
	}
	return option.Expand("{gpuard verify} -- COMMAND starts it itself, and knows how it ended")
}

func (f *Facts) blindText() string {
	if f.Mask == "" {
		return f.jobText() + " is on no GPU, and its environment shows it none"
	}
	return fmt.Sprintf("%s is on no GPU, and its environment shows it none: %s", f.jobText(), f.Mask)
}

func (f *Facts) blindRemedy() string {
	if f.Mask == "" {
		return option.Expand("{gpuard explain} says why")
	}
	if f.Lease != "" {
		return leaveVariableRemedy
	}
	return option.Sprintf("{gpuard explain} '%s' says why; {gpuard run} sets it for a GPU that is free", f.Mask)
}

func (f *Facts) neverText() string {
	return fmt.Sprintf("%s used %s of CPU time in %s and was never seen on a GPU", f.jobText(), secondsText(f.CPUTime), secondsText(f.Watched))
}

func (f *Facts) cpuRemedy() string {
	return "check that the program asks for a GPU (such as --device cuda) and that its framework is built for one"
}

func (f *Facts) tooEarlyText() string {
	return fmt.Sprintf("%s is on no GPU yet: started %s ago, watched for %s, %s of CPU time", f.jobText(), secondsText(f.Age), secondsText(f.Watched), secondsText(f.CPUTime))
}

func (f *Facts) tooEarlyRemedy() string {
	longer := max(4*f.Patience, 10*time.Second).Round(time.Second)
	return option.Sprintf("ask again when it computes, or wait longer: {gpuard verify} {for=%s} %d", shortDuration(longer), f.PID)
}

// shortDuration writes 2m0s as 2m and 1h0m0s as 1h.
func shortDuration(d time.Duration) string {
	text := d.String()
	for _, none := range []struct{ after, zero string }{{"m", "0s"}, {"h", "0m"}} {
		if short, ok := strings.CutSuffix(text, none.zero); ok && strings.HasSuffix(short, none.after) {
			text = short
		}
	}
	return text
}

func secondsText(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}

// witnessNotes are the reports of the other witnesses.
func (f *Facts) witnessNotes() []string {
	out := append([]string{}, f.Notes...)
	if f.Unread != "" && f.Leased != nil {
		out = append(out, f.Unread)
	}

	for i := range f.Frameworks {
		out = append(out, f.Frameworks[i].Sentence())
		if strange := f.disagreementNote(&f.Frameworks[i]); strange != "" {
			out = append(out, strange)
		}
	}

	if len(f.Libraries) > 0 && len(f.Sightings) == 0 {
		if used := gpuLibraries(f.Libraries); len(used) > 0 {
			out = append(out, "GPU libraries are loaded: "+strings.Join(used, ", "))
		} else {
			out = append(out, "no GPU library is loaded into it")
		}
	}

	return out
}

// disagreementNote notes that the framework, run in a new process with the same environment, sees devices that our
// reading of the environment does not show.
func (f *Facts) disagreementNote(w *Framework) string {
	if f.Unread != "" || f.Doubt != "" {
		return ""
	}
	for _, d := range w.Devices {
		if _, _, known := f.Machine.FindDevice(d.UUID); known && !f.isAmong(f.Promised, d.UUID) {
			return option.Sprintf("%s sees %s, which its environment does not show by gpuard's reading: {gpuard explain} {probe}", w.Name, f.Device(d.UUID))
		}
	}
	return ""
}

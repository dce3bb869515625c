package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/option"
)

func xidErrors() Check {
	return Check{Page{
		Code:  "xid-errors",
		Title: "The driver reported no error of a GPU (XID)",
		Text: option.Expand(`NVIDIA's driver writes an error of a GPU into the kernel's log as "NVRM: Xid (PCI:0000:05:00): 79, …". The number says what happened, and NVIDIA's
catalog what to do first. Doctor sorts them into four classes:

| class | meaning | what to do |
| --- | --- | --- |
| note | the driver's own note | nothing |
| program | a program did something wrong, or was hit by an error that was contained | start it again; if the same comes with other programs too, have the GPU checked |
| reset | the GPU is stuck | let its jobs end and reset it |
| machine | the GPU, its cables or its place in the machine are at fault | look at the machine; the administrator is needed |

Errors of the last two classes count until the machine is rebooted, the driver is loaded anew, or somebody says that it is mended
(` + "`{gpuard undrain}`" + `). A code that is not in NVIDIA's catalog counts as one of the machine. Many systems let only root read the kernel's log.`),
		From: []string{"https://docs.nvidia.com/deploy/xid-errors/", "leptonai/gpud: components/accelerator/nvidia/xid/catalog_generated.go"},
	}, false, checkXID}
}

// cardErrors are the errors of one card.
type cardErrors struct {
	name string
	// nil: no driver shows the card.
	device *gpu.Device
	xids   []gpu.XID
}

func checkXID(s hostinfo.Site) []Finding {
	const code = "xid-errors"
	if hasNoGPU(s) {
		return okFinding(code, "there is no GPU that could have errors")
	}

	var found []Finding
	for _, a := range errorsOf(s) {
		var seen []int
		for _, x := range a.xids {
			if slices.Contains(seen, x.Code) {
				continue
			}
			seen = append(seen, x.Code)
			if f, told := codeFinding(code, a, x.Code, s.Now); told {
				found = append(found, f)
			}
		}
	}

	slices.SortStableFunc(found, func(a, b Finding) int { return cmp.Compare(severityRank(b.Severity), severityRank(a.Severity)) })

	switch {
	case len(found) > 0:
		return found
	case s.Log.Problem != "" && nvidiaHere(s) && !s.Driver.Found.WSL:
		return unknownFinding(code, "the driver's errors", s.Log.Problem, "sudo dmesg | grep -i xid")
	}

	return okFinding(code, "the driver reported no error that matters")
}

// severityRank orders the severities of errors.
func severityRank(s Severity) int { return slices.Index([]Severity{Info, Warning, Error}, s) }

// errorsOf collects the errors of each card. The driver's reading has those of its devices; those of cards without a
// driver are only in the kernel log.
func errorsOf(s hostinfo.Site) []cardErrors {
	var all []cardErrors
	shown := map[string]bool{}
	if s.Machine.Problem == "" {
		for i := range s.Machine.Found.Devices {
			d := &s.Machine.Found.Devices[i]
			shown[pciWithoutFunction(d.PCI)] = true
			if len(d.XIDs) > 0 {
				all = append(all, cardErrors{deviceLabel(s.Machine.Found, *d), d, d.XIDs})
			}
		}
	}

	if s.Log.Problem != "" {
		return all
	}

	for _, e := range s.Log.Found {
		if shown[e.PCI] {
			continue
		}
		i := slices.IndexFunc(all, func(a cardErrors) bool { return a.device == nil && strings.HasSuffix(a.name, e.PCI) })
		if i < 0 {
			i = len(all)
			all = append(all, cardErrors{name: "the GPU at " + e.PCI})
		}
		all[i].xids = append(all[i].xids, e.XID)
	}

	return all
}

// pciWithoutFunction is a PCI address without its function, as the log writes it.
func pciWithoutFunction(pci string) string {
	address, _, _ := strings.Cut(pci, ".")
	return address
}

// Codes that need more than their class.
const (
	xidDoubleBit = 48
	xidPower     = 54
	xidLost      = 79
	xidContained = 94
	xidRecovery  = 154
)

// recentErrorAge is how long a contained memory error counts as a warning, as in the health of devices.
const recentErrorAge = 10 * time.Minute

// codeFinding makes the finding about all errors of one code on a card; false when there is nothing to report.
func codeFinding(code string, a cardErrors, number int, now time.Time) (Finding, bool) {
	var times int
	var last gpu.XID
	for _, x := range a.xids {
		if x.Code == number {
			times++
			if !x.At.Before(last.At) {
				last = x
			}
		}
	}

	class, meaning := health.ExplainXID(number)
	f := Finding{Code: code, Seen: fmt.Sprintf("%s reported XID %d%s: %s", a.name, number, occurrenceText(last, times), meaning)}
	switch {
	case class == health.Note, number == xidRecovery && a.device != nil && a.device.RecoveryAction != "":
		return f, false
	case number == xidContained && (last.At.IsZero() || now.Sub(last.At) < recentErrorAge):
		f.Severity, f.Why, f.Do = Warning, "The program that it hit is gone; gpuard gives the GPU no new job for a while.", "start the program again"
	case class == health.Fault:
		f.Severity, f.Why, f.Do = Info, "As a rule the program is to blame, and the GPU is fine.", "start the program again; if other programs meet the same, have the GPU checked"
	case class == health.Stuck:
		f.Severity, f.Why, f.Do = Error, "The GPU is stuck until it is reset; gpuard gives it no job.", a.resetAdvice()
	default:
		f.Severity, f.Why, f.Do = Error, "The machine is to blame and not a program; gpuard gives the GPU no job.", a.repairAdvice(number)
	}

	return f, true
}

func occurrenceText(last gpu.XID, times int) string {
	text := ""
	if times > 1 {
		text = fmt.Sprintf(" %d times", times)
	}

	if !last.At.IsZero() {
		if times > 1 {
			text += ", the last"
		}
		text += last.At.Format(" on 2 Jan at 15:04")
	}

	if last.PID > 0 {
		text += fmt.Sprintf(" (process %d)", last.PID)
	}

	return text
}

func (a cardErrors) resetAdvice() string {
	if a.device == nil {
		return "reboot the machine"
	}
	return resetAdvice(*a.device)
}

// repairAdvice is the first action in NVIDIA's catalog for a machine error.
func (a cardErrors) repairAdvice(number int) string {
	switch number {
	case xidLost:
		return "look at the card's seating, its power cables and the temperature, then reboot the machine"
	case xidPower:
		return "connect the card's auxiliary power cable"
	case xidDoubleBit:
		return a.resetAdvice()
	}
	return "see what NVIDIA says of it: https://docs.nvidia.com/deploy/xid-errors/; ask the administrator or the vendor of the machine"
}

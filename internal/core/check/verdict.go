package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/visible"
)

// Verdict is the summary of doctor.
type Verdict struct {
	// Whether GPU programs will run here; null when unknown.
	Runs *bool `json:"runs"`
	// The same in one sentence.
	Summary string `json:"summary"`
	// The one thing to do next; "" when there is nothing.
	Next string `json:"next"`
}

// Diagnosis is the whole result of doctor.
type Diagnosis struct {
	Verdict
	// The findings of every check that ran, causes before consequences; never nil.
	Findings []Finding     `json:"findings"`
	Site     hostinfo.Site `json:"-"`
}

// Grave are the findings that ask for something to be done, the gravest first.
func (d Diagnosis) Grave() (list []Finding) {
	for _, severity := range []Severity{Error, Warning, Info} {
		for _, f := range d.Findings {
			if f.Severity == severity {
				list = append(list, f)
			}
		}
	}
	return list
}

// Diagnose runs every check and judges the findings.
func Diagnose(s hostinfo.Site) Diagnosis {
	found := RunChecks(s)
	return Diagnosis{JudgeSite(s, found), found, s}
}

// JudgeSite makes the verdict from all findings of Site. The first error that stops all GPU programs decides, because
// causes come before consequences. Without one, the visible devices that may get work decide.
func JudgeSite(s hostinfo.Site, findings []Finding) Verdict {
	return judgeFindings(s, findings, stopCodes())
}

// stopCodes are the codes of checks whose errors mean that no GPU program runs.
func stopCodes() (codes []string) {
	for _, c := range Checks() {
		if c.Stops {
			codes = append(codes, c.Code)
		}
	}
	return codes
}

func judgeFindings(s hostinfo.Site, findings []Finding, stops []string) Verdict {
	i := slices.IndexFunc(findings, func(f Finding) bool { return f.Severity == Error && slices.Contains(stops, f.Code) })
	worst := worstFinding(findings)
	unfit := unfitReason(s, findings)
	m := s.Machine
	here := map[string]string{"file": "on the recorded machine", "invented": "on the invented machine"}[m.Found.Source]
	will, willNot := "GPU programs will run "+cmp.Or(here, "here"), "GPU programs will not run "+cmp.Or(here, "here")
	switch {
	case i >= 0:
		return Verdict{new(false), willNot + ": " + findings[i].Seen, findings[i].Do}
	case m.Problem != "" && hasNoCard(s), m.Problem == "" && len(m.Found.Devices) == 0:
		return Verdict{new(false), willNot + ": this machine has no GPU that gpuard knows", option.Expand("use a machine with a GPU, or run on the CPU: {gpuard run} {cpu} -- COMMAND")}
	case m.Problem != "" && s.Driver.Found.Tegra:
		return Verdict{nil, "cannot tell whether GPU programs will run here: " + jetsonReason, option.Expand("ask the frameworks: {gpuard doctor} {run}")}
	case m.Problem != "":
		return Verdict{nil, "cannot tell whether GPU programs will run here: " + m.Problem, cmp.Or(readingAdvice(findings), m.Do, worst.Do)}
	case !slices.ContainsFunc(m.Found.Devices, isAnswering):
		return Verdict{new(false), willNot + ": " + m.Found.Devices[0].Problem, worst.Do}
	case unfit != nil:
		return Verdict{new(false), willNot + ": " + unfit.Seen, unfit.Do}
	case worst.Severity == Error:
		return Verdict{new(true), fmt.Sprintf("%s (%s), but not every one: %s", will, devicesText(s), worst.Seen), worst.Do}
	}

	if i := slices.IndexFunc(findings, isOnCPU); i >= 0 {
		return Verdict{new(true), fmt.Sprintf("%s (%s), but not every one: %s", will, devicesText(s), findings[i].Seen), findings[i].Do}
	}

	return Verdict{new(true), will + ": " + devicesText(s), worst.Do}
}

// isOnCPU reports whether a finding says that a library of an environment in use works on the CPU alone, or fails on a
// GPU.
func isOnCPU(f Finding) bool {
	return f.Severity == Warning && slices.Contains([]string{"torch-build", "onnxruntime-build", "jax-build", "tensorflow-build", "tensorflow-libraries", "llama-cpp-build", "ctranslate2-libraries", "driver-age"}, f.Code)
}

// unfitReason is why no program runs when each device that answers and is not hidden must not get work; nil where one
// may. Findings below an error do not keep programs from running.
func unfitReason(s hostinfo.Site, findings []Finding) *Finding {
	m := s.Machine.Found
	hidden, _ := visible.HiddenDevices(s.Env, m)
	var sick []gpu.Device
	for _, d := range m.Devices {
		if _, out := hidden[d.UUID]; out || !isAnswering(d) {
			continue
		}
		if state, _ := health.StateOf(d, s.Now); state != health.Unhealthy {
			return nil
		}
		sick = append(sick, d)
	}

	reasons := []Check{recoveryAction(), xidErrors(), remappedRows()}
	i := slices.IndexFunc(findings, func(f Finding) bool {
		return f.Severity == Error && slices.ContainsFunc(reasons, func(c Check) bool { return c.Code == f.Code })
	})

	if len(sick) == 0 || i < 0 {
		return nil
	}

	f := findings[i]
	if slices.Contains(health.Cures(sick[0], s.Now), health.Confirm) {
		// A reset does not remove an error from the list.
		f.Do += option.Sprintf("; where that is done already: sudo {gpuard undrain} %s", strings.TrimPrefix(deviceLabel(m, sick[0]), "GPU "))
	}

	return &f
}

// worstFinding is the first of the worst findings that need action: warnings and errors.
func worstFinding(findings []Finding) (w Finding) {
	for _, s := range []Severity{Error, Warning} {
		if i := slices.IndexFunc(findings, func(f Finding) bool { return f.Severity == s }); i >= 0 {
			return findings[i]
		}
	}
	return Finding{}
}

// readingAdvice is the advice of the finding that explains why a machine cannot be read. Only checks of drivers and
// devices count: Python environments do not matter yet.
func readingAdvice(findings []Finding) string {
	near := slices.Concat(driverChecks(), deviceChecks())
	return worstFinding(slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool {
		return f.Severity != Error || !slices.ContainsFunc(near, func(c Check) bool { return c.Code == f.Code })
	})).Do
}

// hasNoCard reports whether the PCI bus shows no card of a supported vendor. Under WSL no GPU is on it.
func hasNoCard(s hostinfo.Site) bool {
	const nvidia, amd = 0x10de, 0x1002
	return !s.Driver.Found.WSL && !s.Driver.Found.Tegra && s.Driver.Found.Module == "" && s.Cards.Problem == "" && !slices.ContainsFunc(s.Cards.Found, func(c hostinfo.Card) bool { return c.Vendor == nvidia || c.Vendor == amd })
}

// isAnswering reports whether the driver reads the device.
func isAnswering(d gpu.Device) bool { return d.Problem == "" }

// devicesText counts by model the devices that answer and are not hidden: "2 NVIDIA A100-SXM4-80GB and 1 NVIDIA L4,
// driver
// 550.54.15".
func devicesText(s hostinfo.Site) string {
	m := s.Machine.Found
	hidden, _ := visible.HiddenDevices(s.Env, m)
	var models, masks []string
	count, hides := map[string]int{}, map[string]int{}
	for _, d := range m.Devices {
		name := cmp.Or(d.Name, "GPU without a name")
		mask, out := hidden[d.UUID]
		switch {
		case !isAnswering(d):
		case out:
			mask = strings.TrimSuffix(mask, " it")
			if hides[mask] == 0 {
				masks = append(masks, mask)
			}
			hides[mask]++
		default:
			count[name]++
			if count[name] == 1 {
				models = append(models, name)
			}
		}
	}

	for i, name := range models {
		models[i] = fmt.Sprintf("%d %s", count[name], name)
	}

	text := prose.JoinWords(models, "and")
	if m.Driver != "" {
		text += ", driver " + m.Driver
	}

	for _, mask := range masks {
		text += fmt.Sprintf("; %s %d more", mask, hides[mask])
	}

	return text
}

package lint

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"gpuard/internal/core/check"
	"gpuard/internal/core/gpu"
)

// maskRule finds the faults of one code; why is the reason that is told.
func maskRule(code, why string) Rule {
	return Rule{Code: code, Look: func(file File) (all []Finding) {
		readers := newReaders(file)
		given := sync.OnceValue(func() int { return readBatchRequest(file).gpus })
		variables := map[string]bool{}
		if code == codeNoDevice && file.Kind == Shell {
			for _, s := range file.Steps {
				variables[s.Name] = variables[s.Name] || s.Do == Set
			}
		}

		eachKnownValue(file, func(s Step) {
			m, known := findListVariable(s.Name)
			if !known || isFromShell(file, s) && hasNoBreakSpace(s.Value) {
				// Of the latter there is a rule of its own.
				return
			}

			if isName(s.Value.Text) && variables[s.Value.Text] {
				all = append(all, valueFinding(s, assignmentText(s)+" is the word, not the value of the variable "+s.Value.Text, why, "write "+s.Name+"=$"+s.Value.Text, ""))
				return
			}

			f, wrong := m.findFault(s.Value.Text)
			if !wrong || f.code != code || file.Kind == Markdown && hasWord("gpu gpus any default", s.Value.Text) {
				// Or a page says what to write there.
				return
			}

			shows, bad := m.describeEffect(s.Value.Text)
			way := readers.findReader(s)
			if bad && way != readElsewhere {
				found := maskFinding(s, f, shows, why)
				asWord := code == codeNoDevice && s.Exported && readers.handed()[s.Name]
				hidden := f.hides && (namesCPU(file.Path) || namesCPU(s.In))
				if asWord || hidden || way == readPerhaps || code != codeNoDevice && readers.mayBeDealtOut(s) || code == codeSeparators && !readers.mayTakeSeveral() {
					found.Severity = check.Info
				}

				if s.Shell == 0 && isBeyond(given(), f.better) {
					found.Do, found.Edits = leftToBatch, nil
				}

				all = append(all, found)
			}
		})

		eachAssignment(file, func(s Step) {
			if m, known := findListVariable(s.Name); known && !s.Value.Known && s.Type == "" && m.openFault(s.Value) == code && readers.findReader(s) == readByProgram {
				all = append(all, openFinding(s, code, why))
			}
		})

		return all
	}}
}

// openFault is the code of what is wrong with a value of which a part is computed, where the rest tells: Python writes {}
// for that part, and a shell $N.
func (m listVariable) openFault(v Value) string {
	value := strings.Trim(v.Text, `"`)
	switch {
	case m.name != nvidiaVisibleDevices && (openRange().MatchString(value) || value == "{}-{}" && firstNumber().MatchString(v.Raw)):
		return codeRange
	case openSeparators().MatchString(value):
		return codeSeparators
	case openWord().MatchString(value), openList().MatchString(value):
		return codeNoDevice
	}
	return ""
}

var (
	openRange    = lazyRegexp(`^([0-9]{1,3},)*[0-9]{1,3}\s*-\s*(\{\}|\$(\{?\w+\}?|\(\(.*\)\)))$`)
	firstNumber  = lazyRegexp(`(?i)\b(start|first|begin|low|lo|min)\w*\b`)
	plainNumbers = lazyRegexp(`^\s*[0-9]{1,3}(,[0-9]{1,3})*\s*$`)
	openWord     = lazyRegexp(`^(cuda|gpu|GPU|hip|xpu|npu|device|cuda:|gpu:|GPU:|hip:|xpu:|npu:|device:)(\{\}|\$\{?\w+\}?)$`)
	// joined with something else than a comma
	openSeparators = lazyRegexp(`^\{\}([ ;|/:]|, ,)\{\}$`)
	openList       = lazyRegexp(`^\[\{\}(, ?\{\})*\]$`)
)

func openFinding(s Step, code, why string) Finding {
	do := "write the number alone"
	switch {
	case code == codeRange:
		do = "write the numbers with commas between them"
		if s.How != "export" && s.How != "prefix" && s.How != "assignment" {
			do += `: ",".join(map(str, range(n)))`
		}
	case code == codeSeparators:
		do = `write: ",".join`
	case strings.HasPrefix(strings.Trim(s.Value.Text, `"`), "["):
		do = `write: ",".join(map(str, the list))`
	}
	shown := strings.ReplaceAll(strings.Trim(s.Value.Text, `"`), "{}", "…")

	return valueFinding(s, s.Name+" is given the form "+quoteValue(shown), why, do, "")
}

func maskFinding(s Step, f fault, shows, why string) Finding {
	var severity check.Severity
	var do string

	switch {
	case f.hides && s.Name == nvidiaVisibleDevices:
		do = "to give the container no GPU, write " + nvidiaVisibleDevices + "=none"
	case f.hides:
		severity, do = check.Warning, "to hide every GPU, write "+s.Name+"=-1"
		if f.code == codeNoDevice {
			// It says so, and does.
			severity = check.Info
		}
	case f.better != "":
		do = "write " + s.Name + "=" + f.better
	case f.code == codeNoDevice && strings.EqualFold(strings.TrimSpace(s.Value.Text), "all"):
		do = "to use all GPUs, leave " + s.Name + " out"
	default:
		do = "write numbers with single commas between them, such as " + s.Name + "=0,1"
		if m, known := findListVariable(s.Name); known && m.vendor == gpu.NVIDIA {
			do += ", or identifiers of nvidia-smi -L"
		}
	}

	if f.code == codeMixed {
		do = "write numbers only, or identifiers only (nvidia-smi -L shows both)"
	}

	if f.code == codeShowsAll {
		do = "write the identifier of a MIG device as nvidia-smi -L prints it, or numbers"
		if len(s.Value.Text) >= minUnsetBytes {
			why, do = fmt.Sprintf("from %d bytes on drivers take it for unset", minUnsetBytes), "write numbers, or fewer devices"
		}
	}

	if f.code == codeDuplicate {
		do = "name each device once"
	}

	if before, _, commented := strings.Cut(s.Value.Text, "#"); commented && f.code == codeNoDevice && plainNumbers().MatchString(before) {
		severity, why, do = check.Info, "what stands behind the list is a part of the value, and no comment", "leave the comment out"
	}

	found := valueFinding(s, assignmentText(s)+" "+shows, why, do, f.better)
	found.Severity = severity

	return found
}

// namesCPU reports whether a file or a service is called after the CPU, so that no GPU is to be seen there.
func namesCPU(name string) bool { return strings.Contains(strings.ToLower(path.Base(name)), "cpu") }

// leftToBatch is the advice for a list that would name devices which a batch job was not given.
const leftToBatch = "leave it out: the batch system gives the job its GPUs, and counts them from 0"

// isBeyond reports whether a list names a device beyond those that a batch job asks for; 0 is not known.
func isBeyond(given int, list string) bool {
	return given > 0 && slices.ContainsFunc(deviceNumbers(Value{Text: list, Known: true}), func(n int) bool { return n >= given })
}

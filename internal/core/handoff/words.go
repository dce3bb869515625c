package handoff

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/visible"
)

// maxArgBytes is the most that a program can be given as one argument or variable (execve(2), MAX_ARG_STRLEN).
const maxArgBytes = 128<<10 - 1

func lacksCommand(w *Work) bool { return len(w.Spec.Command) == 0 || w.Spec.Command[0] == "" }
func lacksImage(w *Work) bool   { return w.Image == "" }
func isRelativeFolder(w *Work) bool {
	return !strings.HasPrefix(w.Folder, "/") || strings.Contains(w.Folder, "\x00")
}
func hasOddName(w *Work) bool     { return hostLabel(w.Spec.Name) != w.Spec.Name }
func isModelPattern(w *Work) bool { return strings.ContainsAny(w.Spec.Model, "*?") }

// isNotText reports what is not text: a manifest can only hold UTF-8, and the kernel no NUL.
func isNotText(text string) bool { return !utf8.ValidString(text) || strings.Contains(text, "\x00") }

func hasUnspeakableWord(w *Work) bool {
	return slices.ContainsFunc(w.Spec.Command, func(word string) bool { return strings.Contains(word, "\x00") || len(word) > maxArgBytes })
}

func hasOddCommand(w *Work) bool {
	return hasUnspeakableWord(w) || slices.ContainsFunc(w.Spec.Command, isNotText)
}

func hasOddImage(w *Work) bool {
	return isNotText(w.Image) || strings.ContainsFunc(w.Image, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) })
}

func hasOddAfter(w *Work) bool {
	return slices.ContainsFunc(w.After, func(a After) bool { return a.ID == "" || strings.Trim(a.ID, "0123456789_") != "" })
}

// hasOddLog reports a path that a directive cannot hold: Slurm reads backslashes, quotes and blanks there, and fills in
// what begins with %, of which %a means the same as here.
func hasOddLog(w *Work) bool {
	path := w.Care.Log
	if len(w.Array.Tasks) > 0 {
		path = strings.ReplaceAll(path, "%a", "")
	}
	return !strings.HasPrefix(path, "/") || directiveWord(path) != path || strings.Contains(path, "%")
}

// choosesDevices reports a variable that chooses devices. CUDA_DEVICE_ORDER and DEV may be the owner's.
func choosesDevices(w *Work) bool {
	return slices.ContainsFunc(w.Env, func(v Variable) bool {
		return v.Name != "CUDA_DEVICE_ORDER" && v.Name != "DEV" && slices.Contains(visible.Variables(), v.Name)
	})
}

// hasBadVariable reports names that export does not take, or that bash gives another value (bash(1), Shell Variables).
func hasBadVariable(w *Work) bool {
	good := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	of := regexp.MustCompile(`^(_|BASH|BASHOPTS|BASHPID|BASH_(ALIASES|ARGC|ARGV|ARGV0|CMDS|COMMAND|EXECUTION_STRING|LINENO|LOADABLES_PATH|MONOSECONDS|REMATCH|SOURCE|SUBSHELL|TRAPSIG|VERSINFO|VERSION)|COMP_.*|COPROC|DIRSTACK|EPOCHREALTIME|EPOCHSECONDS|EUID|FUNCNAME|GROUPS|HISTCMD|LINENO|OLDPWD|OPTIND|PIPESTATUS|PPID|PWD|RANDOM|SECONDS|SHELLOPTS|SHLVL|SRANDOM|UID)$`)
	known := map[string]bool{}

	return slices.ContainsFunc(w.Env, func(v Variable) bool {
		twice := known[v.Name]
		known[v.Name] = true
		return twice || !good.MatchString(v.Name) || of.MatchString(v.Name)
	})
}

func hasBadValue(w *Work) bool {
	return slices.ContainsFunc(w.Env, func(v Variable) bool { return isNotText(v.Value) || len(v.Name)+1+len(v.Value) > maxArgBytes })
}

func allMatch(list []string, is func(string) bool) bool {
	return !slices.ContainsFunc(list, func(one string) bool { return !is(one) })
}

const uuidPattern = `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`

func isWholeUUID(name string) bool {
	return regexp.MustCompile(`^GPU-` + uuidPattern).MatchString(name)
}

func isDeviceID(name string) bool {
	return regexp.MustCompile(`^(0|[1-9][0-9]{0,3})$|^(GPU|MIG)-` + uuidPattern).MatchString(name)
}

// hasOddProfile reports what is no profile of a MIG slice, such as 1g.10gb, 1g.10gb+me or 1c.3g.40gb.
func hasOddProfile(w *Work) bool {
	return !regexp.MustCompile(`^([1-9]c\.)?[1-9]g\.[0-9]+gb([+-][a-z0-9.]+)?$`).MatchString(w.Spec.MIG)
}

// globRegexp is a pattern of --model as a regular expression (RE2) of the whole name, in which case is ignored.
func globRegexp(glob string) string {
	quoted := regexp.QuoteMeta(glob)
	return "(?is)^" + strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(quoted) + "$"
}

// gresTypes are the gres types of the models that match, each once.
func gresTypes(w *Work, site policy.Slurm) []string {
	model := regexp.MustCompile(globRegexp(w.Spec.Model))
	found := map[string]bool{}
	for name, kind := range site.Types {
		if model.MatchString(name) {
			found[kind] = true
		}
	}

	return slices.Sorted(maps.Keys(found))
}

// memoryFeatures are those of nodes whose GPUs are large enough, the smallest first.
func memoryFeatures(w *Work, site policy.Slurm) []string {
	var found []string
	for name, size := range site.Features {
		if size >= w.Spec.Memory {
			found = append(found, name)
		}
	}
	slices.SortFunc(found, func(a, b string) int {
		return cmp.Or(cmp.Compare(site.Features[a], site.Features[b]), cmp.Compare(a, b))
	})

	return found
}

// findRoomyType is the gres type of the smallest models of slurm.types that have the memory by their names, such as
// NVIDIA A100-SXM4-80GB; a type that may also be a smaller model is none. "" where a model is asked for, or none has
// it.
func findRoomyType(w *Work, site policy.Slurm) string {
	if w.Spec.Model != "" || w.Spec.MIG != "" {
		return ""
	}

	// Of each type, the memory of its smallest model.
	least := map[string]gpu.Bytes{}
	for name, kind := range site.Types {
		if size, known := least[kind]; !known || readMemory(name) < size {
			least[kind] = readMemory(name)
		}
	}

	found := ""
	for _, kind := range slices.Sorted(maps.Keys(least)) {
		if least[kind] >= w.Spec.Memory && (found == "" || least[kind] < least[found]) {
			found = kind
		}
	}

	return found
}

// readMemory is what a model has by its name, of "NVIDIA A100-SXM4-80GB" 79.2 GiB: it reports 81559 MiB. 0 where the
// name has no size, or that of the processor's memory (GH200 480GB).
func readMemory(model string) gpu.Bytes {
	found := regexp.MustCompile(`(?i)(?:^|[ -])([0-9]{1,4}) ?GB\b`).FindStringSubmatch(model)
	if found == nil || strings.Contains(model, "GH200") {
		return 0
	}
	n, _ := strconv.Atoi(found[1])

	return gpu.Bytes(n) * gpu.GiB / 100 * 99
}

// countsFromZero reports the numbers from 0 without gaps, in any order.
func countsFromZero(tasks []int) bool {
	sorted := slices.Sorted(slices.Values(tasks))
	for i, n := range sorted {
		if i != n {
			return false
		}
	}
	return true
}

func hasOddDirective(w *Work) bool {
	return slices.ContainsFunc(w.Directives, func(option string) bool { return !IsDirective(option) })
}

// IsDirective reports whether an option with its value is one word of a directive: Slurm reads blanks, quotes, backslashes and
// remarks there, and takes the word below for the value of an option that has none.
func IsDirective(option string) bool {
	name, value, _ := strings.Cut(option, "=")
	odd := strings.ContainsFunc(option, func(r rune) bool {
		return r == utf8.RuneError || !unicode.IsPrint(r) || strings.ContainsRune(" \"'\\#", r)
	})

	return option == Requeue || strings.HasPrefix(name, "--") && value != "" && !odd
}

// Requeue is the one option without a value that a script's owner may write.
const Requeue = "--requeue"

// directiveWord is a text as a directive of a script can hold it without quotes.
func directiveWord(text string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || r != '\u00aa' && r > 0x7f && !unicode.IsLetter(r) || r <= 0x7f && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-/:@+,=%", r) {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(text, "_"))
}

// slurmJobName is a name for Slurm, which takes a thousand bytes.
func slurmJobName(text string) string {
	out := []rune(directiveWord(text))
	if len(out) == 0 {
		return "job"
	}
	return string(out[:min(len(out), 128)])
}

// remarkLine is a text as a remark on one line.
func remarkLine(text string) string { return prose.Clean(strings.ToValidUTF8(text, "?")) }

// hostLabel is a text as the label of a host's name, short enough for a number behind it.
func hostLabel(text string) string {
	out := regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(text), "-")
	out = strings.Trim(out[:min(len(out), 40)], "-")
	if out == "" {
		return "job"
	}

	return out
}

func isDNSLabel(text string) bool {
	return regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`).MatchString(text)
}

// productLabel is a model as the label nvidia.com/gpu.product has it (NVIDIA/k8s-device-plugin:
// docs/gpu-feature-discovery/README.md).
func productLabel(model string) string { return strings.ReplaceAll(model, " ", "-") }

// isLabelValue reports what the value of a label can be
// (kubernetes.io/docs/concepts/overview/working-with-objects/labels).
func isLabelValue(text string) bool {
	return regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`).MatchString(text)
}

// objectName is the name of objects: 53 letters at most, so that an index fits behind it in the name of a pod.
func objectName(w *Work) string { return hostLabel(jobName(w)) + "-" + w.ID }

// hidingVariables are the variables that hide the GPUs of every vendor.
func hidingVariables() (vars []Variable) {
	for _, v := range visible.TargetVars(nil, job.AutoIDs, gpu.Machine{}) {
		if !v.Unset {
			vars = append(vars, Variable{v.Name, v.Value})
		}
	}
	return vars
}

// quoteOneLine quotes a word for bash on one line: control characters are written as \ooo, so that no line of the
// script is anything but what is meant (sbatch reads lines that begin with #SBATCH, and refuses \r\n).
func quoteOneLine(word string, plain func(string) string) string {
	if !strings.ContainsFunc(word, isControl) {
		return plain(word)
	}

	var b strings.Builder
	b.WriteString("$'")

	for i := range len(word) {
		switch c := word[i]; {
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\'' || c == '\\':
			b.WriteString(`\` + string(c))
		case isControl(rune(c)):
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}

	return b.String() + "'"
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

package pick

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
)

// suggestName suggests what to write instead of a name that no device has.
func (q *query) suggestName(all []*unit, flag, name string) string {
	if words := strings.Fields(strings.ReplaceAll(name, ";", " ")); len(words) > 1 {
		return fmt.Sprintf("write commas between names: --%s %s", flag, strings.Join(words, ","))
	}

	switch strings.ToLower(name) {
	case "all", "*":
		if flag == "device" && slices.ContainsFunc(all, func(u *unit) bool { return u.mig == nil && !u.dev.UsesMIG() }) {
			return option.Expand("write {gpus=all}")
		}
		return option.Expand("write {cpu} to run without a GPU")
	case "none", "no", "-1":
		if flag == "device" {
			return option.Expand("write {cpu} to run without a GPU")
		}
	}

	if index, runtime, ok := parseNumberedName(name); ok {
		if runtime {
			return fmt.Sprintf("%s counts what one program sees; here devices are named by their own index: --%s %s", name, flag, index)
		}
		return fmt.Sprintf("write the index alone: --%s %s", flag, index)
	}

	if whole := completeUUID(all, name); whole != "" {
		return fmt.Sprintf("write a UUID with its beginning: --%s %s", flag, whole)
	}
	if flag == "exclude" {
		return option.Expand("leave it out of {exclude}; {gpuard status} lists the devices")
	}

	return option.Expand("write an index, a UUID or its unique beginning, or a PCI id; {gpuard status} lists them")
}

// parseNumberedName reads names as programs and users write them: "GPU0", "gpu:0", "cuda:0". A runtime's name, such as
// "cuda:0", counts visible devices.
func parseNumberedName(name string) (index string, runtime, ok bool) {
	word := strings.TrimRight(name, "0123456789")
	index = name[len(word):]
	if _, ok := parseIndex(index); !ok {
		return "", false, false
	}

	switch strings.TrimRight(strings.ToLower(word), ":-_#") {
	case "gpu", "device":
		return index, false, true
	case "cuda", "hip", "rocm", "xpu", "npu":
		return index, true, true
	}

	return "", false, false
}

// completeUUID finds the one device whose UUID continues like this after a prefix such as "GPU-", and returns the name
// with the prefix.
func completeUUID(all []*unit, name string) string {
	// Shorter ones are more often numbers than beginnings.
	const enough = 3
	var found []string
	for _, u := range all {
		prefix, rest, ok := strings.Cut(string(u.id()), "-")
		if ok && len(name) >= enough && len(rest) >= len(name) && strings.EqualFold(rest[:len(name)], name) {
			found = append(found, prefix+"-"+rest[:len(name)])
		}
	}

	if len(slices.Compact(found)) != 1 {
		return ""
	}

	return found[0]
}

// describeAmbiguity lists what a name could mean, and what to write instead.
func (q *query) describeAmbiguity(hits []*unit, flag, name string) (problem, remedy string) {
	var means, write []string
	for _, u := range hits[:min(maxNamesInText, len(hits))] {
		means = append(means, fmt.Sprintf("%s (%s)", u.label, u.id()))
		if u.mig != nil {
			write = append(write, string(u.id()))
		} else {
			write = append(write, q.deviceNumber(u.dev))
		}
	}
	if more := len(hits) - maxNamesInText; more > 0 {
		means = append(means, fmt.Sprintf("%d more", more))
	}

	return fmt.Sprintf("%s: ambiguous, it could be %s", quoteEmpty(name), prose.JoinWords(means, "or")),
		fmt.Sprintf("write --%s %s", flag, strings.Join(write, fmt.Sprintf(" or --%s ", flag)))
}

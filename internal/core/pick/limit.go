package pick

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
)

// permanentObstacle returns the reason why the device can never serve the spec, even when idle; nil when it can. An
// unknown model or memory size of a device that does not answer is no such reason: it is reported as sick, and may
// recover.
func (q *query) permanentObstacle(u *unit) *obstacle {
	for _, rule := range []func(*unit) *obstacle{
		q.notNamedObstacle, q.visibilityObstacle, q.exclusionObstacle, q.policyObstacle, q.splitObstacle, q.modelObstacle, q.computeObstacle, q.totalMemoryObstacle, q.asideObstacle,
	} {
		if o := rule(u); o != nil {
			return o
		}
	}
	return nil
}

func (q *query) visibilityObstacle(u *unit) *obstacle {
	if u.twin && (u.dev.UUID != "" || u.dev.Problem == "") {
		// A device that does not answer reports no UUID either.
		return &obstacle{code: "identity", text: "has no UUID of its own, so no lease can name it"}
	}
	if p := q.in.Parent; p != nil && !p.Holds(u.id()) && !p.Holds(u.dev.UUID) {
		return &obstacle{code: "hidden", text: "outside lease " + p.ID,
			remedy: option.Sprintf("add {any} to look outside lease %s", p.ID)}
	}

	why, hidden := q.in.Hidden[u.id()]
	if !hidden && u.mig != nil {
		why, hidden = q.in.Hidden[u.dev.UUID]
	}

	if !hidden || q.spec.Any {
		return nil
	}

	return &obstacle{code: "hidden", text: why, remedy: lookPastRemedy() + strings.TrimSuffix(why, " hides it")}
}

func (q *query) exclusionObstacle(u *unit) *obstacle {
	switch {
	case u.excluded:
		return &obstacle{code: "excluded", text: option.Expand("excluded by {exclude}"), remedy: "exclude fewer devices"}
	case slices.Contains(q.spec.Avoid, u.id()) || slices.Contains(q.spec.Avoid, u.dev.UUID):
		return &obstacle{code: "excluded", text: "the job leaves it"}
	}
	return nil
}

// notNamedObstacle comes first: no other reason matters for a device that was not asked for.
func (q *query) notNamedObstacle(u *unit) *obstacle {
	if len(q.spec.Devices) == 0 || slices.Contains(q.named, u) {
		return nil
	}
	inNamed := func(n *unit) bool { return n.mig == nil && n.dev == u.dev }
	if q.spec.MIG != "" && slices.ContainsFunc(q.named, inNamed) {
		return nil
	}

	return &obstacle{code: "not-named", text: option.Expand("not named by {device}")}
}

func (q *query) splitObstacle(u *unit) *obstacle {
	switch {
	case q.spec.MIG == "" && u.mig == nil && u.dev.UsesMIG():
		return &obstacle{code: "mig", text: "split into MIG slices, so it is not given whole" + q.profilesText(u.dev), remedy: q.sliceRemedy(u.dev)}
	case q.spec.MIG == "" || u.mig != nil && strings.EqualFold(u.mig.Profile, q.spec.MIG):
		return nil
	case u.mig != nil:
		return &obstacle{code: "mig", text: fmt.Sprintf("a %s slice, not %s", u.mig.Profile, q.spec.MIG), remedy: q.sliceRemedy(u.dev)}
	case u.dev.UsesMIG():
		return &obstacle{code: "mig", text: "in MIG mode, but without any known slice", remedy: q.sliceRemedy(u.dev)}
	}
	return &obstacle{code: "mig", text: "not split into MIG slices", remedy: option.Expand("ask for a whole GPU ({gpus=1})")}
}

func sliceProfiles(d *gpu.Device) []string {
	out := prose.Texts(d.MIG, func(s gpu.MIGDevice) string { return s.Profile })
	slices.Sort(out)

	return slices.Compact(out)
}

func (q *query) profilesText(d *gpu.Device) string {
	if len(d.MIG) == 0 {
		return " (none known)"
	}
	return fmt.Sprintf(" (%s)", prose.JoinWords(sliceProfiles(d), "and"))
}

// sliceRemedy suggests a slice that exists.
func (q *query) sliceRemedy(d *gpu.Device) string {
	if len(d.MIG) == 0 {
		return "see what nvidia-smi -L names, or have slices made (nvidia-smi mig)"
	}
	return option.Expand("ask for a slice ({mig} ") + prose.JoinWords(sliceProfiles(d), option.Expand("or {mig}")) + ")"
}

// modelObstacle matches the whole name, with or without the maker, because users copy what status shows.
func (q *query) modelObstacle(u *unit) *obstacle {
	wanted, name := strings.ToLower(q.spec.Model), strings.ToLower(u.dev.Name)
	if wanted == "" || isModel(wanted, u.dev.Name) || name == "" && u.dev.Problem != "" {
		return nil
	}

	shown := prose.Brief(u.dev.Name)
	pattern := "*" + modelFamily(u.dev.Name) + "*"
	if !strings.ContainsAny(wanted, "*?") && strings.Contains(name, wanted) {
		pattern = "*" + q.spec.Model + "*"
	}

	return &obstacle{code: "model", text: fmt.Sprintf("%s is not %s", cmp.Or(shown, "its model"), prose.Brief(q.spec.Model)),
		remedy: option.Sprintf("write {model} '%s' for %s", pattern, cmp.Or(shown, "it"))}
}

// isModel matches the name of a device, with and without its maker, against a pattern.
func isModel(pattern, name string) bool {
	pattern = strings.ToLower(pattern)
	return matchGlob(pattern, strings.ToLower(name)) || matchGlob(pattern, strings.ToLower(gpu.ModelName(name)))
}

// modelFamily is the first word with a digit in a model's name, which users remember: "A100" of "NVIDIA
// A100-SXM4-80GB".
func modelFamily(name string) string {
	words := strings.FieldsFunc(name, func(r rune) bool {
		return r != '.' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	for _, w := range words {
		if strings.ContainsAny(w, "0123456789") {
			return w
		}
	}
	return strings.Join(words[max(0, len(words)-1):], "")
}

func (q *query) computeObstacle(u *unit) *obstacle {
	least, have := q.spec.MinCompute, u.dev.Compute
	switch {
	case least == nil || have != nil && have.AtLeast(*least) || have == nil && u.dev.Problem != "":
		return nil
	case have == nil:
		return &obstacle{code: "compute", text: fmt.Sprintf("its compute capability is unknown, and %s is asked for", least),
			remedy: option.Expand("leave out {min-compute}")}
	}
	return &obstacle{code: "compute", text: fmt.Sprintf("compute capability %s is below %s", have, least),
		remedy: option.Sprintf("ask for an older one ({min-compute=%s})", have)}
}

func (q *query) totalMemoryObstacle(u *unit) *obstacle {
	if o := q.shareSizeObstacle(u); o != nil {
		return o
	}

	total := u.totalMemory()
	switch {
	case q.spec.Memory <= 0 || total != nil && *total >= q.spec.Memory || total == nil && u.dev.Problem != "":
		return nil
	case total == nil:
		return &obstacle{code: "memory", text: "how much memory it has is unknown", remedy: option.Expand("leave out {mem}")}
	}

	most := total
	if u.mig == nil && u.dev.MainAvailable != nil {
		// More is never free.
		most = u.dev.MainAvailable
	}

	return &obstacle{code: "memory", text: capacityText(u, q.spec.Memory), remedy: option.Sprintf("ask for less memory ({mem=%s})", formatSizeFlag(*most))}
}

// shareSizeObstacle returns an obstacle when the share, or the memory inside one, exceeds what the device could give if
// nothing used it.
func (q *query) shareSizeObstacle(u *unit) *obstacle {
	if p := q.parentPool(); p != nil {
		flag, want := option.Expand("{share}"), q.spec.Share
		if q.spec.Memory > want {
			flag, want = option.Expand("{mem}"), q.spec.Memory
		}
		if want <= p.Share {
			return nil
		}

		return &obstacle{code: "memory", text: fmt.Sprintf("lease %s has %s of it, which cannot hold %s", p.ID, p.Share, want),
			remedy: option.Sprintf("ask for no more than %s %s, or add {any} to look outside lease %s", flag, formatSizeFlag(p.Share), p.ID)}
	}

	total := u.totalMemory()
	switch {
	case q.spec.Share <= 0 || total == nil && u.dev.Problem != "":
		return nil
	case total == nil:
		return &obstacle{code: "memory", text: "how much memory it has is unknown, so no share of it can be promised", remedy: option.Expand("leave out {share}")}
	case *total-shareReserve(u) >= q.spec.Share:
		return nil
	}

	purpose := "that shares leave aside"
	if u.nominalMemory() > *total {
		purpose = "for the driver and what shares leave aside"
	}

	o := &obstacle{code: "memory", text: fmt.Sprintf("%s in all, less %s %s, cannot hold a share of %s", u.nominalMemory(), u.nominalMemory()-*total+shareReserve(u), purpose, q.spec.Share)}
	if most := *total - shareReserve(u); most >= gpu.MiB {
		o.remedy = option.Sprintf("ask for a smaller share ({share=%s})", formatSizeFlag(most))
	}

	return o
}

// capacityText names the size that status shows, and the part of it that no job ever gets.
func capacityText(u *unit, wanted gpu.Bytes) string {
	if u.mig != nil || u.dev.MemoryReserved == nil || *u.dev.MemoryReserved <= 0 {
		have, want := distinctSizes(*u.totalMemory(), wanted)
		return have + " in all cannot hold " + want
	}
	return fmt.Sprintf("%s in all, less %s for the driver, cannot hold %s", u.dev.MemoryTotal, u.dev.MemoryReserved, wanted)
}

// distinctSizes writes two different sizes so that their texts differ.
func distinctSizes(a, b gpu.Bytes) (string, string) {
	const tenth = gpu.GiB / 10
	if a.String() != b.String() && (a+tenth/2)/tenth != (b+tenth/2)/tenth {
		return a.String(), b.String()
	}
	return fmt.Sprintf("%d MiB", a/gpu.MiB), fmt.Sprintf("%d MiB", (b+gpu.MiB-1)/gpu.MiB)
}

// matchGlob matches a whole text against a pattern of literals, "*" (anything) and "?" (one character). Unlike
// path.Match, "*" also matches "/", which names of models contain.
func matchGlob(pattern, text string) bool {
	p, t := []rune(pattern), []rune(text)
	star, mark := -1, 0
	i, j := 0, 0
	for j < len(t) {
		switch {
		case i < len(p) && p[i] == '*':
			star, mark = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == t[j]):
			i, j = i+1, j+1
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}

	for i < len(p) && p[i] == '*' {
		i++
	}

	return i == len(p)
}

package check

import (
	"fmt"
	"strings"

	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
)

func policyFile() Check {
	page := Page{
		Code: "policy-file", Title: "A configuration file cannot be used, or names an unknown user or group",
		Text: "`/etc/gpuard/config.yaml` says who may use which GPUs, how many, how much of each and for how long, and which flags are meant where none were given; `~/.config/gpuard/config.yaml` says the same for one user, and can only narrow. The first must belong to root, the second to its user, and nobody else may write either. With a mistake in one of them, or where it is not to be trusted, nothing is leased: half a policy would be none.\n\n" +
			"A user or group that the system does not know stops nothing, but its rule never counts: a misspelt name, or a directory server that does not answer.",
		From: []string{"gpuard: docs/how-to/team-rules.md"},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		if s.Policy.Problem != "" {
			return unknownFinding(page.Code, "configuration files", s.Policy.Problem, "")
		}

		p := s.Policy.Found
		var found []Finding
		if p.Problem != "" {
			problem, do := splitAdvice(p.Problem)
			found = append(found, Finding{page.Code, Warning, problem, option.Expand("{gpuard run}, reserve and sweep lease nothing"), do})
		}

		for _, name := range p.Strangers {
			found = append(found, Finding{page.Code, Info, name + " is unknown here", "a rule that names it alone never counts", "check how it is written: getent passwd; getent group"})
		}

		switch {
		case found != nil:
			return found
		case len(p.Files) == 0:
			return okFinding(page.Code, "there is none: all users may use everything")
		}

		return okFinding(page.Code, fmt.Sprintf("%s: %s", strings.Join(p.Files, " and "), prose.CountNoun(p.Rules, "rule")))
	}}
}

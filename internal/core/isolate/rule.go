package isolate

import (
	"fmt"
	"strings"

	"gpuard/internal/core/job"
	"gpuard/internal/core/option"
	"gpuard/internal/core/policy"
)

// Rule is the one of the rules that requires most; nil where none requires a level.
func Rule(limits policy.Limits) (most *policy.Rule) {
	for i := range limits {
		r := &limits[i]
		if levelRank(r.Isolate) > 0 && (most == nil || levelRank(r.Isolate) > levelRank(most.Isolate)) {
			most = r
		}
	}
	return most
}

// UnderRule is what a job must require under a rule, nil for none. Asking for less by name is a permanent refusal.
func UnderRule(asked, required job.Isolation, rule *policy.Rule) (job.Isolation, *job.Refusal) {
	switch {
	case rule == nil || levelRank(required) > levelRank(rule.Isolate):
		return required, nil
	case asked == job.Off:
		return "", byRule("cannot start the job without isolation: "+requires(rule), option.Expand("leave {isolate=off} out"), rule)
	case levelRank(asked) > 0 && levelRank(asked) < levelRank(rule.Isolate):
		return "", byRule(fmt.Sprintf("cannot isolate the job by %s: %s", asked, requires(rule)), option.Expand("write {isolate=auto}"), rule)
	}
	return rule.Isolate, nil
}

// Impossible is a refusal of ChooseLevel, in the words of the rule that requires the level.
func Impossible(refusal *job.Refusal, rule *policy.Rule) *job.Refusal {
	_, why, _ := strings.Cut(refusal.Summary, ": ")
	return newRefusal(fmt.Sprintf("cannot isolate the job: %s, and here that is not possible: %s", requires(rule), why), option.Expand("ask the administrator, who can change this machine or the rule: {gpuard doctor}"))
}

// Unwalled refuses a lease that nothing is started behind a wall for, such as that of a shell which runs already, where
// a rule requires one; nil where none does, or the level is enough.
func Unwalled(level job.Isolation, rule *policy.Rule) *job.Refusal {
	if rule == nil || levelRank(level) >= levelRank(rule.Isolate) {
		return nil
	}
	return byRule("cannot lease GPUs without isolation: "+requires(rule)+", which only a command can have that gpuard starts", option.Expand("write {gpuard run} -- COMMAND"), rule)
}

// requires is what a rule says: "policy: rule "students" (FILE:4) requires isolation by namespace".
func requires(rule *policy.Rule) string {
	return fmt.Sprintf("policy: %s requires isolation by %s at least", rule, rule.Isolate)
}

func byRule(summary, remedy string, rule *policy.Rule) *job.Refusal {
	return newRefusal(summary, remedy+", or have "+rule.At.String()+" changed")
}

package isolate

import (
	"strings"
	"testing"

	"gpuard/internal/core/job"
	"gpuard/internal/core/policy"
)

// required is a rule of line 4.
func required(level job.Isolation) policy.Rule {
	return policy.Rule{Name: string(level), At: policy.Place{File: "/etc/gpuard/config.yaml", Line: 4}, Isolate: level}
}

func TestRule(t *testing.T) {
	for want, limits := range map[string]policy.Limits{
		"": {required("")}, "landlock": {required(job.Namespace), required(job.Landlock), required("")}, "namespace": {required(""), required(job.Namespace)},
	} {
		got := ""
		if r := Rule(limits); r != nil {
			got = r.Name
		}
		if got != want {
			t.Errorf("%v: %q, want %q", limits, got, want)
		}
	}
}

// TestUnderRule: a job may ask for more than a rule requires, and for nothing, but not for less.
func TestUnderRule(t *testing.T) {
	for _, c := range []struct{ asked, required, rule, level, says string }{
		{"off", "", "", "", ""}, {"", "", "namespace", "namespace", ""}, {"auto", "", "landlock", "landlock", ""}, {"landlock", "", "namespace", "namespace", ""},
		{"", "landlock", "namespace", "landlock", ""}, {"namespace", "namespace", "namespace", "namespace", ""},
		{"off", "", "namespace", "", `without isolation: policy: rule "namespace" (/etc/gpuard/config.yaml:4) requires isolation by namespace at least; leave --isolate off out, or have /etc/gpuard/config.yaml:4 changed`},
		{"namespace", "", "landlock", "", "by namespace: policy: "}, {"namespace", "namespace", "landlock", "", "write --isolate auto, or have"},
	} {
		var rule *policy.Rule
		if c.rule != "" {
			r := required(job.Isolation(c.rule))
			rule = &r
		}
		level, refusal := UnderRule(job.Isolation(c.asked), job.Isolation(c.required), rule)
		said := ""
		if refusal != nil {
			said = refusal.Summary + "; " + refusal.Remedy
		}
		if string(level) != c.level || !strings.Contains(said, c.says) || (said == "") != (c.says == "") || refusal != nil && !refusal.Never {
			t.Errorf("%+v: %q, says %q", c, level, said)
		}
	}
}

// TestUnwalled: what is started behind no wall, or behind a weaker one, gets no lease where a rule requires one.
func TestUnwalled(t *testing.T) {
	rule := required(job.Landlock)
	for level, refused := range map[job.Isolation]bool{job.NoIsolation: true, job.Namespace: true, job.Landlock: false} {
		if got := Unwalled(level, &rule); (got != nil) != refused {
			t.Errorf("%q: %+v", level, got)
		}
	}
	if got := Unwalled(job.NoIsolation, nil); got != nil {
		t.Errorf("without a rule: %+v", got)
	}
}

// TestImpossible: where the machine cannot do what a rule requires, that is what is said.
func TestImpossible(t *testing.T) {
	rule := required(job.Landlock)
	_, _, refusal := ChooseLevel("", job.Landlock, Means{Landlock: "too old"})
	got := Impossible(refusal, &rule)
	if !strings.Contains(got.Summary, `rule "landlock" (/etc/gpuard/config.yaml:4) requires isolation by landlock at least, and here that is not possible: `) || !strings.Contains(got.Summary, "too old") || !got.Never {
		t.Errorf("%+v", got)
	}
}

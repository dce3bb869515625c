package check

import (
	"slices"
	"testing"

	"gpuard/internal/core/hostinfo"
)

// sighting is one site and the finding that a check must return for it. Each topic lists its own in a function of its
// test file. Every code needs one with a bad finding and one with a good one.
type sighting struct {
	code, name string
	site       hostinfo.Site
	want       Severity
}

// see runs the sightings and fails where a check of the topic lacks a bad or a good one.
func see(t *testing.T, checks []Check, all []sighting) {
	t.Helper()
	for _, c := range checks {
		bad, good := false, false
		for _, s := range all {
			if s.code != c.Code {
				continue
			}
			t.Run(s.code+"/"+s.name, func(t *testing.T) {
				found := c.Look(s.site)
				worst := worstOf(found)
				if worst != s.want {
					t.Errorf("%s, want %s: %+v", worst, s.want, found)
				}
				for _, f := range found {
					complete(t, c.Code, f)
				}
			})
			good = good || s.want == OK
			bad = bad || s.want != OK && s.want != Unknown
		}
		if !bad || !good {
			t.Errorf("%s: a site that it finds something in (%v) and one that it is content with (%v) are needed", c.Code, bad, good)
		}
		if c.Code == "" || c.Title == "" || c.Text == "" || len(c.From) == 0 {
			t.Errorf("%s has no complete page", c.Code)
		}
		if worstOf(c.Look(hostinfo.Site{})) == "" {
			t.Errorf("%s says nothing of an empty site", c.Code)
		}
	}
	for _, s := range all {
		if !slices.ContainsFunc(checks, func(c Check) bool { return c.Code == s.code }) {
			t.Errorf("there is no check %s", s.code)
		}
	}
}

// complete: every finding says what was found, why it matters and what to do.
func complete(t *testing.T, code string, f Finding) {
	t.Helper()
	if f.Code != code || f.Seen == "" {
		t.Errorf("%+v is no finding of %s, or says nothing", f, code)
	}
	if f.Severity == OK && (f.Why != "" || f.Do != "") {
		t.Errorf("%+v is content and yet explains", f)
	}
	if f.Severity.Bad() && (f.Why == "" || f.Do == "") {
		t.Errorf("%+v lacks why or what to do", f)
	}
}

func worstOf(found []Finding) (worst Severity) {
	order := []Severity{OK, Info, Unknown, Warning, Error}
	for _, f := range found {
		if slices.Index(order, f.Severity) > slices.Index(order, worst) {
			worst = f.Severity
		}
	}
	return worst
}

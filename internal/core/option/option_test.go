package option

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestAll: each option is there once, says what it means and what is typed, and names only options that there are.
func TestAll(t *testing.T) {
	known := map[string]bool{}
	for _, o := range AllOptions() {
		if known[o.Name] {
			t.Errorf("%s is there twice", o.Name)
		}
		known[o.Name] = true
	}
	for _, o := range AllOptions() {
		takesNothing := o.Takes == Switch
		if o.Group == "" || o.Text == "" || strings.HasSuffix(o.Text, ".") || (o.Value == "") != takesNothing || (o.Sample == "") != takesNothing {
			t.Errorf("%s is incomplete: %+v", o.Name, o)
		}
		if len(o.Words) > 0 && !slices.Contains(o.Words, o.Sample) {
			t.Errorf("%s: the example %q is none of %q", o.Name, o.Sample, o.Words)
		}
		if strings.Contains(o.Text+o.File, "--") {
			t.Errorf("%s: an option is named by {NAME}: %s", o.Name, o.Text)
		}
		texts := o.Text
		for _, n := range o.Not {
			texts += n.Why
			if !known[n.Other] || n.Other == o.Name {
				t.Errorf("%s: there is no option %s", o.Name, n.Other)
			}
		}
		for _, m := range regexp.MustCompile(`\{([^=}]*)`).FindAllStringSubmatch(texts, -1) {
			if !known[m[1]] {
				t.Errorf("%s names %q, which is no option", o.Name, m[1])
			}
		}
	}
}

func TestReplace(t *testing.T) {
	word := func(name, value string) string { return "<" + name + "|" + value + ">" }
	for text, want := range map[string]string{
		"": "", "plain": "plain", "a {mem} b": "a <mem|> b", "{quota=mps}": "<quota|mps>", "{a}{b}": "<a|><b|>", "an open { brace": "an open { brace",
	} {
		if got := ReplaceNames(text, word); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestSampleInFile(t *testing.T) {
	for name, want := range map[string]string{"cpu": "true", "device": "[0]", "fallback": "[other, cpu]", "model": `"*A100*"`, "mem": "20G", "verify": "30s,stop"} {
		if o, found := FindOption(name); !found || o.SampleInFile() != want {
			t.Errorf("%s: %s, want %s", name, o.SampleInFile(), want)
		}
	}
	if o, found := FindOption("nothing"); found {
		t.Error(o)
	}
	if o, _ := FindOption("min-compute"); o.Key() != "min_compute" {
		t.Error(o.Key())
	}
}

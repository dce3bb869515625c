package option

import (
	"errors"
	"testing"
)

// TestExpand: what is named in braces is written as typed, and every other brace stays.
func TestExpand(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "",
		"plain":                            "plain",
		"leave {mem} out":                  "leave --mem out",
		"{share=8G}":                       "--share 8G",
		"{device}=0":                       "--device=0",
		"{idle}":                           "--idle",
		"{gpuard evict} 42":                "gpuard evict 42",
		"{hold} or {gpuard queue hold}":    "--hold or gpuard queue hold",
		"{mem}{share}":                     "--mem--share",
		"{{.seed}} and {seeds}":            "{{.seed}} and {seeds}",
		"{gpuard nothing} {gpuard}":        "{gpuard nothing} {gpuard}",
		"{\"a\": 1} {mem}":                 "{\"a\": 1} --mem",
		"an open { brace, also by {mem":    "an open { brace, also by {mem",
		"{ {mem} }":                        "{ --mem }",
		"{mem} {":                          "--mem {",
		"{=} {} {=8G} {gpuard } {gpuard=}": "{=} {} {=8G} {gpuard } {gpuard=}",
	} {
		if got := Expand(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestSprintf: only the format is expanded. What a user has written comes out as it is.
func TestSprintf(t *testing.T) {
	const written = "{mem} {gpuard run} {share=%s}"
	for got, want := range map[string]string{
		Sprintf("ask for {share=%s}", "8G"):                   "ask for --share 8G",
		Sprintf("{gpuard evict} %d, or {any}", 42):            "gpuard evict 42, or --any",
		Sprintf("cannot read %q: {mem=%s}", written, written): "cannot read \"" + written + "\": --mem " + written,
		Sprintf("{mig=%s}", "}{any}"):                         "--mig }{any}",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestErrorf(t *testing.T) {
	cause := errors.New("{mem} is text here")
	err := Errorf("cannot read {over} %q: %w", "{mem}", cause)
	if err.Error() != `cannot read --over "{mem}": {mem} is text here` || !errors.Is(err, cause) {
		t.Error(err)
	}
}

// TestNames: a flag is in one table, and each name is one that can be written in braces.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range FlagNames() {
		if _, isOption := FindOption(name); isOption || seen[name] || !IsKnownName(name) || !IsKnownName(name+"=1") {
			t.Errorf("%s is there twice, or is not known", name)
		}
		seen[name] = true
	}
	for _, name := range CommandNames() {
		if seen["gpuard "+name] || !IsKnownName("gpuard "+name) {
			t.Errorf("%s is there twice, or is not known", name)
		}
		seen["gpuard "+name] = true
	}
	for _, name := range []string{"", "gpuard", "gpuard nothing", "nothing", "nothing=1", "GPUard run"} {
		if IsKnownName(name) {
			t.Errorf("%q is known", name)
		}
	}
}

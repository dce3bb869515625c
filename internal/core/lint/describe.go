package lint

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/check"
)

// Example is a file for the documentation and for tests.
type Example struct {
	// "train.py": its kind follows from the name.
	Name string
	Text string
}

// Description is what a code means, for whoever reads a finding.
type Description struct {
	check.Page
	// The usual one; a finding may have another.
	Severity check.Severity
	// What it would be if its kind were right always.
	alone check.Severity
	// What has to be so beside the line for it to be right, usually; an error rests on nothing else.
	Rests string
	// How many of it were right when people judged them in files that its rule had not met, and how many they judged.
	Right, Judged int
	// Compose says in its own documentation that it refuses such a file, or means something else.
	Documented bool
	// Whoever copies it from a page cannot see it.
	Unseen bool
	// One place of a repository speaks for all: "code", or "name" for all of which the same is said.
	Once string
	// Looked for with --preview alone, until it has shown that it is worth reading.
	Preview bool
	// Each has a finding of this code.
	Bad []Example
	// None has a finding of any code.
	Good []Example
}

// descriptionFiles hold a description each:
//
//	# TITLE
//
//	severity: error, warning or info        at most: lower until enough were judged right
//	rests on: the line, the run, another file, the shell, the version or the intention
//	judged: TRUE of ALL                     where it was judged, as the rules met it (docs/explanation/lint-judged.md)
//	documented: yes                         where Compose says itself that it refuses the file, or means something else: a warning there, whatever was judged
//	unseen: yes                             where whoever copies it from a page cannot see it
//	once: yes                               where one place of a repository speaks for all
//	preview: yes                            where it has not shown yet that it is worth reading
//	from: SOURCE                            one line per source
//
//	TEXT in Markdown
//
//	-- bad: train.sh --                     one per example, good ones after the bad ones
//	the text of the file
//
//go:embed rules/*.txt
var descriptionFiles embed.FS

// describeCode returns what a code means; it panics for a code without a description, which a test finds.
func describeCode(code string) Description {
	text, err := descriptionFiles.ReadFile("rules/" + code + ".txt")
	if err != nil {
		panic("no description of " + code)
	}
	return readDescription(code, string(text))
}

// Descriptions describes every code of lint, in the order of the rules.
func Descriptions() (all []Description) {
	for _, r := range allRules() {
		if !slices.ContainsFunc(all, func(d Description) bool { return d.Code == r.Code }) {
			all = append(all, describeCode(r.Code))
		}
	}
	return all
}

// allCodes are the codes of lint.
func allCodes() (all []string) {
	for _, r := range allRules() {
		all = append(all, r.Code)
	}
	return all
}

var exampleHead = lazyRegexp(`^-- (bad|good): (.+) --\n$`)

func readDescription(code, text string) Description {
	d := Description{Page: check.Page{Code: code}}
	var body strings.Builder
	var example *Example

	for line := range strings.Lines(text) {
		head := exampleHead().FindStringSubmatch(line)
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case head != nil:
			list := &d.Bad
			if head[1] == "good" {
				list = &d.Good
			}
			*list = append(*list, Example{Name: head[2]})
			example = &(*list)[len(*list)-1]
		case example != nil:
			example.Text += line
		case d.Title == "":
			d.Title = strings.TrimPrefix(strings.TrimSpace(line), "# ")
		case body.Len() == 0 && line == "\n":
		case body.Len() == 0 && name == "severity":
			d.Severity = check.Severity(value)
		case body.Len() == 0 && name == "rests on":
			d.Rests = value
		case body.Len() == 0 && name == "judged":
			right, judged, _ := strings.Cut(value, " of ")
			d.Right, d.Judged = parseDecimal(right), parseDecimal(judged)
		case body.Len() == 0 && name == "documented":
			d.Documented = value == "yes"
		case body.Len() == 0 && name == "unseen":
			d.Unseen = value == "yes"
		case body.Len() == 0 && name == "once":
			d.Once = value
		case body.Len() == 0 && name == "preview":
			d.Preview = value == "yes"
		case body.Len() == 0 && name == "from":
			d.From = append(d.From, value)
		default:
			body.WriteString(line)
		}
	}

	d.alone = lower(d.Severity, highestSeverity(d.Rests))
	d.Severity = d.LimitSeverity(d.alone, Compose)
	d.Text = strings.TrimSpace(body.String()) + d.whyLower()

	for _, list := range [][]Example{d.Bad, d.Good} {
		for i := range list {
			list[i].Text = strings.TrimRight(list[i].Text, "\n") + "\n"
		}
	}

	return d
}

// whyLower is the paragraph of a page that says why the kind is told with a lower severity than its text has; "" where it is not.
func (d Description) whyLower() string {
	told := "\n\nWhatever is said above, it is told as " + map[check.Severity]string{check.Info: "an info", check.Warning: "a warning"}[d.Severity]
	switch {
	case d.Severity == d.alone:
		return ""
	case d.Judged < fewRight:
		return told + ": people have judged too few of its kind."
	}
	return fmt.Sprintf("%s: of %d of its kind that people judged, %d were worth a change, and only what is right nearly always ends lint with 1.", told, d.Judged, d.Right)
}

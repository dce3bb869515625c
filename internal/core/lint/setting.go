package lint

import (
	"slices"
	"strings"

	"gpuard/internal/core/check"
	"gpuard/internal/core/compat"
)

func settingRules() []Rule {
	return []Rule{assignmentAsProgram(), cutAtBlank(), cutAtComma(), dollarKept(), onnxTwice(), cudaTwice(), mklTooNew()}
}

const (
	desktopExec    = "https://specifications.freedesktop.org/desktop-entry-spec/latest/exec-variables.html"
	systemdService = "https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html#Command%20lines"
	systemdExec    = "https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html#Environment"
)

// forGPUs reports whether a variable is one of GPU programs or of the container runtime, by today's name or an old one.
func forGPUs(name string) bool {
	if isGPUVariable(name) || strings.HasPrefix(name, "NCCL_") || name == "NVIDIA_VISIBLE_DEVICES" || name == "NVIDIA_DRIVER_CAPABILITIES" {
		return true
	}
	_, old := compat.Deprecated(name, "1")
	return old
}

func assignmentAsProgram() Rule {
	return Rule{
		Page: check.Page{
			Code:  "assignment-as-program",
			Title: "An assignment instead of the name of a program",
			Text: "`NAME=value program` is a rule of shells. `Exec=` of a desktop entry, `ExecStart=` of a systemd unit, the exec form of a Dockerfile and `command:` of a Compose file start the first word as the program, and there is no program of the name `CUDA_VISIBLE_DEVICES=1`. The desktop entry specification forbids `=` in the name of a program altogether.\n\n" +
				"systemd has `Environment=`, Compose has `environment:`, Docker has `ENV`. Everywhere `env NAME=value program` works too.",
			From: []string{desktopExec, systemdService, systemdExec, "https://docs.docker.com/reference/dockerfile/#exec-form"},
		},
		Severity: check.Error,
		Bad: []Example{
			{"train.desktop", "[Desktop Entry]\nType=Application\nName=Train\nExec=CUDA_VISIBLE_DEVICES=1 /opt/train/run %F\n"},
			{"train.service", "[Service]\nExecStart=CUDA_VISIBLE_DEVICES=1 /usr/bin/python3 /opt/train.py\n"},
			{"two.service", "[Service]\nExecStartPre=/usr/bin/mkdir -p /run/train\nExecStart=-CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1 /usr/bin/python3 /opt/train.py\n"},
			{"Dockerfile", "FROM python:3.12\nCMD [\"CUDA_VISIBLE_DEVICES=0\", \"python\", \"train.py\"]\n"},
			example("compose.yaml", "    command: CUDA_VISIBLE_DEVICES=0 python train.py\n"),
			example("list.compose.yaml", "    entrypoint: [\"CUDA_VISIBLE_DEVICES=0\", \"python\", \"train.py\"]\n"),
		},
		Good: []Example{
			{"train.desktop", "[Desktop Entry]\nType=Application\nName=Train\nExec=env CUDA_VISIBLE_DEVICES=1 /opt/train/run %F\n\n[Desktop Action other]\nName=Other\nExec=sh -c \"CUDA_VISIBLE_DEVICES=1 exec /opt/train/run\"\n"},
			{"train.service", "[Service]\nEnvironment=CUDA_VISIBLE_DEVICES=1 \"CUDA_DEVICE_ORDER=PCI_BUS_ID\"\nExecStartPre=-/usr/bin/env NCCL_DEBUG=WARN /usr/bin/python3 /opt/check.py\nExecStart=/bin/bash -c 'CUDA_VISIBLE_DEVICES=1 exec python3 /opt/train.py'\n"},
			{"Dockerfile", "FROM python:3.12\nENTRYPOINT [\"env\", \"CUDA_DEVICE_ORDER=PCI_BUS_ID\", \"python\"]\nCMD [\"train.py\", \"CUDA_VISIBLE_DEVICES=0\"]\n"},
			example("env.compose.yaml", "    entrypoint: [env]\n    command: [CUDA_VISIBLE_DEVICES=0, python, train.py]\n"),
			{"env.dockerfile", "FROM python:3.12\nENTRYPOINT [\"env\"]\nCMD [\"CUDA_DEVICE_ORDER=PCI_BUS_ID\", \"python\", \"train.py\"]\n"},
			example("compose.yaml", "    environment:\n      - CUDA_DEVICE_ORDER=PCI_BUS_ID\n    command: python train.py model=CUDA_VISIBLE_DEVICES=0\n"),
		},
		Look: lookAssignment,
	}
}

func lookAssignment(f File) []Finding {
	if !slices.Contains([]Kind{Desktop, Unit, Dockerfile, Compose}, f.Kind) {
		return nil
	}
	programs := 0
	for _, s := range f.Steps {
		if s.Do == Command && s.Shell == 0 {
			programs++
		}
	}
	var all []Finding
	for _, s := range f.Steps {
		var sets []Step
		for _, w := range s.Words {
			a, ok := assignment(w, "env")
			if s.Shell != 0 || !ok {
				break
			}
			sets = append(sets, a)
		}
		i := slices.IndexFunc(sets, func(a Step) bool { return forGPUs(a.Name) })
		if s.Do != Command || i < 0 || len(sets) == len(s.Words) {
			continue
		}
		finding := Finding{Finding: check.Finding{Code: "assignment-as-program", Severity: check.Error, Seen: s.Words[0].Text + " is taken as the name of the program to start",
			Why: "this line is not read by a shell, so nothing is started and " + sets[i].Name + " is not set"}, At: s.Words[0].At}
		finding.write(f.Kind, s, sets, programs)
		all = append(all, finding)
	}
	return once(all)
}

// write says how the line should be, each format in its own way.
func (finding *Finding) write(kind Kind, s Step, sets []Step, programs int) {
	first := s.Words[0].At
	before := Place{Cell: first.Cell, Line: first.Line, Column: first.Column, EndLine: first.Line, EndColumn: first.Column}
	switch rest := line(Step{Words: s.Words[len(sets):]}, nil); kind {
	case Desktop:
		finding.Line = s.Name + "=env " + line(s, nil)
		finding.Edits = []Edit{{At: before, Text: "env "}}
	case Unit:
		var words []string
		for _, a := range sets {
			words = append(words, s.written(a.At))
		}
		if programs > 1 {
			finding.Line = s.Name + "=/usr/bin/env " + line(s, nil)
			finding.Edits = []Edit{{At: before, Text: "/usr/bin/env "}}
			break
		}
		finding.Line = "Environment=" + strings.Join(words, " ") + "\n" + s.Name + "=" + rest
		next := s.Words[len(sets)].At
		if next.Line == first.Line && first.Line == s.At.Line {
			start := Place{Line: s.At.Line, Column: s.At.Column, EndLine: s.At.Line, EndColumn: s.At.Column}
			finding.Edits = []Edit{{At: start, Text: "Environment=" + strings.Join(words, " ") + "\n"},
				{At: Place{Line: first.Line, Column: first.Column, EndLine: next.Line, EndColumn: next.Column}}}
		}
	case Dockerfile:
		finding.Line = `"env", ` + s.Words[0].Raw
		finding.Edits = []Edit{{At: before, Text: `"env", `}}
	default:
		finding.Do = "move it to environment: " + sets[0].Name + `: "` + sets[0].Value.Text + `"`
		return
	}
	finding.Do = "write: " + strings.ReplaceAll(finding.Line, "\n", ", and ")
	if finding.Edits != nil {
		finding.Line = "" // the edits show it, with the rest of the line
	}
}

// written is how the word of a command at a place is written.
func (s Step) written(p Place) string {
	for _, w := range s.Words {
		if w.At == p {
			return w.Raw
		}
	}
	return ""
}

func cutAtBlank() Rule {
	return Rule{
		Page: check.Page{
			Code:  "environment-cut-at-blank",
			Title: "A blank cuts an assignment of Environment= in two",
			Text: "systemd splits `Environment=` at blanks, and each piece must be NAME=value. Of `CUDA_VISIBLE_DEVICES=0, 1` it keeps `CUDA_VISIBLE_DEVICES=0,` and ignores the `1`; of `CUDA_VISIBLE_DEVICES = 1` nothing is left. It says so only in the journal.\n\n" +
				"Write the list without blanks, or put the whole assignment in quotes: `Environment=\"NAME=some value\"`. The word `export` has no place there.",
			From: []string{systemdExec, "https://www.freedesktop.org/software/systemd/man/latest/systemd.syntax.html#Quoting"},
		},
		Severity: check.Error,
		Bad: []Example{
			{"train.service", "[Service]\nEnvironment=CUDA_VISIBLE_DEVICES=0, 1\nExecStart=/usr/bin/python3 /opt/train.py\n"},
			{"blanks.service", "[Service]\nEnvironment=CUDA_VISIBLE_DEVICES = 1\nExecStart=/usr/bin/python3 /opt/train.py\n"},
		},
		Good: []Example{
			{"train.service", "[Service]\nEnvironment=CUDA_VISIBLE_DEVICES=0,1 CUDA_DEVICE_ORDER=PCI_BUS_ID\nEnvironment=\"TITLE=two words\"\nExecStart=/usr/bin/python3 /opt/train.py\n"},
			{"other.service", "[Service]\nEnvironment=JAVA_OPTS=-Xmx1g -Xms1g\nExecStart=/usr/bin/java\n"},
		},
		Look: func(f File) []Finding {
			var all []Finding
			for i, s := range f.Steps {
				if f.Kind != Unit || s.Do != Setting || s.Name != "Environment" {
					continue
				}
				whole, at, ok := uncut(f.Steps, i)
				if !ok {
					continue
				}
				name, _, _ := strings.Cut(whole, "=")
				finding := Finding{Finding: check.Finding{Code: "environment-cut-at-blank", Severity: check.Error, Seen: "systemd ignores " + quote(s.Value.Raw) + ", which assigns nothing",
					Why: "Environment= is split at blanks, so " + name + " does not get the text after one", Do: "write: Environment=" + whole}, At: s.Value.At}
				if at.Line == at.EndLine {
					finding.Edits = []Edit{{At: at, Text: whole}}
				}
				all = append(all, finding)
			}
			return all
		},
	}
}

var listPiece = pattern(`^,?(-?[0-9]+|(GPU|MIG)-[-0-9a-fA-F/]+|[0-9]+(,[0-9]+)+),?$`)

// uncut joins the assignment of which step i, a word without one, is a piece; at is the place of its pieces.
func uncut(steps []Step, i int) (whole string, at Place, ok bool) {
	word := func(n int) (Value, bool) {
		if n >= len(steps) || steps[n].Do != Setting || steps[n].Name != "Environment" || steps[n].At != steps[i].At {
			return Value{}, false
		}
		return steps[n].Value, true
	}
	piece, at := steps[i].Value, steps[i].Value.At
	next := i + 1
	var name, list string
	switch before := i - 1; {
	case before >= 0 && steps[before].Do == Set && steps[before].At.Line == at.Line && forGPUs(steps[before].Name) && listPiece().MatchString(piece.Text) &&
		(strings.HasSuffix(steps[before].Value.Text, ",") || steps[before].Value.Text == "" || piece.Text[0] == ','):
		name, list, at = steps[before].Name, steps[before].Value.Text+piece.Text, steps[before].At
		at.EndLine, at.EndColumn = piece.At.EndLine, piece.At.EndColumn
	case forGPUs(piece.Text):
		equals, there := word(next)
		if !there || !strings.HasPrefix(equals.Text, "=") {
			return "", at, false
		}
		name, list, next = piece.Text, equals.Text[1:], next+1
		at.EndLine, at.EndColumn = equals.At.EndLine, equals.At.EndColumn
	default:
		return "", at, false
	}
	for more, there := word(next); there && listPiece().MatchString(more.Text); more, there = word(next) {
		list += more.Text
		at.EndLine, at.EndColumn = more.At.EndLine, more.At.EndColumn
		next++
	}
	return name + "=" + list, at, true
}

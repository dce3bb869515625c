package lint

import (
	"slices"
	"strings"

	"gpuard/internal/core/check"
)

func cutAtComma() Rule {
	return Rule{
		Page: check.Page{
			Code:  "list-cut-at-comma",
			Title: "YAML cuts a list of devices at its comma",
			Text: "Between `{}` or `[]` a comma ends an entry. `{CUDA_VISIBLE_DEVICES: 0,1}` sets the variable to `0` and adds one of the name `1`; `[CUDA_VISIBLE_DEVICES=0,1]` is a list of two entries.\n\n" +
				"Put the value, or the whole entry, in quotes.",
			From: []string{"https://yaml.org/spec/1.2.2/#74-flow-collection-styles"},
		},
		Severity: check.Error,
		Bad: []Example{
			example("compose.yaml", "    environment: {CUDA_VISIBLE_DEVICES: 0,1, NCCL_DEBUG: WARN}\n"),
			example("list.compose.yaml", "    environment: [NVIDIA_VISIBLE_DEVICES=0,1,2]\n"),
			{"environment.yml", "name: train\ndependencies: [python]\nvariables: {ROCR_VISIBLE_DEVICES: 0,1}\n"},
			{".github/workflows/train.yml", "on: push\nenv: {CUDA_VISIBLE_DEVICES: 0,1}\njobs:\n  train:\n    runs-on: gpu\n    steps: [{run: python train.py}]\n"},
		},
		Good: []Example{
			example("compose.yaml", "    environment: {CUDA_VISIBLE_DEVICES: \"0,1\", NCCL_DEBUG: WARN, HOME}\n"),
			example("list.compose.yaml", "    environment: ['CUDA_VISIBLE_DEVICES=0,1', HOME]\n"),
			example("block.compose.yaml", "    environment:\n      CUDA_VISIBLE_DEVICES: 0,1\n"),
		},
		Look: func(f File) []Finding {
			var all []Finding
			for i, s := range f.Steps {
				if s.Do != Set || s.Shell != 0 || !forGPUs(s.Name) || strings.HasSuffix(s.How, ", cut") {
					continue
				}
				list, at := s.Value.Text, s.Value.At
				for _, next := range f.Steps[i+1:] {
					if next.How != s.How+", cut" || next.In != s.In || !listPiece().MatchString(next.Name) {
						break
					}
					list += "," + next.Name
					at.EndLine, at.EndColumn = next.At.EndLine, next.At.EndColumn
				}
				if list == s.Value.Text {
					continue
				}
				whole := `"` + list + `"`
				finding := Finding{Finding: check.Finding{Code: "list-cut-at-comma", Severity: check.Error, Seen: s.Name + " gets only " + quote(s.Value.Text) + ": what follows the comma is an entry of its own",
					Why: "between brackets YAML ends an entry at a comma", Do: "write: " + s.Name + ": " + whole}, At: s.Value.At}
				if s.At.Line == s.Value.At.Line && s.At.EndColumn == s.Value.At.EndColumn && s.Value.At.Column == s.At.Column+len(s.Name)+1 { // NAME=value in a list
					whole = `"` + s.Name + "=" + list + `"`
					at.Column, finding.Do = s.At.Column, "write: "+whole
				}
				if at.Line == at.EndLine {
					finding.Edits = []Edit{{At: at, Text: whole}}
				}
				all = append(all, finding)
			}
			return once(all)
		},
	}
}

var dollar = pattern(`\$(\w+|\{\w+[^}]*\}|\()`)

func dollarKept() Rule {
	return Rule{
		Page: check.Page{
			Code:  "variable-not-expanded",
			Title: "A $ that nothing expands",
			Text: "`$NAME` is replaced by shells, Dockerfiles and Compose. systemd does not do it in `Environment=`, GitHub not in `env:`, conda not in `variables:`, and a desktop entry or the exec form of a Dockerfile has no shell at all: the program gets the dollar sign and the name, which is no device, and sees no GPU.\n\n" +
				"systemd replaces `${NAME}` in `ExecStart=` and specifiers such as `%i` everywhere; GitHub has `${{ env.NAME }}`; elsewhere start a shell: `sh -c '...'`.",
			From: []string{systemdExec, systemdService, "https://docs.github.com/en/actions/reference/workflows-and-actions/contexts", desktopExec, "https://docs.docker.com/reference/dockerfile/#exec-form"},
		},
		Severity: check.Error,
		Bad: []Example{
			{"train@.service", "[Service]\nEnvironment=GPU=1 CUDA_VISIBLE_DEVICES=$GPU\nExecStart=/usr/bin/python3 /opt/train.py\n"},
			{"start.service", "[Service]\nEnvironment=GPU=1\nExecStart=/usr/bin/env CUDA_VISIBLE_DEVICES=$GPU /usr/bin/python3 /opt/train.py\n"},
			{".github/workflows/train.yml", "on: push\njobs:\n  train:\n    runs-on: gpu\n    env:\n      CUDA_VISIBLE_DEVICES: ${GPU}\n    steps:\n      - run: python train.py\n"},
			{"Dockerfile", "FROM python:3.12\nENTRYPOINT [\"env\", \"CUDA_VISIBLE_DEVICES=$GPU\", \"python\", \"train.py\"]\n"},
			{"train.desktop", "[Desktop Entry]\nExec=env \"CUDA_VISIBLE_DEVICES=\\\\$GPU\" /opt/train/run\n"},
		},
		Good: []Example{
			{"train@.service", "[Service]\nEnvironment=CUDA_VISIBLE_DEVICES=%i\nExecStart=/usr/bin/env NCCL_DEBUG=${LEVEL} /bin/bash -c 'CUDA_VISIBLE_DEVICES=$$GPU exec python3 /opt/train.py'\n"},
			{".github/workflows/train.yml", "on: push\njobs:\n  train:\n    runs-on: gpu\n    env:\n      CUDA_VISIBLE_DEVICES: ${{ matrix.gpu }}\n    steps:\n      - run: CUDA_VISIBLE_DEVICES=$GPU python train.py\n"},
			{"Dockerfile", "FROM python:3.12\nARG GPU=-1\nENV CUDA_VISIBLE_DEVICES=$GPU\nCMD [\"sh\", \"-c\", \"CUDA_VISIBLE_DEVICES=$GPU exec python train.py\"]\n"},
			example("compose.yaml", "    environment:\n      CUDA_VISIBLE_DEVICES: ${GPU:-0}\n"),
		},
		Look: func(f File) []Finding {
			var all []Finding
			look := func(s Step) {
				if keepsDollar(f.Kind, s) {
					all = append(all, Finding{Finding: check.Finding{Code: "variable-not-expanded", Severity: check.Error, Seen: s.Name + " gets the text " + quote(s.Value.Text) + " as it stands",
						Why: "no shell reads this line, so nothing puts a value in the place of the name", Do: unexpanded(f.Kind)}, At: s.At})
				}
			}
			for _, s := range f.Steps {
				if s.Shell != 0 {
					continue
				}
				switch {
				case s.Do == Set && s.How != "ENV" && s.How != "ARG":
					look(s)
				case s.Do == Command:
					for _, w := range alone(s) {
						look(w)
					}
				}
			}
			return all
		},
	}
}

// keepsDollar reports whether a value has a $ that its format does not expand.
func keepsDollar(k Kind, s Step) bool {
	return slices.Contains([]Kind{Unit, Workflow, Conda, Desktop, Dockerfile}, k) && forGPUs(s.Name) && s.Value.Known && dollar().MatchString(s.Value.Text)
}

func unexpanded(k Kind) string {
	switch k {
	case Unit:
		return "write the value, or ExecStart=/usr/bin/env NAME=${NAME} ... with braces"
	case Workflow:
		return "write ${{ env.NAME }}, or set it in the script"
	}
	return "write the value, or start it through sh -c"
}

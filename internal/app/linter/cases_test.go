package linter

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gpuard/internal/core/check"
	"gpuard/internal/core/visible"
	"gpuard/internal/gate"
)

// TestJudgedKinds: what is certain in its file is told as a remark where its kind was not right nearly always, and as a warning where what
// reads the file documents it.
func TestJudgedKinds(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want check.Severity
	}{
		"range.sh":           {"export CUDA_VISIBLE_DEVICES=0-3\npython train.py\n", check.Error},
		"misspelt.sh":        {"export CUDA_VISIBLE_DEVICE=3\npython train.py\n", check.Info},
		"docker-compose.yml": {"services:\n  a:\n    image: x\n    environment:\n      - CUDA_VISIBLE_DEVICES=\"\"\n", check.Warning},
	} {
		root := lay(t, map[string]string{name: c.text})
		r := look(t, false, root)
		alone, err := Options{Paths: []string{root}, Env: visible.Env(os.Environ())}.lookThrough(t.Context())
		if err != nil || len(alone.Findings) != 1 {
			t.Fatalf("%s: %v, %+v", name, err, alone.Findings)
		}
		if len(r.Findings) != 1 || r.Findings[0].Severity != c.want || !alone.Findings[0].Severity.Bad() || r.Bad() != (c.want != check.Info) {
			t.Errorf("%s: %+v, wanted %s", name, r.Findings, c.want)
		}
	}
}

// TestCases: what is found in the files of testdata/cases.txt, by their real names, with what is a
// preview, and with --docs for Markdown. A severity is that which a finding has by itself.
func TestCases(t *testing.T) {
	gate.Need(t, "python3")
	text, err := os.ReadFile(filepath.Join("testdata", "cases.txt"))
	if err != nil {
		t.Fatal(err)
	}
	head := regexp.MustCompile(`(?m)^-- (\S+) (\S+): (\S+) --\n`)
	heads := head.FindAllStringSubmatchIndex(string(text), -1)
	if len(heads) < 50 {
		t.Fatalf("%d cases", len(heads))
	}
	for i, h := range heads {
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		id, want, name := string(text[h[2]:h[3]]), string(text[h[4]:h[5]]), string(text[h[6]:h[7]])
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), name)
			err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(strings.TrimRight(string(text[h[1]:end]), "\n")+"\n"), 0o644))
			if err != nil {
				t.Fatal(err)
			}
			docs := strings.HasSuffix(name, ".md")
			r, err := Options{Paths: []string{path}, Docs: docs, Preview: true, Env: visible.Env(os.Environ())}.lookThrough(t.Context())
			if err != nil || len(r.Problems)+len(r.Skipped) > 0 {
				t.Fatalf("%v, %v, %v", err, r.Problems, r.Skipped)
			}
			if !isWanted(want, r.Findings) {
				t.Errorf("wanted %s:\n%s\n%s", want, told(r.Findings), text[h[1]:end])
			}
		})
	}
}

func isWanted(want string, found []LocatedFinding) bool {
	switch want {
	case "none":
		return len(found) == 0
	case "one":
		return len(found) == 1
	case "error", "warning", "info":
		for _, f := range found {
			if f.Severity != check.Severity(want) {
				return false
			}
		}
	}
	return len(found) > 0
}

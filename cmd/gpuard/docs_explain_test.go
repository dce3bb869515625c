package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const seesPage = "docs/explanation/what-your-program-sees.md"

// TestDocsWhatYourProgramSees runs every console example of the page and compares what it prints with what is written
// there. GPUARD_UPDATE=1 writes the page again.
func TestDocsWhatYourProgramSees(t *testing.T) {
	t.Chdir("../..")
	page, err := os.ReadFile(seesPage)
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```console\n(.*?)```\n")
	examples := 0
	made := blocks.ReplaceAllStringFunc(string(page), func(block string) string {
		have := blocks.FindStringSubmatch(block)[1]
		var commands []string
		for line := range strings.Lines(have) {
			if c, ok := strings.CutPrefix(line, "$ "); ok {
				commands = append(commands, strings.TrimSuffix(c, "\n"))
			}
		}
		examples += len(commands)
		now := console(t, commands)
		if now != have && os.Getenv("GPUARD_UPDATE") == "" {
			t.Errorf("%s is stale (GPUARD_UPDATE=1 go test ./cmd/gpuard -run %s writes it again)\nthe page:\n%s\nnow:\n%s", seesPage, t.Name(), have, now)
		}
		return "```console\n" + now + "```\n"
	})
	if examples < 20 {
		t.Errorf("only %d examples were found", examples)
	}
	if os.Getenv("GPUARD_UPDATE") != "" {
		if err := os.WriteFile(seesPage, []byte(made), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// console runs commands in one shell and writes them with their output as a page shows it. What differs from run to
// run (process ids, lease ids, the user's name) is replaced.
func console(t *testing.T, commands []string) string {
	t.Helper()
	const mark = "@@next@@"
	script := "started=\n"
	for i, c := range commands {
		if i > 0 {
			script += "echo " + mark + "\n"
		}
		if strings.HasSuffix(c, "&") {
			// The command must have begun before it is asked about, and must not outlive the example.
			c += " started=$!; until grep -q sleep /proc/$!/comm; do :; done"
		}
		script += c + "\n"
	}
	script = strings.ReplaceAll(script, "sleep 60 & gpuard explain $!'", "sleep 60 & until grep -q sleep /proc/$!/comm; do :; done; gpuard explain $!; kill $!'")
	cmd := exec.Command("sh", "-c", script+"test -z \"$started\" || kill $started\n")
	bin := t.TempDir()
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(bin, "gpuard"))
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(program(t, filepath.Join(bin, "state"), nil).Env, "GPUARD_MACHINE=demo", "PATH="+bin+":"+os.Getenv("PATH"), "LC_ALL=C.UTF-8")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%q: %v\n%s", commands, err, out.String())
	}
	answers := strings.Split(out.String(), mark+"\n")
	if len(answers) != len(commands) {
		t.Fatalf("%d answers to %q:\n%s", len(answers), commands, out.String())
	}
	var page strings.Builder
	for i, c := range commands {
		fmt.Fprintf(&page, "$ %s\n%s", c, steady(t, answers[i]))
	}
	return page.String()
}

// steady replaces what differs from run to run.
func steady(t *testing.T, text string) string {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`(?i)(process) \d+`).ReplaceAllString(text, "${1} 4242")
	text = strings.ReplaceAll(text, " of "+me.Username+":", " of alice:")
	return regexp.MustCompile(`lease [a-z][a-z0-9]{3}\b`).ReplaceAllStringFunc(text, func(s string) string {
		if word := strings.TrimPrefix(s, "lease "); word == "hold" {
			return s
		}
		return "lease k3f9"
	})
}

package commands

import (
	"strings"
	"testing"

	"gpuard/internal/ui/cli"
)

// TestJoinWait: a time after --wait is its value, unless it is part of the command.
func TestJoinWait(t *testing.T) {
	for words, want := range map[string]string{
		"run --wait 10m -- app":              "run --wait=10m -- app",
		"run --wait 10m app":                 "run --wait=10m app",
		"run -q --gpus 2 --wait 90s -- app":  "run -q --gpus 2 --wait=90s -- app",
		"--machine demo run --wait 1d app":   "--machine demo run --wait=1d app",
		"run --wait app 10m":                 "run --wait app 10m",
		"run --wait forever app":             "run --wait=forever app",
		"run --wait 1d2h app":                "run --wait=1d2h app",
		"run app --wait 10m":                 "run app --wait 10m",
		"run -- app --wait 10m":              "run -- app --wait 10m",
		"run --wait -- 10m":                  "run --wait -- 10m",
		"run --gpus 2 app --wait 10m":        "run --gpus 2 app --wait 10m",
		"reserve --wait 10m --pid 4242":      "reserve --wait=10m --pid 4242",
		"reserve --pid 4242 --wait 10m":      "reserve --pid 4242 --wait=10m",
		"reserve --shell --wait 10m":         "reserve --shell --wait=10m",
		"status --json":                      "status --json",
		"run --model --wait --wait 5s -- ab": "run --model --wait --wait=5s -- ab",
	} {
		root := cli.CommandTree(CommandTable())
		if got := strings.Join(cli.JoinWait(root, strings.Fields(words)), " "); got != want {
			t.Errorf("%s: %s, want %s", words, got, want)
		}
	}
}

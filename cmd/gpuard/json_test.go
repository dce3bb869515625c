package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestJSON: whatever happens, --json is answered by one object with the command's schema, without a list that is null,
// and with the exit code in it when something failed.
func TestJSON(t *testing.T) {
	tests := []struct {
		args string
		code int
	}{
		{"status --json", 0},
		{"--json", 0},
		{"status --json --machine demo:2xL4+1xMI300X", 0},
		{"status --json --watch", 2},
		{"status --bogus --json", 2},
		{"status --json --machine no-such-file", 2},
		{"explain --json", 0},
		{"explain --json CUDA_VISIBLE_DEVICES=", 0},
		{"explain --json CUDA_VISIBLE_DEVICES=0,0,9 WRONG=1", 0},
		{"explain --json 0,1", 2},
		{"doctor --json", 0},
		{"doctor --json --run", 2},
		{"doctor --json --for .venv", 2},
		{"doctor --json --bundle", 2},
		{"doctor --json nonsense", 2},
		{"env --json", 0},
		{"env --json --cpu", 0},
		{"env --format json --gpus 9", 1},
		{"env --json --gpus none", 2},
		{"env --gpus none --format json", 2},
		{"release --json", 2},
		{"release --json nope", 1},
		{"run --json --dry-run", 0},
		{"run --json --dry-run --cpu", 0},
		{"run --json --dry-run --gpus 9", 122},
		{"run --json -- true", 0},
		{"run --json --cpu -- true", 0},
		{"run --json --gpus 9 -- true", 122},
		{"run --json --device 9 -- true", 122},
		{"run --json --cpu --gpus 1 -- true", 125},
		{"run --bogus --json -- true", 125},
		{"run --gpus --json -- true", 125},
		{"run --gpus abc --json -- true", 125},
		{"run --json -- no-such-command", 127},
		{"run --json -- /", 126},
		{"reserve --pid 0 --json", 125},
		{"reserve --json", 125},
		{fmt.Sprintf("reserve --gpus 9 --json --pid %d", os.Getpid()), 122},
		{"setup --json", 0},
		{"setup direnv --json --dry-run --device 0", 0},
		{"setup direnv --json --gpus none", 2},
		{"setup nowhere --json", 2},
		{"statsu --json", 2},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(tt.args)
			got := runCommand(t, gpuardCommand(t, stateFolder(t), []string{"GPUARD_MACHINE=demo"}, args...))
			if got.code != tt.code {
				t.Errorf("exit code %d, want %d", got.code, tt.code)
			}
			text, other := got.out, got.err
			if args[0] == "run" && !slices.Contains(args, "--dry-run") {
				text, other = got.err, got.out
			}
			if other != "" {
				t.Errorf("and besides: %s", other)
			}
			checkAnswer(t, args[0], tt.code, text)
		})
	}
}

func checkAnswer(t *testing.T, command string, code int, text string) {
	t.Helper()
	var answer map[string]any
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	if strings.HasPrefix(command, "-") || command == "statsu" {
		command = "status"
	}
	if answer["schema"] != "gpuard."+command+"/1" {
		t.Errorf("schema %v", answer["schema"])
	}
	_, failed := answer["error"]
	if failed != (code != 0) || failed && answer["exit"] != float64(code) {
		t.Errorf("exit code %d and error %v, exit %v", code, answer["error"], answer["exit"])
	}
	if failed && !strings.HasPrefix(fmt.Sprint(answer["error"]), "cannot ") {
		t.Errorf("an error that does not say what failed: %v", answer["error"])
	}
	noNullLists(t, "", answer)
}

// noNullLists finds null where the reference promises a list.
func noNullLists(t *testing.T, at string, value any) {
	t.Helper()
	lists := []string{"devices", "reasons", "notes", "visible", "unset", "unavailable", "problems", "why", "leases", "processes", "mig", "findings"}
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if inner == nil && slices.Contains(lists, key) {
				t.Errorf("%s.%s is null, not a list", at, key)
			}
			noNullLists(t, at+"."+key, inner)
		}
	case []any:
		for i, inner := range v {
			noNullLists(t, fmt.Sprintf("%s[%d]", at, i), inner)
		}
	}
}

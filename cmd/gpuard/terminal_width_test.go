package main

import "testing"

// TestMessagesBreakBetweenWords: a message that is wider than the terminal is continued below its first word.
func TestMessagesBreakBetweenWords(t *testing.T) {
	t.Parallel()
	s := startOnTerminal(t, gpuardCommand(t, stateFolder(t), []string{"COLUMNS="}, "run", "--machine", "demo", "--gpus", "2", "--", "true"))
	s.waitForScreen(`gpuard: GPU 2 \([^\n]{40,71}\n        [^\n]*lease [a-z0-9]{4}\n`)
}

package runner

import (
	"bufio"
	"encoding/json"
	"io"

	"gpuard/internal/core/job"
	"gpuard/internal/core/status"
	"gpuard/internal/host/batch"
)

// runnerMessage is a line from the runner to the process that people see. What has to last is in the journal.
type runnerMessage struct {
	Say string `json:"say,omitempty"`
	// What is said also with --quiet.
	Loud string `json:"loud,omitempty"`
	// Why no device is free.
	Stand   *status.Standing `json:"stand,omitempty"`
	Moves   bool             `json:"moves,omitempty"` // one is free again
	Refusal *job.Refusal     `json:"refusal,omitempty"`
	// That ends the sweep.
	Error string `json:"error,omitempty"`
	Full  bool   `json:"full,omitempty"` // it is a full disk
}

// sendMessage writes a message without waiting: it is dropped if there is no reader.
func sendMessage(pipe int, m runnerMessage) {
	line, err := json.Marshal(m)
	if err != nil {
		return
	}

	batch.WriteNonblocking(pipe, append(line, '\n'))
}

// receiveMessages reads messages until the runner is gone.
func receiveMessages(r io.Reader, out chan<- runnerMessage) {
	defer close(out)
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		var m runnerMessage
		if json.Unmarshal(line, &m) == nil {
			out <- m
		}
		if err != nil {
			return
		}
	}
}

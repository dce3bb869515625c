package batchcmd

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/app/machine"
	"gpuard/internal/gate"
	"gpuard/internal/ui/cli"
)

// TestScriptFlags: of many malformed scripts each is read, or refused with one error that names the file and the line.
func TestScriptFlags(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // a test
	pieces := []string{"#!/bin/sh\n", "#GPUARD ", "#GPUARD", "--gpus 2", "--gpus", "--mem 20G", "--mem=", "'", "\"", "\\", "\n", " ", "\t", "\x00", "é", "\xff", "$(reboot)", "`x`", "#", "--name 'a b'",
		"--timeout 8h", "--array 1-9", "--help", "--json", "-q", "--", "python train.py", "--no-such-flag", "-x", "--note \"$HOME\"", "--after 1:any", "=", "-", "--log", "\r\n"}
	path := filepath.Join(t.TempDir(), "job.sh")
	refused := 0
	tries := gate.SoakCount(10_000, 2_000)
	for range tries {
		var text strings.Builder
		if random.IntN(8) > 0 {
			text.WriteString("#!/bin/sh\n#GPUARD ")
		}
		for range random.IntN(12) {
			text.WriteString(pieces[random.IntN(len(pieces))])
		}
		if err := os.WriteFile(path, []byte(text.String()), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
		p := &cli.Program{Err: io.Discard, Host: &machine.Host{}}
		cmd := NewSubmitCommand(p)
		_, err := scriptFlags(p, cmd, "", []string{path})
		if err == nil {
			continue
		}
		refused++
		if !strings.HasPrefix(err.Error(), fmt.Sprintf("cannot read %s, line ", path)) {
			t.Fatalf("%q: %v", text.String(), err)
		}
	}
	if refused < tries/10 || refused > tries*99/100 {
		t.Errorf("%d of %d were refused", refused, tries)
	}
}

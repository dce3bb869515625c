package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/check"
)

// runOnSite is the program with files of the system below $SITE in place of /: etc, sys, dev, usr.
func runOnSite() {
	const moment = 20 * time.Millisecond
	os.Exit(start(os.Getenv("SITE"), machine.Times{Driver: 2 * time.Second, Fading: time.Second, Lock: time.Second, Touch: moment}))
}

// TestDoctorFront: the answer is one object with every check, and the first line of the text is its verdict.
func TestDoctorFront(t *testing.T) {
	t.Parallel()
	got := runCommand(t, gpuardCommand(t, stateFolder(t), nil, "doctor", "--json"))
	var answer struct {
		Schema, Summary string
		Next            *string
		Findings        []struct{ Code, Severity, Seen string }
	}
	if err := json.Unmarshal([]byte(got.out), &answer); err != nil || answer.Schema != "gpuard.doctor/1" || answer.Next == nil || answer.Findings == nil {
		t.Fatalf("%v in %s%s", err, got.out, got.err)
	}
	for _, c := range check.Checks() {
		if !slices.ContainsFunc(answer.Findings, func(f struct{ Code, Severity, Seen string }) bool {
			return f.Code == c.Code && f.Severity != "" && f.Seen != ""
		}) {
			t.Errorf("the check %s is not in the answer", c.Code)
		}
	}
	bad := false
	for _, f := range answer.Findings {
		bad = bad || f.Severity == "warning" || f.Severity == "error"
	}
	if bad != (got.code == 1) || got.code > 1 {
		t.Errorf("exit code %d of %s", got.code, got.out)
	}
	text := runCommand(t, gpuardCommand(t, stateFolder(t), nil, "doctor"))
	if first, _, _ := strings.Cut(text.out, "\n"); !strings.HasPrefix(first, answer.Summary) || text.code != got.code {
		t.Errorf("exit code %d, the first line is %q and not %q", text.code, first, answer.Summary)
	}
}

// TestDoctorHungGPU: a GPU whose driver calls hang costs only its own reading, and is reported.
func TestDoctorHungGPU(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	r.Hang("nvmlDeviceGetTemperature", 1)
	cmd := r.cmd("doctor")
	cmd.Args[0] = "hasty" // the driver has a second
	began := time.Now()
	got := runCommand(t, cmd)
	if spent := time.Since(began); got.code != 1 || spent > 10*time.Second {
		t.Errorf("exit code %d after %s", got.code, spent)
	}
	first, rest, _ := strings.Cut(got.out, "\n")
	checkContains(t, first, "GPU programs will run here (1 NVIDIA A100-SXM4-80GB, driver 550.54.15), but not every one: GPU 1: no answer within 1s. Next: ")
	checkContains(t, rest, "(gpu-answers)")
}

package explain

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	cpu "runtime" // the package has a function of that name
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/visible"
	"gpuard/internal/gate"
	"gpuard/internal/host/libcuda"
	"gpuard/internal/host/nvml"
	"gpuard/test/fakegpu"
	"gpuard/test/recorded"
)

// asked is one row with the driver's answer and what we said.
type asked struct {
	recorded.Row
	probe Probe
	err   error
}

// survey asks the driver about every row in a child of its own, several at a time, and fills in the answers.
func survey(ctx context.Context, m gpu.Machine, env []string, rows []recorded.Row, parallel int) []asked {
	out := make([]asked, len(rows))
	next := make(chan int)
	var wg sync.WaitGroup
	for range parallel {
		wg.Go(func() {
			for i := range next {
				q := asked{Row: rows[i]}
				with := append(slices.Clone(visible.Env(q.Env())), env...)
				var answer libcuda.Answer
				if answer, q.err = libcuda.AskInChild(ctx, with, time.Minute); q.err == nil {
					q.probe = compareProbe(with, visible.CUDA(with, m), m, answer)
					q.Code = answer.Code
					for _, d := range answer.Devices {
						q.Devices = append(q.Devices, d.UUID)
					}
				}
				out[i] = q
			}
		})
	}
	for i := range rows {
		next <- i
	}
	close(next)
	wg.Wait()
	return out
}

// keep writes what a survey found into dir: the table and its machine, ready to become a fixture of core/visible, and
// the differences in words.
func keep(dir string, m gpu.Machine, all []asked) error {
	var rows []recorded.Row
	var text strings.Builder
	for _, q := range all {
		switch {
		case q.err != nil:
			fmt.Fprintf(&text, "%q: no answer: %v\n", q.Env(), q.err)
		case !q.probe.Agrees:
			fmt.Fprintf(&text, "%q: cuInit %d: %s\n", q.Env(), q.Code, strings.Join(q.probe.Differences, "; "))
		}
		if q.err == nil {
			rows = append(rows, q.Row)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "differences.txt"), []byte(text.String()), 0o644); err != nil {
		return err
	}
	return recorded.WriteTable(dir, "recorded", fmt.Sprintf("answers of libcuda, driver %s, CUDA %s", m.Driver, m.CUDA), m, rows)
}

// questions are the rows of the documents that can be asked here, undocumented ones, and random ones.
func questions(m gpu.Machine, n int) []recorded.Row {
	rows := []recorded.Row{{Machine: m}}
	for _, v := range []string{"", " ", "-1", "0", "0,0", "0,", ",0", ",", "0x0", "0x1", "00", "010", "+0", "-0", "+", "-", "0-1", "0;1", "0 1", "0 ,1",
		"18446744073709551616", "4294967296", "NoDevFiles", "all", "none", "void", "cuda:0", `"0"`, "0,-1", "-1,0", "0,9,0", "0,99"} {
		rows = append(rows, recorded.Row{Machine: m, Visible: &v}, recorded.Row{Machine: m, Visible: &v, Order: new("PCI_BUS_ID")})
	}
	return append(rows, recorded.RandomRows(m, 1, n)...)
}

// TestDriverAgrees asks the real driver. GPUARD_PROBES is how many random questions there are besides the fixed ones;
// GPUARD_RECORD names a folder for what was found. "make gpu-check" sets both.
func TestDriverAgrees(t *testing.T) {
	gate.Need(t, "gpu")
	n := 50
	if text := os.Getenv("GPUARD_PROBES"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("GPUARD_PROBES: %v", err)
		}
	}
	lib, err := nvml.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m, err := lib.Read(t.Context(), gpu.Query{What: gpu.Identity | gpu.Load})
	if err != nil {
		t.Fatal(err)
	}
	var env visible.Env
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); !slices.Contains(visible.Variables(), name) {
			env = append(env, pair)
		}
	}
	all := survey(t.Context(), m, env, questions(m, n), cpu.NumCPU())
	if dir := os.Getenv("GPUARD_RECORD"); dir != "" {
		if err := keep(dir, m, all); err != nil {
			t.Fatal(err)
		}
	}
	report(t, all)
}

// report fails the test with the first few differences and the number of all.
func report(t *testing.T, all []asked) {
	t.Helper()
	wrong := 0
	for _, q := range all {
		if q.err == nil && q.probe.Agrees {
			continue
		}
		if wrong++; wrong <= 20 {
			t.Errorf("%q: cuInit %d, %q, %v", q.Env(), q.Code, q.probe.Differences, q.err)
		}
	}
	t.Logf("%d questions, %d differences", len(all), wrong)
}

// The recorder itself, over the fake: what it writes can be read, and a difference is neither lost nor hidden.
func TestSurveyIsKept(t *testing.T) {
	m := demo(t, "demo:2xA100-80GB")
	m.Source = "file"
	d := fakegpu.New(t)
	d.SetCUDATable(
		fakegpu.Answer{Devices: []fakegpu.Seen{seen(m, 0), seen(m, 1)}},
		fakegpu.Answer{Visible: new("1"), Devices: []fakegpu.Seen{seen(m, 0)}}, // a driver with another idea
		fakegpu.Answer{Visible: new("-1"), Order: new("PCI_BUS_ID"), Code: 100},
	)
	rows := []recorded.Row{
		{Machine: m}, {Machine: m, Visible: new("1")}, {Machine: m, Visible: new("-1"), Order: new("PCI_BUS_ID")},
		{Machine: m, Visible: new("2")}, // not in the fake's table: no answer
	}
	all := survey(t.Context(), m, d.Env(), rows, 2)
	dir := t.TempDir()
	if err := keep(dir, m, all); err != nil {
		t.Fatal(err)
	}
	got := recorded.ReadTable(t, filepath.Join(dir, "recorded.txt.gz"))
	if len(got) != 3 || len(got[0].Devices) != 2 || got[1].Devices[0] != m.Devices[0].UUID || got[2].Code != 100 || *got[2].Order != "PCI_BUS_ID" {
		t.Errorf("the table is %+v", got)
	}
	text, err := os.ReadFile(filepath.Join(dir, "differences.txt"))
	if lines := strings.Split(strings.TrimSpace(string(text)), "\n"); err != nil || len(lines) != 2 ||
		!strings.Contains(lines[0], `"CUDA_VISIBLE_DEVICES=1"`) || !strings.Contains(lines[1], "no answer: cannot ask the CUDA driver: cuInit answers 999") {
		t.Errorf("the differences are %q, %v", text, err)
	}
	if n := len(questions(m, 100)); n < 150 {
		t.Errorf("%d questions", n)
	}
}

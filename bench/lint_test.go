package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What gpuard lint may take for a folder of this many files.
const (
	lintFiles      = 30_000
	goalLintMemory = 150.0  // MB
	goalLintSpeed  = 1000.0 // files per second on two processors
)

// BenchmarkLint searches folders like those of public repositories, beside grep, which only reads them.
func BenchmarkLint(b *testing.B) {
	gpuard := buildProgram(b)
	root := layRepositories(b)
	var took time.Duration
	var memory float64
	for b.Loop() {
		grep := command([]string{"grep", "-rlE", "CUDA_VISIBLE_DEVICES|torchrun|--gpus", root}, nil)
		began := time.Now()
		err := grep.Run()
		if err != nil {
			b.Fatal(err)
		}
		plain := time.Since(began)

		lint := command([]string{gpuard, "lint", "--json", root}, nil)
		began = time.Now()
		answer, err := lint.Output()
		took = time.Since(began)
		var failed *exec.ExitError
		if err != nil && (!errors.As(err, &failed) || failed.ExitCode() != 1) {
			b.Fatal(err)
		}
		var report struct {
			Files    int
			Findings []json.RawMessage
		}
		err = json.Unmarshal(answer, &report)
		if err != nil || len(report.Findings) == 0 {
			b.Fatalf("%v: %.200s", err, answer)
		}
		memory = float64(lint.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) / 1024
		fmt.Printf("\n%d files, %d of a format that is read: gpuard lint %.1f s (%d findings), grep %.1f s\n", lintFiles, report.Files, took.Seconds(), len(report.Findings), plain.Seconds())
	}
	speed := lintFiles / took.Seconds()
	fmt.Printf("goal: memory: at most %.0f MB: %.0f MB, %s\n", goalLintMemory, memory, verdict(memory <= goalLintMemory))
	fmt.Printf("goal: at least %.0f files per second: %.0f, %s\n\n", goalLintSpeed, speed, verdict(speed >= goalLintSpeed))
	b.ReportMetric(speed, "files/s")
	b.ReportMetric(memory, "MB")
}

// layRepositories lays files as public repositories of training code have them: of 100 files 75 are Python, 12 of them
// with words of interest, 13 are shell scripts, 2 notebooks with their outputs, and 10 nothing that is read.
func layRepositories(b *testing.B) (root string) {
	b.Helper()
	root = b.TempDir()
	plain := "import os\n\n\n" + strings.Repeat("def step(model, batch, rate=0.1):\n    loss = model(batch[\"x\"], weight=rate * len(batch))\n    if loss.item() > 1.0:\n        loss = loss / 2\n    return loss\n\n\n", 55)
	device := "import os\nimport torch\n\nos.environ[\"CUDA_VISIBLE_DEVICES\"] = \"0\"\n\n\n" + strings.ReplaceAll(plain, "batch[\"x\"]", "batch[\"x\"].cuda()")
	script := "#!/bin/bash\nset -e\n" + strings.Repeat("python prepare.py --rate 0.1 \"$@\" | tee -a \"$log\"\nmkdir -p out && cp -r data out/\n", 20) + "CUDA_VISIBLE_DEVICES=0-1 torchrun --nproc_per_node=2 train.py\n"
	notebook := `{"cells": [{"cell_type": "code", "metadata": {}, "execution_count": 1, "source": ["import torch\n", "x = torch.zeros(3).cuda()"], "outputs": [{"output_type": "display_data", "metadata": {}, "data": {"image/png": "` +
		strings.Repeat("iVBORw0KGgo", 20_000) + `"}}]}], "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}`
	kinds := []struct {
		share int
		ext   string
		text  string
	}{{63, ".py", plain}, {75, ".py", device}, {88, ".sh", script}, {90, ".ipynb", notebook}, {100, ".json", strings.Repeat("{\"a\": 1},\n", 500)}}
	for i := range lintFiles {
		dir := filepath.Join(root, fmt.Sprintf("repository%d", i/300), fmt.Sprintf("part%d", i/30%10))
		if i%30 == 0 {
			err := os.MkdirAll(dir, 0o755)
			if err != nil {
				b.Fatal(err)
			}
		}
		kind := kinds[0]
		for _, k := range kinds {
			if i%100 < k.share {
				kind = k
				break
			}
		}
		err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("file%d%s", i, kind.ext)), []byte(kind.text), 0o644)
		if err != nil {
			b.Fatal(err)
		}
	}
	return root
}

// Package nvidia runs NVIDIA's own libraries over invented GPUs: a preloaded library (c/) stands in for the kernel driver,
// and libnvidia-ml, libcuda and nvidia-smi are those that NVIDIA publishes, unchanged. README.md says what they can be asked,
// and what depends on what the pretended driver answers. It knows no rule of gpuard's.
package nvidia

import (
	"bufio"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/gate"
	"gpuard/test/fakegpu"
	"gpuard/test/recorded"
)

//go:embed c machines build.go
var sources embed.FS

// Library is one version of NVIDIA's libraries.
type Library struct {
	Version string
	Folder  string // with libcuda.so.1 and libnvidia-ml.so.1
}

// Libraries are those that "make nvidia" has put into its folder, the oldest first. The test is skipped where there are none.
func Libraries(t testing.TB) (all []Library) {
	t.Helper()
	gate.Need(t, "cc")
	found, err := filepath.Glob(filepath.Join(gate.NVIDIA(t), "*", "libcuda.so.*.*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		all = append(all, Library{strings.TrimPrefix(filepath.Base(path), "libcuda.so."), filepath.Dir(path)})
	}
	slices.SortFunc(all, func(a, b Library) int { return strings.Compare(a.Version, b.Version) })
	return all
}

// Lab is one invented machine with one version of the libraries.
type Lab struct {
	Machine gpu.Machine // as gpuard would read it, as far as the tests need it
	Library Library

	t     testing.TB
	root  string // of /proc and /sys, with the machine's file
	built string // the preloaded library, and ask
}

// New makes the machine that machines/NAME.txt describes.
func New(t testing.TB, library Library, name string) *Lab {
	t.Helper()
	text, err := fs.ReadFile(sources, "machines/"+name+".txt")
	if err != nil {
		t.Fatal(err)
	}
	l := &Lab{Library: library, t: t, root: t.TempDir(), built: build(t)}
	l.Machine = parse(t, string(text))
	l.Machine.Driver = library.Version
	l.write("machine", "driver "+library.Version+"\n"+string(text))
	l.plant()
	return l
}

// Env is what a program needs to run on this machine.
func (l *Lab) Env() []string {
	return []string{"LD_PRELOAD=" + filepath.Join(l.built, "driver.so"), "LD_LIBRARY_PATH=" + l.Library.Folder, "NVIDIA_LAB=" + filepath.Join(l.root, "machine")}
}

// Ask asks libcuda the questions of the rows, and returns them with its answers.
func (l *Lab) Ask(rows []recorded.Row) []recorded.Row {
	l.t.Helper()
	var questions strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&questions, "%s %s\n", fakegpu.Escape(r.Visible), fakegpu.Escape(r.Order))
	}
	cmd := exec.CommandContext(l.t.Context(), filepath.Join(l.built, "ask")) //nolint:gosec // ours
	cmd.Env, cmd.Stdin, cmd.Stderr = append(os.Environ(), l.Env()...), strings.NewReader(questions.String()), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		l.t.Fatalf("cannot ask libcuda %s: %v", l.Library.Version, err)
	}
	answers := bufio.NewScanner(strings.NewReader(string(out)))
	rows = slices.Clone(rows)
	for i := range rows {
		if !answers.Scan() {
			l.t.Fatalf("libcuda %s gave %d answers to %d questions", l.Library.Version, i, len(rows))
		}
		words := strings.Fields(answers.Text())
		if rows[i].Code, err = strconv.Atoi(words[0]); err != nil {
			l.t.Fatal(err)
		}
		rows[i].Devices = nil
		for _, digits := range words[1:] {
			rows[i].Devices = append(rows[i].Devices, l.identity(digits))
		}
	}
	return rows
}

// identity is the UUID with these digits.
func (l *Lab) identity(digits string) gpu.UUID {
	l.t.Helper()
	for _, d := range l.Machine.Devices {
		ids := []gpu.UUID{d.UUID}
		for _, s := range d.MIG {
			ids = append(ids, s.UUID)
		}
		for _, id := range ids {
			if strings.ReplaceAll(string(id[4:]), "-", "") == digits {
				return id
			}
		}
	}
	l.t.Fatalf("libcuda shows a device with the digits %s, which the machine does not have", digits)
	return ""
}

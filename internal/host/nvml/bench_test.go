package nvml

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ebitengine/purego"

	"gpuard/internal/core/gpu"
	"gpuard/internal/gate"
	"gpuard/test/fakegpu"
)

const runNeeds = gpu.Identity | gpu.Quick | gpu.Processes | gpu.Faults | gpu.Deciding

// openAt initialises the library at a path; Open takes the one that the loader finds.
func openAt(t testing.TB, path string) *Library {
	t.Helper()
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		t.Fatal(err)
	}
	l := newLibrary()
	l.handle = handle
	if s := l.callDriver("nvmlInit_v2"); s != success {
		t.Fatal(l.errorText(s))
	}
	if err := l.countDevices(); err != nil {
		t.Fatal(err)
	}
	l.turn <- struct{}{}
	return l
}

// instant builds a library that has every function this package names and returns immediately, to measure this package
// alone.
func instant(b *testing.B) string {
	b.Helper()
	gate.Need(b, "cc")
	names := map[string]bool{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		b.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		code, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`"nvml[A-Z]\w+"`).FindAllString(string(code), -1) {
			names[strings.Trim(name, `"`)] = true
		}
	}
	var source strings.Builder
	for _, special := range []string{"nvmlDeviceGetCount_v2", "nvmlDeviceGetUUID"} {
		delete(names, special)
	}
	for _, l := range processLists() {
		fmt.Fprintf(&source, "int %s_v3(void *d, unsigned *n, void *out) { *n = 0; return 0; }\n", l.function)
		delete(names, l.function)
	}
	for name := range names {
		fmt.Fprintf(&source, "int %s(void) { return 0; }\n", name)
	}
	source.WriteString("int nvmlDeviceGetCount_v2(unsigned *n) { *n = 8; return 0; }\n")
	source.WriteString("int nvmlDeviceGetUUID(void *d, char *out, unsigned n) { out[0] = 'G'; out[1] = 0; return 0; }\n")
	folder := b.TempDir()
	file, library := filepath.Join(folder, "instant.c"), filepath.Join(folder, "instant.so")
	if err := os.WriteFile(file, []byte(source.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	if out, err := exec.Command("cc", "-O2", "-shared", "-fPIC", "-o", library, file).CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return library
}

func benchmarkReads(b *testing.B, path string, fresh bool) {
	l := openAt(b, path)
	b.ReportAllocs()
	for b.Loop() {
		if fresh { // nothing looked up yet, as in a program that reads once
			clear(l.addresses)
		}
		m, err := l.Read(b.Context(), gpu.Query{What: runNeeds})
		if err != nil || len(m.Devices) != 8 {
			b.Fatalf("%d devices: %v", len(m.Devices), err)
		}
	}
}

func BenchmarkOwnTimeFirstReading(b *testing.B) { benchmarkReads(b, instant(b), true) }

func BenchmarkOwnTime(b *testing.B) { benchmarkReads(b, instant(b), false) }

func BenchmarkFakeDriver(b *testing.B) {
	var devices []fakegpu.GPU
	for i := range 8 {
		devices = append(devices, fakegpu.A100(i))
	}
	d := fakegpu.New(b, devices...)
	benchmarkReads(b, d.Library(), false)
}

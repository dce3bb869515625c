package compat

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
)

func TestTablesAreWellFormed(t *testing.T) {
	for name, file := range map[string]struct {
		text     string
		versions []int // columns that hold a version or "-"
	}{
		"cuda":       {cudaTable, []int{0, 1}},
		"hardware":   {hardwareTable, []int{0, 3, 4}},
		"tensorless": {tensorlessTable, nil},
		"integrated": {integratedTable, nil},
		"torch":      {torchTable, []int{0, 1, 2}},
		"packages":   {packageTable, []int{1, 2, 3, 4, 5}},
	} {
		tab, err := readTable(file.text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !strings.HasPrefix(tab.Source, "https://") || tab.Date.Year() < 2025 {
			t.Errorf("%s: source %q of %v: every table names its pages and the day on which they were read", name, tab.Source, tab.Date)
		}
		seen := map[string]bool{}
		for _, row := range tab.Rows {
			if key := strings.Join(row[:min(3, len(row)-1)], " "); seen[key] {
				t.Errorf("%s: %q twice", name, key)
			} else {
				seen[key] = true
			}
			for _, column := range file.versions {
				if cell := row[column]; cell != "-" && LeadingNumbers(cell) == nil {
					t.Errorf("%s: %q is no version in %q", name, cell, row)
				}
			}
		}
	}
}

// Ranges of one package have no gap that a released version falls into, and never overlap: the first matching row would
// hide the other.
func TestRangesDoNotOverlap(t *testing.T) {
	check := func(name string, first, last int, tables [][]string) {
		for i, a := range tables {
			for _, b := range tables[i+1:] {
				if a[0] == b[0] && isInRange(b[first], a[first], a[last]) {
					t.Errorf("%s: %q overlaps %q", name, a, b)
				}
			}
		}
	}
	check("torch", 1, 2, tableRows(torchTable))
	check("packages", 1, 2, tableRows(packageTable))
}

func TestReadRefusesBrokenTables(t *testing.T) {
	head := "# title: T\n# source: https://example.org\n# date: 2026-01-02\n# columns: one\ttwo\n"
	for name, text := range map[string]string{
		"no title":         strings.Replace(head, "# title: T\n", "", 1) + "a\tb\n",
		"no source":        strings.Replace(head, "# source: https://example.org\n", "", 1) + "a\tb\n",
		"no date":          strings.Replace(head, "# date: 2026-01-02\n", "", 1) + "a\tb\n",
		"no columns":       strings.Replace(head, "# columns: one\ttwo\n", "", 1) + "a\tb\n",
		"a wrong date":     strings.Replace(head, "2026-01-02", "May 2026", 1) + "a\tb\n",
		"a remark":         head + "# by the way\na\tb\n",
		"no rows":          head,
		"a column missing": head + "a\n",
		"a column more":    head + "a\tb\tc\n",
		"an empty line":    head + "a\tb\n\n",
		"an empty cell":    head + "a\t\n",
		"spaces":           head + "a\t b\n",
	} {
		if got, err := readTable(text); err == nil {
			t.Errorf("%s: read as %v", name, got)
		}
	}
	if got, err := readTable(head + "a\tb\n"); err != nil || len(got.Rows) != 1 {
		t.Errorf("a good table: %v, %v", got, err)
	}
}

func TestCompare(t *testing.T) {
	ascending := []string{"", "0.9", "1.9", "1.22.0", "2.9.0+cu128", "2.10.0", "12", "12.1", "12.9", "12.10", "450.51.05", "450.80.02", "525", "525.60.13", "580.65.06"}
	for i, a := range ascending {
		for j, b := range ascending {
			if got, want := Compare(a, b), sign(i-j); got != want {
				t.Errorf("Compare(%q, %q) = %d, want %d", a, b, got, want)
			}
		}
	}
	for _, same := range [][2]string{{"12", "12.0"}, {"2.9.0", "2.9.0+cu128"}, {"1.2rc1", "1.2"}, {"570.26", "570.26.0"}} {
		if Compare(same[0], same[1]) != 0 {
			t.Errorf("%q and %q are the same version", same[0], same[1])
		}
	}
	for text, want := range map[string][]int{"": nil, "abc": nil, "-": nil, "12.x": {12}, "2.9.0a0+git": {2, 9, 0}, "99999999999999999999": nil} {
		if got := LeadingNumbers(text); !slices.Equal(got, want) {
			t.Errorf("Numbers(%q) = %v, want %v", text, got, want)
		}
	}
}

func sign(n int) int { return max(-1, min(1, n)) }

func TestDriver(t *testing.T) {
	for _, c := range []struct {
		cuda, floor, own string
		known            bool
	}{
		{"12.8", "525", "570.26", true},
		{"12.8.93", "525", "570.26", true},
		{"12", "525", "", true},
		{"12.7", "525", "", true}, // never released as a toolkit; the floor applies anyway
		{"13.9", "580", "", true},
		{"11.8", "450.80.02", "520.61.05", true},
		{"10.2", "440.33", "440.33", true},
		{"10.9", "", "", false},
		{"14.0", "", "", false},
		{"9.2", "", "", false},
		{"", "", "", false},
		{"none", "", "", false},
	} {
		if floor, own, known := DriverFor(c.cuda); floor != c.floor || own != c.own || known != c.known {
			t.Errorf("Driver(%q) = %q, %q, %v; want %q, %q, %v", c.cuda, floor, own, known, c.floor, c.own, c.known)
		}
	}
}

func TestDriverRuns(t *testing.T) {
	for _, c := range []struct {
		driver, cuda string
		runs, known  bool
	}{
		{"535.183.01", "12.8", true, true}, // older than 12.8's own driver: the major version's floor counts
		{"525.60.13", "12.9", true, true},
		{"470.256.02", "12.1", false, true},
		{"570.124.06", "13.0", false, true},
		{"580.65.06", "13.2", true, true},
		{"595.45.04", "11.8", true, true}, // old programs run on new drivers
		{"418.40", "10.2", false, true},
		{"570.26", "14.1", false, false},
		{"", "12.8", false, false},
	} {
		if runs, known := DriverRuns(c.driver, c.cuda); runs != c.runs || known != c.known {
			t.Errorf("DriverRuns(%q, %q) = %v, %v; want %v, %v", c.driver, c.cuda, runs, known, c.runs, c.known)
		}
	}
}

func TestHighestCUDA(t *testing.T) {
	for driver, want := range map[string]string{
		"570.124.06": "12.8", "535.183.01": "12.2", "580.65.06": "13.0", "550.54.14": "12.4", "470.256.02": "11.4",
		"565.57.01": "12.6", "390.157": "", "": "", "999.1": "13.3",
	} {
		if got := HighestCUDA(driver); got != want {
			t.Errorf("HighestCUDA(%q) = %q, want %q", driver, got, want)
		}
	}
}

func TestOf(t *testing.T) {
	for _, c := range []struct {
		capability, architecture string
		has, lacks               []string
		last                     int
	}{
		{"6.1", "Pascal", nil, []string{"fp16"}, 12},
		{"7.0", "Volta", []string{"fp16"}, []string{"bf16", "int8", "tf32"}, 12},
		{"7.5", "Turing", []string{"fp16", "int8"}, []string{"bf16", "tf32", "fp8"}, 0},
		{"8.0", "Ampere", []string{"bf16", "tf32", "fp64"}, []string{"fp8"}, 0},
		{"8.6", "Ampere", []string{"bf16", "tf32"}, []string{"fp8", "fp64"}, 0},
		{"8.9", "Ada Lovelace", []string{"fp8"}, []string{"fp4", "fp64"}, 0},
		{"9.0", "Hopper", []string{"fp8", "fp64"}, []string{"fp4"}, 0},
		{"12.0", "Blackwell", []string{"fp8", "fp4"}, []string{"fp64"}, 0},
	} {
		h, ok := HardwareOf(mustCapability(c.capability))
		if !ok || h.Architecture != c.architecture || h.LastCUDA != c.last {
			t.Errorf("%s: %+v, %v", c.capability, h, ok)
		}
		for _, word := range c.has {
			if !slices.Contains(h.Tensor, word) {
				t.Errorf("%s: no %s in %q", c.capability, word, h.Tensor)
			}
		}
		for _, word := range c.lacks {
			if slices.Contains(h.Tensor, word) {
				t.Errorf("%s: %s in %q", c.capability, word, h.Tensor)
			}
		}
	}
	if h, ok := HardwareOf(gpu.Capability{Major: 99}); ok {
		t.Errorf("99.0 is known as %+v", h)
	}
}

func TestCodeRuns(t *testing.T) {
	for _, c := range []struct {
		code, device string
		want         bool
	}{
		{"8.6", "8.6", true},
		{"8.6", "8.9", true}, // the same major number, not older
		{"8.6", "8.0", false},
		{"8.0 9.0", "12.0", false},
		{"9.0", "8.9", false},
		{"7.0", "7.5", true},
		{"8.7", "8.9", false}, // a part of embedded systems
		{"8.7", "8.7", true},
		{"8.0", "8.7", true},
		{"12.0+PTX", "12.1", true},
		{"9.0+PTX", "12.0", true},
		{"12.0+PTX", "9.0", false},
		{"5.0 6.0", "6.1", true},
	} {
		if got := parseCode(c.code).RunsOn(mustCapability(c.device)); got != c.want {
			t.Errorf("code for %s on %s: %v, want %v", c.code, c.device, got, c.want)
		}
		if got := parseCode(c.code).String(); got != c.code {
			t.Errorf("%q is written as %q", c.code, got)
		}
	}
}

func TestTorch(t *testing.T) {
	for _, c := range []struct {
		version, cuda, device string
		known, runs           bool
	}{
		{"2.9.0+cu130", "13.0", "6.1", true, false}, // Pascal
		{"2.9.0+cu130", "13.0", "7.0", true, false}, // Volta
		{"2.9.0+cu130", "13.0", "7.5", true, true},
		{"2.9.0+cu126", "12.6", "6.1", true, true},
		{"2.9.0+cu126", "12.6", "12.0", true, false}, // consumer Blackwell
		{"2.9.0+cu128", "12.8", "12.0", true, true},
		{"2.9.0+cu128", "12.8", "6.1", true, false},
		{"2.9.1", "12.8", "8.9", true, true},
		{"2.7.1+cu128", "12.8", "7.0", true, false},  // Volta left these wheels,
		{"2.10.0+cu128", "12.8", "7.0", true, true},  // came back,
		{"2.11.0+cu128", "12.8", "7.0", true, false}, // and left again
		{"2.5.1", "12.4", "9.0", true, true},
		{"2.5.1", "12.4", "10.0", true, false},
		{"2.9.0", "12.7", "8.0", false, false},
		{"1.7.0", "11.0", "8.0", false, false},
	} {
		code, known := TorchCode(c.version, c.cuda)
		if known != c.known || code.RunsOn(mustCapability(c.device)) != c.runs {
			t.Errorf("PyTorch %s of CUDA %s on %s: known %v, %s", c.version, c.cuda, c.device, known, code)
		}
	}
	if got, want := TorchFor("2.9.0", mustCapability("6.1")), []string{"12.6"}; !slices.Equal(got, want) {
		t.Errorf("Pascal: %q, want %q", got, want)
	}
	if got, want := TorchFor("2.9.0", mustCapability("12.0")), []string{"13.0", "12.8"}; !slices.Equal(got, want) {
		t.Errorf("Blackwell: %q, want %q", got, want)
	}
	if got := TorchFor("2.9.0", mustCapability("6.1"), mustCapability("12.0")); got != nil {
		t.Errorf("Pascal with Blackwell: %q", got)
	}
	if got, want := TorchFor("2.9.0"), []string{"13.0", "12.8", "12.6"}; !slices.Equal(got, want) {
		t.Errorf("all of 2.9: %q, want %q", got, want)
	}
	if got := TorchFor("2.5.0", mustCapability("12.0")); got != nil {
		t.Errorf("Blackwell with PyTorch 2.5: %q", got)
	}
}

func TestPackage(t *testing.T) {
	for _, c := range []struct {
		name, version string
		want          Needs
	}{
		{"onnxruntime-gpu", "1.18.1", Needs{CUDA: "11.8", CUDNN: "8"}},
		{"onnxruntime-gpu", "1.19.2", Needs{CUDA: "12", CUDNN: "9"}},
		{"onnxruntime-gpu", "1.26.0", Needs{CUDA: "12", CUDNN: "9"}}, // the last for CUDA 12
		{"onnxruntime-gpu", "1.27.0", Needs{CUDA: "13", CUDNN: "9", Lowest: &gpu.Capability{Major: 7, Minor: 5}}},
		{"tensorflow", "2.18.1", Needs{CUDA: "12.5", CUDNN: "9.3"}},
		{"tensorflow", "2.3.0", Needs{CUDA: "10.1", CUDNN: "7.6"}},
		{"jax-cuda12-plugin", "0.4.28", Needs{CUDA: "12.1", CUDNN: "8.9", Lowest: &gpu.Capability{Major: 5, Minor: 2}}},
		{"jax-cuda12-plugin", "0.4.30", Needs{CUDA: "12.1", CUDNN: "9.1", Lowest: &gpu.Capability{Major: 5, Minor: 2}}},
		{"jax-cuda12-plugin", "0.6.0", Needs{CUDA: "12.1", CUDNN: "9.1", Lowest: &gpu.Capability{Major: 5, Minor: 2}}},
		{"jax-cuda12-plugin", "0.6.1", Needs{CUDA: "12.1", CUDNN: "9.8", Lowest: &gpu.Capability{Major: 5, Minor: 2}}},
		{"jax-cuda13-plugin", "0.8.0", Needs{CUDA: "13.0", CUDNN: "9.8", Lowest: &gpu.Capability{Major: 7, Minor: 5}}},
		{"cupy-cuda12x", "13.6.0", Needs{CUDA: "12"}},
	} {
		if got, ok := PackageNeeds(c.name, c.version); !ok || !reflect.DeepEqual(got, c.want) {
			t.Errorf("Package(%q, %q) = %+v, %v; want %+v", c.name, c.version, got, ok, c.want)
		}
	}
	for _, unknown := range [][2]string{{"numpy", "2.0"}, {"tensorflow", "1.15.0"}, {"tensorflow", "2.99"}, {"onnxruntime", "1.20.0"}} {
		if got, ok := PackageNeeds(unknown[0], unknown[1]); ok {
			t.Errorf("%q is known as %+v", unknown, got)
		}
	}
}

func TestLastFor(t *testing.T) {
	for _, c := range []struct{ name, cuda, want string }{
		{"onnxruntime-gpu", "12", "1.26"},
		{"onnxruntime-gpu", "11.8", "1.18"},
		{"onnxruntime-gpu", "10", ""},
		{"tensorflow", "11", "2.14"},
		{"cupy-cuda12x", "12", ""}, // no end: the name has the major version
		{"jax-cuda12-plugin", "12", ""},
		{"numpy", "12", ""},
	} {
		if got := LastFor(c.name, c.cuda); got != c.want {
			t.Errorf("LastFor(%q, %q) = %q, want %q", c.name, c.cuda, got, c.want)
		}
	}
}

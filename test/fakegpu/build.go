package fakegpu

import (
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gpuard/test/compile"
)

//go:embed c build.go
var sources embed.FS

// Paths are the built files. They are shared by test processes and must not be changed.
type Paths struct {
	Library string // libnvidia-ml.so.1
	CUDA    string // libcuda.so.1
	SMI     string // nvidia-smi
	MPS     string // nvidia-cuda-mps-control
	Job     string // fakegpu-job, a program on the fake GPUs; c/job.c lists its flags
}

// Build compiles the fake driver, leaving out the named symbols of its libraries, or takes what an earlier test process
// built from the same sources. The test is skipped where there is no C compiler.
func Build(t testing.TB, without ...string) Paths {
	t.Helper()
	_, nvml := findModule(t)
	dir := compile.Once(t, fmt.Sprintln(nvml, without), func(work string) { compileAll(t, work, without) }, sources)
	paths := Paths{
		Library: filepath.Join(dir, "libnvidia-ml.so.1"),
		CUDA:    filepath.Join(dir, "libcuda.so.1"),
		SMI:     filepath.Join(dir, "nvidia-smi"),
		MPS:     filepath.Join(dir, "nvidia-cuda-mps-control"),
		Job:     filepath.Join(dir, "fakegpu-job"),
	}
	if len(without) > 0 {
		whole := Build(t)
		paths.SMI, paths.MPS, paths.Job = whole.SMI, whole.MPS, whole.Job
	}
	return paths
}

func compileAll(t testing.TB, work string, without []string) {
	t.Helper()
	mustWrite(t, filepath.Join(work, "symbols"), versionScript(without))
	header := "-isystem" + Header(t)
	cc := func(args ...string) { compile.C(t, work, append([]string{header}, args...)...) }
	cc("-c", "-fPIC", "c/nvml.c", "c/nvml_more.c", "c/cuda.c", "c/state.c")
	cc("-shared", "-Wl,-soname,libnvidia-ml.so.1", "-Wl,--version-script=symbols", "-o", "libnvidia-ml.so.1", "nvml.o", "nvml_more.o", "state.o")
	cc("-shared", "-Wl,-soname,libcuda.so.1", "-Wl,--version-script=symbols", "-o", "libcuda.so.1", "cuda.o", "state.o")
	if len(without) == 0 {
		cc("-o", "nvidia-smi", "c/smi.c", "c/smi_value.c", "c/smi_xml.c", "nvml.o", "nvml_more.o", "state.o")
		cc("-o", "nvidia-cuda-mps-control", "c/mps.c")
		cc("-o", "fakegpu-job", "c/job.c", "state.o")
	}
}

// Header is the folder of nvml.h in the pinned module. It fetches that module: no package imports it, so the go command
// has no other reason to.
func Header(t testing.TB) string {
	t.Helper()
	var m struct{ Dir string }
	root, _ := findModule(t)
	if err := json.Unmarshal([]byte(compile.Run(t, root, "go", "mod", "download", "-json", nvmlModule)), &m); err != nil || m.Dir == "" {
		t.Fatalf("cannot find %s, which has nvml.h: go mod download says %q, %v", nvmlModule, m.Dir, err)
	}
	return filepath.Join(m.Dir, "gen", "nvml")
}

// versionScript hides symbols: the loader then says that they do not exist, as it does for a driver too old to have
// them.
func versionScript(without []string) string {
	if len(without) == 0 {
		return "{ global: *; };\n"
	}
	return "{ global: *; local: " + strings.Join(without, "; ") + "; };\n"
}

const nvmlModule = "github.com/NVIDIA/go-nvml"

// findModule finds this module's root folder and the pinned version of the module with nvml.h.
func findModule(t testing.TB) (root, version string) {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatalf("cannot find go.mod: %v", err)
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil {
			m := regexp.MustCompile(nvmlModule + `\s+(\S+)`).FindSubmatch(text)
			if m == nil {
				t.Fatalf("cannot build the fake driver: %s/go.mod does not name %s, which has nvml.h: go get %s@v0.13.3-1", dir, nvmlModule, nvmlModule)
			}
			return dir, string(m[1])
		}
		if dir == filepath.Dir(dir) {
			t.Fatalf("cannot find go.mod above the working folder: %v", err)
		}
		dir = filepath.Dir(dir)
	}
}

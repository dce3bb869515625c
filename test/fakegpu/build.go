package fakegpu

import (
	"crypto/sha256"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"gpuard/internal/gate"
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
	gate.Need(t, "cc")
	_, nvml := module(t)
	dir := filepath.Join(cache(t), key(t, nvml, without))
	if _, err := os.Stat(dir); err != nil {
		build(t, dir, without)
	}
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

// build works in a temporary folder and renames it: if two run, the second finds dir and uses it.
func build(t testing.TB, dir string, without []string) {
	t.Helper()
	work, err := os.MkdirTemp(filepath.Dir(dir), "build-")
	if err != nil {
		t.Fatalf("cannot build the fake driver: %v", err)
	}
	defer os.RemoveAll(work)
	code, err := fs.Sub(sources, "c")
	if err == nil {
		err = os.CopyFS(filepath.Join(work, "c"), code)
	}
	if err != nil {
		t.Fatalf("cannot build the fake driver: %v", err)
	}
	write(t, filepath.Join(work, "symbols"), versionScript(without))
	include := "-isystem" + Header(t)
	flags := []string{"-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", include}
	cc := func(args ...string) { run(t, work, "cc", append(flags, args...)...) }
	cc("-c", "-fPIC", "c/nvml.c", "c/nvml_more.c", "c/cuda.c", "c/state.c")
	cc("-shared", "-Wl,-soname,libnvidia-ml.so.1", "-Wl,--version-script=symbols", "-o", "libnvidia-ml.so.1", "nvml.o", "nvml_more.o", "state.o")
	cc("-shared", "-Wl,-soname,libcuda.so.1", "-Wl,--version-script=symbols", "-o", "libcuda.so.1", "cuda.o", "state.o")
	if len(without) == 0 {
		cc("-o", "nvidia-smi", "c/smi.c", "c/smi_value.c", "c/smi_xml.c", "nvml.o", "nvml_more.o", "state.o")
		cc("-o", "nvidia-cuda-mps-control", "c/mps.c")
		cc("-o", "fakegpu-job", "c/job.c", "state.o")
	}
	// Another user's processes load these files in tests with two uids.
	if err := os.Chmod(work, 0o755); err != nil {
		t.Fatalf("cannot build the fake driver: %v", err)
	}
	if err := os.Rename(work, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatalf("cannot build the fake driver: %v", err)
	}
}

// Header is the folder of nvml.h in the pinned module. It fetches that module: no package imports it, so the go command
// has no other reason to.
func Header(t testing.TB) string {
	t.Helper()
	var m struct{ Dir string }
	root, _ := module(t)
	if err := json.Unmarshal([]byte(run(t, root, "go", "mod", "download", "-json", nvmlModule)), &m); err != nil || m.Dir == "" {
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

// module finds this module's root folder and the pinned version of the module with nvml.h.
func module(t testing.TB) (root, version string) {
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

// key names the build by all that goes into it; this file has the compiler's flags.
func key(t testing.TB, nvml string, without []string) string {
	t.Helper()
	h := sha256.New()
	fmt.Fprintln(h, nvml, without)
	err := fs.WalkDir(sources, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := sources.ReadFile(path)
		fmt.Fprintf(h, "%s %d\n%s", path, len(text), text)
		return err
	})
	if err != nil {
		t.Fatalf("cannot read the fake driver's sources: %v", err)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// cache is a folder that other users can read, unlike os.UserCacheDir, but only its owner can write.
func cache(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("gpuard-fakegpu-%d", os.Getuid()))
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatalf("cannot make a folder for the fake driver: %v", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		t.Fatalf("cannot use %s for the fake driver: %v", dir, err)
	}
	owner, _ := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || owner == nil || int(owner.Uid) != os.Getuid() || info.Mode().Perm()&0o022 != 0 {
		t.Fatalf("cannot use %s for the fake driver: it is not a folder that only uid %d can write; remove it", dir, os.Getuid())
	}
	return dir
}

func run(t testing.TB, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("cannot build the fake driver: %s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

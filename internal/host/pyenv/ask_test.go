package pyenv

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/visible"
	"gpuard/internal/gate"
)

// fake makes a library of one file, and a Where with a Python that finds it.
func fake(t *testing.T, name, text string) SearchScope {
	t.Helper()
	gate.Need(t, "python3")
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, name+".py"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return SearchScope{Root: "/", Env: visible.Env{"PATH=" + os.Getenv("PATH"), "HOME=" + folder, "PYTHONPATH=" + folder, "MARK=" + folder}, Folder: folder}
}

func (w SearchScope) python(t *testing.T) string {
	t.Helper()
	p, ok := w.environmentOnPath("python3")
	if !ok || p.Interpreter == "" { // a wrapper that does not say where its Python is
		return "/usr/bin/python3"
	}
	return p.Interpreter
}

func TestAsk(t *testing.T) {
	t.Parallel()
	w := fake(t, "torch", `
import sys
__version__ = "2.9.0"
print("some words of its own")
class cuda:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 2)
    get_device_name = staticmethod(lambda i: "GPU %d" % i)
`)
	p := w.Ask(t.Context(), w.python(t), "torch")
	if p.Devices != 2 || p.Text != "2.9.0 GPU 0, GPU 1" || p.Problem != "" {
		t.Errorf("%+v", p)
	}
	if left, _ := filepath.Glob(filepath.Join(w.Folder, "*")); len(left) != 1 {
		t.Errorf("something was written: %q", left)
	}
}

// standIn returns a script that runs text in place of a Python, because a real one starts slowly.
func standIn(t *testing.T, text string) (SearchScope, string) {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "body"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs("testdata/python3")
	if err != nil {
		t.Fatal(err)
	}
	return SearchScope{Root: "/", Env: visible.Env{"PATH=" + os.Getenv("PATH"), "MARK=" + folder}, Folder: folder}, path
}

func TestAskTellsWhyThereIsNoAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"an import that fails": {"echo Traceback >&2; echo 'ImportError: libcudnn.so.9' >&2; exit 1", "ImportError: libcudnn.so.9"},
		"a crash":              {"kill -ABRT $$", "it crashed (aborted)"},
		"an early end":         {"exit 0", "it ended without an answer"},
		"a silent failure":     {"exit 3", "it failed without a message (exit status 3)"},
		"very many words":      {"printf '%0400d' 7 >&2; exit 1", strings.Repeat("0", 300) + "…"},
	} {
		w, path := standIn(t, c.text)
		if p := w.Ask(t.Context(), path, "jax"); p.Problem != c.want || p.Devices != 0 || p.Library != "jax" {
			t.Errorf("%s: %+v, want %q", name, p, c.want)
		}
	}
	w, _ := standIn(t, "")
	if p := w.Ask(t.Context(), "/nowhere/python3", "jax"); !strings.Contains(p.Problem, "no such file") {
		t.Errorf("no interpreter: %+v", p)
	}
}

// A real Python that cannot import a library says why. Without a device, the last line of the library is the reason.
func TestAskTellsWhyThereIsNoDevice(t *testing.T) {
	t.Parallel()
	w := fake(t, "torch", `
import sys
__version__ = "2.9.0"
sys.stderr.write("CUDA driver version is insufficient\n")
class cuda:
    is_available = staticmethod(lambda: False)
    device_count = staticmethod(lambda: 2)
`)
	if p := w.Ask(t.Context(), w.python(t), "torch"); p.Devices != 0 || p.Text != "2.9.0; CUDA driver version is insufficient" || p.Problem != "" {
		t.Errorf("%+v", p)
	}
	w = fake(t, "jax", "raise ImportError('libcudnn.so.9: cannot open shared object file')")
	if p := w.Ask(t.Context(), w.python(t), "jax"); p.Problem != "ImportError: libcudnn.so.9: cannot open shared object file" {
		t.Errorf("%+v", p)
	}
}

// A file in the caller's working directory is not the library.
func TestAskLeavesTheCallersFolderAlone(t *testing.T) {
	w := fake(t, "cupy", "raise ImportError('not this one')")
	path := w.python(t)
	t.Chdir(w.Folder)
	w.Env = visible.Env{"PATH=" + os.Getenv("PATH"), "HOME=" + w.Folder, "PYTHONNOUSERSITE=1"}
	if p := w.Ask(t.Context(), path, "cupy"); strings.Contains(p.Problem, "not this one") {
		t.Errorf("%+v", p)
	}
}

// An imported library must write no caches and take no memory of a device.
func TestAskAsksForNothingToBeKept(t *testing.T) {
	t.Parallel()
	w, path := standIn(t, `echo "{\"version\": \"$CUDA_CACHE_DISABLE $CUPY_CACHE_IN_MEMORY $XLA_PYTHON_CLIENT_PREALLOCATE $TF_FORCE_GPU_ALLOW_GROWTH $PYTHONDONTWRITEBYTECODE\"}"`)
	if p := w.Ask(t.Context(), path, "torch"); p.Text != "1 1 false true 1" {
		t.Errorf("%+v", p)
	}
}

// A library that hangs is ended at the deadline, with its children.
func TestAskEnds(t *testing.T) {
	t.Parallel()
	w, path := standIn(t, "sleep 60 &\necho $! > $MARK/new; mv $MARK/new $MARK/child\nwait")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(w.Folder, "child")); err == nil {
				cancel()
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	if p := w.Ask(ctx, path, "torch"); p.Problem != "no answer in time" {
		t.Errorf("%+v", p)
	}
	pid, err := os.ReadFile(filepath.Join(w.Folder, "child"))
	if err != nil {
		t.Fatal("it was ended before it began")
	}
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		state, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		if err != nil || strings.Contains(string(state), ") Z ") {
			break
		}
		if time.Since(start) > 10*time.Second {
			t.Fatalf("its child %s lives on", pid)
		}
	}
}

package loader

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpuard/internal/core/hostinfo"
)

// machine writes files below a new root: each is "name text", or "name -> target" for a link.
func machine(t *testing.T, files ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, f := range files {
		name, text, _ := strings.Cut(f, " ")
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(text, "-> "); link {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// cached makes a cache as ldconfig writes it, of libraries "name path".
func cached(flags int32, libraries ...string) []byte {
	type place struct{ name, path uint32 }
	var names []byte
	var places []place
	begin := headSize + entrySize*len(libraries)
	for _, l := range libraries {
		name, path, _ := strings.Cut(l, " ")
		p := place{uint32(begin + len(names)), 0}
		names = append(append(names, name...), 0)
		p.path = uint32(begin + len(names))
		names = append(append(names, path...), 0)
		places = append(places, p)
	}
	order := binary.NativeEndian
	data := append([]byte(newMagic), make([]byte, headSize-len(newMagic))...)
	order.PutUint32(data[20:], uint32(len(libraries)))
	order.PutUint32(data[24:], uint32(len(names)))
	for _, p := range places {
		data = order.AppendUint32(data, uint32(flags))
		data = order.AppendUint32(data, p.name)
		data = order.AppendUint32(data, p.path)
		data = append(data, make([]byte, 12)...)
	}
	return append(data, names...)
}

func told(found []hostinfo.Library) (lines []string) {
	for _, l := range found {
		lines = append(lines, strings.TrimSpace(l.Name+" "+l.Path+" "+l.Version)+" "+l.From)
	}
	return lines
}

// TestLibraries: the folders that the loader searches, in its order, each file once.
func TestLibraries(t *testing.T) {
	t.Parallel()
	root := machine(t,
		"opt/cudnn/libcudnn.so.9 -> libcudnn.so.9.1.0", "opt/cudnn/libcudnn.so.9.1.0", "opt/cudnn/libcudnn.so -> libcudnn.so.9", "opt/cudnn/libother.so.1",
		"opt/cudnn/libcudnn_ops.so.9", "opt/cudnn/libcudart.so.12 -> missing",
		"usr/lib/alternative/libcuda.so.550.54.15", "etc/alternatives/libcuda -> /usr/lib/alternative/libcuda.so.550.54.15", "usr/lib/libcuda.so.1 -> /etc/alternatives/libcuda",
		"opt/cuda/libcudart.so.11.0 -> libcudart.so.11.8.89", "opt/cuda/libcudart.so.11.8.89", "usr/lib/libcudnn.so.9 -> libcudnn.so.9.5.1", "usr/lib/libcudnn.so.9.5.1",
		"usr/lib/libnccl.so.2 -> libnccl.so.2.21.5", "usr/lib/libnccl.so.2.21.5", "lib -> usr/lib")
	cache := cached(nativeFlags(), "libcudart.so.11.0 /opt/cuda/libcudart.so.11.0", "libcudart.so.12 /opt/gone/libcudart.so.12", "libz.so.1 /usr/lib/libz.so.1", "libcudnn.so.9 /usr/lib/libcudnn.so.9")
	if err := os.WriteFile(filepath.Join(root, "etc/ld.so.cache"), cache, 0o644); err != nil {
		t.Fatal(err)
	}
	found, err := Search{root, "/opt/cudnn:relative::/opt/none:/opt/cudnn"}.Libraries()
	want := []string{
		"libcudnn.so.9 /opt/cudnn/libcudnn.so.9 9.1.0 LD_LIBRARY_PATH",
		"libcudnn_ops.so.9 /opt/cudnn/libcudnn_ops.so.9 LD_LIBRARY_PATH",
		"libcudart.so.11.0 /opt/cuda/libcudart.so.11.0 11.8.89 ld.so.cache",
		"libcudnn.so.9 /usr/lib/libcudnn.so.9 9.5.1 ld.so.cache",
		"libcuda.so.1 /lib/libcuda.so.1 550.54.15 default",
		"libnccl.so.2 /lib/libnccl.so.2 2.21.5 default",
	}
	if got := told(found); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\ngot  %s\nwant %s", err, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
	if l, ok := FirstNamed(found, "libcudnn.so.9"); !ok || l.Version != "9.1.0" {
		t.Errorf("%+v", l)
	}
	if l, ok := FirstNamed(found, "libcublas.so.12"); ok {
		t.Errorf("%+v", l)
	}
}

// TestLibrariesOfOtherMachines: the loader skips a library that this processor cannot run.
func TestLibrariesOfOtherMachines(t *testing.T) {
	t.Parallel()
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Logf("what libraries %s loads is not known: all are taken", runtime.GOARCH)
		return
	}
	elf := func(class byte, machine uint16) string {
		head := append([]byte("\x7fELF"), class, 1, 1)
		head = append(head, make([]byte, 11)...)
		return string(append(binary.NativeEndian.AppendUint16(head, machine), 0, 0, 0, 0))
	}
	own := map[string]uint16{"amd64": 62, "arm64": 183}[runtime.GOARCH]
	root := machine(t, "a/libcuda.so.1 "+elf(1, 3), "b/libcuda.so.1 "+elf(2, 8), "c/libcuda.so.1 "+elf(2, own), "d/libcuda.so.1 "+elf(2, own))
	found, err := Search{root, "/a:/b:/c:/d"}.Libraries()
	if got := told(found); err != nil || len(got) != 2 || got[0] != "libcuda.so.1 /c/libcuda.so.1 LD_LIBRARY_PATH" {
		t.Errorf("%v, %v", got, err)
	}
	if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	data := cached(0x0803, "libcuda.so.1 /c/libcuda.so.1") // x32 or another architecture
	if err := os.WriteFile(filepath.Join(root, "etc/ld.so.cache"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	if found, err := (Search{Root: root}).Libraries(); err != nil || len(found) != 0 {
		t.Errorf("%v, %v", found, err)
	}
}

// TestDamagedCache: a cache that cannot be read is an error, and the other folders are still searched.
func TestDamagedCache(t *testing.T) {
	t.Parallel()
	whole := cached(0, "libcuda.so.1 /usr/lib/libcuda.so.1", "libnccl.so.2 /usr/lib/libnccl.so.2")
	if entries, err := parseCache(whole, 0); err != nil || len(entries) != 2 {
		t.Fatalf("%v, %v", entries, err)
	}
	for n := range whole {
		if entries, err := parseCache(whole[:n], 0); err == nil {
			t.Errorf("the first %d bytes of %d: %v", n, len(whole), entries)
		}
	}
	old := append([]byte(oldMagic+"\x00"), 0, 0, 0, 0)
	binary.NativeEndian.PutUint32(old[12:], 1)
	old = append(append(old, make([]byte, 12+4)...), whole...) // one library, and up to the next multiple of eight
	if entries, err := parseCache(old, 0); err != nil || len(entries) != 2 || entries[0].path != "/usr/lib/libcuda.so.1" {
		t.Errorf("beside the old table: %v, %v", entries, err)
	}
	root := machine(t, "etc/ld.so.cache rubbish", "usr/lib/libcuda.so.1")
	found, err := Search{Root: root}.Libraries()
	if err == nil || !strings.Contains(err.Error(), "/etc/ld.so.cache") || len(found) != 1 {
		t.Errorf("%v, %v", found, err)
	}
}

// TestOwnCache reads the cache of this machine, if it has one.
func TestOwnCache(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("/etc/ld.so.cache")
	if err != nil {
		t.Logf("no cache here: %v", err)
		return
	}
	entries, err := parseCache(data, 0)
	if err != nil || len(entries) == 0 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	for _, e := range entries {
		if !filepath.IsAbs(e.path) || !strings.Contains(e.name, ".so") {
			t.Errorf("%+v", e)
		}
	}
}

func FuzzParseCache(f *testing.F) {
	f.Add(cached(0x0303, "libcuda.so.1 /usr/lib/libcuda.so.1"))
	f.Add(append(append([]byte(oldMagic+"\x00"), 1, 0, 0, 0), make([]byte, 64)...))
	f.Add([]byte(newMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := parseCache(data, 0)
		for _, e := range entries {
			if err != nil || e.name == "" || e.path == "" {
				t.Errorf("%+v, %v", e, err)
			}
		}
	})
}

func TestToolkits(t *testing.T) {
	t.Parallel()
	header := "#ifndef X\n/* #define CUDA_VERSION 1 */\n#define CUDA_VERSION 11050\n"
	root := machine(t,
		"usr/local/cuda-12.4/bin/nvcc", `usr/local/cuda-12.4/version.json {"cuda":{"name":"CUDA SDK","version":"12.4.20240415"},"cuda_cudart":{"version":"12.4.127"}}`,
		"usr/local/cuda-10.2/bin/nvcc", "usr/local/cuda-10.2/version.txt CUDA Version 10.2.89\n",
		"usr/local/cuda-13.0/version.json {}", "usr/local/cuda-13.0/compat/libcuda.so.1",
		"etc/alternatives/cuda -> /usr/local/cuda-12.4", "usr/local/cuda -> /etc/alternatives/cuda",
		"opt/conda/bin/nvcc", "opt/conda/targets/x86_64-linux/include/cuda.h "+header,
		"usr/lib/nvidia-cuda-toolkit/bin/nvcc", "usr/bin/nvcc -> ../lib/nvidia-cuda-toolkit/bin/nvcc", "usr/include/cuda.h "+header,
		"home/ann/notes/nvcc.txt", "home/ann/runtime/lib/x")
	show := func(found []hostinfo.Toolkit) (lines []string) {
		for _, k := range found {
			lines = append(lines, fmt.Sprintf("%s %s nvcc=%v path=%v %v", k.Folder, k.Version, k.NVCC, k.OnPath, k.Homes))
		}
		return lines
	}
	for _, c := range []struct {
		path  string
		homes []string
		want  []string
	}{
		{"", nil, []string{"/usr/local/cuda-12.4 12.4 nvcc=true path=false []", "/usr/local/cuda-10.2 10.2 nvcc=true path=false []"}},
		{"/home/ann:/usr/local/cuda/bin:/opt/conda/bin", nil, []string{"/usr/local/cuda-12.4 12.4 nvcc=true path=true []", "/usr/local/cuda-10.2 10.2 nvcc=true path=false []"}},
		{"/opt/conda/bin", []string{"", "/usr/local/cuda/"}, []string{"/opt/conda 11.5 nvcc=true path=true []", "/usr/local/cuda-12.4 12.4 nvcc=true path=false [/usr/local/cuda/]", "/usr/local/cuda-10.2 10.2 nvcc=true path=false []"}},
		{"/usr/bin", []string{"/home/ann/runtime", "/nowhere"}, []string{"/usr/lib/nvidia-cuda-toolkit 11.5 nvcc=true path=true []", "/home/ann/runtime  nvcc=false path=false [/home/ann/runtime]",
			"/usr/local/cuda-12.4 12.4 nvcc=true path=false []", "/usr/local/cuda-10.2 10.2 nvcc=true path=false []"}},
	} {
		got := show(ListToolkits(root, c.path, c.homes...))
		if a, b := setOf(got), setOf(c.want); !reflect.DeepEqual(a, b) || len(got) > 0 && c.path != "" && got[0] != c.want[0] {
			t.Errorf("%q %q:\ngot  %s\nwant %s", c.path, c.homes, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
	if got := ListToolkits(t.TempDir(), "/usr/bin:/bin"); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func setOf(lines []string) map[string]bool {
	set := map[string]bool{}
	for _, l := range lines {
		set[l] = true
	}
	return set
}

// TestElsewhere: a library in a folder that the loader does not search is found, also through NixOS's links.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, folder := range []string{"run/opengl-driver/lib", "nix/store/x/lib"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/nix/store/x/lib/libcuda.so.1", filepath.Join(root, "run/opengl-driver/lib/libcuda.so.1")); err != nil {
		t.Fatal(err)
	}
	s := Search{Root: root}
	if got := s.FindOutside("libcuda.so.1"); got != "" {
		t.Errorf("a link to nothing: %q", got)
	}
	if err := os.WriteFile(filepath.Join(root, "nix/store/x/lib/libcuda.so.1"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got, want := s.FindOutside("libcuda.so.1"), "/run/opengl-driver/lib/libcuda.so.1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestPipes: a FIFO with the name of a library or of a toolkit's file is skipped and does not block.
func TestPipes(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, path := range []string{"tmp/libcudnn.so.9", "usr/local/cuda/version.json", "usr/local/cuda/include/cuda.h", "usr/local/cuda/bin/nvcc"} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan string, 1)
	go func() {
		found, err := Search{Root: root, Path: "/tmp"}.Libraries()
		done <- fmt.Sprint(found, err, ListToolkits(root, "/usr/local/cuda/bin"))
	}()
	select {
	case got := <-done:
		if want := "[] <nil> [{/usr/local/cuda  false true []}]"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	case <-time.After(10 * time.Second):
		t.Error("still waiting")
	}
}

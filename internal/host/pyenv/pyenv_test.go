package pyenv

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"gpuard/internal/core/visible"
	"gpuard/test/apart"
	"gpuard/test/executable"
)

func TestMain(m *testing.M) {
	apart.UseMemoryFolder()
	os.Exit(m.Run())
}

// plant makes a tree: a name that ends in "/" is a folder, "a -> b" a link, everything else a file; programs have mode
// 755.
func plant(t *testing.T, things ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, thing := range things {
		name, target, isLink := strings.Cut(thing, " -> ")
		name, text, _ := strings.Cut(name, "=")
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch {
		case isLink:
			err = os.Symlink(target, path)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		default:
			executable.Write(t, path, []byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// system is a Debian-like machine with Python 3.11, and a home with pyenv and conda.
func system() []string {
	return []string{
		"usr/bin/python3.11", "usr/bin/python3 -> python3.11", "usr/lib/python3/dist-packages/PyYAML-6.0.dist-info/",
		"usr/lib/python3.11/os.py", "usr/local/lib/python3.11/dist-packages/rich-13.0.dist-info/", "usr/local/lib/python3.11/site-packages/torch-1.0.dist-info/",
		"home/a/here/", "home/a/v/pyvenv.cfg=home = /usr/bin", "home/a/v/bin/python3 -> /usr/bin/python3.11", "home/a/v/bin/python -> python3",
		"home/a/v/lib/python3.11/site-packages/torch/version.py=cuda: Optional[str] = '12.8'",
		"home/a/v/lib/python3.11/site-packages/torch-2.9.0+cu128.dist-info/", "home/a/v/lib64 -> lib",
		"home/a/.conda/environments.txt=/opt/conda\n/opt/conda/envs/train\n/opt/conda/envs/gone\nnot a path\n",
		"opt/conda/conda-meta/history", "opt/conda/bin/python3.12", "opt/conda/bin/python -> python3.12", "opt/conda/bin/python3 -> python3.12", "opt/conda/lib/python3.12/site-packages/",
		"opt/conda/envs/train/conda-meta/pytorch-2.5.1-py3.10_cuda12.4_cudnn9.1.0_0.json", "opt/conda/envs/train/bin/python3.10",
		"opt/conda/envs/train/bin/python -> python3.10", "opt/conda/envs/train/lib/python3.10/site-packages/torch-2.5.1.dist-info/",
		"home/a/here/.pixi/envs/default/conda-meta/history", "home/a/here/.pixi/envs/default/bin/python3",
		"home/a/.pyenv/shims/python", "home/a/.pyenv/shims/python3", "home/a/.pyenv/version=3.12.1\n",
		"home/a/.pyenv/versions/3.12.1/bin/python3.12", "home/a/.pyenv/versions/3.12.1/bin/python3 -> python3.12", "home/a/.pyenv/versions/3.12.1/lib/python3.12/site-packages/",
		"home/a/.pyenv/versions/3.9.18/bin/python3.9", "home/a/.pyenv/versions/3.9.18/bin/python3 -> python3.9", "home/a/.pyenv/versions/3.9.18/lib/python3.9/site-packages/",
		"home/a/.pyenv/versions/3.10.2/bin/python3.10", "home/a/.pyenv/versions/3.10.2/bin/python3 -> python3.10", "home/a/.pyenv/versions/3.10.2/lib/python3.10/site-packages/",
	}
}

func where(root string, env ...string) SearchScope {
	return SearchScope{Root: root, Env: append(visible.Env{"HOME=/home/a"}, env...), Folder: "/home/a/here"}
}

func TestFind(t *testing.T) {
	root := plant(t, system()...)
	all := []string{"/home/a/here/.pixi/envs/default", "/opt/conda", "/opt/conda/envs/train", "/home/a/.pyenv/versions/3.9.18", "/home/a/.pyenv/versions/3.12.1", "/home/a/.pyenv/versions/3.10.2", "/usr"}
	for name, c := range map[string]struct {
		env    []string
		active []string
	}{
		"nothing selected":   {nil, nil},
		"the system's":       {[]string{"PATH=/bin:/usr/bin"}, []string{"/usr"}},
		"a venv":             {[]string{"VIRTUAL_ENV=/home/a/v", "PATH=/home/a/v/bin:/usr/bin"}, []string{"/home/a/v"}},
		"a venv by PATH":     {[]string{"PATH=/home/a/v/bin:/usr/bin"}, []string{"/home/a/v"}},
		"conda":              {[]string{"CONDA_PREFIX=/opt/conda/envs/train", "PATH=/opt/conda/envs/train/bin:/usr/bin"}, []string{"/opt/conda/envs/train", "/usr"}},
		"pyenv's own":        {[]string{"PATH=/home/a/.pyenv/shims:/usr/bin"}, []string{"/home/a/.pyenv/versions/3.12.1"}},
		"pyenv by variable":  {[]string{"PATH=/home/a/.pyenv/shims:/usr/bin", "PYENV_VERSION=system:3.10"}, []string{"/home/a/.pyenv/versions/3.10.2"}},
		"pyenv led away":     {[]string{"PATH=/home/a/.pyenv/shims:/usr/bin", "PYENV_VERSION=../../v"}, []string{"/usr"}},
		"pyenv elsewhere":    {[]string{"PATH=/home/a/.pyenv/shims:/usr/bin", "PYENV_VERSION=system"}, []string{"/usr"}},
		"a relative PATH":    {[]string{"PATH=.:usr/bin"}, nil},
		"a venv that is not": {[]string{"VIRTUAL_ENV=/home/a/here", "PATH=/usr/bin"}, []string{"/home/a/here", "/usr"}},
	} {
		found := where(root, c.env...).FindEnvironments()
		var active, others []string
		for _, p := range found {
			if p.Active {
				active = append(active, p.Prefix)
			} else {
				others = append(others, p.Prefix)
			}
		}
		if !slices.Equal(active, c.active) {
			t.Errorf("%s: active %q, want %q", name, active, c.active)
		}
		for _, prefix := range all {
			if !slices.Contains(others, prefix) && !slices.Contains(active, prefix) {
				t.Errorf("%s: %s was not found in %q", name, prefix, others)
			}
		}
		if len(active) > 0 && !found[0].Active {
			t.Errorf("%s: %+v comes first", name, found[0])
		}
	}
}

func TestFindTellsWhatIsBroken(t *testing.T) {
	root := plant(t, "home/a/v/pyvenv.cfg=home = /usr/bin", "home/a/v/bin/python3 -> /usr/bin/python3.9", "home/a/empty/")
	found := where(root, "VIRTUAL_ENV=/home/a/v").FindEnvironments()
	if len(found) != 1 || !found[0].Active || !strings.Contains(found[0].Problem, "/usr/bin/python3.9, which is not there") {
		t.Errorf("an interpreter that is gone: %+v", found)
	}
	// Outside of tests, paths have no Root before them.
	top := plant(t, "v/pyvenv.cfg=", "v/bin/python3 -> ../nothing/python3.9", "round/pyvenv.cfg=", "round/bin/python3 -> python", "round/bin/python -> python3", "gone -> v/nowhere")
	w := SearchScope{Root: "/", Env: visible.Env{"HOME=" + top}, Folder: top}
	for name, want := range map[string]string{"v": "/v/nothing/python3.9, which is not there", "round": "a loop of links"} {
		if p, err := w.NamedEnvironment(name); err != nil || !strings.Contains(p.Problem, want) {
			t.Errorf("%s: %+v, %v; want %q", name, p, err, want)
		}
	}
	if _, err := w.NamedEnvironment("./gone"); err == nil || !strings.Contains(err.Error(), "a link to "+top+"/v/nowhere") {
		t.Errorf("a link to nothing: %v", err)
	}
	found = where(root, "VIRTUAL_ENV=/home/a/empty").FindEnvironments()
	if len(found) != 1 || !strings.Contains(found[0].Problem, "no Python in it") {
		t.Errorf("a folder without Python: %+v", found)
	}
}

func TestFindEndsEarlyWhereThereIsMuch(t *testing.T) {
	things := system()
	for i := range 40 {
		name := "home/a/.pyenv/versions/3.8." + string(rune('0'+i/10)) + string(rune('0'+i%10))
		things = append(things, name+"/bin/python3")
	}
	if n := len(where(plant(t, things...)).FindEnvironments()); n != maxEnvironments {
		t.Errorf("%d environments, want %d", n, maxEnvironments)
	}
}

func TestNamed(t *testing.T) {
	root := plant(t, append(system(), "home/a/here/.venv/pyvenv.cfg", "home/a/here/.venv/bin/python3 -> /usr/bin/python3.11", "home/a/file=x", "home/a/e.yml=x", "home/a/plain/", "home/a/here/sub/", "usr/bin/tool")...)
	if err := os.Chmod(filepath.Join(root, "home/a/file"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct{ prefix, kind, version string }{
		"/home/a/v":              {"/home/a/v", "venv", "3.11"},
		"~/v":                    {"/home/a/v", "venv", "3.11"},
		"../v":                   {"/home/a/v", "venv", "3.11"},
		"../v/bin":               {"/home/a/v", "venv", "3.11"},
		"../v/bin/python":        {"/home/a/v", "venv", "3.11"},
		".":                      {"/home/a/here/.venv", "venv", "3.11"},
		".venv":                  {"/home/a/here/.venv", "venv", "3.11"},
		"/usr/bin/python3":       {"/usr", "system", "3.11"},
		"python3.11":             {"/usr", "system", "3.11"},
		"train":                  {"/opt/conda/envs/train", "conda", "3.10"},
		"base":                   {"/opt/conda", "conda", "3.12"},
		"3.9.18":                 {"/home/a/.pyenv/versions/3.9.18", "pyenv", "3.9"},
		"/opt/conda":             {"/opt/conda", "conda", "3.12"},
		"/opt/conda/bin/python3": {"/opt/conda", "conda", "3.12"},
	} {
		p, err := where(root, "PATH=/usr/bin", "CONDA_EXE=/opt/conda/bin/conda").NamedEnvironment(name)
		if err != nil || p.Prefix != want.prefix || p.Kind != want.kind || p.Version != want.version {
			t.Errorf("%s: %+v, %v; want %+v", name, p, err, want)
		}
	}
	for name, want := range map[string]string{
		"":               "no name",
		"trian":          "conda has: gone, train",
		"/home/a/plain":  "no Python in this folder",
		"../plain":       "no Python in this folder",
		"sub":            "no Python in this folder",
		"/home/a/file/":  "not a program",
		"/home/a/file/x": "not a directory",
		"/nowhere":       "no such file",
		"/home/a/file":   "not a program",
		"/home/a/e.yml":  "gpuard lint looks at it",
		"/usr/bin/tool":  "not a Python",
	} {
		if p, err := where(root, "PATH=/usr/bin").NamedEnvironment(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want an error with %q", name, p, err, want)
		}
	}
}

func TestPackages(t *testing.T) {
	root := plant(t, append(system(), "home/a/.local/lib/python3.11/site-packages/onnxruntime-1.20.0.dist-info/", "src/x-1.0.dist-info/")...)
	w := where(root, "PATH=/usr/bin", "PYTHONPATH=:/src:rel")
	paths := func(folders []PackageFolder) (p []string) {
		for _, f := range folders {
			p = append(p, f.Path)
		}
		return p
	}
	system, version := w.PackageFolders(t.Context(), Environment{Prefix: "/usr", Version: "3.11"})
	if want := []string{"/usr/local/lib/python3.11/dist-packages", "/usr/lib/python3/dist-packages"}; !slices.Equal(paths(system), want) || version != "3.11" {
		t.Errorf("the system's: %q of %s, want %q", paths(system), version, want)
	}
	fedora := where(plant(t, "usr/bin/python3.12", "usr/lib64/python3.12/site-packages/", "usr/lib/python3.12/site-packages/", "usr/local/lib/python3.12/site-packages/", "usr/local/lib64/python3.12/site-packages/"))
	own, _ := fedora.PackageFolders(t.Context(), Environment{Prefix: "/usr", Version: "3.12"})
	if want := []string{"/usr/local/lib/python3.12/site-packages", "/usr/local/lib64/python3.12/site-packages", "/usr/lib/python3.12/site-packages", "/usr/lib64/python3.12/site-packages"}; !slices.Equal(paths(own), want) {
		t.Errorf("Fedora's: %q, want %q", paths(own), want)
	}
	venv, version := w.PackageFolders(t.Context(), Environment{Prefix: "/home/a/v"})
	if want := []string{"/home/a/v/lib/python3.11/site-packages"}; !slices.Equal(paths(venv), want) || version != "3.11" {
		t.Fatalf("a venv with lib64: %q of %s, want %q", paths(venv), version, want)
	}
	if got := string(venv[0].Torch); got != "cuda: Optional[str] = '12.8'" || !slices.Contains(venv[0].Names, "torch-2.9.0+cu128.dist-info") {
		t.Errorf("%q, %q", got, venv[0].Names)
	}
	before, after := w.SharedFolders(t.Context(), "3.11", true)
	if !slices.Equal(paths(before), []string{"/src"}) || !slices.Equal(paths(after), []string{"/home/a/.local/lib/python3.11/site-packages"}) {
		t.Errorf("PYTHONPATH %q, the user's %q", paths(before), paths(after))
	}
	if _, after := w.SharedFolders(t.Context(), "3.11", false); after != nil {
		t.Errorf("the user's folder counts in an environment that is apart from it: %q", after)
	}
	if _, after := where(root, "PYTHONNOUSERSITE=1").SharedFolders(t.Context(), "3.11", true); after != nil {
		t.Errorf("the user's folder counts although it is switched off: %q", after)
	}
	if got := w.CondaFiles(Environment{Prefix: "/opt/conda/envs/train"}); !slices.Equal(got, []string{"pytorch-2.5.1-py3.10_cuda12.4_cudnn9.1.0_0.json"}) {
		t.Errorf("conda: %q", got)
	}
}

// If a folder has more names than are read, a package that was not found may still be there.
func TestPackagesTellsOfNamesThatWereNotRead(t *testing.T) {
	folder := filepath.Join(plant(t, "v/lib/python3.11/site-packages/"), "v/lib/python3.11/site-packages")
	one := filepath.Join(t.TempDir(), "one")
	if err := os.WriteFile(one, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w := SearchScope{Root: "/"}
	for i := range maxNames {
		if err := os.Link(one, filepath.Join(folder, strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			if f := w.readFolders(t.Context(), []string{folder}); f[0].Problem != "" {
				t.Errorf("a few names: %q", f[0].Problem)
			}
		}
	}
	if f := w.readFolders(t.Context(), []string{folder}); !strings.Contains(f[0].Problem, "only the first 20000 were read") {
		t.Errorf("%d names: %q", len(f[0].Names), f[0].Problem)
	}
}

func TestNewestVersion(t *testing.T) {
	root := plant(t, "p/lib/python3.9/site-packages/", "p/lib/python3.11/site-packages/", "p/lib/python3/", "p/lib/python3.12=a file", "p/lib/python3.x/")
	if _, version := where(root).PackageFolders(t.Context(), Environment{Prefix: "/p"}); version != "3.11" {
		t.Errorf("%q, want 3.11", version)
	}
	if _, version := where(root).PackageFolders(t.Context(), Environment{Prefix: "/p", Version: "3.8"}); version != "3.11" {
		t.Errorf("%q, want 3.11: there is no folder for the interpreter's", version)
	}
	if _, version := where(root).PackageFolders(t.Context(), Environment{Prefix: "/p", Version: "3.9"}); version != "3.9" {
		t.Errorf("%q, want the interpreter's 3.9", version)
	}
}

// A FIFO in place of a file must not block the search, and an endless file must not fill the memory.
func TestReadsPlainFilesOnly(t *testing.T) {
	root := plant(t, "v/pyvenv.cfg="+strings.Repeat("x", maxFileSize+100), "v/lib/python3.11/site-packages/torch/")
	if err := syscall.Mkfifo(filepath.Join(root, "v/lib/python3.11/site-packages/torch/version.py"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(root, "v/conda-meta"), 0o644); err != nil {
		t.Fatal(err)
	}
	w := where(root)
	if names := w.CondaFiles(Environment{Prefix: "/v"}); names != nil {
		t.Errorf("a pipe was listed: %q", names)
	}
	folders, _ := w.PackageFolders(t.Context(), Environment{Prefix: "/v"})
	if len(folders) != 1 || folders[0].Torch != nil {
		t.Errorf("a pipe was read: %+v", folders)
	}
	if n := len(w.ReadConfig(Environment{Prefix: "/v"})); n != maxFileSize {
		t.Errorf("%d bytes of a large file, want %d", n, maxFileSize)
	}
}

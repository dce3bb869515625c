//go:build !race

// Nothing here is concurrent, and packing takes minutes under the race detector.

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpuard/internal/gate"
)

// stub replaces the program of the other architecture, which takes as long to pack by the same code.
const stub = "a program for the other architecture\n"

// released makes a release of this tree. Like its caller it works in the root of the repository.
func released(t *testing.T, out string) {
	t.Helper()
	r := release{version: "v1.2.3", out: out, nfpm: ".cache/bin/nfpm"}
	if err := r.prepareRelease(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(r.work)
	folders := map[string]string{}
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		folder, err := r.buildPrograms(t.Context(), arch)
		if err != nil {
			t.Fatal(err)
		}
		folders[arch] = folder
		for _, name := range programs() {
			program := filepath.Join(folder, name)
			runs(t, program, machine)
			if arch != runtime.GOARCH {
				err = os.WriteFile(program, []byte(stub), 0o755)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.replaceRelease(t.Context(), folders); err != nil {
		t.Fatal(err)
	}
}

// tool runs a program and returns what it prints.
func tool(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return string(out)
}

func lacks(t *testing.T, what, text string, wanted ...string) {
	t.Helper()
	for _, w := range wanted {
		if !regexp.MustCompile(w).MatchString(text) {
			t.Errorf("%s has nothing like %q:\n%s", what, w, text)
		}
	}
}

// TestRelease makes a release and checks it with the tools of its users.
func TestRelease(t *testing.T) {
	gate.Need(t, "nfpm", "dpkg", "rpm")
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	t.Chdir("../..")
	dir := t.TempDir() // with an earlier release in it
	for _, name := range []string{checksumFile, "gpuard_1.2.2-1_amd64.deb"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	released(t, dir)
	t.Run("same", sameAgain)
	t.Run("checksums", func(t *testing.T) {
		said := tool(t, dir, "sha256sum", "--strict", "-c", checksumFile)
		lacks(t, checksumFile, said, `gpuard-v1\.2\.3-linux-amd64\.tar\.gz: OK`, `gpuard-v1\.2\.3-linux-arm64\.tar\.gz: OK`, `gpuard_1\.2\.3-1_arm64\.deb: OK`, `gpuard-1\.2\.3-1\.aarch64\.rpm: OK`)
		if entries, err := os.ReadDir(dir); err != nil || strings.Count(said, ": OK\n") != 6 || len(entries) != 7 {
			t.Errorf("%d files, %v: %s", len(entries), err, said)
		}
	})
	for arch, kin := range map[string]string{"amd64": "x86_64", "arm64": "aarch64"} {
		t.Run("tar "+arch, func(t *testing.T) { unpacked(t, filepath.Join(dir, "gpuard-v1.2.3-linux-"+arch+".tar.gz"), arch) })
		t.Run("deb "+arch, func(t *testing.T) { debian(t, filepath.Join(dir, "gpuard_1.2.3-1_"+arch+".deb"), arch) })
		t.Run("rpm "+arch, func(t *testing.T) { redHat(t, filepath.Join(dir, "gpuard-1.2.3-1."+kin+".rpm"), kin, arch) })
		if arch == runtime.GOARCH {
			t.Run("install", func(t *testing.T) {
				install(t, filepath.Join(dir, "gpuard_1.2.3-1_"+arch+".deb"), filepath.Join(dir, "gpuard-1.2.3-1."+kin+".rpm"))
			})
		}
	}
}

// sameAgain: packing the same program at another time and place gives the same bytes. That the build of the program
// does not depend on time and place is tested in runs.
func sameAgain(t *testing.T) {
	r := release{version: "v1.2.3", nfpm: ".cache/bin/nfpm", when: time.Unix(1700000000, 0).UTC()}
	var err error
	if r.nfpm, err = filepath.Abs(r.nfpm); err != nil {
		t.Fatal(err)
	}
	var made []string
	for range 2 {
		r.work = t.TempDir()
		dir := filepath.Join(r.work, "another", "name")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range programs() {
			if err := os.WriteFile(filepath.Join(r.work, name), []byte(stub), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.fillFolder(t.Context(), dir, map[string]string{"amd64": r.work, "arm64": r.work}); err != nil {
			t.Fatal(err)
		}
		made = append(made, dir)
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // another second, which packages could note down
	}
	entries, err := os.ReadDir(made[1])
	if err != nil || len(entries) != 7 {
		t.Fatalf("%q, %v", entries, err)
	}
	for _, e := range entries {
		a, _ := os.ReadFile(filepath.Join(made[0], e.Name()))
		b, err := os.ReadFile(filepath.Join(made[1], e.Name()))
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s is not the same when it is packed again (%v)", e.Name(), err)
		}
	}
}

func unpacked(t *testing.T, file, arch string) {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	packed, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(packed); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		top, name, _ := strings.Cut(h.Name, "/")
		names = append(names, name)
		mode := int64(0o644)
		if slices.Contains(programs(), name) {
			mode = 0o755
			text, err := io.ReadAll(r)
			if err != nil {
				t.Error(err)
			}
			its(t, string(text), arch)
		}
		if top+".tar.gz" != filepath.Base(file) || h.Mode != mode || h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != 1700000000 {
			t.Errorf("%+v", h)
		}
	}
	for _, want := range []string{"gpuard", "gpuard-view", "README.md", "LICENSE", "LICENSES-of-others", "config.yaml", "man/gpuard.1", "man/gpuard-setup-machine.1", "completions/gpuard.bash", "completions/_gpuard", "completions/gpuard.fish"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not in the archive: %q", want, names)
		}
	}
}

// its: the text is that of the program for this architecture.
func its(t *testing.T, text, arch string) {
	t.Helper()
	if program := strings.HasPrefix(text, elf.ELFMAG); !program && text != stub || program != (arch == runtime.GOARCH) {
		t.Errorf("there is another program in it than that for %s: %.40q, %d bytes", arch, text, len(text))
	}
}

// runs: the program is one for this machine, does not know where and of what it was built, and needs no library but
// those of glibc that the package depends on.
func runs(t *testing.T, file string, machine elf.Machine) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	program, err := elf.NewFile(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if id := program.Section(".note.go.buildid"); id != nil {
		if data, err := id.Data(); err != nil || len(bytes.Trim(data[16:], "\x00")) > 0 {
			t.Errorf("it has the build id %q (%v)", data, err)
		}
	}
	built, err := buildinfo.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range built.Settings {
		if strings.HasPrefix(s.Key, "vcs") || s.Key == "GOAMD64" && s.Value != "v1" || s.Key == "GOARM64" && s.Value != "v8.0" || s.Key == "CGO_ENABLED" && s.Value != "0" {
			t.Errorf("it was built with %s=%s", s.Key, s.Value)
		}
	}
	libraries, err := program.ImportedLibraries()
	if err != nil || program.Machine != machine {
		t.Errorf("a program for %v, want %v (%v)", program.Machine, machine, err)
	}
	for _, l := range libraries {
		if !slices.Contains([]string{"libc.so.6", "libdl.so.2", "libpthread.so.0"}, l) {
			t.Errorf("it needs %s, on which no package depends", l)
		}
	}
	for _, here := range []string{"v1.2.3", "/lib"} {
		if !bytes.Contains(text, []byte(here)) {
			t.Errorf("the program does not know %q", here)
		}
	}
	if root, err := os.Getwd(); err != nil || bytes.Contains(text, []byte(root+"/internal")) {
		t.Errorf("the program knows the folder %s in which it was built (%v)", root, err)
	}
}

func debian(t *testing.T, file, arch string) {
	said := tool(t, "/", "dpkg-deb", "-I", file)
	lacks(t, "dpkg-deb -I", said, `\n Package: gpuard\n`, `\n Version: 1\.2\.3-1\n`, `\n Architecture: `+arch+`\n`, `\n Depends: libc6\n`, `\n Section: utils\n`, `\n Maintainer: gpuard maintainers `, `\n Description: choose`, `postinst`)
	its(t, tool(t, "/", "sh", "-c", `dpkg-deb --fsys-tarfile "$0" | tar -xO ./usr/bin/gpuard`, file), arch)
	if regexp.MustCompile(`conffiles|prerm|postrm|preinst|Homepage`).MatchString(said) {
		t.Errorf("the package has more than was thought: %s", said)
	}
	const file644, file755 = `-rw-r--r-- root/root +\d+ 2023-11-1\d \d\d:\d\d \.`, `-rwxr-xr-x root/root +\d+ 2023-11-1\d \d\d:\d\d \.`
	lacks(t, "dpkg-deb -c", tool(t, "/", "dpkg-deb", "-c", file),
		file755+`/usr/bin/gpuard\n`, file755+`/usr/bin/gpuard-view\n`,
		file644+`/usr/lib/tmpfiles\.d/gpuard\.conf\n`,
		file644+`/usr/share/man/man1/gpuard\.1\.gz\n`, file644+`/usr/share/man/man1/gpuard-run\.1\.gz\n`, file644+`/usr/share/man/man5/gpuard\.yaml\.5\.gz\n`,
		file644+`/usr/share/bash-completion/completions/gpuard\n`,
		file644+`/usr/share/zsh/vendor-completions/_gpuard\n`,
		file644+`/usr/share/fish/vendor_completions\.d/gpuard\.fish\n`,
		file644+`/usr/share/doc/gpuard/README\.md\n`, file644+`/usr/share/doc/gpuard/copyright\n`, file644+`/usr/share/doc/gpuard/LICENSES-of-others\n`, file644+`/usr/share/doc/gpuard/examples/config\.yaml\n`)
}

func redHat(t *testing.T, file, kin, arch string) {
	size := map[bool]string{true: `\d{8}`, false: strconv.Itoa(len(stub))}[arch == runtime.GOARCH]
	lacks(t, "rpm -qp", tool(t, "/", "rpm", "-qp", "--qf", "%{NAME} %{VERSION}-%{RELEASE} %{ARCH} %{LICENSE}\n%{SUMMARY}\n", "--requires", file), `^gpuard 1\.2\.3-1 `+kin+` Apache-2\.0\nChoose, lease`, `\nglibc\n`)
	const file644 = `-rw-r--r-- +1 root +root +\d+ Nov 1\d  ?\d+ `
	lacks(t, "rpm -qplv", tool(t, "/", "rpm", "-qplv", file),
		`drwxr-xr-x +\d+ root +root .* /usr/share/doc/gpuard\n`, `-rwxr-xr-x +1 root +root +`+size+` Nov 1\d  ?\d+ /usr/bin/gpuard\n`, `/usr/bin/gpuard-view\n`,
		file644+`/usr/lib/tmpfiles\.d/gpuard\.conf\n`, file644+`/usr/share/man/man1/gpuard-run\.1\.gz\n`,
		file644+`/usr/share/zsh/site-functions/_gpuard\n`, file644+`/usr/share/doc/gpuard/LICENSE\n`)
}

// install puts the packages into a root folder that has a shell and the C library, and nothing else.
func install(t *testing.T, deb, rpm string) {
	gate.Need(t, "root", "pidns")
	root := t.TempDir()
	for _, dir := range []string{"proc", "dev", "tmp", "root", "var/lib/dpkg/updates", "var/lib/dpkg/info", "var/lib/dpkg/triggers", "bin"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tool(t, "/", "dpkg-deb", "-x", deb, filepath.Join(root, "tmp")) // only to ask what it needs
	libraries := regexp.MustCompile(`(?m)(/\S+) \(0x`).FindAllStringSubmatch(tool(t, "/", "ldd", "/bin/sh")+tool(t, "/", "ldd", filepath.Join(root, "tmp/usr/bin/gpuard")), -1)
	if len(libraries) < 4 {
		t.Fatalf("ldd names only %q", libraries)
	}
	needed := []string{"/bin/sh"}
	for _, l := range libraries {
		needed = append(needed, l[1])
	}
	for _, file := range needed {
		tool(t, root, "cp", "--parents", "-L", file, ".")
	}
	if err := os.RemoveAll(filepath.Join(root, "tmp/usr")); err != nil {
		t.Fatal(err)
	}
	status := "Package: libc6\nStatus: install ok installed\nArchitecture: " + runtime.GOARCH + "\nVersion: 2.36\nMaintainer: x <x@x>\nDescription: the C library, from outside\n"
	if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), []byte(status), 0o644); err != nil {
		t.Fatal(err)
	}
	// In a namespace of its own: what it starts ends with it, and so do its mounts.
	within := func(script string) string {
		return tool(t, root, "unshare", "--pid", "--fork", "--mount", "sh", "-ec", "mount -t proc proc proc; mount --rbind /dev dev; "+script)
	}
	works := func() {
		t.Helper()
		lacks(t, "gpuard --version", within("chroot . /usr/bin/gpuard --version"), `^gpuard v1\.2\.3\n$`)
		said := within(`unset CUDA_VISIBLE_DEVICES GPUARD_STATE GPUARD_MACHINE GPUARD_LEASE XDG_STATE_HOME; HOME=/root SHELL=/bin/sh exec chroot . /usr/bin/gpuard run --machine demo -- sh -c 'echo $CUDA_VISIBLE_DEVICES'`)
		lacks(t, "gpuard run", said, `GPU [0-3] `, `\n[0-3]\n$`)
		if err := os.RemoveAll(filepath.Join(root, "root/.local")); err != nil {
			t.Fatal(err)
		}
	}
	before := paths(t, root)
	within("dpkg --root=$PWD --install " + deb)
	lacks(t, "dpkg -s", tool(t, root, "dpkg", "--root="+root, "-s", "gpuard"), `\nStatus: install ok installed\n`, `\nVersion: 1\.2\.3-1\n`)
	works()
	within("dpkg --root=$PWD --install " + deb) // as an update
	within("dpkg --root=$PWD --purge gpuard")
	if after := paths(t, root); !slices.Equal(before, after) {
		t.Errorf("before\n%q\nand after dpkg --purge\n%q", before, after)
	}
	within("rpm --root=$PWD --nodeps --install " + rpm)
	works()
	within("rpm --root=$PWD --verify --nodeps gpuard; rpm --root=$PWD --nodeps --replacepkgs --upgrade " + rpm)
	within("rpm --root=$PWD --erase gpuard")
	for _, path := range paths(t, root) { // rpm leaves what no package owns, such as /usr/share/man
		if strings.Contains(path, "gpuard") {
			t.Errorf("rpm --erase leaves %s", path)
		}
	}
}

// paths are those below root, but for the book-keeping of dpkg.
func paths(t *testing.T, root string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if !strings.Contains(path, "/var/lib/dpkg/") {
			all = append(all, strings.TrimPrefix(path, root))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestReleaseRefused: what is no version, and a folder that is no release, are refused before anything is built.
func TestReleaseRefused(t *testing.T) {
	for _, version := range []string{"", "1.2.3", "v1.2", "v1.2.3 ", "v1.2.3-", "v1.2.3;x", "latest"} {
		r := release{version: version, out: filepath.Join(t.TempDir(), "out")}
		if err := r.makeRelease(t.Context()); err == nil || !strings.Contains(err.Error(), "write it like v1.2.3") {
			t.Errorf("the version %q: %v", version, err)
		}
	}
	out := t.TempDir()
	mine := filepath.Join(out, "thesis.tex")
	if err := os.WriteFile(mine, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r := release{version: "v1.2.3", out: out}
	if err := r.makeRelease(t.Context()); err == nil || !strings.Contains(err.Error(), "it is no release") {
		t.Errorf("a folder of somebody's: %v", err)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
}

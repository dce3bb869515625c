package layout

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// byPath are functions that make or change something by its path, and so whatever stands there at that moment, or that
// follow every link to it.
func byPath() map[string][]string {
	return map[string][]string{
		"os": {"Chmod", "Chown", "Lchown", "Chtimes", "Truncate", "Remove", "RemoveAll", "Rename", "Mkdir", "MkdirAll", "MkdirTemp", "Create", "CreateTemp",
			"OpenFile", "WriteFile", "Link", "Symlink"},
		"unix": {"Chmod", "Chown", "Lchown", "Utime", "Utimes", "Truncate", "Unlink", "Rmdir", "Rename", "Mkdir", "Mkfifo", "Mknod", "Open", "Openat", "Creat",
			"Link", "Symlink"},
		"syscall": {"Chmod", "Chown", "Lchown", "Utime", "Utimes", "Truncate", "Unlink", "Rmdir", "Rename", "Mkdir", "Mkfifo", "Mknod", "Open", "Openat", "Creat",
			"Link", "Symlink"},
		"filepath": {"EvalSymlinks"},
	}
}

// allowedByPath are the places that go by a path all the same, and why nobody else can choose where that leads.
func allowedByPath() map[string]string {
	return map[string]string{
		"internal/app/claim resolveFolder filepath.EvalSymlinks":     "only looks where it leads",
		"internal/app/compare prepareRuns os.MkdirTemp":              "its own folder of $TMPDIR, made with a name that nobody can guess",
		"internal/app/compare runTurns os.Remove":                    "its own folder of $TMPDIR, made with a name that nobody can guess",
		"internal/app/compare launchProcess os.Remove":               "its own folder of $TMPDIR, made with a name that nobody can guess",
		"internal/app/compare readOutput os.Remove":                  "its own folder of $TMPDIR, made with a name that nobody can guess",
		"internal/app/engine driverLibraries filepath.EvalSymlinks":  "only looks where it leads",
		"internal/host/isolation answerChild os.WriteFile":           "a file of procfs, of an own child",
		"internal/host/isolation tryGroup os.MkdirTemp":              "a file of the kernel's, in a folder that only root can change",
		"internal/host/isolation tryGroup os.Chmod":                  "likewise",
		"internal/host/isolation enter os.WriteFile":                 "likewise",
		"internal/host/isolation denyByList os.WriteFile":            "likewise",
		"internal/app/userqueue removeOld os.RemoveAll":              "goes into no link, in the folder of the queue",
		"internal/app/services absolutePath filepath.EvalSymlinks":   "only looks where it leads",
		"internal/app/setup checkEntry filepath.EvalSymlinks":        "only looks where it leads",
		"internal/app/setup copiesOf filepath.EvalSymlinks":          "only looks where it leads",
		"internal/app/setup pythonPrefixes filepath.EvalSymlinks":    "only looks where it leads",
		"internal/app/setup checkProgramOwned filepath.EvalSymlinks": "only looks where it leads",
		"internal/app/setup Remove os.Remove":                        "an empty folder below /var/lib",
		"internal/app/setup findUnit filepath.EvalSymlinks":          "only looks where it leads",
		"internal/app/setup readDropIns filepath.EvalSymlinks":       "only looks where it leads",
		"internal/app/setup unitAliases filepath.EvalSymlinks":       "only looks where it leads",
		"internal/host/amdgpu busPath filepath.EvalSymlinks":         "only looks where it leads",
		"internal/host/cgroupfs Prune unix.Rmdir":                    "a file of the kernel's",
		"internal/host/daemonize SetProcessName os.WriteFile":        "a file of the kernel's",
		"internal/host/files ResolveLinks filepath.EvalSymlinks":     "only looks where it leads",
		"internal/host/proc FolderSight filepath.EvalSymlinks":       "only looks where it leads",
		"internal/host/proctree killMembers os.WriteFile":            "a file of the kernel's",
		"internal/host/proctree moveOut os.WriteFile":                "a file of the kernel's",
		"internal/host/proctree newCgroup os.Mkdir":                  "a file of the kernel's",
		"internal/host/pyenv resolveLinks filepath.EvalSymlinks":     "only looks where it leads",
		"internal/host/quotawatch openStandardError unix.Open":       "what a process has open already, by /proc",
		"internal/host/tty writeLine unix.Open":                      "a terminal, which is checked",
		"internal/ui/cli/batchcmd testScript os.CreateTemp":          "a file of $TMPDIR, made with a name that nobody can guess",
		"internal/ui/cli/batchcmd testScript os.Remove":              "likewise",
	}
}

// byDescriptor: what is written is written by host/sys, which follows no link of another user.
func byDescriptor(repo tree) (bad []string) {
	used := map[string]bool{}
	for _, s := range repo.code(false) {
		if !strings.HasPrefix(s.path, "internal/") && !strings.HasPrefix(s.path, "cmd/gpuard") || slices.Contains([]string{"internal/host/sys", "internal/gate"}, s.dir()) {
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			place := s.dir() + " " + f.Name.Name
			ast.Inspect(f, func(n ast.Node) bool {
				what, harmless := goesByPath(n)
				if what == "" || harmless {
					return true
				}
				if _, allowed := allowedByPath()[place+" "+what]; !allowed {
					bad = append(bad, fmt.Sprintf("%s: %s goes by a path that another user may exchange: use host/sys (allowedByPath has %q)", s.at(n.Pos()), what, place+" "+what))
				}
				used[place+" "+what] = true
				return true
			})
		}
	}
	if len(repo) > 1 {
		for place := range allowedByPath() {
			if !used[place] {
				bad = append(bad, fmt.Sprintf("allowedByPath: %q is gone", place))
			}
		}
	}
	slices.Sort(bad)
	return bad
}

// goesByPath names the function that is called; harmless is one that only reads, or opens a device by its fixed name.
func goesByPath(n ast.Node) (what string, harmless bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	x, ok := f.X.(*ast.Ident)
	if !ok || !slices.Contains(byPath()[x.Name], f.Sel.Name) {
		return "", false
	}
	what = x.Name + "." + f.Sel.Name
	at, flags := 0, 1
	switch f.Sel.Name {
	case "Openat":
		at, flags = 1, 2
	case "OpenFile", "Open":
	default:
		return what, false
	}
	return what, device(call.Args[at]) || readOnly(call.Args[flags])
}

// device reports a path that is written out and leads to a device.
func device(path ast.Expr) bool {
	switch path := path.(type) {
	case *ast.BasicLit:
		return strings.HasPrefix(path.Value, `"/dev/`)
	case *ast.SelectorExpr:
		return path.Sel.Name == "DevNull"
	}
	return false
}

// readOnly reports flags that are written out and write nothing.
func readOnly(flags ast.Expr) bool {
	switch flags := flags.(type) {
	case *ast.SelectorExpr:
		return !slices.Contains([]string{"O_WRONLY", "O_RDWR", "O_CREATE", "O_CREAT", "O_APPEND", "O_TRUNC", "O_TMPFILE"}, flags.Sel.Name)
	case *ast.BinaryExpr:
		return readOnly(flags.X) && readOnly(flags.Y)
	}
	return false
}

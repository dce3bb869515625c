// Command try makes a fake machine with four A100 in a folder and prints what to type into a shell so that programs see
// it:
//
//	eval "$(go run ./test/fakegpu/try)"
//
// It must run inside of the repository, whose go.mod names the module with nvml.h, and needs a C compiler.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/test/fakegpu"
)

// standaloneTB replaces a test where there is none: a failure ends the program, and the folder stays.
type standaloneTB struct {
	testing.TB
	dir string
}

func (o standaloneTB) Helper()         {}
func (o standaloneTB) TempDir() string { return o.dir }

func (o standaloneTB) Fatalf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

// Skipf is the answer of a gate: something is missing here.
func (o standaloneTB) Skipf(format string, args ...any) {
	o.Fatalf("cannot make the fake machine: "+format, args...)
}

func main() {
	if len(os.Args) > 2 {
		standaloneTB{}.Fatalf("cannot make %d machines: write one new folder, or none to get one", len(os.Args)-1)
	}
	dir, err := makeFolder(os.Args[1:])
	if err != nil {
		standaloneTB{}.Fatalf("cannot make the fake machine: %v; name a new folder", err)
	}
	d := fakegpu.New(standaloneTB{dir: filepath.Join(dir, "machine")}, fakegpu.A100(0), fakegpu.A100(1), fakegpu.A100(2), fakegpu.A100(3))
	// Leases of these GPUs are kept apart from those of real ones.
	for _, pair := range append(d.Env(), "GPUARD_STATE="+filepath.Join(dir, "leases")) {
		name, value, _ := strings.Cut(pair, "=")
		fmt.Printf("export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
	}
}

// makeFolder makes a new one: an existing one is not ours.
func makeFolder(args []string) (dir string, err error) {
	if len(args) == 0 {
		dir, err = os.MkdirTemp("", "fakegpu-")
	} else if dir, err = filepath.Abs(args[0]); err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, "machine"), 0o755)
	}
	return dir, err
}

package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// roleBeside runs a command as a child, in the process group that descriptor 3 names.
func roleBeside(args []string) error {
	child, err := Command{Path: args[0], Argv: args, Env: os.Environ(), Group: os.NewFile(3, "group")}.Start()
	if err == nil {
		fmt.Println("and", child.Wait())
	}
	return err
}

// TestNoGroup: what is no cgroup, or none any more, costs the command nothing; a start that fails does so with its own
// reason.
func TestNoGroup(t *testing.T) {
	dir := t.TempDir()
	group, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close() //nolint:errcheck // read only
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte(`echo "on $0|$1|$#"; exit 3`), 0o755); err != nil { //nolint:gosec // a command
		t.Fatal(err)
	}
	a := play(t, []*os.File{group}, "beside", script, "a b")
	a.expect("on " + script + "|a b|1")
	a.expect("and exit status 3")
	a = play(t, []*os.File{group}, "beside", dir)
	a.expect("error: cannot run \"" + dir + "\": permission denied")
}

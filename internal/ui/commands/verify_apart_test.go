package commands

import (
	"strings"
	"testing"

	"gpuard/internal/app/machine"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/cli/runcmd"
	"gpuard/internal/ui/jobflags"
)

// TestApart: only a valid value directly after --verify is taken for its value.
func TestApart(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"run --verify 5s -- true", "5s"},
		{"run --verify 30 -- true", "30s"},
		{"run --verify stop true", "stop"},
		{"run -q --verify 5s,stop --gpus 2 -- true", "5s,stop"},
		{"run --verify 7z x", ""},
		{"run --verify -- 5s", ""},
		{"run --verify -q 5s", ""},
		{"run --verify", ""},
	} {
		p := &cli.Program{Host: &machine.Host{}, Args: strings.Fields(c.line)}
		cmd := runcmd.NewRunCommand(p)
		if err := cmd.ParseFlags(p.Args[1:]); err != nil {
			t.Fatal(err)
		}
		if got, ok := jobflags.ValueAfterBlank(p, cmd.Flags().Args()); got != c.want && ok || ok != (c.want != "") {
			t.Errorf("%s: %q %v, want %q", c.line, got, ok, c.want)
		}
	}
}

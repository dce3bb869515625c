package cli

import (
	"bytes"
	"strings"
	"testing"

	"gpuard/internal/app/machine"
)

// TestOneCommand: a command that is made alone has the name in the list, and the same output as in the whole tree.
func TestOneCommand(t *testing.T) {
	answer := func(args ...string) string {
		var out, errs bytes.Buffer
		code := Main(t.Context(), &Program{Host: &machine.Host{}, Out: &out, Err: &errs, Args: args})
		return strings.Join([]string{out.String(), errs.String(), string(rune('0' + code))}, "|")
	}
	for _, c := range commandTable() {
		cmd := c.make(&Program{Host: &machine.Host{}})
		if cmd.Name() != c.name || len(cmd.Aliases) > 0 {
			t.Errorf("%s is called %s %v", c.name, cmd.Name(), cmd.Aliases)
		}
		root := (&Program{Host: &machine.Host{}, Args: []string{c.name}}).root()
		if alone := root.Commands(); len(alone) != 1 && !cmd.HasSubCommands() {
			t.Errorf("%s is made with others: %v", c.name, alone)
		}
		for _, flag := range []string{"--help", "--no-such-flag", "--version"} {
			// --machine before the command makes all commands.
			if alone, all := answer(c.name, flag), answer("--machine=", c.name, flag); alone != all {
				t.Errorf("%s %s: %q alone, %q with the others", c.name, flag, alone, all)
			}
		}
	}
	if alone, all := answer("--version"), answer("--machine=", "--version"); alone != all || !strings.HasPrefix(alone, "gpuard ") {
		t.Errorf("--version: %q alone, %q with the commands", alone, all)
	}
}

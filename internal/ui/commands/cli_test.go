package commands

import (
	"bytes"
	"strings"
	"testing"

	"gpuard/internal/app/machine"
	"gpuard/internal/ui/cli"
)

// TestOneCommand: a command that is made alone has the name in the list, and the same output as in the whole tree.
func TestOneCommand(t *testing.T) {
	answer := func(args ...string) string {
		var out, errs bytes.Buffer
		code := cli.Main(t.Context(), &cli.Program{Host: &machine.Host{}, Commands: CommandTable(), Out: &out, Err: &errs, Args: args})
		return strings.Join([]string{out.String(), errs.String(), string(rune('0' + code))}, "|")
	}
	for _, c := range CommandTable() {
		cmd := c.Make(&cli.Program{Host: &machine.Host{}})
		if cmd.Name() != c.Name || len(cmd.Aliases) > 0 {
			t.Errorf("%s is called %s %v", c.Name, cmd.Name(), cmd.Aliases)
		}
		root := (&cli.Program{Host: &machine.Host{}, Commands: CommandTable(), Args: []string{c.Name}}).RootCommand()
		if alone := root.Commands(); len(alone) != 1 && !cmd.HasSubCommands() {
			t.Errorf("%s is made with others: %v", c.Name, alone)
		}
		for _, flag := range []string{"--help", "--no-such-flag", "--version"} {
			// --machine before the command makes all commands.
			if alone, all := answer(c.Name, flag), answer("--machine=", c.Name, flag); alone != all {
				t.Errorf("%s %s: %q alone, %q with the others", c.Name, flag, alone, all)
			}
		}
	}
	if alone, all := answer("--version"), answer("--machine=", "--version"); alone != all || !strings.HasPrefix(alone, "gpuard ") {
		t.Errorf("--version: %q alone, %q with the commands", alone, all)
	}
}

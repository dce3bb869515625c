package option

import (
	"fmt"
	"slices"
	"strings"
)

// Expand writes what a text names in braces as it is typed: {share} is --share, {share=8G} is --share 8G, and
// {gpuard evict} is gpuard evict. Braces around anything else stay. What a user has written is put in afterwards, by
// Sprintf, and never goes through here.
func Expand(text string) string {
	var b strings.Builder
	for {
		before, rest, _ := strings.Cut(text, "{")
		inside, after, closed := strings.Cut(rest, "}")
		if !closed {
			return b.String() + text
		}

		b.WriteString(before)
		if typed, known := typedName(inside); known {
			b.WriteString(typed)
			text = after
		} else {
			b.WriteByte('{')
			text = rest
		}
	}
}

// Sprintf is fmt.Sprintf with a format that names options and commands in braces. Nothing is replaced in what is put in.
func Sprintf(format string, args ...any) string { return fmt.Sprintf(Expand(format), args...) }

// Errorf is fmt.Errorf likewise.
func Errorf(format string, args ...any) error { return fmt.Errorf(Expand(format), args...) }

// IsKnownName reports whether there is what a text names in braces.
func IsKnownName(inside string) bool {
	_, known := typedName(inside)
	return known
}

// typedName is how that is typed which stands in braces.
func typedName(inside string) (string, bool) {
	if path, isCommand := strings.CutPrefix(inside, "gpuard "); isCommand {
		return inside, slices.Contains(commandNames, path)
	}
	name, value, hasValue := strings.Cut(inside, "=")
	if !IsFlagName(name) {
		return "", false
	}
	if hasValue {
		return "--" + name + " " + value, true
	}
	return "--" + name, true
}

// IsFlagName reports whether a command has a flag of that name.
func IsFlagName(name string) bool {
	// By index: a row is large, and this is asked for every name in a text.
	for i := range optionTable {
		if optionTable[i].Name == name {
			return true
		}
	}
	return slices.Contains(flagNames, name)
}

// CommandNames are the commands, with those below them.
func CommandNames() []string { return slices.Clone(commandNames) }

// FlagNames are the flags of commands that are no options of a job.
func FlagNames() []string { return slices.Clone(flagNames) }

// commandNames has the names of the table of commands, which stands where the commands are made.
var commandNames = []string{
	"cancel", "cdi", "compare", "completion", "docker", "doctor", "down", "drain", "env", "evict", "explain",
	"export", "export compose", "export kubernetes", "export kubernetes-dra", "export slurm", "help", "history", "lint",
	"logs", "podman", "ps",
	"queue", "queue hold", "queue pause", "queue requeue", "queue resume", "queue unhold",
	"release", "reserve", "restart", "run", "serve",
	"setup", "setup cdi", "setup conda", "setup desktop", "setup direnv", "setup docker", "setup github",
	"setup jupyter", "setup machine", "setup prometheus", "setup queue", "setup serve", "setup shell", "setup systemd",
	"simulate", "status", "submit", "sweep", "top", "undrain", "up", "verify", "wait",
}

// flagNames has the flags of commands that are no options of a job.
var flagNames = []string{
	"alert", "all", "arms", "as", "ask", "bundle", "by", "chart", "commands", "compose", "container", "context", "csv",
	"dcgm-jobs", "detach", "dir", "docs", "dry-run", "environment-yml", "every", "failed", "file", "fix", "follow",
	"for", "force", "format", "help", "idle", "jobs", "jobs-per-gpu", "json", "kernel", "lease",
	"listen", "load", "login", "machine", "metric", "mine", "no-prompt", "no-scrub", "now", "over", "pci", "pid",
	"policy", "preview", "probe", "python", "quiet", "reason", "record", "remove", "repeat", "restore", "resume", "run",
	"runtime", "save", "seed", "shell", "since", "tail", "target", "theme", "time-guess", "tls-cert", "tls-key",
	"token-file", "user", "version", "warmup", "watch", "why",
}

package jobflags

import (
	"fmt"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/ui/cli"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// maxHeadSize is how many bytes of a script are searched for flags, which stand before its first command.
const maxHeadSize = 64 << 10

// ScriptOf is the script that a command starts, itself or by env, a shell or Python, the head of its text, and the
// lines in front of its first command; "" for another program. A name without a slash is a program of PATH, or what a
// shell or Python is to run.
func ScriptOf(command []string) (path, head string, lines []string) {
	isArgument := false
	for _, word := range command {
		switch {
		case filepath.Base(word) == "env" && !isArgument, !isArgument && isAssignment(word):
			continue
		case isArgument && (word == "-c" || word == "-m" || word == "-"):
			return "", "", nil
		case isArgument && strings.HasPrefix(word, "-"):
			continue
		case !isArgument && isInterpreter(word):
			isArgument = true
			continue
		case !isArgument && !strings.Contains(word, "/"):
			return "", "", nil
		}
		head = readScriptHead(word)
		if head == "" {
			return "", "", nil
		}

		return word, head, leadingLines(head)
	}
	return "", "", nil
}

// isAssignment reports whether a word is one for env, such as A=b.
func isAssignment(word string) bool {
	name, _, found := strings.Cut(word, "=")
	return found && name != "" && !strings.ContainsAny(name, "/- ")
}

// isInterpreter reports whether a program runs the file that is its first argument.
func isInterpreter(program string) bool {
	name := filepath.Base(program)
	return slices.Contains([]string{"sh", "bash", "dash", "zsh", "ksh"}, name) || strings.HasPrefix(name, "python")
}

// readScriptHead reads the beginning of a script, which begins with a comment; "" for what is none.
func readScriptHead(path string) string {
	// A pipe without a writer would stop us.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		// A program of PATH; whether it is there is asked later.
		return ""
	}

	defer file.Close() //nolint:errcheck // read only
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}

	text := make([]byte, maxHeadSize)
	n, _ := file.Read(text)
	if n == 0 || text[0] != '#' {
		return ""
	}

	return string(text[:n])
}

// leadingLines are the lines in front of the first command of a script.
func leadingLines(head string) (lines []string) {
	for line := range strings.Lines(head) {
		if first := strings.TrimSpace(line); first != "" && first[0] != '#' {
			break
		}
		lines = append(lines, strings.TrimRight(line, "\r\n"))
	}
	return lines
}

// FlagsIn is what stands behind #GPUARD in a line; ours is false for another line.
func FlagsIn(line string) (flags string, ours bool) {
	rest, ours := strings.CutPrefix(strings.TrimSpace(line), "#GPUARD")
	return rest, ours && (rest == "" || rest[0] == ' ' || rest[0] == '\t')
}

// SayUnreadLines says that the flags in the script of a command are read by submit and not by this command, unless its
// line has them all.
func SayUnreadLines(p *cli.Program, cmd *cobra.Command, command []string) {
	path, _, lines := ScriptOf(command)
	path, here := prose.Clean(path), cmd.CommandPath()
	var all []string
	isMissing := false

	for _, line := range lines {
		if strings.HasPrefix(line, "#SBATCH ") {
			_ = p.PrintMessage(fmt.Sprintf("the #SBATCH lines of %s count for gpuard submit, not for %s", path, here))
			break
		}
	}

	for _, line := range lines {
		flags, ours := FlagsIn(line)
		words, err := shellquote.SplitBeforeComment(flags)
		if !ours || err != nil {
			continue
		}

		all = append(all, words...)

		for _, word := range words {
			name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
			isMissing = isMissing || strings.HasPrefix(word, "-") && !cmd.Flags().Changed(name)
		}
	}

	if isMissing {
		flags := prose.Clean(shellquote.JoinQuoted(shellquote.Sh, all...))
		_ = p.PrintMessage(fmt.Sprintf("the lines with #GPUARD in %s (%s) count for gpuard submit, not for %s", path, flags, here))
	}
}

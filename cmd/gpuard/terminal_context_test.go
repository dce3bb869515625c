package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// documentedVariables are the variables that gpuard sets or removes for NVIDIA devices, and two of this test's own.
const documentedVariables = `^(CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|NVIDIA_VISIBLE_DEVICES|GPUARD_LEASE|GPUARD_GPUS|FRONT|GPUARD_STATE|XDG_STATE_HOME|HOME|HISTFILE)=`

// TestEnvironment: the command has its caller's variables, byte for byte and in their order, and the documented ones.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	compareBothWays(t, func(f *commandPrefix) []string {
		cmd := f.cmd(f.prefixCommand("env", "-0")...)
		cmd.Env = append(cmd.Env, "EMPTY=", "LINES=a\nb", "BYTES=\xff\xfe", "EQUALS=a=b=c", "ODD NAME=1", "NVIDIA_VISIBLE_DEVICES=all")
		var seen []string
		for pair := range strings.SplitSeq(runCommand(f, cmd).out, "\x00") {
			if !regexp.MustCompile(documentedVariables).MatchString(pair) {
				seen = append(seen, strconv.Quote(pair))
			}
		}
		return seen
	})
}

// TestContext: what a command inherits besides its environment.
func TestContext(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"umask":        "umask 027; $FRONT sh -c umask",
		"folder":       "mkdir -p deep/er; ln -s deep link; cd link/er; $FRONT sh -c 'pwd; pwd -P'",
		"lost folder":  "mkdir lost; cd lost; rmdir ../lost; $FRONT sh -c 'echo still here'",
		"limits":       "ulimit -Sn 300; ulimit -St 1000; $FRONT cat /proc/self/limits",
		"few files":    "ulimit -n 100; $FRONT sh -c 'ulimit -Sn; ulimit -Hn'",
		"nice":         "nice -n 7 $FRONT nice",
		"scheduling":   "chrt -i 0 $FRONT sh -c 'chrt -p $$ | sed s/[0-9][0-9]*//'; taskset 1 $FRONT sh -c 'taskset -p $$ | sed s/.*:.//'",
		"arguments":    `$FRONT printf '<%s>' '' 'a b' '*' -- -x --gpus "$(printf 'n\nl')"`,
		"own name":     `$FRONT sh -c 'tr "\0" "|" </proc/$$/cmdline' sh "" x`,
		"image":        `$FRONT sh -c 'readlink /proc/$$/exe; cat /proc/$$/comm'`,
		"no terminal":  `setsid -w $FRONT sh -c 'read a b c d e f tty rest </proc/$$/stat; echo $tty'`,
		"line by line": `printf 'one\ntwo\nthree\n' | { $FRONT sh -c 'read line; echo "$line"'; cat; }`,
		"standard err": `$FRONT sh -c 'echo out; echo err >&2' 2>err; cat err`,
		"descriptors":  `exec 3</dev/null 7>seven 9<&0 200</dev/zero; ` + listOpenFilesScript,
		"many words":   `$FRONT sh -c 'echo $#' sh $(seq 20000)`,
	} {
		t.Run(name, func(t *testing.T) {
			compareBothWays(t, func(f *commandPrefix) []string {
				got := f.run("bash", "-c", script)
				if got.out == "" {
					f.Errorf("nothing was printed: %s", got.err)
				}
				return []string{strings.ReplaceAll(fmt.Sprint(got), f.dir, "DIR")}
			})
		})
	}
}

// listOpenFilesScript lists what a command has open, without the lease's lock and without the listing itself.
const listOpenFilesScript = `$FRONT sh -c 'for f in /proc/$$/fd/*; do echo ${f##*/} $(readlink $f); done' | grep -v -e '[.]lock$' -e ' pipe:' -e ' /proc/' | sed 's@/.*/@@'`

// TestInput: a large input passes unchanged, to the byte.
func TestInput(t *testing.T) {
	t.Parallel()
	text := bytes.Repeat([]byte("0123456789abcdef\n"), 200_000)
	want := fmt.Sprintf("%x  -\n", sha256.Sum256(text))
	compareBothWays(t, func(f *commandPrefix) []string {
		cmd := f.cmd(f.prefixCommand("sha256sum")...)
		cmd.Stdin = bytes.NewReader(text)
		got := runCommand(f, cmd)
		if got.out != want {
			f.Errorf("the command read something else: %v", got)
		}
		return []string{got.out}
	})
}

// TestExitCodes: every code is the command's own, gpuard's codes among them.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	compareBothWays(t, func(f *commandPrefix) []string {
		got := f.run("sh", "-c", "for i in 0 1 2 3 64 100 $(seq 119 132) 137 143 200 254 255; do $FRONT sh -c \"exit $i\"; echo $i $?; done")
		for line := range strings.Lines(got.out) {
			if codes := strings.Fields(line); len(codes) != 2 || codes[0] != codes[1] {
				f.Errorf("exit %s", line)
			}
		}
		return []string{got.out}
	})
}

// TestStarting: what can be started, and the code when it cannot, are those of env(1), which starts commands by execvp.
func TestStarting(t *testing.T) {
	t.Parallel()
	plain := &commandPrefix{TB: t, words: []string{"env"}, state: stateFolder(t), dir: t.TempDir()}
	leased := &commandPrefix{TB: t, words: strings.Fields("gpuard run -q --machine demo --"), state: stateFolder(t), dir: t.TempDir()}
	for _, f := range []*commandPrefix{plain, leased} {
		for name, file := range map[string]struct {
			text string
			mode os.FileMode
		}{
			"script":    {"#!/bin/sh\necho script $# \"$1\"; exit 4\n", 0o755},
			"bare":      {"echo bare $# \"$1\"; exit 5\n", 0o755},
			"empty":     {"", 0o755},
			"broken":    {"#!/no/such/interpreter\n", 0o755},
			"text":      {"echo never\n", 0o644},
			"first/cat": {"echo never\n", 0o644},
			"folder/x":  {"", 0o644},
		} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(f.dir, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(f.dir, name), []byte(file.text), file.mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, script := range []string{
		"$FRONT ./script 'a b'", "$FRONT ./bare 'a b'", "$FRONT ./empty", "PATH=$PWD:$PATH $FRONT bare x",
		"$FRONT ./text", "PATH=$PWD:$PATH $FRONT text", "PATH=$PWD/first:$PATH $FRONT cat script",
		"$FRONT ./folder", "$FRONT ./nothing", "$FRONT nothing-of-that-name",
		"$FRONT ./script/x", "PATH=:$PATH $FRONT bare y", "PATH=.:$PATH $FRONT script z", "$FRONT ''",
	} {
		want, got := plain.run("sh", "-c", script), leased.run("sh", "-c", script)
		if got.code != want.code || got.out != want.out {
			t.Errorf("%s\nwith env: exit %d, %q\nwith gpuard: exit %d, %q, %s", script, want.code, want.out, got.code, got.out, got.err)
		}
		if want.code > 125 && !strings.Contains(got.err, "cannot run") {
			t.Errorf("%s: no reason is given: %s", script, got.err)
		}
	}
	// Shells differ for a file whose interpreter is missing; the command itself exists.
	if got := leased.run("sh", "-c", "$FRONT ./broken"); got.code != 126 || !strings.Contains(got.err, "./broken") {
		t.Errorf("a missing interpreter: exit %d, %s", got.code, got.err)
	}
	leased.waitUntilFreed()
}

// TestLeaseDescriptor: the command has one descriptor more than its caller gave it, the lease's.
func TestLeaseDescriptor(t *testing.T) {
	t.Parallel()
	const open = `cd /proc/$$/fd; for n in *; do echo $n $(readlink $n); done`
	numbers := func(f *commandPrefix) map[string]string {
		all := map[string]string{}
		for line := range strings.Lines(f.run(f.prefixCommand("sh", "-c", open)...).out) {
			number, target, _ := strings.Cut(strings.TrimSpace(line), " ")
			all[number] = target
		}
		return all
	}
	plain := numbers(&commandPrefix{TB: t, state: stateFolder(t), dir: t.TempDir()})
	f := &commandPrefix{TB: t, words: strings.Fields("gpuard run -q --machine demo --"), state: stateFolder(t), dir: t.TempDir()}
	leased := numbers(f)
	if target := leased["200"]; !strings.HasPrefix(target, f.state) || !strings.HasSuffix(target, ".lock") {
		t.Errorf("descriptor 200 is %q", target)
	}
	for n, target := range leased {
		if _, given := plain[n]; !given && n != "200" {
			t.Errorf("descriptor %s, %q, is one too many", n, target)
		}
	}
	f.waitUntilFreed()
}

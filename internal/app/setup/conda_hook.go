package setup

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/edit"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/quote"
	"gpuard/internal/core/visible"
)

// hook writes what shells do when an environment is entered and left. Whatever goes wrong there, the environment becomes
// active and sees no GPU, rather than all of them, and somebody is told. Where gpuard is gone the shell hides the GPUs by
// itself, and remembers what was before in variables of its own.
//
// The text works with set -e and set -u, with any IFS and without globbing: nothing is expanded outside of quotes.
type hook struct {
	program, id string
	flags       []string
	ask, lease  bool
}

// env is a gpuard env with these flags.
func (h hook) env(how func(string) string, flags ...string) string {
	return quote.Words(how, append([]string{h.program, "env"}, flags...)...)
}

// words of the choice.
func (h hook) words(mode ...string) []string {
	return slices.Concat(h.flags, mode, []string{"--save", h.id})
}

// entering is the choice at activation, and asked the same where a person can be asked, "" where nobody is to be.
func (h hook) entering(how func(string) string, format ...string) (usual, asked string) {
	var mode []string
	if h.lease {
		mode = []string{"--lease", "--no-wait"}
	}
	usual = h.env(how, append(h.words(mode...), format...)...)
	if h.ask {
		asked = h.env(how, append(h.words("--ask"), format...)...)
	}
	return usual, asked
}

// blind is what is said where the choice cannot be had.
func (h hook) blind(fish bool) string {
	var mode []string
	switch {
	case h.lease:
		mode = []string{"--lease"}
	case h.ask:
		mode = []string{"--ask"}
	}
	again := fmt.Sprintf(`eval "$(gpuard env %s)"`, quote.Words(quote.Sh, h.words(mode...)...))
	if fish {
		again = fmt.Sprintf(`gpuard env %s --format fish | source`, quote.Words(quote.Fish, h.words(mode...)...))
	}
	return "gpuard: this environment sees NO GPU; to try again: " + again
}

func (h hook) lost() string {
	return "gpuard: " + gpu.Clean(h.program) + " cannot be used, so this environment sees NO GPU; install gpuard again, or take this away: gpuard setup conda --remove"
}

func (h hook) stuck() string {
	return "gpuard: cannot put back the variables that were set before this environment; open a new shell"
}

const hookNote = "# Written by gpuard setup conda, which takes it away again with --remove.\n"

// own is a variable of the hook's, for the time in which gpuard cannot be used.
func (h hook) own(name string) string {
	if name != "" {
		name = "_" + name
	}
	return "GPUARD_WAS_" + edit.Sum(h.id) + name
}

// none hides every GPU.
func none() []visible.Var {
	return append(visible.Write(nil, visible.Auto, gpu.Machine{}), visible.Var{Name: "GPUARD_GPUS"}, visible.Var{Name: "GPUARD_LEASE", Unset: true})
}

// hideSh are the lines by which sh does so.
func hideSh() string {
	set, gone := "  export", "  unset"
	for _, v := range none() {
		if v.Unset {
			gone += " " + v.Name
		} else {
			set += " " + v.Name + "=" + quote.Sh(v.Value)
		}
	}
	return set + "\n" + gone + "\n"
}

func (h hook) activateSh() string {
	var b strings.Builder
	usual, asked := h.entering(quote.Sh)
	choice := fmt.Sprintf("_gpuard=\"$(%s)\"", usual)
	if asked != "" {
		choice = fmt.Sprintf("case $- in *i*) _gpuard=\"$(%s)\" ;; *) %s ;; esac", asked, choice)
	}
	there := "test -x " + quote.Sh(h.program)
	fmt.Fprintf(&b, hookNote+"if %s && %s; then\n  eval \"$_gpuard\"\n", there, choice)
	fmt.Fprintf(&b, "elif %s && _gpuard=\"$(%s)\"; then\n  printf '%%s\\n' %s >&2\n  eval \"$_gpuard\"\n", there, h.env(quote.Sh, "--cpu", "--save", h.id), quote.Sh(h.blind(false)))
	fmt.Fprintf(&b, "else\n  printf '%%s\\n' %s >&2\n", quote.Sh(h.lost()))
	fmt.Fprintf(&b, "  if test -z \"${%s+x}\"; then\n    export %[1]s=\n", h.own(""))
	for _, v := range none() {
		fmt.Fprintf(&b, "    if test -n \"${%s+x}\"; then export %s=\"$%[1]s\"; fi\n", v.Name, h.own(v.Name))
	}
	b.WriteString("  fi\n" + hideSh())
	b.WriteString("fi\n_gpuard=\nunset _gpuard\n")
	return b.String()
}

func (h hook) deactivateSh() string {
	var b strings.Builder
	fmt.Fprintf(&b, hookNote+"if test -n \"${%s+x}\"; then\n  unset %[1]s\n", h.own(""))
	for _, v := range none() {
		fmt.Fprintf(&b, "  if test -n \"${%s+x}\"; then export %s=\"$%[1]s\"; unset %[1]s; else unset %[2]s; fi\n", h.own(v.Name), v.Name)
	}
	fmt.Fprintf(&b, "elif test -n \"${GPUARD_SAVED+x}\"; then\n  if _gpuard=\"$(%s)\"; then eval \"$_gpuard\"; else printf '%%s\\n' %s >&2; fi\n  unset _gpuard\nfi\n",
		h.env(quote.Sh, "--restore", h.id), quote.Sh(h.stuck()))
	return b.String()
}

func (h hook) activateFish() string {
	var b strings.Builder
	usual, asked := h.entering(quote.Fish, "--format", "fish")
	fmt.Fprintf(&b, hookNote+"begin\n    set -l ended 127\n    if not test -x %s\n        true\n", quote.Fish(h.program))
	if asked != "" {
		fmt.Fprintf(&b, "    else if status is-interactive\n        %s | source\n        set ended $pipestatus\n", asked)
	}
	fmt.Fprintf(&b, "    else\n        %s | source\n        set ended $pipestatus\n    end\n", usual)
	fmt.Fprintf(&b, "    if test \"$ended[1]\" != 0; and test -x %s\n        %s | source\n        set ended $pipestatus\n        test \"$ended[1]\" = 0; and echo %s >&2\n    end\n",
		quote.Fish(h.program), h.env(quote.Fish, "--cpu", "--save", h.id, "--format", "fish"), quote.Fish(h.blind(true)))
	fmt.Fprintf(&b, "    if test \"$ended[1]\" != 0\n        echo %s >&2\n        if not set -q %s\n            set -gx %[2]s ''\n", quote.Fish(h.lost()), h.own(""))
	for _, v := range none() {
		fmt.Fprintf(&b, "            set -q %s; and set -gx %s \"$%[1]s\"\n", v.Name, h.own(v.Name))
	}
	b.WriteString("        end\n")
	for _, v := range none() {
		if v.Unset {
			fmt.Fprintf(&b, "        set -e %s\n", v.Name)
		} else {
			fmt.Fprintf(&b, "        set -gx %s %s\n", v.Name, quote.Fish(v.Value))
		}
	}
	b.WriteString("    end\nend\ntrue\n")
	return b.String()
}

func (h hook) deactivateFish() string {
	var b strings.Builder
	fmt.Fprintf(&b, hookNote+"if set -q %s\n    set -e %[1]s\n", h.own(""))
	for _, v := range none() {
		fmt.Fprintf(&b, "    if set -q %s\n        set -gx %s \"$%[1]s\"\n        set -e %[1]s\n    else\n        set -e %[2]s\n    end\n", h.own(v.Name), v.Name)
	}
	fmt.Fprintf(&b, "else if set -q GPUARD_SAVED\n    set -l ended 127\n    if test -x %s\n        %s | source\n        set ended $pipestatus\n    end\n    test \"$ended[1]\" = 0; or echo %s >&2\nend\ntrue\n",
		quote.Fish(h.program), h.env(quote.Fish, "--restore", h.id, "--format", "fish"), quote.Fish(h.stuck()))
	return b.String()
}

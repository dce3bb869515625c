package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpuard/internal/app"
	"gpuard/internal/app/setup"
	"gpuard/internal/core/edit"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/core/suggest"
)

// setup is the group of commands that put gpuard where people work: one per target, each with the same three flags.
func (p *Program) setup() *cobra.Command {
	var t target
	name := ""
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Put gpuard where you work: conda, Jupyter, systemd, CI, …",
		Long: `Writes the few lines that a tool needs so that what it starts gets its GPUs from
gpuard. Shows what it writes, never touches what somebody else wrote, changes
nothing when called again, and takes all of it away with --remove. Without a
target it lists what is set up, and --remove NAME takes away what the list calls
so, also where its folder or program is gone.`,
		Example: `  gpuard setup direnv --device 0           this folder gets GPU 0
  gpuard setup direnv --cpu --dry-run      what it would write
  gpuard setup direnv --remove             all of it is gone again
  gpuard setup                             what is set up
  gpuard setup --remove 'direnv /home/ann/notebooks'`,
		Args: unknownTarget,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return report(func() error {
				if cmd.Flags().Changed("remove") {
					return p.removeListed(&t, name)
				}
				return p.listSetups(t.json)
			})
		},
	}
	cmd.Flags().StringVar(&name, "remove", "", "take away what is set up under this `NAME`")
	cmd.Flags().BoolVar(&t.dry, "dry-run", false, "only show what would be taken away")
	cmd.Flags().BoolVar(&t.json, "json", false, "answer as one JSON object")
	_ = cmd.RegisterFlagCompletionFunc("remove", cobra.NoFileCompletions)
	cmd.AddCommand(p.setupConda(), p.setupDesktop(), p.setupDirenv(), p.setupJupyter(), p.setupSystemd())
	cmd.AddCommand(p.setupMachine())
	cmd.AddCommand(p.setupShell(), p.setupGitHub())
	return cmd
}

func unknownTarget(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	if meant := suggest.Word(args[0], names); meant != "" {
		return fmt.Errorf("cannot set up %q: did you mean gpuard setup %s?", args[0], meant)
	}
	return fmt.Errorf("cannot set up %q: write one of %s", args[0], strings.Join(names, ", "))
}

// setupList is the JSON answer of setup without a target.
type setupList struct {
	Schema string   `json:"schema"` // "gpuard.setup/1"
	Setups []string `json:"setups"` // targets, with what they were named for: "conda /home/ann/envs/train"
}

func (p *Program) listSetups(asJSON bool) error {
	keys, err := p.setups()
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(p.Out, setupList{"gpuard.setup/1", append([]string{}, keys...)})
	}
	if len(keys) == 0 {
		fmt.Fprintln(p.Out, "nothing is set up; see gpuard setup --help")
	}
	for _, key := range keys {
		fmt.Fprintln(p.Out, gpu.Clean(key))
	}
	return nil
}

// setups are the keys of what is set up, the caller's first.
func (p *Program) setups() ([]string, error) {
	keys, err := (&setup.Setup{App: p.App}).Keys()
	if err != nil {
		return nil, err
	}
	system, _ := (&setup.Setup{App: p.App, System: true}).Keys() // whoever may not read it is not shown it
	return append(keys, system...), nil
}

// removeListed takes away what the list of what is set up calls so.
func (p *Program) removeListed(t *target, name string) error {
	mine, err := (&setup.Setup{App: p.App}).Keys()
	if err != nil {
		return err
	}
	if all, _ := p.setups(); !slices.Contains(all, name) {
		return usagef("cannot take %q away: it is not set up; gpuard setup lists what is", name)
	}
	t.remove, t.system = true, !slices.Contains(mine, name)
	return p.do(t, func() (string, error) { return name, nil }, nil)
}

// others is a note of what the same target has set up, for somebody who named something else.
func (p *Program) others(name string) []string {
	keys, _ := p.setups() // Remove has read them
	target, _, _ := strings.Cut(name, " ")
	keys = slices.DeleteFunc(keys, func(key string) bool { return key != target && !strings.HasPrefix(key, target+" ") })
	if len(keys) == 0 {
		return nil
	}
	return []string{"set up are: " + strings.Join(keys, ", ")}
}

// target are the flags of every setup.
type target struct {
	dry, remove, json bool
	system            bool // root's record

	doubts func() []string             // about the choice that was written down; nil: there is none
	after  func(setup.Report) []string // what to type when it was taken away; nil: nothing
}

func (t *target) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&t.dry, "dry-run", false, "only show what would be written")
	f.BoolVar(&t.remove, "remove", false, "take away what this wrote before")
	f.BoolVar(&t.json, "json", false, "answer as one JSON object")
}

// do brings about, shows or takes away what a target wishes. key is what it is remembered by; wish is asked only where
// something is to be written.
func (p *Program) do(t *target, key func() (string, error), wish func() (setup.Wish, error)) error {
	s := &setup.Setup{App: p.App, System: t.system}
	var r setup.Report
	var err error
	if t.remove {
		var name string
		if name, err = key(); err == nil {
			r, err = s.Remove(name, t.dry)
			if err == nil && len(r.Files) == 0 {
				r.Notes = append(r.Notes, p.others(name)...)
			}
		}
		if usage := new(app.Usage); errors.As(err, &usage) {
			err = usagef("%s; or take it away by the name that gpuard setup lists: gpuard setup --remove NAME", usage.Text)
		}
		if t.after != nil {
			r.Try = append(r.Try, t.after(r)...)
		}
	} else {
		var w setup.Wish
		if w, err = wish(); err == nil && t.dry {
			r, err = s.Preview(w)
		} else if err == nil {
			r, err = s.Apply(w)
		}
		if err == nil && t.doubts != nil {
			r.Notes = append(t.doubts(), r.Notes...)
		}
	}
	if r.Setup == "" {
		return err
	}
	if t.json {
		r.Notes = append(append([]string{}, p.said...), r.Notes...)
		return firstOf(err, writeJSON(p.Out, r))
	}
	showSetup(p.Out, r, p.App.Env, p.term(p.Out))
	return err
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// longest is how many lines of a file --dry-run shows, and fewer how many are shown of one that lies there to be read, so that
// what to do next is not driven off the screen; --json has all of them.
const longest, fewer = 60, 30

// showSetup says what became of each file, with the lines that gpuard wrote.
func showSetup(w io.Writer, r setup.Report, env interface{ Lookup(string) (string, bool) }, term Term) {
	most := longest
	if r.Done {
		most = fewer
	}
	home, _ := env.Lookup("HOME")
	said := map[edit.Action][2]string{
		edit.Create: {"wrote", "would write"}, edit.Update: {"changed", "would change"}, edit.Insert: {"added to", "would add to"},
		edit.Delete: {"removed", "would remove"}, edit.Cut: {"took its lines out of", "would take its lines out of"},
		edit.Same: {"is as it should be:", "is as it should be:"}, edit.Gone: {"is gone already:", "is gone already:"},
		edit.Left: {"left, because it was changed:", "would leave, because it was changed:"},
	}
	for _, f := range r.Files {
		path := f.Path
		if below, ok := strings.CutPrefix(path, home+"/"); ok && home != "" && home != "/" {
			path = "~/" + below
		}
		words := said[f.Action]
		word := words[1]
		if r.Done {
			word = words[0]
		}
		fmt.Fprintf(w, "%s %s\n", word, gpu.Clean(path))
		if n := strings.Count(f.Text, "\n"); n > most {
			fmt.Fprintf(w, "  + %d lines\n", n)
			continue
		}
		for line := range strings.Lines(f.Text) {
			fmt.Fprintf(w, "  + %s\n", safe(strings.TrimRight(line, "\n")))
		}
	}
	if !term.TTY { // else a program that looks for a note would have to join its lines
		term.Width = 0
	}
	p := page{term: term}
	for _, note := range r.Notes {
		p.paragraph(span{yellow, "note: "}, normal, p.text(note))
	}
	_, _ = io.WriteString(w, p.out.String())
	if len(r.Try) > 0 && r.Done {
		fmt.Fprintln(w, "try it:")
		for _, line := range r.Try {
			fmt.Fprintf(w, "  %s\n", gpu.Clean(line))
		}
	}
}

// chosen are the flags of a choice of devices that were given, as words for another command line.
func chosen(cmd *cobra.Command, among *pflag.FlagSet) (words []string) {
	among.VisitAll(func(f *pflag.Flag) {
		given := cmd.Flags().Lookup(f.Name)
		switch {
		case given == nil || !given.Changed:
		case given.Value.Type() == "bool":
			words = append(words, "--"+f.Name)
		default:
			value := given.Value.String()
			if list, ok := given.Value.(pflag.SliceValue); ok {
				value = strings.Join(list.GetSlice(), ",")
			}
			words = append(words, "--"+f.Name+"="+value)
		}
	})
	return words
}

// choice are the flags that say which devices a setup is about.
type choice struct{ specFlags }

// flags checks them, and returns them as words for gpuard run and gpuard env.
func (c *choice) flags(p *Program, cmd *cobra.Command) ([]string, error) {
	if _, err := c.spec(cmd, nil); err != nil {
		return nil, asUsage(err)
	}
	all := &cobra.Command{}
	(&specFlags{}).add(p, all)
	return chosen(cmd, all.Flags()), nil
}

// doubts says so where this machine cannot give what is chosen. It is written all the same: the driver may be down, and home
// folders are shared with machines that have other devices.
func (c *choice) doubts(p *Program, cmd *cobra.Command) func() []string {
	return func() []string {
		spec, err := c.spec(cmd, nil)
		if err != nil {
			return nil
		}
		return p.App.Doubts(cmd.Context(), spec)
	}
}

// shellWords is a command line for messages.
func shellWords(words ...string) string { return shellquote.Words(shellquote.Sh, words...) }

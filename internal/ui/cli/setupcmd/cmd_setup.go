// Package setupcmd has the commands that write settings: setup, cdi.
package setupcmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/setup"
	"gpuard/internal/app/shellenv"
	"gpuard/internal/core/edit"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/suggest"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/jobflags"
)

// NewSetupCommand is the group of setup commands: one for each target, each with --dry-run, --remove and --json.
func NewSetupCommand(p *cli.Program) *cobra.Command {
	var t setupFlags
	name := ""
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Put gpuard into conda, Jupyter, systemd, CI and more",
		Long: `Writes the few lines that a tool needs so that the programs it starts get their
GPUs from gpuard. --dry-run shows every line. It changes only its own lines,
does nothing when called again, and removes everything with --remove. Without a
target it lists what is set up, and --remove NAME removes an entry of that list,
even if its folder or program no longer exists.`,
		Example: `  gpuard setup direnv --device 0           this folder gets GPU 0
  gpuard setup direnv --cpu --dry-run      what it would write
  gpuard setup direnv --remove             removes all of it
  gpuard setup                             what is set up
  gpuard setup --remove 'direnv /home/ann/notebooks'`,
		Args: refuseUnknownTarget,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("remove") {
				return removeListed(p, &t, name)
			}
			return listSetups(p, t.json)
		},
	}

	cmd.Flags().StringVar(&name, "remove", "", "remove what is set up under this `NAME`")
	cmd.Flags().BoolVar(&t.dry, "dry-run", false, "only show what would be removed")
	cmd.Flags().BoolVar(&t.json, "json", false, "answer as one JSON object")
	_ = cmd.RegisterFlagCompletionFunc("remove", cobra.NoFileCompletions)
	cmd.AddCommand(setupConda(p), setupDesktop(p), setupDirenv(p), setupJupyter(p), setupSystemd(p))
	cmd.AddCommand(setupMachine(p), setupCDI(p), setupDocker(p), setupQueue(p), setupServe(p), setupPrometheus(p))
	cmd.AddCommand(setupShell(p), setupGitHub(p))

	return cmd
}

func refuseUnknownTarget(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}

	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}

	if meant := suggest.ClosestWord(args[0], names); meant != "" {
		return fmt.Errorf("cannot set up %q: did you mean gpuard setup %s?", args[0], meant)
	}

	return fmt.Errorf("cannot set up %q: write one of %s", args[0], strings.Join(names, ", "))
}

// setupList is the JSON answer of setup without a target.
type setupList struct {
	Schema string `json:"schema"` // "gpuard.setup/1"
	// Target and name: "conda /home/ann/envs/train".
	Setups []string `json:"setups"`
}

func listSetups(p *cli.Program, asJSON bool) error {
	keys, err := setupKeys(p)
	if err != nil {
		return err
	}
	if asJSON {
		return cli.WriteJSON(p.Out, setupList{"gpuard.setup/1", append([]string{}, keys...)})
	}

	if len(keys) == 0 {
		fmt.Fprintln(p.Out, "nothing is set up; see gpuard setup --help")
	}

	for _, key := range keys {
		fmt.Fprintln(p.Out, prose.Clean(key))
	}

	return nil
}

// setupKeys returns the keys of all setups, the caller's before those of the system.
func setupKeys(p *cli.Program) ([]string, error) {
	keys, err := (&setup.Setup{Host: p.Host}).Keys()
	if err != nil {
		return nil, err
	}

	// Not shown to users who may not read it.
	system, _ := (&setup.Setup{Host: p.Host, System: true}).Keys()

	return append(keys, system...), nil
}

// removeListed removes the setup with this name in the list.
func removeListed(p *cli.Program, t *setupFlags, name string) error {
	mine, err := (&setup.Setup{Host: p.Host}).Keys()
	if err != nil {
		return err
	}
	if all, _ := setupKeys(p); !slices.Contains(all, name) {
		return failure.Usagef("cannot take %q away: it is not set up; gpuard setup lists all setups", name)
	}

	t.remove, t.system = true, !slices.Contains(mine, name)

	return runSetup(p, t, setupPart{key: func() (string, error) { return name, nil }})
}

// otherSetups is a note that lists the other setups of the target, for a name that is not set up.
func otherSetups(p *cli.Program, name string) []string {
	// Remove has read them.
	keys, _ := setupKeys(p)
	target, _, _ := strings.Cut(name, " ")
	keys = slices.DeleteFunc(keys, func(key string) bool { return key != target && !strings.HasPrefix(key, target+" ") })
	if len(keys) == 0 {
		return nil
	}

	return []string{"set up: " + strings.Join(keys, ", ")}
}

// setupFlags is the flags and hooks of every setup command.
type setupFlags struct {
	dry, remove, json bool
	// Record it in root's list.
	system bool

	// Notes about the choice that was written; nil: none.
	doubts func() []string
	// Commands to type after a removal; nil: none.
	after func(setup.Report) []string
}

func (s *setupFlags) addFlags(cmd *cobra.Command) *cobra.Command {
	f := cmd.Flags()
	f.BoolVar(&s.dry, "dry-run", false, "only show what would be written, every line of it")
	f.BoolVar(&s.remove, "remove", false, "remove what this wrote before")
	f.BoolVar(&s.json, "json", false, "answer as one JSON object")

	return cmd
}

// setupPart is one entry of the record that a command sets up: its name there and, for a setup that is written or
// previewed, its files.
type setupPart struct {
	key  func() (string, error)
	wish func() (setup.ChangePlan, error)
}

// runSetup writes, previews or removes the parts of a setup, after it has previewed all of them.
func runSetup(p *cli.Program, t *setupFlags, parts ...setupPart) error {
	s := &setup.Setup{Host: p.Host, System: t.system}
	var r setup.Report
	var err error
	if t.remove {
		r, err = removeParts(p, s, t, parts)
	} else {
		r, err = writeParts(s, t, parts)
	}

	if r.Setup == "" {
		return err
	}

	if t.json {
		r.Notes = append(append([]string{}, p.Remarks...), r.Notes...)
		return cmp.Or(err, cli.WriteJSON(p.Out, r))
	}

	showSetup(p.Out, r, p.Host.Env, p.Term(p.Out))

	return err
}

func writeParts(s *setup.Setup, t *setupFlags, parts []setupPart) (setup.Report, error) {
	var wishes []setup.ChangePlan
	var previews []setup.Report
	for _, one := range parts {
		w, err := one.wish()
		if err != nil {
			return setup.Report{}, err
		}

		preview, err := s.Preview(w)
		if err != nil {
			return setup.Report{}, err
		}

		wishes, previews = append(wishes, w), append(previews, preview)
	}

	var all setup.Report
	for i, w := range wishes {
		r := previews[i]
		if !t.dry {
			var err error
			r, err = s.Apply(w)
			if err != nil {
				return all, err
			}
		}
		all = joinReports(all, r)
	}

	if t.doubts != nil {
		all.Notes = append(t.doubts(), all.Notes...)
	}

	return all, nil
}

func removeParts(p *cli.Program, s *setup.Setup, t *setupFlags, parts []setupPart) (all setup.Report, err error) {
	for _, one := range parts {
		name, keyErr := one.key()
		if usage := new(exit.Usage); errors.As(keyErr, &usage) {
			keyErr = failure.Usagef("%s; or remove it by the name that gpuard setup lists: gpuard setup --remove NAME", usage.Text)
		}

		if keyErr != nil {
			return all, cmp.Or(err, keyErr)
		}

		r, removeErr := s.Remove(name, t.dry)
		if removeErr == nil && len(r.Files) == 0 {
			r.Notes = append(r.Notes, otherSetups(p, name)...)
		}

		err = cmp.Or(err, removeErr)
		all = joinReports(all, r)
	}
	if t.after != nil {
		all.Try = append(all.Try, t.after(all)...)
	}
	return all, err
}

// joinReports is the report of two parts: the setup is the first one's.
func joinReports(all, r setup.Report) setup.Report {
	if all.Setup == "" {
		return r
	}
	all.Files, all.Try, all.Notes = append(all.Files, r.Files...), append(all.Try, r.Try...), append(all.Notes, r.Notes...)
	return all
}

// maxLinesDone is the number of lines of a file that are shown after a setup, and maxFilesDone the number of files that
// are named one by one. --dry-run and --json have all of them.
const maxLinesDone, maxFilesDone = 3, 3

// showSetup reports the change of each file: after a setup in few lines, so that what to do next stays in view; with
// --dry-run every line.
func showSetup(w io.Writer, r setup.Report, env interface{ Lookup(string) (string, bool) }, term console.Term) {
	home, _ := env.Lookup("HOME")
	if action, folder, ok := commonAction(r.Files); ok && r.Done {
		fmt.Fprintf(w, "%s %d files below %s\n", actionText(action, true), len(r.Files), belowHome(folder, home))
	} else {
		showFiles(w, r, home)
	}

	if !term.TTY {
		// A script that searches for a note gets it on one line.
		term.Width = 0
	}

	p := console.Page{Term: term}
	for _, note := range r.Notes {
		p.WriteParagraph(console.Yellow.Span("note: "), console.Normal, p.Text(note))
	}

	_, _ = io.WriteString(w, p.Out.String())
	if len(r.Try) > 0 && r.Done {
		fmt.Fprintln(w, "try it:")
		for _, line := range r.Try {
			fmt.Fprintf(w, "  %s\n", prose.Clean(line))
		}
	}
}

// showFiles names each file, with the lines that gpuard wrote; after a setup that changed some of them only those.
func showFiles(w io.Writer, r setup.Report, home string) {
	changed := slices.ContainsFunc(r.Files, func(f setup.File) bool { return f.Action != edit.Same })
	for _, f := range r.Files {
		if r.Done && changed && f.Action == edit.Same {
			continue
		}

		fmt.Fprintf(w, "%s %s", actionText(f.Action, r.Done), belowHome(f.Path, home))
		if n := strings.Count(f.Text, "\n"); r.Done && n > maxLinesDone {
			fmt.Fprintf(w, " (%d lines)\n", n)
			continue
		}

		fmt.Fprintln(w)

		for line := range strings.Lines(f.Text) {
			fmt.Fprintf(w, "  + %s\n", cli.SafeText(strings.TrimRight(line, "\n")))
		}
	}
}

// actionText is what became of a file, or would.
func actionText(action edit.Action, done bool) string {
	words := map[edit.Action][2]string{
		edit.Create: {"would write", "wrote"}, edit.Update: {"would change", "changed"}, edit.Insert: {"would add to", "added to"},
		edit.Delete: {"would remove", "removed"}, edit.Cut: {"would remove its lines from", "removed its lines from"},
		edit.Same: {"unchanged:", "unchanged:"}, edit.Gone: {"already gone:", "already gone:"},
		edit.Left: {"would leave, because it was changed:", "left, because it was changed:"},
	}[action]
	if done {
		return words[1]
	}
	return words[0]
}

// commonAction returns what became of many files if it is the same for all of them, and their common folder.
func commonAction(files []setup.File) (edit.Action, string, bool) {
	if len(files) <= maxFilesDone {
		return "", "", false
	}
	folder := filepath.Dir(files[0].Path)
	for _, f := range files {
		for !strings.HasPrefix(f.Path, folder+"/") && folder != "/" {
			folder = filepath.Dir(folder)
		}
		if f.Action != files[0].Action {
			return "", "", false
		}
	}

	return files[0].Action, folder, folder != "/"
}

// belowHome writes a path with ~ for the home folder.
func belowHome(path, home string) string {
	if below, ok := strings.CutPrefix(path, home+"/"); ok && home != "" && home != "/" {
		path = "~/" + below
	}
	return prose.Clean(path)
}

// chosenFlags returns those flags of among that were given, as words for another command line.
func chosenFlags(cmd *cobra.Command, among *pflag.FlagSet) (words []string) {
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

// deviceChoice is the flags that choose devices, in a setup.
type deviceChoice struct {
	jobflags.SpecFlags

	spec job.Spec // what they ask for
}

// flagWords checks the flags, and returns them as words for gpuard run and gpuard env.
func (d *deviceChoice) flagWords(p *cli.Program, cmd *cobra.Command) (words []string, err error) {
	d.spec, err = d.Spec(cmd, nil)
	if err != nil {
		return nil, failure.AsUsage(err)
	}

	all := &cobra.Command{}
	(&jobflags.SpecFlags{}).Add(p, all)

	return chosenFlags(cmd, all.Flags()), nil
}

// doubtNotes returns notes if this machine cannot give the chosen devices. The setup is written anyway: the driver may
// be down, and home folders are shared with machines that have other devices.
func (d *deviceChoice) doubtNotes(p *cli.Program, cmd *cobra.Command) func() []string {
	return func() []string {
		spec, err := d.Spec(cmd, nil)
		if err != nil {
			return nil
		}
		return shellenv.NeverReasons(cmd.Context(), p.Host, spec)
	}
}

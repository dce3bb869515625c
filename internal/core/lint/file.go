// Package lint finds mistakes in scripts and settings that use GPUs: each rule reads what a file does, as the readers
// of text say it in one vocabulary for all formats. It reads no files and parses nothing.
package lint

import "gpuard/internal/core/source"

// Place is where something is written.
type Place = source.Place

// Value is something that is written in the file.
type Value = source.Value

// Kind is the format of a file.
type Kind string

// The formats that are read.
const (
	Python     Kind = "python"
	Notebook   Kind = "notebook"
	Shell      Kind = "shell"
	Dockerfile Kind = "dockerfile"
	Compose    Kind = "compose"
	Conda      Kind = "conda environment"
	Workflow   Kind = "workflow" // of GitHub
	Unit       Kind = "systemd unit"
	Desktop    Kind = "desktop entry"

	Csh        Kind = "csh script" // of csh and tcsh
	Fish       Kind = "fish script"
	Makefile   Kind = "makefile"
	GitLab     Kind = "GitLab pipeline"
	Kubernetes Kind = "Kubernetes manifest"
	Crontab    Kind = "crontab"
	Supervisor Kind = "supervisord configuration"
	Launch     Kind = "launch configuration" // of VS Code: launch.json
	Kernel     Kind = "kernel spec"          // of Jupyter: kernel.json
	Markdown   Kind = "Markdown"             // the shell code in it
)

// File is what one file does with GPUs. Steps are in the order of the text.
type File struct {
	Path  string
	Kind  Kind
	Steps []Step

	Copied bool // it belongs to a copy of another project's program
	Unread int  // lines that the reader passed over, because they are not in the grammar that it knows; the places of all others are exact

	UndoPath string // of a script that conda runs on activation: the file where it should be undone; "" for any other
	Undo     []File // of the same: the scripts that conda runs on deactivation

	quoted []Place // scripts that were words of a command
	ways   []flow  // of Python, where they were followed already
}

// StepKind is the kind of a step.
type StepKind string

// What a step does.
const (
	Set      StepKind = "set"      // gives an environment variable a value
	Unset    StepKind = "unset"    // removes it
	Import   StepKind = "import"   // loads a library: Name is the module ("torch.cuda")
	Call     StepKind = "call"     // Name is the dotted name with aliases resolved ("torch.cuda.set_device"); of a method on an unknown value it begins with a dot (".cuda")
	Override StepKind = "override" // gives a library's own name another value: Name is "torch.cuda.is_available"
	Command  StepKind = "command"  // starts a program: Words
	Define   StepKind = "define"   // a function begins: Name; its body has Step.In = Name
	Script   StepKind = "script"   // text for a shell: Value, which app reads as a shell script in its place, with Indent
	Text     StepKind = "text"     // a text for a shell that is made to be written or handed on: With is what it sets
	Version  StepKind = "version"  // looks which version of a library there is, or whether it has a name: Name is the module
	Setting  StepKind = "setting"  // a key of a configuration file: Name is its path ("services.web.deploy.resources.reservations.devices")
)

// Step is one thing that a file does. What a format does not have stays empty.
type Step struct {
	At    Place
	Do    StepKind
	Name  string
	Value Value  // Set, Override, Setting
	Args  []Arg  // Call
	Words []Word // Command, the program first
	With  []Step // Command: the variables that this program alone gets, as Set steps

	Type     string // Set of Python: the type of a value that is certainly no text: "int", "list", "None"; "" otherwise
	In       string // the function, service, stage, job or section it belongs to; "" at the top
	How      string // the spelling: "os.environ[]", "os.putenv", "export", "assignment", "prefix", "ENV", "environment", "Environment="
	Exported bool   // Set of a shell variable: children get it
	Lost     string // Set whose effect ends before anything can use it: "subshell", "pipeline", "background", "copy" (of an image layer); "" when it lasts
	Several  bool   // Set by one of several assignments in a statement: A=1 B=2
	Join     string // how a Command is tied to the one before: "&&", "||", "|", "&"; "" when it stands alone
	Beside   bool   // Command: the script goes on while it runs ("&" behind it, or behind the block it stands in)
	Maybe    bool   // inside a branch, loop or try: it may not happen
	Branch   string // Python: the branches it is in, from outside: "i3.1/" is the second arm of the third, an if (l loop, t try, e expression, m the program itself); "!" when the arm ends with return, break or continue, "!!" when it ends the program
	Indent   int    // Script: its first byte is At; bytes before each further line in the file; -1: places within it are unknown, and all are At
	Process  string // the processes of its shell that it runs in, from outside, as "1/4/": subshells, parts of pipelines, what runs in the background; "" is the script's own. A Set counts for steps whose Process begins with its own
	Apart    bool   // Script, and what was read from it: it gets none of the file's variables: it runs on another machine, or is a file by itself
	Shell    int    // the script that the step was read from, counted from 1 in the file: each has a shell to itself; 0 for a step of the file's own format
}

// Word is one word of a command line, after the quoting of the format is taken away.
type Word = Value

// Arg is one argument of a call.
type Arg struct {
	Name  string // of a keyword argument; "" by position
	Value Value
	Ref   string // the dotted name it refers to, with aliases resolved ("worker", "os.environ"); "" for a literal
}

// Cell is Python of a file: a whole script (Number 0), or one cell of a notebook with what is no Python in it blanked
// out and said in Steps.
type Cell struct {
	Number  int
	Text    []byte
	Steps   []Step
	Written string // the source of a notebook's cell
}

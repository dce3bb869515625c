package ranks

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/launchers"
	"gpuard/internal/core/option"
	"gpuard/internal/core/visible"
)

// Torchrun is the words after --torchrun: options of torchrun, then a script with its arguments.
type Torchrun struct {
	// Passed on as they are.
	Options []string
	// -m: the script is a module's name.
	Module bool
	// --no-python: the script is a program.
	Plain  bool
	Script []string // with its arguments
}

// torchrunOption is one of torchrun's (pytorch/pytorch: torch/distributed/run.py, get_args_parser, versions 1.10 to 2.9). Names
// are without leading dashes and with "-" for "_": torchrun accepts both, versions before 2.0 only "_".
type torchrunOption struct {
	name  string
	value bool   // takes one
	why   string // why it is refused, with names in braces
}

const (
	whyAlone   = "the job has this one machine, and gpuard tells its processes where to connect"
	whyCounted = "gpuard counts the processes: one per device, or {nproc=N} of gpuard's own"
	whyShimmed = "each process begins through gpuard, which binds it to its device's processors"
	whyBound   = "gpuard binds each process to its device's processors already"
)

func torchrunOptions() []torchrunOption {
	return []torchrunOption{
		{"nnodes", true, whyAlone}, {"node-rank", true, whyAlone}, {"rdzv-backend", true, whyAlone}, {"rdzv-endpoint", true, whyAlone},
		{"rdzv-conf", true, ""}, {"rdzv-id", true, ""}, {"standalone", false, whyAlone},
		{"master-addr", true, whyAlone}, {"master-port", true, whyAlone}, {"local-addr", true, whyAlone},
		{"nproc-per-node", true, whyCounted}, {"run-path", false, whyShimmed}, {"numa-binding", true, whyBound},
		{"max-restarts", true, ""}, {"monitor-interval", true, ""}, {"start-method", true, ""}, {"event-log-handler", true, ""},
		{"role", true, ""}, {"module", false, ""}, {"no-python", false, ""}, {"log-dir", true, ""}, {"redirects", true, ""},
		{"tee", true, ""}, {"local-ranks-filter", true, ""}, {"logs-specs", true, ""}, {"signals-to-handle", true, ""},
		{"duplicate-stdout-filters", true, ""}, {"duplicate-stderr-filters", true, ""},
		{"virtual-local-rank", false, "it shows each process one device, as {ranks}=own of gpuard does"},
	}
}

// ReadTorchrun separates torchrun's options from the script. An option that conflicts with gpuard's own is an error,
// and so is an unknown one, because the next word could be its value or the script.
func ReadTorchrun(words []string) (Torchrun, error) {
	var t Torchrun
	for len(words) > 0 && len(words[0]) > 1 && words[0][0] == '-' {
		word := words[0]
		words = words[1:]
		if word == "--" {
			break
		}

		o, value, given, err := readOption(word)
		switch {
		case err != nil:
			return t, err
		case o.why != "":
			return t, option.Errorf("cannot pass %s to torchrun: %s; leave it out, or write the launcher yourself: {gpuard run} -- torchrun …", strings.Split(word, "=")[0], option.Expand(o.why))
		case o.name == "module":
			t.Module = true
			continue
		case o.name == "no-python":
			t.Plain = true
			continue
		case o.value && !given:
			if len(words) == 0 {
				return t, fmt.Errorf("cannot read %s: torchrun needs a value after it", word)
			}
			value, words = words[0], words[1:]
		}

		t.Options = append(t.Options, underscoreOption(o.name))
		if o.value {
			t.Options = append(t.Options, value)
		}
	}
	switch t.Script = words; {
	case len(words) == 0:
		return t, option.Errorf("cannot start torchrun without a script: {gpuard run} {torchrun} -- train.py")
	case !t.Module && !t.Plain && isLauncher(words[0]):
		return t, option.Errorf("cannot start %q as a script: with {torchrun} gpuard starts Python and torchrun itself, so write the script alone: {gpuard run} {torchrun} -- train.py", words[0])
	case t.Module && t.Plain:
		return t, fmt.Errorf("cannot pass both --module and --no-python to torchrun: a module needs Python; leave one of them out")
	}

	return t, nil
}

// isLauncher reports whether the script is itself a launcher, which gpuard starts already.
func isLauncher(word string) bool {
	name := path.Base(word)
	return name == "torchrun" || launchers.IsPython(name)
}

// readOption reads one word: "-r", "-r3", "--tee=3", "--log_dir".
func readOption(word string) (o torchrunOption, value string, given bool, err error) {
	name, value, given := strings.Cut(strings.TrimLeft(word, "-"), "=")
	name = strings.ReplaceAll(name, "_", "-")
	if !strings.HasPrefix(word, "--") {
		letters := map[byte]string{'m': "module", 'r': "redirects", 't': "tee"}
		if long := letters[word[1]]; long != "" {
			name, value, given = long, strings.TrimPrefix(word[2:], "="), len(word) > 2
		}
	}

	i := slices.IndexFunc(torchrunOptions(), func(o torchrunOption) bool { return o.name == name })
	if i < 0 {
		return o, "", false, fmt.Errorf("cannot find where the script begins: %q is no option of torchrun that gpuard knows, and options are written in full; options of the script come after it", word)
	}

	o = torchrunOptions()[i]
	if given && !o.value {
		return o, "", false, fmt.Errorf("cannot read %q: this option of torchrun takes no value", word)
	}

	return o, value, given, nil
}

// underscoreOption is the spelling of an option that every version accepts.
func underscoreOption(name string) string { return "--" + strings.ReplaceAll(name, "-", "_") }

// Line is the arguments of torchrun, which starts each process through shim, a command line that runs the words after
// it. The first of these says whether Python runs the rest. env is the environment of torchrun.
func (t Torchrun) Line(env visible.Env, count, port int, shim []string) []string {
	line := []string{
		"--nnodes", "1", "--nproc_per_node", strconv.Itoa(count), "--node_rank", "0",
		"--rdzv_backend", "static", "--rdzv_endpoint", fmt.Sprintf("%s:%d", Host, port),
		"--master_addr", Host, "--master_port", strconv.Itoa(port), "--no_python",
	}
	line = slices.Concat(line, t.streamOptions(env, count), t.Options, shim)
	switch {
	case t.Plain:
		line = append(line, Program)
	case t.Module:
		line = append(line, Python, "-u", "-m")
	default:
		line = append(line, Python, "-u")
	}

	return append(line, t.Script...)
}

// streamOptions are options that send the output of the processes to our own streams, which is torchrun's default. They
// are needed because torchrun of PyTorch 1.13 with Python 3.11 (Debian 12) fails on its own default (Std.from_str in
// torch/distributed/elastic/multiprocessing/api.py uses an enumeration without zero). A list that names only a rank
// that does not exist has the same meaning in every version; a rank in it has one digit. Options of the user for the
// streams replace these.
func (t Torchrun) streamOptions(env visible.Env, count int) (options []string) {
	if count > 9 || slices.Contains(t.Options, "--logs_specs") {
		return nil
	}
	for _, name := range []string{"redirects", "tee"} {
		if _, set := env.Lookup(variableOf(name)); !set && !slices.Contains(t.Options, underscoreOption(name)) {
			options = append(options, underscoreOption(name), "9:1")
		}
	}
	return options
}

// How a rank's words are run: the first word after the shim's name.
const (
	Python  = "python"
	Program = "program"
)

// variableOf is the variable that torchrun reads an option from (torch/distributed/argparse_util.py).
func variableOf(name string) string {
	return "PET_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// OverruledVariables lists the variables from which torchrun would read options that gpuard decides.
func OverruledVariables() []string {
	// These two are on the command line.
	out := []string{"PET_MODULE", "PET_NO_PYTHON"}
	for _, o := range torchrunOptions() {
		if o.why != "" {
			out = append(out, variableOf(o.name))
		}
	}
	return out
}

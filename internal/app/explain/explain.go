// Package explain says which devices a program sees: the caller's shell, a running process, or one in a container.
package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/visible"
)

// Explanation is what a program sees.
type Explanation struct {
	visible.View
	// The process that was asked about.
	Process *processInfo `json:"process,omitempty"`
	Machine gpu.Machine  `json:"-"`
}

// gpuRuntime is one way for programs to reach devices.
type gpuRuntime struct {
	// The word of --runtime.
	name string
	// The name as in visible.Entry, tinygrad with its version.
	label   string
	vendors []gpu.Vendor
	// What programs for this vendor's devices use when nothing else is said.
	native bool
	read   func(visible.Env, gpu.Machine) visible.View
}

// runtimes lists the runtimes; version is that of tinygrad, "" for the newest.
func runtimes(version string) []gpuRuntime {
	return []gpuRuntime{
		{"cuda", "cuda", []gpu.Vendor{gpu.NVIDIA}, true, visible.CUDA},
		{"hip", "hip", []gpu.Vendor{gpu.AMD}, true, visible.HIP},
		{"opencl", "opencl", []gpu.Vendor{gpu.AMD}, false, visible.OpenCL},
		{"level-zero", "level_zero", []gpu.Vendor{gpu.Intel}, true, visible.LevelZero},
		{"sycl", "sycl", []gpu.Vendor{gpu.Intel, gpu.NVIDIA, gpu.AMD}, false, visible.SYCL},
		{"ascend", "ascend", []gpu.Vendor{gpu.Ascend}, true, visible.Ascend},
		{"tinygrad", "tinygrad:" + version, []gpu.Vendor{gpu.NVIDIA}, false, tinygradReader(gpu.NVIDIA, version)},
		{"tinygrad", "tinygrad:" + version, []gpu.Vendor{gpu.AMD}, false, tinygradReader(gpu.AMD, version)},
	}
}

func tinygradReader(vendor gpu.Vendor, version string) func(visible.Env, gpu.Machine) visible.View {
	return func(env visible.Env, m gpu.Machine) visible.View { return visible.Tinygrad(env, m, vendor, version) }
}

// chooseRuntimes finds what --runtime names; nothing named is nil.
func chooseRuntimes(asked string) ([]gpuRuntime, error) {
	if asked == "" {
		return nil, nil
	}

	name, version, versioned := strings.Cut(asked, ":")
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	all := runtimes(version)
	out := slices.DeleteFunc(slices.Clone(all), func(r gpuRuntime) bool { return r.name != name })
	if len(out) == 0 || versioned && name != "tinygrad" {
		var names []string
		for _, r := range all {
			names = append(names, r.name)
		}
		return nil, exit.Usagef("cannot explain the runtime %q: write one of %s; tinygrad:0.11 is tinygrad of that version", prose.Clean(asked), strings.Join(slices.Compact(names), ", "))
	}

	return out, nil
}

// Explain says what a program sees. what is empty for the caller's own environment; VAR=VALUE to put these variables in
// the place of all the caller's GPU variables; or one process id or lease id. runtime is "" for the native one of each
// vendor present. With container the program is taken to run in a container that NVIDIA_VISIBLE_DEVICES describes.
func Explain(ctx context.Context, host *machine.Host, what []string, runtime string, container bool) (*Explanation, error) {
	asked, err := chooseRuntimes(runtime)
	if err != nil {
		return nil, err
	}

	target, given, err := subjectOf(what)
	if err != nil {
		return nil, err
	}

	m, err := host.Read(ctx, gpu.Identity|gpu.Load)
	x := &Explanation{View: visible.View{Visible: []visible.Entry{}, Notes: []visible.Note{}}, Machine: m}
	var none *gpu.Unavailable
	switch {
	case errors.As(err, &none):
		// A program would see nothing either.
		x.addNote(visible.CodeUnavailable, "%s; %s", none.Text, none.Remedy)
	case err != nil:
		return nil, err
	}

	if target != "" {
		err = explainProcess(host, x, target, asked)
		return x, err
	}

	env, inside := withMPSPipe(host, replaceGPUVars(host, given), os.Getpid()), m
	if slices.ContainsFunc(given, func(pair string) bool { return strings.HasPrefix(pair, "SLURM_") }) {
		inside, x.Notes = appendNotes(x.Notes)(visible.InsideAllocation(env, inside))
	}

	if container {
		inside, x.Notes = appendNotes(x.Notes)(visible.InsideContainer(env, inside))
	} else if meansContainer(given) {
		x.addNote(visible.CodeNotInside, "NVIDIA_VISIBLE_DEVICES is read by container runtimes, not by programs: it changes nothing here; what a container gets: gpuard explain --container …")
	}

	if _, gone, _ := env.LiftLogin(); len(gone) > 1 {
		// More than the mark.
		x.addNote(visible.CodeLogin, "the rule for logins without a lease set these variables; gpuard run ignores them and gets a GPU all the same")
	}

	x.readRuntimes(asked, env, inside)

	return x, nil
}

// subjectOf separates variables from a process or lease ID, which must be the only word.
func subjectOf(what []string) (target string, given []string, err error) {
	for _, w := range what {
		name, _, ok := strings.Cut(w, "=")
		switch {
		case ok && name != "":
		case !ok && isTarget(w) && len(what) == 1:
			return w, nil, nil
		case !ok && isTarget(w):
			return "", nil, exit.Usagef("cannot explain %q together with something else: a process or a lease is explained alone", w)
		case isVariableName(w):
			return "", nil, exit.Usagef("cannot explain %q: write its value too, such as %s=0; gpuard explain alone reads this shell's variables", w, w)
		default:
			value := cmp.Or(prose.Clean(strings.TrimPrefix(w, "=")), "0")
			return "", nil, exit.Usagef("cannot explain %q: write a process or lease id, or VAR=VALUE, such as CUDA_VISIBLE_DEVICES=%s", prose.Clean(w), value)
		}
	}
	return "", what, nil
}

// isVariableName: the name of a variable without its value.
func isVariableName(s string) bool {
	return strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == "" && strings.Contains(s, "_") && (s[0] < '0' || s[0] > '9')
}

// isTarget: a number is a process; a lease id begins with a letter.
func isTarget(s string) bool {
	return s != "" && len(s) <= 20 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// meansContainer: nothing else is said, so that a container must have been meant.
func meansContainer(given []string) bool {
	names := func(name string) bool {
		return slices.ContainsFunc(given, func(pair string) bool { return strings.HasPrefix(pair, name+"=") })
	}
	return names("NVIDIA_VISIBLE_DEVICES") && !names("CUDA_VISIBLE_DEVICES")
}

// appendNotes appends the notes of one more reading.
func appendNotes(notes []visible.Note) func(gpu.Machine, []visible.Note) (gpu.Machine, []visible.Note) {
	return func(m gpu.Machine, more []visible.Note) (gpu.Machine, []visible.Note) {
		return m, append(notes, more...)
	}
}

// withMPSPipe adds the default pipe folder of MPS clients ("CUDA_MPS_PIPE_DIRECTORY" in NVIDIA's MPS documentation), if
// the process can see one.
func withMPSPipe(host *machine.Host, env visible.Env, pid int) visible.Env {
	const pipes = "CUDA_MPS_PIPE_DIRECTORY"
	if _, set := env.Lookup(pipes); set || !host.IsHardware() || !host.Proc.HasFile(pid, "/tmp/nvidia-mps/control") {
		return env
	}
	return append(slices.Clone(env), pipes+"=/tmp/nvidia-mps")
}

// readRuntimes reads env for each runtime that was asked for, else for the native one of each vendor that the machine
// has. It returns those runtimes. Each counts from 0.
func (x *Explanation) readRuntimes(asked []gpuRuntime, env visible.Env, inside gpu.Machine) []gpuRuntime {
	has := func(v gpu.Vendor) bool {
		return slices.ContainsFunc(x.Machine.Devices, func(d gpu.Device) bool { return d.Vendor == v })
	}

	used := slices.DeleteFunc(slices.Clone(asked), func(r gpuRuntime) bool { return !slices.ContainsFunc(r.vendors, has) })
	if len(asked) == 0 {
		used = slices.DeleteFunc(runtimes(""), func(r gpuRuntime) bool { return !r.native || !has(r.vendors[0]) })
	}

	if len(asked) > 0 && len(used) == 0 && len(x.Machine.Devices) > 0 {
		x.addNote(visible.CodeNoVendor, "this machine has no GPU that --runtime %s could show", asked[0].name)
	}

	for _, r := range used {
		v := r.read(env, inside)
		x.Visible = append(x.Visible, v.Visible...)

		for _, n := range v.Notes {
			if !slices.Contains(x.Notes, n) {
				// Two runtimes may read one variable alike.
				x.Notes = append(x.Notes, n)
			}
		}
	}

	return used
}

func (x *Explanation) addNote(code, format string, args ...any) {
	x.Notes = append(x.Notes, visible.Note{Code: code, Text: fmt.Sprintf(format, args...)})
}

// replaceGPUVars is the caller's environment, with given variables in the place of all its GPU variables.
func replaceGPUVars(host *machine.Host, given []string) visible.Env {
	if len(given) == 0 {
		return host.Env
	}
	env := slices.DeleteFunc(slices.Clone(host.Env), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.Contains(visible.Variables(), name) || name == "GPUARD_LOGIN"
	})
	return append(slices.Clone(visible.Env(given)), env...)
}

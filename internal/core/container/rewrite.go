package container

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// With returns the command line with the devices of a lease. What the person asks of GPUs beyond it is left out, with a
// note, where the rest means the same without it, and is an error where it does not.
func (c Call) With(form Form, more ...string) (argv, notes []string, err error) {
	argv = slices.Concat(c.Before, form.Words, more)
	for _, o := range c.options {
		drop, why := "", ""
		switch o.name {
		case "--gpus":
			drop = "the lease's GPUs take its place"
		case "--device":
			drop, why = form.device(o.value)
		case "--privileged":
			if o.value != "false" {
				why = "it can open every device of the machine"
			}
		case "--volume", "--mount":
			if file := source(o); strings.Contains(o.value, byMount) || opens(file) || file == "/dev/kfd" || form.open && file == "/" {
				why = "it shows the container devices that are not of the lease"
			}
		case "--device-cgroup-rule":
			if allows(o.value) {
				why = "it lets the container open GPUs that are not of the lease"
			}
		case "--env":
			drop = form.env(o.value)
		case "--label":
			if strings.HasPrefix(o.value, "gpuard.") {
				drop = "gpuard writes such labels"
			}
		case "--restart":
			if o.value == "always" || o.value == "unless-stopped" {
				notes = append(notes, "after a boot of the machine the engine starts the container without gpuard, and without a lease; to have one then too: gpuard up -d at boot")
			}
		}
		typed := strings.Join(o.words, " ")
		if o.lead != "" {
			typed = strings.TrimSpace("-" + strings.TrimPrefix(typed, o.lead))
		}
		switch {
		case why != "":
			return nil, nil, fmt.Errorf("cannot keep the container to its lease with %s: %s; leave it out, or start the container without gpuard", typed, why)
		case drop != "":
			notes = append(notes, fmt.Sprintf("%s is left out: %s", typed, drop))
			if o.lead != "" {
				argv = append(argv, o.lead)
			}
		default:
			argv = append(argv, o.words...)
		}
	}
	return append(argv, c.inside...), append(notes, form.Notes...), nil
}

// byMount is a folder in a container whose entries choose GPUs for NVIDIA's runtime, where its configuration accepts that
// (accept-nvidia-visible-devices-as-volume-mounts).
const byMount = "/nvidia-container-devices"

// device judges a value of --device: why it is left out, or why it cannot be.
func (form Form) device(value string) (drop, why string) {
	if strings.HasPrefix(value, "nvidia.com/gpu=") || strings.HasPrefix(value, "amd.com/gpu=") {
		return "the lease's GPUs take its place", ""
	}
	file, _, _ := strings.Cut(value, ":")
	switch {
	case form.any || slices.Contains(form.nodes, file):
		return "it is of the lease", ""
	case opens(file):
		return "", "it is not of the lease"
	}
	return "", ""
}

// env judges a value of --env: why it is left out, "" where it stays.
func (form Form) env(assignment string) string {
	name, value, given := strings.Cut(assignment, "=")
	switch name {
	case "NVIDIA_VISIBLE_DEVICES", "AMD_VISIBLE_DEVICES":
		return "the lease decides"
	case "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL":
		if !given {
			return "numbers of this machine mean nothing in the container, where its GPUs begin at 0"
		}
		for entry := range strings.SplitSeq(value, ",") {
			if n, err := strconv.Atoi(entry); err == nil && n >= form.count {
				return fmt.Sprintf("the container has %d of the GPUs, and numbers begin at 0 there", form.count)
			}
		}
	}
	return ""
}

// source is the path of the machine that a volume or a mount has; "" for a volume with a name.
func source(o option) string {
	if o.name == "--volume" {
		from, _, _ := strings.Cut(o.value, ":")
		return from
	}
	for field := range strings.SplitSeq(o.value, ",") {
		if key, value, _ := strings.Cut(field, "="); key == "source" || key == "src" {
			return value
		}
	}
	return ""
}

// allows reports whether a rule such as "c 195:* rwm" covers device files of GPUs: those of NVIDIA (195, and the dynamic
// numbers of nvidia-caps), of DRM (226), or all.
func allows(rule string) bool {
	kind, rest, _ := strings.Cut(strings.TrimSpace(rule), " ")
	major, _, _ := strings.Cut(strings.TrimSpace(rest), ":")
	n, err := strconv.Atoi(major)
	return kind == "a" || kind == "c" && (err != nil || n == 195 || n == 226 || n >= 234)
}

// Check is the error that With will return for any lease, to be said before one is waited for.
func (c Call) Check() error {
	_, _, err := c.With(Form{any: true})
	return err
}

// Name is what a run or create calls its container: the name that it was given, else that of its image without
// registry and version. For a start it is the container.
func (c Call) Name() string {
	for _, o := range c.options {
		if o.name == "--name" && o.value != "" {
			return o.value
		}
	}
	for _, word := range c.inside {
		if word != "--" {
			name, _, _ := strings.Cut(word[strings.LastIndex(word, "/")+1:], "@")
			name, _, _ = strings.Cut(name, ":")
			return name
		}
	}
	return c.Engine
}

// Containers are the names or ids that a start is for.
func (c Call) Containers() []string { return c.inside }

// Has reports whether a run or create has one of these options.
func (c Call) Has(names ...string) bool {
	return slices.ContainsFunc(c.options, func(o option) bool { return slices.Contains(names, o.name) })
}

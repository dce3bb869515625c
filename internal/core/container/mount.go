package container

import (
	"encoding/csv"
	"slices"
	"strings"
)

// mountFolderName is a folder in a container whose entries choose GPUs for NVIDIA's runtime, where its configuration
// accepts that (accept-nvidia-visible-devices-as-volume-mounts).
const mountFolderName = "nvidia-container-devices"

// sourcesOf are what an option of run or create shows the container of the machine. why is why it is refused whatever
// that is.
func (c Call) sourcesOf(o engineOption) (all []source, why string) {
	switch o.name {
	case "--volume":
		return readVolume(o.value)
	case "--mount":
		return readMount(o.value)
	case "--volumes-from":
		for entry := range strings.SplitSeq(o.value, ",") {
			name, _, _ := strings.Cut(entry, ":")
			all = append(all, source{kind: "container", name: name})
		}
	case "--pod":
		if !strings.HasPrefix(o.value, "new:") {
			all = append(all, source{kind: "pod", name: o.value})
		}
	case "--rootfs":
		if isSwitchOn(o.value) && len(c.inside) > 0 {
			file, _, _ := strings.Cut(strings.TrimPrefix(c.firstOperand(), "rootfs:"), ":")
			all = append(all, source{kind: "path", name: file})
		}
	case "--device":
		for value := range strings.SplitSeq(o.value, ",") {
			// podman 4 splits it.
			if file, _, _ := strings.Cut(value, ":"); !isQualified(value) {
				all = append(all, source{kind: "path", name: file})
			}
		}
	}
	return all, ""
}

// firstOperand is the first word that is no option: the image, or with --rootfs a folder.
func (c Call) firstOperand() string {
	if c.inside[0] == "--" && len(c.inside) > 1 {
		return c.inside[1]
	}
	return c.inside[0]
}

// readVolume reads a value of --volume: SOURCE:TARGET:OPTIONS. One part alone is a volume without a name. Docker and
// podman take a source that begins with a dot for a path of the caller (docker/cli: cli/command/container/opts.go;
// containers/podman: pkg/specgen/volumes.go, which lets a backslash protect a colon).
func readVolume(value string) (all []source, why string) {
	if strings.Contains(value, mountFolderName) {
		return nil, "it chooses devices that are not of the lease"
	}

	const protected = "\x00"
	parts := strings.Split(strings.ReplaceAll(value, `\:`, protected), ":")
	if len(parts) < 2 {
		return nil, ""
	}

	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], protected, ":")
	}

	options := strings.Split(strings.Join(parts[2:], ":"), ",")
	only := slices.Contains(options, "ro")
	all = append(all, newSource(strings.TrimSpace(parts[0]), only))
	for _, option := range options {
		// upperdir=, workdir=.
		if _, file, given := strings.Cut(option, "="); given && isPath(file) {
			all = append(all, source{"path", file, only})
		}
	}

	return all, ""
}

// isPath reports whether an engine takes a source for a path, and not for the name of a volume.
func isPath(name string) bool { return name != "" && strings.ContainsAny(name[:1], "/.~") }

func newSource(name string, only bool) source {
	if isPath(name) {
		return source{"path", name, only}
	}
	return source{"volume", name, only}
}

// mountKeys are those of --mount that show nothing of the machine by themselves.
const mountKeys = "bind-create-src bind-nonrecursive bind-propagation bind-recursive chown consistency destination dest dev digest dst exec gid idmap image-subpath max mode name newinstance no-dereference nocreate nodev noexec " +
	"nosuid noswap notmpcopyup private ptmxmode rbind readonly readwrite relabel ro rprivate rshared rslave runbindable rw shared slave subpath suid target title tmpcopyup tmpfs-mode tmpfs-size u uid unbindable " +
	"volume-driver volume-label volume-nocopy volume-subpath z"

// readMount reads a value of --mount, which is one line of CSV (docker/cli: opts/mount.go; containers/podman:
// pkg/specgenutil/volumes.go). Docker does not tell the case of a key.
func readMount(value string) (all []source, why string) {
	fields, err := csv.NewReader(strings.NewReader(strings.TrimSpace(value))).Read()
	if err != nil || strings.ContainsAny(value, "\r\n") {
		return nil, "gpuard cannot read it as one line of comma-separated values"
	}
	if strings.Contains(strings.Join(fields, ","), mountFolderName) {
		return nil, "it chooses devices that are not of the lease"
	}

	kinds, names, targets, only := []string(nil), []string(nil), []string(nil), false
	for _, field := range fields {
		key, text, given := strings.Cut(field, "=")
		text = strings.TrimSpace(text)
		switch key = strings.ToLower(strings.TrimSpace(key)); key {
		case "type":
			kinds = append(kinds, strings.ToLower(text))
		case "source", "src":
			names = append(names, text)
		case "readonly", "ro":
			only = !given || isSwitchOn(text)
		case "target", "dst", "dest", "destination":
			targets = append(targets, text)
		case "volume-opt":
			all = append(all, driverPaths(text)...)
		default:
			if !slices.Contains(strings.Fields(mountKeys), key) {
				return nil, "gpuard does not know what " + key + " in it shows the container"
			}
		}
	}

	for _, kind := range kinds {
		if !slices.Contains(strings.Fields("artifact bind cluster devpts glob image ramfs tmpfs volume"), kind) {
			return nil, "gpuard does not know mounts of the type " + kind
		}
	}

	bind := slices.Contains(kinds, "bind")
	if bind && len(names) == 0 {
		// podman mounts the path of the same name.
		names = targets
	}

	for _, name := range names {
		switch named := newSource(name, only); {
		case slices.Contains(kinds, "glob"):
			all = append(all, source{"pattern", name, only})
		case bind:
			all = append(all, source{"path", name, only})
		case named.kind == "path", len(kinds) == 0, slices.Contains(kinds, "volume"):
			all = append(all, named)
		}
	}

	for i := range all {
		all[i].only = all[i].only || only
	}

	return all, ""
}

// driverPaths are the paths of the machine in an option of a volume's driver: device=/srv,
// o=lowerdir=/a:/b,upperdir=/c. An address as nfs has it (host:/path) names none.
func driverPaths(option string) (all []source) {
	key, value, _ := strings.Cut(option, "=")
	if strings.EqualFold(strings.TrimSpace(key), "device") {
		value = strings.TrimSpace(value)
		if isPath(value) {
			all = append(all, source{kind: "path", name: value})
		}
		return all
	}

	for part := range strings.FieldsFuncSeq(value, func(r rune) bool { return strings.ContainsRune(",=:", r) }) {
		if strings.HasPrefix(part, "/") && strings.Contains(value, "dir=") {
			all = append(all, source{kind: "path", name: part})
		}
	}

	return all
}

// VolumePaths are the paths of the machine that a volume with these options of its driver shows.
func VolumePaths(options map[string]string) (paths []string) {
	for key, value := range options {
		for _, s := range driverPaths(key + "=" + value) {
			paths = append(paths, s.name)
		}
	}
	return paths
}

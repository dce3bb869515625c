package container

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Lookups is what has to be looked up on the machine before a call or a project can be judged: nothing of it is in the
// command line.
type Lookups struct {
	// The paths of the machine, as they were typed.
	Paths []string
	// The same with wildcards.
	Patterns []string
	Volumes  []string // by name
	// Whose volumes another one takes.
	Containers []string
	Pods       []string
}

// Found is what was looked up.
type Found struct {
	// Where the command is typed.
	Dir string
	// The engine runs as the caller, without the device cgroup.
	Rootless bool
	// What a path or a pattern is without links; a device file of a GPU anywhere has the name that DeviceFile gives it.
	Paths map[string][]string
	// The paths of the machine that a volume shows.
	Volumes map[string][]string
	// The same of a container or a pod.
	Others map[string][]string
}

// source is one thing that a container is shown.
type source struct {
	// "path", "pattern", "volume", "container", "pod".
	kind string
	name string
	only bool // to be read
}

// addSource notes what has to be looked up of a source.
func (l *Lookups) addSource(s source) {
	if s.name == "" {
		return
	}
	switch s.kind {
	case "path":
		l.Paths = append(l.Paths, s.name)
	case "pattern":
		l.Patterns = append(l.Patterns, s.name)
	case "volume":
		l.Volumes = append(l.Volumes, s.name)
	case "container":
		l.Containers = append(l.Containers, s.name)
	case "pod":
		l.Pods = append(l.Pods, s.name)
	}
}

// Join is what has to be looked up for two.
func (l Lookups) Join(b Lookups) Lookups {
	return Lookups{slices.Concat(l.Paths, b.Paths), slices.Concat(l.Patterns, b.Patterns), slices.Concat(l.Volumes, b.Volumes), slices.Concat(l.Containers, b.Containers), slices.Concat(l.Pods, b.Pods)}
}

// judgeSource is why a container must not be shown a source; "" it may.
func (f Found) judgeSource(s source) string {
	paths := f.Paths[s.name]
	switch s.kind {
	case "path":
		paths = append([]string{f.absolutePath(s.name)}, paths...)
	case "pattern":
		paths = append([]string{beforeWildcard(f.absolutePath(s.name))}, paths...)
	case "volume":
		paths = f.Volumes[s.name]
	default:
		paths = f.Others[s.name]
	}
	for _, p := range paths {
		if why := judgePath(p); why != "" {
			return why
		}
		if !s.only && (isWithin(p, "/sys/fs/cgroup") || p == "/sys" || p == "/sys/fs") {
			return "it could leave the control group that keeps it to its devices; mount it read-only"
		}
	}

	return ""
}

// absolutePath is a path as the engine's command makes it absolute; "" where the folder is not known.
func (f Found) absolutePath(p string) string {
	switch {
	case path.IsAbs(p):
		return path.Clean(p)
	case f.Dir == "":
		return ""
	}
	return path.Join(f.Dir, p)
}

// beforeWildcard is the folder above the first element with a wildcard.
func beforeWildcard(pattern string) string {
	at := strings.IndexAny(pattern, `*?[\`)
	if at < 0 {
		return pattern
	}
	return path.Clean("/" + pattern[:strings.LastIndex(pattern[:at], "/")+1])
}

// isWithin reports whether a path is a folder or below it.
func isWithin(p, folder string) bool { return p == folder || strings.HasPrefix(p, folder+"/") }

// judgePath is why a container must not be shown a path of the machine; "" it may. The path has no links.
func judgePath(p string) string {
	switch {
	case p == "":
		return ""
	case p == "/":
		return "it shows the container the whole machine, with the devices that are not of the lease"
	case isWithin(p, "/dev") && !slices.ContainsFunc(devicePaths(), func(pattern string) bool { return matchesPath(pattern, p) }):
		return "it shows the container devices that are not of the lease"
	case isWithin(p, "/proc") && !slices.ContainsFunc(strings.Fields(harmlessProc), func(name string) bool { return isWithin(p, "/proc/"+name) }):
		return "through the processes in /proc it could reach devices that are not of the lease"
	case isSocket(p):
		return "through the engine's socket it could start containers that have no lease"
	case holdsSockets(p):
		return "through the engine's socket in it, it could start containers that have no lease; of such a folder show it the file that it needs, by its name"
	}
	return ""
}

// harmlessProc are entries of /proc that lead to no process.
const harmlessProc = "buddyinfo cmdline config.gz cpuinfo crypto diskstats driver filesystems interrupts loadavg mdstat meminfo modules partitions stat swaps uptime version vmstat zoneinfo"

// engineNames are the names in those of the sockets of engines, and of the folders of such.
const engineNames = "docker podman containerd crio buildkit"

// isSocket reports whether a path is the socket of an engine.
func isSocket(p string) bool {
	base := path.Base(p)
	return strings.HasSuffix(base, ".sock") && slices.ContainsFunc(strings.Fields(engineNames), func(name string) bool { return strings.Contains(base, name) })
}

// holdsSockets reports whether a path is a folder with sockets of engines: one of /run, or of a user's folder there,
// where rootless engines have theirs. Of other files in such a folder each may be shown by its name.
func holdsSockets(p string) bool {
	if isWithin(p, "/var/run") {
		p = strings.TrimPrefix(p, "/var")
	}
	patterns := []string{"/run", "/run/user", "/run/user/*", "/run/*/containerd"}
	for name := range strings.FieldsSeq(engineNames) {
		patterns = append(patterns, "/run/"+name)
		if matchesPath("/run/user/*/"+name+"*", p) {
			return true
		}
	}

	return slices.ContainsFunc(patterns, func(pattern string) bool {
		fits, _ := path.Match(pattern, p)
		return fits
	})
}

// harmlessDevices are device files and folders of such, below /dev, by which no GPU is opened. Those of NVIDIA's are
// what every program needs beside the file of its device.
const harmlessDevices = "null zero full random urandom console tty tty[0-9]* ttyS* ttyUSB* ttyACM* ttyAMA* ptmx pts fuse cuse kvm vhost-net vhost-vsock net net/* snd input uinput uhid hidraw* usb bus serial video* media* v4l* " +
	"cec* dvb rtc* watchdog* hwrng tpm* infiniband knem xpmem gdrdrv nvidiactl nvidia-uvm nvidia-uvm-tools nvidia-modeset nvidia-fs* kmsg log loop* sd* hd* vd* xvd* nvme* md* dm-* mapper disk block sr[0-9]* sg[0-9]* st[0-9]* nbd* " +
	"ram[0-9]* zram* i2c-* spidev* gpiochip* gpiomem cpu cpu_dma_latency shm mqueue hugepages* ppp lp* parport* userfaultfd udmabuf dma_heap sgx* sev* autofs btrfs-control rfkill isst_interface pps* ptp* lightnvm mei* apex_* iio:* cdrom dvd"

// devicePaths are patterns of the paths of harmlessDevices.
func devicePaths() (patterns []string) {
	for name := range strings.FieldsSeq(harmlessDevices) {
		patterns = append(patterns, "/dev/"+name)
	}
	return patterns
}

// matchesPath reports whether a path, or a folder that it is in, is of a pattern.
func matchesPath(pattern, p string) bool {
	for ; len(p) > 1; p = path.Dir(p) {
		if fits, _ := path.Match(pattern, p); fits {
			return true
		}
	}
	return false
}

// DeviceFile is the usual path of a character device of GPUs, "" for any other: of NVIDIA (195), of DRM (226) or of
// other accelerators (261). A file under any name opens it
// (https://www.kernel.org/doc/Documentation/admin-guide/devices.txt).
func DeviceFile(major, minor uint32) string {
	switch {
	case major == 195 && minor == 255:
		return "/dev/nvidiactl"
	case major == 195 && minor == 254:
		return "/dev/nvidia-modeset"
	case major == 195:
		return fmt.Sprintf("/dev/nvidia%d", minor)
	case major == 226 && minor >= 128:
		return fmt.Sprintf("/dev/dri/renderD%d", minor)
	case major == 226:
		return fmt.Sprintf("/dev/dri/card%d", minor)
	case major == 261:
		return fmt.Sprintf("/dev/accel/accel%d", minor)
	}
	return ""
}

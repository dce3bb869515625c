package hostinfo

import "time"

// Containers is how containers of this machine get GPUs.
type Containers struct {
	// Programs of NVIDIA's container toolkit are installed.
	Toolkit bool
	// Nvidia-container-runtime-hook is among them.
	Hook bool
	// The version of its library; "" when there is none or it does not say.
	ToolkitVersion string
	// config.toml of the toolkit; "" when there is none.
	ConfigPath string
	// Accept-nvidia-visible-devices-envvar-when-unprivileged; nil: the default, which is true.
	EnvWhenUnprivileged *bool
	// Accept-nvidia-visible-devices-as-volume-mounts; nil: the default, which is false.
	AsVolumeMounts *bool
	// The mode of nvidia-container-runtime: "auto", "legacy", "cdi", "jit-cdi", "csv"; "" not set.
	Mode  string
	Specs []CDISpec
	// An OCI hook file, another way than CDI for Podman to give GPUs; "" none.
	HookFile string
	// Their programs are installed.
	Docker, Podman bool
	// The socket of the daemon; "" none is there.
	DockerSocket string
	// This user may not open it.
	DockerDenied bool
	// What this user has not that Podman needs: "you have no range of user IDs in /etc/subuid"; "" nothing.
	PodmanLacks string
	// Path of daemon.json; "" when there is none.
	DockerConfig string
	// "nvidia" when every container gets it.
	DefaultRuntime string
	// Docker's configuration disables CDI.
	CDIOff bool
	// The driver of Docker: "systemd", "cgroupfs"; "" unknown.
	CgroupDriver string
	// CgroupDriver is Docker's default, not configured.
	CgroupDefault bool
	// Files that could not be read.
	Problems []string
}

// CDISpec is one file of the Container Device Interface.
type CDISpec struct {
	Path string
	// Position of its folder: files of a later folder override earlier ones.
	Folder  int
	Version string // cdiVersion
	Kind    string // "nvidia.com/gpu"
	// Names, without the kind.
	Devices []string
	// Driver version in the names of the libraries it mounts; "" unknown.
	Driver   string
	Modified time.Time
	// Why it could not be read.
	Problem string
	// Problem is that this user may not read it.
	Closed bool
}

package hostinfo

import "time"

// Containers is how containers of this machine get GPUs.
type Containers struct {
	Toolkit             bool   // programs of NVIDIA's container toolkit are installed
	Hook                bool   // nvidia-container-runtime-hook is among them
	ToolkitVersion      string // of its library; "" when there is none or it does not say
	ConfigPath          string // config.toml of the toolkit; "" when there is none
	EnvWhenUnprivileged *bool  // accept-nvidia-visible-devices-envvar-when-unprivileged; nil: the default, which is true
	AsVolumeMounts      *bool  // accept-nvidia-visible-devices-as-volume-mounts; nil: the default, which is false
	Mode                string // of nvidia-container-runtime: "auto", "legacy", "cdi", "jit-cdi", "csv"; "" not set
	Specs               []CDISpec
	HookFile            string   // an OCI hook file, another way than CDI for Podman to give GPUs; "" none
	Docker, Podman      bool     // their programs are installed
	DockerSocket        string   // of the daemon; "" none is there
	DockerDenied        bool     // this user may not open it
	PodmanLacks         string   // what this user has not that Podman needs: "you have no range of user IDs in /etc/subuid"; "" nothing
	DockerConfig        string   // path of daemon.json; "" when there is none
	DefaultRuntime      string   // "nvidia" when every container gets it
	CDIOff              bool     // Docker's configuration disables CDI
	CgroupDriver        string   // of Docker: "systemd", "cgroupfs"; "" unknown
	CgroupDefault       bool     // CgroupDriver is Docker's default, not configured
	Problems            []string // files that could not be read
}

// CDISpec is one file of the Container Device Interface.
type CDISpec struct {
	Path     string
	Folder   int      // position of its folder: files of a later folder override earlier ones
	Version  string   // cdiVersion
	Kind     string   // "nvidia.com/gpu"
	Devices  []string // names, without the kind
	Driver   string   // driver version in the names of the libraries it mounts; "" unknown
	Modified time.Time
	Problem  string // why it could not be read
	Closed   bool   // Problem is that this user may not read it
}

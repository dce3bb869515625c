package hostinfo

import "gpuard/internal/core/gpu"

// Limits is the resources other than GPUs that the caller's processes may use.
type Limits struct {
	Shm     *gpu.Bytes // size of /dev/shm; nil: not mounted; 0: mounted without a limit
	ShmFree *gpu.Bytes
	Memlock *gpu.Bytes // limit of locked memory; nil: none
	CPUs    float64    // that the caller may use; 0 unknown
	RDMA    []string   // network cards with remote DMA (InfiniBand, RoCE): "mlx5_0"
}

// NCCLFile is a file of NCCL settings: /etc/nccl.conf, ~/.nccl.conf, or NCCL_CONF_FILE.
type NCCLFile struct {
	Path     string
	Settings []string // "NAME=value"
	Problem  string
}

// Policy is the content of the configuration files about users.
type Policy struct {
	Problem   string   // why nothing can be leased; "" when it can
	Files     []string // existing files
	Rules     int      // in all of them
	Strangers []string // unknown users and groups in them, with their places
	Names     []string // all users and groups in them
}

// State is gpuard's own folder, and what it can enforce here.
type State struct {
	Folder          string
	Exists          bool     // it was created by a lease or an administrator
	Named           bool     // GPUARD_STATE names it
	Problem         string   // why leases cannot be taken there; "" when they can
	Unshared        string   // why leases that are taken here would not be seen by others; "" when they would
	Owner           string   // owner of the folder if not root; "" for root, or when it does not exist
	Passing         string   // why another place would be better; "" when it is good
	Others          []string // other folders that exist; their leases count too
	Entries         []string // entries that are ignored, each with the reason
	Levels          []string // quota levels that can be enforced here, weakest first: "watch", "mps"
	Watch           string   // why watch is not among them; "" when it is
	MPS             string   // why mps is not among them; "" when it is
	Namespace       string   // why a job cannot be isolated by namespace; "" when it can
	Landlock        string   // likewise by landlock
	Cgroup          string   // likewise by cgroup
	Leases, Tickets int
}

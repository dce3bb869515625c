package hostinfo

import "gpuard/internal/core/gpu"

// Limits is what the caller's processes may use beside GPUs.
type Limits struct {
	Shm     *gpu.Bytes // size of /dev/shm; nil: not mounted; 0: mounted without a limit
	ShmFree *gpu.Bytes
	Memlock *gpu.Bytes // limit of locked memory; nil: none
	CPUs    float64    // that the caller may use; 0 unknown
	RDMA    []string   // network cards that write to memory by themselves (InfiniBand, RoCE): "mlx5_0"
}

// NCCLFile is a file of NCCL settings: /etc/nccl.conf, ~/.nccl.conf, or NCCL_CONF_FILE.
type NCCLFile struct {
	Path     string
	Settings []string // "NAME=value"
	Problem  string
}

// Policy is what the configuration files say of users.
type Policy struct {
	Problem   string   // why nothing is leased; "" nothing is wrong
	Files     []string // that there are
	Rules     int      // in all of them
	Strangers []string // users and groups in them that nobody knows, with their places
	Names     []string // all users and groups in them
}

// State is gpuard's own folder, and what can be promised here.
type State struct {
	Folder          string
	Exists          bool     // somebody has leased something, or an administrator made it
	Named           bool     // GPUARD_STATE names it
	Problem         string   // why leases cannot be taken there; "" when they can
	Unshared        string   // why leases that are taken here would not be seen by others; "" when they would
	Owner           string   // the user whose folder it is; "" when it is root's, or is not there
	Passing         string   // why another place would be better; "" when it is good
	Others          []string // other folders that are there; their leases count too
	Entries         []string // entries that count as nothing, each with the reason
	Levels          []string // quota levels that can be enforced here, weakest first: "watch", "mps"
	Watch           string   // why watch is not among them; "" when it is
	MPS             string   // why mps is not among them; "" when it is
	Leases, Tickets int
}

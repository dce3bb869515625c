package hostinfo

import "gpuard/internal/core/gpu"

// Limits is the resources other than GPUs that the caller's processes may use.
type Limits struct {
	// Size of /dev/shm; nil: not mounted; 0: mounted without a limit.
	Shm     *gpu.Bytes
	ShmFree *gpu.Bytes
	// Limit of locked memory; nil: none.
	Memlock *gpu.Bytes
	// That the caller may use; 0 unknown.
	CPUs float64
	// Network cards with remote DMA (InfiniBand, RoCE): "mlx5_0".
	RDMA []string
}

// NCCLFile is a file of NCCL settings: /etc/nccl.conf, ~/.nccl.conf, or NCCL_CONF_FILE.
type NCCLFile struct {
	Path     string
	Settings []string // "NAME=value"
	Problem  string
}

// Policy is the content of the configuration files about users.
type Policy struct {
	// Why nothing can be leased; "" when it can.
	Problem string
	Files   []string // existing files
	Rules   int      // in all of them
	// Unknown users and groups in them, with their places.
	Strangers []string
	// All users and groups in them.
	Names []string
}

// State is gpuard's own folder, and what it can enforce here.
type State struct {
	Folder string
	// It was created by a lease or an administrator.
	Exists bool
	// GPUARD_STATE names it.
	Named bool
	// Why leases cannot be taken there; "" when they can.
	Problem string
	// Why leases that are taken here would not be seen by others; "" when they would.
	Unshared string
	// Owner of the folder if not root; "" for root, or when it does not exist.
	Owner string
	// Why another place would be better; "" when it is good.
	Passing string
	// Other folders that exist; their leases count too.
	Others []string
	// Entries that are ignored, each with the reason.
	Entries []string
	// Quota levels that can be enforced here, weakest first: "watch", "mps".
	Levels []string
	// Why watch is not among them; "" when it is.
	Watch string
	// Why mps is not among them; "" when it is.
	MPS string
	// Why a job cannot be isolated by namespace; "" when it can.
	Namespace string
	// Likewise by landlock.
	Landlock        string
	Cgroup          string // likewise by cgroup
	Leases, Tickets int
}

//go:build never

package fakegpu

// Keeps the module that carries NVIDIA's nvml.h in go.mod. It is never compiled: its Go code needs cgo.
import _ "github.com/NVIDIA/go-nvml/pkg/nvml"

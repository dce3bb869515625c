package setup

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"gpuard/internal/app/engine"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/container"
	"gpuard/internal/core/edit"
	"gpuard/internal/core/gpu"
	"gpuard/internal/host/store"
)

// CDI lists the GPUs of the machine for container engines. The vendor's own file is used and not replaced.
type CDI struct {
	Host *machine.Host
}

// Key is what the setup is remembered by.
func (CDI) Key() (string, error) { return "cdi", nil }

// CheckRoot is an error for all users but root.
func (c CDI) CheckRoot() error {
	if os.Geteuid() == 0 || c.Host.Root != "/" {
		return nil
	}
	return fmt.Errorf("cannot list the GPUs for container engines: only root can; type: %s", store.SetupCommand())
}

// Wish is one file for each vendor of the machine that no other file describes.
func (c CDI) Wish(ctx context.Context) (ChangePlan, error) {
	w := ChangePlan{Key: "cdi", Try: []string{"gpuard podman --dry-run -- run IMAGE"}}
	m, err := c.Host.Read(ctx, gpu.Identity)
	if err != nil {
		return w, err
	}

	for _, vendor := range []gpu.Vendor{gpu.NVIDIA, gpu.AMD} {
		if !slices.ContainsFunc(m.Devices, func(d gpu.Device) bool { return d.Vendor == vendor }) {
			continue
		}

		path := filepath.Join(c.Host.Root, "etc/cdi", "gpuard-"+string(vendor)+".json")
		if theirs := c.foreignFile(vendor, path); theirs != "" {
			w.Notes = append(w.Notes, theirs+" lists the GPUs of "+string(vendor)+" already, and stays as it is; gpuard uses it")
			continue
		}

		spec, notes, err := engine.MachineSpec(ctx, c.Host, vendor)
		if err != nil {
			return w, err
		}

		text, err := json.MarshalIndent(spec, "", "  ")
		if err != nil {
			return w, err
		}

		w.Notes = append(w.Notes, notes...)
		w.Changes = append(w.Changes, edit.Change{Path: path, Content: string(text) + "\n"})
	}

	if len(w.Changes) > 0 {
		w.Notes = append(w.Notes, "call it again after the driver or the GPUs have changed")
	}

	return w, nil
}

// foreignFile is the file that describes the devices of a vendor and is not ours; "" if there is none.
func (c CDI) foreignFile(vendor gpu.Vendor, ours string) string {
	specs, _ := engine.Specs(c.Host)
	for _, s := range specs {
		if s.Kind == container.CDIKinds()[vendor] && filepath.Join(c.Host.Root, s.Path) != ours {
			return s.Path
		}
	}
	return ""
}

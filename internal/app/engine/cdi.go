package engine

import (
	"errors"
	"fmt"
	"os"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/host/files"
	"gpuard/internal/text/cdi"
)

// Specs reads the CDI files in the default folders of container engines; a file in a later folder wins
// (cncf-tags/container-device-interface pkg/cdi/spec-dirs.go). /var/run is a link to /run.
func Specs(host *machine.Host) (found []hostinfo.CDISpec, problems []string) {
	for place, folder := range []string{"/etc/cdi", "/var/run/cdi"} {
		names, err := files.Names(host.Below(folder), ".yaml", ".json")
		if err != nil {
			problems = append(problems, folder+": "+err.Error())
		}
		for i, name := range names {
			if i == 64 {
				problems = append(problems, fmt.Sprintf("%s: only the first %d of %d files were read", folder, i, len(names)))
				break
			}
			path := folder + "/" + name
			text, err := files.Read(host.Below(path))
			spec, bad := cdi.Read(text.Content)
			if err == nil {
				err = bad
			}
			if err != nil {
				spec = hostinfo.CDISpec{Problem: err.Error(), Closed: errors.Is(err, os.ErrPermission)}
			}
			spec.Path, spec.Folder, spec.Modified = path, place, text.Modified
			found = append(found, spec)
		}
	}
	return found, problems
}

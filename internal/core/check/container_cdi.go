package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/option"
)

// nvidiaKind is the name of NVIDIA's devices in CDI.
const nvidiaKind = "nvidia.com/gpu"

func cdiSpecs() Check {
	page := Page{
		Code: "cdi-spec", Title: "Container engines do not find NVIDIA's GPUs by CDI",
		Text: "The Container Device Interface is how Podman, Docker from version 25 on, containerd and CRI-O give devices to a container: `--device nvidia.com/gpu=0`. They read what belongs to a device from files in `/etc/cdi` and `/var/run/cdi`. Without a file, with one that cannot be read, or with two files of one folder that describe the same device, the name is not known.\n\n" +
			"`sudo nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml` writes one; from version 1.18 of NVIDIA's container toolkit on a service does so at each start. `/var/run/cdi` is empty after a reboot. `nvidia-ctk cdi list` shows the names. A hook file of former times (`oci-nvidia-hook.json`) can clash with CDI and is better removed.",
		From: []string{toolkitCDI, "cncf-tags/container-device-interface: SPEC.md", "https://docs.docker.com/reference/cli/dockerd/#enable-cdi-devices"},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		return checkOnHost(page.Code, s, func(c hostinfo.Containers) []Finding {
			for _, p := range c.Problems {
				if strings.Contains(p, "/cdi: ") {
					return unknownFinding(page.Code, "all CDI files", p, option.Expand("sudo {gpuard doctor}, if the folder is for root alone"))
				}
			}

			const write = "sudo nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml"
			var found []Finding
			usable := ofNVIDIA(c)

			for _, spec := range c.Specs {
				if spec.Problem != "" {
					found = append(found, unreadSpecFinding(page.Code, spec, c))
				}
			}

			for i, a := range usable {
				for _, b := range usable[i+1:] {
					if name, both := sharedName(a, b); both {
						found = append(found, Finding{page.Code, Warning, fmt.Sprintf("%s and %s both describe %s=%s", a.Path, b.Path, nvidiaKind, name), "engines refuse a name that two files of one folder describe", "remove the older one: sudo rm " + olderSpecPath(a, b)})
					}
				}
			}

			if c.HookFile != "" && len(usable) > 0 {
				found = append(found, Finding{page.Code, Info, c.HookFile + " is there beside " + usable[0].Path, "a container that has NVIDIA_VISIBLE_DEVICES as well gets GPUs by both ways, which can clash", "sudo rm " + c.HookFile})
			}

			switch nvidia := hasVendor(s, gpu.NVIDIA); {
			case found != nil:
				return found
			case len(usable) > 0:
				if c.CDIOff && c.Docker {
					return []Finding{{page.Code, Info, c.DockerConfig + " turns CDI off for Docker", "docker run --device nvidia.com/gpu=… fails", `take "cdi": false out of "features" there`}}
				}
				return okFinding(page.Code, "described in "+usable[0].Path)
			case c.Toolkit && nvidia && (c.Podman || c.Docker):
				return []Finding{{page.Code, Info, "no file describes NVIDIA's GPUs in /etc/cdi or /var/run/cdi", "--device nvidia.com/gpu=… is not known to container engines (docker run --gpus does not need it)", write}}
			}

			return okFinding(page.Code, "no file describes NVIDIA's GPUs, and none is needed here")
		})
	}}
}

// unreadSpecFinding reports a file that could not be read. Its devices are unknown, so the advice must not overwrite
// it. A file that only root may read works for Docker, but not for Podman run by an ordinary user.
func unreadSpecFinding(code string, spec hostinfo.CDISpec, c hostinfo.Containers) Finding {
	switch {
	case !spec.Closed:
		return Finding{code, Warning, "cannot read " + spec.Path + ": " + spec.Problem, "what it describes is not known to container engines", "have whatever wrote it write it anew, or: sudo rm " + spec.Path}
	case c.Podman:
		return Finding{code, Info, spec.Path + " may be read by root alone", "Podman without root does not know what it describes", "sudo chmod a+r " + spec.Path}
	}
	return unknownFinding(code, spec.Path, spec.Problem, option.Expand("sudo {gpuard doctor}"))[0]
}

func cdiDriver() Check {
	page := Page{
		Code: "cdi-stale", Title: "A CDI file describes another driver or other GPUs than this machine has",
		Text: "A CDI file names the driver's libraries with their version, and the GPUs and MIG devices one by one, as they were when it was written. After a change of the driver a container that uses it does not start, because the libraries have other names; after a change of cards or MIG devices some names are missing or mean nothing.\n\n" +
			"Write the file anew after each such change: `sudo nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml`. From version 1.18 of the container toolkit on, the service `nvidia-cdi-refresh` does so for the driver, not for MIG devices. A file in `/etc/cdi` that `/var/run/cdi` replaces can be removed.",
		From: []string{toolkitCDI, "cncf-tags/container-device-interface: pkg/cdi/spec-dirs.go"},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		return checkOnHost(page.Code, s, func(c hostinfo.Containers) []Finding {
			usable := ofNVIDIA(c)
			if len(usable) == 0 {
				return okFinding(page.Code, "no file describes NVIDIA's GPUs")
			}

			var found []Finding
			for _, spec := range usable {
				found = append(found, compareSpec(page.Code, spec, isOverruled(spec, usable), s)...)
			}

			if found == nil {
				return okFinding(page.Code, usable[0].Path+" fits the driver and the GPUs")
			}

			return found
		})
	}}
}

// compareSpec compares one file with the machine.
func compareSpec(code string, spec hostinfo.CDISpec, beaten bool, s hostinfo.Site) []Finding {
	severity := Warning
	do := "sudo nvidia-ctk cdi generate --output=" + spec.Path
	if beaten {
		severity, do = Info, "remove it, since a file in /var/run/cdi wins: sudo rm "+spec.Path
	}

	if now := otherDriver(spec.Driver, s); now != "" {
		return []Finding{{code, severity, fmt.Sprintf("%s is for driver %s, and %s is installed", spec.Path, spec.Driver, now), "a container that gets GPUs by it does not start: the libraries that it names are not there", do}}
	}
	if s.Machine.Problem != "" {
		return nil
	}

	missing, gone := compareIdentifiers(spec, s.Machine.Found)
	if s.Cards.Problem != "" || onBus(s, pciNVIDIA) > len(devicesOfVendor(s, gpu.NVIDIA)) {
		// A batch job, for example, sees only its own GPUs.
		gone = nil
	}

	switch {
	case len(gone) > 0:
		return []Finding{{code, severity, fmt.Sprintf("%s describes %s, which this machine does not have", spec.Path, strings.Join(gone, ", ")), "a container that asks for it, or for all, does not start", do}}
	case len(missing) > 0:
		return []Finding{{code, severity, fmt.Sprintf("%s does not describe %s", spec.Path, strings.Join(missing, ", ")), "no container can be given it by name", do}}
	}

	return nil
}

// otherDriver is the version of this machine's driver if a file is for another one. Until the module is reloaded there
// may be two versions. The library's counts, which a container needs; another check reports the difference.
func otherDriver(of string, s hostinfo.Site) string {
	d := s.Driver.Found
	if s.Driver.Problem != "" || of == "" || d.WSL || of == d.Module || of == d.Library {
		return ""
	}
	return cmp.Or(d.Library, d.Module)
}

// compareIdentifiers compares the identifiers that a file names with the machine's. Files that name devices only by
// number do not say which devices they mean. A split GPU is described by its MIG devices.
func compareIdentifiers(spec hostinfo.CDISpec, m gpu.Machine) (missing, gone []string) {
	named := map[string]bool{}
	for _, name := range spec.Devices {
		if strings.HasPrefix(name, "GPU-") || strings.HasPrefix(name, "MIG-") {
			named[name] = true
		}
	}

	if len(named) == 0 {
		return nil, nil
	}

	here := map[string]bool{}
	for i := range m.Devices {
		d := &m.Devices[i]
		if d.Vendor != gpu.NVIDIA {
			continue
		}

		here[string(d.UUID)] = true

		for _, slice := range d.MIG {
			here[string(slice.UUID)] = true
			if !named[string(slice.UUID)] {
				missing = append(missing, string(slice.UUID))
			}
		}

		if !named[string(d.UUID)] && !d.UsesMIG() && d.Problem == "" {
			missing = append(missing, string(d.UUID))
		}
	}

	for _, name := range spec.Devices {
		if named[name] && !here[name] {
			gone = append(gone, name)
		}
	}

	return missing, gone
}

// ofNVIDIA lists the readable files of NVIDIA's devices, those with priority first.
func ofNVIDIA(c hostinfo.Containers) []hostinfo.CDISpec {
	usable := slices.DeleteFunc(slices.Clone(c.Specs), func(s hostinfo.CDISpec) bool { return s.Problem != "" || s.Kind != nvidiaKind || len(s.Devices) == 0 })
	slices.SortStableFunc(usable, func(a, b hostinfo.CDISpec) int { return b.Folder - a.Folder })
	return usable
}

// isOverruled reports whether a file of a later folder describes the same devices.
func isOverruled(spec hostinfo.CDISpec, all []hostinfo.CDISpec) bool {
	return slices.ContainsFunc(all, func(o hostinfo.CDISpec) bool {
		return o.Folder > spec.Folder && slices.ContainsFunc(o.Devices, func(d string) bool { return slices.Contains(spec.Devices, d) })
	})
}

// sharedName is a name that two files of one folder describe.
func sharedName(a, b hostinfo.CDISpec) (string, bool) {
	if a.Folder != b.Folder {
		return "", false
	}
	i := slices.IndexFunc(a.Devices, func(d string) bool { return slices.Contains(b.Devices, d) })
	if i < 0 {
		return "", false
	}

	return a.Devices[i], true
}

func olderSpecPath(a, b hostinfo.CDISpec) string {
	if b.Modified.Before(a.Modified) {
		return b.Path
	}
	return a.Path
}

// Package cdi reads files of the Container Device Interface, by which container engines learn what belongs to a device.
package cdi

import (
	"bytes"
	"encoding/json"
	"errors"
	"path"
	"slices"
	"strings"

	"gpuard/internal/core/hostinfo"
	"gpuard/internal/text/yamltree"
)

// ReadSpec reads one file, YAML or JSON (cncf-tags/container-device-interface SPEC.md). The caller sets path, folder and
// time. A file without version and kind is an error.
func ReadSpec(src []byte) (hostinfo.CDISpec, error) {
	var spec hostinfo.CDISpec
	var hosts []string
	var err error
	src = bytes.TrimSpace(src)
	if bytes.HasPrefix(src, []byte("{")) {
		hosts, err = fromJSON(src, &spec)
	} else {
		hosts, err = fromYAML(src, &spec)
	}

	if err == nil && (spec.Version == "" || spec.Kind == "") {
		err = errors.New("it has no cdiVersion or no kind")
	}

	if err != nil {
		return hostinfo.CDISpec{}, err
	}

	for _, host := range hosts {
		if v, ok := driverOf(host); ok {
			spec.Driver = v
			break
		}
	}

	return spec, nil
}

// edits is what is changed in a container; of it only the files matter that are mounted.
type edits struct {
	Mounts []struct {
		HostPath string `json:"hostPath"`
	} `json:"mounts"`
}

func fromJSON(src []byte, spec *hostinfo.CDISpec) (hosts []string, err error) {
	var file struct {
		Version string `json:"cdiVersion"`
		Kind    string `json:"kind"`
		Devices []struct {
			Name  string `json:"name"`
			Edits edits  `json:"containerEdits"`
		} `json:"devices"`
		Edits edits `json:"containerEdits"`
	}

	if err := json.Unmarshal(src, &file); err != nil {
		return nil, err
	}

	spec.Version, spec.Kind = file.Version, file.Kind
	all := []edits{file.Edits}
	for _, d := range file.Devices {
		spec.Devices = append(spec.Devices, d.Name)
		all = append(all, d.Edits)
	}

	for _, e := range all {
		for _, m := range e.Mounts {
			hosts = append(hosts, m.HostPath)
		}
	}

	return hosts, nil
}

func fromYAML(src []byte, spec *hostinfo.CDISpec) (hosts []string, err error) {
	docs, err := yamltree.Parse(src)
	if err != nil {
		return nil, err
	}
	if len(docs) == 0 {
		return nil, errors.New("it is empty")
	}

	top := docs[0]
	spec.Version, spec.Kind = top.Find("cdiVersion").ScalarText(), top.Find("kind").ScalarText()
	all := []*yamltree.Node{top.Find("containerEdits", "mounts")}
	if devices := top.Find("devices"); devices != nil {
		for _, d := range devices.Items {
			spec.Devices = append(spec.Devices, d.Find("name").ScalarText())
			all = append(all, d.Find("containerEdits", "mounts"))
		}
	}

	for _, mounts := range all {
		if mounts == nil {
			continue
		}
		for _, m := range mounts.Items {
			hosts = append(hosts, m.Find("hostPath").ScalarText())
		}
	}

	return hosts, nil
}

// driverOf takes the driver's version off the name of one of its libraries: libcuda.so.550.54.14. The short names
// (libcuda.so.1) are links and say nothing.
func driverOf(host string) (string, bool) {
	for _, library := range []string{"libcuda.so.", "libnvidia-ml.so."} {
		version, ok := strings.CutPrefix(path.Base(host), library)
		parts := strings.Split(version, ".")
		digits := func(s string) bool {
			return s != "" && len(s) <= 6 && strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }) < 0
		}

		// Drivers have numbers of three digits; libcuda.so.1.1 is what boards with their own GPU and Windows' subsystem
		// have.
		if ok && len(parts[0]) >= 3 && len(parts) >= 2 && len(parts) <= 3 && !slices.ContainsFunc(parts, func(p string) bool { return !digits(p) }) {
			return version, true
		}
	}
	return "", false
}

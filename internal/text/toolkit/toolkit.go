// Package toolkit reads the settings of the NVIDIA container toolkit and of Docker.
package toolkit

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"gpuard/internal/core/hostinfo"
)

// ReadRuntime reads config.toml of the NVIDIA container toolkit into c (NVIDIA/nvidia-container-toolkit
// api/config/v1/config.go). Keys that it does not know are passed over, as the toolkit does; a value of another kind
// than the toolkit takes is an error, and then c stays as it is.
func ReadRuntime(src []byte, c *hostinfo.Containers) error {
	var config struct {
		EnvWhenUnprivileged *bool `toml:"accept-nvidia-visible-devices-envvar-when-unprivileged"`
		AsVolumeMounts      *bool `toml:"accept-nvidia-visible-devices-as-volume-mounts"`
		Runtime             struct {
			Mode string `toml:"mode"`
		} `toml:"nvidia-container-runtime"`
	}
	if err := toml.Unmarshal(src, &config); err != nil {
		return err
	}
	c.EnvWhenUnprivileged, c.AsVolumeMounts, c.Mode = config.EnvWhenUnprivileged, config.AsVolumeMounts, config.Runtime.Mode

	return nil
}

// ReadDocker reads daemon.json of Docker into c (https://docs.docker.com/reference/cli/dockerd/#daemon-configuration-file).
// An empty file and a byte order mark are no mistakes to Docker (moby/moby daemon/config/config.go). With an error c
// stays as it is.
func ReadDocker(src []byte, c *hostinfo.Containers) error {
	var config struct {
		DefaultRuntime string          `json:"default-runtime"`
		ExecOpts       []string        `json:"exec-opts"`
		Features       map[string]bool `json:"features"`
	}

	src = bytes.TrimSpace(bytes.TrimPrefix(src, []byte("\xef\xbb\xbf")))
	if len(src) == 0 {
		return nil
	}
	if err := json.Unmarshal(src, &config); err != nil {
		return err
	}

	c.DefaultRuntime = config.DefaultRuntime
	if cdi, said := config.Features["cdi"]; said && !cdi {
		c.CDIOff = true
	}

	for _, option := range config.ExecOpts {
		if name, driver, _ := strings.Cut(option, "="); strings.EqualFold(strings.TrimSpace(name), "native.cgroupdriver") {
			c.CgroupDriver = strings.TrimSpace(driver)
		}
	}

	return nil
}

package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/host/files"
	"gpuard/internal/host/limits"
	"gpuard/internal/text/nccl"
)

// siteLimits reads limits of the caller's processes that matter to GPU jobs.
func siteLimits(_ context.Context, host *machine.Host) hostinfo.Answer[hostinfo.Limits] {
	l, err := limits.ReadLimits(host.Root)
	if err != nil {
		return hostinfo.NoAnswer[hostinfo.Limits](err.Error())
	}
	return hostinfo.AnswerOf(l)
}

// siteNCCL reads the files of NCCL settings: the user's, then the machine's (NVIDIA/nccl
// docs/userguide/source/env.rst). A user's file lies where the variables say, whatever the root is.
func siteNCCL(_ context.Context, host *machine.Host) hostinfo.Answer[[]hostinfo.NCCLFile] {
	found := []hostinfo.NCCLFile{}
	add := func(shown, path string, named bool) {
		text, err := files.ReadFile(path)
		switch {
		case errors.Is(err, os.ErrNotExist) && !named:
		case errors.Is(err, os.ErrNotExist):
			found = append(found, hostinfo.NCCLFile{Path: shown, Problem: "there is no such file, which NCCL_CONF_FILE names"})
		case err != nil:
			found = append(found, hostinfo.NCCLFile{Path: shown, Problem: err.Error()})
		default:
			found = append(found, hostinfo.NCCLFile{Path: shown, Settings: nccl.ReadSettings(text.Content)})
		}
	}

	own, _ := host.Env.Lookup("NCCL_CONF_FILE")
	home, _ := host.Env.Lookup("HOME")
	switch {
	case strings.HasPrefix(own, "~"):
		found = append(found, hostinfo.NCCLFile{Path: own, Problem: "NCCL does not understand ~ in NCCL_CONF_FILE"})
	case own != "":
		add(own, own, true)
	case filepath.IsAbs(home):
		add(filepath.Join(home, ".nccl.conf"), filepath.Join(home, ".nccl.conf"), false)
	}

	add("/etc/nccl.conf", filepath.Join(host.Root, "etc/nccl.conf"), false)

	return hostinfo.AnswerOf(found)
}

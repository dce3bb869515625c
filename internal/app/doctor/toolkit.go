package doctor

import (
	"context"
	"path/filepath"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/host/loader"
)

// siteToolkits lists CUDA toolkits. An nvcc whose folder has no file with a version is asked for it.
func siteToolkits(ctx context.Context, host *machine.Host) hostinfo.Answer[[]hostinfo.Toolkit] {
	path, _ := host.Env.Lookup("PATH")
	var homes []string
	for _, name := range []string{"CUDA_HOME", "CUDA_PATH"} {
		home, _ := host.Env.Lookup(name)
		homes = append(homes, home)
	}

	found := loader.ListToolkits(host.Root, path, homes...)
	for i, t := range found {
		if t.NVCC && t.Version == "" {
			found[i].Version = loader.AskNVCC(ctx, filepath.Join(host.Root, t.Folder, "bin/nvcc"))
		}
	}

	return hostinfo.AnswerOf(found)
}

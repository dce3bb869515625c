package doctor

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/host/loader"
	"gpuard/internal/host/sys"
)

// siteToolkits lists CUDA toolkits. An nvcc whose folder has no file with a version is asked for it.
func siteToolkits(ctx context.Context, host *machine.Host) hostinfo.Answer[[]hostinfo.Toolkit] {
	path, _ := host.Env.Lookup("PATH")
	var homes []string
	for _, name := range []string{"CUDA_HOME", "CUDA_PATH"} {
		home, _ := host.Env.Lookup(name)
		homes = append(homes, home)
	}
	found := loader.Toolkits(host.Root, path, homes...)
	for i, t := range found {
		if t.NVCC && t.Version == "" {
			found[i].Version = askNVCC(ctx, filepath.Join(host.Root, t.Folder, "bin/nvcc"))
		}
	}
	return hostinfo.Read(found)
}

// release is in what nvcc --version prints: "Cuda compilation tools, release 12.4, V12.4.131".
var release = regexp.MustCompile(`release ([0-9]{1,3}\.[0-9]{1,3})\b`)

// askNVCC returns the version of a compiler, "" if it does not say one within two seconds. Only a program of root or of
// the caller is started.
func askNVCC(ctx context.Context, program string) string {
	info, err := os.Stat(program)
	if err != nil {
		return ""
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || owner.Uid != 0 && owner.Uid != uint32(os.Geteuid()) {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	out := &sys.Bounded{Most: 64 << 10}
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.Stdout = out
	cmd.WaitDelay = 100 * time.Millisecond
	if cmd.Run() != nil {
		return ""
	}
	if found := release.FindSubmatch(out.Text.Bytes()); found != nil {
		return string(found[1])
	}
	return ""
}

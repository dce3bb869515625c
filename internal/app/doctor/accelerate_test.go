package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/visible"
)

func TestSiteAccelerate(t *testing.T) {
	const file = "huggingface/accelerate/default_config.yaml"
	const text = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\ngpu_ids: 0,1\nnum_processes: 2\n"
	root := planted(t, map[string]string{
		"home/.cache/" + file: text, "cache/" + file: "gpu_ids: all\n", "hub/accelerate/default_config.yaml": "a: 1\ngpu_ids: '2'\n",
		"null/" + file: "gpu_ids: null\n", "list/" + file: "gpu_ids: [0]\n", "broken/" + file: "gpu_ids: {\n", "folder/" + file + "/x": "",
	})
	in := func(name string) string { return filepath.Join(root, name) }
	if err := os.MkdirAll(in("pipe/huggingface/accelerate"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(in("pipe/"+file), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		env     visible.Env
		want    hostinfo.Accelerate
		problem string
	}{
		"usual":                   {visible.Env{"HOME=" + in("home")}, hostinfo.Accelerate{Path: in("home/.cache/" + file), GPUIDs: "0,1", Line: 3}, ""},
		"XDG_CACHE_HOME":          {visible.Env{"HOME=" + in("home"), "XDG_CACHE_HOME=" + in("cache")}, hostinfo.Accelerate{Path: in("cache/" + file), GPUIDs: "all", Line: 1}, ""},
		"HF_HOME":                 {visible.Env{"HOME=" + root, "XDG_CACHE_HOME=" + in("cache"), "HF_HOME=~/hub"}, hostinfo.Accelerate{Path: in("hub/accelerate/default_config.yaml"), GPUIDs: "2", Line: 2}, ""},
		"not there":               {visible.Env{"HOME=" + root}, hostinfo.Accelerate{Path: filepath.Join(root, ".cache", file)}, ""},
		"in the current folder":   {visible.Env{"HOME=" + root, "HF_HOME="}, hostinfo.Accelerate{}, ""},
		"no home":                 {nil, hostinfo.Accelerate{}, ""},
		"null, which is all":      {visible.Env{"XDG_CACHE_HOME=" + in("null")}, hostinfo.Accelerate{Path: in("null/" + file)}, ""},
		"not what it takes":       {visible.Env{"XDG_CACHE_HOME=" + in("list")}, hostinfo.Accelerate{Path: in("list/" + file)}, ""},
		"not YAML":                {visible.Env{"XDG_CACHE_HOME=" + in("broken")}, hostinfo.Accelerate{}, "cannot read the file as YAML"},
		"a pipe nobody writes to": {visible.Env{"XDG_CACHE_HOME=" + in("pipe")}, hostinfo.Accelerate{}, "must be a plain file"},
		"a folder":                {visible.Env{"XDG_CACHE_HOME=" + in("folder")}, hostinfo.Accelerate{}, "must be a plain file"},
	} {
		got := siteAccelerate(t.Context(), &machine.Host{Env: c.env})
		if got.Found != c.want || (got.Problem == "") != (c.problem == "") || !strings.Contains(got.Problem, c.problem) {
			t.Errorf("%s: %+v, want %+v, %q", name, got, c.want, c.problem)
		}
	}

	if os.Geteuid() != 0 {
		return
	}
	if err := os.Lchown(in("cache/"+file), 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if got := siteAccelerate(t.Context(), &machine.Host{Env: visible.Env{"XDG_CACHE_HOME=" + in("cache")}}); !strings.Contains(got.Problem, "belongs to another user") {
		t.Errorf("another user's: %+v", got)
	}
}

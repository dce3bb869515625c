package doctor

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/files"
	"gpuard/internal/text/yamltree"
)

// siteAccelerate reads the caller's settings of accelerate launch. They lie where the variables say, whatever the root
// is.
func siteAccelerate(_ context.Context, host *machine.Host) hostinfo.Answer[hostinfo.Accelerate] {
	found := hostinfo.Accelerate{Path: accelerateFile(host.Env)}
	if !filepath.IsAbs(found.Path) {
		return hostinfo.AnswerOf(hostinfo.Accelerate{})
	}

	text, err := files.ReadFile(found.Path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return hostinfo.AnswerOf(found)
	case err != nil:
		return hostinfo.NoAnswer[hostinfo.Accelerate](found.Path + ": " + err.Error())
	case !text.IsOwnedBy(uint32(os.Geteuid())): //nolint:gosec // a uid
		return hostinfo.NoAnswer[hostinfo.Accelerate](found.Path + " belongs to another user")
	}

	docs, err := yamltree.Parse(text.Content)
	if err != nil {
		return hostinfo.NoAnswer[hostinfo.Accelerate](found.Path + ": " + err.Error())
	}

	for _, doc := range docs {
		if ids := doc.Find("gpu_ids"); ids != nil && ids.Kind == yamltree.Scalar && !ids.Null {
			found.GPUIDs, found.Line = ids.Text, ids.At.Line
		}
	}

	return hostinfo.AnswerOf(found)
}

// accelerateFile is where accelerate looks for its settings. Source: huggingface/accelerate
// src/accelerate/commands/config/config_args.py.
func accelerateFile(env visible.Env) string {
	home, _ := env.Lookup("HOME")
	cache, hasCache := env.Lookup("XDG_CACHE_HOME")
	if !hasCache {
		cache = "~/.cache"
	}

	folder, isSet := env.Lookup("HF_HOME")
	if !isSet {
		folder = filepath.Join(cache, "huggingface")
	}

	if rest, ok := strings.CutPrefix(folder, "~/"); ok {
		folder = filepath.Join(cmp.Or(home, "~"), rest)
	}

	return filepath.Join(folder, "accelerate/default_config.yaml")
}

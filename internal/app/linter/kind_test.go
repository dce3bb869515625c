package linter

import (
	"testing"

	"gpuard/internal/core/lint"
)

func TestKind(t *testing.T) {
	for _, c := range []struct {
		path, text string
		want       lint.Kind
	}{
		{"train.py", "", lint.Python},
		{"TRAIN.PY", "", lint.Python},
		{"demo.ipynb", "", lint.Notebook},
		{"run.sh", "", lint.Shell},
		{"job.sbatch", "", lint.Shell},
		{"home/.bashrc", "", lint.Shell},
		{".envrc", "", lint.Shell},
		{"Dockerfile", "", lint.Dockerfile},
		{"Dockerfile.cuda", "", lint.Dockerfile},
		{"cuda.dockerfile", "", lint.Dockerfile},
		{"Containerfile", "", lint.Dockerfile},
		{"compose.yaml", "", lint.Compose},
		{"docker-compose.gpu.yml", "", lint.Compose},
		{"docker-compose-dev.yml", "", lint.Compose},
		{"environment.yml", "", lint.Conda},
		{"environment-gpu.yaml", "", lint.Conda},
		{"a/.github/workflows/test.yml", "", lint.Workflow},
		{"workflows/test.yml", "a: 1\n", ""},
		{"train.service", "", lint.Unit},
		{"train.service.d/gpu.conf", "", lint.Unit},
		{"nginx.conf", "", ""},
		{"blender.desktop", "", lint.Desktop},
		{"train", "#!/usr/bin/env python3\n", lint.Python},
		{"train", "#!/usr/bin/env -S uv run --script\n", lint.Python},
		{"train", "#! /usr/bin/python3.11 -u\n", lint.Python},
		{"train", "#!/bin/bash -l\n", lint.Shell},
		{"train", "#!/usr/bin/env -S CUDA_VISIBLE_DEVICES=0 bash\n", lint.Shell},
		{"train", "#!/usr/bin/fish\n", lint.Fish},
		{"train.job", "#!/bin/tcsh -f\n", lint.Csh},
		{"train", "#!/usr/bin/make -f\n", lint.Makefile},
		{"train.txt", "# a\n\n#SBATCH --gres=gpu:1\n", lint.Shell},
		{"train.sub", "#BSUB -q gpu\n", lint.Shell},
		{"train.sub", "executable = a.sh\nrequest_gpus = 1\n", ""},
		{"train.in", "#$ -l gpu=1\n", lint.Shell},
		{"train.in", "a\n#PBS -l ngpus=1\n", ""},
		{"job.pbs", "", lint.Shell},
		{"home/.zshrc", "", lint.Shell},
		{".cshrc", "", lint.Csh},
		{"fish/config.fish", "", lint.Fish},
		{"Makefile", "", lint.Makefile},
		{"rules.mk", "", lint.Makefile},
		{".gitlab-ci.yml", "", lint.GitLab},
		{"ci/gpu.gitlab-ci.yml", "", lint.GitLab},
		{"crontab", "", lint.Crontab},
		{"etc/cron.d/train", "", lint.Crontab},
		{"supervisord.conf", "", lint.Supervisor},
		{"etc/supervisor/conf.d/web.conf", "", lint.Supervisor},
		{".vscode/launch.json", "", lint.Launch},
		{"kernels/gpu/kernel.json", "", lint.Kernel},
		{"train", "#!/usr/bin/perl\n", ""},
		{"train", "#!\n", ""},
		{"train", "export CUDA_VISIBLE_DEVICES=0\n", ""},
		{"gpu.yml", "services:\n  web:\n    image: x\n", lint.Compose},
		{"gpu.yml", "name: x\nchannels:\n  - conda-forge\ndependencies:\n  - python\n", lint.Conda},
		{"ci.yml", "name: x\non: push\njobs:\n  a: {}\n", lint.Workflow},
		{"gitlab.yml", "services:\n  - docker:dind\n", ""},
		{"pod.yml", "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: x\n", lint.Kubernetes},
		{"chart.yml", "apiVersion: v1\nkind: Pod\nspec:\n  containers: {{ x }}\n", ""},
		{"-", "#!/bin/sh\n", lint.Shell},
		{"README.md", "", lint.Markdown},
	} {
		kind := kindByName(c.path)
		if kind == "" {
			kind = guessKind(c.path, []byte(c.text))
		}
		if kind != c.want {
			t.Errorf("%s %q is %q, want %q", c.path, c.text, kind, c.want)
		}
	}
}

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// standInFunctions say which GPUs a stand-in uses, as UUIDs: by numbers of the whole machine, inside the list that it was
// given, or all of that list. A number without a GPU is "none".
const standInFunctions = `
nth() { want=$(($1 + 1)); shift; eval "echo \${$want:-none}"; }
machine() { for n in $(echo "$1" | tr , ' '); do nth $n $ALL; done; }
listed() {
	[ -n "${CUDA_VISIBLE_DEVICES+set}" ] || { echo $ALL | tr ' ' '\n'; return; }
	for d in $(echo "$CUDA_VISIBLE_DEVICES" | tr , ' '); do
		case $d in [0-9]*) nth $d $ALL;; *) echo $d;; esac
	done
}
inside() { for n in $(echo "$1" | tr , ' '); do nth $n $(listed); done; }
first() { i=0; while [ $i -lt $1 ]; do inside $i; i=$((i + 1)); done; }
value() { want=$1; shift; while [ $# -gt 0 ]; do case $1 in $want) echo $2;; $want=*) echo ${1#*=};; esac; shift; done; }
uses() { for d in "$@"; do echo "uses $d"; done; }
count() { n=$(value $1 "$@"); shift; uses $(first ${n:-1}); }
`

// standIn is a program that does to the list of GPUs what the real one does; sources are those of the table
// (internal/core/launchers/table.go).
type standIn struct {
	name   string
	script string   // what it does, in shell
	leaves []string // a command line that leaves the lease of one GPU
	right  []string // one that does not
	rights int      // GPUs of the right one; 0: one
}

// thereIs starts its command where the variables of the lease are not: on another machine, or in a session of its own.
const thereIs = `unset CUDA_VISIBLE_DEVICES; uses $(listed)`

func standIns() []standIn {
	counted := func(flag string) string {
		return `n=$(value ` + flag + ` "$@"); uses $(first ${n:-1})`
	}
	return []standIn{
		{name: "env", leaves: []string{"env", "CUDA_VISIBLE_DEVICES=0", "mtools"}, right: []string{"env", "OMP_NUM_THREADS=4", "mtools"}},
		{name: "sh", leaves: []string{"sh", "-c", "CUDA_VISIBLE_DEVICES=0 mtools"}, right: []string{"sh", "-c", "OMP_NUM_THREADS=4 mtools"}},
		{name: "nohup", leaves: []string{"nohup", "env", "CUDA_VISIBLE_DEVICES=0", "mtools"}, right: []string{"nohup", "mtools"}},
		{name: "accelerate", script: `ids=$(value --gpu_ids "$@"); [ -z "$ids" ] || export CUDA_VISIBLE_DEVICES=$ids; uses $(listed)`,
			leaves: []string{"accelerate", "launch", "--gpu_ids", "0", "t.py"}, right: []string{"accelerate", "launch", "t.py"}},
		{name: "deepspeed", script: `ids=$(value --include "$@"); [ -z "$ids" ] || export CUDA_VISIBLE_DEVICES=${ids#*:}; uses $(listed)`,
			leaves: []string{"deepspeed", "--include", "localhost:0", "t.py"}, right: []string{"deepspeed", "t.py"}},
		{name: "torchrun", script: counted("--nproc_per_node"), leaves: []string{"torchrun", "--nproc_per_node=2", "t.py"}, right: []string{"torchrun", "--nproc_per_node=2", "t.py"}, rights: 2},
		{name: "horovodrun", script: counted("-np"), leaves: []string{"horovodrun", "-np", "2", "python", "t.py"}, right: []string{"horovodrun", "-np", "1", "python", "t.py"}},
		{name: "vllm", script: counted("--tensor-parallel-size"), leaves: []string{"vllm", "serve", "m", "--tensor-parallel-size", "2"}, right: []string{"vllm", "serve", "m"}},
		{name: "lmdeploy", script: counted("--tp"), leaves: []string{"lmdeploy", "serve", "api_server", "m", "--tp", "2"}, right: []string{"lmdeploy", "serve", "api_server", "m"}},
		{name: "text-generation-launcher", script: counted("--num-shard"), leaves: []string{"text-generation-launcher", "--num-shard", "2"}, right: []string{"text-generation-launcher", "--num-shard", "1"}},
		{name: "python", script: `case $1$2 in
			main.py*) ids=$(value --cuda-device "$@"); [ -z "$ids" ] || export CUDA_VISIBLE_DEVICES=$ids; uses $(listed);;
			-msglang*) n=$(value --tp "$@"); uses $(first ${n:-1});;
			*) uses $(listed);; esac`,
			leaves: []string{"python", "main.py", "--cuda-device", "0"}, right: []string{"python", "main.py", "--listen"}},
		{name: "sglang", leaves: []string{"python", "-m", "sglang.launch_server", "--tp", "2"}, right: []string{"python", "-m", "sglang.launch_server", "--tp", "1"}},
		{name: "yolo", script: `ids=$(value device "$@"); [ -z "$ids" ] || export CUDA_VISIBLE_DEVICES=$ids; uses $(listed)`,
			leaves: []string{"yolo", "train", "model=yolo11n.pt", "device=0"}, right: []string{"yolo", "train", "model=yolo11n.pt"}},
		{name: "llama-server", script: `n=$(value -mg "$@"); uses $(inside ${n:-0})`,
			leaves: []string{"llama-server", "-m", "m.gguf", "-sm", "none", "-mg", "1"}, right: []string{"llama-server", "-m", "m.gguf"}},
		{name: "ffmpeg", script: `n=$(value -hwaccel_device "$@"); uses $(inside ${n:-0})`,
			leaves: []string{"ffmpeg", "-hwaccel", "cuda", "-hwaccel_device", "1", "-i", "a", "b"}, right: []string{"ffmpeg", "-hwaccel", "cuda", "-i", "a", "b"}},
		{name: "ollama", script: `[ $1 = serve ] && uses $(listed) || { ` + thereIs + `; }`, leaves: []string{"ollama", "run", "llama3"}, right: []string{"ollama", "serve"}},
		{name: "ssh", script: `case "$*" in *gpuard*|*-N*) ;; *) ` + thereIs + `;; esac`, leaves: []string{"ssh", "node7", "python", "t.py"}, right: []string{"ssh", "-N", "-L", "8888:localhost:8888", "box"}},
		{name: "kubectl", script: `[ $1 != exec ] || { ` + thereIs + `; }`, leaves: []string{"kubectl", "exec", "pod", "--", "python", "t.py"}, right: []string{"kubectl", "get", "pods"}},
		{name: "systemd-run", script: `case "$*" in *--scope*) uses $(listed);; *) ` + thereIs + `;; esac`,
			leaves: []string{"systemd-run", "--user", "python", "t.py"}, right: []string{"systemd-run", "--user", "--scope", "python", "t.py"}},
		{name: "su", script: thereIs, leaves: []string{"su", "-", "alice", "-c", "python t.py"}},
		{name: "sudo", script: `[ $1 = -E ] || unset CUDA_VISIBLE_DEVICES; uses $(listed)`, leaves: []string{"sudo", "python", "t.py"}, right: []string{"sudo", "-E", "python", "t.py"}},
		{name: "apptainer", script: `case "$*" in *--cleanenv*) unset CUDA_VISIBLE_DEVICES;; esac; uses $(listed)`,
			leaves: []string{"apptainer", "exec", "--nv", "--cleanenv", "x.sif", "python", "t.py"}, right: []string{"apptainer", "exec", "--nv", "x.sif", "python", "t.py"}},
		{name: "gmx", script: `ids=$(value -gpu_id "$@"); for n in $(echo ${ids:-0} | fold -w1); do uses $(inside $n); done`,
			leaves: []string{"gmx", "mdrun", "-gpu_id", "01"}, right: []string{"gmx", "mdrun", "-gpu_id", "01"}, rights: 2},
		{name: "dorado", script: `ids=$(value --device "$@"); uses $(inside $(echo ${ids#cuda:}))`,
			leaves: []string{"dorado", "basecaller", "--device", "cuda:0,1", "sup", "in"}, right: []string{"dorado", "basecaller", "--device", "cuda:0", "sup", "in"}},
		{name: "singularity", script: `case "$*" in *CUDA_VISIBLE_DEVICES=0*) export CUDA_VISIBLE_DEVICES=0;; esac; uses $(listed)`,
			leaves: []string{"singularity", "exec", "--nv", "--env", "CUDA_VISIBLE_DEVICES=0", "x.sif", "python", "t.py"}, right: []string{"singularity", "exec", "--nv", "x.sif", "python", "t.py"}},
	}
}

// TestStandIns: 25 programs that treat the list of GPUs as the real ones do. A command line that leaves the lease is
// refused or warned of, and does leave it when it is started all the same; a right one uses the GPUs of the lease and
// passes in silence.
func TestStandIns(t *testing.T) {
	t.Parallel()
	bin, state := t.TempDir(), stateFolder(t)
	all := make([]string, 4)
	for i := range all {
		got := runCommand(t, gpuardCommand(t, state, nil, "run", "-q", "--machine", "demo", "--device", string(rune('0'+i)), "--", "sh", "-c", "echo $GPUARD_GPUS"))
		all[i] = strings.TrimSpace(got.out)
	}
	programs := append(standIns(), standIn{name: "mtools", script: `uses $(listed)`})
	for _, p := range programs {
		if p.script != "" {
			writeFile(t, filepath.Join(bin, p.name), "#!/bin/sh\n"+standInFunctions+p.script+"\n", 0o755)
		}
	}
	env := []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "ALL=" + strings.Join(all, " ")}
	start := func(command []string, flags ...string) (got runResult, used []string) {
		got = runCommand(t, gpuardCommand(t, state, env, slices.Concat([]string{"run", "-q", "--machine", "demo"}, flags, []string{"--"}, command)...))
		for _, line := range strings.Split(got.out, "\n") {
			if id, ok := strings.CutPrefix(line, "uses "); ok {
				used = append(used, id)
			}
		}
		return got, used
	}
	for _, p := range standIns() {
		got, used := start(p.leaves, "--device", "1")
		if got.err == "" || got.code != 0 && len(used) > 0 {
			t.Errorf("%q leaves its lease: ends with %d, says %q, uses %q", p.leaves, got.code, got.err, used)
		}
		if _, used = start(p.leaves, "--device", "1", "--anyway"); !slices.ContainsFunc(used, func(id string) bool { return id != all[1] }) {
			t.Errorf("%q uses %q and does not leave %s: what does it show?", p.leaves, used, all[1])
		}
		if p.right == nil {
			continue
		}
		lease := map[int]string{0: "1", 2: "1,2"}[p.rights]
		got, used = start(p.right, "--device", lease)
		strays := slices.ContainsFunc(used, func(id string) bool { return id != all[1] && (p.rights != 2 || id != all[2]) })
		if got.code != 0 || got.err != "" || strays {
			t.Errorf("%q is right: ends with %d, says %q, uses %q", p.right, got.code, got.err, used)
		}
	}
	if n := len(standIns()); n < 25 {
		t.Errorf("%d programs, want 25", n)
	}
}

package ranks

import (
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/visible"
)

// TestReadTorchrun: options end where the script begins, are passed on in the spelling of every version, and conflicts
// with gpuard are refused with the reason.
func TestReadTorchrun(t *testing.T) {
	for words, want := range map[string]string{
		"train.py":                             "| |train.py",
		"train.py --nproc-per-node 3":          "| |train.py --nproc-per-node 3",
		"--max-restarts 3 train.py -m":         "--max_restarts 3| |train.py -m",
		"--max_restarts=3 train.py":            "--max_restarts 3| |train.py",
		"--tee 3 --log-dir /tmp/x -- train.py": "--tee 3 --log_dir /tmp/x| |train.py",
		"-r 3 -t3 --role=x train.py":           "--redirects 3 --tee 3 --role x| |train.py",
		"-m package.train --lr 1":              "|m|package.train --lr 1",
		"--module package.train":               "|m|package.train",
		"--no_python ./solver -x":              "|p|./solver -x",
		"--rdzv-conf timeout=5 - x":            "--rdzv_conf timeout=5| |- x",

		"python3_tools.py":              "| |python3_tools.py",
		"-m python":                     "|m|python",
		"/opt/bin/python3.12 train.py":  "!write the script alone",
		"torchrun train.py":             "!write the script alone",
		"python train.py":               "!write the script alone",
		"":                              "!without a script",
		"--max-restarts 3":              "!without a script",
		"--max-restarts":                "!needs a value",
		"--nproc-per-node 3 train.py":   "!gpuard counts the processes",
		"--nproc_per_node=gpu train.py": "!gpuard counts the processes",
		"--master_port 5 train.py":      "!where to connect",
		"--nnodes=2 train.py":           "!this one machine",
		"--standalone train.py":         "!this one machine",
		"--rdzv-endpoint=a:1 t.py":      "!where to connect",
		"--run-path /t.py":              "!begins through gpuard",
		"--numa-binding node t.py":      "!binds each process",
		"--virtual-local-rank t.py":     "!--ranks=own",
		"--nproc 3 train.py":            "!written in full",
		"--lr 0.1 train.py":             "!no option of torchrun",
		"-q train.py":                   "!no option of torchrun",
		"--module=x train.py":           "!takes no value",
		"-m --no-python x":              "!leave one of them out",
	} {
		got, err := ReadTorchrun(strings.Fields(words))
		if reason, bad := strings.CutPrefix(want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), reason) || !strings.HasPrefix(err.Error(), "cannot ") {
				t.Errorf("%q: %v, want %q", words, err, reason)
			}
			continue
		}
		kind := " "
		if got.Module {
			kind = "m"
		} else if got.Plain {
			kind = "p"
		}
		if text := strings.Join(got.Options, " ") + "|" + kind + "|" + strings.Join(got.Script, " "); err != nil || text != want {
			t.Errorf("%q: %q, %v; want %q", words, text, err, want)
		}
	}
}

// TestLine: one number of processes, one port, and each process through the shim.
func TestLine(t *testing.T) {
	for words, want := range map[string]string{
		"-t 3 -r 0 train.py -x": "--no_python --tee 3 --redirects 0 /bin/gpuard __rank python -u train.py -x",
		"--logs-specs x t.py":   "--no_python --logs_specs x /bin/gpuard __rank python -u t.py",
		"--tee 3 train.py":      "--no_python --redirects 9:1 --tee 3 /bin/gpuard __rank python -u train.py",
		"-m train":              "--no_python --redirects 9:1 --tee 9:1 /bin/gpuard __rank python -u -m train",
		"--no-python ./solver":  "--no_python --redirects 9:1 --tee 9:1 /bin/gpuard __rank program ./solver",
	} {
		r, err := ReadTorchrun(strings.Fields(words))
		if err != nil {
			t.Fatal(err)
		}
		line := strings.Join(r.Line(nil, 4, 41873, []string{"/bin/gpuard", "__rank"}), " ")
		if !strings.HasSuffix(line, want) {
			t.Errorf("%q: %s", words, line)
		}
		for _, part := range []string{"--nproc_per_node 4 ", "--rdzv_backend static ", "--rdzv_endpoint 127.0.0.1:41873 ", "--master_port 41873 ", "--nnodes 1 "} {
			if strings.Count(line, part) != 1 {
				t.Errorf("%q is not there once: %s", part, line)
			}
		}
	}
}

// TestStreams: the options for old versions name no existing rank, and do not override the user's variables.
func TestStreams(t *testing.T) {
	train := Torchrun{Script: []string{"t.py"}}
	for count, want := range map[int]string{1: "--redirects 9:1 --tee 9:1", 9: "--redirects 9:1 --tee 9:1", 10: "", 64: ""} {
		if got := strings.Join(train.streamOptions(nil, count), " "); got != want {
			t.Errorf("%d ranks: %q, want %q", count, got, want)
		}
	}
	if got := strings.Join(train.streamOptions(visible.Env{"PET_REDIRECTS=1"}, 2), " "); got != "--tee 9:1" {
		t.Errorf("with PET_REDIRECTS: %q", got)
	}
}

// TestOverruled: the variables of what gpuard decides, and no others.
func TestOverruled(t *testing.T) {
	names := OverruledVariables()
	for _, name := range []string{"PET_NPROC_PER_NODE", "PET_STANDALONE", "PET_MASTER_PORT", "PET_RDZV_ENDPOINT", "PET_NO_PYTHON", "PET_MODULE", "PET_RUN_PATH"} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is passed on", name)
		}
	}
	if slices.Contains(names, "PET_MAX_RESTARTS") {
		t.Error("PET_MAX_RESTARTS is the user's own")
	}
}

// FuzzReadTorchrun: no input panics, the script's words are the last ones, and the options that are passed on are
// accepted again.
func FuzzReadTorchrun(f *testing.F) {
	f.Add("--max-restarts 3 -m x y")
	f.Add("-r3 -t=2 -- --x")
	f.Fuzz(func(t *testing.T, text string) {
		words := strings.Split(text, " ")
		got, err := ReadTorchrun(words)
		if err != nil {
			return
		}
		if len(got.Script) == 0 || !slices.Equal(words[len(words)-len(got.Script):], got.Script) {
			t.Fatalf("%q: the script is %q", words, got.Script)
		}
		again, err := ReadTorchrun(append(append(slices.Clone(got.Options), "--"), got.Script...))
		if err != nil || !slices.Equal(again.Options, got.Options) {
			t.Fatalf("%q was passed on as %q, which is %q, %v", words, got.Options, again.Options, err)
		}
	})
}

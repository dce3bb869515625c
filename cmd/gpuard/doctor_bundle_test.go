package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// unpackBundle reads an archive: the texts of its files by name.
func unpackBundle(t testing.TB, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	zip, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for tape := tar.NewReader(zip); ; {
		head, err := tape.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(tape)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(head.Name)] = string(text)
	}
}

// TestDoctorBundle: only the caller can read the archive, it overwrites nothing, has what a maintainer needs, and names
// no user and no machine unless that is asked for.
func TestDoctorBundle(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	r.AddProcess(0, os.Getpid(), 1<<30, "C")
	home := filepath.Join(t.TempDir(), "quentin", "Grand Plan")
	host, _ := os.Hostname()
	env := []string{"USER=quentin", "LOGNAME=quentin", "HOME=" + home, "VIRTUAL_ENV=" + home + "/thesis/.venv", "HOSTNAME=frodo17", "MASTER_ADDR=frodo18", "JAX_COORDINATOR_ADDRESS=frodo17:1234",
		"NCCL_SOCKET_IFNAME=10.20.30.40", "CUDA_CACHE_PATH=/data9/patients9/cache", "NVIDIA_API_KEY=nvapi-topsecret9", "VLLM_SIGN_KEY=topsecret9", "NCCL_DEBUG_FILE=/data9/Cancer Study/Ward7x/log", "XLA_FLAGS=--xla_dump_to=dumps9/ward7x", "CUDA_VISIBLE_DEVICES=" + fakeUUID(1)}
	secrets := []string{"quentin", "Grand Plan", "thesis", "frodo17", "frodo18", "10.20.30.40", "patients9", "topsecret9", "cancer", "study", "ward7x", fakeUUID(0), fakeUUID(1)}
	bundle := func(path string, more ...string) runResult {
		cmd := r.cmd(append([]string{"doctor", "--bundle=" + path}, more...)...)
		cmd.Env = append(cmd.Env, env...)
		return runCommand(t, cmd)
	}

	path := filepath.Join(t.TempDir(), "bug.tar.gz")
	got := bundle(path)
	if got.code != 0 || !strings.HasPrefix(got.out, "GPU programs will") || !strings.Contains(got.out, "wrote "+path) {
		t.Fatalf("%d %s%s", got.code, got.out, got.err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the archive is %v %v", info.Mode(), err)
	}
	files := unpackBundle(t, path)
	for _, name := range []string{"README.txt", "doctor.json", "machine.json", "site.json", "environment.txt", "kernel-log.txt", "state.txt", "system.txt"} {
		if len(files[name]) < 2 || !strings.Contains(got.out, name) {
			t.Errorf("%s is empty, or not told: %q", name, files[name])
		}
	}
	for name, text := range files {
		for _, secret := range secrets {
			if strings.Contains(strings.ToLower(text), strings.ToLower(secret)) {
				t.Errorf("%s has %q in it:\n%s", name, secret, text)
			}
		}
		if len(host) > 4 && strings.Contains(text, host) {
			t.Errorf("%s has the name of this computer in it", name)
		}
	}
	for file, part := range map[string]string{"environment.txt": "CUDA_VISIBLE_DEVICES=GPU-0000000", "machine.json": "NVIDIA A100-SXM4-80GB", "doctor.json": `"gpuard.doctor/1"`} {
		if !strings.Contains(files[file], part) {
			t.Errorf("%s lacks %q:\n%s", file, part, files[file])
		}
	}
	recorded := filepath.Join(t.TempDir(), "machine.json")
	if err := os.WriteFile(recorded, []byte(files["machine.json"]), 0o600); err != nil {
		t.Fatal(err)
	}
	if status := runCommand(t, gpuardCommand(t, stateFolder(t), nil, "status", "--machine", recorded)); status.code != 0 {
		t.Errorf("its machine cannot be read: %s", status.err)
	}

	before, _ := os.ReadFile(path)
	if got := bundle(path); got.code != 1 || !strings.Contains(got.err, "there is such a file already") {
		t.Errorf("a second time: %d %s", got.code, got.err)
	}
	if after, _ := os.ReadFile(path); string(before) != string(after) {
		t.Error("the second changed the first")
	}

	folder := t.TempDir()
	if got := bundle(folder, "--no-scrub"); got.code != 0 {
		t.Fatalf("%d %s", got.code, got.err)
	}
	made, _ := filepath.Glob(filepath.Join(folder, "gpuard-doctor-*.tar.gz"))
	if len(made) != 1 {
		t.Fatalf("in the folder are %q", made)
	}
	files = unpackBundle(t, made[0])
	if !strings.Contains(files["environment.txt"], "frodo18") || !strings.Contains(files["machine.json"], fakeUUID(0)) {
		t.Errorf("--no-scrub leaves out %q", files["environment.txt"])
	}
	if strings.Contains(files["environment.txt"], "topsecret9") {
		t.Error("a password is in it")
	}
}

// TestDoctorMistakes: what is asked for wrongly is told before anything is looked at or written.
func TestDoctorMistakes(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for args, part := range map[string]string{
		"doctor nonsense":                        "cannot ",
		"doctor --bundle bug.tar.gz":             "write --bundle=bug.tar.gz",
		"doctor --bundle=":                       "--bundle",
		"doctor --bundle --json":                 "cannot use --bundle with --json",
		"doctor --no-scrub":                      "cannot use --no-scrub without --bundle",
		"doctor --why":                           "such as --why xid-errors",
		"lint --why mask-range .":                "gpuard doctor --why CODE",
		"doctor --for":                           "such as --for .venv",
		"doctor --why mask-rang":                 "did you mean mask-range?",
		"doctor --why no-such-code":              `cannot explain the code "no-such-code"`,
		"doctor --why env-mask-hides-all --json": "cannot use --why with --json",
		"doctor --for=":                          "--for",
		"doctor --machine demo --for .venv":      "cannot look at Python environments of demo",
		"doctor --machine no-such-file":          "cannot read the machine file",
		"doctor --for=/nonexistent/venv-9":       "/nonexistent/venv-9",
	} {
		cmd := gpuardCommand(t, stateFolder(t), nil, strings.Fields(args)...)
		cmd.Dir = folder
		got := runCommand(t, cmd)
		if told := got.err + got.out; got.code != 2 || got.out != "" && got.err != "" || !strings.Contains(told, part) || !strings.Contains(told, "cannot ") {
			t.Errorf("%s: %d %s%s", args, got.code, got.out, got.err)
		}
	}
	if made, _ := os.ReadDir(folder); len(made) > 0 {
		t.Errorf("%v was written", made)
	}
	got := runCommand(t, gpuardCommand(t, stateFolder(t), nil, "doctor", "--why", "Env-Mask-Hides-All"))
	if got.code != 0 || !strings.HasPrefix(got.out, "env-mask-hides-all: ") || len(strings.Fields(got.out)) < 30 {
		t.Errorf("--why: %d %s%s", got.code, got.out, got.err)
	}
}

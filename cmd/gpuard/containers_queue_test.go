package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestContainerInQueue: the engine of a job in the queue is told of the GPUs of its lease as by run, and the container is over with the
// job, also when that is cancelled.
func TestContainerInQueue(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 2)
	bin := t.TempDir()
	folder := installStubDocker(t, bin, "stubengine")
	writeFile(t, filepath.Join(bin, "docker"), "#!/bin/sh\n[ \"$1\" = run ] && echo \"engine: $@\"\nENGINE="+folder+" exec stubengine \"$@\"\n", 0o755)
	l.env = append(l.env, "PATH="+bin+":"+os.Getenv("PATH"), "DOCKER_HOST=unix:///none")
	engineOf := func(text string) string {
		_, line, _ := strings.Cut(text, "engine: ")
		line, _, _ = strings.Cut(line, "\n")
		line = regexp.MustCompile(` --label gpuard.job=\w+`).ReplaceAllString(line, "") // by which one that is looked after is found
		return regexp.MustCompile(`lease=\w+`).ReplaceAllString(line, "lease=LEASE")
	}
	script := []string{"--", "docker", "run", "--rm", "image", "sh", "-c", "echo has $GPUARD_GPUS"}
	for i, flags := range [][]string{{"--device", "1"}, {"--device", "1", "--timeout", "1h"}, {"--cpu"}, {"--gpus", "2", "--log", filepath.Join(bin, "log")}} {
		direct := runCommand(t, l.hastyCommand(append(append([]string{"run", "-q"}, flags...), script...)...))
		want := engineOf(direct.out)
		if (flags[0] == "--device") != strings.Contains(want, `--gpus "device=`+fakeUUID(1)+`"`) {
			t.Fatalf("run %q: %s%s", flags, direct.out, direct.err)
		}
		got := runCommand(t, l.submitCommand(append(append([]string{}, flags...), script...)...))
		checkEqual(t, "submit: "+got.err, got.code, 0)
		l.waitUntilAllEnded()
		job := l.endedJobs()[i]
		text, _ := os.ReadFile(job.Log)
		checkEqual(t, strings.Join(flags, " ")+": "+string(text), []any{engineOf(string(text)), job.Exit != nil && *job.Exit == 0}, []any{want, true})
	}

	checkEqual(t, "submit", runCommand(t, l.submitCommand("--device", "1", "--", "docker", "run", "--rm", "image", "sh", "-c", "exec sleep 600")).code, 0)
	waitUntil(t, "the container runs", func() bool { return len(liveContainers(folder, "")) == 1 })
	checkEqual(t, "its GPU is leased", l.leasedDevices(), 1)
	got := runCommand(t, l.hastyCommand("cancel", "5"))
	checkEqual(t, "cancel: "+got.err, got.code, 0)
	l.waitUntilAllEnded()
	waitUntil(t, "the container has ended", func() bool { return len(liveContainers(folder, "")) == 0 })
	waitUntil(t, "its GPU is free", func() bool { return l.leasedDevices() == 0 })

	for says, words := range map[string]string{
		"cannot queue a container in the background":                         "docker run -d image",
		"of containers a queue starts those of docker run alone":             "docker compose up",
		"cannot queue this command of docker":                                "docker exec c x",
		"cannot give a share of a GPU to a container":                        "--share 8G docker run image",
		"cannot use --verify with a container":                               "--verify docker run image",
		"cannot use --retry with a container that leaves its name":           "--retry 1 docker run --name x image",
		"cannot use --drift with a container: it keeps the GPUs that it was": "--drift docker run image",
	} {
		got := runCommand(t, l.hastyCommand(append([]string{"submit"}, strings.Fields(words)...)...))
		checkEqual(t, words+": "+got.out+got.err, got.code, 125)
		checkContains(t, got.err, says)
	}
}

// leasedDevices is how many devices of the machine have a lease.
func (r *fakeDriverMachine) leasedDevices() (n int) {
	r.t.Helper()
	report, _ := r.readStatus()
	for _, d := range report.Devices {
		if len(d.Leases) > 0 {
			n++
		}
	}
	return n
}

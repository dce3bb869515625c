package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/loader"
	"gpuard/internal/host/proc"
)

// program: these command lines end with 0. The first word of each is the name of the program; where there is only that,
// it is looked for and not run.
func program(lines ...string) func() error {
	return func() error {
		for _, line := range lines {
			words := strings.Fields(line)
			if _, err := exec.LookPath(words[0]); err != nil {
				return err
			}
			if len(words) == 1 {
				// Slurm's own say nothing, not even their version, without a cluster.
				continue
			}
			if err := runBriefly(words[0], words[1:]...); err != nil {
				return err
			}
		}
		return nil
	}
}

// runBriefly runs a program that answers at once where it works.
func runBriefly(name string, args ...string) error {
	// On a loaded machine.
	const patience = time.Minute
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(out))
	}

	return nil
}

// bothProbes: the one, and then the other.
func bothProbes(one, other func() error) func() error {
	return func() error {
		if err := one(); err != nil {
			return err
		}
		return other()
	}
}

func fileProbe(path string) func() error {
	return func() error { _, err := os.Stat(path); return err }
}

// checkTorch is the distribution's PyTorch, for the distribution's Python.
func checkTorch() error { return runBriefly("/usr/bin/python3", "-c", "import torch") }

// checkJupyter is the distribution's Jupyter client with its kernel, for the distribution's Python.
func checkJupyter() error {
	return runBriefly("/usr/bin/python3", "-c", "import jupyter_client, ipykernel")
}

// checkCompose is the plugin that docker compose is.
func checkCompose() error {
	if err := runBriefly("docker", "compose", "version"); err != nil {
		return fmt.Errorf("%w; make compose installs it", err)
	}
	return nil
}

// checkNFPM is what make release makes packages with, at the place where make installs it.
func checkNFPM() error {
	if err := fileProbe(folderOf("", ".cache/bin/nfpm"))(); err != nil {
		return fmt.Errorf("%w; make .cache/bin/nfpm installs it", err)
	}
	return nil
}

func checkRoot() error {
	if os.Geteuid() != 0 {
		return unix.EPERM
	}
	return nil
}

// checkTraceable: a process may follow another one, which some containers forbid.
func checkTraceable() error {
	// The tracer is a thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return err
	}

	_, _ = cmd.Process.Kill(), cmd.Wait()

	return nil
}

// cgroup2: this process may make cgroups of version 2 below its own, and no other manager uses those.
func cgroup2() error {
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		return errors.New("systemd manages them")
	}
	const find = `own=$(sed -n s/^0:://p /proc/self/cgroup) && for at in $(awk '/ - cgroup2 /{print $5}' /proc/self/mountinfo); do
test -w "$at$own/cgroup.procs" && test -z "$(cat "$at$own/cgroup.subtree_control")" && exit 0; done; exit 1`
	return exec.Command("sh", "-c", find).Run()
}

// checkFuse: root may mount file systems that a process answers for.
func checkFuse() error {
	if err := checkRoot(); err != nil {
		return err
	}

	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return err
	}

	defer device.Close() //nolint:errcheck // nothing was written

	return namespaceProbe("--mount")()
}

// checkPrivileged: root may mount, and read what belongs to the processes of others. A container gives that only where
// it is asked to (docker run --privileged).
func checkPrivileged() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var held [2]unix.CapUserData
	if err := unix.Capget(&header, &held[0]); err != nil {
		return err
	}
	if held[0].Effective&(1<<unix.CAP_SYS_PTRACE) == 0 {
		return errors.New("CAP_SYS_PTRACE is missing")
	}

	return namespaceProbe("--mount")()
}

// namespaceProbe: root may make namespaces of its own and mount in them, which some containers forbid.
func namespaceProbe(flags ...string) func() error {
	return func() error {
		if err := checkRoot(); err != nil {
			return err
		}
		return exec.Command("unshare", append(flags, "true")...).Run()
	}
}

// mountNamespace: root may make one, and is in the machine's own.
func mountNamespace() error {
	if err := checkRoot(); err != nil {
		return err
	}
	if initial, err := proc.New("/proc").InitialMountNamespace(); err != nil {
		return err
	} else if !initial {
		return errors.New("this is not the machine's own mount namespace")
	}
	return namespaceProbe("--mount")()
}

// noObstacle is for what says why it is not.
func noObstacle(why func() string) func() error {
	return func() error {
		if text := why(); text != "" {
			return errors.New(text)
		}
		return nil
	}
}

// userNamespace: ordinary users may make one, which some containers and distributions forbid.
func userNamespace() error { return runAsUser("unshare", "--user", "--map-current-user", "true") }

// runAsUser runs a program as a user who is not root.
func runAsUser(program string, args ...string) error {
	cmd := exec.Command(program, args...)
	if os.Geteuid() == 0 {
		const daemon = 1
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: daemon, Gid: daemon}}
	}
	return cmd.Run()
}

func checkBubblewrap() error { return runAsUser("bwrap", "--dev-bind", "/", "/", "true") }

// checkCompiler: it makes a library. Some machines have it without the headers of C.
func checkCompiler() error {
	dir, err := os.MkdirTemp("", "gpuard-cc")
	if err != nil {
		return err
	}

	source := filepath.Join(dir, "a.c")
	err = os.WriteFile(source, []byte("#include <stdlib.h>\nint main(void) { return EXIT_SUCCESS; }\n"), 0o600)
	if err == nil {
		err = runBriefly("cc", "-o", filepath.Join(dir, "a"), source)
	}

	return errors.Join(err, os.RemoveAll(dir))
}

func checkDriver() error { return Driver() }

// checkNoLibraries: what a test takes away, the loader does not find elsewhere.
func checkNoLibraries() error {
	found, err := loader.Search{Root: "/", Path: os.Getenv("LD_LIBRARY_PATH")}.Libraries()
	if err != nil {
		return err
	}

	for _, name := range []string{"libnvidia-ml.so.1", "libcuda.so.1"} {
		if library, ok := loader.FirstNamed(found, name); ok {
			return fmt.Errorf("there is %s", library.Path)
		}
	}

	return nil
}

// cgroup1: root may make cgroups of the first version that hide devices.
func cgroup1() error {
	const own = "/sys/fs/cgroup/devices/gpuard-gate"
	err := os.Mkdir(own, 0o755) //nolint:gosec // as its parent
	if err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := fileProbe(own + "/tasks")(); err != nil {
		return err
	}

	// Another process may ask the same.
	_ = os.Remove(own)

	return nil
}

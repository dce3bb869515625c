// Package slurm starts a real Slurm for tests and benchmarks: one controller and one node, on this machine, in a folder
// of their own. The packages are slurm-wlm and munge; no systemd is needed, root is.
package slurm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Cluster is a Slurm that runs until the test ends.
type Cluster struct {
	Dir string   // configuration, state and logs
	Env []string // what Slurm's commands need: SLURM_CONF
}

// Missing says what this machine lacks for Start; empty: nothing.
func Missing() string {
	for _, program := range []string{"slurmctld", "slurmd", "munged", "sbatch"} {
		if _, err := exec.LookPath(program); err != nil {
			return program + " is not installed: apt-get install slurm-wlm munge"
		}
	}
	if os.Getuid() != 0 {
		return "Slurm's node can only be started by root"
	}
	return ""
}

// configuration is that of one node with 16 processors, so that small jobs run beside each other, and a scheduler that
// looks every second instead of every minute.
const configuration = `ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=%[1]s/munge.socket
CredType=cred/munge
SlurmctldPort=%[2]d
SlurmdPort=%[3]d
StateSaveLocation=%[1]s/state
SlurmdSpoolDir=%[1]s/spool
SlurmctldPidFile=%[1]s/slurmctld.pid
SlurmdPidFile=%[1]s/slurmd.pid
SlurmctldLogFile=%[1]s/slurmctld.log
SlurmdLogFile=%[1]s/slurmd.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,sched_min_interval=1,batch_sched_delay=1
ReturnToService=2
MpiDefault=none
NodeName=node0 NodeHostname=localhost NodeAddr=127.0.0.1 CPUs=16 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
`

// Start brings the cluster up and waits until its node takes jobs.
func Start(t testing.TB) Cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "slurm") // short: the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	c := Cluster{Dir: dir, Env: []string{"SLURM_CONF=" + filepath.Join(dir, "slurm.conf")}}
	t.Cleanup(c.stop)
	key := make([]byte, 1024)
	_, _ = rand.Read(key)
	ports := freePorts(t, 2)
	text := fmt.Sprintf(configuration, dir, ports[0], ports[1])
	err = errors.Join(os.Chmod(dir, 0o755), os.Mkdir(c.in("state"), 0o700), os.Mkdir(c.in("spool"), 0o755),
		os.WriteFile(c.in("munge.key"), key, 0o600), os.WriteFile(c.in("slurm.conf"), []byte(text), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	c.start(t, "munged", "--force", "--key-file="+c.in("munge.key"), "--socket="+c.in("munge.socket"), "--pid-file="+c.in("munged.pid"), "--log-file="+c.in("munged.log"), "--seed-file="+c.in("seed"))
	c.start(t, "slurmctld")
	c.start(t, "slurmd", "-N", "node0")
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		out, err := c.Command("sinfo", "-h", "-o", "%T").CombinedOutput()
		if strings.TrimSpace(string(out)) == "idle" {
			return c
		}
		if time.Now().After(deadline) {
			t.Fatalf("Slurm's node is not idle after 30 s: %v\n%s", err, out)
		}
	}
}

// Command is one of Slurm's commands for this cluster.
func (c Cluster) Command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), c.Env...)
	return cmd
}

func (c Cluster) in(name string) string { return filepath.Join(c.Dir, name) }

func (c Cluster) start(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := c.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("cannot start %s: %v\n%s", name, err, out)
	}
}

// stop ends the daemons and removes the folder.
func (c Cluster) stop() {
	for _, daemon := range []string{"slurmd", "slurmctld", "munged"} {
		text, _ := os.ReadFile(c.in(daemon + ".pid"))
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			continue
		}
		_ = syscall.Kill(pid, syscall.SIGTERM)
		for range 50 {
			if syscall.Kill(pid, 0) != nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = os.RemoveAll(c.Dir)
}

func freePorts(t testing.TB, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() //nolint:errcheck // it was only asked for a number
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

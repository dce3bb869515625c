// Package slurm starts a real Slurm for tests and benchmarks: one controller and one node, on this machine, in a folder
// of their own. The packages are slurm-wlm and munge; no systemd is needed, root is. Its GPUs are device nodes without a
// driver.
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

	"gpuard/internal/gate"
)

// Cluster is a Slurm that runs until the test ends.
type Cluster struct {
	Dir  string   // configuration, state and logs
	Env  []string // what Slurm's commands need: SLURM_CONF
	Node string   // its only node; cgroups of several clusters differ by it
}

// Options are what a cluster has besides its processors.
type Options struct {
	GPUs      int      // a100, with the feature gpumem80g
	Constrain bool     // a device cgroup lets a job open its own GPUs only (ConstrainDevices)
	GresFlags string   // of gres.conf; "" Slurm sets the variables of all vendors
	Lines     []string // more of slurm.conf
}

// FindMissing says what this machine lacks for Start; empty: nothing.
func FindMissing() string {
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

// configTemplate is that of one node with 16 processors, so that small jobs run beside each other, and a scheduler that
// looks every second instead of every minute.
// cred_expire also is how long a job waits that was requeued.
const configTemplate = `ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=%[1]s/munge.socket,cred_expire=5
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
ProctrackType=proctrack/%[6]s
TaskPlugin=task/%[5]s
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,sched_min_interval=1,batch_sched_delay=1
ReturnToService=2
MpiDefault=none
NodeName=%[7]s NodeHostname=localhost NodeAddr=127.0.0.1 CPUs=16 RealMemory=1000 State=UNKNOWN%[4]s
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
`

// Start brings the cluster up and waits until its node takes jobs.
func Start(t testing.TB, o Options) Cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "slurm") // short: the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	c := Cluster{Dir: dir, Env: []string{"SLURM_CONF=" + filepath.Join(dir, "slurm.conf")}, Node: "node" + strings.TrimPrefix(filepath.Base(dir), "slurm")}
	t.Cleanup(c.stopAll)
	key := make([]byte, 1024)
	_, _ = rand.Read(key)
	ports := freePorts(t, 2)
	has := ""
	if o.GPUs > 0 {
		has = fmt.Sprintf(" Gres=gpu:a100:%d Feature=gpumem80g,a100\nGresTypes=gpu", o.GPUs)
	}
	tasks, tracking := "none", "linuxproc"
	if o.Constrain {
		tasks, tracking = "cgroup", "cgroup"
	}
	text := fmt.Sprintf(configTemplate, dir, ports[0], ports[1], has, tasks, tracking, c.Node) + strings.Join(append(o.Lines, ""), "\n")
	err = errors.Join(os.Chmod(dir, 0o755), os.Mkdir(c.pathOf("state"), 0o700), os.Mkdir(c.pathOf("spool"), 0o755),
		os.WriteFile(c.pathOf("munge.key"), key, 0o600), os.WriteFile(c.pathOf("slurm.conf"), []byte(text), 0o644), c.makeDevices(o))
	if err != nil {
		t.Fatal(err)
	}
	c.startDaemon(t, "munged", "--force", "--key-file="+c.pathOf("munge.key"), "--socket="+c.pathOf("munge.socket"), "--pid-file="+c.pathOf("munged.pid"), "--log-file="+c.pathOf("munged.log"), "--seed-file="+c.pathOf("seed"))
	c.StartController(t)
	c.startDaemon(t, "slurmd", "-N", c.Node)
	c.waitUntilIdle(t)
	return c
}

// localMajor is a major number that no driver has (Documentation/admin-guide/devices.txt: local use), so that a node of it
// cannot be anybody's GPU.
const localMajor = 120

// makeDevices makes the GPUs and says so to the node.
func (c Cluster) makeDevices(o Options) error {
	cgroup := "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		cgroup = "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n"
	}
	if o.Constrain {
		cgroup += "ConstrainDevices=yes\n"
	}
	err := os.WriteFile(c.pathOf("cgroup.conf"), []byte(cgroup), 0o644)
	gres := ""
	for i := range o.GPUs {
		err = errors.Join(err, syscall.Mknod(c.Device(i), syscall.S_IFCHR|0o666, localMajor<<8|i), os.Chmod(c.Device(i), 0o666))
		gres += fmt.Sprintf("Name=gpu Type=a100 File=%s", c.Device(i))
		if o.GresFlags != "" {
			gres += " Flags=" + o.GresFlags
		}
		gres += "\n"
	}
	return errors.Join(err, os.WriteFile(c.pathOf("gres.conf"), []byte(gres), 0o644))
}

// Device is the node of a GPU: to open it gives ENXIO, because there is no driver, and EPERM where a cgroup forbids it.
func (c Cluster) Device(i int) string { return c.pathOf(fmt.Sprint("gpu", i)) }

// StartController starts slurmctld, also again after Halt.
func (c Cluster) StartController(t testing.TB) {
	t.Helper()
	c.startDaemon(t, "slurmctld")
}

// StopController ends slurmctld.
func (c Cluster) StopController() { c.endDaemon("slurmctld") }

// waitUntilIdle waits until the node takes jobs.
func (c Cluster) waitUntilIdle(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		out, err := c.Command("sinfo", "-h", "-o", "%T").CombinedOutput()
		if strings.TrimSpace(string(out)) == "idle" {
			return
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(c.pathOf("slurmd.log"))
			gate.NeedStart(t, "slurm", fmt.Errorf("the node is not idle after 30 s: %w\n%s%s", err, out, log))
		}
	}
}

// Command is one of Slurm's commands for this cluster.
func (c Cluster) Command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), c.Env...)
	return cmd
}

func (c Cluster) pathOf(name string) string { return filepath.Join(c.Dir, name) }

func (c Cluster) startDaemon(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := c.Command(name, args...).CombinedOutput(); err != nil {
		gate.NeedStart(t, "slurm", fmt.Errorf("cannot start %s: %w\n%s", name, err, out))
	}
}

// stopAll ends the daemons and removes the folder.
func (c Cluster) stopAll() {
	_ = c.Command("scancel", "--state=PENDING,RUNNING,SUSPENDED", "--user=root", "--signal=KILL", "--full").Run()
	for _, daemon := range []string{"slurmd", "slurmctld", "munged"} {
		c.endDaemon(daemon)
	}
	_ = os.RemoveAll(c.Dir)
	_ = exec.Command("sh", "-c", "find /sys/fs/cgroup/*/slurm_"+c.Node+" -depth -type d -exec rmdir {} +").Run()
}

func (c Cluster) endDaemon(daemon string) {
	text, _ := os.ReadFile(c.pathOf(daemon + ".pid"))
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return
	}
	_ = syscall.Kill(pid, syscall.SIGTERM)
	for range 50 {
		if syscall.Kill(pid, 0) != nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
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

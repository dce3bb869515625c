package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/gate"
	"gpuard/internal/host/store"
	"gpuard/test/fakegpu"
)

// The scripts below make a mount namespace and start $GO in it. $STATE is the folder of leases, $PARENT the one above
// it, which has nothing else. With slaveMountScript a namespace around it replaces that of a machine with systemd, whose
// services get slave mounts (master: in mountinfo); it has to exist for as long.
const (
	unshareMountScript = `exec unshare --mount sh -c '`
	slaveMountScript   = `exec unshare --mount sh -c 'mount --make-rshared / && unshare --mount --propagation slave sh -c "`
	asBobScript        = `exec setpriv --reuid 1 --regid 1 --clear-groups `
)

// mountCase are places of a service, a sandbox or a container, and what others outside see of leases there.
type mountCase struct {
	name, script string
	gates        []string
	private      string // why others do not see the leases; "" where they do
	doubt        bool
}

func mountCases() []mountCase {
	return []mountCase{
		{name: "nothing is mounted", script: unshareMountScript + `exec $GO'`},
		{name: "as root, another folder above", script: unshareMountScript + `mount -t tmpfs none $PARENT && exec $GO'`, private: "this mount namespace has another $PARENT than the machine"},
		{name: "as root, another folder", script: unshareMountScript + `mkdir -p $PARENT/../copy && cp -a $STATE/. $PARENT/../copy && mount --bind $PARENT/../copy $STATE && exec $GO'`, private: "has another $PARENT"},
		{name: "as root, the same by another way", script: unshareMountScript + `mount --bind $PARENT $PARENT && exec $GO'`},
		{name: "chroot with the machine's files", script: unshareMountScript + `mount --rbind / $PARENT/../root && exec chroot $PARENT/../root $GO'`},
		{name: "chroot with a folder above of its own", script: unshareMountScript + `mount --rbind / $PARENT/../root && mount -t tmpfs none $PARENT/../root$PARENT && exec chroot $PARENT/../root $GO'`,
			private: "this mount namespace has another $PARENT than the machine"},
		{name: "a user's chroot", script: `mkdir -p $PARENT/../jail/tmp && chmod 1777 $PARENT/../jail/tmp && ` + unshareMountScript + `cd $PARENT/../jail && for d in usr bin lib lib64 proc dev etc; do mkdir -p $d; test ! -e /$d || mount --rbind /$d $d; done
			mkdir -p .$PARENT ./$DRIVER && chmod 1777 .$PARENT && mount --bind $DRIVER ./$DRIVER && PATH=/usr/sbin:/usr/bin:/sbin:/bin exec chroot --userspec=1:1 . $GO'`, private: "this is a chroot"},
		{name: "a user, and nobody can tell", script: unshareMountScript + `mount -t tmpfs none $PARENT && chmod 1777 $PARENT && ` + asBobScript + `$GO'`, doubt: true},
		{name: "a user, the machine's mounts", script: slaveMountScript + asBobScript + `$GO"; exit $?'`},
		{name: "a user, another folder above", script: slaveMountScript + `mount -t tmpfs none $PARENT && chmod 1777 $PARENT && ` + asBobScript + `$GO"; exit $?'`, private: "$PARENT was mounted in this mount namespace alone"},
		{name: "PrivateTmp", script: slaveMountScript + `mkdir -p $PARENT/../systemd-private-x/tmp && chmod 1777 $PARENT/../systemd-private-x/tmp && mount --bind $PARENT/../systemd-private-x/tmp $PARENT && ` + asBobScript + `$GO"; exit $?'`,
			private: "$PARENT is private to this service (PrivateTmp=)"},
		{name: "PrivateTmp, with the machine's folder", script: slaveMountScript + `mkdir -p $PARENT/../systemd-private-x/tmp/state && mount --bind $STATE $PARENT/../systemd-private-x/tmp/state && mount --rbind $PARENT/../systemd-private-x/tmp $PARENT && ` + asBobScript + `$GO"; exit $?'`},
		{name: "a user's own mounts", script: asBobScript + `unshare --map-current-user --mount $GO`, gates: []string{"userns"}},
		{name: "a user's own folder above", script: asBobScript + `unshare --map-root-user --mount sh -c 'mount -t tmpfs none $PARENT && exec $GO'`, gates: []string{"userns"}, private: "$PARENT was mounted in here by uid 1"},
		{name: "a user's own folder in its place", script: `mkdir -p $PARENT/../own && cp -a $STATE/. $PARENT/../own && chown -R 1 $PARENT/../own && chmod 1777 $PARENT/../own && ` + asBobScript + `unshare --map-root-user --mount sh -c 'mount --bind $PARENT/../own $STATE && exec $GO'`, gates: []string{"userns"}, doubt: true},
		{name: "the machine's folder in its place", script: asBobScript + `unshare --map-root-user --mount sh -c 'mount --bind $STATE $STATE && exec $GO'`, gates: []string{"userns"}},
		{name: "bubblewrap", script: asBobScript + `bwrap --dev-bind / / $GO`, gates: []string{"bwrap"}},
		{name: "bubblewrap with a folder above of its own", script: asBobScript + `bwrap --dev-bind / / --tmpfs $PARENT $GO`, gates: []string{"bwrap"}, private: "$PARENT was mounted in here by uid 1"},
		{name: "bubblewrap with the machine's folder", script: asBobScript + `bwrap --dev-bind / / --tmpfs $PARENT --bind $STATE $STATE $GO`, gates: []string{"bwrap"}},
	}
}

// TestSpacesMounts: in a mount namespace a lease is one that all see, or there is none. It runs beside no other test: a
// Docker daemon makes a shared mount, and on a machine whose root is not shared a copy of all mounts then looks like one
// that was made inside.
func TestSpacesMounts(t *testing.T) {
	gate.Need(t, "mountns")
	for _, m := range mountCases() {
		t.Run(m.name, func(t *testing.T) {
			gate.Need(t, m.gates...)
			t.Parallel()
			r := newFakeDriverMachine(t, fakegpu.A100(0))
			r.state = filepath.Join(makeFolderOnRoot(t), "above", "state")
			program := r.installForAllUsers()
			checkEqual(t, "makes the folder", r.run("run", "-q", "--", "true").code, 0)
			in := func(words string) runResult {
				t.Helper()
				set := strings.NewReplacer("$GO", program+" "+words, "$STATE", r.state, "$PARENT", filepath.Dir(r.state), "$DRIVER", r.Dir)
				return runCommand(t, r.namespaceCommand(0, "env", "mkdir -p "+filepath.Dir(r.state)+"/../root; "+set.Replace(m.script)))
			}
			// Here a lease of another is known, so there is no device; there it would be the first.
			startToFirstLine(t, r.cmd("run", "-q", "--", "sh", "-c", "echo started; exec sleep 300"))
			why := strings.ReplaceAll(m.private, "$PARENT", filepath.Dir(r.state))
			for _, words := range []string{"run --no-wait -- echo started", "run --no-wait --dry-run -- echo started", "run --no-wait -q --json -- echo started"} {
				got := in(words)
				switch {
				case m.private != "":
					checkEqual(t, words+": exit code", got.code, 125)
					checkContains(t, got.out+got.err, "cannot lease a GPU here: ", why, "would not be seen outside", "mount the host's "+r.state+" here", "--private-state")
				case m.doubt:
					checkEqual(t, words+": exit code", got.code, 0)
				default:
					checkEqual(t, words+": exit code", got.code, 120)
					checkContains(t, got.out+got.err, "leased")
				}
				if told := strings.Contains(got.err, "cannot tell whether leases in "+r.state); told != (m.doubt && !strings.Contains(words, "--dry-run")) {
					t.Errorf("%s: that it cannot be known is said: %v\n%s", words, told, got.err)
				}
			}
			if m.private != "" {
				got := in("run --no-wait --private-state -- echo started")
				checkEqual(t, "with --private-state", []any{got.code, got.out}, []any{0, "started\n"})
			}
			checkEqual(t, "another machine", in("run -q --machine demo -- true").code, 0)
			checkEqual(t, "a CPU job", in("run -q --cpu -- true").code, 0)
		})
	}
}

// TestSpacesOtherChoice: where a mount namespace has no /run/lock, or /run/gpuard, leases would be kept in /var/tmp, which the machine
// shares and does not look into first. So a GPU that is leased outside would be given again.
func TestSpacesOtherChoice(t *testing.T) {
	gate.Need(t, "mountns")
	if path, _ := store.LocateFolder("/run", "/var/tmp"); strings.HasPrefix(path, "/var/tmp") {
		t.Skip("this machine keeps leases in /var/tmp itself")
	}
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.A100(0))
	program := r.installForAllUsers()
	for _, c := range []struct{ name, script, why, mount, gate string }{
		{"root", unshareMountScript + `mount -t tmpfs none /run && exec $GO'`, "the machine keeps its leases in /run/", "/run/", "root"},
		{"bubblewrap", asBobScript + `bwrap --dev-bind / / --tmpfs /run $GO`, "/run was mounted in here by uid 1", "/run", "bwrap"},
	} {
		t.Run(c.name, func(t *testing.T) {
			gate.Need(t, c.gate)
			set := strings.NewReplacer("$GO", "env -u GPUARD_STATE "+program+" run --no-wait -- echo started")
			got := runCommand(t, r.namespaceCommand(0, "env", set.Replace(c.script)))
			checkEqual(t, "exit code", got.code, 125)
			checkContains(t, got.err, "cannot lease a GPU here: "+c.why, "its leases in /var/tmp/gpuard would not be seen outside", "mount the host's "+c.mount)
			checkEqual(t, "output", got.out, "")
		})
	}
}

// makeFolderOnRoot is a folder on the filesystem of /, which has a mount of its own in every namespace: any other may be mounted in one alone.
func makeFolderOnRoot(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("/var/tmp", "gpuard-test-")
	if err == nil {
		err = os.Mkdir(filepath.Join(folder, "above"), 0o755)
	}
	if err == nil {
		err = os.Chmod(folder, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return waitForWritersAtEnd(t, folder)
}

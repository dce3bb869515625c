package check

import (
	"testing"

	"gpuard/internal/core/hostinfo"
)

func TestState(t *testing.T) { see(t, stateChecks(), append(stateSightings(), policySightings()...)) }

func kept(s hostinfo.State) hostinfo.Site {
	if s.Folder == "" {
		s.Folder = "/run/gpuard"
	}
	return hostinfo.Site{State: hostinfo.AnswerOf(s)}
}

func stateSightings() []sighting {
	unread := hostinfo.Site{State: hostinfo.NoAnswer[hostinfo.State]("no answer within 5s")}
	lacking := bus(without())
	lacking.State = hostinfo.AnswerOf(hostinfo.State{Folder: "/run/gpuard", Problem: "cannot make the state folder /run/gpuard: read-only file system; mount one there"})
	return []sighting{
		{"state-folder", "unusable, and no GPU", lacking, Info},
		{"state-folder", "unusable", kept(hostinfo.State{Exists: true, Problem: "cannot use the state folder /run/gpuard: it is not a folder; remove it"}), Warning},
		{"state-folder", "in a container", kept(hostinfo.State{Unshared: "cannot lease a GPU here: this is a container; mount the host's /run/gpuard here"}), Info},
		{"state-folder", "in use", kept(hostinfo.State{Exists: true, Leases: 2, Tickets: 1}), OK},
		{"state-folder", "not there yet", kept(hostinfo.State{}), OK},
		{"state-folder", "no answer", unread, Unknown},
		{"state-place", "of a user", kept(hostinfo.State{Exists: true, Owner: "ann"}), Info},
		{"state-place", "cleaned by age", kept(hostinfo.State{Folder: "/var/tmp/gpuard", Passing: "leases are kept in /var/tmp/gpuard"}), Info},
		{"state-place", "named", kept(hostinfo.State{Folder: "/srv/gpuard", Named: true}), Info},
		{"state-place", "two", kept(hostinfo.State{Exists: true, Others: []string{"/var/tmp/gpuard"}}), Info},
		{"state-place", "root's", kept(hostinfo.State{Exists: true}), OK},
		{"state-place", "unusable", kept(hostinfo.State{Exists: true, Owner: "ann", Problem: "cannot use it"}), OK},
		{"state-place", "no answer", unread, Unknown},
		{"state-entries", "forged", kept(hostinfo.State{Exists: true, Entries: []string{"/run/gpuard/leases/1000/x: it belongs to uid 1001"}}), Info},
		{"state-entries", "in order", kept(hostinfo.State{Exists: true}), OK},
		{"quota-levels", "none", kept(hostinfo.State{Watch: "this process adopts orphans", MPS: "this process adopts orphans"}), Info},
		{"quota-levels", "no answer", unread, Unknown},
		{"state-entries", "no answer", unread, Unknown},
		{"isolation-levels", "none", kept(hostinfo.State{Namespace: "a sandbox forbids it", Landlock: "this kernel has none", Cgroup: "only root may"}), Info},
		{"isolation-levels", "no answer", unread, Unknown},
		{"isolation-levels", "one", kept(hostinfo.State{Namespace: "AppArmor forbids it"}), OK},
		{"isolation-levels", "two", kept(hostinfo.State{Cgroup: "only root may"}), OK},
		{"isolation-levels", "all", kept(hostinfo.State{}), OK},
		{"quota-levels", "measured", kept(hostinfo.State{Levels: []string{"watch"}, MPS: "there is no nvidia-cuda-mps-control in PATH"}), OK},
		{"quota-levels", "both", kept(hostinfo.State{Levels: []string{"watch", "mps"}}), OK},
	}
}

func TestSplit(t *testing.T) {
	if p, do := splitAdvice("cannot use it: a; b; remove it"); p != "cannot use it: a; b" || do != "remove it" {
		t.Errorf("%q, %q", p, do)
	}
	if p, do := splitAdvice("cannot use it"); p != "cannot use it" || do == "" {
		t.Errorf("%q, %q", p, do)
	}
}

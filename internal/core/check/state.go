package check

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/job"
	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
)

// leasesPage is gpuard's documentation of leases.
const leasesPage = "docs/explanation/leases.md"

// stateChecks check gpuard's own folder and what it can enforce here.
func stateChecks() []Check {
	return []Check{stateFolder(), statePlace(), stateEntries(), policyFile(), quotaLevels(), isolationLevels()}
}

func stateFolder() Check {
	page := Page{
		Code: "state-folder", Title: "gpuard cannot keep leases here",
		Text: option.Expand("Leases are files that live as long as a process holds a lock on them, in one folder for everybody on the machine (`/run/gpuard`, else `/run/lock/gpuard`, else `/var/tmp/gpuard`). It must be a local folder with the sticky bit, made by gpuard. Where it cannot be used, `{gpuard run}` refuses rather than lease without the others' knowledge: two folders that do not know each other give the same GPU away twice. For the same reason a container, a sandbox or a service with a private `/run` or `/var/tmp` needs the machine's folder mounted, and a user namespace a place for the user's id.\n\n" +
			"The message names the folder, its owner and what is wrong. Root makes a good place with `sudo \"$(command -v gpuard)\" setup machine`. Programs that do not go through gpuard are not touched by any of this."),
		From: []string{"gpuard: " + leasesPage},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		st := s.State.Found
		switch {
		case s.State.Problem != "":
			return unknownFinding(page.Code, "gpuard's folder", s.State.Problem, "")
		case st.Problem != "":
			problem, do := splitAdvice(st.Problem)
			severity := Warning
			if hasNoGPU(s) && s.Machine.Problem != "" {
				// No GPU to lease.
				severity = Info
			}

			return []Finding{{page.Code, severity, problem, option.Expand("{gpuard run} and reserve cannot lease a GPU"), do}}
		case st.Unshared != "":
			problem, do := splitAdvice(st.Unshared)
			return []Finding{{page.Code, Info, problem, "all users of these GPUs must see the leases", do}}
		case !st.Exists:
			return okFinding(page.Code, "no GPU was leased yet; leases will be in "+st.Folder)
		}
		return okFinding(page.Code, fmt.Sprintf("%s: %s, %s", st.Folder, prose.CountNoun(st.Leases, "lease"), waitingText(st.Tickets)))
	}}
}

// splitAdvice separates a message from its advice, after the last semicolon.
func splitAdvice(text string) (problem, do string) {
	if i := strings.LastIndex(text, "; "); i > 0 {
		return text[:i], text[i+2:]
	}
	return text, "see " + leasesPage
}

func statePlace() Check {
	page := Page{
		Code: "state-place", Title: "Leases lie in a place that could be better",
		Text: "`/run/gpuard`, made by root, is the best place: it is empty after a reboot, and users cannot touch each other's leases there. In a folder that an ordinary user made first, that user could remove leases of others, so users cooperate; `/var/tmp` survives reboots and is cleaned by age. A folder that `GPUARD_STATE` names is seen only by those who name it too.\n\n" +
			"`sudo \"$(command -v gpuard)\" setup machine` makes the best place, now and at each boot. That is possible at any time, also while leases are alive elsewhere, since those count too.",
		From: []string{"gpuard: " + leasesPage},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		st := s.State.Found
		const better = `sudo "$(command -v gpuard)" setup machine`
		var found []Finding
		add := func(seen, why, do string) { found = append(found, Finding{page.Code, Info, seen, why, do}) }

		switch {
		case s.State.Problem != "":
			return unknownFinding(page.Code, "gpuard's folder", s.State.Problem, "")
		case st.Problem != "":
			return okFinding(page.Code, "see state-folder")
		}

		if st.Named {
			add("GPUARD_STATE puts the leases into "+st.Folder, "only those who set the same variable see them", "set it for all users (in /etc/environment), or unset GPUARD_STATE")
		}

		if st.Passing != "" {
			add(st.Folder+" survives reboots and is cleaned by age", "a long lease may lose its file", better)
		}

		if st.Exists && st.Owner != "" {
			add(fmt.Sprintf("%s belongs to the user %s", st.Folder, st.Owner), "its owner could remove leases of others, so users must trust each other", better)
		}

		if len(st.Others) > 0 && st.Exists {
			add("leases lie in "+strings.Join(append(slices.Clone(st.Others), st.Folder), " and in "), "all of them count, and new ones go to "+st.Folder, "")
		}

		if found == nil {
			return okFinding(page.Code, st.Folder)
		}

		return found
	}}
}

func stateEntries() Check {
	page := Page{
		Code: "state-entries", Title: "Entries in gpuard's folder count as nothing",
		Text: option.Expand("Every entry of the state folder is checked before it is believed: owner, form, size, lock. An entry that fails the check is ignored, so that a forged file cannot keep a GPU from others; it is reported so that its owner can remove it.\n\n`{gpuard status}` says the same. A few of them do no harm."),
		From: []string{"gpuard: " + leasesPage},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		if s.State.Problem != "" {
			return unknownFinding(page.Code, "gpuard's folder", s.State.Problem, "")
		}

		var found []Finding
		for _, e := range s.State.Found.Entries {
			found = append(found, Finding{page.Code, Info, e, "it is no lease and no request, and is passed over", "its owner can remove it"})
		}

		if found == nil {
			return okFinding(page.Code, "every entry is in order")
		}

		return found
	}}
}

func quotaLevels() Check {
	page := Page{
		Code: "quota-levels", Title: "How hard a share of a GPU can be kept here",
		Text: option.Expand("`{gpuard run} {share=8G}` gives a job a part of a GPU's memory. With `{quota=watch}` gpuard measures and ends a job that takes more; with `{quota=mps}` NVIDIA's Multi-Process Service refuses it the memory immediately. MPS comes with NVIDIA's driver (`nvidia-cuda-mps-control`) and serves whole NVIDIA GPUs.\n\n" +
			"Where a level is missing, a share is kept as hard as can be, and the job is told; `{require-quota}` refuses instead."),
		From: []string{"gpuard: docs/how-to/sharing.md", "https://docs.nvidia.com/deploy/mps/index.html"},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		st := s.State.Found
		switch {
		case s.State.Problem != "":
			return unknownFinding(page.Code, "what gpuard can enforce", s.State.Problem, "")
		case !slices.Contains(st.Levels, string(job.Watch)):
			return []Finding{{page.Code, Info, "no process can enforce shares:  " + st.Watch, option.Expand("jobs with {share} must keep it themselves"), ""}}
		case st.MPS != "":
			return okFinding(page.Code, "a share is measured and its job ended above it (watch); not by MPS: "+st.MPS)
		}
		return okFinding(page.Code, "a share can be kept by: "+strings.Join(st.Levels, ", "))
	}}
}

func waitingText(n int) string {
	switch n {
	case 0:
		return "no request waits"
	case 1:
		return "1 waits"
	}
	return fmt.Sprintf("%d wait", n)
}

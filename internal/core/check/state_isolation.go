package check

import (
	"strings"

	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
)

func isolationLevels() Check {
	page := Page{
		Code: "isolation-levels", Title: "How a job can be kept from other GPUs here",
		Text: option.Expand("A mask is advice: a program that sets `CUDA_VISIBLE_DEVICES` itself leaves its lease. With `{gpuard run} {isolate}` it cannot open the device files of other GPUs: by `namespace`, in user and mount namespaces of its own, by `landlock`, under rules of the kernel that nothing lifts again, or by `cgroup`, under the device filter of a control group. The first two need no root, the third does.\n\n" +
			"Where a level is missing this says why. Ubuntu since 23.10 lets AppArmor refuse user namespaces to programs without a profile, containers refuse them by seccomp, and kernels before 5.19 have no Landlock that suits. Control groups are root's, or mounted read-only as in most containers, or systemd's, which leaves one to `sudo systemd-run --scope -p Delegate=yes`. `{isolate=auto}` takes what there is; `{require-isolation}` refuses to start without."),
		From: []string{"gpuard: docs/how-to/isolation.md", "https://man7.org/linux/man-pages/man7/user_namespaces.7.html", "https://docs.kernel.org/userspace-api/landlock.html", "https://docs.kernel.org/admin-guide/cgroup-v2.html"},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		if s.State.Problem != "" {
			return unknownFinding(page.Code, "how jobs can be isolated", s.State.Problem, "")
		}

		var can, cannot []string
		st := s.State.Found
		for _, level := range [][2]string{{"namespace", st.Namespace}, {"landlock", st.Landlock}, {"cgroup", st.Cgroup}} {
			if level[1] == "" {
				can = append(can, level[0])
			} else {
				cannot = append(cannot, level[0]+": "+level[1])
			}
		}

		not := strings.Join(cannot, "; ")
		switch {
		case len(can) == 0:
			return []Finding{{page.Code, Info, "a job cannot be isolated: " + not, "only variables keep a job from other GPUs", ""}}
		case len(cannot) > 0:
			return okFinding(page.Code, option.Sprintf("{isolate=%s}; not %s", prose.JoinWords(can, "and"), not))
		}

		return okFinding(page.Code, option.Sprintf("{isolate=%s}", prose.JoinWords(can, "and")))
	}}
}

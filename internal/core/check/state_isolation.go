package check

import (
	"gpuard/internal/core/hostinfo"
)

func isolationLevels() Check {
	page := Page{
		Code: "isolation-levels", Title: "How a job can be kept from other GPUs here",
		Text: "A mask is advice: a program that sets `CUDA_VISIBLE_DEVICES` itself leaves its lease. With `gpuard run --isolate` it cannot open the device files of other GPUs: by `namespace`, in user and mount namespaces of its own, or by `landlock`, under rules of the kernel that nothing lifts again. Neither needs root.\n\n" +
			"Where a level is missing this says why. Ubuntu since 23.10 lets AppArmor refuse user namespaces to programs without a profile, containers refuse them by seccomp, and kernels before 5.19 have no Landlock that suits. `--isolate auto` takes what there is; `--require-isolation` refuses to start without.",
		From: []string{"gpuard: docs/how-to/isolation.md", "https://man7.org/linux/man-pages/man7/user_namespaces.7.html", "https://docs.kernel.org/userspace-api/landlock.html"},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		st := s.State.Found
		switch {
		case s.State.Problem != "":
			return blind(page.Code, "how jobs can be isolated", s.State.Problem, "")
		case st.Namespace != "" && st.Landlock != "":
			return []Finding{{page.Code, Info, "a job cannot be isolated: namespace: " + st.Namespace + "; landlock: " + st.Landlock, "only variables keep a job from other GPUs", ""}}
		case st.Namespace != "":
			return ok(page.Code, "--isolate landlock; not namespace: "+st.Namespace)
		case st.Landlock != "":
			return ok(page.Code, "--isolate namespace; not landlock: "+st.Landlock)
		}
		return ok(page.Code, "--isolate namespace and landlock")
	}}
}

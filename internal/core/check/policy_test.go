package check

import "gpuard/internal/core/hostinfo"

func policySightings() []sighting {
	ruled := func(p hostinfo.Policy) hostinfo.Site { return hostinfo.Site{Policy: hostinfo.AnswerOf(p)} }
	return []sighting{
		{"policy-file", "a mistake", ruled(hostinfo.Policy{Problem: "cannot read /etc/gpuard/config.yaml:3:3: unknown key; ask root to mend it"}), Warning},
		{"policy-file", "unknown group", ruled(hostinfo.Policy{Files: []string{"/etc/gpuard/config.yaml"}, Rules: 1, Strangers: []string{"the group studnets (/etc/gpuard/config.yaml:3)"}}), Info},
		{"policy-file", "none", ruled(hostinfo.Policy{}), OK},
		{"policy-file", "in order", ruled(hostinfo.Policy{Files: []string{"/etc/gpuard/config.yaml"}, Rules: 3}), OK},
		{"policy-file", "no answer", hostinfo.Site{Policy: hostinfo.NoAnswer[hostinfo.Policy]("no answer within 5s")}, Unknown},
	}
}

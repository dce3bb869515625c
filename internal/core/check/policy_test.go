package check

import "gpuard/internal/core/site"

func policySightings() []sighting {
	ruled := func(p site.Policy) site.Site { return site.Site{Policy: site.Read(p)} }
	return []sighting{
		{"policy-file", "a mistake", ruled(site.Policy{Problem: "cannot read /etc/gpuard/config.yaml:3:3: unknown key; ask root to mend it"}), Warning},
		{"policy-file", "nobody", ruled(site.Policy{Files: []string{"/etc/gpuard/config.yaml"}, Rules: 1, Strangers: []string{"the group studnets (/etc/gpuard/config.yaml:3)"}}), Info},
		{"policy-file", "none", ruled(site.Policy{}), OK},
		{"policy-file", "in order", ruled(site.Policy{Files: []string{"/etc/gpuard/config.yaml"}, Rules: 3}), OK},
		{"policy-file", "no answer", site.Site{Policy: site.Failed[site.Policy]("no answer within 5s")}, Unknown},
	}
}

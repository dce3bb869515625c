package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/policy"
)

// KnownTerms is what the configuration says of types and features that some node has. One unknown feature among several
// would have Slurm refuse the whole job.
func KnownTerms(s policy.Slurm, site Site) policy.Slurm {
	known := policy.Slurm{Types: map[string]string{}, Features: map[string]gpu.Bytes{}}
	for model, kind := range s.Types {
		if slices.Contains(site.GPUTypes(), kind) {
			known.Types[model] = kind
		}
	}
	for feature, size := range s.Features {
		if slices.Contains(site.Features(), feature) {
			known.Features[feature] = size
		}
	}

	return known
}

// AbsentTerms lists what the configuration names and no node has.
func AbsentTerms(s policy.Slurm, site Site) (types, features []string) {
	for _, kind := range s.Types {
		if !slices.Contains(site.GPUTypes(), kind) {
			types = append(types, kind)
		}
	}
	slices.Sort(types)

	for _, feature := range slices.Sorted(maps.Keys(s.Features)) {
		if !slices.Contains(site.Features(), feature) {
			features = append(features, feature)
		}
	}

	return slices.Compact(types), features
}

// CheckTerms is the refusal of a job that the configuration has words for, and the cluster has not.
func CheckTerms(s policy.Slurm, site Site, spec job.Spec) error {
	types, features := AbsentTerms(s, site)
	var why, do []string
	if spec.Model+spec.MIG != "" && len(types) > 0 {
		why = append(why, fmt.Sprintf("no node of cluster %s has a GPU of type %s, which slurm.types names", site.Name, strings.Join(types, " or ")))
		do = append(do, "types there: "+joinOrNone(site.GPUTypes()))
	}

	if spec.Memory > 0 && len(features) > 0 {
		why = append(why, fmt.Sprintf("no node of cluster %s has the feature %s, which slurm.memory_features names", site.Name, strings.Join(features, " or ")))
		do = append(do, "features there: "+joinOrNone(site.Features()))
	}

	if len(why) == 0 {
		return nil
	}

	return &job.Refusal{Never: true, Summary: "cannot hand the job to Slurm: " + strings.Join(why, "; "), Remedy: strings.Join(do, "; ") + "; write what they mean into config.yaml"}
}

func joinOrNone(words []string) string {
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

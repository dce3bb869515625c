// Package condaenv reads conda environment files (environment.yml): packages and variables. It installs nothing.
package condaenv

import (
	"fmt"

	"gpuard/internal/core/lint"
	"gpuard/internal/text/yamltree"
)

// ReadSteps returns the packages of an environment file as Setting steps, named dependencies[0] and dependencies[3].pip[1],
// its channels likewise, and its variables as Set steps
// (https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html#creating-an-environment-file-manually).
func ReadSteps(path string, src []byte) (lint.File, error) {
	f := lint.File{Path: path, Kind: lint.Conda}
	docs, err := yamltree.Parse(src)
	if err != nil {
		return f, err
	}

	for _, doc := range docs {
		if list := doc.Find("channels"); list != nil {
			f.Steps = append(f.Steps, packageSteps("channels", list)...)
		}
		if list := doc.Find("dependencies"); list != nil {
			f.Steps = append(f.Steps, packageSteps("dependencies", list)...)
		}
		for _, p := range doc.Find("variables").Entries() {
			if p.Value.Kind != yamltree.Scalar {
				continue
			}
			s := lint.Step{At: yamltree.JoinPlaces(p.Key.At, p.Value.At), Do: lint.Set, Name: p.Key.Text, How: "variables", Exported: true, Value: p.Value.Value()}
			if p.Bare {
				// The rest of a value that was split at its comma.
				s.How = "variables, cut"
			}
			f.Steps = append(f.Steps, s)
		}
	}

	return f, nil
}

func packageSteps(name string, list *yamltree.Node) []lint.Step {
	var steps []lint.Step
	for i, item := range list.Items {
		path := fmt.Sprintf("%s[%d]", name, i)
		if item.Kind == yamltree.Scalar && !item.Null {
			steps = append(steps, lint.Step{At: item.At, Do: lint.Setting, Name: path, Value: item.Value()})
		}
		if pip := item.Find("pip"); pip != nil && pip.Kind == yamltree.List && name == "dependencies" {
			steps = append(steps, packageSteps(path+".pip", pip)...)
		}
	}
	return steps
}

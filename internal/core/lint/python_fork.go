package lint

import (
	"fmt"

	"gpuard/internal/core/check"
)

func lookSetInForkedWorker(f File) (all []Finding) {
	if !f.usesFork() {
		return nil
	}

	seen := map[Place]bool{}
	own := map[string][]flowStep{}
	ways := traceFlows(f)
	for _, w := range ways {
		if w.worker && len(w.moments) > 0 {
			own[w.moments[0].In] = w.moments
		}
	}

	for _, w := range ways {
		torch := false
		var started []flowStep

		for _, m := range w.moments {
			torch = torch || m.Do == Import && rootModule(m.Name) == "torch"
			if m.driverStarter(torch, false) != "" {
				started = append(started, m)
			}
			if m.childStartMethod() != "fork" {
				continue
			}

			for _, parent := range started {
				if !parent.alwaysPrecedes(m) || !parent.canReach(m) {
					continue
				}
				for _, a := range m.Args {
					for _, s := range own[a.Ref] {
						by, _ := variableReader(s.Name)
						if s.Do != Set || by != "driver" || seen[s.At] {
							continue
						}
						seen[s.At] = true
						all = append(all, Finding{Finding: check.Finding{
							Seen: fmt.Sprintf("%s is set in a worker that is forked after %s in line %d started the driver", s.Name, parent.displayName(), parent.At.Line),
							Why:  "the worker takes over a driver that has read the variable, and cannot start it again",
							Do:   "start the workers with the method spawn, or do nothing with the GPU before they are started"}, At: s.At})
					}
				}
			}
		}
	}

	return all
}

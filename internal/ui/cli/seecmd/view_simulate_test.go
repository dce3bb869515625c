package seecmd

import (
	"strings"
	"testing"

	"gpuard/internal/core/sim"
)

// TestLeftOut: each size says which jobs it cannot serve, and where sizes differ in that, that their waits are of different jobs.
func TestLeftOut(t *testing.T) {
	result := func(policy string, gpus, tooLarge int) sim.Result {
		return sim.Result{Policy: policy, GPUs: gpus, TooLarge: tooLarge}
	}
	for want, results := range map[string][]sim.Result{
		"": {result("own", 8, 0), result("own", 16, 0)},
		"1 job that a machine of 4 or 8 GPUs can never serve": {result("own", 4, 1), result("own", 8, 1), result("fifo", 4, 1)},
		"3 jobs that a machine of 4 GPUs can never serve|1 job that a machine of 8 GPUs can never serve|a size that serves larger jobs counts them and all that wait behind them: its waits can be longer than those of a smaller one": {
			result("own", 4, 3), result("own", 8, 1), result("own", 16, 0),
		},
	} {
		if got := strings.Join(leftOutText(results), "|"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

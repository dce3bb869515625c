package container

import (
	"slices"
	"testing"

	"github.com/docker/cli/opts"

	"gpuard/internal/core/gpu"
)

// TestDockersParser: Docker's own parser reads the request as exactly the devices of the lease, whatever their number.
func TestDockersParser(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 4; n++ {
		form := lease(t, Facts{Engine: "docker", Toolkit: true}, n)
		m, err := gpu.Invent("demo:4xA100-80GB")
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, d := range m.Devices[:n] {
			want = append(want, string(d.UUID))
		}
		var read opts.GpuOpts
		if err := read.Set(form.Words[1]); err != nil || form.Words[0] != "--gpus" {
			t.Fatalf("%q: %v", form.Words, err)
		}
		got := read.Value()
		if len(got) != 1 || got[0].Count != 0 || !slices.Equal(got[0].DeviceIDs, want) || len(got[0].Capabilities) != 1 || !slices.Equal(got[0].Capabilities[0], []string{"gpu"}) {
			t.Errorf("%q is read as %+v", form.Words, got)
		}
	}
}

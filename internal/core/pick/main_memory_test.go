package pick

import (
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// TestMainMemory: a job gets at most what is available of the main memory, and shares leave a part of that to the machine. No refusal
// tells people to end the processes that use the rest.
func TestMainMemory(t *testing.T) {
	m, err := gpu.InventMachine("demo:1xGB10")
	if err != nil {
		t.Fatal(err)
	}
	m.Devices[0].MainAvailable = new(40 * gpu.GiB)
	for _, c := range []struct {
		spec job.Spec
		want string // of the refusal; "" given
	}{
		{job.Spec{GPUs: 1, Memory: 40 * gpu.GiB}, ""},
		{job.Spec{GPUs: 1, Memory: 41 * gpu.GiB}, "are free, less than"},
		{job.Spec{GPUs: 1, Memory: 200 * gpu.GiB}, "ask for less memory (--mem 40G)"},
		{job.Spec{GPUs: 1, Share: 34 * gpu.GiB}, ""},
		{job.Spec{GPUs: 1, Share: 35 * gpu.GiB}, "used by the rest of this machine"},
	} {
		plan, refusal := Place(c.spec, m, nil, Context{Now: now, Tolerate: DefaultTolerance()})
		switch {
		case c.want == "" && (refusal != nil || len(plan.Notes) != 1 || !strings.Contains(plan.Notes[0], "40 GiB of 120 GiB are available")):
			t.Errorf("%+v: %v, %q", c.spec, refusal, plan.Notes)
		case c.want == "":
		case refusal == nil:
			t.Errorf("%+v: given", c.spec)
		default:
			text := refusal.Error() + refusal.Remedy
			for _, r := range refusal.Reasons {
				text += "; " + r.Text + "; " + r.Remedy
			}
			if !strings.Contains(text, c.want) || strings.Contains(text, "find who uses it") {
				t.Errorf("%+v: %s", c.spec, text)
			}
		}
	}
	if got := ShareableMemory(&m.Devices[0]); *got >= 35*gpu.GiB || *got < 34*gpu.GiB {
		t.Errorf("%s can be promised", got)
	}
}

package quota

import (
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

func TestLevel(t *testing.T) {
	for _, c := range []struct {
		name            string
		asked, required job.Quota
		can             Means
		want            job.Quota
		note, refusal   string
	}{
		{"by default", "", "", Means{MPS: "no"}, job.Watch, "", ""},
		{"asked and possible", job.MPS, "", Means{}, job.MPS, "", ""},
		{"required is asked", "", job.MPS, Means{}, job.MPS, "", ""},
		{"asked and impossible", job.MPS, "", Means{MPS: "no such program"}, job.Watch, "no such program; the share is measured from outside instead", ""},
		{"asked, watch required", job.MPS, job.Watch, Means{MPS: "no"}, job.Watch, "measured from outside", ""},
		{"required and impossible", job.MPS, job.MPS, Means{MPS: "no such program"}, "", "", "--require-quota mps asks: NVIDIA's Multi-Process Service cannot limit it: no such program"},
		{"no watching", "", "", Means{Watch: "it is PID 1"}, job.NoQuota, "no process enforces", ""},
		{"mps that cannot be verified", job.MPS, "", Means{Watch: "it is PID 1"}, job.NoQuota, "it is PID 1", ""},
		{"watch required and impossible", "", job.Watch, Means{Watch: "it is PID 1"}, "", "", "--require-quota watch asks: it is PID 1"},
	} {
		level, note, refusal := DecideLevel(c.asked, c.required, c.can)
		switch {
		case refusal == nil && c.refusal != "", refusal != nil && (c.refusal == "" || !strings.Contains(refusal.Summary, c.refusal) || !refusal.Never || refusal.Remedy == ""):
			t.Errorf("%s: refusal %+v, want %q", c.name, refusal, c.refusal)
		case refusal == nil && level != c.want, !strings.Contains(note, c.note), c.note == "" && note != "":
			t.Errorf("%s: %q, %q, want %q, %q", c.name, level, note, c.want, c.note)
		}
	}
}

func TestRoom(t *testing.T) {
	for share, want := range map[gpu.Bytes]gpu.Bytes{
		8 * gpu.GiB: 8*gpu.GiB - 512*gpu.MiB, gpu.GiB: 512 * gpu.MiB, 600 * gpu.MiB: 300 * gpu.MiB, 0: 0,
	} {
		if got := RoomInShare(share); got != want {
			t.Errorf("Room(%s) = %s, want %s", share, got, want)
		}
	}
}

func TestAsk(t *testing.T) {
	for sum, want := range map[gpu.Bytes]string{
		16 * gpu.GiB: "18G", 10 * gpu.GiB: "11G", gpu.GiB: "1280M", 100 * gpu.MiB: "256M", 3600 * gpu.MiB: "4G", 900 * gpu.MiB: "1G",
	} {
		if got := SizeToAskFor(sum); got != want {
			t.Errorf("Ask(%s) = %s, want %s", sum, got, want)
		}
	}
}

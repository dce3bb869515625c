package fakegpu

import "testing"

func TestBuild(t *testing.T) {
	d := New(t, A100(0), A100(1))
	t.Log(d.Dir)
	d.Without("nvmlDeviceGetMemoryInfo_v2")
}

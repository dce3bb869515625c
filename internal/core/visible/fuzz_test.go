package visible

import (
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
)

func FuzzCUDA(f *testing.F) {
	for _, c := range cudaCases() {
		value, _ := c.env.Lookup("CUDA_VISIBLE_DEVICES")
		for shape := range uint8(15) {
			f.Add(value, "PCI_BUS_ID", shape)
		}
	}
	f.Add("0,1", "FASTEST_FIRST", uint8(3))
	f.Add("0\x00,\xff,٣", "", uint8(0))
	f.Fuzz(func(t *testing.T, value, order string, shape uint8) {
		m := []gpu.Machine{eight(), same(gpu.NVIDIA, 2), split(3, 1, 2), bothVendors(), {}}[shape%5]
		m.Driver = []string{"", "535.261.03", "580.95.05"}[shape/5%3]
		env := Env{"CUDA_VISIBLE_DEVICES=" + value, "CUDA_DEVICE_ORDER=" + order}
		v := CUDA(env, m)
		wellFormed(t, m, v)
		if again := CUDA(env, m); indices(m, again) != indices(m, v) || codes(again) != codes(v) {
			t.Error("the same question has two answers")
		}
		if len(v.Visible) > strings.Count(value, ",")+1 && !slices.ContainsFunc(v.Notes, Note.Widens) {
			t.Errorf("%q shows %d devices", value, len(v.Visible))
		}
		hidden, _ := HiddenDevices(env, m)
		for _, e := range v.Visible {
			if hidden[e.UUID] != "" || hidden[e.Parent] != "" {
				t.Errorf("%s is visible and hidden", e.UUID)
			}
		}
		for id := range hidden {
			if _, _, ok := m.FindDevice(id); !ok {
				t.Errorf("%s is hidden and no device", id)
			}
		}
	})
}

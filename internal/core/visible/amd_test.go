package visible

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

func TestROCR(t *testing.T) {
	g4 := same(gpu.AMD, 4)
	for _, c := range []struct{ value, want, notes string }{
		{"", "", "empty-list"},
		{"-1", "", ""},
		{"GPU-XX", "", "unknown-uuid"},
		{"3,GPU-BABABABABABABABA,4", "3,0", "invalid-index"},
		{"0,0,1", "0", "duplicate"},
		{" 1 , 0 ", "1,0", ""},
		{"0x1", "1", ""},
		{"0X1", "1", ""},
		{"03", "3", ""},
		{"010", "", "number-base invalid-index"},
		{"08", "", "not-a-number"},
		{"+2,-0", "2,0", ""},
		{"1x,0", "", "not-a-number"},
		{"0x", "", "not-a-number"},
		{"0,", "0", ""},
		{"0,,1", "", "program-fails"},
		{",", "", "program-fails"},
		{" ", "", "program-fails"},
		{"0,9,,1", "0", "invalid-index"},
		{"0,1,2,3,,", "0,1,2,3", "entries-ignored"},
		{"gpu-babababababababa", "0", ""},
		{"GPU-BABABABACB", "1", ""},
		{"GPU-", "", "unknown-uuid"},
		{"GPU-B", "", "ambiguous-uuid"},
		{"GPU-4f7a1f2c-1111-2222-3333-444444444444", "", "unknown-uuid"},
		{"1,9,0", "1", "invalid-index"},
		{"0,1,2,3,9", "0,1,2,3", "entries-ignored"},
		{"4294967297", "1", "number-cut"},
		{"9223372036854775808", "", "number-cut"},
		{"0xe2286128b30e5456", "", "number-cut"},
		{"0b1,0", "", "undocumented"},
		{"all", "", "not-a-number"},
		{"99999999999999999999z", "", "not-a-number"},
		{"--1", "", "not-a-number"},
	} {
		v := ROCR(Env{"ROCR_VISIBLE_DEVICES=" + c.value}, g4)
		wellFormed(t, g4, v)
		if got := indices(g4, v); got != c.want || codes(v) != c.notes {
			t.Errorf("%q: visible %q notes %q, want %q and %q", c.value, got, codes(v), c.want, c.notes)
		}
	}
	if got := indices(g4, ROCR(nil, g4)); got != "0,1,2,3" {
		t.Errorf("unset shows %q", got)
	}
}

func TestHIP(t *testing.T) {
	g4 := same(gpu.AMD, 4)
	for _, c := range []struct {
		env         string // separated by blanks, _ for a blank
		want, notes string
	}{
		{"", "0,1,2,3", ""},
		{"HIP= CUDA=0", "", "variable-beaten empty-list older-rocm-differs"},
		{"CUDA=1", "1", ""},
		{"CUDA=", "", "empty-list older-rocm-differs"},
		{"HIP=2 CUDA=1", "2", "variable-beaten"},
		{"HIP=1 CUDA=1", "1", ""},
		{"HIP=0 CUDA=-1", "0", ""},
		{"HIP=-1 CUDA=2", "", ""},
		{"HIP=0,_1", "0", "not-a-number"},
		{"HIP=01", "", "not-a-number"},
		{`HIP="1"`, "1", ""},
		{`HIP=__"2,0"_`, "2,0", ""},
		{`HIP="2,0`, "", "not-a-number"},
		{`HIP="`, "", "not-a-number"},
		{`HIP='1'`, "", "not-a-number"},
		{`HIP="1" CUDA=2`, "1", "variable-beaten"},
		{`HIP=""`, "0,1,2,3", "no-mask"},
		{`HIP="" CUDA=2`, "2", ""},
		{`CUDA=""`, "0,1,2,3", "no-mask"},
		{`HIP="_"`, "", "not-a-number"},
		{"HIP=4294967296", "", "invalid-index"},
		{"HIP=0-2", "", "range"},
		{"HIP=+1", "", "not-a-number"},
		{"HIP=1x", "", "not-a-number"},
		{"HIP=_", "", "not-a-number"},
		{"HIP=0,5,1", "0", "invalid-index"},
		{"HIP=-1", "", ""},
		{"HIP=1,0,1,2", "1,0,2", "duplicate"},
		{"HIP=0,", "0", ""},
		{"HIP=0,,1", "0", "not-a-number"},
		{"HIP=GPU-babababacb", "1", "older-rocm-differs"},
		{"HIP=GPU-BABABABACB", "", "unknown-uuid"},
		{"HIP=GPU-", "0", "older-rocm-differs"},
		{"HIP=GPU-XX", "", "unknown-uuid"},
		{"HIP=all", "", "not-a-number"},
		{"ROCR=1,2,3 HIP=0", "1", ""},
		{"ROCR=1,2,3 HIP=2", "3", "filtered-twice"},
		{"ROCR=1,2,3 HIP=3", "", "invalid-index"},
		{"ROCR=3,1 HIP=0,1", "3,1", ""},
		{"ROCR=-1 HIP=0", "", "invalid-index"},
		{"ROCR=2 CUDA=-1", "", "pytorch-differs"},
		{"ROCR=2,0", "2,0", ""},
		{"ROCR=", "", "empty-list pytorch-differs"},
		{"ROCR=0,9", "0", "invalid-index pytorch-differs"},
		{"ROCR=1,2 CUDA=0", "1", "pytorch-differs"},
		{"ROCR=1 HIP=0,0", "1", "duplicate pytorch-differs"},
		{"ROCR=1 HIP=0,1", "1", "invalid-index pytorch-differs"},
		{"ROCR=-1 HIP=-1", "", ""},
		{"ORDINAL=1", "0,1,2,3", ""},
	} {
		v := HIP(amdEnv(c.env), g4)
		wellFormed(t, g4, v)
		if got := indices(g4, v); got != c.want || codes(v) != c.notes {
			t.Errorf("%q: visible %q notes %q, want %q and %q", c.env, got, codes(v), c.want, c.notes)
		}
	}
	old := same(gpu.AMD, 2)
	old.Devices[1].UUID = "PCI-0000:11:00.0" // GPUs older than Gfx9 have no UUID
	if v := HIP(amdEnv("HIP=GPU-XX"), old); indices(old, v) != "1" || codes(v) != "older-rocm-differs" {
		t.Errorf("a GPU without an identifier: %+v", v)
	}
	split := same(gpu.AMD, 4) // 0, 1 and 2 are partitions of one GPU
	for i, id := range []gpu.UUID{"GPU-a1b2000000000001-p0", "GPU-a1b2000000000001-p1", "GPU-a1b2000000000001-p2", "GPU-1f00000000000002"} {
		split.Devices[i].UUID = id
	}
	for env, want := range map[string]string{
		"HIP=GPU-a1b2000000000001": "0", "HIP=3,GPU-a1": "3,0", "HIP=GPU-X": "", "HIP=GPU-a1b2000000000001-p1": "", "ROCR=2,1 HIP=GPU-a": "2",
		"ROCR=GPU-a1b2000000000001": "", "ROCR=GPU-1f": "3", "ROCR=GPU-a1b2000000000001-p1": "",
	} {
		if v := HIP(amdEnv(env), split); indices(split, v) != want {
			t.Errorf("partitions, %s: %q, want %q; %v", env, indices(split, v), want, v.Notes)
		}
	}
	both := bothVendors()
	if v := HIP(set("1"), both); indices(both, v) != "1" || codes(v) != "hip-reads-cuda" {
		t.Errorf("mixed machine: %+v", v)
	}
}

func amdEnv(words string) Env {
	long := map[string]string{"HIP": "HIP_VISIBLE_DEVICES", "CUDA": "CUDA_VISIBLE_DEVICES", "ROCR": "ROCR_VISIBLE_DEVICES", "ORDINAL": "GPU_DEVICE_ORDINAL"}
	var env Env
	for _, w := range strings.Fields(words) {
		name, value, _ := strings.Cut(w, "=")
		env = append(env, long[name]+"="+strings.ReplaceAll(value, "_", " "))
	}
	return env
}

func TestOpenCL(t *testing.T) {
	g4 := same(gpu.AMD, 4)
	for _, c := range []struct{ env, want string }{
		{"", "0,1,2,3"},
		{"HIP=1 CUDA=2", "0,1,2,3"},
		{"ORDINAL=2,0", "2,0"},
		{"ORDINAL=", ""},
		{"ROCR=3,2 ORDINAL=1", "2"},
	} {
		v := OpenCL(amdEnv(c.env), g4)
		wellFormed(t, g4, v)
		if got := indices(g4, v); got != c.want {
			t.Errorf("%q: visible %q, want %q", c.env, got, c.want)
		}
	}
}

func TestLimitAMD(t *testing.T) {
	g4, both := same(gpu.AMD, 4), bothVendors()
	for _, c := range []struct {
		env     string
		machine gpu.Machine
		want    string
		why     string
	}{
		{"ROCR=2", g4, "2", "ROCR_VISIBLE_DEVICES=2 hides it"},
		{"HIP=2", g4, "2", "HIP_VISIBLE_DEVICES=2 hides it"},
		{"CUDA=3", g4, "3", "CUDA_VISIBLE_DEVICES=3 hides it"},
		{"ROCR=1,2 HIP=1", g4, "2", "ROCR_VISIBLE_DEVICES=1,2 hides it"},
		{"ORDINAL=1", g4, "0,1,2,3", ""},
		{"HIP=0", both, "0,1,2,0", "HIP_VISIBLE_DEVICES=0 hides it"},
		{"CUDA=1 HIP=0,1", both, "1,0,1", "CUDA_VISIBLE_DEVICES=1 hides it"},
	} {
		left, why, _ := shownBy(amdEnv(c.env), c.machine)
		if left != c.want || why != c.why {
			t.Errorf("%s: left %q because %q, want %q because %q", c.env, left, why, c.want, c.why)
		}
	}
	job := append(amdEnv("ROCR=0,1"), "SLURM_JOB_ID=5", "SLURM_JOB_GPUS=2,3")
	if left, why, _ := shownBy(job, g4); left != "2,3" || why != "SLURM_JOB_GPUS=2,3 hides it" {
		t.Errorf("Slurm: left %q because %q", left, why)
	}
}

// TestWrittenIsReadAMD is TestWrittenIsRead for AMD devices: HIP and OpenCL see the targets in order, CUDA sees none.
func TestWrittenIsReadAMD(t *testing.T) {
	inherited := Env{"CUDA_VISIBLE_DEVICES=1", "ROCR_VISIBLE_DEVICES=1", "HIP_VISIBLE_DEVICES=1,0", "GPU_DEVICE_ORDINAL=1"}
	random := rand.New(rand.NewPCG(3, 4))
	for _, m := range []gpu.Machine{same(gpu.AMD, 1), same(gpu.AMD, 8), bothVendors()} {
		for range 200 {
			var targets []Target
			var want []gpu.UUID
			devices := devicesOf(m, gpu.AMD)
			for _, i := range random.Perm(len(devices))[:1+random.IntN(len(devices))] {
				targets = append(targets, target(*devices[i]))
				want = append(want, devices[i].UUID)
			}
			for _, ids := range []job.IDs{job.AutoIDs, job.UUIDs, job.IndexIDs} {
				env := apply(inherited, TargetVars(targets, ids, m))
				if v := CUDA(env, m); len(v.Visible) > 0 {
					t.Fatalf("%v: CUDA sees %v", env, v.Visible)
				}
				for _, read := range []func(Env, gpu.Machine) View{ROCR, HIP, OpenCL} {
					v := read(env, m)
					wellFormed(t, m, v)
					var got []gpu.UUID
					for _, e := range v.Visible {
						got = append(got, e.UUID)
					}
					if !slices.Equal(got, want) || len(v.Notes) > 0 {
						t.Fatalf("%v: visible %v notes %v, want %v", env, got, v.Notes, want)
					}
				}
				hidden, notes := HiddenDevices(env, m)
				for _, d := range m.Devices {
					if (hidden[d.UUID] == "") != slices.Contains(want, d.UUID) || len(notes) > 0 {
						t.Fatalf("%v: Limit says %q of %s, notes %v", env, hidden[d.UUID], d.UUID, notes)
					}
				}
			}
		}
	}
}

func FuzzAMD(f *testing.F) {
	for _, s := range []string{"", "0", "3,GPU-BABABABABABABABA,4", " 1 , 0 ", "0x1,010", "0,,1", "GPU-,\xff", "-9223372036854775808"} {
		f.Add(s, "0,1", false)
		f.Add("1,2,3", s, true)
	}
	f.Fuzz(func(t *testing.T, rocr, hip string, cuda bool) {
		m := bothVendors()
		env := Env{"ROCR_VISIBLE_DEVICES=" + rocr, "HIP_VISIBLE_DEVICES=" + hip, "GPU_DEVICE_ORDINAL=" + hip}
		if cuda {
			env[1] = "CUDA_VISIBLE_DEVICES=" + hip
		}
		hidden, _ := HiddenDevices(env, m)
		below := ROCR(env, m)
		wellFormed(t, m, below)
		wellFormed(t, m, OpenCL(env, m))
		v := HIP(env, m)
		wellFormed(t, m, v)
		for _, e := range v.Visible {
			if hidden[e.UUID] != "" || !slices.ContainsFunc(below.Visible, func(b Entry) bool { return b.UUID == e.UUID }) {
				t.Errorf("%s is visible to HIP and hidden below it", e.UUID)
			}
		}
		if n := len(devicesOf(m, gpu.AMD)); len(v.Visible) != n-countHidden(hidden, devicesOf(m, gpu.AMD)) {
			t.Errorf("HIP sees %d, Limit hides %d of %d", len(v.Visible), countHidden(hidden, devicesOf(m, gpu.AMD)), n)
		}
	})
}

func countHidden(hidden map[gpu.UUID]string, devices []*gpu.Device) int {
	n := 0
	for _, d := range devices {
		if hidden[d.UUID] != "" {
			n++
		}
	}
	return n
}

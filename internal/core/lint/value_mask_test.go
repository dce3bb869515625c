package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gpuard/internal/core/visible"
)

func TestFault(t *testing.T) {
	for _, c := range []struct {
		name, value  string
		code, better string
	}{
		{"CUDA_VISIBLE_DEVICES", "0", "", ""},
		{"CUDA_VISIBLE_DEVICES", "0,1,2,3", "", ""},
		{"CUDA_VISIBLE_DEVICES", "", "", ""},
		{"CUDA_VISIBLE_DEVICES", " ", "", ""},
		{"CUDA_VISIBLE_DEVICES", "-1", "", ""},
		{"CUDA_VISIBLE_DEVICES", "0,1,-1", "", ""},
		{"CUDA_VISIBLE_DEVICES", "0, 1", "", ""},
		{"CUDA_VISIBLE_DEVICES", "0,1,", "", ""},
		{"CUDA_VISIBLE_DEVICES", "GPU-9942190a,GPU-9e8d35e3", "", ""},
		{"CUDA_VISIBLE_DEVICES", "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/2", "", ""},
		{"CUDA_VISIBLE_DEVICES", "{}", "", ""},
		{"CUDA_VISIBLE_DEVICES", "{%}", "", ""},
		{"CUDA_VISIBLE_DEVICES", "{{ gpu }}", "", ""},
		{"CUDA_VISIBLE_DEVICES", "{gpu},%d", "", ""},
		{"CUDA_VISIBLE_DEVICES", "<gpu>", "", ""},
		{"CUDA_VISIBLE_DEVICES", "@GPU@", "", ""},
		{"CUDA_VISIBLE_DEVICES", "__GPU__", "", ""},
		{"CUDA_VISIBLE_DEVICES", "{0..3}", codeNoDevice, ""},
		{"CUDA_VISIBLE_DEVICES", "[0,1]", codeNoDevice, "0,1"},
		{"CUDA_VISIBLE_DEVICES", "0-3", codeRange, "0,1,2,3"},
		{"CUDA_VISIBLE_DEVICES", "0-1,4-5", codeRange, "0,1,4,5"},
		{"CUDA_VISIBLE_DEVICES", "0 - 3", codeRange, "0,1,2,3"},
		{"CUDA_VISIBLE_DEVICES", "0:3", codeRange, "0,1,2,3"},
		{"CUDA_VISIBLE_DEVICES", "3-0", codeRange, ""},
		{"CUDA_VISIBLE_DEVICES", "0-3,2", codeRange, ""},
		{"CUDA_VISIBLE_DEVICES", "0-3,GPU-1", codeRange, ""},
		{"CUDA_VISIBLE_DEVICES", "0-999", codeRange, ""},
		{"CUDA_VISIBLE_DEVICES", "0 1", codeSeparators, "0,1"},
		{"CUDA_VISIBLE_DEVICES", "0;1", codeSeparators, "0,1"},
		{"CUDA_VISIBLE_DEVICES", "0|1", codeSeparators, "0,1"},
		{"CUDA_VISIBLE_DEVICES", "1\uff0c2", codeSeparators, "1,2"},
		{"CUDA_VISIBLE_DEVICES", "1\u30012\uff1b3", codeSeparators, "1,2,3"},
		{"CUDA_VISIBLE_DEVICES", "0,,1", codeSeparators, "0,1"},
		{"CUDA_VISIBLE_DEVICES", ",0", codeSeparators, "0"},
		{"CUDA_VISIBLE_DEVICES", "0 0", codeSeparators, ""},
		{"CUDA_VISIBLE_DEVICES", `"0,1"`, codeQuotes, "0,1"},
		{"CUDA_VISIBLE_DEVICES", `'0'`, codeQuotes, "0"},
		{"CUDA_VISIBLE_DEVICES", `"0-1"`, codeQuotes, "0,1"},
		{"CUDA_VISIBLE_DEVICES", `""`, codeQuotes, ""},
		{"CUDA_VISIBLE_DEVICES", "0,0", codeDuplicate, ""},
		{"CUDA_VISIBLE_DEVICES", "1,0,01", codeDuplicate, ""},
		{"CUDA_VISIBLE_DEVICES", "GPU-1,GPU-1", codeDuplicate, ""},
		{"CUDA_VISIBLE_DEVICES", "MIG-8932f937", codeShowsAll, ""},
		{"CUDA_VISIBLE_DEVICES", "MIG-,0", codeShowsAll, ""},
		{"CUDA_VISIBLE_DEVICES", "MIG-8932F937-d72c-4106-c12f-20bd9faed9f6", codeShowsAll, ""},
		{"CUDA_VISIBLE_DEVICES", "0" + strings.Repeat(" ", 1023), codeShowsAll, ""},
		{"CUDA_VISIBLE_DEVICES", "0" + strings.Repeat(" ", 1022), "", ""},
		{"CUDA_VISIBLE_DEVICES", "-1" + strings.Repeat(" ", 1022), codeShowsAll, ""},
		{"CUDA_VISIBLE_DEVICES", strings.Repeat(" ", 1024), codeShowsAll, ""},
		{"CUDA_VISIBLE_DEVICES", "0,MIG-8932f937", codeMixed, ""},
		{"CUDA_VISIBLE_DEVICES", "0,GPU-1", codeMixed, ""},
		{"CUDA_VISIBLE_DEVICES", "all", codeNoDevice, ""},
		{"CUDA_VISIBLE_DEVICES", "none", codeNoDevice, ""},
		{"CUDA_VISIBLE_DEVICES", "gpu0", codeNoDevice, "0"},
		{"CUDA_VISIBLE_DEVICES", "cuda:0,cuda:1", codeNoDevice, "0,1"},
		{"CUDA_VISIBLE_DEVICES", "GPU 0", codeNoDevice, "0"},
		{"CUDA_VISIBLE_DEVICES", "gpu0,gpu0", codeNoDevice, ""},
		{"CUDA_VISIBLE_DEVICES", "gpu-9942190a", codeNoDevice, ""},
		{"CUDA_VISIBLE_DEVICES", "one", codeNoDevice, ""},
		{"CUDA_VISIBLE_DEVICES", "GPU-1, GPU-2", codeSpaces, "GPU-1,GPU-2"},
		{"HIP_VISIBLE_DEVICES", "0, 1", codeSpaces, "0,1"},
		{"HIP_VISIBLE_DEVICES", "01", codeNoDevice, ""},
		{"HIP_VISIBLE_DEVICES", "+1", codeNoDevice, ""},
		{"HIP_VISIBLE_DEVICES", "0,1", "", ""},
		{"HIP_VISIBLE_DEVICES", "0,GPU-e2286128b30e5456", "", ""},
		{"HIP_VISIBLE_DEVICES", "0,GPU-E2286128B30E5456", codeNoDevice, "0,GPU-e2286128b30e5456"},
		{"HIP_VISIBLE_DEVICES", "GPU-e2286128b30e5456, 0", codeSpaces, "GPU-e2286128b30e5456,0"},
		{"ROCR_VISIBLE_DEVICES", "0b1", "", ""},
		{"ROCR_VISIBLE_DEVICES", "0, 1", "", ""},
		{"ROCR_VISIBLE_DEVICES", "0x1", "", ""},
		{"ROCR_VISIBLE_DEVICES", "GPU-DEADBEEFDEADBEEF", "", ""},
		{"ASCEND_RT_VISIBLE_DEVICES", "0, 1", codeSpaces, "0,1"},
		{"ASCEND_RT_VISIBLE_DEVICES", "0,2,1", codeOrder, "0,1,2"},
		{"ASCEND_RT_VISIBLE_DEVICES", "2, 1", codeSpaces, "1,2"},
		{"ASCEND_RT_VISIBLE_DEVICES", "0-3", codeRange, "0,1,2,3"},
		{"ZE_AFFINITY_MASK", "0.0,0.1,1", "", ""},
		{"ZE_AFFINITY_MASK", "default", "", ""},
		{"ZE_AFFINITY_MASK", "0-3", codeRange, "0,1,2,3"},
		{"NVIDIA_VISIBLE_DEVICES", "all", "", ""},
		{"NVIDIA_VISIBLE_DEVICES", "none", "", ""},
		{"NVIDIA_VISIBLE_DEVICES", "void", "", ""},
		{"NVIDIA_VISIBLE_DEVICES", "0:1", "", ""},
		{"NVIDIA_VISIBLE_DEVICES", "-1", codeNoDevice, ""},
		{"NVIDIA_VISIBLE_DEVICES", "nvidia.com/gpu=0", "", ""},
		{"NVIDIA_VISIBLE_DEVICES", "0-3", codeRange, "0,1,2,3"},
		{"NVIDIA_VISIBLE_DEVICES", "gpu0", codeNoDevice, "0"},
	} {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			l, _ := findListVariable(c.name)
			f, wrong := l.findFault(c.value)
			if wrong != (c.code != "") || f.code != c.code && wrong || f.better != c.better {
				t.Errorf("%+v, %v; want %q and %q", f, wrong, c.code, c.better)
			}
			if f.better == "" {
				return
			}
			if again, still := l.findFault(f.better); still {
				t.Errorf("what is offered, %q, has a fault too: %+v", f.better, again)
			}
		})
	}
}

// TestShowsByName: a device that a list names by its identifier has no number that anybody knows.
func TestShowsByName(t *testing.T) {
	for value, want := range map[string]string{
		"CUDA_VISIBLE_DEVICES=GPU-27a8d467,nope":                         "shows GPU GPU-27a8d467 alone",
		"CUDA_VISIBLE_DEVICES=GPU-27a8d467,0":                            "shows GPU GPU-27a8d467 alone",
		"HIP_VISIBLE_DEVICES=0,GPU-e2286128b30e5456,x":                   "shows GPUs 0, GPU-e2286128b30e5456 alone",
		"ROCR_VISIBLE_DEVICES=GPU-e2286128b30e5456,GPU-e2286128b30e5456": "shows GPU GPU-e2286128b30e5456 alone",
	} {
		name, list, _ := strings.Cut(value, "=")
		l, _ := findListVariable(name)
		if got, _ := l.describeEffect(list); got != want {
			t.Errorf("%s: %q, want %q", value, got, want)
		}
	}
}

// TestFaultAgainstReaders compares the faults with what the readers of the runtimes make of every short list. What has
// no fault shows all that it lists, in the list's order; what has one and is reported shows something else than it
// says.
func TestFaultAgainstReaders(t *testing.T) {
	parts := []string{"", "0", "1", "2", " 1", "01", "+1", "0-2", "1:2", "0 2", "1;2", "gpu0", "all", "GPU-aaaa", " GPU-bbbb", `"1"`, "x-y", "1x", "0x1", "-1"}
	tried := 0
	for _, l := range listVariables() {
		if l.name == "ZE_AFFINITY_MASK" { // the order means nothing and everything unknown is skipped
			continue
		}
		for _, a := range parts {
			for _, b := range append(parts, "|") {
				value := a + "," + b
				if b == "|" {
					value = a
				}
				f, wrong := l.findFault(value)
				shown, bad := l.describeEffect(value)
				tried++
				if !wrong && listed(l, value) != "" && shown != listed(l, value) {
					t.Errorf("%s=%q has no fault and %s, not %q", l.name, value, shown, listed(l, value))
				}
				if wrong && !bad && shown != "shows no GPU at all" && f.code != codeDuplicate && f.code != codeSeparators && l.name != "NVIDIA_VISIBLE_DEVICES" {
					t.Errorf("%s=%q has the fault %s, and its reader takes it: %s", l.name, value, f.code, shown)
				}
			}
		}
	}
	if tried < 1000 {
		t.Errorf("%d lists were tried", tried)
	}
}

// listed says what a correct list of numbers shows; "" for other lists.
func listed(l listVariable, value string) string {
	var numbers []string
	for entry := range strings.SplitSeq(strings.TrimSuffix(value, ","), ",") {
		n, err := strconv.Atoi(strings.TrimSpace(entry))
		if err != nil {
			return ""
		}
		if n < 0 {
			break
		}
		numbers = append(numbers, strconv.Itoa(n))
	}
	if l.name == nvidiaVisibleDevices {
		slices.Sort(numbers) // counted anew inside
	}
	switch len(numbers) {
	case 0:
		return "shows no GPU at all"
	case 1:
		return "shows GPU " + numbers[0] + " alone"
	}
	return fmt.Sprintf("shows GPUs %s alone", strings.Join(numbers, ", "))
}

// FuzzFault: what is offered in the place of a list has no fault, and its reader shows what it lists.
func FuzzFault(f *testing.F) {
	for _, seed := range []string{"0-3", "0 1", `"0,1"`, "gpu0,gpu1", "0;1-2", "0,,1", "all"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		for _, l := range listVariables() {
			got, wrong := l.findFault(value)
			if !wrong || got.better == "" {
				continue
			}
			if again, still := l.findFault(got.better); still {
				t.Fatalf("%s: %q is offered for %q and has the fault %s", l.name, got.better, value, again.code)
			}
			if want := listed(l, got.better); want != "" && !strings.Contains(got.better, "-") && l.name == "CUDA_VISIBLE_DEVICES" {
				biggest := false
				for _, n := range strings.Split(got.better, ",") {
					if v, err := strconv.Atoi(n); err != nil || v > 31 {
						biggest = true // no machine of the test has it
					}
				}
				if shown, _ := l.describeEffect(got.better); shown != want && !biggest {
					t.Fatalf("%s: %q is offered for %q and %s", l.name, got.better, value, shown)
				}
			}
		}
	})
}

func TestRespell(t *testing.T) {
	for _, c := range []struct {
		raw, text, better string
		want              string // "" when it is not mended
	}{
		{"0-3", "0-3", "0,1", "0,1"},
		{`"0-3"`, "0-3", "0,1", `"0,1"`},
		{`'"0"'`, `"0"`, "0", "'0'"},
		{`r"0-3"`, "0-3", "0,1", `r"0,1"`},
		{`"""0-3"""`, "0-3", "0,1", `"""0,1"""`},
		{`"NAME=0-3"`, "0-3", "0,1", ""},
		{`"0""-3"`, "0-3", "0,1", ""},
		{`\"0\"`, `"0"`, "0", ""},
		{`0"-3"`, "0-3", "0,1", ""},
		{`f"{x}"`, "x", "0", ""},
		{"0-3", "0-3", "a b", ""},
		{"0-3", "0-3", "", ""},
		{"", "0-3", "0,1", ""},
	} {
		got, ok := respellValue(Value{Text: c.text, Raw: c.raw, Known: true, At: Place{Line: 1, Column: 1, EndLine: 1, EndColumn: 1}}, c.better)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%s to %s: %q, %v; want %q", c.raw, c.better, got, ok, c.want)
		}
	}
}

// TestListsAreKnown: every variable that chooses devices is judged, or has a grammar of its own.
func TestListsAreKnown(t *testing.T) {
	own := map[string]bool{"CUDA_DEVICE_ORDER": true, "ONEAPI_DEVICE_SELECTOR": true}
	for _, name := range visible.Variables() {
		if _, known := findListVariable(name); !known && !own[name] {
			t.Logf("%s is not judged", name)
		}
	}
	for _, l := range listVariables() {
		found := false
		for _, name := range visible.Variables() {
			found = found || name == l.name
		}
		if !found && l.name != "NVIDIA_VISIBLE_DEVICES" {
			t.Errorf("%s is no variable that chooses devices", l.name)
		}
	}
}

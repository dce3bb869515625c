package compat

import (
	"strings"
	"testing"
)

func TestNameTable(t *testing.T) {
	seen := map[string]bool{}
	lines := 0
	for i, line := range strings.Split(strings.TrimSuffix(nameTable, "\n"), "\n") {
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "@ ") {
			continue
		}
		lines++
		n, ok := readName(line)
		if !ok {
			t.Errorf("data/names.txt:%d: not understood: %q", i+1, line)
		}
		if seen[n.Name] || n.Name != strings.ToUpper(n.Name) || n.Name == n.Instead || n.What == "" || strings.Contains(n.values, " ") {
			t.Errorf("data/names.txt:%d: a name given twice, not in capitals, replaced by itself, or without a word on it: %q", i+1, line)
		}
		seen[n.Name] = true
	}
	all := allNames()
	if len(all) != lines || lines < 30 {
		t.Errorf("%d names read from %d lines", len(all), lines)
	}
	for _, n := range all {
		if n.From == "" {
			t.Errorf("%s has no source", n.Name)
		}
		if alone, ok := lookUpName(n.Name); !ok || alone != n {
			t.Errorf("%s is found as %+v", n.Name, alone)
		}
		if m, ok := lookUpName(n.Instead); ok && m.Kind != maskKind && m.Kind != Debug {
			t.Errorf("%s is replaced by %s, which is itself %s", n.Name, m.Name, m.Kind)
		}
	}
}

func TestDeprecated(t *testing.T) {
	for _, c := range []struct{ name, value, instead string }{
		{"NCCL_ASYNC_ERROR_HANDLING", "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING"},
		{"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", "PYTORCH_ALLOC_CONF"},
		{"XLA_PYTHON_CLIENT_MEM_FRACTION", ".5", "XLA_CLIENT_MEM_FRACTION"},
		{"NCCL_TREE_THRESHOLD", "0", ""},
		{"NCCL_LAUNCH_MODE", "group", ""},
	} {
		if n, ok := DeprecatedName(c.name, c.value); !ok || n.Instead != c.instead {
			t.Errorf("Deprecated(%s, %s) = %+v, %v, want %q instead", c.name, c.value, n, ok, c.instead)
		}
	}
	for name, value := range map[string]string{"NCCL_LAUNCH_MODE": "PARALLEL", "NCCL_SOCKET_IFNAME": "eth0", "NCCL_P2P_DISABLE": "1", "CUDA_VISIBLE_DEVICES": "0", "": ""} {
		if n, ok := DeprecatedName(name, value); ok {
			t.Errorf("Deprecated(%s, %s) = %+v", name, value, n)
		}
	}
}

func TestDebugOnly(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want, warns bool
	}{
		{"NCCL_P2P_DISABLE", "1", true, true},
		{"NCCL_P2P_DISABLE", "0", false, true},
		{"NCCL_P2P_DISABLE", "", false, true},
		{"NCCL_P2P_DISABLE", "true", false, true},
		{"NCCL_SHM_DISABLE", "01", true, true},
		{"CUDA_LAUNCH_BLOCKING", "false", false, true},
		{"NCCL_P2P_LEVEL", "NVL", false, true},
		{"NCCL_P2P_LEVEL", "LOC", true, true},
		{"NCCL_DEBUG", "INFO", true, false},
		{"NCCL_DEBUG", "info", true, false},
		{"NCCL_DEBUG", "WARN", false, false},
		{"CUDA_LAUNCH_BLOCKING", "1", true, true},
		{"CUDA_LAUNCH_BLOCKING", "0", false, true},
		{"PYTORCH_NO_CUDA_MEMORY_CACHING", "0", false, true},
		{"PYTORCH_NO_CUDA_MEMORY_CACHING", "1", true, true},
		{"NCCL_ASYNC_ERROR_HANDLING", "1", false, false},
	} {
		if n, ok := DebugOnly(c.name, c.value); ok != c.want || n.Warns != c.warns {
			t.Errorf("DebugOnly(%s, %s) = %v, warns %v", c.name, c.value, ok, n.Warns)
		}
	}
}

func TestMisspelt(t *testing.T) {
	for name, want := range map[string]string{
		"CUDA_VISIBLE_DEVICE":       "CUDA_VISIBLE_DEVICES",
		"CUDA_VIS" + "ABLE_DEVICES": "CUDA_VISIBLE_DEVICES",
		"CUDA_VISIBLE_DEVCIES":      "CUDA_VISIBLE_DEVICES",
		"CUDA_VISIBILE_DEVICES":     "CUDA_VISIBLE_DEVICES",
		"CUDA_DEVICES_ORDER":        "CUDA_DEVICE_ORDER",
		"NVIDIA_VISIBLE_DEVICE":     "NVIDIA_VISIBLE_DEVICES",
		"ROCR_VISIBLE_DEVICE":       "ROCR_VISIBLE_DEVICES",
		"CUDA_VISIBLE_DEVICES":      "",
		"CUDA_VISIBLE_DEVICES_OLD":  "",
		"CUDA_VISIBLE_DEVICES1":     "",
		"HPU_VISIBLE_DEVICES":       "",
		"GPU_VISIBLE_DEVICES":       "",
		"CUDA_HOME":                 "",
		"":                          "",
		"_":                         "",
	} {
		if n, ok := SuggestName(name); n.Name != want || ok != (want != "") {
			t.Errorf("Misspelt(%s) = %q, %v, want %q", name, n.Name, ok, want)
		}
	}
}

func BenchmarkNames(b *testing.B) {
	for b.Loop() {
		DeprecatedName("OMP_NUM_THREADS", "1")
		DebugOnly("LD_LIBRARY_PATH", "1")
		SuggestName("MASTER_PORT")
	}
}

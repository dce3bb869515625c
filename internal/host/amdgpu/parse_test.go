package amdgpu

import (
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
)

func TestTarget(t *testing.T) {
	for version, want := range map[uint64]string{
		0: "", 80003: "gfx803", 90000: "gfx900", 90010: "gfx90a", 90012: "gfx90c", 90402: "gfx942", 90500: "gfx950",
		100306: "gfx1036", 110000: "gfx1100", 110501: "gfx1151", 120001: "gfx1201", 99: "", 1 << 60: "", 91600: "",
	} {
		same(t, "target", targetName(version), want)
	}
}

func TestAmount(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0 B", "2048": "2 KiB", "524288 KiB": "512 MiB", "3 MiB": "3 MiB", "1 GiB": "1 GiB",
		"": "no", "KiB": "no", "-1 KiB": "no", "5 KB": "no", "9999999999999 GiB": "no", "5  KiB": "no",
	} {
		got := "no"
		if n, ok := parseAmount(text); ok {
			got = n.String()
		}
		same(t, text, got, want)
	}
}

func TestKindOfClient(t *testing.T) {
	base := "drm-driver:\tamdgpu\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t7\ndrm-memory-vram:\t4 KiB\n"
	for engines, want := range map[string]gpu.Kind{
		"": gpu.GraphicsProcess,
		"drm-engine-gfx:\t0 ns\ndrm-engine-compute:\t0 ns\n": gpu.GraphicsProcess,
		"drm-engine-gfx:\t9 ns\n":                            gpu.GraphicsProcess,
		"drm-engine-compute:\t10 ns\n":                       gpu.ComputeProcess,
		"drm-engine-gfx:\t9 ns\ndrm-engine-compute:\t1 ns\n": gpu.BothKinds,
	} {
		c, ok := parseClient(base + engines)
		same(t, "known", ok, true)
		same(t, engines, c.processKind(), want)
		same(t, "memory", c.memory, "4 KiB")
	}
	if _, ok := parseClient(strings.Replace(base, "amdgpu", "i915", 1)); ok {
		t.Error("a client of another driver is taken")
	}
}

func TestMarketingName(t *testing.T) {
	f := fileReader{tree(t, "desktop")}
	for _, tt := range []struct{ device, revision, want string }{
		{"744c", "c8", "AMD Radeon RX 7900 XTX"},
		{"744c", "cc", "AMD Radeon RX 7900 XT"},
		{"744c", "ff", ""}, // another board may carry any name
		{"7450", "c8", ""},
		{"", "", ""},
	} {
		same(t, tt.device+" "+tt.revision, f.marketingName(tt.device, tt.revision), tt.want)
	}
}

func FuzzProperties(f *testing.F) {
	f.Add("simd_count 1216\nunique_id 18446744073709551615\n")
	f.Add("sibling_map 1,0,0,\nx -1\n y 5 \nz 5 6\n\x00 \n")
	f.Fuzz(func(t *testing.T, text string) {
		got := parseProperties(text)
		lines := strings.Count(text, "\n") + 1
		if len(got) > lines {
			t.Errorf("%d properties from %d lines of %q", len(got), lines, text)
		}
		for name := range got {
			if name == "" || strings.ContainsAny(name, " \n\t") || !strings.Contains(text, name) {
				t.Errorf("property %q from %q", name, text)
			}
		}
		var back strings.Builder
		for name, n := range got {
			back.WriteString(name + " ")
			back.WriteString(show(&n) + "\n")
		}
		if again := parseProperties(back.String()); len(again) != len(got) {
			t.Errorf("%v is read back as %v", got, again)
		}
	})
}

// FuzzFiles feeds one text to everything that reads a file of the kernel: nothing may panic or be out of bounds.
func FuzzFiles(f *testing.F) {
	f.Add("ue: 5\nce: 3\n")
	f.Add("0x1 : 0x1000 : P\n")
	f.Add("drm-driver:\tamdgpu\ndrm-memory-vram:\t18446744073709551615 GiB\n")
	f.Fuzz(func(t *testing.T, text string) {
		if c, ok := parseClient(text); ok && (c.memory < 0 || int64(c.memory) > maxMemory) {
			t.Errorf("%d bytes from %q", c.memory, text)
		}
		if p := parseRetiredPages(text); p.DoubleBit < 0 || p.DoubleBit > strings.Count(text, "\n")+1 {
			t.Errorf("%d pages from %q", p.DoubleBit, text)
		}
		if n, err := parseWholeNumber(text, 100); err == nil && (n < 0 || n > 100) {
			t.Errorf("%d from %q", n, text)
		}
	})
}

package pci

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOthers(t *testing.T) {
	root := t.TempDir()
	for address, f := range map[string][2]string{
		"0000:00:02.0": {"0x030000", "0x8086"}, // Intel, in the processor
		"0000:00:0b.0": {"0x120000", "0x8086"}, // Intel's NPU
		"0000:03:00.0": {"0x038000", "0x8086"}, // Intel, a card for computing
		"0000:04:00.0": {"0x030200", "0x10de"}, // NVIDIA has a reader
		"0000:05:00.0": {"0x030000", "0x1002"}, // so has AMD
		"0000:06:00.0": {"0x030000", "0x19e5"}, // a Huawei management chip
		"0000:81:00.0": {"0x120000", "0x19e5"},
		"0000:82:00.0": {"", "0x8086"},
		"0000:83:00.0": {"0x020000", "0x8086"}, // a network card
	} {
		folder := filepath.Join(root, "sys/bus/pci/devices", address)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"class", "vendor"} {
			if f[i] == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(folder, name), []byte(f[i]+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	var got []string
	for _, d := range Others(root) {
		got = append(got, fmt.Sprintf("%s %s", d.Vendor, d.PCI))
	}
	if want := "intel 0000:00:02.0, intel 0000:03:00.0, ascend 0000:81:00.0"; strings.Join(got, ", ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), want)
	}
	if got := Others(t.TempDir()); len(got) != 0 {
		t.Errorf("a machine without PCI has %v", got)
	}
}

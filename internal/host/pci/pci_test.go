package pci

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gpuard/internal/core/hostinfo"
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
	for _, d := range ListOtherDevices(root) {
		got = append(got, fmt.Sprintf("%s %s", d.Vendor, d.PCI))
	}
	if want := "intel 0000:00:02.0, intel 0000:03:00.0, ascend 0000:81:00.0"; strings.Join(got, ", ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), want)
	}
	if got := ListOtherDevices(t.TempDir()); len(got) != 0 {
		t.Errorf("a machine without PCI has %v", got)
	}
}

// TestCards: every display controller and accelerator, with any driver or none.
func TestCards(t *testing.T) {
	root := t.TempDir()
	for address, files := range map[string]map[string]string{
		"0000:00:02.0": {"class": "0x030000", "vendor": "0x1a03", "device": "0x2000", "boot_vga": "1", "driver": "->ast"},
		"0000:00:0b.0": {"class": "0x120000", "vendor": "0x8086"}, // Intel's NPU
		"0000:17:00.0": {"class": "0x030200", "vendor": "0x10DE", "device": "0x20b2", "boot_vga": "0", "driver": "->nvidia"},
		"0000:17:00.1": {"class": "0x040300", "vendor": "0x10de"},                         // its audio device
		"0000:17:00.4": {"class": "0x030200", "vendor": "0x10de", "physfn": "->physical"}, // a virtual function of it
		"0000:31:00.0": {"class": "0x030200", "vendor": "0x10de"},                         // no driver
		"0000:41:00.0": {"class": "0x120000", "vendor": "0x1002", "driver": "->amdgpu"},
		"0000:51:00.0": {"class": "0x020000", "vendor": "0x15b3"},
		"0000:61:00.0": {},
	} {
		for name, text := range files {
			path := filepath.Join(root, "sys/bus/pci/devices", address, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			err := os.WriteFile(path, []byte(text+"\n"), 0o644)
			if target, link := strings.CutPrefix(text, "->"); link {
				_ = os.Remove(path)
				err = os.Symlink("../../../bus/pci/drivers/"+target, path)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	got, err := ListCards(root)
	want := []hostinfo.Card{
		{PCI: "0000:00:02.0", Vendor: 0x1a03, Device: 0x2000, Driver: "ast", Boot: true},
		{PCI: "0000:17:00.0", Vendor: 0x10de, Device: 0x20b2, Driver: "nvidia"},
		{PCI: "0000:31:00.0", Vendor: 0x10de},
		{PCI: "0000:41:00.0", Vendor: 0x1002, Driver: "amdgpu"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
	if _, err := ListCards(t.TempDir()); err == nil {
		t.Error("a machine without PCI is no error")
	}
}

package visible

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
)

// A case's mark says where its result comes from: D documented by NVIDIA, T asserted by PyTorch's tests against
// driver 525, O observed on hardware, L observed of libcuda 470 to 555 over invented GPUs, R a reading where nothing else
// is known. R cases carry a note.
type cudaCase struct {
	name    string
	mark    string
	env     Env
	machine gpu.Machine
	want    string
	notes   string
}

func set(value string) Env { return Env{"CUDA_VISIBLE_DEVICES=" + value} }

func cudaCases() []cudaCase {
	g2, g4, g5, g10, g16, u8 := same(gpu.NVIDIA, 2), same(gpu.NVIDIA, 4), same(gpu.NVIDIA, 5), same(gpu.NVIDIA, 10), same(gpu.NVIDIA, 16), eight()
	mig := split(1, 0)
	parent := string(mig.Devices[0].UUID)
	return []cudaCase{
		{"unset", "D", nil, g4, "0,1,2,3", ""},
		{"empty", "D", set(""), g4, "", "empty-list"},
		{"one blank", "O", set(" "), g4, "", "empty-list"},
		{"minus one", "D", set("-1"), g4, "", ""},
		{"one", "D", set("0"), g4, "0", ""},
		{"order of the list", "D", set("2,1"), g4, "2,1", ""},
		{"invalid ends", "D", set("0,2,-1,1"), g4, "0,2", "invalid-index"},
		{"blanks, invalid ends", "T", set("0, 1, 2, -1, 3"), g4, "0,1,2", "invalid-index"},
		{"junk", "T", set("1gpu2,2ampere"), g4, "1,2", "junk-ignored junk-ignored"},
		{"duplicate", "T", set("0, 1, 2, 1"), g4, "", "duplicate"},
		{"duplicate first", "O", set("0,0"), g4, "", "duplicate"},
		{"signs", "T", set("+0, -0"), g4, "", "duplicate"},
		{"plus", "T", set(" +1"), g4, "1", ""},
		{"minus zero", "T", set("-0,1"), g4, "0,1", ""},
		{"words first", "T", set("one,two,3,4"), g5, "", "not-a-number"},
		{"word later", "T", set("4,3,two,one"), g5, "4,3", "not-a-number"},
		{"blank after comma", "T", set("1, 0"), g2, "1,0", ""},
		{"too large first", "D", set("5,0"), g2, "", "invalid-index"},
		{"too large alone", "O", set("16"), g10, "", "invalid-index"},
		{"too large twice", "T", set("7,7"), g2, "", "invalid-index"},
		{"range", "O", set("0-2"), g4, "0", "range"},
		{"range with a long dash", "O", set("1–2"), g4, "1", "range"},
		{"range after invalid", "O", set("-1,0-2"), g4, "", "invalid-index"},
		{"several signs", "D", set("--1"), g4, "", "not-a-number"},
		{"Slurm's word", "O", set("NoDevFiles"), g4, "", "container-word"},
		{"all", "L", set("all"), g4, "", "container-word"},
		{"none", "L", set("none"), g4, "", "container-word"},
		{"void", "L", set("void"), g4, "", "container-word"},
		{"framework name", "L", set("cuda:0"), g4, "", "not-a-number"},
		{"quotes", "L", set(`"0"`), g4, "", "quotes"},
		{"prefix", "T", set("GPU-9e8d35e3"), u8, "1", ""},
		{"two prefixes", "T", set("GPU-e4,GPU-9e8d35e3"), u8, "2,1", ""},
		{"same GPU, two prefixes", "T", set("GPU-9e8d35e3,GPU-9e8d"), u8, "", "duplicate"},
		{"ambiguous prefix", "T", set("GPU-9e8d35e3,GPU-e,GPU-47"), u8, "1", "ambiguous-uuid"},
		{"unknown first", "T", set("GPU-123,GPU-9e8d35e3"), u8, "", "unknown-uuid"},
		{"unknown later", "T", set("GPU-9e8d35e3,GPU-123,GPU-47"), u8, "1", "unknown-uuid"},
		{"number after unknown", "T", set("GPU-123, 2"), u8, "", "unknown-uuid"},
		{"number after identifier", "T", set("GPU-9e8d35e3, 2"), u8, "1", "mixed-forms"},
		{"identifier after number", "L", set("0,GPU-9e8d35e3"), u8, "0", "mixed-forms"},
		{"blank before identifier", "L", set("GPU-9942190a, GPU-9e8d35e3"), u8, "0", "mixed-forms"},
		{"blank at the start", "L", set(" GPU-9942190a"), u8, "", "unknown-uuid"},
		{"blank at the end", "L", set("GPU-9942190a "), u8, "", "unknown-uuid"},
		{"small letters", "L", set("gpu-9942190a"), u8, "", "unknown-uuid"},
		{"capital digits", "L", set("GPU-9942190A"), u8, "0", ""},
		{"leading zero", "L", set("010"), g16, "10", ""},
		{"harmless zero", "L", set("01"), g4, "1", ""},
		{"hexadecimal", "L", set("0x1"), g4, "0", "junk-ignored"},
		{"comma alone", "L", set(","), g4, "", "not-a-number"},
		{"comma at the end", "L", set("0,"), g4, "0", ""},
		{"comma after two", "L", set("0,1,"), g4, "0,1", ""},
		{"semicolon", "L", set("1;0"), g4, "1", "separator"},
		{"blank between", "L", set("1 0"), g4, "1", "separator"},
		{"twenty digits", "L", set("12345678901234567890"), g4, "", "invalid-index"},
		{"wraps to zero", "L", set("4294967296"), g4, "0", "number-cut"},
		{"plus alone", "L", set("+"), g4, "", "not-a-number"},
		{"minus alone", "L", set("-"), g4, "", "not-a-number"},
		{"duplicate after invalid", "L", set("0,9,0"), g4, "0", "invalid-index"},
		{"duplicate that is invalid", "L", set("0,5,5"), g2, "0", "invalid-index"},
		{"duplicate after minus one", "D", set("0,-1,0"), g4, "0", "invalid-index"},
		{"MIG identifier", "D", set(string(mig.Devices[0].MIG[1].UUID)), mig, "0/1", ""},
		{"MIG path", "D", set("MIG-" + parent + "/1/2"), mig, "0/1", ""},
		{"MIG path, short parent", "O", set("MIG-GPU-3eb79700/13/0"), mig, "0/0", ""},
		{"MIG path, no such instance", "D", set("MIG-" + parent + "/2/0"), mig, "", "unknown-uuid"},
		{"two MIG devices", "O", set("MIG-01000000-0000-5000-8000-000000000000,MIG-00000000-0000-5000-8000-000000000000"), mig, "0/1", "mig-one-slice"},
		{"number of a split GPU", "O", set("0"), mig, "0/0", "mig-first-slice"},
		{"unset on a split GPU", "O", nil, mig, "0/0", "mig-first-slice"},
		{"MIG prefix", "R", set("MIG-01"), mig, "0/1", "undocumented"},
		{"MIG after number", "L", set("0,MIG-01000000-0000-5000-8000-000000000000"), split(2, 1), "0", "mixed-forms undocumented"},
		{"MIG and whole", "R", nil, split(3, 1), "1/0", "mig-first-slice mig-one-slice undocumented"},
		{"fastest first", "D", set("0"), mixed(), "1", "fastest-first-guess"},
		{"PCI order", "D", append(set("0"), "CUDA_DEVICE_ORDER=PCI_BUS_ID"), mixed(), "0", ""},
	}
}

func TestCUDAConformance(t *testing.T) {
	for _, c := range cudaCases() {
		t.Run(c.name, func(t *testing.T) {
			v := CUDA(c.env, c.machine)
			wellFormed(t, c.machine, v)
			if got := indices(c.machine, v); got != c.want {
				t.Errorf("%q: visible %q, want %q (mark %s)", c.env, got, c.want, c.mark)
			}
			if got := codes(v); got != c.notes {
				t.Errorf("%q: notes %q, want %q\n%v", c.env, got, c.notes, v.Notes)
			}
			if c.mark == "R" && c.notes != "" && !strings.Contains(c.notes, codeUndocumented) {
				t.Error("an undocumented case has no note that says so")
			}
		})
	}
}

func TestCUDAOrder(t *testing.T) {
	memory := same(gpu.NVIDIA, 2)
	memory.Devices[0].Name, memory.Devices[0].MemoryTotal = "A100 40G", new(40*gpu.GiB)
	memory.Devices[1].Name, memory.Devices[1].MemoryTotal = "A100 80G", new(80*gpu.GiB)
	partial := mixed()
	partial.Devices[1].Compute = nil
	shuffled := same(gpu.NVIDIA, 3)
	shuffled.Devices[0].PCI, shuffled.Devices[2].PCI = shuffled.Devices[2].PCI, shuffled.Devices[0].PCI
	domain := same(gpu.NVIDIA, 2)
	domain.Devices[0].PCI, domain.Devices[1].PCI = "10000:01:00.0", "0001:01:00.0"
	bad := same(gpu.NVIDIA, 2)
	bad.Devices[0].PCI, bad.Devices[0].Index, bad.Devices[1].Index = "", 1, 0
	for _, c := range []struct {
		name        string
		env         Env
		machine     gpu.Machine
		want, notes string
	}{
		{"memory", nil, memory, "1,0", "fastest-first-guess"},
		{"a reading that one device lacks does not count", nil, partial, "0,1", "fastest-first-guess"},
		{"FASTEST_FIRST in words", Env{"CUDA_DEVICE_ORDER=FASTEST_FIRST"}, mixed(), "1,0", "fastest-first-guess"},
		{"unknown word", Env{"CUDA_DEVICE_ORDER=pci_bus_id"}, mixed(), "", "device-order-unknown"},
		{"empty word", Env{"CUDA_DEVICE_ORDER="}, same(gpu.NVIDIA, 2), "", "device-order-unknown"},
		{"identifiers need no order", set("GPU-000000a0,GPU-000000a1"), mixed(), "0,1", ""},
		{"address, not index", Env{"CUDA_DEVICE_ORDER=PCI_BUS_ID"}, shuffled, "2,1,0", ""},
		{"five digits of domain", Env{"CUDA_DEVICE_ORDER=PCI_BUS_ID"}, domain, "1,0", ""},
		{"no address", Env{"CUDA_DEVICE_ORDER=PCI_BUS_ID"}, bad, "0,1", ""},
	} {
		v := CUDA(c.env, c.machine)
		wellFormed(t, c.machine, v)
		if got := indices(c.machine, v); got != c.want || codes(v) != c.notes {
			t.Errorf("%s: visible %q notes %q, want %q and %q", c.name, got, codes(v), c.want, c.notes)
		}
	}
}

func TestCUDASpecialMachines(t *testing.T) {
	lost := same(gpu.NVIDIA, 2)
	lost.Devices[1].Problem = "GPU is lost"
	empty := split(2, 0)
	empty.Devices[0].MIG = nil
	amd := same(gpu.AMD, 2)
	both := same(gpu.NVIDIA, 2)
	both.Devices = append(amd.Devices, both.Devices...)
	for _, c := range []struct {
		name        string
		env         Env
		machine     gpu.Machine
		want, notes string
	}{
		{"lost", nil, lost, "0,1", "device-problem"},
		{"lost, not chosen", set("0"), lost, "0", ""},
		{"MIG mode without devices", nil, empty, "1", "mig-no-slice"},
		{"AMD does not take part", nil, both, "0,1", ""},
		{"AMD identifier", set(string(amd.Devices[0].UUID)), both, "", "unknown-uuid"},
		{"no NVIDIA GPU", set("0"), amd, "", "invalid-index"},
		{"no device", nil, gpu.Machine{}, "", ""},
		{"variable twice", Env{"CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1"}, both, "0", "variable-twice"},
		{"variable twice, the same", Env{"CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=0"}, both, "0", ""},
		{"unset with an MPS server", Env{"CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps"}, both, "0,1", "mps-numbers"},
		{"one GPU with an MPS server", Env{"CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps"}, same(gpu.NVIDIA, 1), "0", ""},
		{"none with an MPS server", append(set("-1"), "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps"), both, "", ""},
		{"other variables", Env{"NVIDIA_VISIBLE_DEVICES=none", "CUDA_VISIBLE_DEVICESX=1", "nonsense"}, both, "0,1", ""},
		{"parent of a split GPU by identifier", set("GPU-3eb79700"), split(1, 0), "0/0", "mig-first-slice"},
		{"MIG device twice", set("MIG-00000000-0000-5000-8000-000000000000,MIG-00000000-0000-5000-8000-000000000000"), split(1, 0), "", "duplicate"},
		{"MIG then number", set("MIG-00000000-0000-5000-8000-000000000000,0"), split(2, 0), "0/0", "mixed-forms"},
		{"MIG prefix of many", set("MIG-0"), split(1, 0), "", "unknown-uuid"},
	} {
		v := CUDA(c.env, c.machine)
		wellFormed(t, c.machine, v)
		if got := indices(c.machine, v); got != c.want || codes(v) != c.notes {
			t.Errorf("%s: visible %q notes %q, want %q and %q", c.name, got, codes(v), c.want, c.notes)
		}
	}
}

// TestCUDAGenerations: where the two ways of reading differ, which one counts by the driver, and what is said where the
// driver is not known. The tables of testdata have what libcuda itself answered.
func TestCUDAGenerations(t *testing.T) {
	slices, whole := split(2, 0), same(gpu.NVIDIA, 4)
	first := string(slices.Devices[0].MIG[0].UUID)
	long := func(n int) Env { return set("2" + strings.Repeat(" ", n-1)) }
	for _, c := range []struct {
		driver      string
		machine     gpu.Machine
		env         Env
		want, notes string
	}{
		{"535.261.03", whole, long(1023), "2", ""},
		{"535.261.03", whole, long(1024), "0,1,2,3", "value-too-long"},
		{"555.58.02", whole, long(2624), "2", ""},
		{"555.58.02", whole, long(2625), "0,1,2,3", "value-too-long"},
		{"", whole, long(1024), "2", "older-driver-differs"},
		{"545.29.06", whole, long(1024), "2", ""},
		{"545.29.06", whole, long(2625), "0,1,2,3", "value-too-long"},
		{"545.29.06", whole, set("MIG-ffff"), "0,1,2,3", "shows-all-gpus"},
		{"541.10", whole, long(1024), "0,1,2,3", "value-too-long older-driver-differs"}, // between two that are known
		{"555.58.02", whole, set("GPU-000000a1,GPU-000000a2"), "1,2", ""},
		{"570.195.03", whole, set("GPU-000000a1,GPU-000000a2"), "", "unknown-uuid"}, // reads on behind the comma
		{"570.195.03", whole, set("GPU-000000a1"), "1", ""},
		{"570.195.03", whole, set("GPU-000000a1-aaaa-bbbb-cccc-0123456789ab,GPU-000000a2"), "1,2", ""},
		{"570.195.03", whole, set("GPU-000000a1aaaabbbbcccc0123456789ab,1"), "1", "mixed-forms"},
		{"580.159.04", whole, set("GPU-000000a1,GPU-000000a2"), "1,2", ""},
		{"580.159.04", whole, set("GPU-000000a1x"), "", "unknown-uuid"},
		{"580.159.04", whole, set("GPU-000000a1 "), "", "unknown-uuid"},
		{"580.159.04", whole, set("GPU-000000a1-aaaa-bbbb-cccc-0123456789abx"), "1", "junk-ignored"},
		{"580.159.04", whole, set("GPU-0-0-0-0-0-0-a1"), "1", ""},
		{"580.159.04", same(gpu.NVIDIA, 1), set("GPU--"), "0", ""}, // no digits are the beginning of all
		{"580.159.04", whole, set("GPU--"), "", "ambiguous-uuid"},
		{"565.57.01", whole, set("GPU-000000a1,GPU-000000a2"), "1,2", "older-driver-differs"},
		{"575.57.08", whole, set("GPU-000000a1,GPU-000000a2"), "", "unknown-uuid older-driver-differs"},
		{"", whole, set("GPU-000000a1"), "1", ""},
		{"", whole, set("GPU-000000a1,GPU-000000a2"), "1,2", "older-driver-differs"},
		{"470.256.02", whole, set("MIG-ffff"), "0,1,2,3", "shows-all-gpus"},
		{"580.95.05", whole, set("MIG-ffff"), "", "unknown-uuid"},
		{"", whole, set("MIG-ffff"), "", "unknown-uuid older-driver-differs"},
		{"535.261.03", whole, set("MIG-000000a1"), "0,1,2,3", "shows-all-gpus"},
		{"550.163.01", whole, set("MIG-000000a1"), "1", "mig-reads-whole-gpu"},
		{"550.163.01", whole, set("MIG-000000a1" + strings.Repeat("x", 1024-12)), "1", "junk-ignored mig-reads-whole-gpu"},
		{"550.163.01", whole, set("MIG-000000a1" + strings.Repeat("x", 1025-12)), "", "undocumented"},
		{"545.29.06", whole, set("MIG-000000a1" + strings.Repeat("x", 1025-12)), "", "undocumented"},
		{"550.163.01", whole, set("GPU-000000a1,MIG-000000A1"), "", "mig-reads-whole-gpu duplicate"},
		{"535.261.03", whole, set("MIG-GPU-000000a1/1/0"), "1", "mig-reads-whole-gpu"},
		{"550.163.01", whole, set("MIG-GPU-000000a1/1/0"), "", "unknown-uuid"},
		{"535.261.03", slices, set("MIG-ffff"), "1", "shows-all-gpus"}, // but for the one that is split
		{"535.261.03", slices, set(first + "x"), "1", "shows-all-gpus"},
		{"535.261.03", slices, set(first + ",MIG-ffff"), "0/0", "unknown-uuid"},
		{"535.261.03", slices, set("MIG-GPU-3eb79700"), "0/0", ""},
		{"535.261.03", slices, set("MIG-GPU-3eb79700/99/0"), "", "unknown-uuid"},
		{"535.261.03", slices, set("MIG-GPU-3eb79700/x,1/2"), "0/0", "mig-one-slice"}, // no instance, so no part of it
		{"535.261.03", whole, set("GPU-,0"), "", "unknown-uuid"},
		{"535.261.03", whole, set("GPU-0-00000a1x"), "1", "junk-ignored"},
		{"535.261.03", whole, set("0,-4294967295"), "0,1", "number-cut"},
		{"535.261.03", whole, Env{"CUDA_DEVICE_ORDER=" + strings.Repeat("x", 1024)}, "0,1,2,3", "device-order-too-long"},
		{"535.261.03", whole, Env{"CUDA_DEVICE_ORDER="}, "", "device-order-unknown"},
	} {
		c.machine.Driver = c.driver
		v := CUDA(c.env, c.machine)
		wellFormed(t, c.machine, v)
		if got := indices(c.machine, v); got != c.want || codes(v) != c.notes {
			t.Errorf("%s, %.60q: visible %q notes %q, want %q and %q", c.driver, c.env, got, codes(v), c.want, c.notes)
		}
	}
}

// TestWidens: what shows more than it names is refused, and an order that is only passed by is not.
func TestWidens(t *testing.T) {
	m := same(gpu.NVIDIA, 2)
	m.Driver = "535.261.03"
	for value, want := range map[string]bool{"0" + strings.Repeat(" ", 1023): true, "MIG-ffff": true, "0": false, "7": false} {
		_, notes := HiddenDevices(set(value), m)
		if got := slices.ContainsFunc(notes, Note.Widens); got != want {
			t.Errorf("%.20q: %v, %v", value, got, notes)
		}
	}
	hidden, notes := HiddenDevices(Env{"CUDA_DEVICE_ORDER=" + strings.Repeat("x", 1024)}, m)
	if len(hidden) > 0 || slices.ContainsFunc(notes, Note.Widens) {
		t.Errorf("a long order: %v, %v", hidden, notes)
	}
}

func TestNotesNameWhatWasLost(t *testing.T) {
	v := CUDA(set("0,7,2,3"), same(gpu.NVIDIA, 4))
	want := `CUDA_VISIBLE_DEVICES=0,7,2,3: entry "7" is no valid number (GPUs here are numbered 0 to 3) and ends the list; dropped with it: "2", "3"`
	if len(v.Notes) != 1 || v.Notes[0].Text != want {
		t.Errorf("got %v\nwant %s", v.Notes, want)
	}
	many := CUDA(set("9,1,2,3,4,5,6,7,8,9,10"), same(gpu.NVIDIA, 4))
	if text := many.Notes[0].Text; !strings.HasSuffix(text, `"1", "2", "3", "4", "5", "6", "7", "8", …`) {
		t.Errorf("a long list of dropped entries is written as %s", text)
	}
	long := CUDA(set(strings.Repeat("x", 5000)+"\x1b[31m,1"), same(gpu.NVIDIA, 4))
	wellFormed(t, same(gpu.NVIDIA, 4), long)
	if n := len(long.Notes[0].Text); n > 500 {
		t.Errorf("a long value makes a note of %d bytes", n)
	}
}

// TestShortened: 570 reads the beginning of an identifier at the end of a list, and the note says what to write elsewhere.
func TestShortened(t *testing.T) {
	m := same(gpu.NVIDIA, 4)
	m.Driver = "570.195.03"
	const want = `"GPU-000000a1" matches no NVIDIA GPU and ends the list; dropped with it: "GPU-000000a2"; driver 570 reads the beginning of an identifier only at the end of a list: write GPU-000000a1-aaaa-bbbb-cccc-0123456789ab`
	if notes := CUDA(set("GPU-000000a1,GPU-000000a2"), m).Notes; len(notes) != 1 || !strings.HasSuffix(notes[0].Text, want) {
		t.Errorf("got %v\nwant %s", notes, want)
	}
}

func TestViewJSON(t *testing.T) {
	m := split(1, 0)
	data, err := json.Marshal(CUDA(set("MIG-GPU-3eb79700/13/0"), m))
	want := `{"visible":[{"logical":0,"index":0,"uuid":"MIG-00000000-0000-5000-8000-000000000000","parent":"GPU-3eb79700-0000-0000-0000-000000000000","profile":"1g.10gb","vendor":"nvidia","runtime":"cuda"}],"notes":[]}`
	if err != nil || string(data) != want {
		t.Errorf("got %s, %v", data, err)
	}
	data, err = json.Marshal(CUDA(set("-1"), m))
	if err != nil || string(data) != `{"visible":[],"notes":[]}` {
		t.Errorf("got %s, %v", data, err)
	}
}

func TestCodesAreDistinct(t *testing.T) {
	var seen []string
	for _, n := range Codes() {
		if n.Text == "" || slices.Contains(seen, n.Code) {
			t.Errorf("code %q is listed twice or has no meaning", n.Code)
		}
		seen = append(seen, n.Code)
	}
}

// TestTexts: texts of which users copy parts, word by word.
func TestTexts(t *testing.T) {
	for value, want := range map[string]string{
		"2147483648":   `entry "2147483648" is too large (GPUs here are numbered 0 to 7) and ends the list`,
		"GPU-9E9E":     `"GPU-9E9E" matches no NVIDIA GPU and ends the list`,
		"gpu-9e8d":     "; did you mean GPU-9e8d?",
		"9e8d":         "; did you mean GPU-9e8d?",
		"e4":           `"e4" is no number and ends the list`, // too short to be meant as an identifier
		`"0,1"`:        `CUDA_VISIBLE_DEVICES='"0,1"': the quotation marks are part of the value, and no number begins with one: the list ends at its entry 1; write CUDA_VISIBLE_DEVICES=0,1`,
		"'0,1'":        `CUDA_VISIBLE_DEVICES="'0,1'": the quotation marks are part of the value`,
		`0,"1"`:        "the list ends at its entry 2; write CUDA_VISIBLE_DEVICES=0,1",
		"GPU-7\x1b[2J": `"GPU-7\x1b[2J" matches no NVIDIA GPU and ends the list`,
	} {
		var texts []string
		for _, n := range CUDA(set(value), eight()).Notes {
			texts = append(texts, n.Text)
		}
		said := strings.Join(texts, "\n")
		if !strings.Contains(said, want) {
			t.Errorf("CUDA_VISIBLE_DEVICES=%s says\n%s\nwant\n%s", value, said, want)
		}
		if value == "e4" && strings.Contains(said, "mean") || strings.Contains(said, `\"`) {
			t.Errorf("CUDA_VISIBLE_DEVICES=%s says\n%s", value, said)
		}
	}
}

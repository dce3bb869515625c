// Package recorded reads and writes tables of what a CUDA driver shows a process, row by row: the variables, the code
// of cuInit, the devices. A table is written down from documents or recorded on a machine with a GPU; tests hold our
// reading against it. It knows no rule of the variables.
package recorded

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/test/fakegpu"
)

// Row is one answer of a driver on one machine.
type Row struct {
	At      string // "file:line", for messages
	Machine gpu.Machine
	Visible *string // CUDA_VISIBLE_DEVICES; nil when it is not set
	Order   *string // CUDA_DEVICE_ORDER; nil when it is not set
	Code    int     // of cuInit
	Devices []gpu.UUID
	Source  string // what stands behind "#"
}

// Env is the row's variables as NAME=value.
func (r Row) Env() []string {
	var env []string
	for _, v := range []struct {
		name  string
		value *string
	}{{"CUDA_VISIBLE_DEVICES", r.Visible}, {"CUDA_DEVICE_ORDER", r.Order}} {
		if v.value != nil {
			env = append(env, v.name+"="+*v.value)
		}
	}
	return env
}

// Answer is the row as the fake libcuda takes it.
func (r Row) Answer() fakegpu.Answer {
	a := fakegpu.Answer{Visible: r.Visible, Order: r.Order, Code: r.Code}
	for _, id := range r.Devices {
		s := fakegpu.Seen{UUID: string(id)}
		if d, mig, ok := r.Machine.FindDevice(id); ok {
			s.PCI = d.PCI
			if mig != nil {
				s.Parent = string(d.UUID)
			}
		}
		a.Devices = append(a.Devices, s)
	}
	return a
}

// ListTables lists the tables of a folder: *.txt and *.txt.gz.
func ListTables(t testing.TB, dir string) []string {
	t.Helper()
	plain, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	packed, _ := filepath.Glob(filepath.Join(dir, "*.txt.gz"))
	return append(plain, packed...)
}

// ReadTable reads a table. Its lines are
//
//	machine FILE                              a machine file beside the table, or demo:…; for the rows that follow
//	VISIBLE ORDER CODE DEVICES  # source      a row
//
// VISIBLE and ORDER are "-" for a variable that is not set, else "=" and the value, escaped as fakegpu.Escape does.
// DEVICES is "-" for none, else positions in the machine, with commas: 2, or 0/1 for slice 1 of device 0; what the
// machine does not have stands there by its UUID.
func ReadTable(t testing.TB, path string) []Row {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil && strings.HasSuffix(path, ".gz") {
		text, err = gunzip(text)
	}
	if err != nil {
		t.Fatalf("cannot read the table: %v", err)
	}
	var rows []Row
	var m gpu.Machine
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		at := fmt.Sprintf("%s:%d", filepath.Base(path), n)
		line, source, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
			continue
		case len(fields) == 2 && fields[0] == "machine":
			m = readMachine(t, filepath.Dir(path), fields[1])
			continue
		}
		row, err := parseRow(fields, m)
		if err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		row.At, row.Source = at, strings.TrimSpace(source)
		rows = append(rows, row)
	}
	if err := lines.Err(); err != nil || len(rows) == 0 {
		t.Fatalf("%s has %d rows, %v", path, len(rows), err)
	}
	return rows
}

func gunzip(text []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

func readMachine(t testing.TB, dir, name string) gpu.Machine {
	t.Helper()
	if strings.HasPrefix(name, "demo") {
		m, err := gpu.InventMachine(name)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatalf("cannot read the table's machine: %v", err)
	}
	m, err := gpu.DecodeMachine(data)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return m
}

func parseRow(fields []string, m gpu.Machine) (Row, error) {
	if len(fields) != 4 {
		return Row{}, fmt.Errorf("%d fields, want VISIBLE ORDER CODE DEVICES", len(fields))
	}
	visible, err := fakegpu.Unescape(fields[0])
	if err != nil {
		return Row{}, err
	}
	order, err := fakegpu.Unescape(fields[1])
	if err != nil {
		return Row{}, err
	}
	code, err := strconv.Atoi(fields[2])
	if err != nil {
		return Row{}, fmt.Errorf("the code %q is no number", fields[2])
	}
	r := Row{Machine: m, Visible: visible, Order: order, Code: code}
	if fields[3] == "-" {
		return r, nil
	}
	for word := range strings.SplitSeq(fields[3], ",") {
		id, err := parsePosition(word, m)
		if err != nil {
			return Row{}, err
		}
		r.Devices = append(r.Devices, id)
	}
	return r, nil
}

func parsePosition(word string, m gpu.Machine) (gpu.UUID, error) {
	if strings.HasPrefix(word, "GPU-") || strings.HasPrefix(word, "MIG-") {
		return gpu.UUID(word), nil
	}
	device, slice, split := strings.Cut(word, "/")
	i, err := strconv.Atoi(device)
	if err != nil || i < 0 || i >= len(m.Devices) {
		return "", fmt.Errorf("the machine has no device %q", word)
	}
	if !split {
		return m.Devices[i].UUID, nil
	}
	j, err := strconv.Atoi(slice)
	if err != nil || j < 0 || j >= len(m.Devices[i].MIG) {
		return "", fmt.Errorf("the machine has no MIG device %q", word)
	}
	return m.Devices[i].MIG[j].UUID, nil
}

// formatPosition is what identity reads.
func formatPosition(id gpu.UUID, m gpu.Machine) string {
	for i, d := range m.Devices {
		if d.UUID == id {
			return strconv.Itoa(i)
		}
		for j, s := range d.MIG {
			if s.UUID == id {
				return fmt.Sprintf("%d/%d", i, j)
			}
		}
	}
	return string(id)
}

// WriteTable writes one machine's rows as name.txt.gz and name.json in dir. comment is its first line. The machine's
// processes are left out: they are other people's, and no part of the answer.
func WriteTable(dir, name, comment string, m gpu.Machine, rows []Row) error {
	m.Processes = nil
	data, err := m.Encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, name+".json"), data, 0o644); err != nil {
		return err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	fmt.Fprintf(z, "# %s\nmachine %s.json\n", comment, name)
	for _, r := range rows {
		devices := make([]string, len(r.Devices))
		for i, id := range r.Devices {
			devices[i] = formatPosition(id, m)
		}
		if len(devices) == 0 {
			devices = []string{"-"}
		}
		fmt.Fprintf(z, "%s %s %d %s\n", fakegpu.Escape(r.Visible), fakegpu.Escape(r.Order), r.Code, strings.Join(devices, ","))
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".txt.gz"), packed.Bytes(), 0o644)
}

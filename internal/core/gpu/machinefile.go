package gpu

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/core/option"
)

const (
	fileSchema = "gpuard.machine/1"
	fileLimit  = 16 << 20 // bytes
	// Far above any device.
	memoryLimit = 64 * TiB
)

// DecodeMachine reads a machine file: JSON as Encode writes it, at most 16 MiB. Only the identity, memory, utilisation
// and temperature of each device and the facts of each process are required; a reading that is null is absent. Unknown
// keys are kept in Extra. Source is always "file", because the processes of a file must not be looked up in /proc.
// Errors name line, column and key.
func DecodeMachine(data []byte) (Machine, error) {
	if len(data) > fileLimit {
		return Machine{}, option.Errorf("cannot read machine file: it is larger than %v: record a smaller one with {gpuard status} {record}", Bytes(fileLimit))
	}

	d := &document{data: bytes.TrimPrefix(data, []byte("\ufeff"))}
	root, err := d.parseDocument()
	if err != nil {
		return Machine{}, err
	}

	var m Machine
	if err := d.takeSchema(&root); err != nil {
		return Machine{}, err
	}
	if err := d.readObject(&root, "", reflect.ValueOf(&m).Elem()); err != nil {
		return Machine{}, err
	}
	if err := d.checkDevices(&root, &m); err != nil {
		return Machine{}, err
	}

	m.Source = "file"

	return m, nil
}

// takeSchema checks the key schema before all others, and removes it.
func (d *document) takeSchema(root *node) error {
	n := root.findKey("schema")
	if n == nil {
		return nil
	}

	text, _ := n.token.(string)
	if text == fileSchema {
		root.items = slices.DeleteFunc(root.items, func(item node) bool { return item.key == "schema" })
		return nil
	}

	name, major, _ := strings.Cut(text, "/")
	if _, err := strconv.Atoi(major); name == "gpuard.machine" && err == nil {
		return d.errorAt(n.begin, "schema is %q and this gpuard reads only %q: use the version of gpuard that recorded it", text, fileSchema)
	}

	return d.errorAt(n.begin, "schema must be %q: record a machine with %s", fileSchema, option.Expand("{gpuard status} {record}"))
}

// Encode writes the machine as indented JSON with one newline at the end. Readings that are absent are null where the
// key is required and left out elsewhere. The error is a number that JSON cannot hold, or a kept key that is not JSON.
func (m Machine) Encode() ([]byte, error) {
	w := &fileWriter{}
	w.json = json.NewEncoder(&w.text)

	// Kept values stay byte for byte the same.
	w.json.SetEscapeHTML(false)

	w.text.WriteString(`{"schema": "` + fileSchema + `"`)
	if err := w.writeKeys(reflect.ValueOf(m)); err != nil {
		return nil, fmt.Errorf("cannot write machine file: %w", err)
	}

	var out bytes.Buffer
	if err := json.Indent(&out, w.text.Bytes(), "", "  "); err != nil {
		return nil, fmt.Errorf("cannot write machine file: %w", err)
	}

	return append(out.Bytes(), '\n'), nil
}

// fileWriter writes JSON whose keys keep their order, without regard to white space.
type fileWriter struct {
	text bytes.Buffer
	json *json.Encoder
}

// writeKeys writes the keys of an object, after its opening bracket, and the closing one.
func (f *fileWriter) writeKeys(object reflect.Value) error {
	for _, k := range fileKeys(object.Type()) {
		field := object.Field(k.field)
		if !k.required && field.IsZero() {
			continue
		}
		f.writeName(k.name)
		if err := f.writeValue(field, k); err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
	}

	if extra := object.FieldByName("Extra"); extra.IsValid() {
		kept := extra.Interface().(extraKeys)
		for _, name := range slices.Sorted(maps.Keys(kept)) {
			f.writeName(name)
			if err := f.json.Encode(kept[name]); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}

	f.text.WriteByte('}')

	return nil
}

func (f *fileWriter) writeName(name string) {
	if !bytes.HasSuffix(f.text.Bytes(), []byte{'{'}) {
		f.text.WriteByte(',')
	}

	// A string has no error.
	_ = f.json.Encode(name)
	f.text.WriteByte(':')
}

func (f *fileWriter) writeValue(v reflect.Value, k fileKey) error {
	v = reflect.Indirect(v)
	if !v.IsValid() {
		return f.json.Encode(nil)
	}

	switch value := v.Interface().(type) {
	case time.Time:
		if value.IsZero() {
			return f.json.Encode(nil)
		}
		return f.json.Encode(value.UTC().Format(time.RFC3339Nano))
	case Capability:
		return f.json.Encode(value.String())
	}

	switch {
	case v.Kind() == reflect.Struct:
		f.text.WriteByte('{')
		return f.writeKeys(v)
	case v.Kind() == reflect.Slice:
		return f.writeList(v, k)
	case v.Kind() == reflect.String && v.Len() == 0 && k.required:
		return f.json.Encode(nil)
	}

	return f.json.Encode(v.Interface())
}

func (f *fileWriter) writeList(list reflect.Value, k fileKey) error {
	f.text.WriteByte('[')
	for i := range list.Len() {
		if i > 0 {
			f.text.WriteByte(',')
		}
		if err := f.writeValue(list.Index(i), k); err != nil {
			return err
		}
	}
	f.text.WriteByte(']')

	return nil
}

// checkDevices checks what single keys cannot show: that identities are unique and references valid.
func (d *document) checkDevices(root *node, m *Machine) error {
	gpus := root.findKey("gpus")
	owner := map[UUID]string{}
	claim := func(id UUID, n *node, path string) error {
		if first, taken := owner[id]; taken {
			return d.errorAt(n.findKey("uuid").begin, "%s.uuid is %q, which is already %s: every device has its own", path, id, first)
		}
		owner[id] = path
		return nil
	}

	index := map[string]int{}
	for i := range m.Devices {
		dev, n, path := &m.Devices[i], &gpus.items[i], fmt.Sprintf("gpus[%d]", i)
		if err := claim(dev.UUID, n, path); err != nil {
			return err
		}

		place := fmt.Sprintf("%s:%d", dev.Vendor, dev.Index)
		if first, taken := index[place]; taken {
			return d.errorAt(n.findKey("index").begin, "%s.index is %d, as is gpus[%d].index: give each %s device its own", path, dev.Index, first, dev.Vendor)
		}

		index[place] = i
		if err := d.checkMemory(n, path, dev.MemoryTotal, dev.MemoryUsed); err != nil {
			return err
		}
		if err := d.checkMainMemory(n, path, dev); err != nil {
			return err
		}
		if dev.Links != nil && len(dev.Links) != len(m.Devices) {
			return d.errorAt(n.findKey("links").begin, "%s.links has %d entries for %d devices: write one for each, in the order of gpus", path, len(dev.Links), len(m.Devices))
		}

		for j := range dev.MIG {
			slice, at, path := &dev.MIG[j], &n.findKey("mig").items[j], fmt.Sprintf("%s.mig[%d]", path, j)
			if err := claim(slice.UUID, at, path); err != nil {
				return err
			}
			if err := d.checkMemory(at, path, slice.MemoryTotal, slice.MemoryUsed); err != nil {
				return err
			}
		}
	}

	for i, p := range m.Processes {
		if p.PID == 0 && p.Outside == 0 {
			return d.errorAt(root.findKey("processes").items[i].findKey("pid").begin, "processes[%d].pid is 0: write a number from 1 to %d, or outside_pid beside it", i, 1<<22)
		}
		if _, known := owner[p.GPU]; !known {
			return d.errorAt(root.findKey("processes").items[i].findKey("gpu").begin, "processes[%d].gpu is %q, which no device in this file has: write the uuid of one of gpus or of its mig devices", i, p.GPU)
		}
	}

	return nil
}

// checkMainMemory checks the main memory of a device: both readings or none.
func (d *document) checkMainMemory(n *node, path string, dev *Device) error {
	switch {
	case dev.MainMemory == nil && dev.MainAvailable == nil:
		return nil
	case dev.MainMemory == nil || dev.MainAvailable == nil:
		return d.errorAt(n.begin, "%s has one of main_memory and main_available: write both or none", path)
	case *dev.MainMemory == 0 || *dev.MainAvailable > *dev.MainMemory:
		return d.errorAt(n.findKey("main_available").begin, "%s.main_available is %d, and main_memory is %d: it must be more than 0 and hold what is available", path, *dev.MainAvailable, *dev.MainMemory)
	}
	return nil
}

func (d *document) checkMemory(n *node, path string, total, used *Bytes) error {
	if total != nil && used != nil && *used > *total {
		return d.errorAt(n.findKey("memory_used").begin, "%s.memory_used is %d, more than its memory_total of %d", path, *used, *total)
	}
	return nil
}

// Package kernelspec reads and writes the kernel.json of a Jupyter kernel
// (https://jupyter-client.readthedocs.io/en/stable/kernels.html#kernel-specs). What it does not know stays as it is, in
// its order.
package kernelspec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Spec is one kernel.json.
type Spec struct {
	// Command line; {connection_file} and the like are filled in by Jupyter.
	Argv    []string
	Display string // name for people
	// Provisioner that starts it, "" for Jupyter's own (jupyter_client/provisioning/factory.py).
	Starter string
	// All, in the order of the file.
	fields []field
}

type field struct {
	name  string
	value json.RawMessage
}

// ReadSpec reads a kernel.json. The error says what is wrong, and in which line where that is known, but not of which file.
func ReadSpec(data []byte) (Spec, error) {
	if !utf8.Valid(data) {
		return Spec{}, errors.New("it is not UTF-8, so Jupyter cannot read it either")
	}

	fields, err := decodeObject(data)
	if err != nil {
		return Spec{}, err
	}

	s := Spec{fields: fields}
	for _, f := range fields {
		switch f.name {
		case "argv":
			if json.Unmarshal(f.value, &s.Argv) != nil || slices.Contains(s.Argv, "") {
				return Spec{}, errors.New(`"argv" is not a list of words`)
			}
		case "display_name":
			if json.Unmarshal(f.value, &s.Display) != nil {
				return Spec{}, errors.New(`"display_name" is not a text`)
			}
		case "metadata":
			var m struct {
				By struct {
					Name string `json:"provisioner_name"`
				} `json:"kernel_provisioner"`
			}
			if json.Unmarshal(f.value, &m) == nil && m.By.Name != "local-provisioner" {
				s.Starter = m.By.Name
			}
		}
	}

	if len(s.Argv) == 0 {
		return Spec{}, errors.New(`"argv" is missing: it says what is started`)
	}

	return s, nil
}

// With is the spec with another command line and name, and without some of the variables of its env. dropped are those
// that it had.
func (s Spec) With(argv []string, display string, without []string) (changed Spec, dropped []string, err error) {
	changed = Spec{Argv: argv, Display: display, Starter: s.Starter, fields: slices.Clone(s.fields)}
	err = changed.setField("argv", argv)
	if err != nil {
		return changed, nil, err
	}

	err = changed.setField("display_name", display)
	if err != nil {
		return changed, nil, err
	}

	i := slices.IndexFunc(changed.fields, func(f field) bool { return f.name == "env" })
	if i < 0 || string(changed.fields[i].value) == "null" {
		return changed, nil, nil
	}

	env, err := decodeObject(changed.fields[i].value)
	if err != nil {
		return Spec{}, nil, errors.New(`"env" is not an object with variables`)
	}

	env = slices.DeleteFunc(env, func(f field) bool {
		gone := slices.Contains(without, f.name)
		if gone {
			dropped = append(dropped, f.name)
		}
		return gone
	})

	if dropped != nil {
		changed.fields[i].value, err = encodeObject(env)
	}

	return changed, dropped, err
}

// Text is the file.
func (s Spec) Text() (string, error) {
	plain, err := encodeObject(s.fields)
	if err != nil {
		return "", err
	}

	var b bytes.Buffer
	if err := json.Indent(&b, plain, "", " "); err != nil {
		return "", err
	}

	return b.String() + "\n", nil
}

func (s *Spec) setField(name string, value any) error {
	text, err := encodePlain(value)
	if err != nil {
		return err
	}

	i := slices.IndexFunc(s.fields, func(f field) bool { return f.name == name })
	if i < 0 {
		s.fields = append(s.fields, field{name, text})
		return nil
	}

	s.fields[i].value = text

	return nil
}

// encodePlain writes < and > as they are: they mean nothing here, and people read the file.
func encodePlain(value any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)

	return bytes.TrimSpace(b.Bytes()), err
}

func encodeObject(fields []field) (json.RawMessage, error) {
	var b bytes.Buffer
	b.WriteByte('{')

	for i, f := range fields {
		name, err := encodePlain(f.name)
		if err != nil {
			return nil, err
		}

		if i > 0 {
			b.WriteByte(',')
		}

		b.Write(name)
		b.WriteByte(':')
		b.Write(f.value)
	}

	b.WriteByte('}')

	return b.Bytes(), nil
}

// decodeObject reads one JSON object with its fields in their order.
func decodeObject(data []byte) ([]field, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	at := func(err error) error {
		before := data[:min(int64(len(data)), d.InputOffset())]
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			before = data[:min(int64(len(data)), max(0, syntax.Offset))]
		}

		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("it ends too early")
		}

		return fmt.Errorf("line %d: %w", bytes.Count(before, []byte("\n"))+1, err)
	}

	first, err := d.Token()
	if err != nil {
		return nil, at(err)
	}
	if first != json.Delim('{') {
		return nil, at(errors.New("it is not a JSON object"))
	}

	var fields []field

	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, at(err)
		}

		var f field
		f.name, _ = name.(string)
		if slices.ContainsFunc(fields, func(o field) bool { return o.name == f.name }) {
			return nil, at(fmt.Errorf("%q is there twice", f.name))
		}
		if err := d.Decode(&f.value); err != nil {
			return nil, at(err)
		}

		fields = append(fields, f)
	}

	if _, err := d.Token(); err != nil {
		return nil, at(err)
	}
	if rest := strings.TrimSpace(string(data[d.InputOffset():])); rest != "" {
		return nil, at(errors.New("there is text after its end"))
	}

	return fields, nil
}

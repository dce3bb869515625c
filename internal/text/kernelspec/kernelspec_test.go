package kernelspec

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

const known = `{
 "argv": ["/usr/bin/python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
 "env": {"PATH": "${PATH}:/opt/bin", "CUDA_VISIBLE_DEVICES": "1", "N": 12345678901234567890},
 "display_name": "Python 3 <local>",
 "language": "python",
 "metadata": {"debugger": true, "z": 1, "a": [1.50]}, "interrupt_mode": "message", "x-own": null
}`

func TestWith(t *testing.T) {
	s, err := ReadSpec([]byte(known))
	if err != nil || s.Display != "Python 3 <local>" || len(s.Argv) != 5 {
		t.Fatalf("%+v, %v", s, err)
	}
	other, dropped, err := s.With(append([]string{"/opt/gpuard", "run", "--"}, s.Argv...), "Python 3 (GPU)", []string{"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"})
	if err != nil || !reflect.DeepEqual(dropped, []string{"CUDA_VISIBLE_DEVICES"}) {
		t.Fatalf("dropped %v, %v", dropped, err)
	}
	text, err := other.Text()
	if err != nil {
		t.Fatal(err)
	}
	want := `{
 "argv": [
  "/opt/gpuard",
  "run",
  "--",
  "/usr/bin/python3",
  "-m",
  "ipykernel_launcher",
  "-f",
  "{connection_file}"
 ],
 "env": {
  "PATH": "${PATH}:/opt/bin",
  "N": 12345678901234567890
 },
 "display_name": "Python 3 (GPU)",
 "language": "python",
 "metadata": {
  "debugger": true,
  "z": 1,
  "a": [
   1.50
  ]
 },
 "interrupt_mode": "message",
 "x-own": null
}
`
	if text != want {
		t.Errorf("%s\nwant\n%s", text, want)
	}
	if again, err := s.Text(); err != nil || !strings.Contains(again, `"Python 3 <local>"`) || strings.Contains(again, "gpuard") {
		t.Errorf("the first one changed: %s, %v", again, err)
	}
}

func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "line 1: it ends too early",
		"[]":                                "it is not a JSON object",
		"{\n \"argv\": [1]}":                `"argv" is not a list of words`,
		`{"argv": []}`:                      `"argv" is missing`,
		`{"argv": ["a", ""]}`:               `"argv" is not a list of words`,
		`{"language": "python"}`:            `"argv" is missing`,
		"{\n\n\"argv\": [\"a\",]}":          "line 3: ",
		`{"argv": ["a"]} {}`:                "there is text after its end",
		`{"argv": ["a"], "argv": ["b"]}`:    `"argv" is there twice`,
		`{"argv":["a"],"display_name":1}`:   `"display_name" is not a text`,
		"{\n\"argv\": [\"a\"":               "it ends too early",
		"{\"argv\": [\"/caf\xe9/python\"]}": "it is not UTF-8",
	} {
		if _, err := ReadSpec([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for metadata, want := range map[string]string{
		`{}`: "", `{"kernel_provisioner": {"provisioner_name": "local-provisioner"}}`: "", `{"kernel_provisioner": 1}`: "",
		`{"kernel_provisioner": {"provisioner_name": "docker"}}`: "docker",
	} {
		if s, err := ReadSpec([]byte(`{"argv": ["a"], "metadata": ` + metadata + `}`)); err != nil || s.Starter != want {
			t.Errorf("%s: %q, %v", metadata, s.Starter, err)
		}
	}
	s, err := ReadSpec([]byte(`{"argv": ["a"], "env": ["A=1"]}`))
	if err == nil {
		_, _, err = s.With(s.Argv, "", nil)
	}
	if err == nil || !strings.Contains(err.Error(), `"env"`) {
		t.Errorf("env is a list: %v", err)
	}
}

// FuzzRead: nothing makes it panic, and what is written is the same value as what was read.
func FuzzRead(f *testing.F) {
	f.Add([]byte(known))
	f.Add([]byte(`{"argv":["a"],"env":{"":""}}`))
	f.Add([]byte(`{"argv":["a"],"n":1e999}`)) // no float64
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ReadSpec(data)
		if err != nil {
			return
		}
		text, err := s.Text()
		if err != nil {
			t.Fatalf("%q was read and cannot be written: %v", data, err)
		}
		var before, after any
		if exact(data, &before) != nil || exact([]byte(text), &after) != nil || !reflect.DeepEqual(before, after) {
			t.Errorf("%q became %q", data, text)
		}
		if _, _, err := s.With(s.Argv, s.Display, []string{"A"}); err == nil {
			if again, err := ReadSpec([]byte(text)); err != nil || !reflect.DeepEqual(again.Argv, s.Argv) {
				t.Errorf("%q is read again as %+v, %v", text, again, err)
			}
		}
	})
}

// exact reads JSON, and keeps each number as it is written: some are too large for a float64.
func exact(data []byte, v any) error {
	if !json.Valid(data) { // something follows the value, which a decoder does not mind
		return errors.New("it is no JSON")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(v)
}

package proof

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
)

// TestScenarios reads testdata/*.txt; testdata/README.txt describes the format.
func TestScenarios(t *testing.T) {
	met := map[Verdict]int{}
	for _, file := range []string{"seen.txt", "unseen.txt"} {
		for _, s := range readScenarios(t, filepath.Join("testdata", file)) {
			t.Run(file+"/"+s.name, func(t *testing.T) { s.check(t) })
			met[Judge(s.facts).Verdict]++
		}
	}
	for _, v := range []Verdict{Proven, WrongDevice, OutsideLease, CPU, TooEarly, NotMeasurable} {
		if met[v] < 2 {
			t.Errorf("%d scenarios end with %q", met[v], v)
		}
	}
}

type scenario struct {
	name   string
	facts  Facts
	shown  bool // the promise was printed
	answer []string
}

func readScenarios(t *testing.T, file string) (all []*scenario) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var s *scenario
	section := ""
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
		case strings.HasPrefix(line, "case: "):
			s = &scenario{name: line[6:], facts: Facts{PID: 42, Command: "python", Age: 2 * time.Second, Watched: time.Second, Patience: 30 * time.Second, Looks: 3}}
			all = append(all, s)
		case line == "facts:" || line == "answer:":
			section = line
		case section == "answer:":
			s.answer = append(s.answer, line)
		default:
			if err := s.read(fields(line)); err != nil {
				t.Fatalf("%s:%d: %v", file, i+1, err)
			}
		}
	}
	for _, s := range all {
		if !s.shown {
			for _, d := range s.facts.Machine.Devices {
				s.facts.Promised = append(s.facts.Promised, d.UUID)
			}
		}
	}
	return all
}

// fields splits at spaces outside of quotes.
func fields(line string) (out []string) {
	quoted := false
	for word := range strings.FieldsFuncSeq(line, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ' ' && !quoted
	}) {
		out = append(out, strings.ReplaceAll(word, `"`, ""))
	}
	return out
}

// values takes the KEY=VALUE words; the others stay.
func values(words []string) (rest []string, of map[string]string) {
	of = map[string]string{}
	for _, w := range words {
		if key, value, ok := strings.Cut(w, "="); ok {
			of[key] = value
		} else {
			rest = append(rest, w)
		}
	}
	return rest, of
}

func (s *scenario) read(words []string) error {
	f := &s.facts
	rest, of := values(words[1:])
	switch words[0] {
	case "gpu":
		s.devices(rest[0], of)
	case "mig":
		d := &f.Machine.Devices[atoi(rest[0])]
		for i, profile := range rest[1:] {
			d.MIG = append(d.MIG, gpu.MIGDevice{Index: i, Profile: profile, UUID: gpu.UUID(fmt.Sprintf("MIG-%d-%d", d.Index, i))})
		}
	case "promised":
		f.Promised, f.Mask, s.shown = s.ids(rest), of["mask"], true
	case "besides":
		f.Besides = s.ids(rest)
	case "unread":
		f.Unread, f.Reading = rest[0], of["do"]
	case "doubt":
		f.Doubt = rest[0]
	case "lease":
		f.Lease, f.Leased = rest[0], s.ids(rest[1:])
	case "seen":
		seen := Sighting{PID: 42, Command: "python", GPU: s.ids(rest)[0], Kind: gpu.Kind(of["kind"])}
		if of["pid"] != "" {
			seen.PID = atoi(of["pid"])
		}
		if of["cmd"] != "" {
			seen.Command = of["cmd"]
		}
		if b, err := gpu.ParseBytes(of["mem"]); err == nil {
			seen.Peak = &b
		}
		if id, devices, own := strings.Cut(of["lease"], ":"); own {
			seen.Lease, seen.Leased = id, s.ids(strings.Split(devices, "+"))
		}
		f.Sightings = append(f.Sightings, seen)
	case "unlisted":
		f.Unlisted = rest[0]
	case "framework":
		w := Framework{Name: rest[0], Version: of["version"], Built: of["built"], GPU: Usable(of["gpu"]), Error: of["error"], Hides: of["hides"], PID: 42}
		if of["device"] != "" {
			w.Devices = []FrameworkDevice{{of["device"], gpu.UUID(of["uuid"])}}
		}
		f.Frameworks = append(f.Frameworks, w)
	case "library":
		f.Libraries = rest
	case "remark":
		f.Notes = append(f.Notes, words[1])
	case "time":
		return s.times(rest, of)
	default:
		return fmt.Errorf("unknown word %s", words[0])
	}
	return nil
}

func (s *scenario) times(rest []string, of map[string]string) error {
	s.facts.Ended = slices.Contains(rest, "ended")
	s.facts.Unheard = slices.Contains(rest, "unheard")
	for key, value := range of {
		switch key {
		case "looks":
			s.facts.Looks = atoi(value)
			continue
		case "signal":
			s.facts.Signal = value
			continue
		}
		d, err := time.ParseDuration(value)
		if err != nil {
			return err
		}
		*map[string]*time.Duration{"age": &s.facts.Age, "watched": &s.facts.Watched, "cpu": &s.facts.CPUTime, "patience": &s.facts.Patience}[key] = d
	}
	return nil
}

func (s *scenario) devices(span string, of map[string]string) {
	first, last, many := strings.Cut(span, "-")
	if !many {
		last = first
	}
	for i := atoi(first); i <= atoi(last); i++ {
		d := gpu.Device{Index: i, Vendor: gpu.NVIDIA, Name: "NVIDIA A100-SXM4-80GB", UUID: gpu.UUID(fmt.Sprintf("GPU-%d%d%d%d-aaaa", i, i, i, i))}
		if of["vendor"] != "" {
			d.Vendor, d.Name, d.UUID = gpu.Vendor(of["vendor"]), of["name"], gpu.UUID(fmt.Sprintf("GPU-%s-%d", of["vendor"], i))
		}
		s.facts.Machine.Devices = append(s.facts.Machine.Devices, d)
	}
}

// ids of "0", "0/1" for a slice, or an identifier that is written out; "none" is an empty list.
func (s *scenario) ids(names []string) []gpu.UUID {
	out := []gpu.UUID{}
	for _, name := range names {
		whole, slice, isSlice := strings.Cut(name, "/")
		switch {
		case name == "none":
		case strings.HasPrefix(name, "GPU-"):
			out = append(out, gpu.UUID(name))
		case isSlice:
			out = append(out, s.facts.Machine.Devices[atoi(whole)].MIG[atoi(slice)].UUID)
		default:
			out = append(out, s.facts.Machine.Devices[atoi(name)].UUID)
		}
	}
	return out
}

func (s *scenario) check(t *testing.T) {
	got := Judge(s.facts)
	notes := strings.Join(got.Notes, "\n")
	for _, line := range s.answer {
		word, text, _ := strings.Cut(line, " ")
		switch word {
		case "text":
			if got.Text != text {
				t.Errorf("text is\n%s\nwant\n%s", got.Text, text)
			}
		case "remedy":
			if text == "" && got.Remedy != "" || !strings.Contains(got.Remedy, text) {
				t.Errorf("remedy is %q, want %q in it", got.Remedy, text)
			}
		case "note":
			if !strings.Contains(notes, text) {
				t.Errorf("notes are %q, want %q in one", got.Notes, text)
			}
		case "no-notes":
			if notes != "" {
				t.Errorf("notes are %q, want none", got.Notes)
			}
		default:
			if string(got.Verdict) != line {
				t.Errorf("verdict is %q, want %q: %s", got.Verdict, line, got.Line())
			}
		}
	}
	if got.Verdict.Bad() && got.Remedy == "" {
		t.Error("a bad verdict does not say what to do")
	}
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

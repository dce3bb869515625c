package config

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/diagnostic"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/policy"
	"gpuard/internal/text/yamltree"
)

// TestExample: the file that people begin with is right, says every key of a rule once, and whole lines are remarks.
func TestExample(t *testing.T) {
	f, mistakes := ReadPolicy([]byte(Example()), "/etc/gpuard/config.yaml", true)
	if len(mistakes) > 0 {
		t.Fatal(&diagnostic.Many{File: f.Path, List: mistakes})
	}
	students := f.Rules[1]
	if len(f.Rules) != 3 || students.Name != "students" || students.At.Line != 10 || students.At.Column != 5 || fmt.Sprint(students.Groups, students.Devices, *students.GPUs) != "[students] [0 1] 1" ||
		students.Memory != 40*gpu.GiB || students.Time != 24*time.Hour || students.Isolate != "namespace" || f.Rules[0].GPUs != nil || fmt.Sprint(f.Rules[0].Users) != "[alice 1003]" {
		t.Errorf("%+v", f.Rules)
	}
	if *f.Tolerate.Memory != 256*gpu.MiB || *f.Tolerate.Display != 2*gpu.GiB || *f.Tolerate.Utilization != 0.05 || f.Login != policy.LoginAll {
		t.Errorf("%+v %s", f.Tolerate, f.Login)
	}
	if w := f.Watch; w.Webhook != "https://chat.example.org/hooks/gpus" || w.Outsiders != policy.Warn || w.Grace != 10*time.Minute || fmt.Sprint(w.Except) != "[alice nvtop]" {
		t.Errorf("%+v", w)
	}
	if got := fmt.Sprint(f.Defaults); got != "[--mem 8G is the default of /etc/gpuard/config.yaml:31 --wait 10m is the default of /etc/gpuard/config.yaml:32 --place packed is the default of /etc/gpuard/config.yaml:33]" {
		t.Error(got)
	}
	if f.Slurm.Types["NVIDIA H100 80GB HBM3"] != "h100" || f.Slurm.Features["gpumem80g"] != 81559*gpu.MiB || len(f.Slurm.Types)+len(f.Slurm.Features) != 4 {
		t.Errorf("%+v", f.Slurm)
	}
	keys := AllKeys()
	for _, key := range slices.Concat(keys.File, keys.Rule, keys.Tolerate, keys.Watch, keys.Slurm) {
		if !strings.Contains(Example(), key.Name+":") {
			t.Errorf("%s is not in the example", key.Name)
		}
	}
	for i, line := range strings.Split(Example(), "\n") {
		if before, _, found := strings.Cut(line, "#"); found && before != "" {
			t.Errorf("line %d has a remark behind something", i+1)
		}
	}
}

// TestPage: what people read about the file is right.
func TestPage(t *testing.T) {
	var blocks []string
	for _, name := range []string{"team-rules.md", "watch-the-machine.md"} {
		page, err := os.ReadFile("../../../docs/how-to/" + name)
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, strings.Split(string(page), "```yaml\n")[1:]...)
	}
	for _, block := range blocks {
		text, _, _ := strings.Cut(block, "```")
		if f, mistakes := ReadPolicy([]byte(text), "team-rules.md", true); len(mistakes) > 0 {
			t.Errorf("%v\n%s", &diagnostic.Many{File: f.Path, List: mistakes}, text)
		}
	}
	if len(blocks) < 5 {
		t.Errorf("only %d examples", len(blocks))
	}
}

// TestForms: what can be written in several ways, and what says nothing.
func TestForms(t *testing.T) {
	f, mistakes := ReadPolicy([]byte("x-all: &all {gpus: 0}\nrules:\n- <<: *all\n  users: bob,  1004\n  models: '*A100*'\n- users:\n    - eve\ntolerate: {memory: 0}\nlogin: none\n"+
		"defaults: {drift: true, wait: false, no_wait: true, fallback: [other, cpu], retry: '2:any', gpus: 2}\n"), "f", false)
	if len(mistakes) > 0 || fmt.Sprint(f.Rules[0].Users, f.Rules[0].Models, *f.Rules[0].GPUs, f.Rules[1].Users, *f.Tolerate.Memory) != "[bob 1004] [*A100*] 0 [eve] 0 B" || f.Login != policy.LoginNone {
		t.Errorf("%+v %v", f, mistakes)
	}
	var got []string
	for _, d := range f.Defaults {
		got = append(got, d.Flag+"="+d.Value)
	}
	if text := strings.Join(got, " "); text != "drift= no-wait= fallback=other,cpu retry=2:any gpus=2" {
		t.Error(text)
	}
	for _, word := range []policy.Level{policy.Off, policy.Report, policy.Warn, policy.End} { // off is no boolean here
		if f, mistakes := ReadPolicy([]byte("watch: {outsiders: "+string(word)+"}"), "f", true); len(mistakes) > 0 || f.Watch.Outsiders != word {
			t.Errorf("%s: %+v %v", word, f.Watch, mistakes)
		}
	}
	for _, nothing := range []string{"", "# a remark\n", "---\n", "rules:\n- groups: [a]\n  gpus: 1\n- gpus: 2\n- users: [root]\n  gpus: 3\n"} {
		if f, mistakes := ReadPolicy([]byte(nothing), "f", false); len(mistakes) > 0 || nothing != "" && len(f.Defaults) > 0 {
			t.Errorf("%q: %v", nothing, mistakes)
		}
	}
}

// TestMistakes: what is said about each, and where.
func TestMistakes(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{"- a\n", "1:1: the file is not a map"},
		{"rules: [\n", "this is not YAML"},
		{"rules:\n\t- gpus: 1\n", "that cannot start any token; indent with blanks, YAML takes no tabs"},
		{"rules:\n- models: *A100*\n", "2:11: this is not YAML: there is no anchor &A100* for the alias *A100*; a value that begins with * needs quotes"},
		{"rules: {gpus: 1}\n", "1:9: rules is not a list; begin each rule with a dash"},
		{"rules: []\n", "1:8: rules is an empty list"},
		{"rules:\n", "1:1: rules has no value"},
		{"rules: [a]\n", "1:9: rule 1 is not a map"},
		{"rule:\n- gpus: 1\n", "1:1: unknown key \"rule\"; did you mean rules?"},
		{"xyzzy: 1\n", "1:1: unknown key \"xyzzy\"; there are rules, tolerate, defaults, login, slurm, watch"},
		{"rules:\n- gpu: 1\n", "2:3: unknown key \"gpu\" of rule 1; did you mean gpus?"},
		{"rules:\n- gpus: 1\n  gpus: 2\n", "3:3: gpus is there twice in rule 1, first in line 2"},
		{"rules:\n- gpus: -1\n", "2:9: gpus of rule 1 is \"-1\"; write a whole number, such as gpus: 2"},
		{"rules:\n- gpus: [1]\n", "2:9: gpus of rule 1 is not one text; write for instance gpus: 2"},
		{"rules:\n- gpus:\n", "2:3: gpus of rule 1 has no value; write for instance gpus: 2"},
		{"rules:\n- mem: 40\n", "2:8: mem of rule 1 is \"40\"; write a number and a unit, such as mem: 40G"},
		{"rules:\n- mem: 0\n", "2:8: mem of rule 1 is \"0\"; write a number and a unit"},
		{"rules:\n- time: 24\n", "2:9: time of rule 1 is \"24\": the unit is missing; write 24s for seconds, or 24m for minutes"},
		{"rules:\n- users: []\n", "2:10: users of rule 1 is an empty list"},
		{"rules:\n- users: [a, ~]\n", "2:14: users of rule 1 has something in its list that is not one text"},
		{"rules:\n- groups: 'a,,b'\n", "2:11: groups of rule 1 has an empty name in its list"},
		{"rules:\n- groups: 99999999999\n", "2:11: \"99999999999\" in groups of rule 1 is neither a name nor a number"},
		{"rules:\n- devices: [0-3]\n", "2:12: devices of rule 1: ranges such as 0-3 are not understood; write every number"},
		{"rules:\n- models: ['[AH]100']\n", "2:11: models of rule 1: only * and ? are wildcards, \"[\" does not"},
		{"rules:\n- gpus: 1\n- groups: [a]\n  gpus: 2\n", "3:3: this rule never counts: the one of line 2 is for all users"},
		{"rules:\n- require_isolation: none\n", "2:22: require_isolation of rule 1 is \"none\"; "},
		{"rules:\n- require_isolation: off\n", "2:22: require_isolation of rule 1 "},
		{"rules:\n- x-a: 1\n", "2:3: unknown key \"x-a\" of rule 1; there are name"},
		{"rules:\n- users: [éé, b,\n                              {}]\n", "3:31: users of rule 1 has something in its list"},
		{"defaults: {no_wait: 'true'}\n", "1:21: no_wait of defaults is neither true nor false"},
		{"rules:\n- gpus: " + strings.Repeat("9", 5000) + "\n", strings.Repeat("9", 380) + "…"},
		{"tolerate: 5\n", "1:11: tolerate is not a map"},
		{"tolerate: {utilization: 5}\n", "1:25: utilization of tolerate is \"5\"; write a number from 0 to 1, such as utilization: 0.1"},
		{"tolerate: {utilization: .nan}\n", "1:25: utilization of tolerate is"},
		{"tolerate: {memory: 5}\n", "1:20: memory of tolerate is \"5\"; write a number and a unit"},
		{"defaults: {tiemout: 5h}\n", "1:12: unknown key \"tiemout\" of defaults; did you mean timeout?"},
		{"defaults: {no_wait: 5}\n", "1:21: no_wait of defaults is neither true nor false"},
		{"defaults: {place: pack}\n", "1:19: place of defaults is \"pack\"; did you mean packed?"},
		{"defaults: {gpus: x}\n", "1:18: gpus of defaults is \"x\"; write a whole number"},
		{"login: some\n", "1:8: login is \"some\"; write all, allowed or none"},
		{"login: all\n---\nlogin: none\n", "a second document begins"},
		{"rules:\n-\tgpus: 1\n", "2:6: this is not YAML: tab character cannot use as a map key directly; indent with blanks"},
		{"login: none\nx: a\xff\n", "2:5: this is not text in UTF-8; write the file anew"},
		{"\xff\xfel\x00o\x00g\x00", "1:1: this is not text in UTF-8"},
		{"rules:\n- gpus: 1\x00\n", "2:10: this is not text in UTF-8"},
		{"\xef\xbb\xbflogin: nne\n", "1:11: login is \"nne\"; did you mean none?"},
		{"watch:\n  outsiders: end\n", "1:1: watch is only for the file of the machine"},
		{"watch: {outsiders: kill}\n", "1:20: outsiders of watch is \"kill\"; write off, report, warn or end"},
		{"watch: {outsider: end}\n", "1:9: unknown key \"outsider\" of watch; did you mean outsiders?"},
		{"watch: {webhook: chat.example.org}\n", "1:18: webhook of watch is no address of the web"},
		{"watch: {webhook: 'file:///etc/passwd'}\n", "1:18: webhook of watch is no address of the web"},
		{"watch: {webhook: 'http://'}\n", "1:18: webhook of watch is no address of the web"},
		{"watch: {grace: 5}\n", "1:16: grace of watch is \"5\": the unit is missing"},
		{"watch: {except: []}\n", "1:17: except of watch is an empty list"},
		{strings.Repeat("#", yamltree.MaxFileBytes+1), "1:1: the file is longer than 256 KiB"},
	} {
		f, mistakes := ReadPolicy([]byte(c.src), "f", strings.Contains(c.src, "watch: {"))
		text := (&diagnostic.Many{File: f.Path, List: mistakes}).Error()
		if len(mistakes) != 1 || !strings.Contains(text, c.want) || !strings.HasPrefix(text, "cannot read f:") {
			t.Errorf("%.60q: %d mistakes: %s\nwant %s", c.src, len(mistakes), text, c.want)
		}
	}
}

// TestReadProject: rules and defaults of a project's file are read, with their places; other keys are no mistakes here.
func TestReadProject(t *testing.T) {
	f, mistakes := ReadProject([]byte("services:\n  a: {comand: b}\nlogin: 7\nrules:\n- gpus: 1\ndefaults: {mem: 8G}\n"), "/p/gpuard.yaml")
	if len(mistakes) > 0 || f.Machine || fmt.Sprint(f.Rules[0].At, *f.Rules[0].GPUs, f.Defaults) != "/p/gpuard.yaml:5 1 [--mem 8G is the default of /p/gpuard.yaml:6]" || f.Login != "" {
		t.Errorf("%+v %v", f, mistakes)
	}
	if _, mistakes := ReadProject([]byte("rules:\n- gpsu: 1\ndefaults: 7\n"), "f"); len(mistakes) != 2 || mistakes[0].Line != 2 {
		t.Errorf("%v", mistakes)
	}
	for _, nothing := range []string{"", "[", "- a\n", "services: {}\n", "a: 1\n---\nrules: 5\n"} {
		if f, mistakes := ReadProject([]byte(nothing), "f"); f != nil || len(mistakes) > 0 {
			t.Errorf("%q: %+v %v", nothing, f, mistakes)
		}
	}
}

// FuzzRead: no bytes make it panic; what it accepts has users and places; and mistakes have places.
func FuzzRead(f *testing.F) {
	for _, s := range []string{Example(), "rules:\n- gpus: 1\n", "rules: [{users: a}, {}]\n", "defaults: {wait: true}\n", "tolerate: {memory: 1G}\n", "watch: {webhook: http://a, outsiders: end, grace: 1m, except: [a, 7]}\n", "a: &a [*a]\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		_, _ = ReadProject(src, "f")
		file, mistakes := ReadPolicy(src, "f", true)
		for _, m := range mistakes {
			if m.Line < 1 || m.Column < 1 || m.Text == "" {
				t.Fatalf("%+v", m)
			}
		}
		if len(mistakes) > 0 {
			return
		}
		for _, r := range file.Rules {
			if r.At.Line < 1 || r.Memory < 0 || r.Time < 0 || r.GPUs != nil && *r.GPUs < 0 {
				t.Fatalf("%+v", r)
			}
		}
		for _, d := range file.Defaults {
			if d.Flag == "" || strings.Contains(d.Value, "\n") {
				t.Fatalf("%+v", d)
			}
		}
	})
}

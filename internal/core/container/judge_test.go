package container

import (
	_ "embed"
	"encoding/csv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

//go:embed testdata/beyond.txt
var beyond string

// onMachine is what testdata/beyond.txt says of its machine.
func onMachine() Found {
	return Found{
		Dir: "/home/ann/project",
		Paths: map[string][]string{
			"./link": {"/dev"}, "/home/ann/project/link/nvidia3": {"/dev/nvidia3"}, "/home/ann/project/lin?": {"/dev"}, "/srv/node": {"/srv/node", "/dev/nvidia3"},
		},
		Volumes: map[string][]string{"devs": {"/dev"}},
		Others:  map[string][]string{"greedy": {"/dev"}, "gpus": {"/dev/nvidia3"}},
	}
}

// judged is what gpuard says of a command line: "" it starts it.
func judged(words []string, found Found, form Form) string {
	c, err := ReadCall(words)
	if err == nil {
		c = c.WithFound(found)
		err = c.CheckStart()
	}
	if err == nil && (c.Verb == "run" || c.Verb == "create" || c.Verb == "compose run") {
		_, _, err = c.With(form)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// each calls a function with every command line of a file.
func each(t testing.TB, text string, do func(line string, words []string)) (n int) {
	t.Helper()
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			do(line, typed(t, line))
			n++
		}
	}
	return n
}

// TestBeyond: a command line that would give a container what its lease does not have is refused with a reason, and no
// reason is more than a line.
func TestBeyond(t *testing.T) {
	t.Parallel()
	form := lease(t, Facts{Engine: "docker", Toolkit: true}, 2)
	n := each(t, beyond, func(line string, words []string) {
		if why := judged(words, onMachine(), form); why == "" || strings.Contains(why, "\n") {
			t.Errorf("%s is not refused: %q", line, why)
		}
	})
	if n < 150 {
		t.Errorf("only %d lines", n)
	}
}

// TestRootless: without the device cgroup, other processes of the machine lead to its devices.
func TestRootless(t *testing.T) {
	t.Parallel()
	form := lease(t, Facts{Engine: "podman"}, 1)
	for line, refused := range map[string]bool{
		"podman run --pid=host image": true, "podman run --pid host image": true, "podman run --pid container:a image": true, "podman run --pid=ns:/proc/1/ns/pid image": true,
		"podman run --pid=private image": false, "podman run --ipc=host image": false, "podman run --userns=keep-id image": false, "podman run -v /data:/data image": false,
	} {
		found := onMachine()
		found.Rootless = true
		if why := judged(typed(t, line), found, form); (why != "") != refused {
			t.Errorf("%s: %q", line, why)
		}
		if why := judged(typed(t, line), onMachine(), form); why != "" {
			t.Errorf("%s, of root's engine: %q", line, why)
		}
	}
}

// spell writes a command line in another way that means the same to the engine.
func spell(words []string, random *rand.Rand) []string {
	c, err := ReadCall(words)
	if err != nil || c.Verb != "run" && c.Verb != "create" {
		return words
	}
	out := slices.Clone(c.Before)
	options := slices.Clone(c.options)
	for _, harmless := range []engineOption{{name: "--rm", words: []string{"--rm"}}, {name: "--name", value: "a", words: []string{"--name", "a"}}, {name: "--env", value: "A=b", words: []string{"-eA=b"}}} {
		if random.IntN(2) == 0 {
			options = append(options, harmless)
		}
	}
	if !slices.ContainsFunc(options, func(o engineOption) bool { return o.name == "--privileged" }) { // of a switch the last one counts
		random.Shuffle(len(options), func(i, j int) { options[i], options[j] = options[j], options[i] })
	}
	for _, o := range options {
		out = append(out, spellOption(o, random)...)
	}
	return append(out, c.inside...)
}

// spellOption writes one option in another way.
func spellOption(o engineOption, random *rand.Rand) []string {
	g := runGrammar()
	if !g.takesOne(o.name) {
		return o.words
	}
	value := o.value
	switch o.name {
	case "--mount":
		value = spellMount(value, random)
	case "--volume", "--device":
		if strings.HasPrefix(value, "/") && !strings.HasPrefix(value, "/srv/") && !strings.HasPrefix(value, "/home/") { // the machine knows those by one name
			value = []string{"", "/", "/.", "/tmp/.."}[random.IntN(4)] + value
		}
	}
	forms := [][]string{{o.name, value}, {o.name + "=" + value}}
	for pair := range strings.FieldsSeq(g.letters) {
		if letter, long, _ := strings.Cut(pair, "="); "--"+long == o.name && value != "" {
			cluster := []string{"-", "-i", "-it", "-dti"}[random.IntN(4)]
			forms = append(forms, []string{cluster + letter, value}, []string{cluster + letter + "=" + value}, []string{cluster + letter + value})
		}
	}
	return forms[random.IntN(len(forms))]
}

// spellMount writes a value of --mount with its fields in another order, with other letters in its keys, and with quotes.
func spellMount(value string, random *rand.Rand) string {
	fields, err := csv.NewReader(strings.NewReader(value)).Read()
	if err != nil {
		return value
	}
	random.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	for i, field := range fields {
		key, rest, given := strings.Cut(field, "=")
		key = []string{key, strings.ToUpper(key), strings.ToUpper(key[:1]) + key[1:]}[random.IntN(3)]
		if given {
			key += "="
		}
		if fields[i] = key + rest; random.IntN(2) == 0 || strings.ContainsAny(fields[i], `,"`) {
			fields[i] = `"` + strings.ReplaceAll(fields[i], `"`, `""`) + `"`
		}
	}
	return strings.Join(fields, ",")
}

// FuzzSpelling: no way to write it makes a command line pass that is refused, or one be refused that passes.
func FuzzSpelling(f *testing.F) {
	var all []string
	refused := each(f, beyond, func(line string, _ []string) { all = append(all, line) })
	each(f, lines, func(line string, _ []string) { all = append(all, line) })
	for at := range all {
		for seed := range uint64(4) {
			f.Add(uint(at), seed)
		}
	}
	form := lease(f, Facts{Engine: "docker", Toolkit: true}, 2)
	f.Fuzz(func(t *testing.T, at uint, seed uint64) {
		at %= uint(len(all))
		words := spell(typed(t, all[at]), rand.New(rand.NewPCG(seed, seed))) //nolint:gosec // the same words for the same seed
		if why := judged(words, onMachine(), form); (why != "") != (at < uint(refused)) {
			t.Errorf("%q, which is %s: %q", words, all[at], why)
		}
	})
}

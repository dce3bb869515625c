package projectyaml

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/core/diagnostic"
	"gpuard/internal/core/service"
	"gpuard/internal/text/yamltree"
)

const whole = `# all kinds of keys
name: shop
x-defaults: &defaults
  restart: on-failure
  env: &env {LANG: C, N: 1}
services:
  web-2:
    command: serve
  web:
    <<: *defaults
    command: serve --port={{add 8000 .Ordinal}} 'a b'
    replicas: 2
    share: 8GiB
    fallback: [cpu]
    model: "*A100*"
    drift: true
    any: false
    log: logs/{{.Ordinal}}.log
    workdir: /srv
    env:
      <<: *env
      N: "{{.Ordinal}}"
    depends_on: {db: ready, prepare: done}
    ready: {http: 8000/health, interval: 2s, timeout: 1d}
  prepare:
    command: [sh, -c, "a | b > $HOME"]
    cpu: true
    env_file: .env,/etc/more.env
    env: [A=1, B=x=y]
  db:
    <<: [*defaults, {workdir: data}]
    command: >
      db
      --fast
    device: [0, "GPU-1,2"]
    restart: always:7
    healthy: {tcp: 5432, interval: 10s, timeout: 2s, failures: 2}
    depends_on: prepare
    ready: {command: ["true"]}
`

func TestRead(t *testing.T) {
	p, mistakes := Read([]byte(whole), "/p/shop files/gpuard.yaml")
	if len(mistakes) > 0 {
		t.Fatal(&diagnostic.Many{File: "gpuard.yaml", List: mistakes})
	}
	var got []string
	for _, s := range p.Services {
		ready := "running"
		if s.Ready != nil {
			ready = fmt.Sprintf("%q %v %s %v %v", s.Ready.Command, s.Ready.Split, s.Ready.HTTP, s.Ready.Interval, s.Ready.Timeout)
		}
		if s.Healthy != nil {
			ready += fmt.Sprintf(" %d %+v", s.Limit, *s.Healthy)
		}
		got = append(got, fmt.Sprintf("%s:%d:%d %q %v x%d %s %s\n  %v\n  %v %v\n  %v %s", s.Name, s.Line, s.Column, s.Command, s.Split, s.Replicas, s.Restart, s.WorkDir, s.Flags, s.Env, s.EnvFiles, s.After, ready))
	}
	want := `web-2:7:3 ["serve"] true x1 no /p/shop files
  []
  [] []
  [] running
web:9:3 ["serve --port={{add 8000 .Ordinal}} 'a b'"] true x2 on-failure /srv
  [{share 8GiB 13 12} {fallback cpu 14 15} {model *A100* 15 12} {drift  16 12} {log /p/shop files/logs/{{.Ordinal}}.log 18 10}]
  [{N {{.Ordinal}}} {LANG C}] []
  [{db ready} {prepare done}] [] false 8000/health 2s 24h0m0s
prepare:25:3 ["sh" "-c" "a | b > $HOME"] false x1 no /p/shop files
  [{cpu  27 10}]
  [{A 1} {B x=y}] [/p/shop files/.env /etc/more.env]
  [] running
db:30:3 ["db --fast\n"] true x1 always /p/shop files/data
  [{device 0,GPU-1,2 35 13}]
  [{LANG C} {N 1}] []
  [{prepare ready}] ["true"] false  0s 0s 7 {Probe:{Command:[] Split:false TCP:5432 HTTP:} Interval:10s Timeout:2s Failures:2}`
	if text := strings.Join(got, "\n"); text != want || p.Name != "shop" || p.File != "/p/shop files/gpuard.yaml" {
		t.Errorf("%s in %s is\n%s\nwant\n%s", p.Name, p.File, text, want)
	}
	if p, _ := Read([]byte("services: {a: {command: b}}"), "/home/Ada L./My Models!/gpuard.yaml"); p.Name != "my-models" {
		t.Errorf("the folder's name became %s", p.Name)
	}
}

// TestMistakes: what is said about each, and where. Lines that begin with a dash are what is expected.
func TestMistakes(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{"", "1:1: the file is empty"},
		{"# nothing\n", "1:1: the file is empty"},
		{"- a\n", "1:1: the file is not a map"},
		{"name: x\n", "1:1: the file has no services"},
		{"services:\n", "1:1: services has no value"},
		{"services: []\n", "1:11: services is not a map"},
		{"services: {}\n", "1:11: services is empty"},
		{"services:\n\ta:\n", "2:1: this is not YAML: found character '\t' that cannot start any token; indent with blanks, YAML takes no tabs"},
		{"services: {a: {command: b}}\n---\na: 1\n", "3:1: a second document begins"},
		{"service:\n  a: {command: b}\n", "1:1: unknown key \"service\"; did you mean services?"},
		{"rules:\nservices: {a: {command: b}}", "1:1: rules has no value"},
		{"image: x\nservices: {a: {command: b}}", "1:1: unknown key \"image\"; there are name, services, rules, defaults"},
		{"version: 3\nservices: {a: {command: b}}", "1:1: unknown key \"version\"; leave it out"},
		{"port: 3\nservices: {a: {command: b}}", "1:1: unknown key \"port\"; there are name, services"},
		{"services:\n  a: {command: b}\n  a: {command: c}\n", "3:3: a is there twice in services, first in line 2"},
		{"services:\n  a:\n    command: b\n    command: c\n", "4:5: command is there twice in service a, first in line 3"},
		{"services:\n  A b: {command: b}\n", "2:3: \"A b\" cannot be the name of a service; write lower case letters and digits, and - _ . after the first, 63 at most, such as a-b"},
		{"services:\n  ../x: {command: b}\n", "2:3: \"../x\" cannot be the name of a service"},
		{"services:\n  a:\n", "2:3: service a is not a map"},
		{"services:\n  a: {}\n", "2:3: service a has no command"},
		{"services:\n  a: {comand: x}\n", "2:7: unknown key \"comand\" of service a; did you mean command?"},
		{"services:\n  node:\n    command: x\n    replcias: 2\n", "4:5: unknown key \"replcias\" of service node; did you mean replicas?"},
		{"services:\n  a: {command: b, environment: {}}\n", "2:19: unknown key \"environment\" of service a; write env"},
		{"services:\n  a: {command: b, xyzzy: 1}\n", "2:19: unknown key \"xyzzy\" of service a; there are command, each, replicas, env, env_file, workdir, image, engine, restart, depends_on, ready, healthy, and flags of gpuard run with _ for -"},
		{"services:\n  a: {command: b, engine: slrum}\n", "2:27: engine of service a is \"slrum\"; did you mean slurm?"},
		{"services:\n  a: {command: b, depends_on: [c]}\n  c: {command: d, engine: slurm}\n", "2:32: service a depends on c, which this machine never starts: its engine is slurm"},
		{"services:\n  a: {command: b, engine: here, depends_on: [c]}\n  c: {command: d}\ndefaults: {engine: slurm}\n", "2:46: service a depends on c, which this machine never starts: its engine is slurm"},
		{"services:\n  a: {command: b, model: *A100*}\n", "2:26: this is not YAML: there is no anchor &A100* for the alias *A100*; a value that begins with * needs quotes"},
		{"services:\n  a:\n    command: {{.Ordinal}}\n", "3:15: this is not YAML: could not find flow map content; a value that begins with { needs quotes"},
		{"services:\n  a:\n    <<: *b\n    command: c\n", "3:9: this is not YAML: there is no anchor &b for the alias *b"},
		{"services:\n  a:\n    <<: b\n    command: c\n", "3:5: this is not YAML: << takes a map"},
		{"services:\n  a: {command: b, each: gpu, replicas: 2}\n", "2:30: service a has each and replicas: each counts the GPUs"},
		{"services:\n  a: {command: b, gpus: 2, each: gpu}\n", "2:19: service a has each and gpus: each instance has one GPU"},
		{"services:\n  a: {command: b, each: node}\n", "2:25: each of service a is \"node\"; write each: gpu"},
		{"services:\n  a: {command: b, each: gpu, exclude: \"{{.Ordinal}}\"}\n", "2:39: exclude of service a is a template"},
		{"services:\n  a: {command: b, replicas: some}\n", "2:29: replicas of service a is \"some\"; write a number from 1 to 1000"},
		{"services:\n  a: {command: 'b > c'}\n", "2:16: command of service a: > is for a shell"},
		{"services:\n  a: {command: 'b {{.Ordnal}}'}\n", "2:16: command of service a: unknown name .Ordnal in a template; did you mean .Ordinal?"},
		{"services:\n  a: {command: [b, '{{.X}}', {c: d}, '']}\n", "2:20: command of service a: unknown name .X in a template\n2:31: word 3 of command of service a is not a text"},
		{"services:\n  a: {command: []}\n", "2:16: command of service a is not a command"},
		{"services:\n  a: {command: ['', b]}\n", "2:17: command of service a begins with an empty word"},
		{"services:\n  a: {command: b, workdir: ~/x}\n", "2:28: workdir of service a begins with ~"},
		{"services:\n  a: {command: b, mem: }\n", "2:19: mem of service a has no value; write for instance mem: 20G"},
		{"services:\n  a: {command: b, mem: [1G]}\n", "2:24: mem of service a is not one text"},
		{"services:\n  a: {command: b, mem: ''}\n", "2:24: mem of service a is empty"},
		{"services:\n  a: {command: b, cpu: yes}\n", "2:24: cpu of service a is neither true nor false; write cpu: true or cpu: false"},
		{"services:\n  a: {command: b, gpus: two}\n", "2:25: gpus of service a is \"two\"; write a whole number, such as gpus: 1"},
		{"services:\n  a: {command: b, device: []}\n", "2:27: device of service a is an empty list"},
		{"services:\n  a: {command: b, device: '0,'}\n", "2:27: device of service a has an empty name"},
		{"services:\n  a: {command: b, device: {a: 1}}\n", "2:28: device of service a is not a list"},
		{"services:\n  a: {command: b, restart: true}\n", "2:28: restart of service a is \"true\"; write no, on-failure or always"},
		{"services:\n  a: {command: b, env: {A: 0,1}}\n", "2:30: env of service a: in {} a comma begins the next variable"},
		{"services:\n  a: {command: b, env: {A: }}\n", "2:25: env of service a: A has no value"},
		{"services:\n  a: {command: b, env: {A: [1]}}\n", "2:28: env of service a: the value of A is not a text"},
		{"services:\n  a: {command: b, env: [A]}\n", "2:25: env of service a: \"A\" is not a variable"},
		{"services:\n  a: {command: b, env: [A=1, A=2]}\n", "2:30: env of service a has A twice"},
		{"services:\n  a: {command: b, env: {'A B': 1}}\n", "2:25: env of service a: \"A B\" is not the name of a variable"},
		{"services:\n  a: {command: b, env: {CUDA_VISIBLE_DEVICES: 1}}\n", "2:25: env of service a sets CUDA_VISIBLE_DEVICES, which gpuard writes itself; write device: [1]"},
		{"services:\n  a:\n    command: [b, \"c\\0d\"]\n", "3:18: there is a zero byte (\\0) in this text, and no program can be given one; leave it out"},
		{"services:\n  a: {command: \"b \\0\", env: {\"A\\0\": 1, B: \"\\x00\"}, log: \"l\\0\"}\n", "2:16: there is a zero byte\n2:30: there is a zero byte\n2:43: there is a zero byte\n2:57: there is a zero byte"},
		{"services:\n  a: {command: b, env: &e {A: \"\\0\"}}\n  c: {command: b, env: *e}\n", "2:31: there is a zero byte"},
		{"services:\n  a: {command: b, env: 5}\n", "2:24: env of service a is not a map"},
		{"services:\n  a: {command: b, ready: 5}\n", "2:26: ready of service a is not a map"},
		{"services:\n  a: {command: b, ready: {}}\n", "2:19: ready of service a does not say how"},
		{"services:\n  a: {command: b, ready: {tcp: 1, log: x}}\n", "2:19: ready of service a asks in 2 ways: tcp and log"},
		{"services:\n  a: {command: b, ready: {tcp: x}}\n", "2:32: tcp of ready of service a is \"x\"; write a port"},
		{"services:\n  a: {command: b, ready: {tcp: 70000}}\n", "2:32: tcp of ready of service a is \"70000\"; write a port"},
		{"services:\n  a: {command: b, ready: {tcp: 'db:0'}}\n", "2:32: tcp of ready of service a is \"db:0\"; write a port"},
		{"services:\n  a: {command: b, ready: {http: 99999/health}}\n", "2:33: http of ready of service a is \"99999/health\""},
		{"services:\n  a: {command: b, ready: {http: /health}}\n", "2:33: http of ready of service a is \"/health\""},
		{"services:\n  a: {command: b, ready: {http: 'https://db/health'}}\n", "2:33: http of ready of service a is \"https://db/health\"; write http://"},
		{"services:\n  a: {command: b, healthy: {tcp: x}}\n", "2:34: tcp of healthy of service a is \"x\"; write a port"},
		{"services:\n  a: {command: b, healthy: yes}\n", "2:28: healthy of service a is not a map; write for instance healthy: {http: 8000/health}"},
		{"services:\n  a: {command: b, healthy: {interval: 5s}}\n", "2:19: healthy of service a does not say how: write command, tcp or http below it"},
		{"services:\n  a: {command: b, healthy: {tcp: 1, log: x}}\n", "2:37: unknown key \"log\" of healthy of service a; there are command, tcp, http, interval, timeout, failures"},
		{"services:\n  a: {command: b, healthy: {tcp: 1, retries: 2}}\n", "2:37: unknown key \"retries\" of healthy of service a; write failures below healthy"},
		{"services:\n  a: {command: b, healthy: {tcp: 1, failures: 0}}\n", "2:47: failures of healthy of service a is \"0\"; write a whole number"},
		{"services:\n  a: {command: b, restart: 'on-failure:0'}\n", "2:28: restart of service a is \"on-failure:0\"; write on-failure:5 or always:5"},
		{"services:\n  a: {command: b, restart: 'no:3'}\n", "2:28: restart of service a is \"no:3\"; write on-failure:5"},
		{"services:\n  a: {command: b, restart: 'onfailure:3'}\n", "2:28: restart of service a is \"onfailure\"; did you mean on-failure?"},
		{"services:\n  a: {command: b, ready: {log: '('}}\n", "2:32: log of ready of service a is not a regular expression"},
		{"services:\n  a: {command: b, ready: {tcp: 1, timeout: 10}}\n", "2:44: timeout of ready of service a is \"10\": the unit is missing; write 10s for seconds, or 10m"},
		{"services:\n  a: {command: b, ready: {tcp: 1, intervall: 10s}}\n", "2:35: unknown key \"intervall\" of ready of service a; did you mean interval?"},
		{"services:\n  node: {command: b, replicas: 2}\n  node-1: {command: c}\n  node-2: {command: d}\n", "3:3: service node-1 has the name of an instance of service node"},
		{"services:\n  node: {command: b, each: gpu}\n  node-7: {command: c}\n", "3:3: service node-7 has the name of an instance"},
		{"services:\n  a: {command: b, depends_on: bb}\n  bbb: {command: c}\n", "2:31: unknown service \"bb\" in depends_on of service a; did you mean bbb?"},
		{"services:\n  a: {command: b, depends_on: [c, c]}\n  c: {command: c}\n", "2:35: depends_on of service a names c twice"},
		{"services:\n  a: {command: b, depends_on: {c: healthy}}\n  c: {command: c}\n", "2:35: depends_on of service a is \"healthy\"; write ready or done"},
		{"services:\n  a: {command: b, depends_on: {c: done}}\n  c: {command: c, restart: always}\n", "2:32: service a waits until c is done, which restart: always never lets it be"},
		{"services:\n  a: {command: b, depends_on: [a]}\n", "2:32: service a depends on itself"},
		{"services:\n  x: {command: b, depends_on: [a]}\n  a: {command: b, depends_on: [b]}\n  b: {command: b, depends_on: [c]}\n  c: {command: b, depends_on: [a]}\n", "5:32: these services wait for each other: a → b → c → a"},
	} {
		_, mistakes := Read([]byte(c.src), "/p/gpuard.yaml")
		var got []string
		for _, m := range mistakes {
			got = append(got, fmt.Sprintf("%d:%d: %s", m.Line, m.Column, m.Text))
		}
		want := strings.Split(c.want, "\n")
		same := len(got) == len(want)
		for i := 0; same && i < len(want); i++ {
			same = strings.HasPrefix(got[i], want[i])
		}
		if !same {
			t.Errorf("%s\n got %s\nwant %s", c.src, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
		}
	}
}

// TestExamples: the files that come with gpuard have no mistakes.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*/gpuard.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, mistakes := Read(data, path); len(mistakes) > 0 {
			t.Error(&diagnostic.Many{File: path, List: mistakes})
		}
	}
}

// TestGuide: neither have the files in the guide.
func TestGuide(t *testing.T) {
	guide, err := os.ReadFile("../../../docs/how-to/services.md")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for block := range strings.SplitSeq("\n"+string(guide), "\n\n    ") {
		block, _, _ = strings.Cut("    "+block, "\n\n")
		block = strings.ReplaceAll("\n"+block, "\n    ", "\n")
		if !strings.Contains(block, "\nservices:") {
			continue
		}
		files++
		if _, mistakes := Read([]byte(block), "/p/gpuard.yaml"); len(mistakes) > 0 {
			t.Errorf("%s\n%v", block, &diagnostic.Many{File: "gpuard.yaml", List: mistakes})
		}
	}
	if files < 3 {
		t.Errorf("found %d files in the guide", files)
	}
}

// TestKeys: what the reference page gives as an example of a key can be written there.
func TestKeys(t *testing.T) {
	keys := AllKeys()
	try := func(src string) {
		t.Helper()
		if _, mistakes := Read([]byte(src), "/p/gpuard.yaml"); len(mistakes) > 0 {
			t.Errorf("%s\n%v", src, &diagnostic.Many{File: "gpuard.yaml", List: mistakes})
		}
	}
	const more = "\n  database: {command: a}\n  prepare: {command: a}\n"
	for _, k := range keys.Service {
		src := "services:\n  a:\n    " + k.Name + ": " + k.Sample
		if k.Name != "command" {
			src += "\n    command: x"
		}
		try(src + more)
	}
	for name, list := range map[string][]yamltree.Key{"ready": keys.Ready, "healthy": keys.Healthy} {
		for _, k := range list {
			src := "services:\n  a:\n    command: x\n    " + name + ":\n      " + k.Name + ": " + k.Sample
			if k.Takes == yamltree.Time || k.Takes == yamltree.Number {
				src += "\n      tcp: 80"
			}
			try(src + more)
		}
	}
}

// FuzzRead: no input panics; a file without mistakes becomes instances with names of their own on a machine, and each
// mistake has a place in the file.
func FuzzRead(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("services:\n  a: {command: 'b {{add 1 .Ordinal}}', each: gpu, depends_on: {c: done}}\n  c: {command: [x], env: [A=1], ready: {log: x}}\n"))
	f.Add([]byte("services: {a: {<<: {b: c}, command: \"{{if}}\", mem: 1G, device: 0, replicas: 3}}"))
	f.Fuzz(func(t *testing.T, src []byte) {
		p, mistakes := Read(src, "/p/gpuard.yaml")
		lines := strings.Count(string(src), "\n") + strings.Count(string(src), "\r") + 1 // the parser takes both for ends
		for _, m := range mistakes {
			if m.Line < 1 || m.Line > lines || m.Column < 1 || m.Text == "" || len(m.Text) > 4*400 {
				t.Errorf("%q: %+v", src, m)
			}
		}
		if len(mistakes) > 0 {
			return
		}
		list, _, err := service.Expand(p, service.Ground{})
		if err != nil && !strings.Contains(err.Error(), "service ") {
			t.Errorf("%q: %v", src, err)
		}
		seen := map[string]bool{}
		for _, i := range list {
			if seen[i.Name] || !isGoodName(i.Service) || i.Hash == "" || len(i.Command) == 0 {
				t.Errorf("%q: %+v", src, i)
			}
			seen[i.Name] = true
		}
	})
}

package project

import (
	"slices"

	"gpuard/internal/core/service"
)

// Kind is what a key of a project file takes.
type Kind string

// Kinds of keys.
const (
	Text     Kind = "text"
	Number   Kind = "whole number"
	Switch   Kind = "true or false"
	Size     Kind = "size"                       // 20G
	Time     Kind = "time"                       // 90s
	List     Kind = "list"                       // [a, b], or "a,b"
	Optional Kind = "true, or text"              // of a flag whose value can be left out
	Command  Kind = "text, or a list of words"   // text is cut into words
	Pairs    Kind = "map, or a list of A=B"      // variables
	Needs    Kind = "list of services, or a map" // service to condition
	Map      Kind = "map"
	Maps     Kind = "list of maps"
)

// Key is one key of a project file.
type Key struct {
	Name   string
	Flag   string // of gpuard run that it stands for; "" for none
	Kind   Kind
	Words  []string // all that it can be, where that is known
	Text   string   // what it means: a sentence without its full stop
	Sample string   // as one writes it, behind the colon
}

// Keys are all keys: at the top of the file, of a service, and of its ready.
type Keys struct{ File, Service, Ready []Key }

// AllKeys is what a project file can say. Reading, the JSON Schema and the reference page are made of it.
func AllKeys() Keys {
	return Keys{File: fileKeys(), Service: slices.Concat(programKeys(), chooseKeys(), careKeys()), Ready: readyKeys()}
}

func find(table []Key, name string) (Key, bool) {
	i := slices.IndexFunc(table, func(k Key) bool { return k.Name == name })
	if i < 0 {
		return Key{}, false
	}
	return table[i], true
}

func fileKeys() []Key {
	return []Key{
		{Name: "name", Kind: Text, Text: "name of the project, in lower case; without it, that of the file's folder", Sample: "exo"},
		{Name: "services", Kind: Map, Text: "the programs, each under its name: lower case letters, digits, and - _ . behind the first"},
		{Name: "rules", Kind: Maps, Text: "who may have what with the services of this file, as in config.yaml: they narrow the rules of the machine and of the user, and widen nothing"},
		{Name: "defaults", Kind: Map, Text: "values of keys that a service does not have, as in config.yaml", Sample: "{mem: 8G, place: packed}"},
	}
}

func programKeys() []Key {
	return []Key{
		{Name: "command", Kind: Command, Text: "what to start, without a shell; a text is cut into words, quotes protect blanks", Sample: "python serve.py --port {{add 8001 .Ordinal}}"},
		{Name: "each", Kind: Text, Words: []string{"gpu"}, Text: "one instance for every GPU that the other keys allow; each keeps its GPU and its ordinal", Sample: "gpu"},
		{Name: "replicas", Kind: Number, Text: "how many instances", Sample: "2"},
		{Name: "env", Kind: Pairs, Text: "variables, beside those that gpuard up was started with", Sample: "{HF_HOME: /data/hf}"},
		{Name: "env_file", Kind: List, Text: "files of variables (NAME=VALUE lines), read before env; paths begin at the file's folder", Sample: "[.env]"},
		{Name: "workdir", Kind: Text, Text: "folder in which it starts; a relative path begins at the file's folder, which is also the default", Sample: "backend"},
		{Name: "restart", Kind: Text, Words: []string{string(service.Never), string(service.OnFailure), string(service.Always)}, Text: "after which ends it is started again; the pause before it grows", Sample: "on-failure"},
		{Name: "depends_on", Kind: Needs, Words: []string{string(service.UntilReady), string(service.UntilDone)}, Text: "services that come first: until they are ready (a list, or NAME: ready), or have ended with 0 (NAME: done)", Sample: "{database: ready, prepare: done}"},
		{Name: "ready", Kind: Map, Text: "how it shows that it can be used; without it, it is ready when it runs", Sample: "{tcp: 8001}"},
	}
}

func readyKeys() []Key {
	return []Key{
		{Name: "command", Kind: Command, Text: "a command that ends with 0 when it is ready", Sample: "[./probe]"},
		{Name: "tcp", Kind: Text, Text: "a port of this machine, or HOST:PORT, that accepts a connection", Sample: "8001"},
		{Name: "http", Kind: Text, Text: "a URL, or PORT/PATH of this machine, that answers with a status of 200 to 399", Sample: "8000/health"},
		{Name: "log", Kind: Text, Text: "regular expression (RE2) for a line that it writes", Sample: "listening on"},
		{Name: "interval", Kind: Time, Text: "time between two looks; without it 1s, and shorter at the beginning", Sample: "5s"},
		{Name: "timeout", Kind: Time, Text: "time after which it counts as failed; without it, never", Sample: "10m"},
	}
}

// chooseKeys are the flags that choose and lease devices.
func chooseKeys() []Key {
	return []Key{
		{Name: "gpus", Flag: "gpus", Kind: Number, Text: "whole GPUs for each instance; without it 1", Sample: "2"},
		{Name: "cpu", Flag: "cpu", Kind: Switch, Text: "no GPU", Sample: "true"},
		{Name: "device", Flag: "device", Kind: List, Text: "which GPUs: indices, UUIDs or unique prefixes, PCI ids, in the order that the program sees", Sample: "[0]"},
		{Name: "mig", Flag: "mig", Kind: Text, Text: "one MIG slice of this profile", Sample: "1g.10gb"},
		{Name: "exclude", Flag: "exclude", Kind: List, Text: "GPUs not to take, named as in device", Sample: "[3]"},
		{Name: "model", Flag: "model", Kind: Text, Text: "only models that match this pattern of * and ?", Sample: `"*A100*"`},
		{Name: "min_compute", Flag: "min-compute", Kind: Text, Text: "compute capability of at least this", Sample: "8.0"},
		{Name: "mem", Flag: "mem", Kind: Size, Text: "memory that each GPU must have free", Sample: "40G"},
		{Name: "share", Flag: "share", Kind: Size, Text: "a share of this size of the memory of each GPU, beside other shares", Sample: "8G"},
		{Name: "quota", Flag: "quota", Kind: Text, Words: []string{"watch", "mps"}, Text: "how the share is kept to its size", Sample: "mps"},
		{Name: "require_quota", Flag: "require-quota", Kind: Text, Words: []string{"watch", "mps"}, Text: "refuse to start where the share could be kept to its size less strictly", Sample: "mps"},
		{Name: "mps_threads", Flag: "mps-threads", Kind: Number, Text: "percent of the GPU's processors, for quota: mps", Sample: "50"},
		{Name: "place", Flag: "place", Kind: Text, Words: []string{"spread", "packed"}, Text: "how to choose among free GPUs; without it, by how busy the machine is", Sample: "packed"},
		{Name: "ids", Flag: "ids", Kind: Text, Words: []string{"auto", "uuid", "index"}, Text: "how GPUs are written into variables", Sample: "uuid"},
		{Name: "torchrun", Flag: "torchrun", Kind: Switch, Text: "the command is a script for torchrun, which starts it once for each GPU", Sample: "true"},
		{Name: "ranks", Flag: "ranks", Kind: Optional, Words: []string{"all", "own"}, Text: "start the command once for each GPU; each process sees all GPUs of its instance (true), or its own alone", Sample: "own"},
		{Name: "nproc", Flag: "nproc", Kind: Number, Text: "how many processes, in place of one for each GPU, for torchrun and ranks", Sample: "4"},
		{Name: "any", Flag: "any", Kind: Switch, Text: "ignore a mask or lease that gpuard up was started inside of", Sample: "true"},
		{Name: "private_state", Flag: "private-state", Kind: Switch, Text: "lease inside a container although nobody outside sees it", Sample: "true"},
		{Name: "wait", Flag: "wait", Kind: Optional, Text: "longest time in line for a GPU; without it, no limit", Sample: "10m"},
		{Name: "no_wait", Flag: "no-wait", Kind: Switch, Text: "give up at once when no GPU is free", Sample: "true"},
		{Name: "fallback", Flag: "fallback", Kind: List, Text: "what to try in place of waiting, in order: other (drops device and model), cpu, wait", Sample: "[other, cpu]"},
	}
}

// careKeys are the flags about what happens while it runs.
func careKeys() []Key {
	return []Key{
		{Name: "time", Flag: "time", Kind: Time, Text: "how long it takes by your guess: a move to another GPU must pay in what is left of it", Sample: "12h"},
		{Name: "timeout", Flag: "timeout", Kind: Time, Text: "time after which it is ended", Sample: "24h"},
		{Name: "drift", Flag: "drift", Kind: Optional, Text: "start it again on a better GPU when its own gets into trouble: hot, slow, sick, or true for all of them", Sample: "[hot, sick]"},
		{Name: "stop_signal", Flag: "stop-signal", Kind: Text, Text: "signal that asks it to end; without it TERM", Sample: "INT"},
		{Name: "grace", Flag: "grace", Kind: Time, Text: "time that it then has before it is killed; without it 10s", Sample: "30s"},
		{Name: "log", Flag: "log", Kind: Text, Text: "file that gets its output too, beside what gpuard logs shows; a relative path begins at the file's folder", Sample: "logs/node-{{.Ordinal}}.log"},
		{Name: "log_limit", Flag: "log-limit", Kind: Size, Text: "size at which that file, and the log that gpuard keeps, is put aside; without it 64M", Sample: "10M"},
		{Name: "verify", Flag: "verify", Kind: Optional, Text: "watch for this time whether it is on its GPU; with stop behind a comma, end it if not", Sample: "30s,stop"},
	}
}

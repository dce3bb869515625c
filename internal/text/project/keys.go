package project

import (
	"slices"

	"gpuard/internal/core/service"
	"gpuard/internal/text/yamltree"
)

// Keys are all keys: at the top of the file, of a service, and of its ready and healthy.
type Keys struct{ File, Service, Ready, Healthy []yamltree.Key }

// AllKeys is what a project file can say. Reading, the JSON Schema and the reference page are made of it.
func AllKeys() Keys {
	return Keys{File: fileKeys(), Service: slices.Concat(programKeys(), chooseKeys(), careKeys()), Ready: readyKeys(), Healthy: healthyKeys()}
}

func fileKeys() []yamltree.Key {
	return []yamltree.Key{
		{Name: "name", Takes: yamltree.Text, Text: "name of the project, in lower case; without it, that of the file's folder", Sample: "exo"},
		{Name: "services", Takes: yamltree.Keyed, Text: "the programs, each under its name: lower case letters, digits, and - _ . after the first"},
		{Name: "rules", Takes: yamltree.Maps, Text: "who may have what with the services of this file, as in config.yaml: they narrow the rules of the machine and of the user, and widen nothing"},
		{Name: "defaults", Takes: yamltree.Keyed, Text: "values of keys that a service does not have, as in config.yaml", Sample: "{mem: 8G, place: packed}"},
	}
}

func programKeys() []yamltree.Key {
	return []yamltree.Key{
		{Name: "command", Takes: yamltree.Command, Text: "what to start, without a shell; a text is cut into words, quotes protect blanks", Sample: "python serve.py --port {{add 8001 .Ordinal}}"},
		{Name: "each", Takes: yamltree.Text, Words: []string{"gpu"}, Text: "one instance for every GPU that the other keys allow; each keeps its GPU and its ordinal", Sample: "gpu"},
		{Name: "replicas", Takes: yamltree.Number, Text: "how many instances", Sample: "2"},
		{Name: "env", Takes: yamltree.Pairs, Text: "variables, beside those that gpuard up was started with", Sample: "{HF_HOME: /data/hf}"},
		{Name: "env_file", Takes: yamltree.Texts, Text: "files of variables (NAME=VALUE lines), read before env; paths begin at the file's folder", Sample: "[.env]"},
		{Name: "workdir", Takes: yamltree.Text, Text: "folder in which it starts; a relative path begins at the file's folder, which is also the default", Sample: "backend"},
		{Name: "image", Takes: yamltree.Text, Text: "image of its container where gpuard export hands it to Kubernetes or Docker Compose; a program that gpuard starts is one of this machine", Sample: "registry.example.org/serve:1"},
		{Name: "engine", Takes: yamltree.Text, Words: []string{"slurm", "kubernetes", "kubernetes-plugin", "kubernetes-dra", "here"}, Text: "the scheduler that gpuard submit -f hands it to; gpuard up leaves it out. here is this machine, where defaults say otherwise", Sample: "slurm"},
		{Name: "restart", Takes: yamltree.Text, Words: []string{string(service.Never), string(service.OnFailure), string(service.Always)}, Text: "after which ends it is started again; the pause before it grows, and on-failure:5 or always:5 limits the restarts in a row", Sample: "on-failure:5"},
		{Name: "depends_on", Takes: yamltree.Needs, Words: []string{string(service.UntilReady), string(service.UntilDone)}, Text: "services that come first: until they are ready (a list, or NAME: ready), or have ended with 0 (NAME: done)", Sample: "{database: ready, prepare: done}"},
		{Name: "ready", Takes: yamltree.Keyed, Text: "how it shows that it can be used; without it, it is ready when it runs", Sample: "{tcp: 8001}"},
		{Name: "healthy", Takes: yamltree.Keyed, Text: "how it shows, from when it is ready, that it still works; an unhealthy one is restarted where restart says so", Sample: "{http: 8000/health}"},
	}
}

func readyKeys() []yamltree.Key {
	return []yamltree.Key{
		{Name: "command", Takes: yamltree.Command, Text: "a command that ends with 0 when it is ready", Sample: "[./probe]"},
		{Name: "tcp", Takes: yamltree.Text, Text: "a port of this machine, or HOST:PORT, that accepts a connection", Sample: "8001"},
		{Name: "http", Takes: yamltree.Text, Text: "a URL, or PORT/PATH of this machine, that answers with a status of 200 to 399", Sample: "8000/health"},
		{Name: "log", Takes: yamltree.Text, Text: "regular expression (RE2) for a line that it writes", Sample: "listening on"},
		{Name: "interval", Takes: yamltree.Time, Text: "time between two looks; without it 1s, and shorter at the beginning", Sample: "5s"},
		{Name: "timeout", Takes: yamltree.Time, Text: "time after which it counts as failed; without it, never", Sample: "10m"},
	}
}

func healthyKeys() []yamltree.Key {
	probes := slices.DeleteFunc(readyKeys(), func(k yamltree.Key) bool { return k.Name == "log" || k.Takes == yamltree.Time })
	probes[0].Text = "a command that ends with 0 while it is healthy"
	return append(probes,
		yamltree.Key{Name: "interval", Takes: yamltree.Time, Text: "time between two checks; without it 30s", Sample: "10s"},
		yamltree.Key{Name: "timeout", Takes: yamltree.Time, Text: "time of one check, after which it counts as failed; without it 30s", Sample: "5s"},
		yamltree.Key{Name: "failures", Takes: yamltree.Number, Text: "failed checks in a row that make it unhealthy; without it 3", Sample: "2"},
	)
}

// chooseKeys are the flags that choose and lease devices.
func chooseKeys() []yamltree.Key {
	return []yamltree.Key{
		{Name: "gpus", Flag: "gpus", Takes: yamltree.Number, Text: "whole GPUs for each instance; without it 1", Sample: "2"},
		{Name: "cpu", Flag: "cpu", Takes: yamltree.Switch, Text: "no GPU", Sample: "true"},
		{Name: "device", Flag: "device", Takes: yamltree.Texts, Text: "which GPUs: indices, UUIDs or unique prefixes, PCI ids, in the order that the program sees", Sample: "[0]"},
		{Name: "mig", Flag: "mig", Takes: yamltree.Text, Text: "one MIG slice of this profile", Sample: "1g.10gb"},
		{Name: "exclude", Flag: "exclude", Takes: yamltree.Texts, Text: "GPUs not to take, named as in device", Sample: "[3]"},
		{Name: "model", Flag: "model", Takes: yamltree.Text, Text: "only models that match this pattern of * and ?", Sample: `"*A100*"`},
		{Name: "min_compute", Flag: "min-compute", Takes: yamltree.Text, Text: "compute capability of at least this", Sample: "8.0"},
		{Name: "mem", Flag: "mem", Takes: yamltree.Size, Text: "memory that each GPU must have free", Sample: "40G"},
		{Name: "share", Flag: "share", Takes: yamltree.Size, Text: "a share of this size of the memory of each GPU, beside other shares", Sample: "8G"},
		{Name: "quota", Flag: "quota", Takes: yamltree.Text, Words: []string{"watch", "mps"}, Text: "how the share is kept to its size", Sample: "mps"},
		{Name: "require_quota", Flag: "require-quota", Takes: yamltree.Text, Words: []string{"watch", "mps"}, Text: "refuse to start where the share could be kept to its size less strictly", Sample: "mps"},
		{Name: "mps_threads", Flag: "mps-threads", Takes: yamltree.Number, Text: "percent of the GPU's processors, for quota: mps", Sample: "50"},
		{Name: "place", Flag: "place", Takes: yamltree.Text, Words: []string{"spread", "packed"}, Text: "how to choose among free GPUs; without it, by how busy the machine is", Sample: "packed"},
		{Name: "ids", Flag: "ids", Takes: yamltree.Text, Words: []string{"auto", "uuid", "index"}, Text: "how GPUs are written into variables", Sample: "uuid"},
		{Name: "torchrun", Flag: "torchrun", Takes: yamltree.Switch, Text: "the command is a script for torchrun, which starts it once for each GPU", Sample: "true"},
		{Name: "ranks", Flag: "ranks", Takes: yamltree.Optional, Words: []string{"all", "own"}, Text: "start the command once for each GPU; each process sees all GPUs of its instance (true), or its own alone", Sample: "own"},
		{Name: "nproc", Flag: "nproc", Takes: yamltree.Number, Text: "how many processes, in place of one for each GPU, for torchrun and ranks", Sample: "4"},
		{Name: "any", Flag: "any", Takes: yamltree.Switch, Text: "ignore a mask or lease that gpuard up was started inside of", Sample: "true"},
		{Name: "private_state", Flag: "private-state", Takes: yamltree.Switch, Text: "lease inside a container although it is invisible outside", Sample: "true"},
		{Name: "wait", Flag: "wait", Takes: yamltree.Optional, Text: "longest time in line for a GPU; without it, no limit", Sample: "10m"},
		{Name: "no_wait", Flag: "no-wait", Takes: yamltree.Switch, Text: "give up immediately when no GPU is free", Sample: "true"},
		{Name: "fallback", Flag: "fallback", Takes: yamltree.Texts, Text: "what to try in place of waiting, in order: other (drops device and model), cpu, wait", Sample: "[other, cpu]"},
	}
}

// careKeys are the flags about what happens while it runs.
func careKeys() []yamltree.Key {
	return []yamltree.Key{
		{Name: "time", Flag: "time", Takes: yamltree.Time, Text: "how long it takes by your guess: a move to another GPU must pay in what is left of it", Sample: "12h"},
		{Name: "timeout", Flag: "timeout", Takes: yamltree.Time, Text: "time after which it is ended", Sample: "24h"},
		{Name: "drift", Flag: "drift", Takes: yamltree.Optional, Text: "start it again on a better GPU when its own gets into trouble: hot, slow, sick, or true for all of them", Sample: "[hot, sick]"},
		{Name: "stop_signal", Flag: "stop-signal", Takes: yamltree.Text, Text: "signal that asks it to end; without it TERM", Sample: "INT"},
		{Name: "grace", Flag: "grace", Takes: yamltree.Time, Text: "time that it then has before it is killed; without it 10s", Sample: "30s"},
		{Name: "log", Flag: "log", Takes: yamltree.Text, Text: "file that gets its output too, beside what gpuard logs shows; a relative path begins at the file's folder", Sample: "logs/node-{{.Ordinal}}.log"},
		{Name: "log_limit", Flag: "log-limit", Takes: yamltree.Size, Text: "size at which that file, and the log that gpuard keeps, is put aside; without it 64M", Sample: "10M"},
		{Name: "notify", Flag: "notify", Takes: yamltree.Text, Text: "who is told when it is over for good: a shell command, a URL, or desktop", Sample: "'mail -s \"$GPUARD_JOB_TEXT\" me </dev/null'"},
		{Name: "verify", Flag: "verify", Takes: yamltree.Optional, Text: "watch for this time whether it is on its GPU; with stop behind a comma, end it if not", Sample: "30s,stop"},
	}
}

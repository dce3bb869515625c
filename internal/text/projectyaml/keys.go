package projectyaml

import (
	"slices"

	"gpuard/internal/core/option"
	"gpuard/internal/core/service"
	"gpuard/internal/text/yamltree"
)

// Keys are all keys: at the top of the file, of a service, and of its ready and healthy.
type Keys struct{ File, Service, Ready, Healthy []yamltree.Key }

// AllKeys is what a project file can say. Reading, the JSON Schema and the reference page are made of it.
func AllKeys() Keys {
	return Keys{File: fileKeys(), Service: append(programKeys(), yamltree.KeysOf(option.OptionsOfFile(option.Service))...), Ready: readyKeys(), Healthy: healthyKeys()}
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

package config

import "slices"

// Kind is what a key of the file takes.
type Kind string

// Kinds of keys.
const (
	Text     Kind = "text"
	Number   Kind = "whole number"
	Size     Kind = "size" // 20G
	Time     Kind = "time" // 90s
	Part     Kind = "number from 0 to 1"
	List     Kind = "list" // [a, b], or "a,b"
	Switch   Kind = "true or false"
	Optional Kind = "true, or text" // of a flag whose value can be left out
	Map      Kind = "map"
	Maps     Kind = "list of maps"
)

// Key is one key of the file.
type Key struct {
	Name   string
	Flag   string // of gpuard run that it is the default of; "" for none
	Kind   Kind
	Words  []string // all that it can be, where that is known
	Text   string   // what it means: a sentence without its full stop
	Sample string   // as one writes it, behind the colon
}

// Keys are all keys: at the top of the file, of a rule, of tolerate, and of defaults.
type Keys struct{ File, Rule, Tolerate, Defaults []Key }

// AllKeys is what the file can say. Reading, the JSON Schema and the reference page are made of it.
func AllKeys() Keys {
	return Keys{File: fileKeys(), Rule: ruleKeys(), Tolerate: tolerateKeys(), Defaults: defaultKeys()}
}

// ProjectKeys are those of the keys at the top that a project's file may have, too.
func ProjectKeys() []string { return []string{"rules", "defaults"} }

func find(table []Key, name string) (Key, bool) {
	i := slices.IndexFunc(table, func(k Key) bool { return k.Name == name })
	if i < 0 {
		return Key{}, false
	}
	return table[i], true
}

func fileKeys() []Key {
	return []Key{
		{Name: "rules", Kind: Maps, Text: "who may have what; the first rule that names you counts, and one without users and groups names everybody but root"},
		{Name: "tolerate", Kind: Map, Text: "use of a GPU without a lease that still counts as free"},
		{Name: "defaults", Kind: Map, Text: "values of flags that were not given, for run, hold, env, sweep and the services of up"},
		{Name: "login", Kind: Text, Words: []string{"all", "allowed", "none"}, Text: "which GPUs a login shell without a lease sees: all, those that the rules allow, or none; without it, all", Sample: "allowed"},
	}
}

func ruleKeys() []Key {
	return []Key{
		{Name: "name", Kind: Text, Text: "what messages call the rule", Sample: "students"},
		{Name: "users", Kind: List, Text: "whom it names: names of users, or their numbers", Sample: "[alice, 1003]"},
		{Name: "groups", Kind: List, Text: "whom it names: groups of the machine, or their numbers", Sample: "[students]"},
		{Name: "devices", Kind: List, Text: "which GPUs they may have: indices, UUIDs or unique beginnings, PCI ids", Sample: "[0, 1]"},
		{Name: "models", Kind: List, Text: "which models they may have: patterns of * and ?", Sample: `["*A100*"]`},
		{Name: "gpus", Kind: Number, Text: "how many GPUs or slices at once, over all their leases; 0 is none", Sample: "2"},
		{Name: "mem", Kind: Size, Text: "how much memory of a GPU: a larger share is refused, and so is a whole GPU that has more", Sample: "40G"},
		{Name: "time", Kind: Time, Text: "how long a run may last: a run without --timeout gets this one, and a lease without an end is refused", Sample: "24h"},
	}
}

func tolerateKeys() []Key {
	return []Key{
		{Name: "memory", Kind: Size, Text: "memory of all other programs on a GPU together; without it 256M", Sample: "500M"},
		{Name: "display", Kind: Size, Text: "memory of what draws on a screen; without it 2G", Sample: "4G"},
		{Name: "utilization", Kind: Part, Text: "how busy such a GPU may be; without it 0.05", Sample: "0.1"},
	}
}

// defaultKeys are flags of gpuard run of which a default makes sense: those that ask for something of one job do not.
func defaultKeys() []Key {
	of := func(flag, name string, kind Kind, sample, text string, words ...string) Key {
		return Key{Name: name, Flag: flag, Kind: kind, Words: words, Text: text, Sample: sample}
	}
	return []Key{
		of("gpus", "gpus", Number, "1", "whole GPUs"),
		of("exclude", "exclude", List, "[3]", "GPUs not to take"),
		of("model", "model", Text, `"*A100*"`, "only models that match this pattern of * and ?"),
		of("min-compute", "min_compute", Text, "8.0", "compute capability of at least this"),
		of("mem", "mem", Size, "8G", "memory that each GPU must have free"),
		of("share", "share", Size, "8G", "a share of this size of the memory of each GPU"),
		of("quota", "quota", Text, "mps", "how a share is kept to its size", "watch", "mps"),
		of("require-quota", "require_quota", Text, "mps", "refuse to start where a share could be kept to its size less strictly", "watch", "mps"),
		of("place", "place", Text, "packed", "how to choose among free GPUs", "spread", "packed"),
		of("ids", "ids", Text, "uuid", "how GPUs are written into variables", "auto", "uuid", "index"),
		of("wait", "wait", Optional, "10m", "longest time in line for a GPU"),
		of("no-wait", "no_wait", Switch, "true", "give up at once when no GPU is free"),
		of("fallback", "fallback", List, "[other]", "what to try in place of waiting, in order: other, cpu, wait"),
		of("time", "time", Time, "12h", "how long a run takes by your guess"),
		of("timeout", "timeout", Time, "24h", "time after which a run is ended"),
		of("drift", "drift", Optional, "[hot, sick]", "start it again on a better GPU when its own gets into trouble"),
		of("retry", "retry", Text, "3", "how often a run is started again when the machine made it fail"),
		of("stop-signal", "stop_signal", Text, "INT", "signal that asks it to end"),
		of("grace", "grace", Time, "30s", "time that it then has before it is killed"),
	}
}

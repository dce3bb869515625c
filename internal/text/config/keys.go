package config

import (
	"gpuard/internal/core/isolate"
	"gpuard/internal/core/option"
	"gpuard/internal/text/yamltree"
)

// Keys are all keys: at the top of the file, of a rule, of tolerate, of defaults, of slurm, and of watch.
type Keys struct{ File, Rule, Tolerate, Defaults, Slurm, Watch []yamltree.Key }

// AllKeys is what the file can say. Reading, the JSON Schema and the reference page are made of it.
func AllKeys() Keys {
	return Keys{File: fileKeys(), Rule: ruleKeys(), Tolerate: tolerateKeys(), Defaults: yamltree.KeysOf(option.OptionsOfFile(option.Default)), Slurm: slurmKeys(), Watch: watchKeys()}
}

// ProjectKeys are those of the keys at the top that a project's file may have, too.
func ProjectKeys() []string { return []string{"rules", "defaults"} }

func fileKeys() []yamltree.Key {
	return []yamltree.Key{
		{Name: "rules", Takes: yamltree.Maps, Text: "who may have what; the first rule that names you counts, and one without users and groups is for all users but root"},
		{Name: "tolerate", Takes: yamltree.Keyed, Text: "use of a GPU without a lease that still counts as free"},
		{Name: "defaults", Takes: yamltree.Keyed, Text: "values of flags that were not given, for run, reserve, env, sweep and the services of up"},
		{Name: "login", Takes: yamltree.Text, Words: []string{"all", "allowed", "none"}, Text: "which GPUs a login shell without a lease sees: all, those that the rules allow, or none; without it, all", Sample: "allowed"},
		{Name: "slurm", Takes: yamltree.Keyed, Text: "what the types and features of your Slurm cluster mean, for gpuard export slurm"},
		{Name: "watch", Takes: yamltree.Keyed, Text: "in the machine's file alone: who is told what is wrong, and what happens about processes without a lease on leased GPUs"},
	}
}

func slurmKeys() []yamltree.Key {
	return []yamltree.Key{
		{Name: "types", Takes: yamltree.Pairs, Text: "the gres type of each model, named as nvidia-smi does, or of each profile of a MIG slice; scontrol show node has the types", Sample: "{NVIDIA H100 80GB HBM3: h100, 1g.10gb: 1g.10gb}"},
		{Name: "memory_features", Takes: yamltree.Pairs, Text: "features of nodes whose GPUs have at least this much memory, in MiB, as nvidia-smi shows it; sinfo -o %f has the features", Sample: "{gpumem40g: 40960, gpumem80g: 81559}"},
	}
}

func ruleKeys() []yamltree.Key {
	return []yamltree.Key{
		{Name: "name", Takes: yamltree.Text, Text: "what messages call the rule", Sample: "students"},
		{Name: "users", Takes: yamltree.Texts, Text: "whom it names: names of users, or their numbers", Sample: "[alice, 1003]"},
		{Name: "groups", Takes: yamltree.Texts, Text: "whom it names: groups of the machine, or their numbers", Sample: "[students]"},
		{Name: "devices", Takes: yamltree.Texts, Text: "which GPUs they may have: indices, UUIDs or unique beginnings, PCI ids", Sample: "[0, 1]"},
		{Name: "models", Takes: yamltree.Texts, Text: "which models they may have: patterns of * and ?", Sample: `["*A100*"]`},
		{Name: "gpus", Takes: yamltree.Number, Text: "how many GPUs or slices at the same time, over all leases of a user; 0 is none", Sample: "2"},
		{Name: "mem", Takes: yamltree.Size, Text: "how much memory of a GPU: a larger share is refused, and so is a whole GPU that has more", Sample: "40G"},
		{Name: "time", Takes: yamltree.Time, Text: "how long a run may last: a run without --timeout gets this one, and the lease of a shell or a process ends with it", Sample: "24h"},
		{Name: "queue", Takes: yamltree.Number, Text: "how many jobs of gpuard submit may wait at the same time", Sample: "100"},
		{Name: "outside", Takes: yamltree.Text, Words: []string{"warn", "end"}, Text: "what happens to a process of a job that is seen on a GPU outside its lease: the job is warned, or the process is also ended; without it, warn", Sample: "end"},
		{Name: "require_isolation", Takes: yamltree.Text, Words: isolationLevels(), Text: "jobs start only behind this level of isolate or a stronger one, whatever they ask for", Sample: "namespace"},
	}
}

// isolationLevels are those that can be required, weakest first.
func isolationLevels() (words []string) {
	for _, level := range isolate.Levels() {
		words = append(words, string(level))
	}
	return words
}

func tolerateKeys() []yamltree.Key {
	return []yamltree.Key{
		{Name: "memory", Takes: yamltree.Size, Text: "memory of all other programs on a GPU together; without it 256M", Sample: "500M"},
		{Name: "display", Takes: yamltree.Size, Text: "memory of what serves a display; without it 2G", Sample: "4G"},
		{Name: "utilization", Takes: yamltree.Part, Text: "how busy such a GPU may be; without it 0.05", Sample: "0.1"},
	}
}

func watchKeys() []yamltree.Key {
	return []yamltree.Key{
		{Name: "webhook", Takes: yamltree.Text, Text: "address that is told each trouble once, by a POST of JSON", Sample: "https://chat.example.org/hooks/gpus"},
		{Name: "outsiders", Takes: yamltree.Text, Words: []string{"off", "report", "warn", "end"}, Text: "processes without a lease on a GPU that another user has leased: a line in the log, told like the other troubles, their user is warned too, or they are also ended after the grace; without it, off", Sample: "warn"},
		{Name: "grace", Takes: yamltree.Time, Text: "time from that warning to the end; without it 5m", Sample: "10m"},
		{Name: "except", Takes: yamltree.Texts, Text: "users, their numbers, or names of commands that are never outsiders", Sample: "[alice, nvtop]"},
	}
}

package config

import "gpuard/internal/text/yamltree"

// Keys are all keys: at the top of the file, of a rule, of tolerate, of defaults, of slurm, and of watch.
type Keys struct{ File, Rule, Tolerate, Defaults, Slurm, Watch []yamltree.Key }

// AllKeys is what the file can say. Reading, the JSON Schema and the reference page are made of it.
func AllKeys() Keys {
	return Keys{File: fileKeys(), Rule: ruleKeys(), Tolerate: tolerateKeys(), Defaults: defaultKeys(), Slurm: slurmKeys(), Watch: watchKeys()}
}

// ProjectKeys are those of the keys at the top that a project's file may have, too.
func ProjectKeys() []string { return []string{"rules", "defaults"} }

func fileKeys() []yamltree.Key {
	return []yamltree.Key{
		{Name: "rules", Takes: yamltree.Maps, Text: "who may have what; the first rule that names you counts, and one without users and groups is for all users but root"},
		{Name: "tolerate", Takes: yamltree.Keyed, Text: "use of a GPU without a lease that still counts as free"},
		{Name: "defaults", Takes: yamltree.Keyed, Text: "values of flags that were not given, for run, hold, env, sweep and the services of up"},
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
		{Name: "time", Takes: yamltree.Time, Text: "how long a run may last: a run without --timeout gets this one, and a lease without an end is refused", Sample: "24h"},
		{Name: "queue", Takes: yamltree.Number, Text: "how many jobs of gpuard submit may wait at the same time", Sample: "100"},
	}
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

// defaultKeys are flags of gpuard run of which a default makes sense: those that ask for something of one job do not.
func defaultKeys() []yamltree.Key {
	of := func(flag, name string, takes yamltree.Takes, sample, text string, words ...string) yamltree.Key {
		return yamltree.Key{Name: name, Flag: flag, Takes: takes, Words: words, Text: text, Sample: sample}
	}
	return []yamltree.Key{
		of("gpus", "gpus", yamltree.Number, "1", "whole GPUs"),
		of("exclude", "exclude", yamltree.Texts, "[3]", "GPUs not to take"),
		of("model", "model", yamltree.Text, `"*A100*"`, "only models that match this pattern of * and ?"),
		of("min-compute", "min_compute", yamltree.Text, "8.0", "compute capability of at least this"),
		of("mem", "mem", yamltree.Size, "8G", "memory that each GPU must have free"),
		of("share", "share", yamltree.Size, "8G", "a share of this size of the memory of each GPU"),
		of("quota", "quota", yamltree.Text, "mps", "how a share is kept to its size", "watch", "mps"),
		of("require-quota", "require_quota", yamltree.Text, "mps", "refuse to start where a share could be kept to its size less strictly", "watch", "mps"),
		of("place", "place", yamltree.Text, "packed", "how to choose among free GPUs", "spread", "packed"),
		of("ids", "ids", yamltree.Text, "uuid", "how GPUs are written into variables", "auto", "uuid", "index"),
		of("wait", "wait", yamltree.Optional, "10m", "longest time in line for a GPU"),
		of("no-wait", "no_wait", yamltree.Switch, "true", "give up immediately when no GPU is free"),
		of("fallback", "fallback", yamltree.Texts, "[other]", "what to try in place of waiting, in order: other, cpu, wait"),
		of("time", "time", yamltree.Time, "12h", "how long a run takes by your guess"),
		of("timeout", "timeout", yamltree.Time, "24h", "time after which a run is ended"),
		of("drift", "drift", yamltree.Optional, "[hot, sick]", "start it again on a better GPU when its own gets into trouble"),
		of("retry", "retry", yamltree.Text, "3", "how often a run is started again when the machine made it fail"),
		of("stop-signal", "stop_signal", yamltree.Text, "INT", "signal that asks it to end"),
		of("engine", "engine", yamltree.Text, "slurm", "which scheduler gets the jobs of gpuard submit; without it this machine", "slurm", "kubernetes"),
		of("grace", "grace", yamltree.Time, "30s", "time that it then has before it is killed"),
	}
}

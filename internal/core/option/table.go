package option

// Reasons that several rows give.
const (
	noGPU      = "{cpu} asks for no GPU at all"
	oneProcess = "it is for one process"
)

// optionTable has the rows in the order of the help. It is data that the program is built with, so that a start does
// not make it.
var optionTable = []Option{
	{Name: "gpus", Group: Choice, Takes: Number, Value: "N", In: Both, Else: "1", Sample: "1", Offers: []string{"1", "2", "4", "8", "all"}, Text: "whole GPUs, or all", File: "whole GPUs"},
	{Name: "mem", Group: Choice, Takes: Size, Value: "SIZE", In: Both, Sample: "20G", Offers: []string{"8G", "16G", "24G", "40G", "80G"}, Text: "memory that each GPU must have free, such as 20G"},
	{Name: "device", Group: Choice, Takes: Texts, Value: "LIST", In: Service, Sample: "0", Text: "which GPUs: indices, UUIDs or unique prefixes, PCI ids; the program sees them in this order"},
	{Name: "exclude", Group: Choice, Takes: Texts, Value: "LIST", In: Both, Sample: "0", Text: "GPUs not to take, named as for {device}"},
	{Name: "model", Group: Choice, Takes: Text, Value: "GLOB", In: Both, Sample: "*A100*", Text: "only models that match this pattern of * and ?, such as *A100*"},
	{Name: "min-compute", Group: Choice, Takes: Text, Value: "X.Y", In: Both, Sample: "8.0", Offers: []string{"7.5", "8.0", "8.6", "8.9", "9.0", "10.0"}, Text: "compute capability of at least this, such as 8.0"},
	{Name: "mig", Group: Choice, Takes: Text, Value: "PROFILE", In: Service, Sample: "1g.10gb", Text: "one MIG slice of this profile, such as 1g.10gb", Not: []Not{{"gpus", "a MIG slice is never counted as a GPU"}}},
	{Name: "place", Group: Choice, Takes: Text, Value: "HOW", In: Both, Words: []string{"spread", "packed"}, Sample: "packed", Text: "how to choose among free GPUs (without it, by how busy the machine is)"},
	{Name: "ids", Group: Choice, Takes: Text, Value: "FORM", In: Both, Words: []string{"auto", "uuid", "index"}, Else: "auto", Sample: "uuid", Text: "how GPUs are written into variables"},
	{Name: "any", Group: Choice, Takes: Switch, In: Service, Text: "ignore the mask or the lease that it is started inside of"},
	{Name: "isolate", Group: Choice, Takes: Text, Value: "LEVEL", In: Both, Words: []string{"off", "auto", "namespace", "landlock", "cgroup"}, Sample: "auto", Text: "keep it from opening the device files of other GPUs, so that no variable that it sets leads there; auto: by the first of these that is possible here, or not at all; without it, and with off, only variables hide them"},
	{Name: "require-isolation", Group: Choice, Takes: Text, Value: "LEVEL", In: Both, Words: []string{"cgroup", "namespace", "landlock"}, Sample: "namespace", Text: "start only behind this level of {isolate} or a stronger one"},
	{Name: "anyway", Group: Choice, Takes: Switch, In: Service, Text: "start a command that chooses GPUs itself, in place of those that it is given"},
	{Name: "cpu", Group: Choice, Takes: Switch, In: Service, Text: "no GPU: those of every vendor are hidden", Not: []Not{
		{"gpus", noGPU}, {"device", noGPU}, {"mig", noGPU}, {"exclude", noGPU}, {"model", noGPU}, {"min-compute", noGPU}, {"mem", noGPU}, {"share", noGPU}, {"place", noGPU}, {"any", noGPU},
	}},

	{Name: "wait", Group: Waiting, Takes: Optional, Value: "TIME", In: Both, Alone: "forever", Sample: "10m", Offers: []string{"1m", "10m", "1h", "1d"}, Text: "wait for a GPU, at most for this time, such as 90s or 10m", Not: []Not{
		{"no-wait", "they contradict each other"}, {"cpu", "a job without a GPU does not wait for one"},
	}},
	{Name: "no-wait", Group: Waiting, Takes: Switch, In: Both, Text: "do not wait: give up at once where no GPU is free (exit code 120)"},
	{Name: "fallback", Group: Waiting, Takes: Texts, Value: "LIST", In: Both, Sample: "other,cpu", Offers: []string{"other", "cpu", "wait", "other,cpu", "other,wait"},
		Text: "what to try in place of waiting, in order: other (drops {device} and {model}), cpu, wait", Not: []Not{{"cpu", "a job without a GPU needs no fallback"}}},
	{Name: "after", Group: Waiting, Takes: Text, Value: "N[:any],...", Sample: "17", Offers: []string{}, Text: "start when these jobs, or N-M, have ended with 0; any: however they end"},
	{Name: "array", Group: Waiting, Takes: Text, Value: "NUMBERS", Sample: "1-20%4", Offers: []string{}, Text: "one job for each of these numbers, as 1-20 or 1,5,9; 1-20%4: 4 at a time"},
	{Name: "hold", Group: Waiting, Takes: Switch, Text: "do not start it before it is unheld"},
	{Name: "nice", Group: Waiting, Takes: Number, Value: "N", Sample: "10", Offers: []string{}, Text: "of your own jobs, those with a lower number start first"},

	{Name: "share", Group: Sharing, Takes: Size, Value: "SIZE", In: Both, Sample: "8G", Offers: []string{"4G", "8G", "16G", "24G"}, Text: "a share of this size of each GPU's memory, such as 8G (as a flag also 50%), next to other shares; without it the job has its GPUs alone", Not: []Not{
		{"mig", "a MIG slice is a share already, and one that the hardware enforces"}, {"mem", "{share} already reserves memory"},
	}},
	{Name: "quota", Group: Sharing, Takes: Text, Value: "HOW", In: Both, Words: []string{"watch", "mps"}, Sample: "mps", Text: "how the share is kept to its size: watch measures its memory (the default), with mps NVIDIA's Multi-Process Service limits it too"},
	{Name: "require-quota", Group: Sharing, Takes: Text, Value: "HOW", In: Both, Words: []string{"watch", "mps"}, Sample: "watch", Text: "as {quota}, but refuse to start where that is not possible"},
	{Name: "mps-threads", Group: Sharing, Takes: Number, Value: "N", In: Service, Sample: "50", Offers: []string{"25", "50", "75"}, Text: "at most so many percent of each GPU's processors, with {quota=mps}"},

	{Name: "torchrun", Group: Processes, Takes: Switch, In: Service, Text: "the command is a script for torchrun, which starts it once for each GPU"},
	{Name: "ranks", Group: Processes, Takes: Optional, Value: "WHAT", In: Service, Alone: "all", Words: []string{"all", "own"}, Sample: "own", Text: "start the command once for each GPU; each process sees all GPUs of the job, or its own alone"},
	{Name: "nproc", Group: Processes, Takes: Number, Value: "N", In: Service, Sample: "4", Text: "so many processes, in place of one for each GPU, for {torchrun} and {ranks}"},

	{Name: "verify", Group: Life, Takes: Optional, Value: "TIME[,stop]", In: Service, Alone: "30s", Sample: "30s,stop", Text: "watch for this time whether it uses its GPU, and say so; stop ends it if not", Not: []Not{{"cpu", noGPU}}},
	{Name: "timeout", Group: Life, Takes: Time, Value: "TIME", In: Both, Sample: "24h", Offers: []string{"30m", "2h", "12h", "1d"}, Text: "end it, and everything that it started, after this time, such as 24h (exit code 124)"},
	{Name: "expect", Group: Life, Takes: Time, Value: "TIME", In: Both, Sample: "12h", Offers: []string{"30m", "2h", "12h", "1d"}, Text: "your estimate of how long it runs, such as 12h: orders your own jobs, and {drift} moves it only if that saves time"},
	{Name: "retry", Group: Life, Takes: Text, Value: "N[:any]", In: Default, Sample: "3", Offers: []string{"1", "2", "3", "2:any"}, Text: "start it again up to so often after a fault of the machine; any: after every failure"},
	{Name: "log", Group: Life, Takes: Text, Value: "FILE", In: Service, Sample: "run.log", Text: "write what it prints into this file too", File: "file that gets its output too, beside what gpuard keeps; a relative path begins at the file's folder"},
	{Name: "log-limit", Group: Life, Takes: Size, Value: "SIZE", In: Service, Else: "64M", Sample: "10M", Offers: []string{"10M", "100M", "1G"}, Text: "size at which the log is put aside, as FILE.1"},
	{Name: "drift", Group: Life, Takes: Optional, Value: "KINDS", In: Both, Alone: "all", Sample: "hot,sick", Offers: []string{"hot", "slow", "sick"}, Text: "start it again on a better GPU when its own gets into trouble of these kinds: hot, slow, sick, all", Not: []Not{
		{"cpu", noGPU},
		{"device", "{device} names all GPUs of the job, so there is no other GPU to move to; narrow the choice with {model} or {exclude}"},
	}},
	{Name: "stop-signal", Group: Life, Takes: Text, Value: "SIGNAL", In: Both, Else: "TERM", Sample: "USR1", Offers: []string{"TERM", "INT", "HUP", "USR1", "USR2"}, Text: "what asks it to end"},
	{Name: "grace", Group: Life, Takes: Time, Value: "TIME", In: Both, Else: "10s", Sample: "30s", Offers: []string{"10s", "30s", "2m"}, Text: "time between {stop-signal} and the kill"},
	{Name: "keep-while", Group: Life, Takes: Text, Value: "FILE", Sample: "session.json", Text: "if the command ends while this file exists, keep the lease for its next start, at most 15 s; kernel: the connection file of a Jupyter kernel", Not: []Not{
		{"cpu", "there is no lease to keep"}, {"torchrun", oneProcess}, {"ranks", oneProcess},
	}},
	{Name: "notify", Group: Life, Takes: Text, Value: "WHO", In: Service, Sample: "./tell-me", Text: "who is told of its end: a shell command, a URL, or desktop"},
	{Name: "name", Group: Life, Takes: Text, Value: "NAME", Sample: "train", Offers: []string{}, Text: "what it is called in lists and messages, in place of its program"},
	{Name: "note", Group: Life, Takes: Text, Value: "TEXT", Sample: "paper figures", Offers: []string{}, Text: "for people"},

	{Name: "engine", Group: Engine, Takes: Text, Value: "ENGINE", In: Default, Sample: "slurm", Words: []string{"slurm", "kubernetes", "kubernetes-plugin", "kubernetes-dra", "here"}, Text: "hand it to slurm or kubernetes in place of this machine (kubernetes-plugin and kubernetes-dra say how it asks for GPUs); here: this machine all the same"},
	{Name: "env", Group: Engine, Takes: Repeated, Value: "NAME[=VALUE]", Sample: "HF_HOME", Offers: []string{}, Text: "a variable for it, with the value that this shell has; no other is handed on"},
	{Name: "image", Group: Engine, Takes: Text, Value: "IMAGE", Sample: "registry.example.org/train:1", Offers: []string{}, Text: "image of its container"},
	{Name: "workdir", Group: Engine, Takes: Text, Value: "FOLDER", Sample: "/data/run", Text: "folder in which it starts; without it this one, and in a container that of the image"},
	{Name: "namespace", Group: Engine, Takes: Text, Value: "NAME", Sample: "team", Offers: []string{}, Text: "namespace in Kubernetes; without it that of kubectl's context"},
	{Name: "queue", Group: Engine, Takes: Text, Value: "NAME", Sample: "gpu", Offers: []string{}, Text: "partition of Slurm, or local queue of Kueue"},

	{Name: "private-state", Group: Rest, Takes: Switch, In: Service, Text: "lease in a container although processes outside do not see the lease"},
}

package handoff

import (
	"gpuard/internal/core/job"
	"gpuard/internal/core/policy"
)

// row is what becomes of one field of Work, for each of Targets.
type row struct {
	field string // "Spec.Memory"
	flag  string // "--mem"
	asked func(*Work) bool
	cells [4]cell
}

// cell is what becomes of a field for one target.
type cell struct {
	level  Level
	how    string // how it is said; of a refusal, why not
	do     string // of a refusal: the way out
	needed bool   // it is judged even when it was not asked for
	unless []unless
}

// unless is a value for which something else is true.
type unless struct {
	when string // for the page
	is   func(w *Work, site policy.Slurm) bool
	then cell
}

func exact(how string) cell        { return cell{level: Exact, how: how} }
func approximate(how string) cell  { return cell{level: Approximate, how: how} }
func refused(why, do string) cell  { return cell{level: Refused, how: why, do: do} }
func (c cell) everywhere() [4]cell { return [4]cell{c, c, c, c} }
func inPods(slurm, pods cell, compose cell) [4]cell {
	return [4]cell{slurm, pods, pods, compose}
}

// but adds a value for which the cell is another one. The first that is true counts.
func (c cell) but(when string, is func(*Work, policy.Slurm) bool, then cell) cell {
	c.unless = append(c.unless[:len(c.unless):len(c.unless)], unless{when, is, then})
	return c
}

// of ignores the site.
func of(is func(*Work) bool) func(*Work, policy.Slurm) bool {
	return func(w *Work, _ policy.Slurm) bool { return is(w) }
}

// judge is the verdicts of all fields that were asked for, in the order of the table.
func judge(t Target, w *Work, site policy.Slurm) []Verdict {
	verdicts := []Verdict{}
	at := column(t)
	for _, r := range table() {
		c := r.cells[at]
		asked := r.asked(w)
		if !asked && !c.needed {
			continue
		}
		for _, u := range c.unless {
			if u.is(w, site) {
				c = u.then
				break
			}
		}
		if !asked && c.level != Refused {
			continue
		}
		verdicts = append(verdicts, Verdict{Field: r.field, Flag: r.flag, Level: c.level, How: c.how, Do: c.do, needs: !asked})
	}
	return verdicts
}

func column(t Target) int {
	for i, other := range Targets() {
		if t == other {
			return i
		}
	}
	return 0
}

// table has a row for each field of Work.
func table() []row {
	all := []row{}
	for _, part := range [][]row{programRows(), deviceRows(), shareRows(), lifeRows(), waitingRows(), batchRows(), serviceRows()} {
		all = append(all, part...)
	}
	return all
}

func programRows() []row {
	notText := refused("it is not UTF-8 text, which is all that a manifest can hold", "rename the files, or put the bytes into a file of the image")
	return []row{
		{"Spec.Command", "COMMAND", func(w *Work) bool { return len(w.Spec.Command) > 0 }, inPods(
			cell{level: Exact, how: "the last line of the script, by exec", needed: true}.but("missing", of(noCommand), noShell()).but("a word with a NUL, or of more than 128 KiB", of(unspeakable), tooLong()),
			cell{level: Exact, how: "command of the container", needed: true}.but("missing", of(noCommand), noShell()).but("not UTF-8", of(oddCommand), notText),
			cell{level: Exact, how: "entrypoint", needed: true}.but("missing", of(noCommand), noShell()).but("not UTF-8", of(oddCommand), notText),
		)},
		{"Spec.Name", "--name", func(w *Work) bool { return w.Spec.Name != "" }, inPods(
			exact("--job-name").but("characters that a directive cannot hold, or more than 128", of(func(w *Work) bool { return title(w.Spec.Name) != w.Spec.Name }), approximate("--job-name, with _ for characters that a directive cannot hold")),
			exact("name of the Job, with its ID behind it").but("characters that the name of an object cannot hold", of(oddName), approximate("name of the Job, with - for what such a name cannot hold; the annotation gpuard/name has it whole")),
			exact("name of the service").but("characters that such a name cannot hold", of(oddName), approximate("name of the service, with - for what such a name cannot hold; the label gpuard.name has it whole")),
		)},
		{"Folder", "--workdir", func(w *Work) bool { return w.Folder != "" }, inPods(
			exact("cd in the script").but("not absolute", of(relative), refused("it is not absolute", "write the whole path")),
			exact("workingDir").but("not absolute", of(relative), refused("it is not absolute", "write the whole path")).but("not UTF-8", of(func(w *Work) bool { return odd(w.Folder) }), notText),
			exact("working_dir").but("not absolute", of(relative), refused("it is not absolute", "write the whole path")).but("not UTF-8", of(func(w *Work) bool { return odd(w.Folder) }), notText),
		)},
		{"Env", "--env", func(w *Work) bool { return len(w.Env) > 0 }, inPods(
			variablesOf("export in the script"), variablesOf("env of the container"), variablesOf("environment"))},
		{"Image", "--image", func(w *Work) bool { return w.Image != "" }, inPods(
			approximate("not used: Slurm starts the program of the node"),
			cell{level: Exact, how: "image of the container", needed: true}.but("missing", of(noImage), refused("a container needs an image", "write --image, or image: in gpuard.yaml")).but("not UTF-8, or with blanks", of(oddImage), refused("that is not the name of an image", "write for instance --image registry.example.org/train:1")),
			cell{level: Exact, how: "image", needed: true}.but("missing", of(noImage), refused("a container needs an image", "write --image, or image: in gpuard.yaml")).but("not UTF-8, or with blanks", of(oddImage), refused("that is not the name of an image", "write for instance --image registry.example.org/train:1")),
		)},
		{"Spec.Ranks.Torchrun", "--torchrun", func(w *Work) bool { return w.Spec.Ranks != nil && w.Spec.Ranks.Torchrun }, exact("torchrun --standalone starts the command").everywhere()},
		{"Spec.Ranks.Count", "--nproc", func(w *Work) bool { return w.Spec.Ranks != nil && w.Spec.Ranks.Count > 0 }, exact("--nproc_per_node of torchrun").everywhere()},
		{"Spec.Ranks.Own", "--ranks", func(w *Work) bool { return w.Spec.Ranks != nil && !w.Spec.Ranks.Torchrun }, refused("the processes are started by gpuard", "where gpuard is installed on the nodes or in the image, make it part of the command: -- gpuard run --ranks -- ./program").everywhere()},
		{"Spec.Ranks.Grace", "--grace", func(w *Work) bool { return w.Spec.Ranks != nil && w.Spec.Ranks.Grace > 0 }, approximate("torchrun ends the other processes in its own time").everywhere()},
		{"Spec.Ranks.JSON", "--json", func(w *Work) bool { return w.Spec.Ranks != nil && w.Spec.Ranks.JSON }, approximate("torchrun has messages of its own").everywhere()},
	}
}

func noShell() cell {
	return refused("there is nobody at its terminal for a shell", "write a command behind --")
}

func tooLong() cell {
	return refused("a word of it is longer than a program can be given (128 KiB)", "put it into a file")
}

// variablesOf is a cell for the environment.
func variablesOf(how string) cell {
	return exact(how).
		but("a variable that chooses devices", of(choosing), refused("the engine chooses the devices, and writes that variable itself", "leave it out; how many and which: --gpus, --model, --mem")).
		but("a name that bash sets itself, or cannot set", of(badVariable), refused("a name is none of a variable, is there twice, or is one that bash sets itself", "rename it: letters, digits and _, such as DATA_DIR")).
		but("a value with a NUL, not UTF-8 in a manifest, or of more than 128 KiB", of(badValue), refused("a value is not text, or longer than a program can be given (128 KiB)", "put it into a file"))
}

func deviceRows() []row {
	const here = "it names devices of this machine"
	named := refused(here, "leave it out; say what they are with --model, --min-compute and --mem")
	return []row{
		{"Spec.GPUs", "--gpus", func(w *Work) bool { return w.Spec.GPUs > 0 }, [4]cell{exact("--gpus-per-node, on one node"), exact("nvidia.com/gpu, on nodes whose GPUs are not shared by time or MPS"), exact("count of the claim"),
			approximate("count: Docker gives the first ones, whoever uses them; gpuard docker -- compose up leases them")}},
		{"Spec.CPU", "--cpu", func(w *Work) bool { return w.Spec.CPU }, exact("no device, and variables that hide those of the node").everywhere()},
		{"Spec.Devices", "--device", func(w *Work) bool { return len(w.Spec.Devices) > 0 }, [4]cell{named, named,
			approximate("selector by uuid; the program may see them in another order").but("not a UUID of a whole GPU", of(func(w *Work) bool { return !all(w.Spec.Devices, wholeUUID) }), named),
			exact("device_ids").but("neither an index nor a UUID", of(func(w *Work) bool { return !all(w.Spec.Devices, deviceID) }), refused("Docker knows devices by index and UUID", "write the whole UUID: gpuard status shows it"))}},
		{"Spec.MIG", "--mig", func(w *Work) bool { return w.Spec.MIG != "" }, [4]cell{
			exact("the gres type that slurm.types has for the profile").but("the profile is not in slurm.types", func(w *Work, s policy.Slurm) bool { return s.Types[w.Spec.MIG] == "" }, refused("no entry of slurm.types in config.yaml has this profile", "write there what the site calls it, such as types: {1g.10gb: a100_1g.10gb}")),
			exact("nvidia.com/mig-PROFILE, the resource of the plugin's strategy mixed").but("not a profile", of(oddProfile), refused("that is no profile", "write it as nvidia-smi does, such as --mig 1g.10gb")),
			exact("device class mig.nvidia.com, selector by profile").but("not a profile", of(oddProfile), refused("that is no profile", "write it as nvidia-smi does, such as --mig 1g.10gb")),
			refused("Docker knows slices by their UUID alone", "write --device MIG-UUID; gpuard status shows it")}},
		{"Spec.Exclude", "--exclude", func(w *Work) bool { return len(w.Spec.Exclude) > 0 }, [4]cell{named, named,
			exact("selector by uuid").but("not a UUID of a whole GPU", of(func(w *Work) bool { return !all(w.Spec.Exclude, wholeUUID) }), named),
			refused("Docker takes no list of devices to avoid", "name those to use: --device")}},
		{"Spec.Prefer", "devices it had before", func(w *Work) bool { return len(w.Spec.Prefer) > 0 }, named.everywhere()},
		{"Spec.Model", "--model", func(w *Work) bool { return w.Spec.Model != "" }, [4]cell{
			exact("the gres type that slurm.types has for the model").but("no model in slurm.types matches", func(w *Work, s policy.Slurm) bool { return len(types(w, s)) == 0 }, refused("no model of slurm.types in config.yaml matches", "write there what the site calls it, such as types: {NVIDIA H100 80GB HBM3: h100}; scontrol show node has the types")).
				but("models of several types match", func(w *Work, s policy.Slurm) bool { return len(types(w, s)) > 1 }, refused("models of several types match, and Slurm takes one", "write a narrower pattern")),
			approximate("label nvidia.com/gpu.product, in which capitals count").but("a pattern", of(pattern), refused("a node label is compared as a whole", "write the whole name, such as 'NVIDIA H100 80GB HBM3', or export kubernetes-dra")).
				but("what no label can hold", of(func(w *Work) bool { return !labelValue(productLabel(w.Spec.Model)) }), refused("no label can hold it", "write the name as nvidia-smi does, or export kubernetes-dra")),
			exact("selector by productName, as a regular expression").but("not UTF-8", of(func(w *Work) bool { return odd(w.Spec.Model) }), refused("it is not UTF-8 text", "write the name as nvidia-smi does")),
			refused("Docker does not choose by model", "name the device: --device")}},
		{"Spec.MinCompute", "--min-compute", func(w *Work) bool { return w.Spec.MinCompute != nil }, [4]cell{
			refused("Slurm does not know it", "choose by --model"), exact("labels nvidia.com/gpu.compute.major and minor"), exact("selector by cudaComputeCapability"), refused("Docker does not choose by it", "name the device: --device")}},
		{"Spec.Memory", "--mem", func(w *Work) bool { return w.Spec.Memory > 0 }, [4]cell{
			approximate("--constraint with the features of slurm.memory_features: what the GPUs of a node have in all, not what is free").
				but("no feature is large enough, and the name of a model in slurm.types has as much", func(w *Work, s policy.Slurm) bool { return len(features(w, s)) == 0 && findRoomyType(w, s) != "" }, approximate("the gres type of the smallest such model, by its name: others that would do are not taken")).
				but("no feature is large enough", func(w *Work, s policy.Slurm) bool { return len(features(w, s)) == 0 }, refused("no feature of slurm.memory_features in config.yaml says that a node has GPUs of this size", "write there what the site calls it, in MiB, such as memory_features: {gpumem80g: 81559}; sinfo -o %f has the features, which an administrator adds to a node in slurm.conf: Feature=gpumem80g; or name a model that has it: --model")),
			approximate("label nvidia.com/gpu.memory: what a GPU has in all, not what is free"), approximate("selector by memory: what a GPU has in all, not what is free"), refused("Docker does not choose by it", "name the device: --device")}},
		{"Spec.Place", "--place", func(w *Work) bool { return w.Spec.Place != job.Auto }, approximate("the engine chooses by its own rules").everywhere()},
		{"Spec.IDs", "--ids", func(w *Work) bool { return w.Spec.IDs != "" && w.Spec.IDs != job.AutoIDs }, approximate("the engine writes the variables in its own form").everywhere()},
		{"Spec.Any", "--any", func(w *Work) bool { return w.Spec.Any }, exact("no mask or lease of this shell is handed on").everywhere()},
		{"Spec.Anyway", "--anyway", func(w *Work) bool { return w.Spec.Anyway }, exact("the engine does not look at the command").everywhere()},
		{"Spec.Isolate", "--isolate", func(w *Work) bool { return w.Spec.Isolate != "" && w.Spec.Isolate != job.Off }, approximate("the engine keeps devices apart in its own way: Slurm with ConstrainDevices=yes").everywhere()},
		{"Spec.Isolated", "--require-isolation", func(w *Work) bool { return w.Spec.Isolated != "" }, refused("what keeps devices apart there is the engine's setting, which gpuard cannot see", "leave it out").everywhere()},
		{"Private", "--private-state", func(w *Work) bool { return w.Private }, exact("the engine keeps the devices, and there is no lease of gpuard").everywhere()},
		{"Spec.KeepWhile", "--keep-while", func(w *Work) bool { return w.Spec.KeepWhile != "" }, refused("no other engine keeps devices for a next start", "leave it out").everywhere()},
		{"Spec.Asked", "when it was handed in", func(w *Work) bool { return !w.Spec.Asked.IsZero() }, approximate("the engine counts from when it gets the job").everywhere()},
		{"Spec.Avoid", "devices that it leaves", func(w *Work) bool { return len(w.Spec.Avoid) > 0 }, named.everywhere()},
		{"Spec.Moving", "a lease that is given back", func(w *Work) bool { return w.Spec.Moving != "" }, named.everywhere()},
	}
}

func shareRows() []row {
	none := refused("no engine here keeps a job to a part of a GPU's memory", "take whole GPUs, or a slice: --mig; share on one machine: gpuard submit --share").everywhere()
	return []row{
		{"Spec.Share", "--share", func(w *Work) bool { return w.Spec.Share > 0 }, none},
		{"Spec.Quota", "--quota", func(w *Work) bool { return w.Spec.Quota != "" }, none},
		{"Spec.Require", "--require-quota", func(w *Work) bool { return w.Spec.Require != "" }, none},
		{"Spec.Threads", "--mps-threads", func(w *Work) bool { return w.Spec.Threads > 0 }, none},
	}
}

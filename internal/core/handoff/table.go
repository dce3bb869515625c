package handoff

import (
	"gpuard/internal/core/job"
	"gpuard/internal/core/option"
	"gpuard/internal/core/policy"
)

// row is what becomes of one field of Work, for each of Targets. Its texts name options and commands in braces.
type row struct {
	field string // "Spec.Memory"
	flag  string // "{mem}"
	asked func(*Work) bool
	cells [4]cell
}

// cell is what becomes of a field for one target.
type cell struct {
	level Level
	// how it is said; of a refusal, why not.
	how string
	// The way out of a refusal.
	do string
	// It is judged even when it was not asked for.
	needed bool
	unless []exception
}

// exception is a value for which something else is true.
type exception struct {
	when string // for the page
	is   func(w *Work, site policy.Slurm) bool
	then cell
}

func exactCell(how string) cell       { return cell{level: Exact, how: how} }
func approximateCell(how string) cell { return cell{level: Approximate, how: how} }
func refusedCell(why, do string) cell { return cell{level: Refused, how: why, do: do} }
func (c cell) forAllTargets() [4]cell { return [4]cell{c, c, c, c} }
func inPods(slurm, pods cell, compose cell) [4]cell {
	return [4]cell{slurm, pods, pods, compose}
}

// withException adds a value for which the cell is another one. The first that is true counts.
func (c cell) withException(when string, is func(*Work, policy.Slurm) bool, then cell) cell {
	c.unless = append(c.unless[:len(c.unless):len(c.unless)], exception{when, is, then})
	return c
}

// ignoreSite ignores the site.
func ignoreSite(is func(*Work) bool) func(*Work, policy.Slurm) bool {
	return func(w *Work, _ policy.Slurm) bool { return is(w) }
}

// judgeFields is the verdicts of all fields that were asked for, in the order of the table.
func judgeFields(t Target, w *Work, site policy.Slurm) []Verdict {
	verdicts := []Verdict{}
	at := targetColumn(t)
	for _, r := range fieldTable() {
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

		verdicts = append(verdicts, Verdict{Field: r.field, Flag: option.Expand(r.flag), Level: c.level, How: option.Expand(c.how), Do: option.Expand(c.do), needs: !asked})
	}

	return verdicts
}

func targetColumn(t Target) int {
	for i, other := range Targets() {
		if t == other {
			return i
		}
	}
	return 0
}

// fieldTable has a row for each field of Work.
func fieldTable() []row {
	all := []row{}
	for _, part := range [][]row{programRows(), deviceRows(), shareRows(), lifeRows(), waitingRows(), batchRows(), serviceRows()} {
		all = append(all, part...)
	}
	return all
}

func programRows() []row {
	notText := refusedCell("it is not UTF-8 text, which is all that a manifest can hold", "rename the files, or put the bytes into a file of the image")
	return []row{
		{"Spec.Command", "COMMAND", func(w *Work) bool { return len(w.Spec.Command) > 0 }, inPods(
			cell{level: Exact, how: "the last line of the script, by exec", needed: true}.withException("missing", ignoreSite(lacksCommand), noCommandCell()).withException("a word with a NUL, or of more than 128 KiB", ignoreSite(hasUnspeakableWord), wordTooLongCell()),
			cell{level: Exact, how: "command of the container", needed: true}.withException("missing", ignoreSite(lacksCommand), noCommandCell()).withException("not UTF-8", ignoreSite(hasOddCommand), notText),
			cell{level: Exact, how: "entrypoint", needed: true}.withException("missing", ignoreSite(lacksCommand), noCommandCell()).withException("not UTF-8", ignoreSite(hasOddCommand), notText),
		)},
		{"Spec.Name", "{name}", func(w *Work) bool { return w.Spec.Name != "" }, inPods(
			exactCell("--job-name").withException("characters that a directive cannot hold, or more than 128", ignoreSite(func(w *Work) bool { return slurmJobName(w.Spec.Name) != w.Spec.Name }), approximateCell("--job-name, with _ for characters that a directive cannot hold")),
			exactCell("name of the Job, with its ID behind it").withException("characters that the name of an object cannot hold", ignoreSite(hasOddName), approximateCell("name of the Job, with - for what such a name cannot hold; the annotation gpuard/name has it whole")),
			exactCell("name of the service").withException("characters that such a name cannot hold", ignoreSite(hasOddName), approximateCell("name of the service, with - for what such a name cannot hold; the label gpuard.name has it whole")),
		)},
		{"Folder", "{workdir}", func(w *Work) bool { return w.Folder != "" }, inPods(
			exactCell("cd in the script").withException("not absolute", ignoreSite(isRelativeFolder), refusedCell("it is not absolute", "write the whole path")),
			exactCell("workingDir").withException("not absolute", ignoreSite(isRelativeFolder), refusedCell("it is not absolute", "write the whole path")).withException("not UTF-8", ignoreSite(func(w *Work) bool { return isNotText(w.Folder) }), notText),
			exactCell("working_dir").withException("not absolute", ignoreSite(isRelativeFolder), refusedCell("it is not absolute", "write the whole path")).withException("not UTF-8", ignoreSite(func(w *Work) bool { return isNotText(w.Folder) }), notText),
		)},
		{"Env", "{env}", func(w *Work) bool { return len(w.Env) > 0 }, inPods(
			variablesOf("export in the script"), variablesOf("env of the container"), variablesOf("environment"))},
		{"Image", "{image}", func(w *Work) bool { return w.Image != "" }, inPods(
			approximateCell("not used: Slurm starts the program of the node"),
			cell{level: Exact, how: "image of the container", needed: true}.withException("missing", ignoreSite(lacksImage), refusedCell("a container needs an image", "write {image}, or image: in gpuard.yaml")).withException("not UTF-8, or with blanks", ignoreSite(hasOddImage), refusedCell("that is not the name of an image", "write for instance {image=registry.example.org/train:1}")),
			cell{level: Exact, how: "image", needed: true}.withException("missing", ignoreSite(lacksImage), refusedCell("a container needs an image", "write {image}, or image: in gpuard.yaml")).withException("not UTF-8, or with blanks", ignoreSite(hasOddImage), refusedCell("that is not the name of an image", "write for instance {image=registry.example.org/train:1}")),
		)},
		{"Spec.Ranks.Torchrun", "{torchrun}", func(w *Work) bool { return w.Spec.Ranks != nil && w.Spec.Ranks.Torchrun }, exactCell("torchrun --standalone starts the command").forAllTargets()},
		{"Spec.Ranks.Count", "{nproc}", func(w *Work) bool { return w.Spec.Ranks != nil && w.Spec.Ranks.Count > 0 }, exactCell("--nproc_per_node of torchrun").forAllTargets()},
		{"Spec.Ranks.Own", "{ranks}", func(w *Work) bool { return w.Spec.Ranks != nil && !w.Spec.Ranks.Torchrun }, refusedCell("the processes are started by gpuard", "where gpuard is installed on the nodes or in the image, make it part of the command: -- {gpuard run} {ranks} -- ./program").forAllTargets()},
		{"Spec.Ranks.Grace", "{grace}", func(w *Work) bool { return w.Spec.Ranks != nil && w.Spec.Ranks.Grace > 0 }, approximateCell("torchrun ends the other processes in its own time").forAllTargets()},
		{"Spec.Ranks.JSON", "{json}", func(w *Work) bool { return w.Spec.Ranks != nil && w.Spec.Ranks.JSON }, approximateCell("torchrun has messages of its own").forAllTargets()},
	}
}

func noCommandCell() cell {
	return refusedCell("there is nobody at its terminal for a shell", "write a command behind --")
}

func wordTooLongCell() cell {
	return refusedCell("a word of it is longer than a program can be given (128 KiB)", "put it into a file")
}

// variablesOf is a cell for the environment.
func variablesOf(how string) cell {
	return exactCell(how).
		withException("a variable that chooses devices", ignoreSite(choosesDevices), refusedCell("the engine chooses the devices, and writes that variable itself", "leave it out; how many and which: {gpus}, {model}, {mem}")).
		withException("a name that bash sets itself, or cannot set", ignoreSite(hasBadVariable), refusedCell("a name is none of a variable, is there twice, or is one that bash sets itself", "rename it: letters, digits and _, such as DATA_DIR")).
		withException("a value with a NUL, not UTF-8 in a manifest, or of more than 128 KiB", ignoreSite(hasBadValue), refusedCell("a value is not text, or longer than a program can be given (128 KiB)", "put it into a file"))
}

func deviceRows() []row {
	const here = "it names devices of this machine"
	named := refusedCell(here, "leave it out; say what they are with {model}, {min-compute} and {mem}")
	return []row{
		{"Spec.GPUs", "{gpus}", func(w *Work) bool { return w.Spec.GPUs > 0 }, [4]cell{exactCell("--gpus-per-node, on one node"), exactCell("nvidia.com/gpu, on nodes whose GPUs are not shared by time or MPS"), exactCell("count of the claim"),
			approximateCell("count: Docker gives the first ones, whoever uses them; {gpuard docker} -- compose up leases them")}},
		{"Spec.CPU", "{cpu}", func(w *Work) bool { return w.Spec.CPU }, exactCell("no device, and variables that hide those of the node").forAllTargets()},
		{"Spec.Devices", "{device}", func(w *Work) bool { return len(w.Spec.Devices) > 0 }, [4]cell{named, named,
			approximateCell("selector by uuid; the program may see them in another order").withException("not a UUID of a whole GPU", ignoreSite(func(w *Work) bool { return !allMatch(w.Spec.Devices, isWholeUUID) }), named),
			exactCell("device_ids").withException("neither an index nor a UUID", ignoreSite(func(w *Work) bool { return !allMatch(w.Spec.Devices, isDeviceID) }), refusedCell("Docker knows devices by index and UUID", "write the whole UUID: {gpuard status} shows it"))}},
		{"Spec.MIG", "{mig}", func(w *Work) bool { return w.Spec.MIG != "" }, [4]cell{
			exactCell("the gres type that slurm.types has for the profile").withException("the profile is not in slurm.types", func(w *Work, s policy.Slurm) bool { return s.Types[w.Spec.MIG] == "" }, refusedCell("no entry of slurm.types in config.yaml has this profile", "write there what the site calls it, such as types: {1g.10gb: a100_1g.10gb}")),
			exactCell("nvidia.com/mig-PROFILE, the resource of the plugin's strategy mixed").withException("not a profile", ignoreSite(hasOddProfile), refusedCell("that is no profile", "write it as nvidia-smi does, such as {mig=1g.10gb}")),
			exactCell("device class mig.nvidia.com, selector by profile").withException("not a profile", ignoreSite(hasOddProfile), refusedCell("that is no profile", "write it as nvidia-smi does, such as {mig=1g.10gb}")),
			refusedCell("Docker knows slices by their UUID alone", "write {device=MIG-UUID}; {gpuard status} shows it")}},
		{"Spec.Exclude", "{exclude}", func(w *Work) bool { return len(w.Spec.Exclude) > 0 }, [4]cell{named, named,
			exactCell("selector by uuid").withException("not a UUID of a whole GPU", ignoreSite(func(w *Work) bool { return !allMatch(w.Spec.Exclude, isWholeUUID) }), named),
			refusedCell("Docker takes no list of devices to avoid", "name those to use: {device}")}},
		{"Spec.Prefer", "devices it had before", func(w *Work) bool { return len(w.Spec.Prefer) > 0 }, named.forAllTargets()},
		{"Spec.Model", "{model}", func(w *Work) bool { return w.Spec.Model != "" }, [4]cell{
			exactCell("the gres type that slurm.types has for the model").withException("no model in slurm.types matches", func(w *Work, s policy.Slurm) bool { return len(gresTypes(w, s)) == 0 }, refusedCell("no model of slurm.types in config.yaml matches", "write there what the site calls it, such as types: {NVIDIA H100 80GB HBM3: h100}; scontrol show node has the types")).
				withException("models of several types match", func(w *Work, s policy.Slurm) bool { return len(gresTypes(w, s)) > 1 }, refusedCell("models of several types match, and Slurm takes one", "write a narrower pattern")),
			approximateCell("label nvidia.com/gpu.product, in which capitals count").withException("a pattern", ignoreSite(isModelPattern), refusedCell("a node label is compared as a whole", "write the whole name, such as 'NVIDIA H100 80GB HBM3', or export kubernetes-dra")).
				withException("what no label can hold", ignoreSite(func(w *Work) bool { return !isLabelValue(productLabel(w.Spec.Model)) }), refusedCell("no label can hold it", "write the name as nvidia-smi does, or export kubernetes-dra")),
			exactCell("selector by productName, as a regular expression").withException("not UTF-8", ignoreSite(func(w *Work) bool { return isNotText(w.Spec.Model) }), refusedCell("it is not UTF-8 text", "write the name as nvidia-smi does")),
			refusedCell("Docker does not choose by model", "name the device: {device}")}},
		{"Type", "lines with #SBATCH", func(w *Work) bool { return w.Type != "" }, inPods(
			exactCell("the gres type, as they name it").withException("characters that a directive cannot hold", ignoreSite(func(w *Work) bool { return directiveWord(w.Type) != w.Type }), refusedCell("that is no gres type", "scontrol show node has the types")),
			refusedCell("only Slurm has such types", "write {model}"), refusedCell("only Slurm has such types", "write {model}"))},
		{"Spec.MinCompute", "{min-compute}", func(w *Work) bool { return w.Spec.MinCompute != nil }, [4]cell{
			refusedCell("Slurm does not know it", "choose by {model}"), exactCell("labels nvidia.com/gpu.compute.major and minor"), exactCell("selector by cudaComputeCapability"), refusedCell("Docker does not choose by it", "name the device: {device}")}},
		{"Spec.Memory", "{mem}", func(w *Work) bool { return w.Spec.Memory > 0 }, [4]cell{
			approximateCell("--constraint with the features of slurm.memory_features: what the GPUs of a node have in all, not what is free").
				withException("no feature is large enough, and the name of a model in slurm.types has as much", func(w *Work, s policy.Slurm) bool { return len(memoryFeatures(w, s)) == 0 && findRoomyType(w, s) != "" }, approximateCell("the gres type of the smallest such model, by its name: others that would do are not taken")).
				withException("no feature is large enough", func(w *Work, s policy.Slurm) bool { return len(memoryFeatures(w, s)) == 0 }, refusedCell("no feature of slurm.memory_features in config.yaml says that a node has GPUs of this size", "write there what the site calls it, in MiB, such as memory_features: {gpumem80g: 81559}; sinfo -o %f has the features, which an administrator adds to a node in slurm.conf: Feature=gpumem80g; or name a model that has it: {model}")),
			approximateCell("label nvidia.com/gpu.memory: what a GPU has in all, not what is free"), approximateCell("selector by memory: what a GPU has in all, not what is free"), refusedCell("Docker does not choose by it", "name the device: {device}")}},
		{"Spec.Place", "{place}", func(w *Work) bool { return w.Spec.Place != job.Auto }, approximateCell("the engine chooses by its own rules").forAllTargets()},
		{"Spec.IDs", "{ids}", func(w *Work) bool { return w.Spec.IDs != "" && w.Spec.IDs != job.AutoIDs }, approximateCell("the engine writes the variables in its own form").forAllTargets()},
		{"Spec.Any", "{any}", func(w *Work) bool { return w.Spec.Any }, exactCell("no mask or lease of this shell is handed on").forAllTargets()},
		{"Spec.Anyway", "{anyway}", func(w *Work) bool { return w.Spec.Anyway }, exactCell("the engine does not look at the command").forAllTargets()},
		{"Spec.Isolate", "{isolate}", func(w *Work) bool { return w.Spec.Isolate != "" && w.Spec.Isolate != job.Off }, approximateCell("the engine keeps devices apart in its own way: Slurm with ConstrainDevices=yes").forAllTargets()},
		{"Spec.Isolated", "{require-isolation}", func(w *Work) bool { return w.Spec.Isolated != "" }, refusedCell("what keeps devices apart there is the engine's setting, which gpuard cannot see", "leave it out").forAllTargets()},
		{"Private", "{private-state}", func(w *Work) bool { return w.Private }, exactCell("the engine keeps the devices, and there is no lease of gpuard").forAllTargets()},
		{"Spec.KeepWhile", "{keep-while}", func(w *Work) bool { return w.Spec.KeepWhile != "" }, refusedCell("no other engine keeps devices for a next start", "leave it out").forAllTargets()},
		{"Spec.Asked", "when it was handed in", func(w *Work) bool { return !w.Spec.Asked.IsZero() }, approximateCell("the engine counts from when it gets the job").forAllTargets()},
		{"Spec.Avoid", "devices that it leaves", func(w *Work) bool { return len(w.Spec.Avoid) > 0 }, named.forAllTargets()},
		{"Spec.Moving", "a lease that is given back", func(w *Work) bool { return w.Spec.Moving != "" }, named.forAllTargets()},
	}
}

func shareRows() []row {
	none := refusedCell("no engine here keeps a job to a part of a GPU's memory", "take whole GPUs, or a slice: {mig}; share on one machine: {gpuard submit} {share}").forAllTargets()
	return []row{
		{"Spec.Share", "{share}", func(w *Work) bool { return w.Spec.Share > 0 }, none},
		{"Spec.Quota", "{quota}", func(w *Work) bool { return w.Spec.Quota != "" }, none},
		{"Spec.Require", "{require-quota}", func(w *Work) bool { return w.Spec.Require != "" }, none},
		{"Spec.Threads", "{mps-threads}", func(w *Work) bool { return w.Spec.Threads > 0 }, none},
	}
}

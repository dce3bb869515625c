package lint

import (
	"path"
	"slices"
	"strings"

	"gpuard/internal/core/check"
)

// lookBeyondJob finds lists in job scripts with numbers beyond what the job asks for.
func lookBeyondJob(f File) []Finding {
	job := batchOf(f)
	if job.gpus == 0 {
		return nil
	}
	a := lookAround(f)
	var all []Finding
	look := func(i int, s Step) {
		s.Value = a.constant(i, s.Value)
		m, known := listNamed(s.Name)
		if !known || !slices.Contains(masks(), s.Name) || !s.Value.Known || s.In != "" {
			return
		}
		value := s.Value
		if fault, wrong := m.fault(value.Text); wrong && fault.better != "" {
			value.Text = fault.better
		}
		if !slices.ContainsFunc(numbers(value), func(n int) bool { return n >= job.gpus }) {
			return
		}
		all = append(all, Finding{Finding: check.Finding{
			Seen: assigned(s) + " in a job that asks for " + several(job.gpus, "GPU", "GPUs") + ", " + job.option,
			Why:  "the batch system chooses the GPUs of a job and sets the variable; another number is no GPU of this job, or one of another job",
			Do:   "leave " + s.Name + " as the batch system sets it"}, At: s.At})
	}
	for i, s := range f.Steps {
		switch {
		case s.Maybe || s.Lost != "":
		case s.Do == Set:
			look(i, s)
		case s.Do == Command:
			for _, set := range started(s).set {
				if set.Do == Set {
					look(i, set)
				}
			}
		}
	}
	return once(all)
}

// taskNumbers lists the variables in which Slurm tells each task of a step its number: in the batch script itself they
// are 0.
func taskNumbers() []string { return []string{"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"} }

// lookTaskNumber finds numbers of tasks that the batch script reads before srun has started the tasks.
func lookTaskNumber(f File) []Finding {
	last := lastStep(f)
	if !batchOf(f).many || last < 0 {
		return nil
	}
	var all []Finding
	add := func(v Value, at Place) {
		all = append(all, Finding{Finding: check.Finding{
			Seen: "$" + v.From + " is read here, where it is 0, and all tasks that srun starts get this 0",
			Why:  "the shell of the batch script puts the value in once, before srun; each task has a number of its own only behind it",
			Do:   "let the program read " + v.From + ", or write: srun bash -c 'NAME=$" + v.From + " exec program'"}, At: at})
	}
	isNumbered := func(s Step) bool {
		return isTaskNumber(s.Value) && (slices.Contains(masks(), s.Name) || strings.Contains(strings.ToUpper(s.Name), "RANK"))
	}
	for i, s := range f.Steps {
		switch {
		case i > last || s.Maybe || s.In != "" || s.Lost != "":
		case s.Do == Set && isNumbered(s):
			add(s.Value, s.At)
		case s.Do == Command && isStep(s):
			for _, w := range s.With {
				if isNumbered(w) {
					add(w.Value, w.At)
				}
			}
			for n, w := range s.Words[1:] {
				about := strings.ToLower(strings.ReplaceAll(s.Words[n].Text+" "+w.Text, w.From, ""))
				if isTaskNumber(w) && mentions(about, "rank", "visible_devices", "cuda:") {
					add(w, w.At)
				}
			}
		}
	}
	return once(all)
}

func isTaskNumber(v Value) bool { return !v.Known && slices.Contains(taskNumbers(), v.From) }

func isStep(s Step) bool { return len(s.Words) > 1 && path.Base(s.Words[0].Text) == "srun" }

// lastStep is the last command that is started by srun; -1 without, and where srun starts the script itself once more.
func lastStep(f File) int {
	last := -1
	for i, s := range f.Steps {
		if s.Do != Command || !isStep(s) {
			continue
		}
		if slices.ContainsFunc(s.Words, func(w Word) bool {
			return w.From == "0" || mentions(w.Text, "$0", "${0}", "BASH_SOURCE") || path.Base(w.Text) == path.Base(f.Path)
		}) {
			return -1
		}
		last = i
	}
	return last
}

var exportedPiece = pattern(`(^|,)(\w+)=([^,="']*)((?:,(?:-?[0-9]+|(?:GPU|MIG)-[0-9a-f-]+))+)(?:,|$)`)

// lookExportCut is the rule list-cut-at-comma for sbatch, srun and qsub, which take names and values between commas.
func lookExportCut(f File) []Finding {
	var all []Finding
	look := func(v Value, option string) {
		m := exportedPiece().FindStringSubmatch(v.Text)
		if m == nil || !slices.Contains(masks(), m[2]) {
			return
		}
		all = append(all, Finding{Finding: check.Finding{
			Seen: m[2] + " gets only " + quote(m[3]) + ": " + option + " takes what follows the comma as the name of another variable",
			Why:  "commas separate the variables there", Do: "write: export " + m[2] + "=" + m[3] + m[4] + " before it, and hand the variable on by its name"}, At: v.At})
	}
	for _, s := range f.Steps {
		switch {
		case s.Do == Setting && (s.Name == "sbatch.export" || s.Name == "pbs.v" || s.Name == "sge.v"):
			look(s.Value, s.How+" "+s.Name[strings.Index(s.Name, ".")+1:])
		case s.Do == Command:
			for _, at := range submits(s) {
				program := path.Base(s.Words[at].Text)
				key := map[string]string{"qsub": "v"}[program]
				if key == "" {
					key = "export"
				}
				if v, ok := option(s.Words[at:], key); ok {
					look(v, program+" "+dashes(key)+key)
				}
			}
		}
	}
	return once(all)
}

// dashes are those before an option.
func dashes(option string) string {
	if len(option) == 1 {
		return "-"
	}
	return "--"
}

// submits is the words of a command that hand work to a batch system.
func submits(s Step) (at []int) {
	for i, w := range s.Words {
		if slices.Contains([]string{"sbatch", "srun", "salloc", "qsub"}, path.Base(w.Text)) && (i == 0 || s.Words[0].Text == "sudo") {
			at = append(at, i)
		}
	}
	return at
}

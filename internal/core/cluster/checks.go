package cluster

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/check"
	"gpuard/internal/core/option"
	"gpuard/internal/core/policy"
)

// Check is one check of a cluster. look returns at least one finding, all of the check's own code.
type Check struct {
	check.Page
	look func(s Site, said policy.Slurm) []check.Finding
}

// Checks lists every check of a cluster of Slurm, causes before consequences.
func Checks() []Check {
	return []Check{controllerCheck(), partitionsCheck(), gresCheck(), gpusCheck(), namesCheck(), mappingCheck()}
}

// Diagnose judges whether this user can get GPUs from the cluster.
func Diagnose(s Site, said policy.Slurm) check.Diagnosis {
	d := check.Diagnosis{Findings: []check.Finding{}}
	for _, c := range Checks() {
		d.Findings = append(d.Findings, c.look(s, said)...)
		if s.Problem != "" {
			// The others would only say so again.
			break
		}
	}

	worst := func(severity check.Severity) *check.Finding {
		i := slices.IndexFunc(d.Findings, func(f check.Finding) bool { return f.Severity == severity })
		if i < 0 {
			return nil
		}
		return &d.Findings[i]
	}

	free, all := s.countGPUs()
	switch bad, odd := worst(check.Error), worst(check.Warning); {
	case bad != nil:
		d.Verdict = check.Verdict{Runs: new(false), Summary: "this cluster cannot give you a GPU: " + bad.Seen, Next: bad.Do}
	case odd != nil:
		d.Verdict = check.Verdict{Runs: new(true), Summary: fmt.Sprintf("cluster %s has GPUs for you (%d of %d are free), and something is odd: %s", s.Name, free, all, odd.Seen), Next: odd.Do}
	default:
		d.Verdict = check.Verdict{Runs: new(true), Summary: fmt.Sprintf("cluster %s has GPUs for you: %d of %d are free", s.Name, free, all), Next: option.Expand("{gpuard submit} {engine=slurm} -- COMMAND")}
	}

	return d
}

// countGPUs is how many GPUs are free on nodes that take jobs, and how many there are.
func (s Site) countGPUs() (free, all int) {
	for _, n := range s.Nodes {
		for _, g := range n.GPUs {
			all += g.All
			if n.IsUsable() {
				free += max(0, g.All-g.Taken)
			}
		}
	}
	return free, all
}

func okFinding(code, seen string) []check.Finding {
	return []check.Finding{{Code: code, Severity: check.OK, Seen: seen}}
}

func controllerCheck() Check {
	page := check.Page{
		Code: "slurm-controller", Title: "Slurm's controller answers",
		Text: "All of Slurm's commands ask slurmctld, which SLURM_CONF or the machine's own configuration names. Without its answer nothing can be handed in, and jobs that run go on.\n\nWhere Slurm keeps no accounting (slurmdbd), it forgets a job some time after its end (MinJobAge): how a job ended that nobody asked about before is then unknown.",
		From: []string{"https://slurm.schedmd.com/slurm.conf.html", "https://slurm.schedmd.com/scontrol.html"},
	}
	return Check{page, func(s Site, _ policy.Slurm) []check.Finding {
		switch {
		case s.Problem != "":
			return []check.Finding{{Code: page.Code, Severity: check.Error, Seen: s.Problem, Why: "nothing can be handed in while it does not answer", Do: "try again: scontrol ping; on another machine than one of the cluster's, set SLURM_CONF; if it stays so, tell the administrators"}}
		case !s.Accounting:
			return []check.Finding{{Code: page.Code, Severity: check.Info, Seen: fmt.Sprintf("Slurm %s of cluster %s answers, and keeps no accounting", s.Version, s.Name),
				Why: "it forgets a job " + s.Keeps + " after its end; how one ended is unknown if nobody has asked until then", Do: option.Expand("wait for a job whose end matters: {gpuard wait} N")}}
		}
		return okFinding(page.Code, fmt.Sprintf("Slurm %s of cluster %s answers", s.Version, s.Name))
	}}
}

func partitionsCheck() Check {
	page := check.Page{
		Code: "slurm-partitions", Title: "A partition takes this user's jobs",
		Text: option.Expand("Slurm shows a user the partitions that the user may hand jobs to. One that is up takes jobs and starts them, one that is down takes and does not start them, and those that are drained or inactive take none. Without a default partition every job has to name one: `{queue=NAME}`.\n\nThe limit of time of a partition counts for jobs without `{timeout}`, too."),
		From: []string{"https://slurm.schedmd.com/sinfo.html", "https://slurm.schedmd.com/slurm.conf.html"},
	}
	return Check{page, func(s Site, _ policy.Slurm) []check.Finding {
		if len(s.Partitions) == 0 {
			return []check.Finding{{Code: page.Code, Severity: check.Error, Seen: "cluster " + s.Name + " shows you no partition", Why: "every job runs in one", Do: "ask the administrators which partition and account are yours"}}
		}

		var up, other, words []string
		defaulted := false
		for _, p := range s.Partitions {
			word := fmt.Sprintf("%s (%s, %d nodes, time limit %s)", p.Name, p.State, p.Nodes, p.Limit)
			words = append(words, word)
			if p.State == "up" {
				up = append(up, p.Name)
				defaulted = defaulted || p.Default
			} else {
				other = append(other, p.Name+" is "+p.State)
			}
		}

		switch {
		case len(up) == 0:
			return []check.Finding{{Code: page.Code, Severity: check.Error, Seen: "no partition is up: " + strings.Join(other, ", "), Why: "no job starts", Do: "ask the administrators, or wait: sinfo -s"}}
		case !defaulted:
			return []check.Finding{{Code: page.Code, Severity: check.Info, Seen: "no default partition is up; there are " + strings.Join(words, ", "), Why: "a job that names none goes nowhere", Do: option.Sprintf("{gpuard submit} {engine=slurm} {queue=%s} -- COMMAND", up[0])}}
		}

		return okFinding(page.Code, strings.Join(words, ", "))
	}}
}

func gresCheck() Check {
	page := check.Page{
		Code: "slurm-gres", Title: "The GPUs that Slurm was told of are those that its nodes have",
		Text: option.Expand("slurm.conf says how many GPUs a node has (Gres=gpu:a100:4, with GresTypes=gpu), and the node itself counts its own by gres.conf: device files, or NVML. A node that finds fewer is invalid or drained, and takes no job; the reason says \"gres/gpu count reported lower than configured\".\n\nOn such a node a GPU may have fallen off the bus, or its driver is not loaded: `{gpuard doctor}` there says more. Nodes are resumed by administrators: `scontrol update nodename=NODE state=resume`."),
		From: []string{"https://slurm.schedmd.com/gres.html", "https://slurm.schedmd.com/gres.conf.html"},
	}
	return Check{page, func(s Site, _ policy.Slurm) (found []check.Finding) {
		if _, all := s.countGPUs(); all == 0 {
			if s.Types {
				return []check.Finding{{Code: page.Code, Severity: check.Error, Seen: "no node of cluster " + s.Name + " has a GPU, although GresTypes has gpu", Why: "a job that asks for one is refused", Do: "tell the administrators: Gres=gpu:TYPE:N is missing at the nodes of slurm.conf, or you may not see those nodes"}}
			}
			return []check.Finding{{Code: page.Code, Severity: check.Error, Seen: "GPUs are no resource of cluster " + s.Name + ": GresTypes in slurm.conf has no gpu", Why: "a job that asks for one is refused", Do: "ask the administrators for a cluster with GPUs"}}
		}
		for _, n := range s.Nodes {
			if len(n.GPUs) > 0 && strings.Contains(n.Why, "gres/gpu") {
				found = append(found, check.Finding{Code: page.Code, Severity: check.Warning, Seen: fmt.Sprintf("node %s: %s", n.Name, n.Why), Why: "it finds other GPUs than slurm.conf says, and takes no job", Do: option.Expand("tell the administrators; on the node, {gpuard doctor} says what is wrong with its GPUs")})
			}
		}
		if found == nil {
			return okFinding(page.Code, "no node counts other GPUs than slurm.conf says")
		}

		return found
	}}
}

func gpusCheck() Check {
	page := check.Page{
		Code: "slurm-gpus", Title: "Which GPUs the nodes have, and which are free",
		Text: option.Expand("GPUs count by type, as the site calls them, on nodes that take jobs. A node that is down, drained or does not answer gives none. Free is what no job has been given: whether a job starts at once also depends on cores, memory and the jobs that go first.\n\nWhat would happen to a job says `{gpuard submit} {engine=slurm} {dry-run}`."),
		From: []string{"https://slurm.schedmd.com/scontrol.html", "https://slurm.schedmd.com/gres.html"},
	}
	return Check{page, func(s Site, _ policy.Slurm) []check.Finding {
		var have, away []string
		for _, kind := range append(s.GPUTypes(), "") {
			free, all, nodes := 0, 0, 0
			for _, n := range s.Nodes {
				i := slices.IndexFunc(n.GPUs, func(g GPUs) bool { return g.Type == kind })
				if i < 0 || !n.IsUsable() {
					continue
				}
				nodes++
				free, all = free+max(0, n.GPUs[i].All-n.GPUs[i].Taken), all+n.GPUs[i].All
			}
			if all > 0 {
				have = append(have, strings.TrimSpace(fmt.Sprintf("%d of %d %s", free, all, kind))+fmt.Sprintf(" free on %d nodes", nodes))
			}
		}

		for _, n := range s.Nodes {
			if len(n.GPUs) > 0 && !n.IsUsable() {
				away = append(away, strings.TrimSpace(fmt.Sprintf("%s is %s %s", n.Name, strings.ToLower(strings.Join(n.States, "+")), n.Why)))
			}
		}

		switch _, all := s.countGPUs(); {
		case all == 0:
			return okFinding(page.Code, "see slurm-gres")
		case len(have) == 0:
			return []check.Finding{{Code: page.Code, Severity: check.Error, Seen: "no node with GPUs takes jobs: " + firstFew(away), Why: "a job that asks for one waits", Do: "ask the administrators, or wait: sinfo -R"}}
		case len(away) > 0:
			return []check.Finding{{Code: page.Code, Severity: check.Info, Seen: strings.Join(have, ", ") + "; " + firstFew(away), Why: "nodes that take no jobs give no GPU", Do: "sinfo -R says why"}}
		}

		return okFinding(page.Code, strings.Join(have, ", "))
	}}
}

// firstFew is the first few of many.
func firstFew(list []string) string {
	const most = 5
	if len(list) > most {
		return strings.Join(list[:most], ", ") + fmt.Sprintf(", and %d more", len(list)-most)
	}
	return strings.Join(list, ", ")
}

func namesCheck() Check {
	page := check.Page{
		Code: "slurm-names", Title: "The types and features of config.yaml are those of the cluster",
		Text: option.Expand("Slurm knows neither the model nor the memory of a GPU. What a site calls them stands in slurm: of config.yaml, and gpuard writes `{model}` and `{mem}` with those words. A word that no node has (any more) cannot be asked for: gpuard refuses such a job before it hands it in, because Slurm would refuse it, or leave it waiting.\n\nTypes are those of `scontrol show node` (Gres=gpu:TYPE:N), features those of `sinfo -o %f`."),
		From: []string{"https://slurm.schedmd.com/sbatch.html", "gpuard: docs/how-to/slurm.md"},
	}
	return Check{page, func(s Site, said policy.Slurm) (found []check.Finding) {
		types, features := AbsentTerms(said, s)
		add := func(what string, list, there []string) {
			if len(list) > 0 {
				found = append(found, check.Finding{Code: page.Code, Severity: check.Warning, Seen: fmt.Sprintf("no node has the %s %s, which config.yaml names", what, strings.Join(list, ", ")), Why: "a job that needs it is refused", Do: fmt.Sprintf("write one of those that there are into config.yaml: %s", joinOrNone(there))})
			}
		}

		add("type", types, s.GPUTypes())
		add("feature", features, s.Features())
		if found == nil {
			return okFinding(page.Code, "every type and feature of config.yaml is one of the cluster's")
		}

		return found
	}}
}

func mappingCheck() Check {
	page := check.Page{
		Code: "slurm-map", Title: "config.yaml says what the cluster's types and features mean",
		Text: option.Expand("`{model}` needs slurm.types and `{mem}` needs slurm.memory_features in config.yaml. Without them a job can only ask for a number of GPUs, and may get any.\n\nWrite what the site's words mean: the name of the model as `nvidia-smi -L` shows it on a node, and the memory of its GPUs in MiB. In /etc/gpuard/config.yaml it counts for all users of a login machine."),
		From: []string{"gpuard: docs/how-to/slurm.md", "https://slurm.schedmd.com/gres.html"},
	}
	return Check{page, func(s Site, said policy.Slurm) []check.Finding {
		known := KnownTerms(said, s)
		var untold []string
		for _, kind := range s.GPUTypes() {
			told := false
			for _, of := range known.Types {
				told = told || of == kind
			}
			if !told {
				untold = append(untold, kind)
			}
		}

		if len(untold) > 0 {
			return []check.Finding{{Code: page.Code, Severity: check.Info, Seen: "config.yaml does not say which model is of type " + strings.Join(untold, ", "), Why: option.Expand("{model} cannot ask for it"), Do: "add for instance: slurm: {types: {MODEL: " + untold[0] + "}}"}}
		}
		if len(known.Features) == 0 {
			return []check.Finding{{Code: page.Code, Severity: check.Info, Seen: "config.yaml does not say which feature stands for how much memory", Why: option.Expand("{mem} cannot be asked for"), Do: "add for instance: slurm: {memory_features: {" + firstOr(s.Features(), "gpumem80g") + ": 81559}}"}}
		}

		return okFinding(page.Code, fmt.Sprintf("%d types and %d features have a meaning", len(known.Types), len(known.Features)))
	}}
}

func firstOr(list []string, otherwise string) string {
	if len(list) > 0 {
		return list[0]
	}
	return otherwise
}

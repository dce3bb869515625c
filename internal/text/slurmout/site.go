package slurmout

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/cluster"
)

// ParseNodes reads lines of scontrol -o -d show node.
func ParseNodes(text string) (nodes []cluster.Node, err error) {
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "" || !strings.HasPrefix(line, "NodeName=") {
			// "No nodes in the system".
			continue
		}

		value := parseFields(line)
		n := cluster.Node{Name: value["NodeName"], States: strings.Split(strings.TrimRight(value["State"], "*~#!%$@^-"), "+"), Features: splitList(value["ActiveFeatures"]), Partitions: splitList(value["Partitions"])}
		if strings.Contains(value["State"], "*") {
			n.States = append(n.States, "NOT_RESPONDING")
		}

		if _, why, ok := strings.Cut(strings.TrimSpace(line), " Reason="); ok {
			n.Why = why
		}

		n.GPUs, err = parseGPUs(value["Gres"])
		if err != nil {
			return nil, fmt.Errorf("scontrol printed %q of node %s", value["Gres"], n.Name)
		}

		used, err := parseGPUs(value["GresUsed"])
		if err != nil {
			return nil, fmt.Errorf("scontrol printed %q of node %s", value["GresUsed"], n.Name)
		}

		for _, u := range used {
			if i := slices.IndexFunc(n.GPUs, func(g cluster.GPUs) bool { return g.Type == u.Type }); i >= 0 {
				n.GPUs[i].Taken += u.All
			}
		}

		nodes = append(nodes, n)
	}
	return nodes, nil
}

// parseGPUs reads "gpu:a100:4(S:0-1),gpu:2,mps:400", and of those in use "gpu:a100:2(IDX:0,2)" or "gpu:(null):1". Commas stand also in the brackets.
func parseGPUs(text string) (all []cluster.GPUs, err error) {
	depth := 0
	for _, entry := range strings.FieldsFunc(strings.ReplaceAll(emptyIfNone(text), "(null)", ""), func(r rune) bool {
		depth += map[rune]int{'(': 1, ')': -1}[r]
		return r == ',' && depth == 0
	}) {
		entry, _, _ = strings.Cut(entry, "(")
		words := strings.Split(entry, ":")
		if words[0] != "gpu" {
			continue
		}

		g := cluster.GPUs{All: 1}
		if len(words) > 1 {
			g.All, err = strconv.Atoi(words[len(words)-1])
			if err != nil {
				return nil, err
			}
			g.Type = strings.Join(words[1:len(words)-1], ":")
		}

		i := slices.IndexFunc(all, func(o cluster.GPUs) bool { return o.Type == g.Type })
		if i >= 0 {
			all[i].All += g.All
		} else {
			all = append(all, g)
		}
	}
	return all, nil
}

// splitList reads "a,b".
func splitList(text string) []string {
	return strings.FieldsFunc(emptyIfNone(text), func(r rune) bool { return r == ',' })
}

// ParsePartitions reads lines of sinfo: one for each state of nodes, so that a partition may have several.
func ParsePartitions(text string) (all []cluster.Partition, err error) {
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 5 {
			return nil, fmt.Errorf("sinfo printed %q", line)
		}

		n, err := strconv.Atoi(f[4])
		if err != nil {
			return nil, fmt.Errorf("sinfo printed %q", line)
		}

		i := slices.IndexFunc(all, func(p cluster.Partition) bool { return p.Name == f[0] })
		if i < 0 {
			all, i = append(all, cluster.Partition{Name: f[0], Default: strings.HasSuffix(f[1], "*"), State: f[2], Limit: f[3]}), len(all)
		}

		all[i].Nodes += n
	}
	return all, nil
}

// ParseSettings reads "Name = value" lines of scontrol show config.
func ParseSettings(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, "="); ok {
			all[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return all
}

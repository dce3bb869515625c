package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/remote"
	"gpuard/internal/core/check"
	"gpuard/internal/core/kubernetes"
	"gpuard/internal/core/prose"
)

// diagnosedCluster is the JSON answer of doctor --engine kubernetes.
type diagnosedCluster struct {
	Schema string `json:"schema"` // "gpuard.doctor/1"
	check.Diagnosis
	Engine    string        `json:"engine"`    // "kubernetes"
	Context   string        `json:"context"`   // of kubectl; "" in a pod
	Namespace string        `json:"namespace"` // in which jobs are made
	Nodes     []clusterNode `json:"nodes"`     // with GPUs, by name
}

// clusterNode is a node with GPUs.
type clusterNode struct {
	Node  string `json:"node"`  // its name
	Model string `json:"model"` // as its label or its driver has it; "" unknown
	By    string `json:"by"`    // what offers them: "plugin", or "dra" for claims
	GPUs  int    `json:"gpus"`  // all that it offers
	Taken *int   `json:"taken"` // by pods or claims; null unknown
	Off   string `json:"off"`   // why it takes no new jobs: "cordoned", "not ready"; "" it does
}

// diagnoseEngine says whether a cluster can give GPUs to its user.
func (p *Program) diagnoseEngine(ctx context.Context, flags doctorFlags) error {
	switch flags.engine {
	case "slurm":
		return p.diagnoseSlurm(ctx, flags)
	case "kubernetes":
	default:
		return exit.Usagef("cannot read --engine %q: write slurm or kubernetes", flags.engine)
	}
	c, err := remote.Kubernetes(ctx, p.Host, flags.context, flags.namespace)
	if err != nil {
		return err
	}
	d := check.Kubernetes(c)
	if flags.asJSON {
		err = writeJSON(p.Out, diagnosedCluster{"gpuard.doctor/1", d, flags.engine, c.Context, c.Namespace, nodesOf(c)})
	} else {
		clusterView(p.Out, d, c.Hosts(), flags.all, p.term(p.Out))
	}
	if err == nil && hasBad(d.Findings) {
		err = &silent{errors.New(d.Summary)}
	}
	return err
}

// diagnoseSlurm is the same of the cluster that Slurm's commands ask.
func (p *Program) diagnoseSlurm(ctx context.Context, flags doctorFlags) error {
	if flags.context != "" || flags.namespace != "" {
		return exit.Usagef("cannot use --context or --namespace with --engine slurm: SLURM_CONF says which cluster is asked")
	}
	d, err := remote.Diagnose(ctx, p.Host)
	switch {
	case err != nil:
		return err
	case flags.asJSON:
		err = writeJSON(p.Out, diagnosed{"gpuard.doctor/1", d})
	default:
		Doctor(p.Out, d, flags.all, p.term(p.Out))
	}
	if err == nil && hasBad(d.Findings) {
		err = &silent{errors.New(d.Summary)}
	}
	return err
}

func nodesOf(c *kubernetes.Cluster) []clusterNode {
	list := []clusterNode{}
	for _, h := range c.Hosts() {
		list = append(list, clusterNode{h.Node, h.Model, by(h), h.All, h.Taken, h.Off})
	}
	return list
}

func by(h kubernetes.Host) string {
	if h.DRA {
		return "dra"
	}
	return "plugin"
}

// shownNodes is how many nodes fit on one screen.
const shownNodes = 16

// clusterView writes a diagnosis of a cluster: the verdict, the nodes with GPUs, the findings.
func clusterView(w io.Writer, d check.Diagnosis, hosts []kubernetes.Host, all bool, term Term) {
	p := page{term: term}
	p.verdict(d.Verdict)
	shown := hosts
	if len(hosts) > shownNodes && !all {
		shown = hosts[:shownNodes]
	}
	name := len("NODE")
	for _, h := range shown {
		name = max(name, min(cells(p.text(h.Node)), 32))
	}
	row := func(s style, cols ...string) {
		p.line(span{s, pad(cols[0], name, false, p.dots()) + between + pad(cols[1], 4, true, "") + between + pad(cols[2], 4, true, "") + between + pad(cols[3], 6, false, "") + between + cols[4]})
	}
	if len(shown) > 0 {
		p.line()
		row(dim, "NODE", "GPUS", "FREE", "BY", "MODEL")
	}
	for _, h := range shown {
		free, style, model := "?", normal, orElse(p.text(h.Model), "-")
		if h.Taken != nil {
			free = strconv.Itoa(max(0, h.All-*h.Taken))
		}
		if h.Off != "" {
			free, style, model = "-", dim, model+" ("+h.Off+")"
		}
		row(style, p.text(h.Node), strconv.Itoa(h.All), free, by(h), model)
	}
	if left := len(hosts) - len(shown); left > 0 {
		p.line(span{dim, fmt.Sprintf("and %s more: --all", prose.Count(left, "row"))})
	}
	p.diagnosis(d, all)
	_, _ = io.WriteString(w, p.out.String())
}

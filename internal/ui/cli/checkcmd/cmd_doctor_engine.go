package checkcmd

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/remote"
	"gpuard/internal/core/check"
	"gpuard/internal/core/kubernetes"
	"gpuard/internal/core/prose"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/console"
)

// clusterAnswer is the JSON answer of doctor --engine kubernetes.
type clusterAnswer struct {
	Schema string `json:"schema"` // "gpuard.doctor/1"
	check.Diagnosis
	Engine string `json:"engine"` // "kubernetes"
	// The context of kubectl; "" in a pod.
	Context string `json:"context"`
	// The namespace in which jobs are made.
	Namespace string        `json:"namespace"`
	Nodes     []clusterNode `json:"nodes"` // with GPUs, by name
}

// clusterNode is a node with GPUs.
type clusterNode struct {
	Node string `json:"node"` // its name
	// The model as its label or its driver has it; "" unknown.
	Model string `json:"model"`
	// What offers them: "plugin", or "dra" for claims.
	By   string `json:"by"`
	GPUs int    `json:"gpus"` // all that it offers
	// The GPUs that pods or claims have; null unknown.
	Taken *int `json:"taken"`
	// Why it takes no new jobs: "cordoned", "not ready"; "" it does.
	Off string `json:"off"`
}

// diagnoseEngine says whether a cluster can give GPUs to its user.
func diagnoseEngine(ctx context.Context, p *cli.Program, flags doctorFlags) error {
	switch flags.engine {
	case "slurm":
		return diagnoseSlurm(ctx, p, flags)
	case "kubernetes":
	default:
		return exit.Usagef("cannot read --engine %q: write slurm or kubernetes", flags.engine)
	}

	c, err := remote.ReadKubernetes(ctx, p.Host, flags.context, flags.namespace)
	if err != nil {
		return err
	}

	d := check.DiagnoseCluster(c)
	answer := clusterAnswer{"gpuard.doctor/1", d, flags.engine, c.Context, c.Namespace, nodesOf(c)}

	return badFinding(d, p.Show(flags.asJSON, answer, func(v *console.Page) { clusterView(v, d, c.Hosts(), flags.all) }))
}

// diagnoseSlurm is the same of the cluster that Slurm's commands ask.
func diagnoseSlurm(ctx context.Context, p *cli.Program, flags doctorFlags) error {
	if flags.context != "" || flags.namespace != "" {
		return exit.Usagef("cannot use --context or --namespace with --engine slurm: SLURM_CONF says which cluster is asked")
	}

	d, err := remote.DiagnoseSlurm(ctx, p.Host)
	if err != nil {
		return err
	}

	return showDiagnosis(p, d, flags)
}

func nodesOf(c *kubernetes.Cluster) []clusterNode {
	list := []clusterNode{}
	for _, h := range c.Hosts() {
		list = append(list, clusterNode{h.Node, h.Model, offeredBy(h), h.All, h.Taken, h.Off})
	}
	return list
}

func offeredBy(h kubernetes.Host) string {
	if h.DRA {
		return "dra"
	}
	return "plugin"
}

// shownNodes is how many nodes fit on one screen.
const shownNodes = 16

// clusterView writes a diagnosis of a cluster: the verdict, the nodes with GPUs, the findings.
func clusterView(p *console.Page, d check.Diagnosis, hosts []kubernetes.Host, all bool) {
	writeVerdict(p, d.Verdict)
	shown := hosts
	if len(hosts) > shownNodes && !all {
		shown = hosts[:shownNodes]
	}

	name := len("NODE")
	for _, h := range shown {
		name = max(name, min(console.CellWidth(p.Text(h.Node)), 32))
	}

	row := func(s console.Style, cols ...string) {
		p.Line(s.Span(console.Pad(cols[0], name, false, p.Ellipsis()) + console.ColumnGap + console.Pad(cols[1], 4, true, "") + console.ColumnGap + console.Pad(cols[2], 4, true, "") + console.ColumnGap + console.Pad(cols[3], 6, false, "") + console.ColumnGap + cols[4]))
	}

	if len(shown) > 0 {
		p.Line()
		row(console.Dim, "NODE", "GPUS", "FREE", "BY", "MODEL")
	}

	for _, h := range shown {
		free, style, model := "?", console.Normal, cmp.Or(p.Text(h.Model), "-")
		if h.Taken != nil {
			free = strconv.Itoa(max(0, h.All-*h.Taken))
		}
		if h.Off != "" {
			free, style, model = "-", console.Dim, model+" ("+h.Off+")"
		}
		row(style, p.Text(h.Node), strconv.Itoa(h.All), free, offeredBy(h), model)
	}

	if left := len(hosts) - len(shown); left > 0 {
		p.Line(console.Dim.Span(fmt.Sprintf("and %s more: --all", prose.CountNoun(left, "row"))))
	}

	writeDiagnosis(p, d, all)
}

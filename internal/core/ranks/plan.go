package ranks

import "fmt"

// Plan is how several processes of one command are started.
type Plan struct {
	// What starts them: "torchrun", or "gpuard".
	By    string `json:"by"`
	Count int    `json:"count"` // how many there are
	// What each sees: "all" devices of the job, only its "own", or "none", on the CPU.
	Visible string `json:"visible"`
	Address string `json:"address"` // of the rendezvous
	// The port of the rendezvous; null until it is chosen at the start.
	Port *int `json:"port"`
	// The processors that each rank is bound to, such as "0-15"; "" not bound.
	CPUs []string `json:"cpus"`
}

// String is one clause: "4 ranks by torchrun at 127.0.0.1:41873, each sees all devices".
func (p *Plan) String() string {
	at := "at a port chosen at the start"
	if p.Port != nil {
		at = fmt.Sprintf("at %s:%d", p.Address, *p.Port)
	}

	noun := "ranks"
	if p.Count == 1 {
		noun = "rank"
	}

	sees := map[string]string{"all": ", each sees all devices", "own": ", each sees its own device"}

	return fmt.Sprintf("%d %s by %s %s%s", p.Count, noun, p.By, at, sees[p.Visible])
}

// PlanOf describes how members are started, by torchrun or by gpuard; sees is Plan.Visible.
func PlanOf(torchrun bool, sees string, members []Member) *Plan {
	p := &Plan{By: "gpuard", Count: len(members), Visible: sees, Address: Host, CPUs: []string{}}
	if torchrun {
		p.By = "torchrun"
	}

	for _, m := range members {
		p.CPUs = append(p.CPUs, m.CPUs)
	}

	return p
}

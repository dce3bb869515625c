package ranks

import "fmt"

// Plan is how several processes of one command are started.
type Plan struct {
	By      string   `json:"by"`      // who starts them: "torchrun", or "gpuard"
	Count   int      `json:"count"`   // how many there are
	Visible string   `json:"visible"` // what each sees: "all" devices of the job, or its "own" alone
	Address string   `json:"address"` // where they meet
	Port    *int     `json:"port"`    // where they meet; null while it is not chosen: that is done at the start
	CPUs    []string `json:"cpus"`    // by rank, the processors that it is bound to, such as "0-15"; "" not bound
}

// String is one clause: "4 ranks by torchrun at 127.0.0.1:41873, each sees all devices".
func (r *Plan) String() string {
	at := "at a port chosen at the start"
	if r.Port != nil {
		at = fmt.Sprintf("at %s:%d", r.Address, *r.Port)
	}
	noun, sees := "ranks", "all devices"
	if r.Count == 1 {
		noun = "rank"
	}
	if r.Visible == "own" {
		sees = "its own device"
	}
	return fmt.Sprintf("%d %s by %s %s, each sees %s", r.Count, noun, r.By, at, sees)
}

// PlanOf says how members are started: by torchrun or by gpuard, and whether each sees its own device alone.
func PlanOf(torchrun, own bool, members []Member) *Plan {
	p := &Plan{By: "gpuard", Count: len(members), Visible: "all", Address: Host, CPUs: []string{}}
	if torchrun {
		p.By = "torchrun"
	}
	if own {
		p.Visible = "own"
	}
	for _, m := range members {
		p.CPUs = append(p.CPUs, m.CPUs)
	}
	return p
}

package doctor

import (
	"context"
	"fmt"
	"strconv"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/hostinfo"
)

// sitePolicy reads the configuration files as a claim would, and checks that the names in them exist.
func sitePolicy(_ context.Context, host *machine.Host) hostinfo.Answer[hostinfo.Policy] {
	var out hostinfo.Policy
	p, err := host.Config()
	if err != nil {
		out.Problem = err.Error()
		return hostinfo.AnswerOf(out)
	}

	for _, f := range p {
		out.Files = append(out.Files, f.Path)
		out.Rules += len(f.Rules)

		for _, r := range f.Rules {
			for _, of := range []struct {
				database, word string
				names          []string
			}{{"passwd", "user", r.Users}, {"group", "group", r.Groups}} {
				for _, name := range of.names {
					out.Names = append(out.Names, name)
					if _, number := strconv.ParseUint(name, 10, 32); number != nil && !host.Proc.AccountExists(of.database, name) {
						out.Strangers = append(out.Strangers, fmt.Sprintf("the %s %s (%s)", of.word, name, r.At))
					}
				}
			}
		}
	}

	return hostinfo.AnswerOf(out)
}

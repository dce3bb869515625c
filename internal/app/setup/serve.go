package setup

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/edit"
	"gpuard/internal/text/unit"
)

// serveUnit is the name of its units without the ending.
const serveUnit = "gpuard-serve"

// ServeWish has systemd start gpuard serve with these flags, with the machine or with the login of the user. The socket
// is systemd's, so no request is lost while gpuard serve is replaced. What it starts besides its reader, such as the
// queue, goes on without it.
func (s *Setup) ServeWish(listen string, flags []string, user bool) (ChangePlan, error) {
	line, err := serveLine(flags)
	if err != nil {
		return ChangePlan{}, err
	}
	if strings.ContainsAny(listen, " \t\n%\"'\\") || !strings.Contains(listen, ":") {
		return ChangePlan{}, &exit.Usage{Text: fmt.Sprintf("cannot listen on %q: write an address and a port, such as 127.0.0.1:8470", listen)}
	}

	where, err := s.unitFolders(user)
	if err != nil {
		return ChangePlan{}, err
	}

	manager, place, kept := "systemctl", "multi-user.target", "StateDirectory=gpuard/serve\n"
	if user {
		manager, place, kept = "systemctl --user", "default.target", ""
	}

	const head = "# Written by gpuard setup serve; taken away by gpuard setup serve --remove.\n[Unit]\nDescription=%s\n"
	socket := fmt.Sprintf(head+"\n[Socket]\nListenStream=%s\n\n[Install]\nWantedBy=sockets.target\n", "The page of gpuard", listen)
	service := fmt.Sprintf(head+"\n[Service]\nType=notify\nNotifyAccess=all\nKillMode=process\n%sExecStart=%s\nRestart=on-failure\n\n[Install]\nWantedBy=%s\n", "The page and the metrics of gpuard", kept, line, place)
	try := "curl http://" + listen + "/metrics"
	if i := slices.Index(flags, "--tls-cert"); i >= 0 {
		try = "curl --cacert " + flags[i+1] + " https://" + listen + "/metrics"
	}

	return ChangePlan{Key: "serve",
		Changes: []edit.Change{{Path: filepath.Join(where.own, serveUnit+".socket"), Content: socket}, {Path: filepath.Join(where.own, serveUnit+".service"), Content: service}},
		Try:     []string{manager + " daemon-reload", manager + " enable --now " + serveUnit + ".socket " + serveUnit + ".service", try}}, nil
}

// serveLine is what systemd starts.
func serveLine(flags []string) (string, error) {
	program, err := ProgramPath()
	if err != nil {
		return "", err
	}

	line := ""
	for _, word := range append([]string{program, "serve"}, flags...) {
		if strings.ContainsAny(word, "$\"'\\\n") {
			return "", &exit.Usage{Text: fmt.Sprintf("cannot name %q in a unit: systemd takes no such name; choose another place", word)}
		}
		line += unit.QuoteWord(word, true) + " "
	}

	return strings.TrimSpace(line), nil
}

package setup

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/edit"
	"gpuard/internal/text/unit"
)

// serveUnit is the name of its units without the ending.
const serveUnit = "gpuard-serve"

// Page is how the page of gpuard serve is asked for.
type Page struct {
	Listen    string   // address and port
	Token     string   // file; "" for none
	Cert, Key string   // files for TLS; "" for none
	Names     []string // by which this machine is asked
}

// Serve has systemd start gpuard serve, with the machine or with the login of the user. The socket is systemd's, so no
// request is lost while gpuard serve is replaced. What it starts besides its reader, such as the queue, goes on without it.
func (s *Setup) Serve(page Page, user bool) (Wish, error) {
	line, err := page.line()
	if err != nil {
		return Wish{}, err
	}
	where, err := s.unitFolders(user)
	if err != nil {
		return Wish{}, err
	}
	manager, place, kept := "systemctl", "multi-user.target", "StateDirectory=gpuard/serve\n"
	if user {
		manager, place, kept = "systemctl --user", "default.target", ""
	}
	const head = "# Written by gpuard setup serve; taken away by gpuard setup serve --remove.\n[Unit]\nDescription=%s\n"
	socket := fmt.Sprintf(head+"\n[Socket]\nListenStream=%s\n\n[Install]\nWantedBy=sockets.target\n", "The page of gpuard", page.Listen)
	service := fmt.Sprintf(head+"\n[Service]\nType=notify\nNotifyAccess=all\nKillMode=process\n%sExecStart=%s\nRestart=on-failure\n\n[Install]\nWantedBy=%s\n", "The page and the metrics of gpuard", kept, line, place)
	try := "curl http://" + page.Listen + "/metrics"
	if page.Cert != "" {
		try = "curl --cacert " + page.Cert + " https://" + page.Listen + "/metrics"
	}
	return Wish{Key: "serve",
		Changes: []edit.Change{{Path: filepath.Join(where.own, serveUnit+".socket"), Content: socket}, {Path: filepath.Join(where.own, serveUnit+".service"), Content: service}},
		Try:     []string{manager + " daemon-reload", manager + " enable --now " + serveUnit + ".socket " + serveUnit + ".service", try}}, nil
}

// line is what systemd starts.
func (p *Page) line() (string, error) {
	host, _, err := net.SplitHostPort(p.Listen)
	if err != nil || strings.ContainsAny(p.Listen, " \t\n%\"'\\") {
		return "", &exit.Usage{Text: fmt.Sprintf("cannot listen on %q: write an address and a port, such as 127.0.0.1:8470", p.Listen)}
	}
	if ip := net.ParseIP(host); p.Token != "" && p.Cert == "" && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", &exit.Usage{Text: fmt.Sprintf("cannot serve with a token at %s: it would travel unencrypted; add --tls-cert and --tls-key", p.Listen)}
	}
	program, err := Program()
	if err != nil {
		return "", err
	}
	words := []string{program, "serve"}
	for _, file := range [][2]string{{"--token-file", p.Token}, {"--tls-cert", p.Cert}, {"--tls-key", p.Key}} {
		if file[1] == "" {
			continue
		}
		path, err := filepath.Abs(file[1])
		if err != nil {
			return "", fmt.Errorf("cannot find %s: %w", file[1], err)
		}
		words = append(words, file[0], path)
	}
	for _, name := range p.Names {
		words = append(words, "--name", name)
	}
	line := ""
	for _, word := range words {
		if strings.ContainsAny(word, "$\"'\\\n") {
			return "", &exit.Usage{Text: fmt.Sprintf("cannot name %q in a unit: systemd takes no such name; choose another place", word)}
		}
		line += unit.Word(word, true) + " "
	}
	return strings.TrimSpace(line), nil
}

package setupcmd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"gpuard/internal/app/observe"
	"gpuard/internal/app/setup"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
)

func setupServe(p *cli.Program) *cobra.Command {
	var t setupFlags
	var page observe.ServeOptions
	user := false
	cmd := t.addFlags(&cobra.Command{
		Use:   "serve [flags]",
		Short: "The page of gpuard serve, started by systemd",
		Long: `Writes a socket and a service for systemd: as root for the machine, otherwise for
your own manager; --user is root's own. gpuard serve then starts with the
machine, or your login. What it starts, such as your queue, goes on when it ends.`,
		Example: "  sudo gpuard setup serve\n  gpuard setup serve --listen 127.0.0.1:9000\n  gpuard setup serve --remove",
		Args:    flagset.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			words, err := pageWords(&page)
			if err != nil {
				return err
			}

			user = user || os.Geteuid() != 0
			t.system = !user
			s := &setup.Setup{Host: p.Host, System: t.system}
			t.after = setup.Systemd{Setup: s, Unit: "gpuard-serve", User: user}.AfterRemoval

			return runSetup(p, &t, setupPart{func() (string, error) { return "serve", nil }, func() (setup.ChangePlan, error) { return s.ServeWish(page.Listen, words, user) }})
		},
	})

	AddPageFlags(cmd, &page)
	cmd.Flags().BoolVar(&user, "user", false, "a service of root's own manager (for other users this is the default)")

	return cmd
}

// AddPageFlags adds the flags of gpuard serve that gpuard setup serve has too.
func AddPageFlags(cmd *cobra.Command, page *observe.ServeOptions) {
	f := cmd.Flags()
	f.StringVar(&page.Listen, "listen", "127.0.0.1:8470", "`ADDRESS` and port to listen on")
	f.StringVar(&page.TokenFile, "token-file", "", "allow actions to those who have the token in `FILE`")
	flagset.ListVar(f, &page.Names, "name", nil, "other `NAME` by which this machine is asked, such as box.example.org")
	f.StringVar(&page.Cert, "tls-cert", "", "certificate `FILE` (PEM), for HTTPS")
	f.StringVar(&page.Key, "tls-key", "", "`FILE` with the key of the certificate (PEM)")
}

// pageWords are the flags that give the page, for another folder.
func pageWords(page *observe.ServeOptions) (words []string, err error) {
	if err := BothForTLS(page.Cert, page.Key); err != nil {
		return nil, err
	}

	host, _, _ := net.SplitHostPort(page.Listen)
	if ip := net.ParseIP(host); page.TokenFile != "" && page.Cert == "" && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, failure.Usagef("cannot serve with a token at %s: it would travel unencrypted; add --tls-cert and --tls-key, or listen on 127.0.0.1", page.Listen)
	}

	for _, file := range [][2]string{{"--token-file", page.TokenFile}, {"--tls-cert", page.Cert}, {"--tls-key", page.Key}} {
		if file[1] == "" {
			continue
		}
		path, err := filepath.Abs(file[1])
		if err != nil {
			return nil, fmt.Errorf("cannot find %s: %w", file[1], err)
		}
		words = append(words, file[0], path)
	}

	for _, name := range page.Names {
		words = append(words, "--name", name)
	}

	return words, nil
}

// BothForTLS refuses a certificate without a key, and a key without a certificate.
func BothForTLS(cert, key string) error {
	if (cert == "") != (key == "") {
		return failure.Usagef("cannot use --tls-cert without --tls-key, nor the other way round: name both files")
	}
	return nil
}

func setupPrometheus(p *cli.Program) *cobra.Command {
	var t setupFlags
	address := ""
	cmd := t.addFlags(&cobra.Command{
		Use:   "prometheus [flags] FOLDER",
		Short: "Scrape config, alert rules and a dashboard for gpuard serve",
		Long: `Writes three files into FOLDER: what Prometheus reads, when it alerts, and a
dashboard for Grafana. It says which lines to add to prometheus.yml.`,
		Example: "  sudo gpuard setup prometheus /etc/prometheus\n  gpuard setup prometheus . --target box:8470\n  gpuard setup prometheus . --remove",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("cannot tell where to write: name one folder, such as gpuard setup prometheus /etc/prometheus")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			s := &setup.Setup{Host: p.Host}
			wish := func() (setup.ChangePlan, error) { return s.PrometheusWish(args[0], address) }
			key := func() (string, error) {
				w, err := wish()
				return w.Key, err
			}

			return runSetup(p, &t, setupPart{key, wish})
		},
	})

	cmd.Flags().StringVar(&address, "target", "127.0.0.1:8470", "`ADDRESS` and port of gpuard serve, as Prometheus reaches it")

	return cmd
}

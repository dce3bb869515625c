package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/observe"
	"gpuard/internal/app/tell"
)

// readKeyPair reads a certificate and its key.
func readKeyPair(cert, key string) (pair tls.Certificate, err error) {
	var texts [2][]byte
	for i, path := range []string{cert, key} {
		texts[i], err = machine.ReadFile(path)
		if err != nil {
			return pair, fmt.Errorf("cannot read %s: %w", path, err)
		}
	}
	return tls.X509KeyPair(texts[0], texts[1])
}

// ServeSite is gpuard serve: it serves until it is interrupted.
func ServeSite(ctx context.Context, view observe.View, o observe.ServeOptions) error {
	listener, err := listenOn(o.Listen)
	if err != nil {
		return err
	}

	if o.Token != "" && o.Cert == "" && !isLocal(listener.Addr()) {
		_ = listener.Close()
		return exit.Usagef("cannot serve with a token at %s: it would travel unencrypted; add --tls-cert and --tls-key, or listen on 127.0.0.1", listener.Addr())
	}

	listener = &limitedListener{Listener: listener, places: make(chan struct{}, maxConnections), each: maxConnsOfPeer, free: uncheckedConns,
		peer: func(c net.Conn) string { return peerOfConnection(view.Host, c) }}

	if o.Cert != "" {
		pair, err := readKeyPair(o.Cert, o.Key)
		if err != nil {
			return fmt.Errorf("cannot serve with TLS: %w; name a certificate and its key, both as PEM", err)
		}
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	}

	ctx, end := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer end()
	observer, err := observe.New(view.Host, observe.ServeFolder(view.Host))
	if err != nil {
		view.Host.Say(err.Error() + "; it is kept in memory only")
	}

	observer.Host.Say = sayWithTime(view.Host)
	if o.Jobs != "" {
		if err := observer.MapJobs(o.Jobs); err != nil {
			return err
		}
	}

	observer.Tell = tell.New(ctx, observer.Host).TellTroubles
	site := newSite(observer, view, o)
	observed := make(chan struct{})
	go func() {
		defer close(observed)
		observer.Run(ctx)
	}()

	go site.Run(ctx)
	server := newServer(site.Handler())
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()

	announceAddress(view.Host, listener, o)
	notifyReady()
	err = server.Serve(listener)
	if errors.Is(err, http.ErrServerClosed) && ctx.Err() != nil {
		<-observed
		return nil
	}

	return fmt.Errorf("cannot serve: %w", err)
}

// newServer gives each client a limited time for what it sends and for what it takes.
func newServer(handler http.Handler) *http.Server {
	return &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: writeTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10, ConnContext: withConnection}
}

// sayWithTime says lines with the time before each, for a log that is read later. The journal of systemd has it already.
func sayWithTime(host *machine.Host) func(line string) {
	if journal, _ := host.Env.Lookup("JOURNAL_STREAM"); journal != "" {
		return host.Say
	}
	return func(line string) { host.Say(time.Now().Format(time.DateTime) + " " + line) }
}

func newSite(observer *observe.Observer, view observe.View, o observe.ServeOptions) *Site {
	host, _ := os.Hostname()
	names := []string{strings.ToLower(host)}
	for _, name := range o.Names {
		names = append(names, strings.ToLower(name))
	}

	slices.Sort(names)

	return &Site{Observer: observer, Sources: view.Sources(observer.Host), Actions: view.Actions(observer.Host), Token: o.Token,
		Names: slices.Compact(names), Host: host, Version: view.Version, TLS: o.Cert != ""}
}

// announceAddress says where the page is.
func announceAddress(host *machine.Host, l net.Listener, o observe.ServeOptions) {
	scheme := "http"
	if o.Cert != "" {
		scheme = "https"
	}

	host.Say(fmt.Sprintf("the page is at %s://%s/ ; Ctrl-C ends it", scheme, shownAddress(l.Addr(), o.Listen)))
	if !isLocal(l.Addr()) {
		host.Say("everybody who reaches this address can open the page")
	}

	if o.Token != "" {
		host.Say("the token is in " + o.TokenFile)
	}
}

// isLocal reports whether only this machine reaches an address.
func isLocal(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}

// shownAddress is where a browser finds the page. Of a page at all addresses it has the name of this machine.
func shownAddress(a net.Addr, asked string) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return a.String()
	}

	host, err := os.Hostname()
	if err != nil || host == "" {
		host, _, _ = net.SplitHostPort(asked)
	}

	return net.JoinHostPort(host, fmt.Sprint(tcp.Port))
}

// notifyReady tells systemd that requests are answered (sd_notify(3)).
func notifyReady() {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}

	c, err := net.Dial("unixgram", path)
	if err != nil {
		// A manager that is gone needs no answer.
		return
	}

	_, _ = c.Write([]byte("READY=1"))
	_ = c.Close()
}

// listenOn listens, or takes the socket that systemd has opened (sd_listen_fds(3)).
func listenOn(address string) (net.Listener, error) {
	if os.Getenv("LISTEN_PID") == fmt.Sprint(os.Getpid()) && os.Getenv("LISTEN_FDS") == "1" {
		file := os.NewFile(3, "systemd")
		defer file.Close() //nolint:errcheck // the listener has its own copy
		return net.FileListener(file)
	}

	listener, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("cannot listen on %s: something does already, perhaps another gpuard serve; choose another port: --listen 127.0.0.1:0", address)
	}
	if err != nil {
		return nil, exit.Usagef("cannot listen on %s: %v; write an address and a port, such as --listen 127.0.0.1:8470", address, err)
	}

	return listener, nil
}

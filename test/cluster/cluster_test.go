package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The programs that make check-kubernetes builds, and gpuard.
const programsVariable = "GPUARD_KUBERNETES"

// testCluster is a real API server with its store, scheduler and controllers on this machine; the nodes are played by a
// kubelet of the test.
type testCluster struct {
	dir, bin, url string
	state         string // folder of the state of users; "" one for each
	http          *http.Client
}

// startCluster brings the cluster up, and down when the test ends.
func startCluster(t *testing.T) *testCluster {
	t.Helper()
	bin := os.Getenv(programsVariable)
	if bin == "" {
		t.Skip("this test needs kube-apiserver and its like: make check-kubernetes")
	}
	c := &testCluster{dir: t.TempDir(), bin: bin}
	c.http = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	etcd, peer, api := "http://"+freeAddress(t), "http://"+freeAddress(t), freeAddress(t)
	c.url = "https://" + api
	_, port, _ := net.SplitHostPort(api)
	c.writeKeys(t)
	c.startDaemon(t, "etcd", "--data-dir="+c.pathOf("etcd"), "--listen-client-urls="+etcd, "--advertise-client-urls="+etcd, "--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	c.startDaemon(t, "kube-apiserver", "--etcd-servers="+etcd, "--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+c.pathOf("certs"), "--token-auth-file="+c.pathOf("tokens"),
		"--authorization-mode=RBAC", "--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+c.pathOf("sa.key"), "--service-account-signing-key-file="+c.pathOf("sa.key"),
		"--service-cluster-ip-range=10.0.0.0/24", "--kubelet-preferred-address-types=InternalIP")
	c.waitUntil(t, 120*time.Second, "the API server is ready", func() error { return c.callAPI("GET", "/readyz", "", nil, nil) })
	for _, user := range []string{"admin", "ada", "bob"} {
		c.writeKubeconfig(t, user)
	}
	c.startDaemon(t, "kube-controller-manager", "--kubeconfig="+c.pathOf("admin.conf"), "--service-account-private-key-file="+c.pathOf("sa.key"), "--leader-elect=false", "--secure-port=0", "--cert-dir="+c.pathOf("certs"))
	c.startDaemon(t, "kube-scheduler", "--kubeconfig="+c.pathOf("admin.conf"), "--leader-elect=false", "--secure-port=0")
	return c
}

func (c *testCluster) pathOf(name string) string { return filepath.Join(c.dir, name) }

// freeAddress is an address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// writeKeys writes the key of service accounts, and the tokens of an administrator, of ada and of bob.
func (c *testCluster) writeKeys(t *testing.T) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	tokens := "admin-token,admin,1,system:masters\nada-token,ada,2\nbob-token,bob,3\n"
	if err := errors.Join(os.WriteFile(c.pathOf("sa.key"), text, 0o600), os.WriteFile(c.pathOf("tokens"), []byte(tokens), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// writeKubeconfig writes the configuration of kubectl of one user, whose namespace is team.
func (c *testCluster) writeKubeconfig(t *testing.T, user string) {
	t.Helper()
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"lab","preferences":{},
"clusters":[{"name":"lab","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],
"users":[{"name":"me","user":{"token":"%s-token"}}],
"contexts":[{"name":"lab","context":{"cluster":"lab","user":"me","namespace":"team"}}]}`, c.url, user)
	if err := os.WriteFile(c.pathOf(user+".conf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// startDaemon runs a program until the test ends; its messages are shown if the test failed.
func (c *testCluster) startDaemon(t *testing.T, name string, args ...string) {
	t.Helper()
	path := filepath.Join(c.bin, name)
	if found, err := exec.LookPath(name); name == "etcd" && err == nil {
		path = found
	}
	log, err := os.Create(c.pathOf(name + ".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("cannot start %s: %v", name, err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("the end of %s:\n%s", log.Name(), text[max(0, len(text)-2500):])
		}
	})
}

// waitUntil waits for something to become true.
func (c *testCluster) waitUntil(t *testing.T, most time.Duration, what string, is func() error) {
	t.Helper()
	for end := time.Now().Add(most); ; time.Sleep(100 * time.Millisecond) {
		err := is()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s: %v", most, what, err)
		}
	}
}

// callAPI asks the API server as its administrator.
func (c *testCluster) callAPI(method, path, kind string, body, into any) error {
	var text []byte
	if s, ok := body.(string); ok {
		text = []byte(s)
	} else if body != nil {
		text, _ = json.Marshal(body)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer admin-token")
	if kind == "" {
		kind = "application/json"
	}
	req.Header.Set("Content-Type", kind)
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, res.Status, strings.TrimSpace(string(answer)))
	}
	if err == nil && into != nil {
		err = json.Unmarshal(answer, into)
	}
	return err
}

// createObjects creates objects through kubectl, as the administrator.
func (c *testCluster) createObjects(t *testing.T, manifests string) {
	t.Helper()
	c.waitUntil(t, 60*time.Second, "objects can be made", func() error {
		_, err := c.runKubectl(manifests, "apply", "--filename=-")
		return err
	})
}

func (c *testCluster) runKubectl(in string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(c.bin, "kubectl"), append([]string{"--kubeconfig=" + c.pathOf("admin.conf")}, args...)...)
	cmd.Stdin = strings.NewReader(in)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

package engine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/container"
	"gpuard/test/executable"
)

// scripted is an engine whose command is a shell script, on a machine with a CDI file.
func scripted(t *testing.T, name, script string, env ...string) (Engine, *machine.Host) {
	t.Helper()
	root := t.TempDir()
	path := filepath.Join(root, name)
	executable.Write(t, path, []byte("#!/bin/sh\n"+script+"\n"))
	if err := os.MkdirAll(filepath.Join(root, "etc/cdi"), 0o755); err != nil { //nolint:gosec // a test's folder
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/cdi/nvidia.yaml"), []byte("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: \"0\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Engine{name, []string{path}, append(env, "PATH=/usr/bin:/bin", "USER=ann")}, &machine.Host{Root: root}
}

// TestFacts: what is read of each engine, and the one line where it cannot be used.
func TestFacts(t *testing.T) {
	t.Parallel()
	const (
		docker = `case $1 in context) echo unix:///var/run/docker.sock ;; info) echo '%s' ;; esac`
		podman = `{"host": {"security": {"rootless": true, "selinuxEnabled": true}}, "version": {"Version": "5.4.0"}}`
	)
	info := func(text string) string { return strings.Replace(docker, "%s", text, 1) }
	for name, c := range map[string]struct {
		engine, script, env string
		options             string // before a command
		want                container.Facts
		err                 string
	}{
		"podman":                   {engine: "podman", script: "echo '" + podman + "'", want: container.Facts{Engine: "podman", Rootless: true, CDI: true, SELinux: true}},
		"docker with CDI":          {engine: "docker", script: info(`{"ServerVersion": "28.3.0", "CDISpecDirs": ["/etc/cdi"], "SecurityOptions": ["name=rootless"], "Runtimes": {"runc": {}}}`), want: container.Facts{Engine: "docker", Rootless: true, CDI: true}},
		"toolkit":                  {engine: "docker", script: info(`{"ServerVersion": "20.10.24", "Runtimes": {"nvidia": {}}}`), want: container.Facts{Engine: "docker", Toolkit: true}},
		"podman-docker":            {engine: "docker", script: "echo 'Emulate Docker CLI using podman.' >&2; [ $1 = info ] && echo '" + podman + "'; true", want: container.Facts{Engine: "podman", Rootless: true, CDI: true, SELinux: true}},
		"no daemon":                {engine: "docker", script: info(`{"ServerErrors": ["Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"]}`), err: "its daemon does not run; start it: sudo systemctl start docker"},
		"no right":                 {engine: "docker", script: "[ $1 = context ] || { echo 'permission denied while trying to connect to the Docker daemon socket' >&2; exit 1; }", err: "you may not open its socket; ask the administrator for the group docker (sudo usermod -aG docker ann"},
		"nonsense":                 {engine: "docker", script: info("{}"), err: "docker info says nothing that gpuard understands"},
		"podman elsewhere":         {engine: "podman", script: `echo '{"host": {"serviceIsRemote": true}, "version": {"Version": "5.4.0"}}'`, err: "podman works with a service"},
		"podman without a version": {engine: "podman", script: "echo '{}'", err: "cannot ask podman: it does not say its version; see: podman info"},
		"fails":                    {engine: "podman", script: "echo first >&2; echo 'Error: no subuid ranges' >&2; exit 125", err: "cannot ask podman: Error: no subuid ranges; see: podman info"},
		"far, by context":          {engine: "docker", script: "echo ssh://far", err: "docker works with ssh://far"},
		"far, by a flag":           {engine: "docker", script: info("{}"), env: "DOCKER_HOST=unix:///var/run/docker.sock", options: "-H tcp://192.0.2.1:2375", err: "docker works with tcp://192.0.2.1:2375"},
		"far, by one word":         {engine: "docker", script: info("{}"), env: "DOCKER_HOST=unix:///var/run/docker.sock", options: "--debug --host=ssh://far", err: "docker works with ssh://far"},
		"far, by a chosen context": {engine: "docker", script: `[ "$1 $2" = "--context far" ] && echo ssh://far`, env: "DOCKER_HOST=unix:///var/run/docker.sock", options: "--context far", err: "docker works with ssh://far"},
		"far, by the environment":  {engine: "docker", script: info("{}"), env: "DOCKER_HOST=tcp://192.0.2.1:2375", err: "docker works with tcp://192.0.2.1:2375"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, host := scripted(t, c.engine, c.script, c.env)
			e.Prefix = append(e.Prefix, strings.Fields(c.options)...)
			f, err := e.Facts(t.Context(), host)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%v, want %s", err, c.err)
				}
				return
			}
			if names := strings.Join(f.Names, " "); err != nil || names != "nvidia.com/gpu=0" {
				t.Errorf("%v; CDI lists %q", err, names)
			}
			f.Names, f.Files = nil, nil
			if f.Engine != c.want.Engine || f.Rootless != c.want.Rootless || f.CDI != c.want.CDI || f.Toolkit != c.want.Toolkit || f.SELinux != c.want.SELinux {
				t.Errorf("%+v, want %+v", f, c.want)
			}
		})
	}
}

// TestOf: the options that choose the engine are kept for its questions, and the verb is not.
func TestOf(t *testing.T) {
	t.Parallel()
	_, host := scripted(t, "docker", "true")
	for line, want := range map[string]string{
		"/bin/docker run image": "", "/bin/docker --context far container run image": "--context far", "/bin/docker -H unix:///x start a": "-H unix:///x",
	} {
		words := strings.Fields(line)
		words[0] = filepath.Join(host.Root, "docker")
		call, err := container.ReadCall(words)
		if err != nil {
			t.Fatal(err)
		}
		e, err := FindEngine(host, call)
		if err != nil || strings.Join(e.Prefix[1:], " ") != want {
			t.Errorf("%s: %q %v", line, e.Prefix, err)
		}
	}
}

// TestLasting: what is passed on a command line has no secrets of the environment.
func TestLasting(t *testing.T) {
	t.Parallel()
	e := Engine{"docker", []string{"/usr/bin/docker"}, []string{"HF_TOKEN=secret", "HOME=/home/ann", "DOCKER_HOST=unix:///x", "AWS_SECRET_ACCESS_KEY=b"}}
	word, err := json.Marshal(Watch{Engine: e.ForHolder(), Lease: "k3f9"})
	text := string(word)
	if err != nil || strings.Contains(text, "secret") || strings.Contains(text, "AWS") || !strings.Contains(text, "DOCKER_HOST=unix:///x") {
		t.Errorf("%s %v", text, err)
	}
	var w Watch
	err = json.Unmarshal(word, &w)
	if err != nil || w.Lease != "k3f9" || w.Prefix[0] != "/usr/bin/docker" || w.Names != nil {
		t.Errorf("%+v %v", w, err)
	}
}

// TestLook: paths are looked up from the caller's folder and without links, device files by their numbers, and what volumes,
// containers and pods show by the engine's own answers.
func TestLook(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.MkdirAll("a/b", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"link": "/dev", "a/b/far": "/proc", "nowhere": "/dev/none-such"} {
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	e, _ := scripted(t, "podman", `case "$*" in
"volume inspect devs none") echo '[{"Name": "devs", "Options": {"type": "none", "o": "bind", "device": "/dev"}}]'; echo 'Error: no such volume none' >&2; exit 1 ;;
"volume inspect evil plain") echo '[{"Name": "evil", "Options": {"type": "none", "o": "bind", "device": "/dev"}}, {"Name": "plain", "Options": null}]' ;;
"volume inspect over") echo '[{"Name": "over", "Options": {"type": "overlay", "o": "lowerdir=/proc"}}]' ;;
"inspect --type container filled") echo '[{"Id": "2", "Mounts": [{"Type": "volume", "Name": "evil", "Source": "/x"}, {"Type": "volume", "Name": "plain", "Source": "/y"}]}]' ;;
"pod inspect six") echo '[{"mounts": [{"Type": "volume", "Name": "over", "Source": "/x"}]}]' ;;
"inspect --type container greedy") echo '[{"Id": "1", "Mounts": [{"Type": "bind", "Source": "/proc"}, {"Type": "volume", "Source": "/x"}]}]' ;;
"inspect --type container unsaid") echo '[{"Id": "3", "Mounts": [{"Type": "volume", "Name": "silent"}]}]' ;;
"pod inspect four") echo '{"devices": [{"PathOnHost": "/dev/nvidia3"}], "mounts": [{"Type": "bind", "Source": "/srv"}]}' ;;
"pod inspect five") echo '[{"devices": [{"PathOnHost": "/dev/nvidia2"}]}]' ;;
*) exit 9 ;;
esac`)
	found, err := e.LookUp(t.Context(), container.Lookups{
		Paths: []string{"./link", "a/b/far/../dev", "link/none", "/dev/null"}, Patterns: []string{"lin?", "none*"}, Volumes: []string{"devs", "none"}, Containers: []string{"greedy", "filled"}, Pods: []string{"four", "five", "six"},
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	dir, _ = filepath.EvalSymlinks(dir)
	for what, c := range map[string]struct {
		got  []string
		want string
	}{
		"a link":                   {found.Paths["./link"], "/dev /dev"},
		"dots behind a link":       {found.Paths["a/b/far/../dev"], "/dev " + dir + "/a/b/dev"},
		"what is not there":        {found.Paths["link/none"], "/dev/none /dev/none"},
		"a file":                   {found.Paths["/dev/null"], "/dev/null /dev/null"},
		"a pattern":                {found.Paths["lin?"], "/dev /dev"},
		"a pattern without a file": {found.Paths["none*"], ""},
		"a volume":                 {found.Volumes["devs"], "/dev /dev"},
		"a container":              {found.Others["greedy"], "/proc /proc"},
		"a container's volumes":    {found.Others["filled"], "/dev /dev"},
		"a pod's volumes":          {found.Others["six"], "/proc /proc"},
		"a pod of podman 4":        {found.Others["four"], "/srv /srv /dev/nvidia3 /dev/nvidia3"},
		"a pod of podman 5":        {found.Others["five"], "/dev/nvidia2 /dev/nvidia2"},
	} {
		if got := strings.Join(c.got, " "); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
	if !found.Rootless || found.Dir != dir {
		t.Errorf("%+v", found)
	}
	for _, asked := range []container.Lookups{{Volumes: []string{"silent"}}, {Containers: []string{"unsaid"}}} {
		if _, err := e.LookUp(t.Context(), asked, false); err == nil {
			t.Errorf("an engine that does not answer about %+v is believed", asked)
		}
	}
}

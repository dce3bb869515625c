package container

import (
	"slices"
	"strings"
)

// grammar is how the options of a command are written. An option of neither list is refused: whether it takes a value,
// and what it gives the container, is not known.
type grammar struct {
	// Options without a value.
	switches string
	valued   string // options with one
	// Short forms: "d=detach".
	letters string
}

// judgedSwitches and judgedValues are the options of run and create that decide what a container can open: see
// judge.go. The others are known to be harmless.
const (
	judgedSwitches = "--privileged --rootfs --use-api-socket"
	judgedValues   = "--annotation --cap-add --cdi-spec-dir --cgroup-manager --cgroups --default-mounts-file --device --device-cgroup-rule --env --gpus --hooks-dir --label --mount --pid --pod --pod-id-file " +
		"--restart --runtime --runtime-flag --security-opt --volume --volumes-from"
)

// runGrammar is that of run and create of docker 29, of podman 4 to 6 with what podman takes after a verb, too, and of
// compose run.
//
// docker/cli: cli/command/container/opts.go; containers/podman: cmd/podman/common/create.go, cmd/podman/root.go;
// docker/compose: docs/reference/docker_compose_run.yaml.
func runGrammar() grammar {
	return grammar{
		switches: judgedSwitches + " --detach --disable-content-trust --help --init --interactive --no-healthcheck --oom-kill-disable --publish-all --quiet --read-only --rm --sig-proxy --tty " +
			"--env-host --http-proxy --no-hostname --no-hosts --passwd --read-only-tmpfs --replace --rmi --syslog --tls-verify --trace --transient-store --unsetenv-all " +
			"--build --dry-run --no-tty --no-deps --quiet-build --quiet-pull --remove-orphans --service-ports --use-aliases",
		valued: judgedValues + " --add-host --arch --attach --authfile --blkio-weight --blkio-weight-device --cap-drop --cert-dir --cgroup-conf --cgroup-parent --cgroupns --chrootdirs --cidfile --cni-config-dir --conmon " +
			"--conmon-pidfile --cpu-count --cpu-percent --cpu-period --cpu-profile --cpu-quota --cpu-rt-period --cpu-rt-runtime --cpu-shares --cpus --cpuset-cpus --cpuset-mems --creds --db-backend --decryption-key --detach-keys " +
			"--device-read-bps --device-read-iops --device-write-bps --device-write-iops --dns --dns-opt --dns-option --dns-search --domainname --entrypoint --env-file --env-from-file --env-merge --events-backend " +
			"--expose --gidmap --group-add --group-entry --health-cmd --health-interval --health-log-destination --health-max-log-count --health-max-log-size --health-on-failure --health-retries --health-start-interval " +
			"--health-start-period --health-startup-cmd --health-startup-interval --health-startup-retries --health-startup-success --health-startup-timeout --health-timeout --healthcheck-command --healthcheck-interval " +
			"--healthcheck-retries --healthcheck-start-period --healthcheck-timeout --hostname --hosts-file --hostuser --image-volume --imagestore --init-ctr --init-path --io-maxbandwidth --io-maxiops --ip --ip6 --ipc " +
			"--isolation --kernel-memory --label-file --link --link-local-ip --log-driver --log-level --log-opt --mac-address --max-workers --memory --memory-profile --memory-reservation --memory-swap --memory-swappiness " +
			"--name --namespace --net --net-alias --network --network-alias --network-backend --network-cmd-path --network-config-dir --oom-score-adj --os --override-arch --override-os --override-variant --passwd-entry " +
			"--personality --pidfile --pids-limit --platform --preserve-fd --preserve-fds --publish --pull --pull-option --rdt-class --registries-conf --requires --retry --retry-delay --root --runroot --sdnotify " +
			"--seccomp-policy --secret --shm-size --shm-size-systemd --signature-policy --stop-signal --stop-timeout --storage-driver --storage-opt --subgidname --subuidname --sysctl --systemd --timeout --tmpdir --tmpfs " +
			"--tz --uidmap --ulimit --umask --unsetenv --user --userns --uts --variant --volume-driver --volumepath --workdir",
		letters: "a=attach c=cpu-shares d=detach e=env h=hostname i=interactive l=label m=memory p=publish P=publish-all q=quiet t=tty T=no-tty u=user v=volume w=workdir",
	}
}

// globalGrammar is that of the options before a command.
//
// docker/cli: cli/flags/options.go; containers/podman: cmd/podman/root.go.
func globalGrammar() grammar {
	return grammar{
		switches: "--debug --help --noout --remote --syslog --tls --tlsverify --trace --transient-store --version",
		valued: "--address --cdi-spec-dir --cgroup-manager --cni-config-dir --config --conmon --connection --context --cpu-profile --db-backend --default-mounts-file --events-backend --hooks-dir --host --identity --imagestore " +
			"--log-level --max-workers --memory-profile --module --namespace --network-backend --network-cmd-path --network-config-dir --out --pull-option --registries-conf --root --runroot --runtime --runtime-flag --ssh " +
			"--storage-driver --storage-opt --tls-ca --tls-cert --tls-details --tls-key --tlscacert --tlscert --tlskey --tmpdir --url --volumepath",
		letters: "c=context D=debug H=host h=help l=log-level n=namespace r=remote v=version",
	}
}

// composeGrammar is that of the options between compose and its own command.
func composeGrammar() grammar {
	return grammar{
		switches: "--all-resources --compatibility --dry-run --help --no-ansi --verbose --version",
		valued:   "--ansi --env-file --file --insecure-registry --parallel --profile --progress --project-directory --project-name --workdir",
		letters:  "f=file h=help p=project-name v=version",
	}
}

// upGrammar is that of compose up (docker/compose: docs/reference/docker_compose_up.yaml).
func upGrammar() grammar {
	return grammar{
		switches: "--abort-on-container-exit --abort-on-container-failure --always-recreate-deps --attach-dependencies --build --detach --dry-run --force-recreate --help --menu --no-build --no-color --no-deps --no-log-prefix " +
			"--no-recreate --no-start --quiet-build --quiet-pull --remove-orphans --renew-anon-volumes --timestamps --wait --watch --yes",
		valued:  "--attach --exit-code-from --no-attach --pull --scale --timeout --wait-timeout",
		letters: "d=detach h=help t=timeout V=renew-anon-volumes w=watch y=yes",
	}
}

// startGrammar is that of start and restart.
func startGrammar() grammar {
	return grammar{
		switches: "--all --attach --help --interactive --latest --running --sig-proxy",
		valued:   "--checkpoint --checkpoint-dir --cidfile --detach-keys --filter --signal --time --timeout",
		letters:  "a=attach f=filter h=help i=interactive l=latest s=signal t=timeout",
	}
}

// execGrammar is that of exec.
func execGrammar() grammar {
	return grammar{
		switches: "--detach --dry-run --help --interactive --latest --no-session --no-tty --privileged --tty",
		valued:   "--cidfile --detach-keys --env --env-file --index --preserve-fd --preserve-fds --user --wait --workdir",
		letters:  "d=detach e=env h=help i=interactive l=latest T=no-tty t=tty u=user w=workdir",
	}
}

// optionAliases are other names that compose gives its options (docker/compose: cmd/compose/run.go, exec.go, up.go).
func optionAliases() map[string]string {
	return map[string]string{"--volumes": "--volume", "--labels": "--label", "--no-TTY": "--no-tty", "--y": "--yes"}
}

// takesNone reports whether an option takes no value.
func (g grammar) takesNone(name string) bool {
	return slices.Contains(strings.Fields(g.switches), name)
}

// takesOne reports whether an option takes a value.
func (g grammar) takesOne(name string) bool {
	return slices.Contains(strings.Fields(g.valued), name)
}

// longName is the long name of a letter, "" for one that the command does not have.
func (g grammar) longName(letter byte) string {
	for pair := range strings.FieldsSeq(g.letters) {
		if pair[0] == letter {
			return "--" + pair[2:]
		}
	}
	return ""
}

// TakesNoValue reports whether an option of run or create takes no value, in its long form or as one letter: "--rm",
// "-t". All others take one.
func TakesNoValue(name string) bool {
	g := runGrammar()
	if len(name) == 2 {
		return g.takesNone(g.longName(name[1]))
	}
	return g.takesNone(name)
}

// GlobalValues are the options before a command that take a value.
func GlobalValues() []string { return globalGrammar().valuedOptions() }

// valuedOptions are the options with a value, in both forms.
func (g grammar) valuedOptions() []string {
	all := strings.Fields(g.valued)
	for pair := range strings.FieldsSeq(g.letters) {
		if g.takesOne("--" + pair[2:]) {
			all = append(all, "-"+pair[:1])
		}
	}
	return all
}

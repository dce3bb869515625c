package container

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// harmlessKeys are the keys of a service that show its container nothing of the machine, or that are judged here. Keys
// that begin with x- are the project's own (compose-spec/compose-go: types/types.go).
const harmlessKeys = "annotations attach blkio_config build cap_add cap_drop cgroup cgroup_parent command configs container_name cpu_count cpu_percent cpu_period cpu_quota cpu_rt_period cpu_rt_runtime cpu_shares cpus cpuset " +
	"credential_spec depends_on deploy develop device_cgroup_rules devices dns dns_opt dns_search dockerfile domainname entrypoint env_file environment expose extends external_links extra_hosts gpus group_add healthcheck " +
	"hostname image init ipc isolation label_file labels links log_driver log_opt logging mac_address mem_limit mem_reservation mem_swappiness memswap_limit name net network_mode networks oom_kill_disable oom_score_adj " +
	"pid pids_limit platform ports post_start pre_start pre_stop privileged profiles pull_policy read_only restart runtime scale secrets security_opt shm_size stdin_open stop_grace_period stop_signal storage_opt sysctls " +
	"tmpfs tty ulimits use_api_socket user userns_mode uts volume_driver volumes volumes_from working_dir"

// mapping is a part of a project in JSON.
type mapping = map[string]any

// grants is what a service has of the machine beside GPUs.
type grants struct {
	shown []source
	// The settings as options of docker run: "--cap-add", "SYS_ADMIN".
	settings [][2]string
	// What is refused on every machine.
	wrong string
}

// grantsOf reads a service of a project.
func grantsOf(project, service mapping) grants {
	s := grants{}
	for _, key := range keysOf(service) {
		if !slices.Contains(strings.Fields(harmlessKeys), key) && !strings.HasPrefix(key, "x-") {
			s.wrong = "gpuard does not know what its key " + key + " gives the container"
		}
	}

	for key, option := range map[string]string{
		"privileged": "--privileged", "use_api_socket": "--use-api-socket", "cap_add": "--cap-add", "security_opt": "--security-opt", "device_cgroup_rules": "--device-cgroup-rule",
		"pid": "--pid", "runtime": "--runtime", "annotations": "--annotation",
	} {
		s.addSetting(option, service[key])
	}

	for _, hook := range slices.Concat(asList(service["post_start"]), asList(service["pre_start"]), asList(service["pre_stop"])) {
		s.addSetting("--privileged", asMapping(hook)["privileged"])
	}

	build := asMapping(service["build"])
	s.addSetting("--privileged", build["privileged"])

	for _, right := range asList(build["entitlements"]) {
		if text := fmt.Sprint(right); strings.HasPrefix(text, "device") || strings.HasPrefix(text, "security") {
			s.wrong = "its build asks for " + text
		}
	}

	for _, volume := range asList(service["volumes"]) {
		s.addVolume(project, volume)
	}

	for _, kind := range []string{"configs", "secrets"} {
		for _, entry := range asList(service[kind]) {
			file, _ := asMapping(asMapping(project[kind])[textOr(asMapping(entry)["source"], entry)])["file"].(string)
			s.addSource(source{"path", file, true})
		}
	}

	for _, from := range asList(service["volumes_from"]) {
		s.addFrom(project, fmt.Sprint(from))
	}

	return s
}

// textOr is the first of two values that is text.
func textOr(a, b any) string {
	if text, ok := a.(string); ok {
		return text
	}
	text, _ := b.(string)
	return text
}

// addSetting notes a setting, of which there may be several.
func (g *grants) addSetting(option string, value any) {
	switch value := value.(type) {
	case nil:
	case []any, mapping:
		for _, one := range keysOf(value) {
			g.settings = append(g.settings, [2]string{option, one})
		}
	default:
		g.settings = append(g.settings, [2]string{option, fmt.Sprint(value)})
	}
}

func (g *grants) addSource(one source) {
	if one.name != "" && !strings.Contains(one.name, "$") {
		g.shown = append(g.shown, one)
	}
}

// addVolume reads an entry of volumes, in either form.
func (g *grants) addVolume(project mapping, entry any) {
	var sources []source
	why := ""
	if text, short := entry.(string); short {
		sources, why = readVolume(text)
	} else {
		e := asMapping(entry)
		kind, _ := e["type"].(string)
		from, _ := e["source"].(string)
		only, _ := e["read_only"].(bool)
		if target := fmt.Sprint(e["target"]); strings.Contains(target, mountFolderName) {
			why = "it chooses devices that are not of the lease"
		}

		switch kind {
		case "bind":
			sources = []source{{"path", from, only}}
		case "", "volume":
			sources = []source{newSource(from, only)}
		case "tmpfs", "image", "cluster":
		default:
			why = "gpuard does not know mounts of the type " + kind
		}
	}

	if why != "" {
		g.wrong = "of its volumes: " + why
	}

	for _, one := range sources {
		volume := asMapping(asMapping(project["volumes"])[one.name])
		if one.kind == "volume" && volume != nil {
			for key, value := range asMapping(volume["driver_opts"]) {
				for _, file := range driverPaths(fmt.Sprintf("%s=%v", key, value)) {
					file.only = one.only
					g.addSource(file)
				}
			}
			if name, _ := volume["name"].(string); name != "" {
				// As the engine has it.
				one.name = name
			}
		}
		g.addSource(one)
	}
}

// addFrom reads an entry of volumes_from: a service of the project, or container:NAME.
func (g *grants) addFrom(project mapping, entry string) {
	name, of, _ := strings.Cut(entry, ":")
	if name == "container" {
		name, _, _ = strings.Cut(of, ":")
		g.addSource(source{kind: "container", name: name})
		return
	}

	for _, volume := range asList(asMapping(asMapping(project["services"])[name])["volumes"]) {
		g.addVolume(project, volume)
	}
}

// RefusalReason is why gpuard does not start the service, whatever the machine; "" it does.
func (s Service) RefusalReason() string { return s.reasonAgainst(Found{}) }

// reasonAgainst is why the service must not be started beside a lease; "" it may.
func (s Service) reasonAgainst(found Found) string {
	if why := cmp.Or(s.wrong, s.grants.wrong); why != "" {
		return why
	}

	for _, setting := range s.settings {
		name, value := setting[0], setting[1]
		if strings.Contains(value, "$") {
			continue
		}
		if why := found.judgeSetting(name, value); why != "" {
			return strings.ReplaceAll(strings.TrimPrefix(name, "--"), "-", "_") + ": " + value + ": " + why
		}
	}

	for _, one := range s.shown {
		if why := found.judgeSource(one); why != "" {
			return one.name + " among its volumes: " + why
		}
	}

	for _, device := range s.files {
		if strings.Contains(device, "$") {
			continue
		}
		if _, why := (Call{found: found}).judgeDevice(device, Form{}); why != "" {
			return "its device " + device + ": " + why
		}
	}

	return ""
}

// NeededLookups is what has to be looked up before the services are judged.
func (p Project) NeededLookups() (a Lookups) {
	for _, s := range p.Services {
		for _, one := range s.shown {
			a.addSource(one)
		}
		for _, device := range s.files {
			if file, _, _ := strings.Cut(device, ":"); !isQualified(device) {
				a.addSource(source{kind: "path", name: file})
			}
		}
	}
	return a
}

// WithFound is the project with what was looked up.
func (p Project) WithFound(found Found) Project {
	p.found = found
	return p
}

// WithVariables is the project as it is with its variables: what they stand for is judged. filled was read of the same
// files.
func (p Project) WithVariables(filled Project) Project {
	p.Services = slices.Clone(p.Services)
	for i, s := range p.Services {
		for _, other := range filled.Services {
			if other.Name == s.Name {
				p.Services[i].grants, p.Services[i].files, p.Services[i].list = other.grants, other.files, other.list
			}
		}
	}
	return p
}

func asList(v any) []any {
	all, _ := v.([]any)
	return all
}

func asMapping(v any) mapping {
	m, _ := v.(mapping)
	return m
}

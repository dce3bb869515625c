package container

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
)

// Project is what docker compose config --no-interpolate --format json says of a project.
type Project struct {
	Name     string
	Services []Service // by name
	// What was looked up of NeededLookups.
	found Found
}

// Service is one service of a project, as far as GPUs are concerned.
type Service struct {
	Name string
	// How many it asks for; 0: none.
	GPUs int
	// It asks for all of them, and GPUs is 1.
	All bool
	// Its GPUs come from gpuard, by the file that gpuard setup docker writes.
	Ours bool
	grants
	needs []string
	// Keys that choose GPUs in another way: "gpus", "runtime".
	reset []string
	// Its devices that are no GPUs.
	files []string
	// Which GPUs its environment asks NVIDIA's runtime for: "all".
	list string
	// Some of its devices are GPUs.
	named bool
	// Why it cannot be kept to the GPUs of a lease; "" it can.
	wrong string
}

// composeService is the part of a service that is read. Compose leaves some values as they were typed, so these may
// have several types.
type composeService struct {
	DependsOn   any `json:"depends_on"`
	GPUs        any
	Runtime     string
	Devices     []any
	Environment any
	Scale       any
	Deploy      struct {
		Replicas  any
		Resources struct {
			Reservations struct{ Devices []any }
		}
	}
}

// ReadProject reads that answer.
func ReadProject(text []byte) (Project, error) {
	var all struct {
		Name     string
		Services map[string]composeService
	}

	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&all); err != nil {
		return Project{}, err
	}

	var project mapping
	if err := json.Unmarshal(text, &project); err != nil {
		return Project{}, err
	}

	p := Project{Name: all.Name}
	variables := map[string]string{}
	for name, c := range all.Services {
		s := c.readService(name)
		s.grants = grantsOf(project, asMapping(asMapping(project["services"])[name]))
		if other, taken := variables[s.variableName("")]; taken && s.GPUs > 0 {
			return p, fmt.Errorf("the services %s and %s cannot be told apart by a variable: rename one", min(name, other), max(name, other))
		}

		variables[s.variableName("")] = name
		p.Services = append(p.Services, s)
	}

	slices.SortFunc(p.Services, func(a, b Service) int { return strings.Compare(a.Name, b.Name) })

	return p, nil
}

func (c composeService) readService(name string) Service {
	s := Service{Name: name, needs: keysOf(c.DependsOn)}
	env := readAssignments(c.Environment)
	wishes := append([]any{}, c.Deploy.Resources.Reservations.Devices...)
	if c.GPUs != nil {
		s.reset = append(s.reset, "gpus")
		if list, ok := c.GPUs.([]any); ok {
			wishes = append(wishes, list...)
		} else {
			wishes = append(wishes, map[string]any{"count": "all"})
		}
	}

	for _, w := range wishes {
		s.addWish(w)
	}

	for _, d := range c.Devices {
		file, _, _ := strings.Cut(hostPathOf(d), ":")
		if drop, _ := judgeQualified(file); isQualified(file) && drop != "" || opensGPU(file) || file == "/dev/kfd" || strings.HasPrefix(file, "/dev/nvidia") && judgePath(file) == "" {
			s.named = true
			if strings.HasSuffix(file, "=all") {
				s.All = true
			} else if file != "/dev/kfd" && (strings.Contains(file, "=") || opensGPU(file)) {
				s.GPUs++
			}
			continue
		}
		s.files = append(s.files, deviceText(d))
	}

	if c.Runtime == "nvidia" {
		s.reset = append(s.reset, "runtime")
		if list := env["NVIDIA_VISIBLE_DEVICES"]; s.GPUs == 0 && !s.All && list != "void" && list != "none" {
			s.All = list == "all" || list == ""
			s.GPUs = strings.Count(list, ",") + 1
		}
	}

	if s.All {
		s.GPUs = 1
	}

	s.list = env["NVIDIA_VISIBLE_DEVICES"]
	s.judgeService(c, env)

	return s
}

// opensGPU reports whether a path is a device file of one GPU, or the folder of those of DRM.
func opensGPU(file string) bool { return isGPUFile(file) || isWithin(file, "/dev/dri") }

// addWish counts one entry of deploy.resources.reservations.devices or of gpus.
func (s *Service) addWish(entry any) {
	e, _ := entry.(map[string]any)
	driver, _ := e["driver"].(string)
	capable, _ := e["capabilities"].([]any)
	if len(capable) > 0 && !slices.Contains(capable, any("gpu")) && !slices.Contains(capable, any("nvidia")) && driver != "nvidia" && driver != "cdi" {
		// A device of another kind.
		return
	}

	ids, _ := e["device_ids"].([]any)
	s.Ours = s.Ours || strings.HasPrefix(driver, "${"+driverVariable)
	n, err := strconv.Atoi(fmt.Sprint(e["count"]))
	switch {
	case len(ids) > 0:
		s.GPUs += len(ids)
	case err == nil && n >= 0:
		s.GPUs += n
	default:
		s.All = true
	}
}

// judgeService sets why a service cannot be kept to the GPUs of a lease, whatever else of the machine it has.
func (s *Service) judgeService(c composeService, env map[string]string) {
	for name, value := range env {
		if name != "NVIDIA_VISIBLE_DEVICES" && (Form{}).judgeEnv(name) == byLeaseReason && !givesNone(value) {
			s.wrong = fmt.Sprintf("it sets %s=%s, by which a runtime gives it devices that are not of the lease", name, value)
		}
	}

	if s.GPUs == 0 {
		return
	}

	if s.GPUs > 1024 {
		s.wrong = fmt.Sprintf("it asks for %d GPUs", s.GPUs)
	}

	for _, many := range []any{c.Scale, c.Deploy.Replicas} {
		if n, err := strconv.Atoi(fmt.Sprint(many)); err == nil && n > 1 {
			s.wrong = fmt.Sprintf("%d containers of it would share the same GPUs: write a service for each", n)
		}
	}

	for _, name := range []string{"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"} {
		if value, set := env[name]; set {
			if why := (Form{count: s.GPUs}).judgeEnv(name + "=" + value); why != "" {
				s.wrong = fmt.Sprintf("it sets %s=%s: %s", name, value, why)
			}
		}
	}
}

// hostPathOf is the path of the machine in an entry of devices or volumes.
func hostPathOf(entry any) string {
	if e, ok := entry.(map[string]any); ok {
		text, _ := e["source"].(string)
		return text
	}
	text, _ := entry.(string)
	return text
}

func deviceText(entry any) string {
	e, ok := entry.(map[string]any)
	if !ok {
		return hostPathOf(entry)
	}

	text := hostPathOf(entry)
	for _, key := range []string{"target", "permissions"} {
		if part, _ := e[key].(string); part != "" {
			text += ":" + part
		}
	}

	return text
}

// keysOf are those of a mapping, or the entries of a list.
func keysOf(v any) []string {
	switch v := v.(type) {
	case map[string]any:
		return slices.Collect(maps.Keys(v))
	case []any:
		return prose.Texts(v, func(name any) string { return fmt.Sprint(name) })
	}
	return nil
}

// readAssignments reads an environment in both of its forms.
func readAssignments(v any) map[string]string {
	env := map[string]string{}
	if table, ok := v.(map[string]any); ok {
		for name, value := range table {
			env[name] = ""
			if value != nil {
				env[name] = fmt.Sprint(value)
			}
		}
		return env
	}

	for _, pair := range keysOf(v) {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}

	return env
}

// Variables of a project.
const (
	driverVariable = "GPUARD_COMPOSE_DRIVER"
	leaseVariable  = "GPUARD_COMPOSE_LEASE"
)

// variableName is the name of a variable of a service: GPUARD_, the name of service my-web as MY_WEB_, and 1 for its
// first GPU.
func (s Service) variableName(what string) string {
	name := strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return unicode.ToUpper(r)
		}
		return '_'
	}, s.Name)
	return "GPUARD_" + name + "_" + what
}

// givesNone reports whether a list of GPUs gives a container none.
func givesNone(devices string) bool { return slices.Contains([]string{"", "void", "none"}, devices) }

// OverrideText is the text of a file that, read after the project's own, gives each service the GPUs that variables
// name. Without the variables docker compose ps, logs and down work, and the engine starts no service with a GPU.
func (p Project) OverrideText(command string) (string, error) {
	b := &strings.Builder{}
	b.WriteString(option.Sprintf("# Written by gpuard. The GPUs of each service are leased by: %s\n# Remove it with: {gpuard setup docker} {compose=FILE} {remove}\nservices:\n", command))

	for _, s := range p.Services {
		if why := s.reasonAgainst(p.found); why != "" && s.GPUs > 0 {
			return "", fmt.Errorf("cannot keep service %s to its GPUs: %s", s.Name, why)
		}

		fmt.Fprintf(b, "  %q:\n", s.Name)
		if s.GPUs == 0 {
			// An image may ask for all GPUs, where NVIDIA's runtime is the default.
			b.WriteString("    environment:\n      NVIDIA_VISIBLE_DEVICES: void\n")
			continue
		}

		for _, key := range s.reset {
			fmt.Fprintf(b, "    %s: !reset null\n", key)
		}

		if s.named {
			fmt.Fprintf(b, "    devices: !override [%s]\n", strings.Join(prose.Texts(s.files, strconv.Quote), ", "))
		}

		var ids []string
		for i := range s.GPUs {
			ids = append(ids, fmt.Sprintf("%q", "${"+s.variableName(strconv.Itoa(i+1))+":-none-"+strconv.Itoa(i+1)+"}"))
		}

		fmt.Fprintf(b, "    deploy:\n      resources:\n        reservations:\n          devices: !override\n            - driver: %q\n              device_ids: [%s]\n              capabilities: [gpu]\n",
			"${"+driverVariable+":-start it by: "+command+"}", strings.Join(ids, ", "))

		fmt.Fprintf(b, "    environment:\n      NVIDIA_VISIBLE_DEVICES: \"${%s:-void}\"\n", s.variableName("VISIBLE"))
		fmt.Fprintf(b, "    labels:\n      gpuard.lease: \"${%s:-}\"\n      gpuard.devices: \"${%s:-}\"\n", leaseVariable, s.variableName("DEVICES"))
	}

	return b.String(), nil
}

// LeasingServices are the services with GPUs that a compose up or run starts, by name. It fails where one that it
// starts, with GPUs or without, cannot be kept to a lease.
func (c Call) LeasingServices(p Project) (leasing []Service, err error) {
	all, err := c.servicesReached(p)
	if err != nil {
		return nil, err
	}

	for _, s := range all {
		if err := s.startError(p.found); err != nil {
			return nil, err
		}
		if s.GPUs > 0 {
			leasing = append(leasing, s)
		}
	}

	for _, o := range c.options {
		if service, n, given := strings.Cut(o.value, "="); o.name == "--scale" && given && n != "0" && n != "1" && slices.ContainsFunc(leasing, func(s Service) bool { return s.Name == service }) {
			return nil, fmt.Errorf("cannot start %s containers of service %s: they would share the same GPUs; write a service for each", n, service)
		}
	}

	return leasing, nil
}

// servicesReached are the services that a compose up or run starts: those named, or all, with those that they need.
func (c Call) servicesReached(p Project) (all []Service, err error) {
	names := c.inside
	switch {
	case c.Verb == "compose run":
		names = []string{c.firstOperand()}
	case len(names) == 0:
		for _, s := range p.Services {
			names = append(names, s.Name)
		}
	}

	todo, done := slices.Clone(names), map[string]bool{}
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		i := slices.IndexFunc(p.Services, func(s Service) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("cannot start service %s: the project %s has none of that name, or it is in a profile that is not chosen (--profile)", name, p.Name)
		}
		if done[name] {
			continue
		}

		done[name] = true
		all = append(all, p.Services[i])
		if !c.HasOption("--no-deps") {
			todo = append(todo, p.Services[i].needs...)
		}
	}

	slices.SortFunc(all, func(a, b Service) int { return strings.Compare(a.Name, b.Name) })

	return all, nil
}

// startError is why the service cannot be started with a lease; nil it can.
func (s Service) startError(found Found) error {
	why := s.reasonAgainst(found)
	switch {
	case s.GPUs > 0 && !s.Ours:
		return option.Errorf("cannot lease for service %s: no file gives it the GPUs of a lease; write one: {gpuard setup docker} {compose=FILE}", s.Name)
	case s.Ours && (s.named || len(s.reset) > 0):
		return option.Errorf("cannot lease for service %s: it asks for GPUs in another way than when its file was written; write it again: {gpuard setup docker} {compose=FILE}", s.Name)
	case why != "" && s.GPUs > 0:
		return fmt.Errorf("cannot keep service %s to its GPUs: %s", s.Name, why)
	case why != "":
		return fmt.Errorf("cannot start service %s beside a lease: %s; start it without gpuard (docker compose up -d %s), and here the others by name", s.Name, why, s.Name)
	case s.GPUs == 0 && !givesNone(s.list):
		return option.Errorf("cannot start service %s without a GPU: it sets NVIDIA_VISIBLE_DEVICES=%s; write a file that gives it none: {gpuard setup docker} {compose=FILE}", s.Name, s.list)
	}
	return nil
}

// ServiceVariables are the variables that give these services their GPUs: those of the form, in order.
func ServiceVariables(form Form, lease string, list []Service) (env []string, err error) {
	driver := map[string]string{"cdi": "cdi", "request": "nvidia"}[form.Kind]
	if driver == "" {
		return nil, option.Errorf("cannot give GPUs to services of Compose: docker has neither NVIDIA's container toolkit nor CDI with a file that lists them; see: {gpuard doctor} {all}")
	}

	env = append(env, driverVariable+"="+driver, leaseVariable+"="+lease)
	ids, uuids := form.ids, form.uuids
	for _, s := range list {
		if len(ids) < s.GPUs {
			return nil, fmt.Errorf("cannot give %d GPUs to service %s: the lease has fewer", s.GPUs, s.Name)
		}

		for i, id := range ids[:s.GPUs] {
			env = append(env, s.variableName(strconv.Itoa(i+1))+"="+id)
		}

		own := strings.Join(uuids[:s.GPUs], ",")
		seen := "void"
		if form.Kind == "request" {
			seen = own
		}

		env = append(env, s.variableName("VISIBLE")+"="+seen, s.variableName("DEVICES")+"="+own)
		ids, uuids = ids[s.GPUs:], uuids[s.GPUs:]
	}

	return env, nil
}

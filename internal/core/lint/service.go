package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/check"
)

// service is a container that a Compose file or a quadlet describes.
type service struct {
	name     string
	sets     []Step
	runtime  Value
	requests []deviceRequest
	cdi      []Value
	// Other files have a part of it.
	elsewhere bool
	// And may give it more devices.
	grows bool
}

// deviceRequest is one entry of deploy.resources.reservations.devices, or of gpus.
type deviceRequest struct {
	at Place
	// Its place is empty when it is not there.
	count        Value
	ids          []Value
	capabilities bool
	short        bool // below gpus
	// Not written out here.
	opaque bool
}

var requestKey = lazyRegexp(`^(deploy\.resources\.reservations\.devices|gpus)(?:\[(\d+)\])?(?:\.(\w+))?(?:\[\d+\])*$`)

// readServices reads the containers of a file, in its order.
func readServices(f File) []service {
	var all []service
	at := map[string]int{}
	for _, s := range f.Steps {
		if s.Shell != 0 || f.Kind != Compose && (f.Kind != Unit || s.In != "Container") {
			continue
		}
		i, known := at[s.In]
		if !known {
			i = len(all)
			at[s.In] = i
			all = append(all, service{name: s.In})
		}
		all[i].readSetting(f.Kind, s)
	}

	return all
}

func (c *service) readSetting(kind Kind, s Step) {
	switch {
	case s.Do == Set:
		c.sets = append(c.sets, s)
	case s.Do != Setting:
	case kind == Unit:
		if s.Name == "AddDevice" && strings.Contains(s.Value.Text, "/gpu=") {
			c.cdi = append(c.cdi, s.Value)
		}
		c.elsewhere = c.elsewhere || s.Name == "EnvironmentFile" || s.Name == "PodmanArgs" || s.Name == "EnvironmentHost"
		c.grows = c.grows || s.Name == "PodmanArgs"
	default:
		c.readComposeKey(strings.TrimPrefix(s.Name, "services."+s.In+"."), s)
	}
}

func (c *service) readComposeKey(name string, s Step) {
	first, _, _ := strings.Cut(name, ".")
	first, _, _ = strings.Cut(first, "[")
	switch first {
	case "runtime":
		c.runtime = s.Value
	case "extends", "env_file":
		c.elsewhere = true
		c.grows = c.grows || first == "extends"
	case "devices":
		if strings.Contains(s.Value.Text, "/gpu=") {
			c.cdi = append(c.cdi, s.Value)
		}
	}

	m := requestKey().FindStringSubmatch(name)
	if m == nil {
		return
	}

	n, _ := strconv.Atoi(m[2])
	for len(c.requests) <= min(n, 100) {
		c.requests = append(c.requests, deviceRequest{at: s.At, short: m[1] == "gpus"})
	}

	r := &c.requests[min(n, 100)]
	switch m[3] {
	case "count":
		r.count = s.Value
	case "device_ids":
		r.ids = append(r.ids, s.Value)
	case "capabilities":
		r.capabilities = true
	case "":
		r.opaque = r.opaque || s.Value.Text != "" && m[1] != "gpus"
	}
}

// inRequest looks at the requests for devices of a file.
func inRequest(look func(r deviceRequest) []Finding) func(File) []Finding {
	return func(f File) (all []Finding) {
		for _, s := range readServices(f) {
			for _, r := range s.requests {
				all = append(all, look(r)...)
			}
		}
		return all
	}
}

// variableStep is what the service gives a variable: the last one counts.
func (c service) variableStep(name string) (Step, bool) {
	for i := len(c.sets) - 1; i >= 0; i-- {
		if c.sets[i].Name == name {
			return c.sets[i], true
		}
	}
	return Step{}, false
}

// countGPUs counts the GPUs that the container gets; ok is false where the file does not tell, or gives all.
func (c service) countGPUs() (n int, ok bool) {
	for _, r := range c.requests {
		switch {
		case len(r.ids) > 0:
			if slices.ContainsFunc(r.ids, func(v Value) bool {
				return !v.Known || strings.HasSuffix(v.Text, "all") || strings.Contains(v.Text, ",")
			}) {
				return 0, false
			}
			n += len(r.ids)
		default:
			count, err := strconv.Atoi(r.count.Text)
			if err != nil || count <= 0 {
				return 0, false
			}
			n += count
		}
	}

	for _, v := range c.cdi {
		if !v.Known || strings.HasSuffix(v.Text, "=all") {
			return 0, false
		}
		n++
	}

	if len(c.requests)+len(c.cdi) > 0 {
		return n, !c.grows
	}
	if list, given := c.variableStep("NVIDIA_VISIBLE_DEVICES"); given && c.runtime.Text == "nvidia" && list.Value.Known && !slices.Contains([]string{"all", "none", "void"}, list.Value.Text) {
		return countDevices(list.Value)
	}

	return 0, false
}

// lookHostIndexOfService is the rule host-index-in-container for containers that a file describes.
func lookHostIndexOfService(f File) (all []Finding) {
	for _, c := range readServices(f) {
		n, known := c.countGPUs()
		isPrivileged := slices.ContainsFunc(f.Steps, func(s Step) bool {
			return s.Do == Setting && s.In == c.name && strings.HasSuffix(s.Name, ".privileged") && s.Value.Text == "true"
		})
		if !known || n == 0 || isPrivileged {
			continue
		}

		for _, s := range c.sets {
			if s.Name != "CUDA_VISIBLE_DEVICES" && s.Name != "HIP_VISIBLE_DEVICES" {
				continue
			}
			finding := Finding{Finding: check.Finding{
				Seen: fmt.Sprintf("%s=%s goes into a container whose %s numbered from 0", s.Name, s.Value.Text, pluralize(n, "GPU is", "GPUs are")),
				Why:  "the container counts only its own GPUs; a number that does not exist there hides that GPU and all behind it",
				Do:   fmt.Sprintf("leave %s out, or name devices from 0 to %d", s.Name, n-1)}, At: s.At}
			switch {
			case slices.ContainsFunc(deviceNumbers(s.Value), func(i int) bool { return i >= n }):
			case !s.Value.Known && (s.Value.Text == "" || strings.Contains(s.Value.Text, s.Name)):
				finding.Severity = check.Warning
				finding.Seen = s.Name + " takes the host's list into a container that counts its own GPUs from 0"
			default:
				continue
			}
			all = append(all, finding)
		}
	}
	return all
}

// defaultValueForm is the value that ${NAME:-value} has when the variable is not set.
var defaultValueForm = lazyRegexp(`^\$\{\w+:?-([^}]*)\}$`)

// lookBesideMaskOfService is the rule gpus-beside-mask for services of a Compose file.
func lookBesideMaskOfService(f File) (all []Finding) {
	for _, c := range readServices(f) {
		list, given := c.variableStep("NVIDIA_VISIBLE_DEVICES")
		own, chooses := c.variableStep("CUDA_VISIBLE_DEVICES")
		if len(c.requests) == 0 || !given || c.elsewhere || chooses && own.Value.Known {
			// Or CUDA chooses among what is there.
			continue
		}

		value := list.Value
		if m := defaultValueForm().FindStringSubmatch(value.Text); m != nil && !value.Known {
			value.Text, value.Known = m[1], true
		}

		if !value.Known || slices.Contains([]string{"all", "none", "void", ""}, value.Text) {
			continue
		}

		var ids []string

		for _, r := range c.requests {
			for _, id := range r.ids {
				ids = append(ids, id.Text)
			}
		}

		n, known := c.countGPUs()
		asked := strings.Split(value.Text, ",")
		if len(ids) > 0 && (!known || slices.Equal(ids, asked)) || len(ids) == 0 && known && countsFromZero(deviceNumbers(value), n) {
			continue
		}

		what := "all GPUs"
		switch {
		case len(ids) > 0:
			what = "the GPUs of device_ids"
		case known:
			what = pluralize(n, "GPU of Docker's choice", "GPUs of Docker's choice")
		}

		all = append(all, Finding{Finding: check.Finding{
			Seen: "the request for devices gives the service " + c.name + " " + what + ", not those of NVIDIA_VISIBLE_DEVICES=" + value.Text,
			Why:  "Docker writes the variable itself when devices are requested", Do: `write: device_ids: ["` + strings.Join(asked, `", "`) + `"]`}, At: list.At})
	}
	return all
}

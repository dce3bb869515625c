package lint

import (
	"fmt"
	"strings"

	"gpuard/internal/core/check"
)

func lookCountBesideIDs(r deviceRequest) []Finding {
	if len(r.ids) == 0 || r.count.At.Line == 0 {
		return nil
	}
	return []Finding{{Finding: check.Finding{
		Seen: "the request has count: " + r.count.Text + " beside " + pluralize(len(r.ids), "entry", "entries") + " in device_ids", Why: "Docker refuses a request with both, and the service does not start",
		Do: "leave out count, or device_ids"}, At: r.count.At}}
}

func pluralize(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", more)
}

func lookNoCapabilities(r deviceRequest) []Finding {
	if r.short || r.capabilities || r.opaque {
		return nil
	}
	return []Finding{{Finding: check.Finding{
		Seen: "the request for GPUs has no capabilities", Why: "Compose refuses the file: capabilities is the one field that a request must have",
		Do: "add: capabilities: [gpu]"}, At: r.at}}
}

func lookMisplacedRequest(a indexedFile, _ int, s Step) []Finding {
	name := strings.TrimPrefix(s.Name, "services."+s.In+".")
	if a.Kind != Compose || s.Do != Setting || name != "deploy.resources.limits.devices[0]" && name != "deploy.resources.devices[0]" && name != "deploy.devices[0]" {
		return nil
	}
	return []Finding{{Finding: check.Finding{
		Seen: "the request for devices is below " + strings.TrimSuffix(name, ".devices[0]"), Why: "Compose reads it only below deploy.resources.reservations, and refuses the file",
		Do: "move it to deploy.resources.reservations.devices"}, At: s.At}}
}

func lookIDsNotStrings(r deviceRequest) []Finding {
	var numbers []string
	found := Finding{}
	for _, id := range r.ids {
		if id.Raw == "" || strings.Trim(id.Raw, "0123456789") != "" {
			continue
		}
		if numbers == nil {
			found.At = id.At
		}
		numbers = append(numbers, id.Raw)
		found.Edits = append(found.Edits, Edit{At: id.At, Text: `"` + id.Raw + `"`})
	}

	if numbers == nil {
		return nil
	}

	found.Seen = "device_ids has the number " + numbers[0]
	if len(numbers) > 1 {
		found.Seen = "device_ids has the numbers " + strings.Join(numbers, ", ")
	}

	found.Why = "Compose refuses a file in which an entry of device_ids is no string"
	found.Do = `write "` + strings.Join(numbers, `", "`) + `"`

	return []Finding{found}
}

func lookRuntimeAlone(f File) (all []Finding) {
	for _, s := range readServices(f) {
		_, given := s.variableStep("NVIDIA_VISIBLE_DEVICES")
		if s.runtime.Text != "nvidia" || given || s.elsewhere || len(s.requests) > 0 || len(s.cdi) > 0 {
			continue
		}
		all = append(all, Finding{Finding: check.Finding{Seen: "nothing here says which GPUs the service " + s.name + " gets",
			Why: "the variable NVIDIA_VISIBLE_DEVICES of the image decides, and in NVIDIA's own images it says all", Do: "add NVIDIA_VISIBLE_DEVICES to environment, or request devices"}, At: s.runtime.At})
	}
	return all
}

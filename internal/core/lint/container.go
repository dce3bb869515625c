package lint

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/check"
)

func containerRules() []Rule {
	return []Rule{countBesideIDs(), noCapabilities(), misplacedRequest(), idsNotStrings(), runtimeAlone(), fixedInImage(), imageTakesAll(), exportLost()}
}

const (
	composeDeploy = "compose-spec/compose-spec: deploy.md"
	composeGPU    = "https://docs.docker.com/compose/how-tos/gpu-support/"
	mobyNvidia    = "moby/moby: daemon/nvidia_linux.go"
	toolkitDocs   = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"
)

// example is a Compose file with one service.
func example(name, service string) Example {
	return Example{name, "services:\n  train:\n    image: example/train\n" + service}
}

func countBesideIDs() Rule {
	return Rule{
		Page: check.Page{
			Code:  "count-beside-device-ids",
			Title: "A request for GPUs has both count and device_ids",
			Text: "`count` leaves it to Docker which GPUs a service gets, `device_ids` names them. The Compose specification allows one of the two, and the daemon refuses a request with both: cannot set both Count and DeviceIDs on device request.\n\n" +
				"Keep `device_ids` where it matters which GPUs these are.",
			From: []string{composeDeploy, mobyNvidia, "docker/docs issue 12315"},
		},
		Severity: check.Error,
		Bad: []Example{
			example("compose.yaml", "    deploy:\n      resources:\n        reservations:\n          devices:\n            - driver: nvidia\n              count: 2\n              device_ids: [\"0\", \"3\"]\n              capabilities: [gpu]\n"),
			example("docker-compose.yml", "    gpus:\n      - count: all\n        device_ids: [\"0\"]\n"),
		},
		Good: []Example{
			example("compose.yaml", "    deploy:\n      resources:\n        reservations:\n          devices:\n            - driver: nvidia\n              device_ids: [\"0\", \"3\"]\n              capabilities: [gpu]\n"),
			example("two.compose.yaml", "    deploy:\n      resources:\n        reservations:\n          devices:\n            - driver: nvidia\n              count: 1\n              capabilities: [gpu]\n"),
		},
		Look: func(f File) []Finding {
			return eachRequest(f, func(_ service, r deviceRequest) []Finding {
				if len(r.ids) == 0 || r.count.At.Line == 0 {
					return nil
				}
				return []Finding{{Finding: check.Finding{Code: "count-beside-device-ids", Severity: check.Error,
					Seen: "the request has count: " + r.count.Text + " beside " + several(len(r.ids), "entry", "entries") + " in device_ids", Why: "Docker refuses a request with both, and the service does not start",
					Do: "leave out count, or device_ids"}, At: r.count.At}}
			})
		},
	}
}

func several(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", more)
}

func noCapabilities() Rule {
	return Rule{
		Page: check.Page{
			Code:  "capabilities-missing",
			Title: "A request for GPUs does not say capabilities",
			Text: "Below `deploy.resources.reservations.devices` every entry needs `capabilities`; Compose refuses a file without. Docker finds the driver by them: it needs `[gpu]`, and `compute` or `utility` may be added.\n\n" +
				"Write `capabilities: [gpu]`.",
			From: []string{composeDeploy, composeGPU, mobyNvidia},
		},
		Severity: check.Error,
		Bad: []Example{
			example("compose.yaml", "    deploy:\n      resources:\n        reservations:\n          devices:\n            - driver: nvidia\n              count: 1\n"),
			example("short.compose.yaml", "    deploy: {resources: {reservations: {devices: [{device_ids: [\"0\"]}]}}}\n"),
		},
		Good: []Example{
			example("compose.yaml", "    deploy:\n      resources:\n        reservations:\n          devices:\n            - capabilities: [gpu]\n"),
			example("odd.compose.yaml", "    deploy: {resources: {reservations: {devices: [{capabilities: [[gpu]], device_ids: [\"0\"]}]}}}\n"),
			example("gpus.compose.yaml", "    gpus:\n      - driver: nvidia\n        count: 1\n"),
			example("other.compose.yaml", "    deploy:\n      resources:\n        reservations:\n          devices:\n            - &gpu\n              driver: cdi\n              device_ids: [nvidia.com/gpu=0]\n              capabilities: [gpu, compute]\n"),
		},
		Look: func(f File) []Finding {
			return eachRequest(f, func(_ service, r deviceRequest) []Finding {
				if r.short || r.capabilities || r.opaque {
					return nil
				}
				return []Finding{{Finding: check.Finding{Code: "capabilities-missing", Severity: check.Error,
					Seen: "the request for GPUs has no capabilities", Why: "Compose refuses the file: capabilities is the one field that a request must have",
					Do: "add: capabilities: [gpu]"}, At: r.at}}
			})
		},
	}
}

func misplacedRequest() Rule {
	return Rule{
		Page: check.Page{
			Code:  "gpu-request-misplaced",
			Title: "A request for GPUs in a place that Compose does not read",
			Text: "Devices are requested below `deploy.resources.reservations.devices`. `limits` has no devices, and neither has `resources` itself: Compose refuses such a file.\n\n" +
				"Move the list below `reservations`, or write `gpus: all` directly in the service (Compose 2.30 and later).",
			From: []string{composeDeploy, composeGPU},
		},
		Severity: check.Error,
		Bad: []Example{
			example("compose.yaml", "    deploy:\n      resources:\n        limits:\n          devices:\n            - capabilities: [gpu]\n"),
			example("b.compose.yaml", "    deploy:\n      resources:\n        devices:\n          - capabilities: [gpu]\n            count: 1\n"),
		},
		Good: []Example{example("compose.yaml", "    deploy:\n      resources:\n        limits:\n          memory: 8g\n        reservations:\n          devices:\n            - capabilities: [gpu]\n")},
		Look: func(f File) []Finding {
			var all []Finding
			for _, s := range f.Steps {
				name := strings.TrimPrefix(s.Name, "services."+s.In+".")
				if f.Kind != Compose || s.Do != Setting || name != "deploy.resources.limits.devices[0]" && name != "deploy.resources.devices[0]" && name != "deploy.devices[0]" {
					continue
				}
				all = append(all, Finding{Finding: check.Finding{Code: "gpu-request-misplaced", Severity: check.Error,
					Seen: "the request for devices is below " + strings.TrimSuffix(name, ".devices[0]"), Why: "Compose reads it only below deploy.resources.reservations, and refuses the file",
					Do: "move it to deploy.resources.reservations.devices"}, At: s.At})
			}
			return once(all)
		},
	}
}

func idsNotStrings() Rule {
	return Rule{
		Page: check.Page{
			Code:  "device-ids-not-strings",
			Title: "device_ids has numbers where Compose wants strings",
			Text:  "`device_ids` is a list of strings. YAML reads `[0, 1]` as numbers, and Compose refuses the file: device_ids.0 must be a string.\n\nPut each entry in quotes: `[\"0\", \"1\"]`.",
			From:  []string{composeDeploy, composeGPU, "compose-spec/compose-spec: schema/compose-spec.json (devices, list_of_strings)"},
		},
		Severity: check.Error,
		Bad: []Example{
			example("compose.yaml", "    deploy:\n      resources:\n        reservations:\n          devices:\n            - driver: nvidia\n              device_ids: [0, 1]\n              capabilities: [gpu]\n"),
			example("block.compose.yaml", "    gpus:\n      - device_ids:\n          - 3\n"),
		},
		Good: []Example{
			example("compose.yaml", "    deploy:\n      resources:\n        reservations:\n          devices:\n            - driver: nvidia\n              device_ids: ['0', \"1\"]\n              capabilities: [gpu]\n"),
			example("uuid.compose.yaml", "    gpus:\n      - device_ids: [GPU-1a2b3c4d, \"${DEVICE}\"]\n"),
		},
		Look: func(f File) []Finding {
			return eachRequest(f, func(_ service, r deviceRequest) []Finding {
				var all []Finding
				for _, id := range r.ids {
					if id.Raw == "" || strings.Trim(id.Raw, "0123456789") != "" {
						continue
					}
					all = append(all, Finding{Finding: check.Finding{Code: "device-ids-not-strings", Severity: check.Error, Seen: "the entry " + id.Raw + " is a number",
						Why: "Compose refuses a file in which an entry of device_ids is no string", Do: `write "` + id.Raw + `"`}, At: id.At,
						Edits: []Edit{{At: id.At, Text: `"` + id.Raw + `"`}}})
				}
				return all
			})
		},
	}
}

func runtimeAlone() Rule {
	return Rule{
		Page: check.Page{
			Code:  "gpus-chosen-by-image",
			Title: "The service runs under the NVIDIA runtime and leaves the choice of GPUs to its image",
			Text: "With `runtime: nvidia` alone, the container gets what the image's own NVIDIA_VISIBLE_DEVICES says. NVIDIA's CUDA images say `all`, so the service can use every GPU of the machine; an image that says nothing gets none.\n\n" +
				"On a machine that is shared, say which: a request below `deploy.resources.reservations.devices`, or NVIDIA_VISIBLE_DEVICES in `environment`.",
			From: []string{toolkitDocs, composeGPU},
		},
		Severity: check.Info,
		Bad:      []Example{example("compose.yaml", "    runtime: nvidia\n")},
		Good: []Example{
			example("compose.yaml", "    runtime: nvidia\n    environment:\n      NVIDIA_VISIBLE_DEVICES: all\n"),
			example("b.compose.yaml", "    runtime: nvidia\n    environment:\n      - NVIDIA_VISIBLE_DEVICES=${GPU}\n"),
			example("c.compose.yaml", "    runtime: nvidia\n    env_file: gpu.env\n"),
			example("d.compose.yaml", "    runtime: nvidia\n    gpus: all\n"),
		},
		Look: func(f File) []Finding {
			var all []Finding
			for _, s := range services(f) {
				_, given := s.set("NVIDIA_VISIBLE_DEVICES")
				if s.runtime.Text != "nvidia" || given || s.elsewhere || len(s.requests) > 0 || len(s.cdi) > 0 {
					continue
				}
				all = append(all, Finding{Finding: check.Finding{Code: "gpus-chosen-by-image", Severity: check.Info, Seen: "nothing here says which GPUs the service " + s.name + " gets",
					Why: "the variable NVIDIA_VISIBLE_DEVICES of the image decides, and in NVIDIA's own images it says all", Do: "add NVIDIA_VISIBLE_DEVICES to environment, or request devices"}, At: s.runtime.At})
			}
			return once(all)
		},
	}
}

// once drops findings at a place that has the same one already: services share text through anchors.
func once(all []Finding) []Finding {
	seen := map[Place]bool{}
	return slices.DeleteFunc(all, func(f Finding) bool {
		known := seen[f.At]
		seen[f.At] = true
		return known
	})
}

package nvsmi

import (
	"strings"
	"testing"
)

// TestFabric: what is wrong with the NVLink fabric, in the forms of drivers from 555 on; "N/A" is not a fault.
func TestFabric(t *testing.T) {
	const health = `<health><bandwidth>Full</bandwidth><route_recovery_in_progress>False</route_recovery_in_progress><route_unhealthy>False</route_unhealthy>` +
		`<access_timeout_recovery>False</access_timeout_recovery><incorrect_configuration>None</incorrect_configuration></health>`
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"none":              {"", nil},
		"not one":           {"<fabric><state>N/A</state><health><bandwidth>N/A</bandwidth></health></fabric>", nil},
		"not yet":           {"<fabric><state>In Progress</state><health><bandwidth>Degraded</bandwidth></health></fabric>", nil},
		"probe failed":      {"<fabric><state>Completed</state><status>Unknown Error</status></fabric>", []string{"probe_failed"}},
		"older driver":      {"<fabric><state>Completed</state><status>Success</status></fabric>", []string{}},
		"well":              {"<fabric><state>Completed</state>" + health + "</fabric>", []string{}},
		"a link is missing": {"<fabric><state>Completed</state>" + strings.Replace(health, "Full", "Degraded", 1) + "</fabric>", []string{"degraded_bandwidth"}},
		"all":               {"<fabric><state>Completed</state>" + strings.NewReplacer("Full", "Degraded", "False", "True", "None", "Insufficient Nvlinks").Replace(health) + "</fabric>", []string{"degraded_bandwidth", "route_unhealthy", "incorrect_configuration"}},
		"not available":     {"<fabric><state>Completed</state>" + strings.NewReplacer("Full", "N/A", "False", "N/A", "None", "N/A").Replace(health) + "</fabric>", []string{}},
	} {
		text := strings.Replace(string(fixture(t, "driver-550.xml")), "</gpu>", c.text+"</gpu>", 1)
		m, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		same(t, name, m.Devices[0].Fabric, c.want)
	}
}

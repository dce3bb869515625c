package service

import "testing"

// TestPort: the port that a check asks on this machine; a check of another host, or another kind of check, has none.
func TestPort(t *testing.T) {
	for _, test := range []struct {
		probe Probe
		want  int
	}{
		{Probe{TCP: "8001"}, 8001}, {Probe{TCP: "127.0.0.1:8002"}, 8002}, {Probe{TCP: "db.example.org:5432"}, 0}, {Probe{HTTP: "http://127.0.0.1:8000/health"}, 8000},
		{Probe{HTTP: "http://localhost:80"}, 80}, {Probe{HTTP: "http://127.0.0.1/health"}, 0}, {Probe{HTTP: "https://127.0.0.1:8443/"}, 0}, {Probe{Command: []string{"true"}}, 0},
	} {
		i := Instance{Ready: &Ready{Probe: test.probe}}
		if got := i.Port(); got != test.want {
			t.Errorf("%+v: %d, want %d", test.probe, got, test.want)
		}
	}
	if got := (&Instance{}).Port(); got != 0 {
		t.Error(got)
	}
}

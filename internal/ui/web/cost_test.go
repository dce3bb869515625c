package web

import (
	"testing"
)

// maxPageBytes is how large a page of 8 GPUs and a day may be.
const maxPageBytes = 150 << 10

// TestSize: the page stays small, whatever is on it.
func TestSize(t *testing.T) {
	for name, make := range inventedMachines() {
		s := make(t)
		site := s.makeSite(t, "0123456789abcdef0123")
		for _, path := range []string{"/", "/?days=7", "/?days=30", "/?gpu=" + string(s.machine.Devices[0].UUID)} {
			page := getPage(t, site, path)
			if len(page) > maxPageBytes {
				t.Errorf("%s%s has %d bytes", name, path, len(page))
			}
			t.Logf("%s%s: %d bytes", name, path, len(page))
		}
	}
}

// BenchmarkPage is a page of 8 GPUs and a day.
func BenchmarkPage(b *testing.B) {
	site := workdayMachine(b).makeSite(b, "")
	getPage(b, site, "/")
	for b.Loop() {
		getPage(b, site, "/")
	}
}

// BenchmarkSections is what a page that is kept current costs each second.
func BenchmarkSections(b *testing.B) {
	site := workdayMachine(b).makeSite(b, "")
	getPage(b, site, "/")
	for b.Loop() {
		if _, err := site.renderSections(b.Context(), pageView{language: "en", days: 1}); err != nil {
			b.Fatal(err)
		}
	}
}

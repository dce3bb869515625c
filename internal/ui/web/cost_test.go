package web

import (
	"testing"
)

// mostBytes is how large a page of 8 GPUs and a day may be.
const mostBytes = 150 << 10

// TestSize: the page stays small, whatever is on it.
func TestSize(t *testing.T) {
	for name, make := range situations() {
		s := make(t)
		site := s.site(t, "0123456789abcdef0123")
		for _, path := range []string{"/", "/?days=7", "/?days=30", "/?gpu=" + string(s.machine.Devices[0].UUID)} {
			page := pageOf(t, site, path)
			if len(page) > mostBytes {
				t.Errorf("%s%s has %d bytes", name, path, len(page))
			}
			t.Logf("%s%s: %d bytes", name, path, len(page))
		}
	}
}

// BenchmarkPage is a page of 8 GPUs and a day.
func BenchmarkPage(b *testing.B) {
	site := workday(b).site(b, "")
	pageOf(b, site, "/")
	for b.Loop() {
		pageOf(b, site, "/")
	}
}

// BenchmarkSections is what a page that is kept current costs each second.
func BenchmarkSections(b *testing.B) {
	site := workday(b).site(b, "")
	pageOf(b, site, "/")
	for b.Loop() {
		if _, err := site.sections(b.Context(), sight{language: "en", days: 1}); err != nil {
			b.Fatal(err)
		}
	}
}

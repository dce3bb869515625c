package web

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestCertificateThatNeverComes: a certificate in a pipe that nobody writes, or of a device without an end, is an error.
func TestCertificateThatNeverComes(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "cert.pem")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{pipe: "no program writes to", "/dev/zero": "it is a device"} {
		if _, err := readKeyPair(path, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}
